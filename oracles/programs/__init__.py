"""Oracles for integer programs over released quantities: a feasible point with its value, no proof."""

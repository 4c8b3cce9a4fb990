"""Oracles for integer programs over released quantities; they return a feasible point, without a proof."""

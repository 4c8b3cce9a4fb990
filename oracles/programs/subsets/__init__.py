"""Oracles for best subsets of columns after the noise: a feasible choice with its value, no proof."""

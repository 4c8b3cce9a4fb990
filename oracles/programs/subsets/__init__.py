"""Oracles for best subsets of columns on noisy moments: a feasible choice with its value, no proof."""

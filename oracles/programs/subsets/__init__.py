"""Oracles for best subsets of columns on noisy moments; they return a feasible choice, without a proof."""

"""Oracles over convex sets: linear minimisers, projections, proximal and mirror steps, quadratics."""

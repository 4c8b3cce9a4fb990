"""Oracles over convex sets. Importing this package registers all of its solvers by type of set."""

from privopt.oracles.convex import least_distance, linear, polytope, projected_gradient, projection

__all__ = ["least_distance", "linear", "polytope", "projected_gradient", "projection"]

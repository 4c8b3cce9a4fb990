"""Oracles over convex sets. Importing the package registers all solvers below."""

from privopt.oracles.convex import least_distance, linear, polytope, projected_gradient, projection

__all__ = ["least_distance", "linear", "polytope", "projected_gradient", "projection"]

"""Oracles over convex sets. Importing any of them enters every solver below in the registry."""

from privopt.oracles.convex import least_distance, linear, polytope, projected_gradient, projection

__all__ = ["least_distance", "linear", "polytope", "projected_gradient", "projection"]

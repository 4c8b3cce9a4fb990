"""Risks of linear models: losses, regularisers, convex sets, passes over the records."""

"""Scorecards from linear models: mechanisms that lean on both families, convex and discrete."""

"""Quadratics that need not be convex, minimised globally: balls, boxes, polytopes, with a half-space."""

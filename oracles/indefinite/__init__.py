"""Global minimisers of indefinite quadratics over convex sets, with a half-space or without."""

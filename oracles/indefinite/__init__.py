"""Global minimisation of indefinite quadratics over balls, boxes and polytopes, perhaps with a half-space."""

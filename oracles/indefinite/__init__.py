"""Global minimisers of indefinite quadratics over balls, boxes, polytopes, and their half-space sections."""

"""Private minimisers of risks over convex sets."""

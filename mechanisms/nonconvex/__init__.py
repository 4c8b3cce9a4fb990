"""Private minimisers of non-convex risks: Langevin dynamics, nets, approximate local minima."""

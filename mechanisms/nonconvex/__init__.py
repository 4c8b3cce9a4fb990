"""Private minimisers of risks that are not convex: Langevin dynamics, nets, approximate local minima."""

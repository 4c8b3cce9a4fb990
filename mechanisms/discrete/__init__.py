"""Private choices of one lattice point."""

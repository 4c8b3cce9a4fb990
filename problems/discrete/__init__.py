"""Problems over integer lattices: exact integer losses, lattices, fixed-point perturbations."""

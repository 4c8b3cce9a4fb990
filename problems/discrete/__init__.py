"""Problems over integer lattices: losses in integers, the lattice, what a mechanism may add."""

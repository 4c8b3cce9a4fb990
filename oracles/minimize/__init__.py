"""Certified minimisation over a lattice: the interface, solvers, wrappers, the conformance kit."""

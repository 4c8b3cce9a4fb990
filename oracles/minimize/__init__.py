"""Certified minimisation over a lattice: interface, solvers, wrappers, conformance kit."""

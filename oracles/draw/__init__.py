"""Exact random draws from a lattice: the interface, samplers, the conformance kit."""

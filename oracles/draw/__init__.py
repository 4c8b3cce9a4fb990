"""Exact random draws from a lattice: interface, samplers, conformance kit."""

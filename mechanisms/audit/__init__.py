"""Audits of privacy claims, and mutants that every audit must reject."""

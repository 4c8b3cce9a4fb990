"""Audits: what a claim is held against, and mutants that must be rejected."""

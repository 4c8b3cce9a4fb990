"""Encoding of tables as features: declared columns and schemas."""

"""Data sets that ship with the package, and synthetic ones."""

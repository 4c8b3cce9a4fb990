"""Reproductions of the papers' figures and tables, one file each: ``privopt reproduce NAME``."""

"""The figures and tables of the papers, one file each: ``privopt reproduce NAME``."""

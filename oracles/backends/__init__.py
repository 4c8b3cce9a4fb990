"""One solver per file."""

"""Our own exact solver over cells."""

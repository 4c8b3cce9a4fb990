"""Private means and linear models of unbounded, possibly heavy-tailed records."""

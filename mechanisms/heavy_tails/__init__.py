"""Private means and minimisers for records that nothing bounds."""

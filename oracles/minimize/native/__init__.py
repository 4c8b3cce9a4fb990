"""Native exact minimiser of 0/1 losses over cells."""

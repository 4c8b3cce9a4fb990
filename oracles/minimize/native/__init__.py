"""Native exact minimiser over cells."""

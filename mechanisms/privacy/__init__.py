"""Privacy arithmetic, noise and bookkeeping: what every mechanism builds on."""

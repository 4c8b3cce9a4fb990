"""Private selection: the best of several private runs, paid for once."""

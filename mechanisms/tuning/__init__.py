"""Private selection: the best of several private runs, with one privacy spend for all of them."""

"""Mixed-integer models, and the general solvers that solve them."""

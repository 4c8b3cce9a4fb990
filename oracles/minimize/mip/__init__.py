"""Mixed-integer models, and the general solvers that they are handed to."""

"""Mixed-integer models for general solvers."""

"""Privacy parameters, noise, accounting, spends and budgets: the foundation of every mechanism."""

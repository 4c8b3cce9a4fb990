"""What a released model is worth: one private histogram of its scores by class, and what follows from it."""

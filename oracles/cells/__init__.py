"""The cell structure of a lattice problem, which minimising and drawing share."""

"""Cell structure of lattice problems, shared by minimisers and samplers."""

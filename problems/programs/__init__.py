"""Integer programs over released quantities: public constraints on points, and the nearest card."""

"""Tables: schemas that declare their columns, and the encoding of their cells.

A cell is read (``sources``, ``reading``; ``arrow_cells`` for Arrow and Parquet, ``cells`` for NumPy and
pandas), becomes a code by the declaration of its column (``columns``), and the code becomes features
(``schema``). Database engines do the first two steps in SQL (``engines``, ``expressions``) and return counts
(``counted``).
"""

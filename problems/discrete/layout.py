"""Layout of integer features that is known before data: which columns are indicators."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class Layout:
    """Declared indicator columns: a public input, so that solvers need not look for them in the records.

    Attributes:
        blocks: sets of columns with the values 0 and ``scale`` alone; in a row, at most one column of each
            set is not 0.
        scale: their common nonzero value.
        patterns: a bound on the number of different rows of all these columns together.
    """

    blocks: tuple[tuple[int, ...], ...]
    scale: int
    patterns: int

    @cached_property
    def indicators(self) -> IntArray:
        """The columns of all blocks, increasing."""
        return np.array(sorted(j for block in self.blocks for j in block), dtype=np.int64)

    def check(self, X: IntArray) -> None:
        """Raise InvalidInputError for features that do not have this layout."""
        for block in self.blocks:
            own = X[:, list(block)]
            active = own == self.scale
            if not np.all(active | (own == 0)) or np.any(np.sum(active, axis=1) > 1):
                raise InvalidInputError("features do not have the declared layout of indicator columns")

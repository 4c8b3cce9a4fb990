"""What is public about a scorecard: all that a plan may look at."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class CardFacts:
    """The number of records, the weights to choose from, and what a schema says of the features.

    Attributes:
        n_records: n, public under the replace-one relation.
        lattice: the weights to choose from, one for each feature.
        columns: (first, last + 1) of the features that each column became, in order. A record has at most
            one of several; a single feature may be a number.
        intercept: whether a feature that is always 1 follows the others.
        row_norm: a bound on the l2 distance of the features of a record from ``middle``.
        denominator: features are integers over this.
        middle: where the linear model measures rows from, shape (d,), the intercept's 0; empty for 0.
    """

    n_records: int
    lattice: IntegerLattice
    columns: tuple[tuple[int, int], ...]
    intercept: bool
    row_norm: float
    denominator: int = 1
    middle: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        last = self.columns[-1][1] if self.columns else 0
        if last + self.intercept != self.lattice.dimension:
            raise InvalidInputError(
                f"the lattice has dimension {self.lattice.dimension}, the schema {last + self.intercept} "
                "features"
            )

    @classmethod
    def of(cls, schema: Schema, n_records: int, lattice: IntegerLattice) -> Self:
        """The facts of a table with so many records under a schema."""
        ends = np.cumsum([0, *(len(column.feature_names) for column in schema.columns)]).tolist()
        columns = tuple(itertools.pairwise(ends))
        if schema.intercept:
            middle = tuple(schema.middle.tolist())
            return cls(n_records, lattice, columns, True, schema.spread, schema.denominator, middle)
        squares = sum(float(column.reach) ** 2 for column in schema.columns)  # one level of a column at most
        return cls(n_records, lattice, columns, False, math.sqrt(squares) * (1 + 1e-12), schema.denominator)

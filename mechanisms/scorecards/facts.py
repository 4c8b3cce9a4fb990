"""Public facts of a scorecard: everything that its plan may depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.scorecards.point_constraints import (
    PointConstraint,
    bounded,
    check_forced,
    point_constraints,
)
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class CardFacts:
    """Public facts of a scorecard: number of records, lattice of weights, and properties of the features.

    Attributes:
        n_records: n, public under the replace-one relation.
        lattice: the candidate weights, one dimension for each feature.
        columns: (first, last + 1) of the features of each column, in order. Of several features a record has
            at most one; a single feature may be a number.
        intercept: whether a feature that is always 1 follows the others.
        row_norm: a bound on the l2 distance of the features of a record from ``middle``.
        denominator: features are integers over this.
        costs: costs of false positives and false negatives.
        middle: the centre that the linear model subtracts from rows, shape (d,), 0 for the intercept; empty
            means 0.
        point_constraints: constraints of the schema on the points of columns.
        spans: (first, last + 1) of the features of each column of the schema, its missing level included.
        lines: (feature, lowest, highest) of each feature that is a number, as the schema declares it.
        max_columns: maximal number of columns with points; None: all.
    """

    n_records: int
    lattice: IntegerLattice
    columns: tuple[tuple[int, int], ...]
    intercept: bool
    row_norm: float
    denominator: int = 1
    costs: Costs = EQUAL_COSTS
    middle: tuple[float, ...] = ()
    point_constraints: tuple[PointConstraint, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    lines: tuple[tuple[int, float, float], ...] = ()
    max_columns: int | None = None

    def __post_init__(self) -> None:
        last = self.columns[-1][1] if self.columns else 0
        if last + self.intercept != self.lattice.dimension:
            raise InvalidInputError(
                f"the lattice has dimension {self.lattice.dimension}, the schema {last + self.intercept} "
                "features"
            )

    @classmethod
    def of(
        cls,
        schema: Schema,
        n_records: int,
        lattice: IntegerLattice,
        costs: Costs = EQUAL_COSTS,
        max_columns: int | None = None,
    ) -> Self:
        """Derive the facts from a schema and the number of records.

        Raises:
            InvalidInputError: more columns must have points than may.
        """
        known = Columns.of(schema)
        squares = sum(float(column.reach) ** 2 for column in schema.columns)  # one level of a column at most
        norm = math.sqrt(squares) * (1 + 1e-12)
        middle: tuple[float, ...] = ()
        if schema.intercept:
            norm, middle = schema.spread, known.middle
        box, asked = bounded(lattice, schema), point_constraints(schema)
        check_forced(schema, asked, max_columns)
        return cls(
            n_records,
            box,
            known.parts,
            schema.intercept,
            norm,
            schema.denominator,
            costs,
            middle,
            asked,
            schema.spans,
            known.lines,
            max_columns,
        )

    @property
    def known(self) -> Columns:
        """The public facts of the columns."""
        return Columns(self.columns, self.middle, self.lines)

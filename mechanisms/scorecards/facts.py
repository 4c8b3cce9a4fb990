"""Public facts of a scorecard: everything that its plan may depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.scorecards.point_constraints import (
    PointConstraint,
    bounded,
    check_forced,
    point_constraints,
)
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError
from privopt.problems.programs.constraints import Constraint, UsedColumns, bounds_of
from privopt.problems.programs.program import CardProgram
from privopt.problems.tables.point_columns import point_columns, rules_of
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class CardFacts:
    """Public facts of a scorecard: number of records, lattice of weights, and properties of the features.

    Attributes:
        n_records: n, public under the replace-one relation.
        lattice: the candidate weights, one dimension for each feature.
        columns: (first, last + 1) of the features of each part of ``Columns``, in order: the levels of a
            category, of which a record has at most one, or a single feature, which may be a number.
        intercept: whether a feature that is always 1 follows the other features.
        row_norm: a bound on the l2 distance of the features of a record from ``middle``.
        denominator: the common denominator of all features, which are integers divided by it.
        costs: costs of false positives and false negatives.
        middle: the centre that the linear model subtracts from rows, shape (d,), 0 for the intercept; empty
            means 0.
        point_constraints: constraints of the schema on the points of columns.
        spans: (first, last + 1) of the features of each column of the schema, its missing level included.
        lines: (feature, lowest, highest) of each feature that is a number, as the schema declares it.
        max_columns: maximal number of columns with points; None: all.
        program: the program of nearest cards with all constraints, if some constraints are not in the fields
            above. None: each weight is rounded by itself.
        max_weight: a bound on the weights of records, which are private; None: records have no weights.
        ordered, gaps: the ordered levels, and the features that say that a number is missing, as in
            ``Columns``.
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
    program: CardProgram | None = None
    max_weight: int | None = None
    ordered: tuple[tuple[int, int], ...] = ()
    gaps: tuple[int, ...] = ()

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
        constraints: tuple[Constraint, ...] = (),
        max_weight: int | None = None,
    ) -> Self:
        """Derive the facts from a schema and the number of records; ``constraints`` include the schema's.

        Raises:
            InvalidInputError: more than ``max_columns`` columns must have points, or constraints leave a
                column without allowed points.
        """
        known = Columns.of(schema)
        norm = schema.spread if schema.intercept else schema.norm() * (1 + 1e-12)
        box, asked = bounded(lattice, schema), point_constraints(schema)
        check_forced(schema, box, max_columns)
        program = None
        if constraints:
            constraints += rules_of(schema.columns, schema.rules)
            constraints += () if max_columns is None else (UsedColumns((), 0, max_columns),)
            box = constrained_box(lattice, schema, constraints)
            program = card_program(box, schema, constraints)
        return cls(
            n_records,
            box,
            known.parts,
            schema.intercept,
            norm,
            schema.denominator,
            costs,
            known.middle if schema.intercept else (),
            asked,
            schema.spans,
            known.lines,
            max_columns,
            program,
            max_weight,
            known.ordered,
            known.gaps,
        )

    @property
    def loss_bound(self) -> int:
        """The largest loss of a record."""
        return self.costs.largest * (self.max_weight or 1)

    @property
    def known(self) -> Columns:
        """The public facts of the columns."""
        return Columns(self.columns, self.middle, self.lines, self.ordered, self.gaps)


def constrained_box(
    lattice: IntegerLattice, schema: Schema, constraints: tuple[Constraint, ...]
) -> IntegerLattice:
    """Return the lattice with the bounds of columns replaced by the points that constraints declare for them.

    Raises:
        InfeasibleDomainError: the constraints leave a column without allowed points, or without any within
            the norm bound.
    """
    low, high = lattice.low.copy(), lattice.high.copy()
    columns = point_columns(schema.columns)
    for feature, (least, most) in bounds_of(constraints, columns).items():
        if least > most:
            name = next(c.name for c in columns if c.start <= feature < c.stop)
            raise InfeasibleDomainError(
                f"constraints leave column {name!r} no points: at least {least} and at most {most}"
            )
        low[feature], high[feature] = least, most
    return lattice.with_bounds(low, high)


def card_program(box: IntegerLattice, schema: Schema, constraints: tuple[Constraint, ...]) -> CardProgram:
    """Return the program of nearest cards, by the l1 distance of points; a feature is weighted by its spread.

    The spread is public: the standard deviation of the feature if the levels of a column, or the values of a
    number, were uniformly distributed.
    """
    columns, spread = point_columns(schema.columns), np.zeros(box.dimension - schema.intercept)
    for column in columns:
        share = 1 / max(2, column.size)
        spread[column.start : column.stop] = math.sqrt(share * (1 - share))
        if column.ends is not None:
            spread[column.start] = abs(float(column.ends[1] - column.ends[0])) / math.sqrt(12)
    d = len(spread)
    return CardProgram.of(columns, box.low[:d], box.high[:d], constraints, spread, shifted=schema.intercept)

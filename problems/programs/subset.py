"""Best subset program: a convex quadratic over weights on few columns, with public constraints on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import (
    Constraint,
    Implication,
    UsedColumns,
    check_constraints,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SubsetProgram:
    """Minimise w'Gw - 2c'w over weights w that are 0 outside at most k columns.

    A column is one feature or several, such as the levels of a category, which are chosen together. A choice
    is a 0/1 vector over columns, shape (m,).

    Attributes:
        gram: G, shape (p, p), symmetric and positive definite.
        cross: c, shape (p,).
        columns: the columns, in order; together they have all p features.
        most: k, the largest number of columns.
        constraints: ``UsedColumns`` and ``Implication`` alone.
    """

    gram: Floats
    cross: Floats
    columns: tuple[PointColumn, ...]
    most: int
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(
        cls,
        gram: Floats,
        cross: Floats,
        most: int,
        *,
        spans: Sequence[tuple[int, int]] | None = None,
        constraints: Sequence[Constraint] = (),
        names: Sequence[str] | None = None,
    ) -> Self:
        """Build the program.

        Args:
            gram, cross, most, constraints: as the attributes.
            spans: the features [start, stop) of each column; one feature each by default.
            names: names of the columns, to which constraints refer; "x0", "x1", ... by default.

        Raises:
            InvalidInputError: G is not positive definite, shapes do not fit, or a constraint is on points.
        """
        p = len(cross)
        spans = [(j, j + 1) for j in range(p)] if spans is None else list(spans)
        names = [f"x{j}" for j in range(len(spans))] if names is None else list(names)
        ends = [stop for _, stop in spans]
        if [start for start, _ in spans] != [0, *ends[:-1]] or ends[-1:] != [p] or len(names) != len(spans):
            raise InvalidInputError(
                "columns of a subset program are named, and follow each other without a gap"
            )
        columns = tuple(
            PointColumn(name, start, stop, others=True)
            for name, (start, stop) in zip(names, spans, strict=True)
        )
        if gram.shape != (p, p) or not (np.all(np.isfinite(gram)) and np.all(np.isfinite(cross))):
            raise InvalidInputError(f"a subset program needs a finite matrix of shape ({p}, {p})")
        if wrong := [c for c in constraints if not isinstance(c, UsedColumns | Implication)]:
            raise InvalidInputError(f"constraint '{wrong[0]}' is on points: a subset has none")
        check_constraints(constraints, columns)
        made = cls(gram, cross, columns, min(most, len(columns)), tuple(constraints))
        if most < 0 or not made.smallest > 0:
            raise InvalidInputError("a subset program needs most >= 0 and a positive definite matrix")
        return made

    @cached_property
    def smallest(self) -> float:
        """A lower bound on the smallest eigenvalue of G scaled to a unit diagonal."""
        diagonal = np.diag(self.gram)
        if not np.all(diagonal > 0):
            return -math.inf
        roots = np.sqrt(diagonal)
        scaled = self.gram / roots[:, None] / roots[None, :]
        return float(np.linalg.eigvalsh(scaled)[0]) - 1e-14 * len(diagonal)

    @cached_property
    def convexity(self) -> Floats:
        """A diagonal D for which G - D is positive semidefinite, shape (p,)."""
        return self.smallest * np.diag(self.gram)

    @cached_property
    def owners(self) -> IntArray:
        """The column of each feature, shape (p,)."""
        return np.repeat(np.arange(len(self.columns)), [column.size for column in self.columns])

    def features(self, choice: IntArray) -> NDArray[np.bool_]:
        """Return the mask of the features of chosen columns, shape (p,)."""
        return np.asarray(np.asarray(choice)[self.owners] != 0)

    def weights(self, choice: IntArray) -> Floats:
        """Return the best weights on chosen columns, shape (p,)."""
        kept, found = self.features(choice), np.zeros(len(self.cross))
        found[kept] = np.linalg.solve(self.gram[np.ix_(kept, kept)], self.cross[kept])
        return found

    def value(self, choice: IntArray) -> float:
        """Return the objective at the best weights on chosen columns: -c'w, at most 0."""
        return -float(self.cross @ self.weights(choice))

    def violations(self, choice: IntArray) -> list[str]:
        """Return what a choice violates, as text; none if it is feasible."""
        found = np.asarray(choice)
        if found.shape != (len(self.columns),) or not np.all((found == 0) | (found == 1)):
            return [f"a choice is {len(self.columns)} numbers 0 or 1"]
        mask = self.features(found).astype(np.int64)
        broken = [str(c) for c in self.constraints if not c.holds(mask, self.columns)]
        return broken + [f"at most {self.most} columns"] * (int(found.sum()) > self.most)

    @cached_property
    def rows(self) -> list[tuple[IntArray, IntArray, int | None, int | None]]:
        """Linear rows low <= sum coefficient * choice <= high: the number of columns, and each constraint.

        A row is (columns, coefficients, low, high), None for a missing side.
        """
        number = {column.name: j for j, column in enumerate(self.columns)}
        every = np.arange(len(self.columns))
        found: list[tuple[IntArray, IntArray, int | None, int | None]] = []
        found.append((every, np.ones_like(every), None, self.most))
        for c in self.constraints:
            where = np.array([number[column.name] for column in c.about(self.columns)], dtype=np.int64)
            if isinstance(c, UsedColumns):
                found.append((where, np.ones_like(where), c.least, c.most))
            elif isinstance(c, Implication):
                pair = np.array([number[c.needed], number[c.used]])
                found.append((pair, np.array([1, -1]), 0, None))
        return found

    def possible(self, inside: IntArray, free: IntArray) -> bool:
        """Return whether no single row rules out all choices of ``inside`` plus some of ``free``."""
        low, high = np.zeros(len(self.columns), np.int64), np.zeros(len(self.columns), np.int64)
        low[inside] = high[inside] = high[free] = 1
        for where, what, least, most in self.rows:
            ends = np.where(what > 0, low[where], high[where]), np.where(what > 0, high[where], low[where])
            if (most is not None and what @ ends[0] > most) or (least is not None and what @ ends[1] < least):
                return False
        return True

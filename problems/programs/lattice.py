"""Lattices under public constraints on points: the part of a box of integers that satisfies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import Constraint, bounds_of, check_constraints
from privopt.problems.programs.parsing import parse_constraints

# Boxes of more points are not searched.
_MOST = 2_000_000


class ConstrainedLattice(IntegerLattice):
    """The points of a lattice that satisfy public constraints on the points of columns.

    Only oracles that set ``takes_constraints`` accept such a lattice: an oracle that knows only bounds would
    optimise, or draw, over a larger domain than the one that a mechanism was planned for.

    Privacy: constraints are public, so this is a fixed finite domain, as a box is. Its points are points of
    the box, so the least distance, largest norm and separators of the box hold for it too.

    Args:
        box: bounds and norm bound. Bounds are narrowed to those that constraints declare.
        columns: the columns that the first coordinates belong to; an intercept may follow these.
        constraints: constraints, or their text forms.
        witness: a point of the lattice, which proves that there is one; None: the box is searched.

    Raises:
        InvalidInputError: constraints that do not fit the columns, a witness outside the lattice, or no
            witness for a box of more than two million points.
        InfeasibleDomainError: no point satisfies the constraints.
    """

    constrained: ClassVar[bool] = True

    columns: tuple[PointColumn, ...]
    constraints: tuple[Constraint, ...]
    witness: IntArray

    def __init__(
        self,
        box: IntegerLattice,
        columns: Sequence[PointColumn],
        constraints: Sequence[str | Constraint],
        witness: ArrayLike | None = None,
    ) -> None:
        known = tuple(parse_constraints(constraints))
        check_constraints(known, columns)
        if columns and columns[-1].stop > box.dimension:
            raise InvalidInputError(
                f"the columns have {columns[-1].stop} features, the lattice has dimension {box.dimension}"
            )
        low, high = box.low.copy(), box.high.copy()
        for feature, (least, most) in bounds_of(known, columns).items():
            low[feature], high[feature] = max(low[feature], least), min(high[feature], most)
        for name, value in vars(box.with_bounds(low, high)).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "constraints", known)
        object.__setattr__(self, "witness", self._searched() if witness is None else self._checked(witness))

    def _searched(self) -> IntArray:
        if self.box_size > _MOST:
            raise InvalidInputError(
                f"whether some of {self.box_size} points satisfy the constraints is not searched: give a "
                "witness, a point that does"
            )
        for block in self.batches():
            return np.array(block[0])
        listed = "; ".join(f"'{c}'" for c in self.constraints)
        raise InfeasibleDomainError(
            f"no point of {super().__str__()} satisfies all of these constraints: {listed}"
        )

    def _checked(self, witness: ArrayLike) -> IntArray:
        point = np.array(witness)
        if not self.contains(point):
            raise InvalidInputError("the witness is no point of the lattice that satisfies the constraints")
        return point.astype(np.int64)

    def satisfied(self, points: IntArray) -> NDArray[np.bool_]:
        """Return whether each of several points of the box satisfies the constraints; shape (k,)."""
        found = np.ones(len(points), dtype=np.bool_)
        for constraint in self.constraints:
            found &= constraint.held(points, self.columns)
        return found

    def contains(self, w: ArrayLike) -> bool:
        return super().contains(w) and bool(self.satisfied(np.asarray(w)[None, :])[0])

    def batches(self, size: int = 1 << 16) -> Iterator[IntArray]:
        for block in super().batches(size):
            kept = block[self.satisfied(block)]
            if len(kept):
                yield kept

    @cached_property
    def size(self) -> int:
        """The exact number of points, by trying every point of the box.

        Raises:
            InvalidInputError: a box of more than two million points.
        """
        if self.box_size > _MOST:
            raise InvalidInputError(f"{self.box_size} points are not counted one by one: use box_size")
        return sum(len(block) for block in self.batches())

    @property
    def box(self) -> IntegerLattice:
        """The lattice without its constraints."""
        return self.with_bounds(self.low, self.high)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstrainedLattice)
            and self.box == other.box
            and self.columns == other.columns
            and self.constraints == other.constraints
        )

    def __hash__(self) -> int:
        return hash((self.box, self.columns, self.constraints))

    def __str__(self) -> str:
        listed = "; ".join(f"'{c}'" for c in self.constraints)
        return f"{super().__str__()} under {listed}"

"""Bounded polytopes given by inequalities."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.interface import (
    ConvexSet,
    Estimate,
    NoClosedFormError,
    fixed,
    gauge_of_halfspaces,
)
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError


@dataclass(frozen=True, eq=False)
class Polytope(ConvexSet):
    """Polytope {A w <= b, low <= w <= high}: A of shape (m, p), b (m,), low and high (p,), all finite.

    The box keeps the set bounded. The exact radius and diameter are hard to compute. The radius and diameter
    of the box are returned instead; they are upper bounds, which suffice for step sizes.
    """

    A: Vector
    b: Vector
    box: Box

    def __init__(self, A: ArrayLike, b: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        matrix, sides, box = fixed(A, 2), fixed(b, 1), Box(low, high)
        if matrix.shape != (len(sides), box.dimension):
            raise InvalidInputError(
                f"A must have shape ({len(sides)}, {box.dimension}) to match b and the box, "
                f"got {matrix.shape}"
            )
        object.__setattr__(self, "A", matrix)
        object.__setattr__(self, "b", sides)
        object.__setattr__(self, "box", box)

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the box
        return self.box.dimension

    @cached_property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the rows
        A, b = self.halfspaces
        rows = {(*a, side) for a, side in zip((A + 0.0).tolist(), b.tolist(), strict=True)}
        return rows == {(*a, side) for a, side in zip((-A + 0.0).tolist(), b.tolist(), strict=True)}

    @property
    def halfspaces(self) -> tuple[Vector, Vector]:
        """All constraints as rows: (A, b) with the box's 2 p rows below, high then low."""
        eye = np.eye(self.dimension)
        A = np.concatenate([self.A, eye, -eye])
        return A, np.concatenate([self.b, self.box.high, -self.box.low])

    @property
    def radius(self) -> float:
        return self.box.radius

    @property
    def diameter(self) -> float:
        return self.box.diameter

    @property
    def l1_radius(self) -> float:
        return self.box.l1_radius

    def support(self, g: Vector) -> float:
        raise NoClosedFormError(
            "the support function of a polytope is a linear program: use "
            "privopt.oracles.convex.quantities.support"
        )

    def gaussian_width(self) -> Estimate:
        raise NoClosedFormError(
            "the width of a polytope takes linear programs: use "
            "privopt.oracles.convex.quantities.gaussian_width"
        )

    def gauge(self, v: Vector) -> float:
        A, b = self.halfspaces
        return gauge_of_halfspaces(A @ v, b)

    def violation(self, w: Vector) -> float:
        return max(self.box.violation(w), float(np.max(self.A @ w - self.b, initial=0.0)))

    def lower_bound(self, g: Vector, multipliers: Vector) -> float:
        """Return a lower bound on <w, g> over C for any multipliers y >= 0 of A w <= b (weak duality).

        It is the minimum over the box of <w, g + A'y>, minus <b, y>.
        """
        return -self.box.support(-(g + multipliers @ self.A)) - float(multipliers @ self.b)

    @cached_property
    def _corners(self) -> Vector:
        """All vertices, by trying every p-subset of the halfspaces; repeated ones are dropped."""
        A, b = self.halfspaces
        found = []
        for subset in itertools.combinations(range(len(b)), self.dimension):
            rows = list(subset)
            if abs(np.linalg.det(A[rows])) > 1e-12:
                corner = np.linalg.solve(A[rows], b[rows])
                if np.all(A @ corner <= b + 1e-9):
                    found.append(corner)
        if not found:
            raise InfeasibleDomainError("empty polytope: no corner satisfies all constraints")
        corners = np.array(found)
        _, first = np.unique(np.round(corners, 9), axis=0, return_index=True)
        return corners[np.sort(first)]

    @property
    def vertex_count(self) -> int | None:
        subsets = math.comb(len(self.b) + 2 * self.dimension, self.dimension)
        return len(self._corners) if subsets <= 20_000 else None

    def _list_vertices(self) -> Vector:
        return self._corners

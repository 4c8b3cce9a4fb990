"""Boxes cut by an l1 ball, an l2 ball or a simplex."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError


@dataclass(frozen=True, eq=False)
class BoxIntersection(ConvexSet):
    """A box cut by an l1 ball, an l2 ball or a simplex.

    A single constraint couples the coordinates, so every quantity is a function of the multiplier of that
    constraint. The radius is the smaller radius of the two sets, the diameter the smaller diameter. These are
    upper bounds, which is enough for step sizes. With an l2 ball the radius is exact, because the norm is
    continuous on the box.

    Attributes:
        box: the box; with a simplex, restricted to coordinates >= 0.
        other: the set that cuts it.

    Raises:
        InfeasibleDomainError: no point in common.
    """

    box: Box
    other: L1Ball | L2Ball | Simplex

    def __post_init__(self) -> None:
        if self.box.dimension != self.other.dimension:
            raise InvalidInputError(
                f"a box of dimension {self.box.dimension} and a {type(self.other).__name__} of dimension "
                f"{self.other.dimension} have no intersection: give both the same dimension"
            )
        if isinstance(self.other, Simplex):
            object.__setattr__(self, "box", Box(np.maximum(self.box.low, 0), self.box.high))
            empty = not np.sum(self.box.low) <= self.other.size <= np.sum(self.box.high)
        else:
            empty = self.other.norm(self.box.nearest_to_zero) > self.other.size
        if empty:
            raise InfeasibleDomainError(
                f"empty intersection: no point of the box lies in the {type(self.other).__name__}"
            )

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the box
        return self.box.dimension

    @cached_property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the parts
        return self.box.centrally_symmetric and self.other.centrally_symmetric

    @cached_property
    def shrinkable(self) -> bool:  # type: ignore[override]  # depends on the parts
        return self.box.shrinkable and self.other.shrinkable

    @property
    def radius(self) -> float:
        return min(self.box.radius, self.other.radius)

    @property
    def diameter(self) -> float:
        return min(self.box.diameter, self.other.diameter)

    @property
    def l1_radius(self) -> float:
        return min(self.box.l1_radius, self.other.l1_radius)

    def support(self, g: Vector) -> float:
        """Return the dual value at the best multiplier; by weak duality an upper bound at any multiplier."""
        box, size = self.box, self.other.size
        point, multiplier = self._farthest(g)
        if multiplier == 0:
            return box.support(g)
        if multiplier == np.inf:  # C is one point
            return float(point @ g)
        if isinstance(self.other, Simplex):
            return multiplier * size + box.support(g - multiplier)
        if isinstance(self.other, L2Ball):
            peaks = np.clip(g / multiplier, box.low, box.high)
            return float(g @ peaks) + multiplier / 2 * (size**2 - float(peaks @ peaks))
        ends = np.stack([box.low, box.nearest_to_zero, box.high])
        return multiplier * size + float(np.sum(np.max(ends * g - multiplier * np.abs(ends), axis=0)))

    def maximizer(self, g: Vector) -> Vector:
        """Return a point of C that attains the support function, shape (p,)."""
        return self._farthest(g)[0]

    def _farthest(self, g: Vector) -> tuple[Vector, float]:
        """Return a maximiser of <w, g> over C, and the multiplier of the coupling constraint."""
        box = self.box
        if isinstance(self.other, L2Ball):
            corner = np.where(g == 0, box.nearest_to_zero, np.where(g > 0, box.high, box.low))
            if np.linalg.norm(corner) <= self.other.size:
                return corner, 0.0
            point, scale = scaled_into(box, g, self.other.size)
            return point, 1 / scale if scale > 0 else np.inf
        # Fractional knapsack: spend the l1 norm (or the sum) on coordinates in decreasing order of g.
        simplex = isinstance(self.other, Simplex)
        point = np.array(box.low if simplex else box.nearest_to_zero)
        room = box.high - point if simplex else np.where(g > 0, box.high - point, point - box.low)
        price = g if simplex else np.abs(g)
        left = self.other.size - float(np.sum(np.abs(point)))
        order = np.argsort(-price, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(room[order])])
        used = np.clip(left - before[:-1], 0.0, room[order])
        point[order] += used * (1.0 if simplex else np.sign(g[order]))
        full = int(np.searchsorted(before[1:], left))  # the coordinate on which the rest is spent
        exhausted = full < len(order)
        return point, float(price[order[min(full, len(order) - 1)]]) if exhausted or simplex else 0.0

    def gauge(self, v: Vector) -> float:
        least = max(self.box.gauge(v), self.other.gauge(v))
        if not 0 < least < np.inf:
            return least
        # v lies in r * box for an interval of r, and in r * simplex for one r only. If some r fits both sets,
        # the larger of their two least r does, so this r is checked.
        fits = self.box.contains(v / least) and self.other.contains(v / least)
        return least if fits else np.inf

    def violation(self, w: Vector) -> float:
        return max(self.box.violation(w), self.other.violation(w))


def scaled_into(box: Box, x: Vector, size: float) -> tuple[Vector, float]:
    """Return the point clip(s x) of the box with l2 norm ``size``, and s >= 0.

    The norm grows with s, from the norm of the box's point nearest to 0 to the norm of the box's corner in
    direction x; ``size`` must lie between these two norms. Between breakpoints, where a coordinate
    reaches a bound, the solution is in closed form.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        knots = np.concatenate([box.low / x, box.high / x])
    knots = np.sort(knots[np.isfinite(knots) & (knots > 0)])

    def squared(s: float) -> float:
        return float(np.sum(box.clip(s * x) ** 2))

    at = bisect_left(knots, size**2, key=squared)
    if at == len(knots):  # only after rounding errors, as ``size`` is at most the norm of the corner
        s = float(knots[-1]) if len(knots) else 0.0
        return box.clip(s * x), s
    start = float(knots[at - 1]) if at else 0.0
    middle = (start + float(knots[at])) / 2 * x
    free = (middle > box.low) & (middle < box.high)
    rest = max(0.0, size**2 - float(np.sum(box.clip(middle)[~free] ** 2)))
    length = float(np.linalg.norm(x[free]))
    s = min(np.sqrt(rest) / length, float(knots[at])) if length > 0 else start
    return box.clip(s * x), s


def shifted_to_sum(x: Vector, low: Vector, high: Vector, total: float) -> Vector:
    """Return the point clip(x - t) of a box with sum ``total``, between the sums of low and of high.

    The sum decreases in t, linearly between breakpoints, where a coordinate reaches a bound.
    """
    knots = np.sort(np.concatenate([x - low, x - high]))

    def minus_sum(t: float) -> float:
        return -float(np.sum(np.clip(x - t, low, high)))

    at = bisect_left(knots, -total, key=minus_sum)
    if at == 0:
        return np.array(high)
    if at == len(knots):
        return np.array(low)
    middle = x - (knots[at - 1] + knots[at]) / 2
    free = (middle > low) & (middle < high)
    clipped = np.clip(middle, low, high)
    if np.any(free):
        missing = total - float(np.sum(clipped))
        clipped[free] = np.clip(middle + missing / np.count_nonzero(free), low, high)[free]
    return np.asarray(clipped)

"""A finite net of a ball, and the risk on it as a discrete problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# The loss of a record is rounded to this many units, about a millionth of its range each.
LOSS_UNITS = 1 << 20
_ENTRIES = 1 << 22  # records times points whose losses are computed at a time


@dataclass(frozen=True)
class BallNet:
    """Points of the ball {|w|_2 <= radius}: every point of the ball is within ``alpha`` of a net point.

    The points are s k for integer vectors k, with s = 2 alpha / sqrt(d) and |s k| <= radius + alpha;
    points outside the ball are projected onto it. Proof of the covering: a point w of the ball lies in a cube
    of side s around some s k, so |w - s k| <= sqrt(d) s / 2 = alpha, hence |s k| <= radius + alpha.
    Projection onto a convex set that contains w does not increase the distance to w.

    Raises:
        InvalidInputError: arguments that are not finite and > 0, or radius / alpha > 1e9.
    """

    dimension: int
    radius: float
    alpha: float

    def __post_init__(self) -> None:
        if not (self.dimension >= 1 and 0 < self.radius < math.inf and 0 < self.alpha < math.inf):
            raise InvalidInputError(
                f"a net needs a dimension >= 1, a radius and an alpha > 0, got {self.dimension}, "
                f"{self.radius:g} and {self.alpha:g}"
            )
        if self.radius / self.alpha > 1e9:
            raise InvalidInputError(
                f"alpha = {self.alpha:g} is too fine for a ball of radius {self.radius:g}"
            )

    @property
    def spacing(self) -> float:
        return 2 * self.alpha / math.sqrt(self.dimension)

    @property
    def reach(self) -> float:
        """The largest |k|, rounded up: further points do no harm."""
        return (self.radius + self.alpha) / self.spacing * (1 + 1e-12)

    @cached_property
    def lattice(self) -> IntegerLattice:
        """The integer vectors k of the net."""
        most = math.floor(self.reach)
        return IntegerLattice(-most, most, dimension=self.dimension, radius=self.reach)

    @property
    def size_bound(self) -> float:
        """An upper bound on the number of points: unit cubes around the k fit into a larger ball."""
        d, r = self.dimension, self.reach + math.sqrt(self.dimension) / 2
        log_volume = d / 2 * math.log(math.pi) - float(special.gammaln(d / 2 + 1)) + d * math.log(r)
        return math.exp(min(log_volume, 700.0))

    def points(self, indices: IntArray) -> Vector:
        """Return the points of the net for k of shape (m, d); shape (m, d)."""
        w = self.spacing * indices
        lengths = np.linalg.norm(w, axis=1, keepdims=True)
        return np.asarray(w * np.minimum(1, self.radius / np.maximum(lengths, self.radius)))


def loss_spread(facts: RiskFacts, radius: float) -> float:
    """Return a bound on the range (maximum minus minimum) of one record's loss over a ball.

    The bound is the smaller of the range of the loss and 2 G radius, as |f(w) - f(0)| <= G radius.
    """
    return min(facts.loss.value_range, 2 * facts.gradient_bound * radius)


class NetProblem(DiscreteProblem):
    """The risk n F + n (l2/2) |w|^2 on a net, in integer units of ``loss_spread / LOSS_UNITS``.

    Every record's loss is rounded to units separately, so replacing one record changes the sum at a point by
    at most ``LOSS_UNITS``, exactly. Where the range of the loss exceeds 2 G radius, losses are counted from
    the loss at 0 minus G radius. The penalty is public; its total is rounded once.

    Args:
        risk: the records.
        net: the net.
        l2: strength of the penalty (l2/2) |w|^2.
    """

    record_loss_bound = LOSS_UNITS

    def __init__(self, risk: EmpiricalRisk, net: BallNet, l2: float = 0.0) -> None:
        if net.dimension != risk.facts.dimension:
            raise InvalidInputError(
                f"a net in {net.dimension} dimensions for a risk in {risk.facts.dimension}"
            )
        self.facts, self.net, self.l2 = risk.facts, net, l2
        self.lattice = net.lattice
        # The clipped rows, column by column.
        self._rows = np.column_stack([risk.predictions(e) for e in np.eye(net.dimension)]).astype(np.float64)
        self._labels, self._counts = risk.y.astype(np.float64), risk.counts
        self._spread = loss_spread(self.facts, net.radius)
        self._least = np.zeros_like(self._labels)
        if self.facts.loss.value_range > self._spread:
            centre = self.facts.loss.value(np.zeros_like(self._labels), self._labels)
            self._least = np.asarray(centre - self._spread / 2, dtype=np.float64)

    @property
    def n_records(self) -> int:
        return self.facts.n_records

    @property
    def n_rows(self) -> int:
        return len(self._labels)

    @property
    def largest_loss(self) -> int:
        return self.n_records * LOSS_UNITS + int(self._penalty(np.array([self.net.radius**2]))[0])

    def losses(self, points: IntArray) -> IntArray:
        w = self.net.points(points)
        total = self._penalty(np.sum(w * w, axis=1))
        rows = max(1, _ENTRIES // len(points))
        for start in range(0, self.n_rows, rows):
            block = slice(start, start + rows)
            # Term by term: in a BLAS product a record's last bit can depend on the number of other records.
            z = np.zeros((len(self._rows[block]), len(w)))
            for column, weight in zip(self._rows[block].T, w.T, strict=True):
                z += column[:, None] * weight
            y = np.broadcast_to(self._labels[block, None], z.shape)
            share = (self.facts.loss.value(z, y) - self._least[block, None]) / self._spread
            total += self._counts[block] @ np.rint(np.clip(share, 0.0, 1.0) * LOSS_UNITS).astype(np.int64)
        return total

    def _penalty(self, squares: Vector) -> IntArray:
        units = self.n_records * self.l2 / 2 * squares / self._spread * LOSS_UNITS
        return np.rint(units).astype(np.int64)

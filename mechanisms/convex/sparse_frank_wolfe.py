"""DP-FW-L1 on sparse rows: exact draws of vertices at a cost that does not grow with the number of features.

Law: vertex s is drawn with probability proportional to exp(score), score = -<s, grad F(x)> / scale, which is
also the law of the largest score with Gumbel noise (the exponential mechanism). So a release has the law of
``DPFrankWolfeL1`` over all vertices, and its privacy proof.

Draw: every vertex has a Poisson process of rate exp(score), and the first arrival of all is the vertex drawn.
No feature j has a score beyond b_j = size G sum_i |a_ij| / (n scale), whatever the iterate, since no slope
exceeds G. Features with b_j > 2 are *frequent*: each is non-zero in more than 8 / epsilon records, with the
epsilon of one step. So the number of frequent features is at most epsilon / 8 times the number of non-zero
entries, however many features there are. Their scores are computed, and each of their vertices has a clock.
The other features, *rare*, have scores in [-2, 2], and Poisson thinning (Lewis and Shedler 1979) simulates
their vertices together: proposals arrive at the rate exp(2) a vertex, each at a vertex chosen uniformly,
whose score is then computed from its own column; the proposal is accepted with probability exp(score - 2).
Accepted proposals before the first of the clocks are the arrivals at rare vertices, in order. If there is
none, the vertex of that first clock is drawn.

Scores: every score that is used is computed from the slopes at the present iterate. Updating the predictions
of only those records that have the chosen feature (Raff, Khanna and Lu 2023, algorithm 2) gives another law:
a step to (1 - gamma) x + gamma s shrinks all predictions, so slopes of all records change. Here all n
predictions are multiplied by 1 - gamma; then the share of the chosen feature is added to the predictions of
the records that have the feature.

Rounding: a computed prediction is a function of its own record and of the vertices drawn so far, so the drift
of the predictions costs no privacy: whatever the drift, the slope of a replaced record stays in [-G, G] and
the slopes of all other records do not change. ``SelectionNoise.sensitivity`` includes the rounding of sums of
slopes, and ``SelectionNoise.float_epsilon`` covers the rounding of draws. After T steps a prediction is
off by at most 3 T 2^-53 R, R its largest size, and by the rounding of the first predictions: a step adds
three roundings of numbers of size at most R, and shrinks the error before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex

if TYPE_CHECKING:  # compiles
    from privopt.problems.convex.sparse_columns import SparseColumns

# Largest score of a rare vertex: proposals arrive at a rate of exp(2) for each.
_LARGEST = 2.0
# Proposals made at a time; about seven are needed where scores are near 0.
_AT_ONCE = 16
# Rows whose slopes one thread computes at a time.
_ROWS = 1 << 17


class Vertex(NamedTuple):
    """The vertex sign * size * e_feature."""

    feature: int
    sign: int


def applies(risk: EmpiricalRisk, convex_set: ConvexSet, regularizer: ElasticNet) -> bool:
    """Return whether vertices can be drawn as in ``VertexDraws``.

    These draws need sparse rows without weights, all in one part, vertices of one feature each, and no ridge
    penalty.
    """
    here = type(risk) is EmpiricalRisk and sp.issparse(risk.X) and risk.weights is None
    return here and type(convex_set) in (L1Ball, Simplex) and regularizer.l2 == 0


@dataclass(frozen=True, eq=False)
class VertexDraws:
    """Draws of a vertex in proportion to exp(score), score = -sign * factor * sum_i slope_i a_ij.

    Attributes:
        columns: the rows a_i.
        factor: the factor of scores.
        signs: number of vertices of a feature: 2 for a ball, 1 for a simplex, whose vertices are positive.
        frequent: the features that may have scores beyond ``_LARGEST``.
        rare: all others.
    """

    columns: SparseColumns
    factor: float
    signs: int
    frequent: NDArray[np.int64]
    rare: NDArray[np.int64]

    @classmethod
    def of(cls, risk: EmpiricalRisk, convex_set: L1Ball | Simplex, scale: float) -> Self:
        """Return the draws for the mean gradients of a risk."""
        from privopt.problems.convex.sparse_columns import SparseColumns

        columns = SparseColumns.of(risk)
        factor = convex_set.size / (risk.facts.n_records * scale)
        slopes = risk.facts.loss.lipschitz * risk.counts.astype(np.float64)
        beyond = factor * columns.sums_of_magnitudes(slopes) * (1 + 1e-9) > _LARGEST
        signs = 2 if isinstance(convex_set, L1Ball) else 1
        return cls(columns, factor, signs, np.flatnonzero(beyond), np.flatnonzero(~beyond))

    def draw(self, slopes: Vector, source: NoiseSource) -> Vertex:
        """Return the vertex drawn; ``slopes`` are the slopes of the rows, times the counts of the rows."""
        vertex, time = self._first_clock(slopes, source)
        return self._first_proposal(slopes, source, time) or vertex

    def _first_clock(self, slopes: Vector, source: NoiseSource) -> tuple[Vertex, float]:
        """Return the first arrival at a frequent vertex, and the logarithm of its time; infinite if none."""
        if not self.frequent.size:
            return Vertex(-1, 0), math.inf
        scores = -self.factor * self.columns.sums(self.frequent, slopes)
        both = np.concatenate([scores, -scores][: self.signs])
        clocks = np.log(source.exponential(both.size)) - both
        first = int(np.argmin(clocks))
        return self._vertex(self.frequent, first), float(clocks[first])

    def _first_proposal(self, slopes: Vector, source: NoiseSource, deadline: float) -> Vertex | None:
        """Return the first arrival at a rare vertex, unless its log time is beyond the deadline."""
        vertices = self.signs * self.rare.size
        if not vertices:
            return None
        log_rate, elapsed = _LARGEST + math.log(vertices), 0.0
        while not elapsed or math.log(elapsed) - log_rate <= deadline:
            times = elapsed + np.cumsum(source.exponential(_AT_ONCE))
            proposed = [self._vertex(self.rare, v) for v in source.integers(vertices, _AT_ONCE).tolist()]
            features, signs = np.array(proposed).T
            scores = -self.factor * signs * self.columns.sums(features, slopes)
            refused = source.exponential(_AT_ONCE) < _LARGEST - scores  # a score that is NaN is accepted
            if not np.all(refused):
                first = int(np.argmin(refused))
                return proposed[first] if math.log(times[first]) - log_rate <= deadline else None
            elapsed = float(times[-1])
        return None

    def _vertex(self, features: NDArray[np.int64], index: int) -> Vertex:
        """Return vertex ``index`` of some features: first all positive ones, then the negative ones."""
        count = features.size
        return Vertex(int(features[index % count]), 1 if index < count else -1)


class SparsePath:
    """Iterates x+ = (1 - gamma) x + gamma s from a start, by their predictions and their vertices.

    Attributes:
        predictions: <a_i, x> of the rows at the present iterate.
    """

    def __init__(self, risk: EmpiricalRisk, start: Vector, size: float, columns: SparseColumns) -> None:
        self._risk, self._start, self._size, self._columns = risk, start, size, columns
        self._labels = risk.y.astype(np.float64)
        self._counts: Any = risk.counts
        self._vertices: list[Vertex] = []
        self._rates: list[float] = []
        self.predictions = risk.predictions(start).astype(np.float64)

    def slopes(self) -> Vector:
        """Return the slopes of the rows times their counts, within the Lipschitz constant of the loss."""
        from privopt.problems.convex.passes import in_order  # imports numba, which is slow

        parts = [slice(k, k + _ROWS) for k in range(0, len(self._labels), _ROWS)]
        return np.concatenate(in_order(self._slopes_of, parts))

    def _slopes_of(self, rows: slice) -> Vector:
        loss = self._risk.facts.loss
        found = loss.slope(self.predictions[rows], self._labels[rows])
        return np.asarray(self._counts[rows] * np.clip(found, -loss.lipschitz, loss.lipschitz))

    def step(self, vertex: Vertex, rate: float) -> None:
        """Move to (1 - rate) x + rate s."""
        self.predictions *= 1 - rate
        self._columns.add(self.predictions, vertex.feature, rate * vertex.sign * self._size)
        self._vertices.append(vertex)
        self._rates.append(rate)

    def output(self, output: Output) -> Vector:
        """Return the last iterate, or an average: see ``choose_output``."""
        start_share, shares = path_shares(self._rates, output)
        point = start_share * self._start
        for vertex, share in zip(self._vertices, shares, strict=True):
            point[vertex.feature] += share * vertex.sign * self._size
        return point


def path_shares(rates: Sequence[float], output: Output) -> tuple[float, list[float]]:
    """Return the shares of the start and of the vertices in the output.

    If W_k is the weight of the iterates after step k in the output, as seen from x_k, then vertex k has the
    share rate_k W_k, and W_{k-1} = weight of iterate k - 1 + (1 - rate_k) W_k.
    """
    weights = [float(output is Output.AVERAGE or k == len(rates) - 1) for k in range(len(rates))]
    if output is Output.WEIGHTED:
        weights = [k + 1.0 for k in range(len(rates))]
    total, seen, shares = math.fsum(weights), 0.0, []
    if not rates:
        return 1.0, []
    for rate, weight in zip(reversed(rates), reversed(weights), strict=True):
        seen += weight / total
        shares.append(rate * seen)
        seen *= 1 - rate
    return seen, shares[::-1]

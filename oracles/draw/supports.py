"""Exact draws of supports for least squares, by branch and bound on masses.

A support S is a set of columns. Its loss is R(S), rounded down to units of loss, where R(S) is the least
|y - Xw|^2 over weights w with |w| <= r that are 0 outside S. Let G = X'X and c = X'y. A region is a set of
supports: some columns are in all supports, some in none, and each support has k of the other columns, the
free columns. For any multiplier l >= 0 and any b, strong convexity of
h(b) = y'y - 2 c'b + b'Gb + l (|b|^2 - r^2) gives a lower bound for each support S of the region:

    R(S) >= h(b) - 2 |h'(b) / 2| (r + |b|) + sum over free j outside S of D_j b_j^2.

D is a diagonal matrix with D <= G + l I: D = m diag(G) + l I, with m at most the smallest eigenvalue of G
scaled to a unit diagonal. (If |w| <= r, the term with l is at most 0.) The bound is a sum over columns. So
the bound on the mass of a region is an elementary symmetric polynomial, from which supports are proposed
exactly (``privopt.oracles.draw.subset_proposals``). Poisson thinning (``privopt.oracles.draw.thinning``)
gives exact draws from any such bounds, even loose ones. b is the minimiser of h up to rounding errors, which
the second term covers. m is certified by a Cholesky factor (Rump 2006).

As for the other branch and bound (``privopt.oracles.draw.branch``), the running time depends on the data and
is not private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, eigvalsh

from privopt.oracles.cells.compiling import announced
from privopt.oracles.draw.interface import (
    EXPONENTIAL_ERROR,
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    chain_error,
    race_error,
    stop_if_asked,
)
from privopt.oracles.draw.mass_bounds import Words
from privopt.oracles.draw.subset_proposals import (
    UNCERTIFIED,
    propose,
    subset_tree,
    words_per_try,
)
from privopt.oracles.draw.thinning import TRIES, LastFrontier, Node, ThinnedArrivals
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits, Watch
from privopt.problems.arguments import check_whole
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.discrete.restricted_loss import loss_of_columns
from privopt.problems.discrete.supports import (
    BestSubset,
    SubsetBounds,
    SupportLattice,
    check_certified,
)
from privopt.problems.errors import InvalidInputError

# The largest accepted energy, beta times the loss; rounding errors make the law meaningless below it already.
_LARGEST_ENERGY = 2.0**40
# The multipliers l that are tried at the root, divided by the mean of diag(G).
_MULTIPLIERS = (0.0, *np.geomspace(1e-3, 30.0, 24).tolist())
# Bytes of a region besides its tables: the node, its decimal rate and time, the headers of its arrays.
_OVERHEAD = 3000
# A bound on the exact loss minus the rounded loss, in units: rounding down takes 1, other errors 1/4.
_ROUNDING = 2.0


@dataclass(frozen=True)
class GibbsSupports(GibbsOracle):
    """Exact sampler of supports by branch and bound, for the Gibbs law.

    Args:
        memory: memory limit for the regions of a draw, in bytes, > 0. It also limits the work, because each
            region takes a matrix-vector product and about a hundred proposals. A draw that needs more memory
            raises ``UnfinishedDrawError``.
    """

    name: ClassVar[str] = "gibbs-supports"
    memory: int = 2 << 30

    def __post_init__(self) -> None:
        check_whole(self.memory, "memory, in bytes,")

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return self._refusals(type(problem), law)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return self._refusals(facts.kind, facts.question)

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        assert isinstance(facts.lattice, SupportLattice)  # by refusals
        return _exactness(facts.lattice, beta * facts.largest_loss)

    def _refusals(self, kind: type[DiscreteProblem], law: object) -> list[str]:
        if not issubclass(kind, BestSubset):
            return [f"it draws supports, no {kind.__name__}"]
        return [] if law is Law.GIBBS else ["draws from the Gibbs law only"]

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, BestSubset)  # by refusals
        _compile()
        return _SupportSampler(problem, self.memory)


@cache
@announced("the exact sampler")
def _compile() -> None:
    """Compile all kernels, or load them from the cache, by a tiny problem, before time is measured."""
    X = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    problem = BestSubset(X, X[:, 0], SupportLattice(3, 1), SubsetBounds(1.0, feature=1.0))
    model = _Model(_Relaxation(problem), 1e-6, 1 << 20)
    (node,) = model.roots(Limits().start())
    model.open(node)
    words, levels = np.arange(1 << 12, dtype=np.uint64), np.zeros(3, dtype=np.int64)
    model.propose(node, words, 0, 0.0, math.inf, 1, levels)


class _SupportSampler(Sampler):
    def __init__(self, problem: BestSubset, memory: int) -> None:
        self.problem = problem
        self._frontier = LastFrontier(lambda beta: _Model(self._relaxation, beta, memory))

    def draw(self, request: DrawRequest) -> Sample:
        if request.beta * self.problem.largest_loss > _LARGEST_ENERGY:
            raise InvalidInputError(
                f"beta times the largest loss is beyond {_LARGEST_ENERGY:.3g}, where rounding drowns the "
                "law. To do: a smaller epsilon"
            )
        stop_if_asked(request.watch, 0)
        model, frontier = self._frontier.take(request.beta, request.watch)
        arrivals = ThinnedArrivals(model, request, frontier, 0.0)
        point = arrivals.first()
        self._frontier.kept = model, arrivals.frontier()
        exactness = _exactness(self.problem.lattice, request.beta * self.problem.largest_loss)
        return Sample(point, exactness, None, arrivals.nodes)

    @cached_property
    def _relaxation(self) -> _Relaxation:
        return _Relaxation(self.problem)


@dataclass(frozen=True)
class _Bound:
    """A lower bound on the loss of any support, and its increase for each column outside the support.

    Attributes:
        value: the lower bound, as a sum of squared residuals.
        gains: the increases D_j b_j^2, shape (q,).
    """

    value: float
    gains: FloatArray


class _Relaxation:
    """The quadratic relaxation for every multiplier and every set of excluded columns."""

    def __init__(self, problem: BestSubset) -> None:
        self.problem = problem
        sums = problem.products
        self.gram, self.cross, self.square = sums.gram, sums.cross, sums.square
        self.values, self.vectors = eigh(self.gram)
        self.rotated = self.vectors.T @ self.cross
        self.share = _smallest_share(self.gram)
        self._inverse: dict[tuple[float, int], FloatArray] = {}

    def bound(self, multiplier: float, outside: tuple[int, ...]) -> _Bound:
        """Return the bound for one multiplier, if no support contains the columns ``outside``."""
        scales = self._scales(multiplier)
        b = self.vectors @ (self.rotated * scales)
        if outside:
            out = list(outside)
            columns = np.stack([self._inverse_column(multiplier, j) for j in outside], axis=1)
            b = b - columns @ np.linalg.lstsq(columns[out], b[out], rcond=None)[0]
            b[out] = 0.0
        return self._certified(b, multiplier, outside)

    def _certified(self, b: FloatArray, multiplier: float, outside: tuple[int, ...]) -> _Bound:
        """Return the bound at b, lowered by a bound on its rounding error."""
        r, n, q = self.problem.radius, self.problem.n_records, len(b)
        residual = self.gram @ b + multiplier * b - self.cross
        residual[list(outside)] = 0.0
        length, steep = float(np.linalg.norm(b)), float(np.linalg.norm(residual))
        tilt = 2 * steep * (r + length)
        size = n * (1 + float(np.sum(np.abs(b)))) ** 2 + multiplier * (length + r) ** 2
        slack = 16 * (q + 16) * UNIT_ROUNDOFF * (size + self.largest_product * (1 + length) ** 2) + tilt
        value = self.square + float(b @ (residual - self.cross)) - multiplier * r * r - slack
        # Rounding may make the share negative. Then D decreases the bound, by at most this.
        value += min(0.0, self.share) * self.largest_product * (r + length) ** 2
        convexity = np.maximum(0.0, self.share * np.diag(self.gram) + multiplier)
        return _Bound(value, convexity * b * b * (1 - 1e-12))

    @property
    def largest_product(self) -> float:
        """The largest diagonal entry of G; it exceeds n if the constant is above the bound on features."""
        return float(np.max(np.diag(self.gram)))

    def _scales(self, multiplier: float) -> FloatArray:
        tiny = max(1e-13 * float(self.values[-1]), 1e-300)
        scales: FloatArray = 1.0 / np.maximum(self.values + multiplier, tiny)
        return scales

    def _inverse_column(self, multiplier: float, j: int) -> FloatArray:
        """Return column j of the inverse of G + multiplier I; cached, as many regions exclude column j."""
        if (multiplier, j) not in self._inverse:
            self._inverse[multiplier, j] = self.vectors @ (self._scales(multiplier) * self.vectors[j])
        return self._inverse[multiplier, j]


def _smallest_share(gram: FloatArray) -> float:
    """Return a certified lower bound on the smallest eigenvalue of G scaled to a unit diagonal.

    If the Cholesky factor of A exists in floating point, the smallest eigenvalue of A is at least
    -(q + 2) u trace(A) / (1 - (q + 2) u) (Rump 2006, "Verification of positive definiteness").
    """
    q = len(gram)
    roots = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    scaled = gram / roots[:, None] / roots[None, :]
    error = 4 * (q + 4) * UNIT_ROUNDOFF * q
    share = float(eigvalsh(scaled, subset_by_index=(0, 0))[0])
    for shrunk in (0.999 * max(share, 0.0), 0.9 * max(share, 0.0), -2 * error, -1.0):
        try:
            cholesky(scaled - shrunk * np.eye(q), lower=True, check_finite=False)
        except LinAlgError:
            continue
        return shrunk - error
    return -float(q)


@dataclass(frozen=True, eq=False)
class _Region:
    """Tables of a region. Energies are beta times losses.

    Attributes:
        inside, outside: the columns in every support, and in none.
        free: the other columns, shape (m,).
        size: the number of free columns in each support.
        base: the lower bound on the energy of a support without free columns.
        gains: the decrease of the lower bound for each free column in the support, shape (m,).
        tree: elementary symmetric polynomials of exp(gains), from ``subset_tree``.
    """

    inside: tuple[int, ...]
    outside: tuple[int, ...]
    free: IntArray
    size: int
    base: float
    gains: FloatArray
    tree: FloatArray = field(repr=False)

    @property
    def log_bound(self) -> float:
        return float(self.tree[1, self.size]) - self.base

    @property
    def decided(self) -> bool:
        return self.size in (0, len(self.free))


class _Model:
    """Regions and their bounds at one inverse temperature, as ``thinning.Bounds``."""

    def __init__(self, relaxation: _Relaxation, beta: float, memory: int) -> None:
        self.relaxation, self.beta, self.problem = relaxation, beta, relaxation.problem
        self.lattice = self.problem.lattice
        self.depth = self.lattice.dimension
        self.energy = beta * self.problem.units  # the energy of a squared residual of 1
        self._largest = beta * self.problem.largest_loss
        self._always = tuple(range(self.depth, len(self.relaxation.cross)))  # the constant
        leaves = _leaves(self.depth)
        needed = words_per_try(leaves.bit_length() - 1, self.lattice.support)
        self.words = max(1 << 13, 2 * needed)
        tables = 8 * (2 * leaves * (self.lattice.support + 1) + 3 * self.depth)
        self.most = max(1, memory // (_OVERHEAD + tables))
        self.multiplier = 0.0

    def roots(self, watch: Watch) -> list[Node[_Region]]:
        """Return the root region, with the multiplier that gives the best bound on its mass."""
        stop_if_asked(watch, 0)
        free = np.arange(self.depth)
        scale = float(np.trace(self.relaxation.gram)) / len(self.relaxation.cross)
        regions = {}
        for multiple in _MULTIPLIERS:
            bound = self.relaxation.bound(multiple * scale, ())
            regions[multiple * scale] = self._region((), (), free, self.lattice.support, bound)
        self.multiplier = min(regions, key=lambda m: regions[m].log_bound)
        region = self._exact(regions[self.multiplier])
        return [Node(0, (), region.log_bound, None, region)]

    def _region(
        self, inside: tuple[int, ...], outside: tuple[int, ...], free: IntArray, size: int, bound: _Bound
    ) -> _Region:
        """Build a region from a bound, with numbers of at most the size that ``_exactness`` assumes.

        The value may be negative. It must not be replaced by 0, because gains are added to it. Because no
        energy is negative, value and gains may be multiplied by the same factor <= 1, and so may gains alone.
        """
        value = self.energy * bound.value - self.beta * _ROUNDING
        share = min(1.0, self._largest / max(-value, 1e-300))
        value, gains = share * value, (share * self.energy) * bound.gains[free]
        if (total := math.fsum(gains)) > 2 * self._largest:
            gains = gains * (2 * self._largest / total)
        return _Region(inside, outside, free, size, value + math.fsum(gains), gains, subset_tree(gains, size))

    def _exact(self, region: _Region) -> _Region:
        """Return the region with its exact energy if it is a single support; otherwise return it as given."""
        if not region.decided:
            return region
        chosen = region.free if region.size else region.free[:0]
        columns = np.sort(np.array([*region.inside, *self._always, *chosen.tolist()], dtype=np.int64))
        energy = self.beta * self._loss(columns)
        gains = np.zeros(len(chosen))
        return _Region(
            region.inside, region.outside, chosen, region.size, energy, gains, subset_tree(gains, region.size)
        )

    def _loss(self, columns: IntArray) -> int:
        sums, problem = self.problem.products, self.problem
        loss = loss_of_columns(sums.gram, sums.cross, sums.square, problem.radius, problem.units, columns)
        check_certified(loss)
        return int(loss)

    def open(self, node: Node[_Region]) -> float:
        """Make the tables of a region, from its parent's or from a new relaxation; return its log bound."""
        if node.region is None:
            assert node.parent is not None
            parent, (j, is_in) = node.parent, divmod(node.levels[-1], 2)
            kept = np.flatnonzero(parent.free != j)
            node.region = self._exact(self._best(parent, j, bool(is_in), kept))
            node.parent = None
        return node.region.log_bound

    def _best(self, parent: _Region, j: int, is_in: bool, kept: IntArray) -> _Region:
        """Return a part of a region with the better bound on its mass: its parent's or a new relaxation's."""
        inside, outside = (*parent.inside, j), (*parent.outside, j)
        at = int(np.flatnonzero(parent.free == j)[0])
        gains, free = parent.gains[kept], parent.free[kept]
        if is_in:
            base, size = parent.base - float(parent.gains[at]), parent.size - 1
            return _Region(inside, parent.outside, free, size, base, gains, subset_tree(gains, size))
        tree = subset_tree(gains, parent.size)
        inherited = _Region(parent.inside, outside, free, parent.size, parent.base, gains, tree)
        if inherited.decided:
            return inherited
        bound = self.relaxation.bound(self.multiplier, outside)
        fresh = self._region(parent.inside, outside, free, parent.size, bound)
        return min(inherited, fresh, key=lambda region: region.log_bound)

    def tune(self, node: Node[_Region], enough: float) -> float:
        """Return the log of the bound, which has no parameters to tune."""
        node.tuned = True
        return node.log_bound

    def children(self, node: Node[_Region]) -> list[Node[_Region]]:
        """Split the region by its free column with the largest gain."""
        region = node.region
        assert region is not None
        at = int(np.argmax(region.gains))
        j, gains = int(region.free[at]), np.delete(region.gains, at)
        roots = subset_tree(gains, region.size)[1]
        within = float(region.gains[at] + roots[region.size - 1]) - region.base
        without = float(roots[region.size]) - region.base
        return [
            Node(0, (*node.levels, 2 * j + is_in), log_bound, region)
            for is_in, log_bound in ((1, within), (0, without))
        ]

    def propose(
        self,
        node: Node[_Region],
        words: Words,
        cursor: int,
        elapsed: float,
        horizon: float,
        tries: int,
        levels: IntArray,
    ) -> tuple[int, int, float, int]:
        region = node.region
        assert region is not None
        sums, problem = self.problem.products, self.problem
        fixed = np.array([*region.inside, *self._always], dtype=np.int64)
        columns = np.empty(region.size + len(fixed), dtype=np.int64)
        status, cursor, elapsed, tries = propose(
            sums.gram, sums.cross, sums.square, problem.radius, problem.units, self.beta,
            region.tree, region.gains, region.free, fixed, columns, region.size, region.base,
            words, cursor, elapsed, horizon, tries,
        )  # fmt: skip
        check_certified(-1 if status == UNCERTIFIED else 0)
        levels[: self.lattice.support] = columns[: self.lattice.support]
        return status, cursor, elapsed, tries

    def point(self, node: Node[_Region], levels: IntArray) -> IntArray:
        mask = np.zeros(self.depth, dtype=np.int64)
        mask[levels[: self.lattice.support]] = 1
        return mask


def _leaves(columns: int) -> int:
    """Return the number of leaves of the tree over the columns, a power of 2."""
    return 1 << max(0, (columns - 1).bit_length())


def _exactness(lattice: SupportLattice, energy: float) -> Exactness:
    """Bound the rounding errors of tables, of races down the tree, of accepted proposals, and of times.

    Energies and sums of gains are at most four times the largest energy. At each level of the tree, a table
    entry is a sum of at most s + 1 products. Its logarithm, exponentials, and sums of energies each have an
    error of a few roundoffs times their size. An arrival is assigned to a child at most once, when its region
    is split. The errors of times and of acceptance are as in ``branch``.
    """
    if energy > _LARGEST_ENERGY:
        return Exactness(math.inf, 1.0)
    s, levels = lattice.support, _leaves(lattice.dimension).bit_length()
    size = 4 * energy + math.log(lattice.box_size) + s
    table = levels * UNIT_ROUNDOFF * (8 * size + 8 * (s + 4))
    races = chain_error(s * levels, 2 * table, size) + race_error(size)
    bound = 2 * table + (s + 16) * UNIT_ROUNDOFF * size
    clocks = EXPONENTIAL_ERROR * (1 + size) + (TRIES + 8) * UNIT_ROUNDOFF
    # An exponential is exact unless 203 zero bits come in a row, and no draw uses 2^50 exponentials.
    return Exactness(2 * (bound + clocks) + races, 2.0 ** (50 - 203))

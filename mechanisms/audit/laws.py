"""Exact laws of the package's mechanisms on problems that are small enough to compute them.

- exponential mechanism: the closed form over the enumerated lattice;
- permute-and-flip: a polynomial integral, by a quadrature that is exact for it;
- OPDisc and RSPM on a parity: symmetry leaves one probability, a power of a tail;
- OPDisc and RSPM with noise in one or two dimensions: the Gaussian or Laplace measure of a polygon.

The laws are for noise that is not rounded. The release rounds noise terms to multiples of 2^-20 of a loss,
which changes a probability by about 2^-20; calibration accounts for this rounding, and audits compare on
coarser scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import ExactAudit, exact_audit
from privopt.mechanisms.audit.neighbours import Neighbours, ParityProblem, SignLattice
from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.rspm import GaussianRSPM, LaplaceRSPM
from privopt.mechanisms.errors import AuditError
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem

Floats = NDArray[np.float64]

# Laws over more points than this are not computed.
_LARGEST_LATTICE = 1024
# Half-width of the integration range, in scales of the noise: P[|noise| > 45 scales] < 1e-19 for either law.
_REACH = 45.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def audit_plan(plan: LatticeMechanism[Any], pair: Neighbours) -> ExactAudit:
    """Audit a plan's claim by its exact output laws on two neighbours.

    Raises:
        AuditError: the law is not known in closed form for this plan and problem.
    """
    laws = output_law(plan, pair.first), output_law(plan, pair.second)
    return exact_audit(*laws, plan.spend.epsilon, plan.spend.delta)


def output_law(plan: LatticeMechanism[Any], problem: DiscreteProblem) -> Floats:
    """Return the probabilities of a plan's outcomes on one data set.

    Outcomes are the points in lexicographic order; for OPDisc and RSPM on parities they are the two parities
    (even, odd). These suffice: flipping an even number of coordinates is a symmetry of problem and noise, so
    the law is uniform within a parity.

    Raises:
        AuditError: the law is not known in closed form for this plan and problem.
        PlanMismatchError: the plan was made for another problem.
    """
    plan.check_problem(problem)
    if isinstance(plan, ExponentialMechanism):
        points = _points(problem.lattice)
        weights = _relative_weights(problem.losses(points), plan.beta)
        return (
            _permute_and_flip(weights) if isinstance(plan, PermuteAndFlip) else weights / math.fsum(weights)
        )
    if isinstance(plan, OPDisc | GaussianRSPM):
        if isinstance(problem, ParityProblem):
            return _parity_law(plan, problem)
        return _planar_law(plan, problem)
    raise AuditError(f"no exact law of {plan.name} is known; audit it by running it")


def wrong_parity(tail: float, dimension: int) -> float:
    """Return P[the winner has the parity with more losses], from the tail of one coordinate's noise.

    ``tail`` is the probability that the noise of a coordinate alone outweighs those losses. Without losses,
    noise picks each level with probability 1/2, so either parity wins half of the time. With losses, the
    wrong parity wins if flipping any coordinate, even the least decided one, costs more noise than it saves
    losses.
    """
    return float(0.5 * tail**dimension)


def _parity_law(plan: OPDisc | GaussianRSPM, problem: ParityProblem) -> Floats:
    majority = int(np.sum(problem.labels))
    tail = _decided(plan, problem.lattice, abs(majority))
    wrong = wrong_parity(tail, problem.lattice.dimension)
    return np.array([wrong, 1 - wrong] if majority > 0 else [1 - wrong, wrong])


def _decided(plan: OPDisc | GaussianRSPM, lattice: IntegerLattice, losses: int) -> float:
    """Return P[flipping one coordinate costs more than so many losses] under the noise of a plan."""
    if isinstance(plan, OPDisc):
        if not isinstance(lattice, SignLattice):
            raise AuditError("the law of OPDisc on a parity is known over {-1, 1}^d")
        # A flip changes <eta, pi(w)> by 2 |eta_j| / sqrt(d).
        return float(special.erfc(losses * math.sqrt(lattice.dimension / 8) / plan.sigma))
    # A flip changes sum_k eta_k loss(w, e_k) by |eta_j|.
    if isinstance(plan, LaplaceRSPM):
        return math.exp(-losses / plan.scale)
    return float(special.erfc(losses / (math.sqrt(2) * plan.scale)))


def _points(lattice: IntegerLattice) -> IntArray:
    if lattice.size > _LARGEST_LATTICE:
        raise AuditError(
            f"exact laws are computed over at most {_LARGEST_LATTICE} points, got {lattice.size}"
        )
    return np.concatenate(list(lattice.batches()))


def _relative_weights(losses: IntArray, beta: float) -> Floats:
    return np.asarray(np.exp(-beta * (losses - losses.min())))


def _permute_and_flip(keep: Floats) -> Floats:
    """Return the law of permute-and-flip: visit points in random order, stop at w with probability keep[w].

    Give each point a uniform position t in the order. Then P[w] = keep[w] E prod over v != w (1 - t keep[v]),
    a polynomial in t of degree N - 1 with values in [0, 1]: Gauss-Legendre quadrature is exact for it,
    without cancellation. Source: McKenna and Sheldon (2020).
    """
    nodes, weights = np.polynomial.legendre.leggauss(keep.size // 2 + 1)
    t, mass = (nodes + 1) / 2, weights / 2
    passed = 1 - t[:, None] * keep
    return np.array(
        [keep[w] * (mass @ np.prod(np.delete(passed, w, axis=1), axis=1)) for w in range(keep.size)]
    )


def _planar_law(plan: OPDisc | GaussianRSPM, problem: DiscreteProblem) -> Floats:
    """Return P[w wins] for each w: the measure of {eta: <eta, phi(v) - phi(w)> <= L(v) - L(w) for all v}."""
    points = _points(problem.lattice)
    losses = problem.losses(points).astype(np.float64)
    scale = plan.sigma if isinstance(plan, OPDisc) else plan.scale
    features = _features(plan, problem, points)
    if features.shape[1] > 2:
        raise AuditError(
            f"the law of {plan.name} is known for noise in at most 2 dimensions or on a parity, "
            f"got {features.shape[1]} dimensions"
        )
    plane = np.zeros((len(points), 2))
    plane[:, : features.shape[1]] = features
    laplace = isinstance(plan, LaplaceRSPM)
    density = _laplace_density if laplace else _gaussian_density
    below = _laplace_below if laplace else _gaussian_below
    # In units of the scale of the noise.
    return np.array([_cell(plane, losses / scale, w, density, below) for w in range(len(points))])


def _features(plan: OPDisc | GaussianRSPM, problem: DiscreteProblem, points: IntArray) -> Floats:
    if isinstance(plan, OPDisc):
        bound = problem.lattice.max_squared_norm
        last = np.sqrt(1 - np.sum(points**2, axis=1) / bound)
        return np.column_stack([points / math.sqrt(bound), last])
    separators = problem.separators(problem.lattice)
    # The noise is symmetric, so its sign in the objective does not matter.
    return np.array([separators.losses(w) for w in points], dtype=np.float64)


def _cell(
    features: Floats,
    losses: Floats,
    w: int,
    density: Callable[[Floats], Floats],
    below: Callable[[Floats], Floats],
) -> float:
    """Return the measure of the polygon where w wins: quadrature over x, exact in the other coordinate."""
    slope = np.delete(features - features[w], w, axis=0)
    room = np.delete(losses - losses[w], w)
    x, weights = _quadrature(_corners(slope, room))
    low, high = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
    for (a, b), c in zip(slope.tolist(), room.tolist(), strict=True):
        if b > 0:
            high = np.minimum(high, (c - a * x) / b)
        elif b < 0:
            low = np.maximum(low, (c - a * x) / b)
        else:
            # The second coordinate is free, the first must satisfy a x <= c.
            high = np.where(a * x <= c, high, -np.inf)
    inside = np.maximum(below(high) - below(low), 0.0)
    return float(np.sum(weights * density(x) * inside))


def _corners(slope: Floats, room: Floats) -> Floats:
    """Return first coordinates at which two lines <slope, .> = room, or a line and the axis, meet."""
    a, b = slope.T
    cross = a[:, None] * b - a * b[:, None]
    meet = room[:, None] * b - room * b[:, None]
    pairs = meet[cross != 0] / cross[cross != 0]
    return np.concatenate([pairs, room[a != 0] / a[a != 0]])


def _quadrature(corners: Floats) -> tuple[Floats, Floats]:
    """Return quadrature nodes and weights on [-_REACH, _REACH], in cells of width <= 1/2 between corners."""
    grid = np.linspace(-_REACH, _REACH, int(4 * _REACH) + 1)
    edges = np.unique(np.concatenate([grid, np.clip(corners, -_REACH, _REACH)]))
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half + half * _NODES).ravel(), (half * _WEIGHTS).ravel()


def _gaussian_density(x: Floats) -> Floats:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _gaussian_below(x: Floats) -> Floats:
    return np.asarray(special.ndtr(x))


def _laplace_density(x: Floats) -> Floats:
    return np.asarray(np.exp(-np.abs(x)) / 2)


def _laplace_below(x: Floats) -> Floats:
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)

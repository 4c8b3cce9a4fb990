"""Conformance kit for oracles of indefinite quadratics, built-in or your own.

>>> from privopt.oracles.indefinite.ball import BallOracle
>>> print(check_indefinite_oracle(BallOracle()).oracle)
ball

The minimum of every instance is known by construction. Instances are repeated at several scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.conformance import (
    ConformanceReport,
    Failure,
    Finding,
    RandomStates,
    Tally,
)
from privopt.oracles.convex.quadratic import QuadraticAnswer
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.indefinite.interface import HalfSpace, IndefiniteOracle, PreparedIndefinite
from privopt.oracles.limits import Limits
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

_SCALES = (1.0, 1e-4, 1e5)


@dataclass(frozen=True, eq=False)
class QuadraticInstance:
    """A quadratic whose minimum is known.

    Attributes:
        name: for the report.
        convex_set, H, g, cut: the problem; ``cut`` is the half-space.
        minimum: the least value of <w, H w>/2 + <g, w>.
    """

    name: str
    convex_set: ConvexSet
    H: Vector
    g: Vector
    minimum: float
    cut: HalfSpace | None = None


@dataclass(frozen=True, eq=False)
class _Case:
    instance: QuadraticInstance
    prepared: PreparedIndefinite
    tolerance: float
    scale: float

    @classmethod
    def of(cls, oracle: IndefiniteOracle, instance: QuadraticInstance, tolerance: float) -> _Case:
        size = instance.convex_set.radius
        scale = float(np.linalg.norm(instance.H)) * size**2 + float(np.linalg.norm(instance.g)) * size + 1e-12
        prepared = oracle.prepare(instance.convex_set, instance.H, instance.cut)
        return cls(instance, prepared, tolerance, scale)

    def slack(self, factor: float) -> float:
        return self.tolerance * factor * self.scale


def check_indefinite_oracle(
    oracle: IndefiniteOracle,
    *,
    instances: Iterable[QuadraticInstance] | None = None,
    tolerance: float = 2e-5,
) -> ConformanceReport:
    """Put an oracle through every check, on every instance that it takes.

    Args:
        oracle: the oracle.
        instances: the problems, by default the ones of ``planted_quadratics``.
        tolerance: the allowed error of values, bounds and points, relative to the scale of the instance.

    Raises:
        ConformanceError: a check failed, or nothing could be checked; the message lists every kind of
            failure.
    """
    tally = Tally()
    for instance in planted_quadratics() if instances is None else instances:
        for case in tally.built(instance.name, partial(_Case.of, oracle, instance, tolerance)):
            tally.check_all(instance.name, _CHECKS, case)
    tally.failures += [Failure("empty set", "refusal", reason) for reason in _empty(oracle)]
    return tally.verdict(oracle.name)


def _wrong(case: _Case, answer: QuadraticAnswer, minimum: float, slack: float) -> Iterator[str]:
    """Find false statements in an answer, whether or not the solve finished."""
    if not answer.violation <= case.tolerance * (1 + case.instance.convex_set.radius):
        yield f"the point misses the set by {answer.violation:.3g}"
    if answer.value < minimum - slack:
        yield f"value {answer.value:.9g} is below the minimum {minimum:.9g}"
    if answer.bound > minimum + slack:
        yield f"bound {answer.bound:.9g} is above the minimum {minimum:.9g}"
    if answer.status is not Status.OPTIMAL:
        return
    if answer.value > minimum + slack:
        yield f"value {answer.value:.9g} is claimed optimal, the minimum is {minimum:.9g}"
    if answer.gap > slack:
        yield f"status OPTIMAL with a gap of {answer.gap:.3g}"


def _check_minimum(case: _Case) -> Iterator[Finding]:
    """Check that the point is in the set, its value is the known minimum, and the bound valid and tight."""
    answer = case.prepared.minimize(case.instance.g)
    yield from (("", finding) for finding in _wrong(case, answer, case.instance.minimum, case.slack(1)))
    if answer.status is not Status.OPTIMAL:
        yield "", f"stopped by {answer.status.name} without a limit"


def _check_limits(case: _Case) -> Iterator[Finding]:
    """Check that answers after cancellation or a time limit are points of the set with valid bounds."""
    limits = {"cancelled at once": Limits(cancelled=lambda: True), "no time": Limits(seconds=1e-9)}
    for name, limit in limits.items():
        answer = case.prepared.minimize(case.instance.g, limit)
        yield from ((name, f) for f in _wrong(case, answer, case.instance.minimum, case.slack(1)))


def _check_purity(case: _Case) -> Iterator[Finding]:
    """Check that an answer depends on its question alone, and that no question or random state is changed."""
    states, g = RandomStates(), case.instance.g.copy()
    first = case.prepared.minimize(g)
    if not np.array_equal(g, case.instance.g):
        yield "", "the argument was changed in place"
    case.prepared.minimize(-g)
    if case.prepared.minimize(g).point.tolist() != first.point.tolist():
        yield "", "asked again, it answers something else"
    yield from (("", finding) for finding in states.touched())


def _check_refusals(case: _Case) -> Iterator[Finding]:
    p = case.instance.convex_set.dimension
    bad = {"a NaN": np.full(p, np.nan), "infinity": np.full(p, np.inf), "another dimension": np.ones(p + 1)}
    for what, g in bad.items():
        try:
            case.prepared.minimize(g)
        except InvalidInputError:
            continue
        yield "", f"{what} was accepted"


_CHECKS: tuple[Callable[[_Case], Iterator[Finding]], ...] = (
    _check_minimum,
    _check_limits,
    _check_purity,
    _check_refusals,
)


def _empty(oracle: IndefiniteOracle) -> Iterator[str]:
    """Check that a half-space without a point of the set is refused."""
    for convex_set in (L2Ball(2, 1.0), Box([-1, -1], [1, 1]), Simplex(2, 1.0)):
        try:
            oracle.prepare(convex_set, -np.eye(2), HalfSpace(np.ones(2), -3.0))
        except (InfeasibleDomainError, UnsupportedProblemError):
            continue
        yield f"{type(convex_set).__name__} in a half-space that misses it was accepted"


# --- Instances ----------------------------------------------------------------------------------------


def planted_quadratics(seed: int = 0) -> Iterator[QuadraticInstance]:
    """Yield small problems of every kind, at several scales, with their minima."""
    for instance in _planted(seed):
        for factor in _SCALES:
            yield QuadraticInstance(
                instance.name if factor == 1 else f"{instance.name}, times {factor:g}",
                instance.convex_set,
                factor * instance.H,
                factor * instance.g,
                factor * instance.minimum,
                instance.cut,
            )


def _planted(seed: int) -> Iterator[QuadraticInstance]:
    rng = np.random.default_rng(seed)
    yield from _on_balls(rng)
    yield from _on_boxes(rng)
    yield from _on_vertices(rng)


def _on_balls(rng: np.random.Generator) -> Iterator[QuadraticInstance]:
    """Yield instances on balls.

    On a whole ball, w is chosen first, on the sphere. This w is a minimum if (H + lambda I) w = -g with
    lambda >= 0 and H + lambda I >= 0 (More and Sorensen 1983), which gives g.
    """
    B = rng.standard_normal((4, 4))
    H = (B + B.T) / 2
    least = -float(np.linalg.eigvalsh(H)[0])
    for name, excess in (("easy", 0.7), ("hard", 0.0)):
        w = rng.standard_normal(4)
        w *= 1.3 / np.linalg.norm(w)
        g = -(H + (least + excess) * np.eye(4)) @ w
        value = float(w @ (H @ w / 2 + g))
        ball = L2Ball(4, 1.3)
        yield QuadraticInstance(f"ball, {name} case", ball, H, g, value)
        idle = HalfSpace(w, float(w @ w) + 0.1)
        yield QuadraticInstance(f"ball, {name} case, idle half-space", ball, H, g, value, idle)
    disc = L2Ball(2, 1.0)
    one, zero = np.array([0.0, 1.0]), np.zeros(2)
    saddle = np.diag([1.0, -1.0])
    # On the cut w_2 = 0.3 the slope in w_2 points outwards, and w_1 = 0.
    yield QuadraticInstance("disc, active half-space", disc, saddle, -5 * one, -1.545, HalfSpace(one, 0.3))
    # The half-space excludes the global minimum (0, 1); the local minimum (0, -1) remains.
    steep = np.diag([-1.0, -2.0])
    yield QuadraticInstance("disc, local minimum left", disc, steep, -0.1 * one, -0.9, HalfSpace(one, 0.3))
    # The minimum is where the line of the cut meets the circle: (+-sqrt(1 - 0.64), 0.8).
    bowl = np.diag([-2.0, 0.0])
    yield QuadraticInstance(
        "disc, where it meets the cut", disc, bowl, 3 * one, -0.36 + 2.4, HalfSpace(-one, -0.8)
    )
    yield QuadraticInstance("disc, no curvature", disc, np.zeros((2, 2)), 2 * one, -2.0)
    yield QuadraticInstance("disc, nothing", disc, np.zeros((2, 2)), zero, 0.0)
    yield QuadraticInstance("interval", L2Ball(1, 2.0), -np.eye(1), np.ones(1), -4.0)
    yield QuadraticInstance(
        "cut interval", L2Ball(1, 2.0), -np.eye(1), np.ones(1), -0.0, HalfSpace(-np.ones(1), 0.0)
    )


def _on_boxes(rng: np.random.Generator) -> Iterator[QuadraticInstance]:
    """Yield instances on a box, a polytope that is a rotated box, and a square with a half-space.

    On both boxes the quadratic is a sum over the coordinates, each of which is minimised alone.
    """
    d, g = np.array([-2.0, 1.5, -0.5, 0.0]), np.array([0.3, -0.6, 0.1, -1.0])
    low, high = np.array([-1.0, -0.5, -2.0, -1.0]), np.array([0.8, 1.0, 1.5, 0.5])
    tried = np.stack([low, high, np.clip(-g / np.where(d > 0, d, -1.0), low, high)])
    minimum = float(np.sum(np.min(d * tried**2 / 2 + g * tried, axis=0)))
    yield QuadraticInstance("box", Box(low, high), np.diag(d), g, minimum)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    rows, sides = np.concatenate([turn.T, -turn.T]), np.concatenate([high, -low])
    reach = np.full(4, 4.0)
    rotated = Polytope(rows, sides, -reach, reach)
    H = turn @ np.diag(d) @ turn.T
    yield QuadraticInstance("rotated box", rotated, (H + H.T) / 2, turn @ g, minimum)
    # w_1 w_2 - w_1 on the unit square with w_1 + w_2 <= 1: the minimum is at (1, 0).
    square = Box([0, 0], [1, 1])
    product = np.array([[0.0, 1.0], [1.0, 0.0]])
    half = HalfSpace(np.ones(2), 1.0)
    yield QuadraticInstance("product", square, product, np.array([-1.0, 0.0]), -1.0, half)
    # -w_1 w_2 on the same set: the minimum is at (1/2, 1/2).
    yield QuadraticInstance("less a product", square, -product, np.zeros(2), -0.25, half)


def _on_vertices(rng: np.random.Generator) -> Iterator[QuadraticInstance]:
    """Yield concave quadratics, whose minimum is attained at a vertex."""
    B = rng.standard_normal((3, 3))
    H, g = -B.T @ B, rng.standard_normal(3)
    sets: dict[str, ConvexSet] = {
        "l1 ball": L1Ball(3, 1.5),
        "simplex": Simplex(3, 2.0),
        "cube": Box([0] * 3, [1] * 3),
    }
    for name, convex_set in sets.items():
        points = convex_set.vertices()
        values = np.einsum("ij,jk,ik->i", points, H, points) / 2 + points @ g
        yield QuadraticInstance(f"concave, {name}", convex_set, H, g, float(values.min()))
    # -|w|^2/2 + w_2/2 on the l1 ball with w_1 + w_2 <= -1/2, whose vertices are (-1, 0), (0, -1),
    # (-3/4, 1/4) and (1/4, -3/4).
    below = HalfSpace(np.ones(2), -0.5)
    pull = np.array([0.0, 0.5])
    yield QuadraticInstance("concave, cut l1 ball", L1Ball(2, 1.0), -np.eye(2), pull, -1.0, below)

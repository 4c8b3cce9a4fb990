"""Conformance kit for linear minimisers, projections and quadratic oracles, built-in or your own.

>>> from privopt.oracles.convex.registry import projector
>>> print(check_projector(projector).oracle)
projector

Each set comes with a list of its points: all vertices if there are finitely many, otherwise boundary points
found by bisection on membership. The answer must be at least as good as each of these points, and a proved
bound must be below the values of all. If the list has all vertices, a feasible answer that is at least
as good as each is optimal, for a linear function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.conformance import (
    ConformanceReport,
    Failure,
    Finding,
    RandomStates,
    Tally,
    described,
    findings,
)
from privopt.oracles.convex.interface import LinearMinimizer, Projector
from privopt.oracles.convex.quadratic import PreparedQuadratic, QuadraticAnswer, QuadraticOracle
from privopt.oracles.convex.quantities import violation
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

_BOUNDARY_POINTS = 300
_SCALES = (1e-3, 1.0, 1e4)

Built = TypeVar("Built")


@dataclass(frozen=True, eq=False)
class SetInstance:
    """A set for the conformance checks.

    Attributes:
        name: for the report.
        convex_set: the set.
        points: points of the set, shape (m, p), as extreme as possible: for a polytope, all its vertices.
    """

    name: str
    convex_set: ConvexSet
    points: Vector


def check_linear_minimizer(
    build: Callable[[ConvexSet], LinearMinimizer],
    *,
    instances: Iterable[SetInstance] | None = None,
    tolerance: float = 1e-7,
) -> ConformanceReport:
    """Put linear minimisers through every check, on every set that ``build`` accepts.

    Args:
        build: returns the oracle of a set, like ``privopt.oracles.convex.registry.linear_minimizer``, or
            refuses the set by ``UnsupportedProblemError``.
        instances: the sets; small sets of every kind by default.
        tolerance: how far a point may be from feasible, and a value from optimal, relative to the size of the
            set and of the question.

    Raises:
        ConformanceError: a check failed, or nothing could be checked; the message lists every kind of
            failure.
    """
    return _report(_name(build), build, _LINEAR_CHECKS, instances, tolerance, lambda lmo, g: lmo(g).value)


def check_projector(
    build: Callable[[ConvexSet], Projector],
    *,
    instances: Iterable[SetInstance] | None = None,
    tolerance: float = 1e-7,
) -> ConformanceReport:
    """Put projections through every check; the arguments are as for ``check_linear_minimizer``.

    Raises:
        ConformanceError: a check failed, or nothing could be checked.
    """
    return _report(
        _name(build),
        build,
        _PROJECTION_CHECKS,
        set_instances() if instances is None else instances,
        tolerance,
        lambda projection, x: projection(x).tolist(),
    )


def check_quadratic_oracle(
    oracle: QuadraticOracle,
    *,
    instances: Iterable[SetInstance] | None = None,
    tolerance: float = 1e-6,
) -> ConformanceReport:
    """Put a quadratic oracle through every check, with definite, singular and zero H, on every set it takes.

    Raises:
        ConformanceError: a check failed, or nothing could be checked.
    """

    def build(convex_set: ConvexSet) -> list[PreparedQuadratic]:
        return [oracle.prepare(convex_set, H) for H in _quadratics(convex_set.dimension)]

    def ask(prepared: list[PreparedQuadratic], g: Vector) -> object:
        return prepared[1].minimize(g).point.tolist()

    return _report(oracle.name, build, _QUADRATIC_CHECKS, instances, tolerance, ask)


@dataclass(frozen=True, eq=False)
class _Case(Generic[Built]):
    """A set, the oracle built for it, and the questions that the oracle gets."""

    instance: SetInstance
    built: Built
    tolerance: float

    @property
    def size(self) -> float:
        return self.instance.convex_set.radius

    def questions(self) -> Iterator[tuple[str, Vector]]:
        """Yield vectors at several scales, with ties and zeros."""
        p = self.instance.convex_set.dimension
        rng = np.random.default_rng(p)
        yield "zeros", np.zeros(p)
        yield "ties", np.ones(p)
        yield "one coordinate", -np.eye(p)[-1]
        for scale, number in itertools.product(_SCALES, range(3)):
            yield f"scale {scale:g}, number {number}", scale * rng.standard_normal(p)

    def infeasible(self, point: Vector, scale: float = 0.0) -> Iterator[str]:
        if point.shape != (self.instance.convex_set.dimension,):
            yield f"the point has shape {point.shape}"
        elif not violation(self.instance.convex_set, point) <= self.tolerance * (self.size + scale * 1e-3):
            yield f"the point misses the set by {violation(self.instance.convex_set, point):.3g}"


# --- Linear minimisers --------------------------------------------------------------------------------


def _check_linear_optimality(case: _Case[LinearMinimizer]) -> Iterator[Finding]:
    """Check that the answer is feasible and optimal, and that its bound is valid and tight."""
    for where, g in case.questions():
        answer = case.built(g)
        slack = case.tolerance * float(np.linalg.norm(g)) * case.size + 1e-300
        best = float(np.min(case.instance.points @ g))
        yield from ((where, finding) for finding in case.infeasible(answer.point))
        if abs(answer.value - float(answer.point @ g)) > slack:
            yield where, "the value is not <point, g>"
        if answer.value > best + slack:
            yield where, f"value {answer.value:.9g}, but a point of the set has {best:.9g}"
        if answer.bound > best + slack:
            yield where, f"bound {answer.bound:.9g} is above the value {best:.9g} of a point of the set"
        if answer.gap > slack:
            yield where, f"a gap of {answer.gap:.3g} is left"


def _check_linear_purity(case: _Case[LinearMinimizer]) -> Iterator[Finding]:
    yield from _purity(case, lambda g: case.built(g).value)


def _check_linear_refusals(case: _Case[LinearMinimizer]) -> Iterator[Finding]:
    yield from _refusals(case, case.built)


# --- Projections --------------------------------------------------------------------------------------


def _check_nearest(case: _Case[Projector]) -> Iterator[Finding]:
    """Check that the projection u is nearest to x, by <x - u, v - u> <= 0 for the listed v in C."""
    for where, x in case.questions():
        u = case.built(x)
        scale = case.size + float(np.linalg.norm(x))
        yield from ((where, finding) for finding in case.infeasible(u, scale))
        ahead = float(np.max((case.instance.points - u) @ (x - u)))
        if ahead > case.tolerance * scale * case.size:
            yield where, f"a point of the set is nearer: <x - u, v - u> = {ahead:.3g} > 0"


def _check_idempotence(case: _Case[Projector]) -> Iterator[Finding]:
    """Check that points of the set are their own projections."""
    kept = [("a projection", case.built(x)) for _, x in case.questions()]
    kept += [("a given point", v) for v in case.instance.points[:20]]
    for where, u in kept:
        moved = float(np.linalg.norm(case.built(u) - u))
        if moved > np.sqrt(case.tolerance) * case.size * 1e-2:
            yield where, f"it moves by {moved:.3g} when projected again"


def _check_nonexpansiveness(case: _Case[Projector]) -> Iterator[Finding]:
    for (where, x), (_, y) in itertools.pairwise(case.questions()):
        apart, now = float(np.linalg.norm(x - y)), float(np.linalg.norm(case.built(x) - case.built(y)))
        if now > apart + case.tolerance * (case.size + apart):
            yield where, f"two points {apart:.3g} apart are projected {now:.3g} apart"


def _check_projection_purity(case: _Case[Projector]) -> Iterator[Finding]:
    yield from _purity(case, lambda x: case.built(x).tolist())


def _check_projection_refusals(case: _Case[Projector]) -> Iterator[Finding]:
    yield from _refusals(case, case.built)


# --- Quadratics ---------------------------------------------------------------------------------------


def _quadratics(p: int) -> Iterator[Vector]:
    rng = np.random.default_rng(p)
    B = rng.standard_normal((p, p))
    yield np.eye(p)
    yield B.T @ B + 0.1 * np.eye(p)
    yield B[: (p + 1) // 2].T @ B[: (p + 1) // 2]
    yield np.zeros((p, p))


def _wrong(
    case: _Case[list[PreparedQuadratic]], prepared: PreparedQuadratic, g: Vector, answer: QuadraticAnswer
) -> Iterator[str]:
    """Find false statements in an answer, whether or not the solve finished."""
    points, H = case.instance.points, prepared.H
    inside = (points[1:] + points[:-1]) / 2  # because a minimum need not be at a vertex
    tried = np.concatenate([points, inside, case.instance.points.mean(axis=0, keepdims=True)])
    values = np.einsum("ij,jk,ik->i", tried, H, tried) / 2 + tried @ g
    slack = case.tolerance * _slope(case, H, g) * case.size
    best = float(np.min(values))
    yield from case.infeasible(answer.point)
    if answer.bound > best + slack:
        yield f"bound {answer.bound:.9g} is above the value {best:.9g} of a point of the set"
    if answer.bound > answer.value + slack:
        yield f"bound {answer.bound:.9g} is above the value {answer.value:.9g}"
    if answer.status is not Status.OPTIMAL:
        return
    if answer.value > best + slack:
        yield f"value {answer.value:.9g} is claimed optimal, a point of the set has {best:.9g}"
    ahead = float(np.max((answer.point - points) @ (H @ answer.point + g)))
    if ahead > slack:
        yield f"claimed optimal, but towards a point of the set the value falls at rate {ahead:.3g}"
    if answer.gap > slack:
        yield f"status OPTIMAL with a gap of {answer.gap:.3g}"


def _slope(case: _Case[list[PreparedQuadratic]], H: Vector, g: Vector) -> float:
    return float(np.linalg.norm(H)) * case.size + float(np.linalg.norm(g)) + 1e-300


def _check_quadratic_optimality(case: _Case[list[PreparedQuadratic]]) -> Iterator[Finding]:
    """Check that points are feasible and bounds valid, and that answers without a limit are optimal."""
    for number, prepared in enumerate(case.built):
        for where, g in case.questions():
            answer = prepared.minimize(g)
            yield from (
                (f"H number {number}, {where}", finding) for finding in _wrong(case, prepared, g, answer)
            )
            if answer.status is not Status.OPTIMAL:
                yield f"H number {number}, {where}", f"stopped by {answer.status.name} without a limit"


def _check_limits(case: _Case[list[PreparedQuadratic]]) -> Iterator[Finding]:
    """Check that answers after cancellation or a time limit are points of the set with valid bounds."""
    limits = {"cancelled at once": Limits(cancelled=lambda: True), "no time": Limits(seconds=1e-9)}
    for prepared, (name, limit) in itertools.product(case.built, limits.items()):
        for where, g in case.questions():
            answer = prepared.minimize(g, limit)
            yield from ((f"{where}, {name}", finding) for finding in _wrong(case, prepared, g, answer))


def _check_quadratic_purity(case: _Case[list[PreparedQuadratic]]) -> Iterator[Finding]:
    for prepared in case.built:

        def ask(g: Vector, prepared: PreparedQuadratic = prepared) -> object:
            return prepared.minimize(g).point.tolist()

        yield from _purity(case, ask)


# --- Checks of all kinds of oracles -------------------------------------------------------------------


def _purity(case: _Case[Built], answer: Callable[[Vector], object]) -> Iterator[Finding]:
    """Check that an answer depends on its question alone, and that no question or random state is changed."""
    states = RandomStates()
    asked = dict(case.questions())
    first = {}
    for where, x in asked.items():
        before = x.copy()
        first[where] = answer(x)
        if not np.array_equal(x, before):
            yield where, "the argument was changed in place"
    for where, x in case.questions():
        if answer(x) != first[where]:
            yield where, "asked again, it answers something else"
    yield from (("", finding) for finding in states.touched())


def _in_turn(cases: Iterable[_Case[Built]], ask: Callable[[Built, Vector], object]) -> Iterator[Finding]:
    """Check that oracles of different sets, asked alternately, give the same answers as each alone."""
    asked = [(case, list(case.questions())) for case in cases]
    alone = [[ask(case.built, x) for _, x in questions] for case, questions in asked]
    for number in range(min((len(questions) for _, questions in asked), default=0)):
        for (case, questions), answers in zip(asked, alone, strict=True):
            where, x = questions[number]
            if ask(case.built, x) != answers[number]:
                yield f"{case.instance.name}, {where}", "after questions about other sets, another answer"


def _refusals(case: _Case[Built], ask: Callable[[Vector], object]) -> Iterator[Finding]:
    p = case.instance.convex_set.dimension
    bad = {"a NaN": np.full(p, np.nan), "infinity": np.full(p, np.inf), "another dimension": np.ones(p + 1)}
    for what, x in bad.items():
        try:
            ask(x)
        except InvalidInputError:
            continue
        yield "", f"{what} was accepted"


_LINEAR_CHECKS = (_check_linear_optimality, _check_linear_purity, _check_linear_refusals)
_PROJECTION_CHECKS = (
    _check_nearest,
    _check_idempotence,
    _check_nonexpansiveness,
    _check_projection_purity,
    _check_projection_refusals,
)
_QUADRATIC_CHECKS = (_check_quadratic_optimality, _check_limits, _check_quadratic_purity)


def _name(build: Callable[..., object]) -> str:
    return str(getattr(build, "__name__", type(build).__name__))


def _report(
    oracle: str,
    build: Callable[[ConvexSet], Built],
    checks: Iterable[Callable[[_Case[Built]], Iterator[Finding]]],
    instances: Iterable[SetInstance] | None,
    tolerance: float,
    ask: Callable[[Built, Vector], object],
) -> ConformanceReport:
    tally, cases = Tally(), list[_Case[Built]]()

    def made(instance: SetInstance) -> _Case[Built]:
        return _Case(instance, build(instance.convex_set), tolerance)

    for instance in set_instances() if instances is None else instances:
        for case in tally.built(instance.name, partial(made, instance)):
            tally.check_all(instance.name, checks, case)
            cases.append(case)
    if tally.passed or tally.failures:
        tally.note("all sets", "independence", findings(partial(_in_turn, ask=ask), cases))
        found = list(_empty_sets(build))
        tally.failures += found
        tally.passed += [] if found else ["empty polytope: refusal"]
    return tally.verdict(oracle)


def _empty_sets(build: Callable[[ConvexSet], object]) -> Iterator[Failure]:
    """Check that an empty polytope raises an error when the oracle is built or asked."""
    empty = Polytope([[1.0, 1.0]], [-3.0], [-1, -1], [1, 1])
    try:
        built = build(empty)
        if isinstance(built, list):
            built = built[0].minimize
        answer = built(np.ones(2)) if callable(built) else None
    except (InfeasibleDomainError, UnsupportedProblemError):
        return
    except Exception as error:
        yield Failure("empty polytope", "refusal", described(error))
        return
    yield Failure("empty polytope", "refusal", f"it was answered with {type(answer).__name__}")


# --- Instances ----------------------------------------------------------------------------------------


def set_instances(seed: int = 0) -> Iterator[SetInstance]:
    """Yield small sets of every kind, including thin and degenerate sets."""
    rng = np.random.default_rng(seed)
    cloud = rng.standard_normal((7, 3))
    box = Box([-1, -0.2, 0.1], [0.5, 0.7, 2])
    finite: dict[str, ConvexSet] = {
        "l1 ball": L1Ball(3, 1.3),
        "small l-infinity ball": LinfBall(3, 1e-3),
        "simplex": Simplex(3, 20.0),
        "one number": Simplex(1, 2.0),
        "box": box,
        "box with a fixed coordinate": Box([-1, 0.3], [1, 0.3]),
        "hull": ConvexHull(cloud),
        "hull far from 0": ConvexHull(cloud + 100),
        "hull of one point": ConvexHull(cloud[:1]),
        "hull of repeated points in a plane": ConvexHull(np.concatenate([cloud[:3], cloud[:3]])),
        "polytope": Polytope(cloud, np.full(7, 0.8), np.full(3, -1.0), np.full(3, 1.5)),
        "polytope in a plane": Polytope([[1.0] * 3, [-1.0] * 3], [0.5, -0.5], [-1] * 3, [1] * 3),
        "polytope of one point": Polytope(np.concatenate([np.eye(2)] * 2), np.zeros(4), [0, 0], [1, 1]),
    }
    for name, convex_set in finite.items():
        yield SetInstance(name, convex_set, convex_set.vertices())
    curved: dict[str, tuple[ConvexSet, Vector]] = {
        "l2 ball": (L2Ball(3, 0.7), np.zeros(3)),
        "group-l1 ball": (GroupL1Ball(((0, 2), (1,)), 1.1), np.zeros(3)),
        "2-support ball": (KSupportBall(3, 2, 0.9), np.zeros(3)),
        "box in an l2 ball": (BoxIntersection(box, L2Ball(3, 0.6)), np.array([0.0, 0.0, 0.3])),
        "box in an l1 ball": (BoxIntersection(box, L1Ball(3, 0.9)), np.array([0.0, 0.0, 0.3])),
    }
    for name, (convex_set, centre) in curved.items():
        yield SetInstance(name, convex_set, _boundary(convex_set, centre, rng))


def _boundary(convex_set: ConvexSet, centre: Vector, rng: np.random.Generator) -> Vector:
    """Return boundary points on rays from an interior point, by bisection on membership."""
    rays = rng.standard_normal((_BOUNDARY_POINTS, len(centre)))
    low, high = np.zeros(len(rays)), np.full(len(rays), 1e3)
    for _ in range(60):
        middle = (low + high) / 2
        inside = np.array([convex_set.contains(w, 0.0) for w in centre + middle[:, None] * rays])
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(centre + low[:, None] * rays)

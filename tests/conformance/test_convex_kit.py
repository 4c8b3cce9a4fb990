"""The conformance kit for oracles over convex sets: ours pass it, deliberately wrong ones fail it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.oracles.convex.conformance import (
    SetInstance,
    check_linear_minimizer,
    check_projector,
    check_quadratic_oracle,
    set_instances,
)
from privopt.oracles.convex.interface import LinearAnswer, LinearMinimizer, Projector
from privopt.oracles.convex.least_distance import LeastDistanceOracle
from privopt.oracles.convex.projected_gradient import ProjectedGradientOracle
from privopt.oracles.convex.quadratic import QuadraticOracle, QuadraticProposal, QuadraticSolver
from privopt.oracles.convex.registry import linear_minimizer, projector
from privopt.oracles.errors import ConformanceError, UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.polytope import Polytope

Vector = NDArray[np.float64]


@functools.cache
def every() -> list[SetInstance]:
    """All instances; their boundaries are found by bisection, once."""
    return list(set_instances())


def few() -> list[SetInstance]:
    return [i for i in every() if i.name in ("l1 ball", "box", "hull", "polytope in a plane", "l2 ball")]


def test_formulas_and_active_sets_pass() -> None:
    linear = check_linear_minimizer(linear_minimizer)
    nearest = check_projector(projector)
    assert not linear.skipped
    assert not nearest.skipped
    assert "hull of one point: nearest" in nearest.passed
    assert "empty polytope: refusal" in linear.passed


def test_quadratic_oracles_pass() -> None:
    report = check_quadratic_oracle(LeastDistanceOracle(), instances=every())
    assert "polytope in a plane: quadratic optimality" in report.passed
    assert any("hull" in skipped for skipped in report.skipped)
    rest = [i for i in every() if not isinstance(i.convex_set, Polytope) and "hull" not in i.name]
    assert not check_quadratic_oracle(ProjectedGradientOracle(), instances=rest).skipped


def wrong_linear(kind: str) -> object:
    def build(convex_set: ConvexSet) -> LinearMinimizer:
        right = linear_minimizer(convex_set)

        def minimize(g: Vector) -> LinearAnswer:
            if kind == "takes NaN":
                return right(np.nan_to_num(g)[: convex_set.dimension])
            if kind == "the wrong way":
                return right(-g)
            answer = right(g)
            if kind == "bound too high":
                return replace(answer, bound=answer.bound + 0.1 * abs(answer.bound) + 0.1)
            if kind == "in place":
                g *= 2
            if kind == "outside":
                return replace(answer, point=1.1 * answer.point, value=1.1 * answer.value)
            if kind == "global randomness":
                np.random.normal()  # noqa: NPY002
            return answer

        return minimize

    return build


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("the wrong way", "a point of the set has"),
        ("bound too high", "is above the value"),
        ("in place", "changed in place"),
        ("outside", "misses the set"),
        ("takes NaN", "a NaN was accepted"),
        ("global randomness", "random state of numpy"),
    ],
)
def test_wrong_linear_minimizers_fail(kind: str, finding: str) -> None:
    with pytest.raises(ConformanceError, match=finding):
        check_linear_minimizer(wrong_linear(kind), instances=few())


def scaled_to_the_gauge(convex_set: ConvexSet) -> Projector:
    """Feasible, idempotent, and not the nearest point."""
    if not isinstance(convex_set, L1Ball):
        raise UnsupportedProblemError("l1 balls only")
    return lambda x: x / max(1.0, convex_set.gauge(x))


def a_step_inside(convex_set: ConvexSet) -> Projector:
    """0.999 of the way: a contraction that does not leave points of the set alone."""
    right = projector(convex_set)
    return lambda x: 0.999 * right(x) if isinstance(convex_set, L1Ball) else right(x)


def rounded(convex_set: ConvexSet) -> Projector:
    """Two points close to each other may be rounded apart."""
    right = projector(convex_set)
    return lambda x: np.round(right(x), 2)


def stateful(convex_set: ConvexSet) -> Projector:
    """The answer depends on what was asked before."""
    right, asked = projector(convex_set), [0]

    def project(x: Vector) -> Vector:
        asked[0] += 1
        return right(x) * (1 - 1e-9 * asked[0])

    return project


class LastSet:
    """Projects onto the set that it was built for last."""

    def __call__(self, convex_set: ConvexSet) -> Projector:
        self.right = projector(convex_set)
        return lambda x: self.right(x)


@pytest.mark.parametrize(
    ("build", "finding"),
    [
        (LastSet(), "all sets: independence"),
        (scaled_to_the_gauge, "a point of the set is nearer"),
        (a_step_inside, "when projected again"),
        (rounded, "misses the set|is nearer"),
        (stateful, "asked again"),
    ],
)
def test_wrong_projections_fail(build: object, finding: str) -> None:
    with pytest.raises(ConformanceError, match=finding):
        check_projector(build, instances=every())


def test_nothing_checked_is_a_failure() -> None:
    def refuses(convex_set: ConvexSet) -> Projector:
        raise UnsupportedProblemError("never")

    with pytest.raises(ConformanceError, match="nothing was checked"):
        check_projector(refuses, instances=few())


@dataclass(frozen=True)
class Wrong(QuadraticOracle):
    """The linear minimum of g, which ignores H; or a point outside; or an answer to an empty polytope."""

    name: ClassVar[str] = "wrong"
    kind: str

    def refusals(self, convex_set: ConvexSet, H: Vector) -> list[str]:
        return []

    def build(self, convex_set: ConvexSet, H: Vector) -> QuadraticSolver:
        minimize = linear_minimizer(convex_set)

        def solve(g: Vector, watch: Watch) -> QuadraticProposal:
            if self.kind == "outside":
                return QuadraticProposal(np.full(len(g), 1e3))
            if self.kind == "no proposal":
                return minimize(g)
            return QuadraticProposal(minimize(g).point)

        return solve


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("linear", "towards a point of the set the value falls"),
        ("outside", "misses the set"),
        ("no proposal", "must return QuadraticProposal"),
    ],
)
def test_wrong_quadratic_oracles_fail(kind: str, finding: str) -> None:
    with pytest.raises(ConformanceError, match=finding):
        check_quadratic_oracle(Wrong(kind), instances=every()[:3])

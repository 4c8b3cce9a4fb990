"""Global minima of indefinite quadratics: planted ones, brute force, backends against each other, lies."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import (
    CertificateError,
    ConformanceError,
    SolverFailedError,
    UnsupportedProblemError,
)
from privopt.oracles.indefinite.ball import BallOracle
from privopt.oracles.indefinite.chords import ChordOracle
from privopt.oracles.indefinite.conformance import check_indefinite_oracle, planted_quadratics
from privopt.oracles.indefinite.interface import (
    HalfSpace,
    IndefiniteOracle,
    IndefiniteProposal,
    IndefiniteSolver,
)
from privopt.oracles.indefinite.select import indefinite_minimizer, indefinite_oracles
from privopt.oracles.indefinite.vertices import VertexOracle
from privopt.oracles.limits import Limits, Watch
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

Vector = NDArray[np.float64]
ORACLES = indefinite_oracles()


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_conformance(oracle: IndefiniteOracle) -> None:
    plain = [one for one in planted_quadratics() if "times" not in one.name]
    slow = oracle in ORACLES[2:]  # solvers: every second instance here, and all in a slow test
    found = check_indefinite_oracle(oracle, instances=plain[::2] if slow else plain)
    assert len(found.passed) >= (4 * 3 if slow else 4 * 4)


@pytest.mark.parametrize("oracle", ORACLES[:2], ids=lambda oracle: oracle.name)
def test_conformance_at_every_scale(oracle: IndefiniteOracle) -> None:
    assert len(check_indefinite_oracle(oracle).passed) >= 4 * 12


@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES[2:], ids=lambda oracle: oracle.name)
def test_conformance_at_every_scale_of_solvers(oracle: IndefiniteOracle) -> None:
    assert len(check_indefinite_oracle(oracle).passed) >= 4 * 12


def random_quadratic(p: int, seed: int) -> tuple[Vector, Vector, HalfSpace | None]:
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((p, p))
    normal = rng.standard_normal(p)
    cut = HalfSpace(normal, float(rng.uniform(-0.5, 0.5) * np.linalg.norm(normal))) if seed % 2 else None
    return (B + B.T) / 2, rng.standard_normal(p) * [0.0, 0.3, 2.0][seed % 3], cut


@pytest.mark.parametrize("seed", range(12))
def test_ball_against_a_grid(seed: int) -> None:
    """Polar coordinates, 700 by 700, and the grid's own error."""
    H, g, cut = random_quadratic(2, seed)
    angle, length = np.meshgrid(np.linspace(0, 2 * math.pi, 701), np.linspace(0, 1, 701))
    points = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1).reshape(-1, 2)
    if cut is not None:
        points = points[points @ cut.normal <= cut.offset]
    best = float(np.min(np.einsum("ij,jk,ik->i", points, H, points) / 2 + points @ g))
    answer = BallOracle().prepare(L2Ball(2, 1.0), H, cut).minimize(g)
    slope = float(np.linalg.norm(H, 2) + np.linalg.norm(g))
    assert best - 0.02 * slope <= answer.bound <= answer.value <= best + 1e-12
    assert answer.gap <= 1e-8 * slope
    assert answer.violation <= 1e-12


@pytest.mark.parametrize("seed", [0, 1, 4, 5])
def test_backends_agree_on_boxes_and_polytopes(seed: int) -> None:
    H, g, cut = random_quadratic(3, seed + 100)
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 3))
    box = Box(np.full(3, -1.0), np.full(3, 1.0))
    convex_set: ConvexSet = box if seed < 4 else Polytope(A, np.full(4, 1.0), box.low, box.high)
    found = [oracle.prepare(convex_set, H, cut).minimize(g) for oracle in ORACLES[2:]]
    values = [answer.value for answer in found]
    assert max(values) - min(values) <= 1e-4
    for answer in found:
        assert answer.require(gap=1e-4, violation=1e-6) is answer.point
        assert answer.bound <= min(values) + 1e-6
    # A grid can only do worse, and hardly.
    axis = np.linspace(-1, 1, 41)
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    inside = (
        np.array([convex_set.violation(w) <= 1e-12 for w in points])
        if seed >= 4
        else np.ones(len(points), bool)
    )
    if cut is not None:
        inside &= points @ cut.normal <= cut.offset
    points = points[inside]
    best = float(np.min(np.einsum("ij,jk,ik->i", points, H, points) / 2 + points @ g))
    slope = float(np.linalg.norm(H, 2) * 2 + np.linalg.norm(g))
    assert best - 0.15 * slope <= min(values) <= best + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_vertices_against_points_of_the_set(seed: int) -> None:
    """Concave, over an l1 ball cut by a half-space: no convex combination is below the answer."""
    rng = np.random.default_rng(seed)
    B, g, normal = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
    H, ball = -B.T @ B, L1Ball(3, 1.0)
    cut = HalfSpace(normal, float(rng.uniform(-0.5, 0.5) * np.max(np.abs(normal))))
    answer = VertexOracle().prepare(ball, H, cut).minimize(g)
    points = rng.dirichlet(np.full(6, 0.3), 40_000) @ ball.vertices()
    points = points[points @ normal <= cut.offset]
    least = float(np.min(np.einsum("ij,jk,ik->i", points, H, points) / 2 + points @ g))
    assert answer.value <= least + 1e-12
    assert least - answer.value <= 0.25 * (1 + abs(least))  # and the set is not left
    assert answer.violation <= 1e-12
    assert answer.gap <= 1e-9


def test_in_a_hundred_dimensions_the_certificate_is_tight() -> None:
    H, g, _ = random_quadratic(100, 7)
    normal = np.random.default_rng(8).standard_normal(100)
    for cut in (None, HalfSpace(normal, -0.3 * float(np.linalg.norm(normal)))):
        answer = BallOracle().prepare(L2Ball(100, 1.0), H, cut).minimize(g)
        assert answer.gap <= 1e-7
        assert answer.violation <= 1e-12


def test_what_is_left_when_a_search_is_stopped_is_honest() -> None:
    rng = np.random.default_rng(3)
    B = rng.standard_normal((14, 14))
    H, box = (B + B.T) / 2, Box(-np.ones(14), np.ones(14))
    g = rng.standard_normal(14)
    prepared = ChordOracle().prepare(box, H)
    stopped = prepared.minimize(g, Limits(seconds=0.2))
    corners = np.random.default_rng(0).choice([-1.0, 1.0], (20_000, 14))
    best = float(np.min(np.einsum("ij,jk,ik->i", corners, H, corners) / 2 + corners @ g))
    assert stopped.bound <= best
    if stopped.status is not Status.OPTIMAL:
        assert stopped.gap > 0
        with pytest.raises(CertificateError, match="proved a gap of"):
            stopped.require(gap=0.0)


def test_the_first_that_fits_is_chosen() -> None:
    saddle, cup = np.diag([1.0, -1.0]), -np.eye(2)
    assert indefinite_minimizer(L2Ball(2, 1.0), saddle).name == "ball"
    assert indefinite_minimizer(L1Ball(2, 1.0), cup).name == "vertices"
    assert indefinite_minimizer(Box([0, 0], [1, 1]), saddle).name == "chords"
    with pytest.raises(UnsupportedProblemError, match=r"oracle 'ball' cannot.*oracle 'chords' cannot"):
        indefinite_minimizer(GroupL1Ball(((0,), (1,)), 1.0), saddle)
    with pytest.raises(UnsupportedProblemError, match="unbounded"):
        indefinite_minimizer(WholeSpace(2), saddle)


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="half-space in 3 dimensions for a set in 2"):
        indefinite_minimizer(L2Ball(2, 1.0), -np.eye(2), HalfSpace(np.ones(3), 0.0))
    with pytest.raises(InvalidInputError, match="normal that is not 0"):
        HalfSpace(np.zeros(2), 1.0)
    with pytest.raises(InfeasibleDomainError, match="no point of the L2Ball"):
        indefinite_minimizer(L2Ball(2, 1.0), -np.eye(2), HalfSpace(np.ones(2), -2.0))
    with pytest.raises(InvalidInputError, match="symmetric"):
        indefinite_minimizer(L2Ball(2, 1.0), [[0.0, 1.0], [0.0, 0.0]])
    reasons = VertexOracle().refusals(L1Ball(2, 1.0), np.eye(2), None)
    assert "not concave" in reasons[0]


@dataclasses.dataclass(frozen=True)
class Liar(IndefiniteOracle):
    """The ball oracle, with its proposals changed."""

    name = "liar"
    exact = True
    lie: str

    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        return BallOracle().refusals(convex_set, H, cut)

    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        honest = BallOracle().build(convex_set, H, None if self.lie == "half-space" else cut)
        asked: list[int] = []

        def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
            told = honest(g, watch)
            asked.append(1)
            if self.lie == "bound":  # a hundredth of the scale too high
                return dataclasses.replace(told, bound=told.bound + 0.01 * (abs(told.bound) + 1e-9))
            if self.lie == "point":
                return dataclasses.replace(told, point=0.5 * told.point)
            if self.lie == "outside":
                return dataclasses.replace(told, point=1.01 * told.point)
            if self.lie == "no proof":
                return dataclasses.replace(told, bound=-math.inf)
            if self.lie == "memory":
                return dataclasses.replace(told, point=told.point * (1 - 1e-9 * len(asked)))
            if self.lie == "not finished":
                return dataclasses.replace(told, status=Status.TIME_LIMIT)
            if self.lie == "writes":
                g *= 2
            return told

        return solve


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("bound", "is above the"),
        ("point", "is claimed optimal"),
        ("outside", "misses the set"),
        ("no proof", "with a gap of inf"),
        ("memory", "answers something else"),
        ("not finished", "without a limit"),
        ("half-space", "misses the set"),
    ],
)
def test_lies_are_caught(lie: str, reason: str) -> None:
    with pytest.raises(ConformanceError, match=reason):
        check_indefinite_oracle(Liar(lie))


def test_arguments_are_copies() -> None:
    check_indefinite_oracle(Liar("writes"))


def test_nonsense_is_a_failure_of_the_solver() -> None:
    class Broken(Liar):
        def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
            told = {
                "point": IndefiniteProposal(np.ones(7), 0.0),
                "bound": IndefiniteProposal(np.ones(2), math.nan),
            }
            return lambda g, watch: told.get(self.lie, "nothing")  # type: ignore[return-value]

    for lie, reason in (("point", "not a point"), ("bound", "no bound"), ("kind", "must return Indefinite")):
        with pytest.raises(SolverFailedError, match=reason):
            Broken(lie).prepare(L2Ball(2, 1.0), -np.eye(2)).minimize(np.zeros(2))

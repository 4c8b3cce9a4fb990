"""The conformance kit accepts right oracles and rejects each kind of wrong one for its own reason."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from privopt.oracles.backends.enumerate import EnumerationOracle
from privopt.oracles.certificate import Status
from privopt.oracles.conformance import check_oracle, instances
from privopt.oracles.errors import ConformanceError
from privopt.oracles.interface import DiscreteOracle, Proposal, Query, Solver, Task
from privopt.oracles.wrappers import Caching, Counting, TimeLimited, Timing
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray, IntegerLattice
from privopt.problems.objective import UNIT, Perturbation


class FirstBest(DiscreteOracle):
    """The example of the README: the smallest oracle that is worth having."""

    name = "first-best"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return [] if problem.lattice.box_size <= 10_000 else ["more than 10,000 candidates"]

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        candidates = list(problem.lattice.points())

        def solve(query: Query) -> Proposal:
            best = min(candidates, key=lambda w: problem.value(w, query.perturbation))
            return Proposal(best, problem.value(best, query.perturbation), lexicographic=True)

        return solve


@pytest.mark.parametrize(
    "oracle",
    [
        EnumerationOracle(),
        FirstBest(),
        Counting(EnumerationOracle()),
        Timing(EnumerationOracle()),
        Caching(EnumerationOracle()),
        TimeLimited(EnumerationOracle(), limit=60.0),
        Caching(Counting(FirstBest())),
    ],
    ids=lambda o: type(o).__name__,
)
def test_right_oracles_pass(oracle: DiscreteOracle) -> None:
    report = check_oracle(oracle, seeds=[0])
    assert report.passed
    assert not report.skipped
    assert not report.failures


# --- Wrong oracles: each is the reference with one thing done wrong. ------------------------------------


class Mutant(DiscreteOracle):
    name = "mutant"

    def __init__(self, solve: Callable[[DiscreteProblem, IntArray, Query], Proposal]) -> None:
        self._solve = solve

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points = np.concatenate(list(problem.lattice.batches()))
        return lambda query: self._solve(problem, points, query)


def best_of(problem: DiscreteProblem, points: IntArray, p: Perturbation) -> tuple[IntArray, int]:
    values = problem.values(points, p)
    return points[np.argmin(values)], int(values.min())


def suboptimal(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    half = points[: -(-len(points) // 2)]
    return Proposal(*best_of(problem, half, query.perturbation))


def bound_too_high(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    _, value = best_of(problem, points, query.perturbation)
    return Proposal(None, value + 1, Status.INTERRUPTED)


def bound_above_its_value(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    point, value = best_of(problem, points, query.perturbation)
    return Proposal(point, value + 1)


def dishonest_when_stopped(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    if (reason := query.watch.stop()) is not None:
        point, value = best_of(problem, points[:1], query.perturbation)
        return Proposal(point, value, reason)
    return Proposal(*best_of(problem, points, query.perturbation))


def ignores_radius(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    lattice = problem.lattice
    if not isinstance(problem, ZeroOneHalfspace) or query.perturbation.radial is not None:
        return Proposal(*best_of(problem, points, query.perturbation))
    box = IntegerLattice(lattice.low, lattice.high)
    p = Perturbation(box, query.perturbation.unary)
    return Proposal(*best_of(problem, np.concatenate(list(box.batches())), p))


def ignores_perturbation(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    point, _ = best_of(problem, points, Perturbation.zero(problem.lattice))
    return Proposal(point, problem.value(point, query.perturbation))


def ignores_radial_term(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    flat = Perturbation(problem.lattice, query.perturbation.unary)
    point, _ = best_of(problem, points, flat)
    return Proposal(point, problem.value(point, query.perturbation))


def mutates_data(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    answer = Proposal(*best_of(problem, points, query.perturbation))
    assert isinstance(problem, ZeroOneHalfspace) or hasattr(problem, "y")
    np.negative(problem.y, out=problem.y)
    return answer


def mutates_noise(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    query.perturbation.unary[0][0] += UNIT
    return Proposal(*best_of(problem, points, query.perturbation))


def draws_global_numbers(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    random.random()
    return Proposal(*best_of(problem, points, query.perturbation))


def draws_numpy_numbers(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    np.random.random()  # noqa: NPY002
    return Proposal(*best_of(problem, points, query.perturbation))


def last_of_ties(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    return Proposal(*best_of(problem, points[::-1], query.perturbation), lexicographic=True)


def float_scores(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    """What a user gets who keeps the columns as decimals and asks whether X @ w > 0."""
    if not isinstance(problem, ZeroOneHalfspace):
        return Proposal(*best_of(problem, points, query.perturbation))
    wrong = (problem.X / 10) @ points.T > 0
    losses = np.sum(wrong != (problem.y > 0)[:, None], axis=0)
    point = points[np.argmin(losses * UNIT + query.perturbation.values(points))]
    return Proposal(point, problem.value(point, query.perturbation))


def zero_predicts_positive(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    if not isinstance(problem, ZeroOneHalfspace):
        return Proposal(*best_of(problem, points, query.perturbation))
    losses = np.sum((problem.X @ points.T >= 0) != (problem.y > 0)[:, None], axis=0)
    point = points[np.argmin(losses * UNIT + query.perturbation.values(points))]
    return Proposal(point, problem.value(point, query.perturbation))


def gap_left_open(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    point, value = best_of(problem, points, query.perturbation)
    return Proposal(point, value - 100)


def gives_up(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    return Proposal(None, -query.perturbation.magnitude, Status.TIME_LIMIT)


def crashes(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    raise ZeroDivisionError("a bug")


def reports_nonsense(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    query.watch.report(incumbent=-1e9, bound=1e9)
    return Proposal(*best_of(problem, points, query.perturbation))


class Stateful(DiscreteOracle):
    """Solves the first question right and answers it ever after."""

    name = "stateful"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points = np.concatenate(list(problem.lattice.batches()))
        total = np.zeros(len(points), dtype=np.int64)

        def solve(query: Query) -> Proposal:
            nonlocal total
            total = total + query.perturbation.values(points)  # should have been: = query....
            point = points[np.argmin(problem.losses(points) * UNIT + total)]
            return Proposal(point, problem.value(point, query.perturbation))

        return solve


class SharedState(DiscreteOracle):
    """Keeps the last problem on the oracle, so that preparing a second one spoils the first."""

    name = "shared state"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        self.problem = problem
        points = np.concatenate(list(problem.lattice.batches()))

        def solve(query: Query) -> Proposal:
            point, _ = best_of(self.problem, points, query.perturbation)
            return Proposal(point, problem.value(point, query.perturbation))

        return solve


MUTANTS = [
    (Mutant(suboptimal), "optimality", "is claimed optimal"),
    (Mutant(bound_too_high), "optimality", "is above the minimum"),
    (Mutant(bound_above_its_value), "optimality", "SolverFailedError"),
    (Mutant(dishonest_when_stopped), "limits", "is above the minimum"),
    (Mutant(ignores_radius), "optimality", "outside the lattice"),
    (Mutant(ignores_perturbation), "optimality", "noise (break_ties=False): value"),
    (Mutant(ignores_radial_term), "optimality", "noise (break_ties=False): value"),
    (Mutant(mutates_data), "purity", "changed in place"),
    (Mutant(mutates_noise), "purity", "changed in place"),
    (Mutant(draws_global_numbers), "purity", "random state of Python"),
    (Mutant(draws_numpy_numbers), "purity", "random state of numpy"),
    (Mutant(last_of_ties), "optimality", "lexicographically first"),
    (Mutant(float_scores), "optimality", "is claimed optimal"),
    (Mutant(zero_predicts_positive), "optimality", "is claimed optimal"),
    (Mutant(gap_left_open), "optimality", "status OPTIMAL with a gap"),
    (Mutant(gives_up), "optimality", "although no limit was set"),
    (Mutant(crashes), "optimality", "ZeroDivisionError"),
    (Mutant(reports_nonsense), "progress", "reported bound"),
    (Stateful(), "independence", "is claimed optimal"),
    (SharedState(), "independence", "again: value"),
]


@pytest.mark.parametrize(
    ("oracle", "check", "reason"),
    MUTANTS,
    ids=[getattr(getattr(m[0], "_solve", m[0]), "__name__", m[0].name) for m in MUTANTS],
)
def test_wrong_oracles_are_rejected(oracle: DiscreteOracle, check: str, reason: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_oracle(oracle, seeds=[0])
    lines = str(caught.value).splitlines()
    assert any(f": {check}: " in line and reason in line for line in lines), caught.value
    assert isinstance(caught.value, AssertionError)


def test_wrong_only_where_it_is_wrong() -> None:
    """Float scores betray themselves on the decimal instance alone: the kit needs that instance."""
    with pytest.raises(ConformanceError) as caught:
        check_oracle(Mutant(float_scores), seeds=[0])
    failed = [line for line in str(caught.value).splitlines() if "FAILED" in line]
    assert all("scores of zero" in line for line in failed)


def off_by_a_step(exact: bool) -> Mutant:
    def solve(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
        point, value = best_of(problem, points, query.perturbation)
        if (reason := query.watch.stop()) is not None:
            return Proposal(None, value + 1, reason, exact=exact)
        return Proposal(point, value, exact=exact)

    return Mutant(solve)


def test_tolerance_is_for_inexact_certificates_only() -> None:
    check_oracle(off_by_a_step(exact=False), seeds=[0], tolerance=1e-4)
    with pytest.raises(ConformanceError, match="is above the minimum"):
        check_oracle(off_by_a_step(exact=False), seeds=[0])
    with pytest.raises(ConformanceError, match="is above the minimum"):
        check_oracle(off_by_a_step(exact=True), seeds=[0], tolerance=1e-4)


def test_refused_instances_are_reported_as_skipped() -> None:
    class OnlyLinear(FirstBest):
        def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
            return ["no terms in |w|^2"] if task is Task.NORMALIZED else []

    report = check_oracle(OnlyLinear(), seeds=[0])
    refused = [i.name for i in instances(0) if i.task is Task.NORMALIZED]
    assert len(report.skipped) == len(refused)
    assert all("no terms in |w|^2" in line for line in report.skipped)


def test_refusing_everything_is_not_passing() -> None:
    class Nothing(FirstBest):
        def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
            return ["never"]

    with pytest.raises(ConformanceError, match="nothing was checked"):
        check_oracle(Nothing(), seeds=[0])


def test_never_claiming_the_order_of_ties_is_reported() -> None:
    def solve(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
        return Proposal(*best_of(problem, points, query.perturbation))

    report = check_oracle(Mutant(solve), seeds=[0])
    assert any("never claimed" in line for line in report.skipped)


def test_instances_are_small_and_have_ties() -> None:
    """Brute force stays instant, and an oracle that breaks ties wrongly has something to fail on."""
    tied = 0
    for instance in instances(0):
        assert instance.problem.lattice.box_size <= 3**5
        points = np.concatenate(list(instance.problem.lattice.batches()))
        values = instance.problem.values(points, instance.perturbations["no perturbation"])
        tied += int(np.sum(values == values.min()) > 1)
    assert tied >= 10

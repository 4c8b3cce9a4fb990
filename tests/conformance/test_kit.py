"""The conformance kit accepts right oracles and rejects each kind of wrong one for its own reason."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privopt.oracles.certificate import Status
from privopt.oracles.conformance import Failure, name_of
from privopt.oracles.errors import ConformanceError, SolverFailedError
from privopt.oracles.minimize import conformance
from privopt.oracles.minimize.conformance import check_oracle, instances, large_instances, short_instances
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.minimize.wrappers import Caching, Counting, TimeLimited, Timing
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.programs.lattice import ConstrainedLattice


class FirstBest(DiscreteOracle):
    """The example of the README: the smallest oracle that is worth having."""

    name = "first-best"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return [] if problem.lattice.box_size <= 10_000 else ["more than 10,000 candidates"]

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points = np.array(list(problem.lattice.points()))

        def solve(query: Query) -> Proposal:
            values = problem.values(points, query.perturbation)
            best = np.argmin(values)
            return Proposal(points[best], int(values[best]), lexicographic=True)

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
        Caching(Counting(EnumerationOracle())),
    ],
    ids=lambda o: type(o).__name__,
)
def test_right_oracles_pass(oracle: DiscreteOracle) -> None:
    report = check_oracle(oracle, seeds=[0])
    every = {*conformance._CHECKS, conformance._check_tables, conformance._check_many_questions}
    assert {line.split(": ")[-1] for line in report.passed} == {name_of(check) for check in every}
    known = ("more than 10,000 candidates", "it knows no constraints on points")
    assert all(any(reason in line for reason in known) for line in report.skipped)
    assert all("78,125 points" in line or "constraints on points" in line for line in report.skipped)
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
    """Predictions of a user who keeps the columns as decimals and asks whether X @ w > 0."""
    if not isinstance(problem, ZeroOneHalfspace):
        return Proposal(*best_of(problem, points, query.perturbation))
    wrong = (problem.X / 10) @ points.T > 0
    losses = problem.costs.of(problem.y) @ (wrong != (problem.y > 0)[:, None])
    point = points[np.argmin(losses * UNIT + query.perturbation.values(points))]
    return Proposal(point, problem.value(point, query.perturbation))


def zero_predicts_positive(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    if not isinstance(problem, ZeroOneHalfspace):
        return Proposal(*best_of(problem, points, query.perturbation))
    losses = problem.costs.of(problem.y) @ ((problem.X @ points.T >= 0) != (problem.y > 0)[:, None])
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


class CachesProblems(DiscreteOracle):
    """Prepares each table once, and takes tables for the same one that share their rows, or their labels."""

    name = "caches problems"

    def __init__(self, shared: str) -> None:
        self.shared, self.known = shared, dict[tuple[object, ...], DiscreteProblem]()

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        table = getattr(problem, self.shared)
        costs = str(getattr(problem, "costs", None))
        key = type(problem), str(problem.lattice), costs, problem.X.shape, table.tobytes()
        cached = self.known.setdefault(key, problem)
        points = np.concatenate(list(problem.lattice.batches()))

        def solve(query: Query) -> Proposal:
            point, _ = best_of(cached, points, query.perturbation)
            return Proposal(point, problem.value(point, query.perturbation))

        return solve


def single_precision(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    """Right as long as losses are small: single precision has no room for them and for grid steps."""
    values = problem.losses(points).astype(np.float32)
    values += (query.perturbation.values(points) / UNIT).astype(np.float32)
    point = points[np.argmin(values)]
    return Proposal(point, problem.value(point, query.perturbation))


def lies_about_many_points(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    return Proposal(*best_of(problem, points[:3000], query.perturbation))


class ForgetsTheRadialTable(DiscreteOracle):
    """Remembers answers, but not by all that they depend on."""

    name = "forgetful"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points, known = np.concatenate(list(problem.lattice.batches())), {}

        def solve(query: Query) -> Proposal:
            key = tuple(table.tobytes() for table in query.perturbation.unary)
            if key not in known:
                known[key] = Proposal(*best_of(problem, points, query.perturbation))
            return known[key]

        return solve


class NowAndThenStale(DiscreteOracle):
    """Every hundredth answer is the one before."""

    name = "stale"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points, asked = np.concatenate(list(problem.lattice.batches())), count(1)
        last: IntArray = points[0]

        def solve(query: Query) -> Proposal:
            nonlocal last
            point = last if next(asked) % 100 == 0 else best_of(problem, points, query.perturbation)[0]
            last = point
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
    (SharedState(), "independence", "first no perturbation: value"),
    (Mutant(single_precision), "optimality", "2,400 records"),
    (Mutant(lies_about_many_points), "many questions", "is claimed optimal"),
    (ForgetsTheRadialTable(), "tables", "27 points, normalized"),
    (NowAndThenStale(), "many questions", "of 250"),
]


@pytest.mark.parametrize(
    ("oracle", "check"),
    [
        (Mutant(single_precision), "optimality: grid steps"),
        (Mutant(lies_about_many_points), "(optimality|many questions)"),
        (ForgetsTheRadialTable(), "tables"),
        (NowAndThenStale(), "many questions"),
        (CachesProblems("X"), "independence: first no perturbation, labels exchanged"),
        (CachesProblems("y"), "independence: first no perturbation, rows in another order"),
    ],
    ids=["single precision", "many points", "radial table", "now and then", "same rows", "same labels"],
)
def test_what_is_rarely_wrong_is_seen_where_the_kit_looks_for_it_alone(
    oracle: DiscreteOracle, check: str
) -> None:
    """These pass every other check: the instances and questions that find them have to stay."""
    with pytest.raises(ConformanceError) as caught:
        check_oracle(oracle, seeds=[0])
    failed = [line for line in str(caught.value).splitlines() if "FAILED" in line]
    assert failed
    assert all(re.search(f"seed 0: {check}", line) for line in failed), failed


def test_the_report_says_what_it_cannot_see() -> None:
    """Lattices, records and questions beyond those that were tried: an oracle wrong there alone passes."""
    report = check_oracle(EnumerationOracle(), seeds=[0])
    largest = max(len(list(i.problem.lattice.points())) for i in large_instances(0))
    assert f"more than {largest:,} points, with more than 2,400 records" in str(report)
    assert "fewer than one of 250 questions" in str(report)
    assert "proofs are not read" in str(report)

    def beyond(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
        return Proposal(*best_of(problem, points[:largest], query.perturbation))

    check_oracle(Mutant(beyond), seeds=[0])


def make_only(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check of the kit, on all its instances: the others would find their own share of a fault."""

    def asked(seed: int, whole: Any = conformance._asked) -> Any:
        for instance, checks in whole(seed):
            if chosen := tuple(each for each in checks if name_of(each) == check):
                yield instance, chosen

    monkeypatch.setattr(conformance, "_asked", asked)


@pytest.mark.parametrize(
    ("oracle", "check", "reason"),
    MUTANTS,
    ids=[getattr(getattr(m[0], "_solve", m[0]), "__name__", m[0].name) for m in MUTANTS],
)
def test_wrong_oracles_are_rejected(
    oracle: DiscreteOracle, check: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_only(check, monkeypatch)
    with pytest.raises(ConformanceError) as caught:
        check_oracle(oracle, seeds=[0])
    lines = str(caught.value).splitlines()
    assert any(f": {check}: " in line and reason in line for line in lines), caught.value
    assert isinstance(caught.value, AssertionError)


def test_wrong_only_where_it_is_wrong() -> None:
    """Float scores fail on decimals, or by chance with sums in another order: the kit needs that instance."""
    with pytest.raises(ConformanceError) as caught:
        check_oracle(Mutant(float_scores), seeds=[0])
    failed = [line for line in str(caught.value).splitlines() if "FAILED" in line]
    failed = [line for line in failed if "rows in another order" not in line]
    assert failed
    assert all("scores of zero" in line for line in failed)
    # Each line stands for its kind: no more instances than "scores of zero" under the two tasks.
    assert all(int(n) <= 2 for line in failed for n in re.findall(r"instances: (\d+)", line))


def off_by_a_step(exact: bool) -> Mutant:
    def solve(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
        point, value = best_of(problem, points, query.perturbation)
        if (reason := query.watch.stop()) is not None:
            return Proposal(None, value + 1, reason, exact=exact)
        return Proposal(point, value, exact=exact)

    return Mutant(solve)


def test_tolerance_is_for_inexact_certificates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    check_oracle(off_by_a_step(exact=False), seeds=[0], tolerance=1e-4)
    make_only("limits", monkeypatch)
    with pytest.raises(ConformanceError, match="is above the minimum"):
        check_oracle(off_by_a_step(exact=False), seeds=[0])
    with pytest.raises(ConformanceError, match="is above the minimum"):
        check_oracle(off_by_a_step(exact=True), seeds=[0], tolerance=1e-4)


def test_refused_instances_are_reported_as_skipped() -> None:
    class OnlyLinear(FirstBest):
        def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
            reasons = super().refusals(problem, task)
            return [*reasons, "no terms in |w|^2"] if task is Task.NORMALIZED else reasons

    report = check_oracle(OnlyLinear(), seeds=[0])
    asked = [*instances(0), *large_instances(0), *short_instances(0)]
    refused = [i.name for i in asked if i.task is Task.NORMALIZED]
    assert len([line for line in report.skipped if "no terms in |w|^2" in line]) == len(refused)
    told = [line for line in str(report).splitlines() if "no terms in |w|^2" in line]
    assert "  skipped no terms in |w|^2 [" in str(report)
    assert len(told) < len(refused) / 4
    assert len(report.skipped) == len(refused) + 2  # more than 10,000 candidates; constraints on points


def test_minimising_over_the_box_of_constraints_is_seen() -> None:
    class OverTheBox(EnumerationOracle):
        def build(self, problem: DiscreteProblem, task: Task) -> Solver:
            if not isinstance(problem.lattice, ConstrainedLattice):
                return super().build(problem, task)
            relaxed = copy.copy(problem)
            relaxed.lattice = problem.lattice.box
            return super().build(relaxed, task)

    with pytest.raises(ConformanceError, match="a point outside the lattice") as caught:
        check_oracle(OverTheBox(), seeds=[0])
    failed = [line for line in str(caught.value).splitlines() if "FAILED" in line]
    assert all("constraints on points" in line for line in failed)


def test_refusing_everything_is_not_passing() -> None:
    class Nothing(FirstBest):
        def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
            return ["never"]

    with pytest.raises(ConformanceError, match=r"nothing was checked.*never") as caught:
        check_oracle(Nothing(), seeds=[0])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("solve", "most"), [(gap_left_open, 5), (ignores_perturbation, 12), (crashes, 9)])
def test_one_bug_is_not_hundreds_of_lines(
    solve: Callable[[DiscreteProblem, IntArray, Query], Proposal], most: int
) -> None:
    """One line for each check that sees the bug (two where it sees it in the value and in the bound)."""
    with pytest.raises(ConformanceError) as caught:
        check_oracle(Mutant(solve), seeds=[0])
    failed = [line for line in str(caught.value).splitlines() if "FAILED" in line]
    assert f"distinct failures: {len(failed)}\n" in str(caught.value)
    assert 0 < len(failed) <= most
    assert sum(int(n) for line in failed for n in re.findall(r"(\d+) more of its kind", line)) > 100


def test_failures_of_one_kind_differ_in_numbers_only() -> None:
    def kind(reason: str, check: str = "limits") -> tuple[str, str]:
        return Failure("instance", check, reason).kind

    assert kind("value -1.5 is above 2e-09") == kind("value 12 is above 0.25")
    assert kind("raised ValueError: shapes (3,4)") == kind("raised ValueError: shapes (12, 5, 7)")
    assert kind("value 1 is above 2") != kind("bound 1 is above 2")
    assert kind("value 1 is above 2") != kind("value 1 is above 2", "scaling")
    assert kind("raised KeyError: 1 at a.py:12") == kind("raised KeyError: 2 at a.py:12")
    assert kind("raised KeyError: 1 at a.py:12") != kind("raised KeyError: 1 at a.py:13")


def calls_numpy_wrongly(problem: DiscreteProblem, points: IntArray, query: Query) -> Proposal:
    np.linalg.inv(np.zeros((2, 2)))
    return Proposal(*best_of(problem, points, query.perturbation))


@pytest.mark.parametrize("solve", [crashes, calls_numpy_wrongly])
def test_exceptions_are_located_in_the_file_of_the_oracle(
    solve: Callable[[DiscreteProblem, IntArray, Query], Proposal],
) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_oracle(Mutant(solve), seeds=[0])
    line = solve.__code__.co_firstlineno + 1  # the first line of the body
    assert f" at {Path(__file__).name}:{line} [" in str(caught.value)
    assert str(Path(__file__).parent) not in str(caught.value)


def test_exceptions_while_building_are_located() -> None:
    class Unbuildable(FirstBest):
        def build(self, problem: DiscreteProblem, task: Task) -> Solver:
            raise KeyError("a bug")

    with pytest.raises(ConformanceError) as caught:
        check_oracle(Unbuildable(), seeds=[0])
    line = Unbuildable.build.__code__.co_firstlineno + 1
    assert f": build: raised KeyError: 'a bug' at {Path(__file__).name}:{line} [" in str(caught.value)


def test_what_is_not_a_proposal_is_named() -> None:
    def solve(problem: DiscreteProblem, points: IntArray, query: Query) -> Any:
        return best_of(problem, points, query.perturbation)

    instance = next(instances(0))
    prepared = Mutant(solve).prepare(instance.problem, instance.task)
    with pytest.raises(SolverFailedError, match="solve must return a Proposal, got tuple"):
        prepared.minimize(instance.perturbations["noise"])


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

"""Solvers of best subsets: the kit accepts ours and rejects wrong ones; two methods agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from privopt.oracles import ConformanceError, SubsetOracle, UnknownOracleError, check_subset_oracle
from privopt.oracles.errors import MissingSolverError, UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.programs.interface import ProgramProposal
from privopt.oracles.programs.subsets import branch_and_bound, conformance, outer_approximation
from privopt.oracles.programs.subsets.branch_and_bound import BranchingSubsets
from privopt.oracles.programs.subsets.enumerate import EnumeratedSubsets
from privopt.oracles.registry import PROGRAMS, SUBSETS
from privopt.oracles.select import inventory, subset_oracle
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import Constraint, Implication, UsedColumns
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.subset import SubsetProgram

# Groups of columns, two kinds of constraints, and a conflict.
FEW = tuple(f"{name} (seed 0)" for name in ("groups, implied", "single, several", "single, none"))
VIOLATES = "returned a subset that violates"


def planted(p: int, size: int, seed: int) -> SubsetProgram:
    """Correlated columns, of which ``size`` explain the labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20 * p, p))
    X[:, 1:] += 0.4 * X[:, :-1]
    w = np.zeros(p)
    w[rng.choice(p, size, replace=False)] = rng.normal(size=size)
    y = X @ w + rng.normal(size=len(X))
    return SubsetProgram.of(X.T @ X / len(X) + 0.2 * np.eye(p), X.T @ y / len(X), size)


@pytest.mark.parametrize("name", ["branch-and-bound", "enumerate", "highs"])
def test_solvers_pass(name: str) -> None:
    report = check_subset_oracle(subset_oracle(name))
    assert len(report.passed) == 3 * len(list(conformance.instances(0)))
    assert not report.skipped


@pytest.mark.parametrize("name", sorted(set(SUBSETS) - {"auto", "branch-and-bound", "enumerate", "highs"}))
def test_every_mip_solver_of_nearest_cards_finds_subsets_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in PROGRAMS
    if not next(e.installed for e in inventory() if e.name == name and e.kind == "best subsets"):
        with pytest.raises(MissingSolverError, match="To do"):
            subset_oracle(name)
        return
    few = [i for i in conformance.instances(0) if i.name in FEW]
    monkeypatch.setattr(conformance, "instances", lambda seed: iter(few))
    oracle = subset_oracle(name)
    assert oracle.name == name
    assert len(check_subset_oracle(oracle).passed) == 3 * len(FEW)


@pytest.mark.parametrize(("p", "size"), [(30, 5), (60, 3)])
def test_branch_and_bound_agrees_with_outer_approximation(p: int, size: int) -> None:
    """Up to the steps in which outer approximation counts, 2^-20 of the largest reduction, times p + 8."""
    program = planted(p, size, seed=p)
    ours, theirs = BranchingSubsets().solve(program), subset_oracle("highs").solve(program)
    assert ours.finished
    assert theirs.finished
    assert ours.value is not None
    assert theirs.value is not None
    reduction = -program.value(np.ones(p, np.int64))
    assert abs(ours.value - theirs.value) <= (p + 8) * 2.0**-20 * reduction


def test_the_value_is_the_least_squares_loss_of_the_columns() -> None:
    """Against residuals of NumPy's least squares, on every pair of columns; groups enter whole."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(50, 7)), rng.normal(size=50)
    spans = ((0, 2), (2, 3), (3, 4), (4, 7))
    program = SubsetProgram.of(X.T @ X, X.T @ y, 2, spans=spans)
    losses = {}
    for pair in itertools.combinations(range(4), 2):
        own = [j for k in pair for j in range(*spans[k])]
        losses[pair] = float(np.linalg.lstsq(X[:, own], y, rcond=None)[1][0])
        choice = np.isin(np.arange(4), pair).astype(np.int64)
        assert program.value(choice) + float(y @ y) == pytest.approx(losses[pair])
    found = BranchingSubsets().solve(program).point
    assert found is not None
    assert tuple(np.flatnonzero(found).tolist()) == min(losses, key=lambda pair: losses[pair])


def test_a_limit_on_work_keeps_the_best_subset_so_far() -> None:
    program = planted(40, 6, seed=40)
    answer = BranchingSubsets(most_work=1.0).solve(program)
    assert not answer.finished
    assert answer.value is not None
    assert answer.value < 0
    with pytest.raises(UnsupportedProblemError, match="branch-and-bound takes them"):
        EnumeratedSubsets().solve(program)


class Wrong(SubsetOracle):
    """Enumeration with one thing done wrong."""

    name = "wrong"

    def __init__(
        self,
        seen: Callable[[SubsetProgram], SubsetProgram] = lambda p: p,
        told: Callable[[ProgramProposal], ProgramProposal] = lambda a: a,
    ) -> None:
        self.seen, self.told = seen, told

    def propose(self, program: SubsetProgram, watch: Watch) -> ProgramProposal:
        return self.told(EnumeratedSubsets().propose(self.seen(program), watch))


def ignoring(which: Callable[[Constraint], bool]) -> Wrong:
    return Wrong(lambda p: replace(p, constraints=tuple(c for c in p.constraints if not which(c))))


def alone(program: SubsetProgram) -> SubsetProgram:
    """The program without its groups: chosen by the first feature of each column."""
    first = [column.start for column in program.columns]
    spans = [(j, j + 1) for j in range(len(first))]
    gram, cross = program.gram[np.ix_(first, first)], program.cross[first]
    return SubsetProgram.of(gram, cross, program.most, spans=spans, constraints=program.constraints)


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (ignoring(lambda c: isinstance(c, UsedColumns) and c.most is not None), VIOLATES),
        (ignoring(lambda c: isinstance(c, UsedColumns) and c.least > 0), VIOLATES),
        (ignoring(lambda c: isinstance(c, Implication)), VIOLATES),
        (Wrong(lambda p: replace(p, most=p.most + 1)), VIOLATES),
        (Wrong(alone), "it claims to be done with the value"),
        (Wrong(lambda p: replace(p, gram=np.diag(np.diag(p.gram)))), "it claims to be done with the value"),
        (Wrong(told=lambda a: ProgramProposal(None, True)), "no subset is feasible, but there is one"),
        (Wrong(told=lambda a: replace(a, finished=False)), "it stopped before it was done, without a limit"),
        (Wrong(told=lambda a: a if a.point is None else replace(a, point=2 * a.point)), "numbers 0 or 1"),
    ],
    ids=["at most", "at least", "implication", "size", "groups", "correlation", "none", "never done", "twos"],
)
def test_wrong_solvers_are_caught(oracle: SubsetOracle, words: str) -> None:
    with pytest.raises(ConformanceError, match=words):
        check_subset_oracle(oracle)


def test_a_solver_that_changes_the_program_is_caught() -> None:
    def spoilt(program: SubsetProgram) -> SubsetProgram:
        program.cross[:] *= 1.5
        return program

    with pytest.raises(ConformanceError, match="it changed the program"):
        check_subset_oracle(Wrong(spoilt), seeds=(7,))


def test_bounds_of_regions_are_below_all_their_subsets() -> None:
    """With every region opened, each bound against enumeration of the region."""
    program = planted(10, 3, seed=1)
    assert program.smallest > 0.2  # so that gains matter
    search = branch_and_bound._Search(program)
    seen = 0
    for _ in range(20):
        if not search.open:
            break
        for region in search.open:
            room = program.most - len(region.inside)
            for size in range(room + 1):
                for more in itertools.combinations(region.free.tolist(), size):
                    choice = np.zeros(len(program.columns), np.int64)
                    choice[[*region.inside.tolist(), *more]] = 1
                    assert program.value(choice) >= region.bound - 1e-9
                    seen += 1
        search.split()
    assert seen > 100


def test_cuts_are_tangents() -> None:
    """Below the value of every choice and equal at their own; for G = I the value is linear in it."""
    for gram in (np.eye(6), planted(6, 3, seed=2).gram):
        program = SubsetProgram.of(gram, np.arange(1.0, 7.0), 6)
        choices = [np.array(z) for z in itertools.product((0, 1), repeat=6)]
        for own in choices[1:]:
            master = outer_approximation._Master(program)
            master.cut(own)
            row = master.model.rows[-1]
            slopes = np.zeros(7)
            slopes[row.columns] = row.coefficients
            assert row.low is not None
            for other in choices[1:]:
                assert row.low - slopes[:6] @ other <= master.steps(program.value(other)) + 1e-6
            at_own = row.low - slopes[:6] @ own
            assert at_own >= master.steps(program.value(own)) - 7  # rounding: a step a column


def test_programs_that_make_no_sense_are_refused() -> None:
    eye, c = np.eye(3), np.ones(3)
    for made in (
        lambda: SubsetProgram.of(np.ones((3, 3)), c, 1),
        lambda: SubsetProgram.of(-eye, c, 1),
        lambda: SubsetProgram.of(eye, np.array([1.0, np.nan, 0.0]), 1),
        lambda: SubsetProgram.of(eye, c, 1, spans=((0, 1), (2, 3))),
        lambda: SubsetProgram.of(eye, c, 1, constraints=parse_constraints(["points(x0) in [0, 1]"])),
        lambda: SubsetProgram.of(eye, c, 1, constraints=parse_constraints(["any of x0, x7"])),
        lambda: SubsetProgram.of(eye, c, -1),
    ):
        with pytest.raises(InvalidInputError):
            made()


def test_solvers_are_listed_and_named() -> None:
    assert [e.name for e in inventory() if e.kind == "best subsets"] == list(SUBSETS)
    assert isinstance(subset_oracle("auto"), BranchingSubsets)
    with pytest.raises(UnknownOracleError, match="branch-and-bound"):
        subset_oracle("magic")

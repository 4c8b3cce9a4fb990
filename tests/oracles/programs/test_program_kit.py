"""The kit for solvers of nearest cards accepts the registered ones and rejects each kind of wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from privopt.oracles import ConformanceError, ProgramOracle, UnknownOracleError, check_program_oracle
from privopt.oracles.errors import MissingSolverError, UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.programs import conformance
from privopt.oracles.programs.enumerate import EnumeratedPrograms
from privopt.oracles.programs.interface import ProgramProposal
from privopt.oracles.registry import PROGRAMS
from privopt.oracles.select import inventory, program_oracle
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import (
    Constraint,
    Implication,
    Monotone,
    PointBounds,
    PointList,
    Sign,
    Total,
    UsedColumns,
)
from privopt.problems.programs.program import CardProgram


def installed(name: str) -> bool:
    return next(e.installed for e in inventory() if e.name == name and e.kind == "nearest cards")


@pytest.mark.parametrize("name", ["enumerate", "highs", "scip"])
def test_solvers_pass(name: str) -> None:
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    report = check_program_oracle(program_oracle(name), seeds=(0,))
    assert len(report.passed) == 3 * len(list(conformance.instances(0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_registered_solvers_pass_with_more_instances(name: str) -> None:
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    check_program_oracle(program_oracle(name), seeds=range(4))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_registered_solvers_pass_on_a_few_instances(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for each solve of some: three constraints that need binaries, and a conflict."""
    if not installed(name):
        with pytest.raises(MissingSolverError, match="To do"):
            program_oracle(name)
        return
    named = ("demanded", "equal points", "total of some", "none")
    few = [i for i in conformance.instances(0) if i.name.startswith(named)]
    monkeypatch.setattr(conformance, "instances", lambda seed: iter(few))
    assert len(check_program_oracle(program_oracle(name), seeds=(0,)).passed) == 12


def test_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownOracleError, match="pulp-highs"):
        program_oracle("magic")


class Wrong(ProgramOracle):
    """Enumeration with one thing done wrong."""

    name = "wrong"

    def __init__(
        self,
        seen: Callable[[CardProgram], CardProgram] = lambda p: p,
        told: Callable[[ProgramProposal], ProgramProposal] = lambda a: a,
    ) -> None:
        self.seen, self.told = seen, told

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        return self.told(EnumeratedPrograms().propose(self.seen(program), watch))


def ignores(which: Callable[[Constraint], bool]) -> Wrong:
    return Wrong(lambda p: replace(p, constraints=tuple(c for c in p.constraints if not which(c))))


@pytest.mark.parametrize(
    "which",
    [
        lambda c: isinstance(c, PointBounds),
        lambda c: isinstance(c, PointList),
        lambda c: isinstance(c, Sign),
        lambda c: isinstance(c, Monotone),
        lambda c: isinstance(c, UsedColumns) and c.most is not None,
        lambda c: isinstance(c, UsedColumns) and c.least > 0,
        lambda c: isinstance(c, Implication),
        lambda c: isinstance(c, Total),
    ],
    ids=["bounds", "list", "sign", "monotone", "at most", "at least", "implication", "total"],
)
def test_a_solver_that_ignores_a_constraint_is_caught(
    which: Callable[[Constraint], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    concerned = [
        i for s in (0, 1) for i in conformance.instances(s) if any(map(which, i.program.constraints))
    ]
    monkeypatch.setattr(conformance, "instances", lambda seed: iter(concerned))
    with pytest.raises(ConformanceError, match="returned a card that violates"):
        check_program_oracle(ignores(which), seeds=(0,))


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (Wrong(lambda p: replace(p, high=p.high + 1)), "violates 'points within the bounds"),
        (Wrong(lambda p: p.near(np.zeros(6))), "it claims to be done with the value"),
        (Wrong(lambda p: replace(p, shifted=not p.shifted)), "it claims to be done with the value"),
        (Wrong(told=lambda a: ProgramProposal(None, True)), "no card is feasible, but there is one"),
        (Wrong(told=lambda a: replace(a, finished=False)), "it stopped before it was done, without a limit"),
        (Wrong(told=lambda a: a if a.point is None else replace(a, point=a.point + 0.5)), "6 integers"),
    ],
    ids=["box", "targets", "shift", "claims none", "never done", "fractions"],
)
def test_other_faults_are_caught(oracle: Wrong, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [i for i in conformance.instances(0) if i.name.startswith(("no constraint", "sign", "total"))]
    monkeypatch.setattr(conformance, "instances", lambda seed: iter(few))
    with pytest.raises(ConformanceError, match=words):
        check_program_oracle(oracle, seeds=(0,))


def test_a_solver_that_changes_the_program_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(program: CardProgram) -> CardProgram:
        program.targets[:] += 1
        return program

    few = [i for i in conformance.instances(0) if i.name.startswith("no constraint")]
    monkeypatch.setattr(conformance, "instances", lambda seed: iter(few))
    with pytest.raises(ConformanceError, match="it changed the program"):
        check_program_oracle(Wrong(spoilt), seeds=(0,))


def test_enumeration_refuses_large_boxes() -> None:
    wide = np.full(12, 9)
    columns = (PointColumn("a", 0, 12),)
    program = CardProgram.of(columns, -wide, wide, (), np.ones(12), shifted=False)
    with pytest.raises(UnsupportedProblemError, match="highs takes them"):
        EnumeratedPrograms().solve(program)

"""Solver of best subsets by outer approximation, with any MIP solver of card programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip.model import MipModel, Outcome, Question
from privopt.oracles.programs.interface import ProgramProposal
from privopt.oracles.programs.mip import MipProgramOracle
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.subset import SubsetProgram

# The largest reduction of the objective is this many steps, the unit in which coefficients are integers.
_STEPS = 1 << 20
_ROUNDS = 1000


@dataclass(frozen=True)
class OuterApproximation(SubsetOracle):
    """Finds the best subset by cutting planes.

    Let D be a diagonal matrix with G - D positive semidefinite, and z in [0, 1]^m, one entry for each column.
    Then f(z) = min over w of w'(G - D)w + sum_j D_j w_j^2 / z_j - 2c'w is convex in z, and at a choice z it
    is the value of the program. Its derivative in z_j is -(c - (G - D)w)_j^2 / D_j, which is -D_j w_j^2 where
    z_j > 0 (Bertsimas and Van Parys 2020); for a column of several features, the derivative is
    the sum over these features. A cut is a tangent of f. Each round minimises the maximum of the cuts over
    all feasible choices, and adds the cut at the minimum.

    Args:
        solver: any MIP solver; the oracle has its name.
    """

    name: ClassVar[str] = "outer-approximation"
    solver: MipProgramOracle

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.solver.name)

    def propose(self, program: SubsetProgram, watch: Watch) -> ProgramProposal:
        master = _Master(program)
        master.cut(np.ones(len(program.columns), np.int64))
        best, value = None, math.inf
        for rounds in range(1, _ROUNDS + 1):
            answer = self.solver.open(master.model).solve(Question(master.costs), watch, lambda _: None)
            if answer.outcome is Outcome.NOTHING:
                return ProgramProposal(None, True, answer.raw)
            if answer.values is None:
                break
            choice = np.rint(answer.values[: len(program.columns)]).astype(np.int64)
            found = program.value(choice)
            if found < value:
                best, value = choice, found
            if answer.outcome is Outcome.STOPPED:
                break
            if master.steps(value) <= float(answer.values[-1]) + master.rounding:
                return ProgramProposal(best, True, f"{rounds} rounds")
            master.cut(choice)
        return ProgramProposal(best, False, "stopped")


class _Master:
    """The MIP model of the cuts: a 0/1 variable for each column, and one above all cuts, in steps."""

    def __init__(self, program: SubsetProgram) -> None:
        self.program, self.model = program, MipModel("subset")
        m = len(program.columns)
        self._least = program.value(np.ones(m, np.int64))
        self._step = max(-self._least, 1e-300) / _STEPS
        self.model.add(m, integer=True)
        self.model.add(1, integer=False, high=_STEPS)
        for where, what, low, high in program.rows:
            for sense, side in ((">=", low), ("<=", high)):
                if side is not None:
                    self.model.constrain(where, what, sense, side)
        self.costs = np.append(np.zeros(m), 1.0)
        # Each coefficient of a cut is rounded by less than a step; the solver's tolerance is a few steps.
        self.rounding = m + 8

    def steps(self, value: float) -> float:
        return (value - self._least) / self._step

    def cut(self, choice: IntArray) -> None:
        """Add the tangent at a choice, rounded down so that it remains a lower bound."""
        program = self.program
        weights = program.weights(choice)
        pull = program.cross - program.gram @ weights + program.convexity * weights
        slopes = np.bincount(program.owners, pull**2 / program.convexity, len(choice)) / self._step
        right = math.floor(self.steps(program.value(choice)) + float(slopes @ choice))
        # A slope of ``right`` already satisfies the cut for every choice with that column: no more is needed.
        rising = np.ceil(np.minimum(slopes, max(right, 0))).astype(np.int64)
        where = np.arange(len(choice) + 1)
        self.model.constrain(where, np.append(rising, 1), ">=", right)

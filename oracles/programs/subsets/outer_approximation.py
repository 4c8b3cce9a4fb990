"""Best subsets by outer approximation over a MIP solver: any of those for nearest cards."""

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

# The objective is counted in this many steps of its largest reduction, so that models are in integers.
_STEPS = 1 << 20
# Largest coefficient of a cut, in steps: a larger one would be lost in a solver's tolerances.
_ROUNDS = 1000


@dataclass(frozen=True)
class OuterApproximation(SubsetOracle):
    """The best subset by cutting planes.

    With G - D positive semidefinite, f(z) = min over w of w'(G - D)w + sum_j D_j w_j^2 / z_j - 2c'w is convex
    in z, and at a choice it is the value of the program. At z with weights w its slope in z_j is
    -(c - (G - D)w)_j^2 / D_j, which is -D_j w_j^2 where z_j > 0 (Bertsimas and Van Parys 2020). Each round
    minimises the largest cut so far over all feasible choices, and cuts at its answer.

    Args:
        solver: the MIP solver, which may be any; its name is that of the oracle.
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
    """The model of the cuts: choices, and a last column that is at least every cut, in steps."""

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
        # Coefficients of a cut are rounded by less than a step each; the solver's tolerance is a few steps.
        self.rounding = m + 8

    def steps(self, value: float) -> float:
        return (value - self._least) / self._step

    def cut(self, choice: IntArray) -> None:
        """Add the tangent at a choice, rounded down so that it stays below."""
        program = self.program
        weights = program.weights(choice)
        pull = program.cross - program.gram @ weights + program.convexity * weights
        slopes = np.bincount(program.owners, pull**2 / program.convexity, len(choice)) / self._step
        right = math.floor(self.steps(program.value(choice)) + float(slopes @ choice))
        # A column whose slope alone reaches the right side makes the cut void: a larger one says no more.
        rising = np.ceil(np.minimum(slopes, max(right, 0))).astype(np.int64)
        where = np.arange(len(choice) + 1)
        self.model.constrain(where, np.append(rising, 1), ">=", right)

"""Solver of card programs that tries every point of the box: for tiny programs, and as a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.programs.interface import ProgramOracle, ProgramProposal
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.programs.program import CardProgram


@dataclass(frozen=True)
class EnumeratedPrograms(ProgramOracle):
    """Finds the best of all points of the box that satisfy the constraints.

    Args:
        most: largest number of points of a box that is accepted.
    """

    name: ClassVar[str] = "enumerate"
    most: int = 100_000

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        box = IntegerLattice(program.low, program.high)
        if box.box_size > self.most:
            raise UnsupportedProblemError(
                f"enumerate: {min(box.box_size, 10**290):.3g} cards, more than {self.most}; highs takes them"
            )
        best, least = None, math.inf
        for points in box.batches():
            values = program.values(points)
            for k in np.argsort(values, kind="stable").tolist():
                if watch.stop() is not None:
                    return ProgramProposal(best, False, "stopped")
                if values[k] >= least:
                    break
                if not program.violations(points[k]):
                    best, least = points[k], values[k]
        return ProgramProposal(best, True, "every point was tried")

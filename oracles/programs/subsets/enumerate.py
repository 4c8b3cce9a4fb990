"""Solver of best subsets that tries every choice: for tiny programs, and as a reference."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.programs.interface import ProgramProposal
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.problems.programs.subset import SubsetProgram


@dataclass(frozen=True)
class EnumeratedSubsets(SubsetOracle):
    """Finds the best of all feasible subsets.

    Args:
        most: largest number of subsets of a program that is accepted.
    """

    name: ClassVar[str] = "enumerate"
    most: int = 20_000

    def propose(self, program: SubsetProgram, watch: Watch) -> ProgramProposal:
        m = len(program.columns)
        number = sum(math.comb(m, size) for size in range(program.most + 1))
        if number > self.most:
            raise UnsupportedProblemError(
                f"enumerate: {number:.3g} subsets, more than {self.most}; branch-and-bound takes them"
            )
        best, least = None, math.inf
        for size in range(program.most + 1):
            for columns in itertools.combinations(range(m), size):
                if watch.stop() is not None:
                    return ProgramProposal(best, False, "stopped")
                choice = np.zeros(m, dtype=np.int64)
                choice[list(columns)] = 1
                if not program.violations(choice) and (value := program.value(choice)) < least:
                    best, least = choice, value
        return ProgramProposal(best, True, "every subset was tried")

"""Mixed-integer programming through PuLP: HiGHS by default, any other solver that PuLP can run by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from privopt.oracles.backends import pulp_cells, pulp_rows
from privopt.oracles.backends._mip import display_name
from privopt.oracles.interface import DiscreteOracle, Solver, Task
from privopt.problems.discrete import DiscreteProblem


@dataclass(frozen=True)
class PulpOracle(DiscreteOracle):
    name: ClassVar[str] = "pulp-highs"
    solver: str = "HiGHS"
    model: Literal["auto", "rows", "cells"] = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", display_name(self.solver))

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        if self.model == "cells":
            return pulp_cells.refusals(problem, task)
        return pulp_rows.refusals(problem, task)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        if self.model == "cells":
            return pulp_cells.build(problem, task, self.solver)
        return pulp_rows.build(problem, task, self.solver)

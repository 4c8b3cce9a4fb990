"""Base class of all MIP oracles, which chooses the row or the cell model and opens a solver session.

The models are imported when they are needed: importing them is slow, and the worker process of a solver does
not need them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Literal

from privopt.oracles.facts import ProblemFacts
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.minimize.mip.model import Library, MipModel, Session
from privopt.oracles.task import Task
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

Model = Literal["auto", "rows", "cells"]


class MipOracle(DiscreteOracle):
    """Minimiser by a mixed-integer program; a subclass is a frozen dataclass with ``open``.

    ``library`` is the Python package that the oracle needs. It is checked when an instance is made.

    Attributes:
        model: "cells", for ``ZeroOneHalfspace`` with indicator columns, of a size that does not depend on the
            number of records; "rows", for 0/1 and Lipschitz losses on at most a few thousand distinct
            records; or "auto".
    """

    takes_constraints: ClassVar[bool] = True
    library: ClassVar[Library | None] = None
    model: Model

    def __post_init__(self) -> None:
        self.check_model()
        if self.library is not None:
            self.library.require(self.name)

    @abstractmethod
    def open(self, model: MipModel) -> Session:
        """Load a complete model into the solver, and return the session that solves it."""

    def check_model(self) -> None:
        """Raise InvalidInputError for an unknown model."""
        if self.model not in ("auto", "rows", "cells"):
            raise InvalidInputError(f"model must be 'auto', 'rows' or 'cells', got {self.model!r}")

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        from privopt.oracles.minimize.mip import cell_model, row_model

        return self._either(row_model.refusals(problem, task), cell_model.refusals(problem, task))

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        from privopt.oracles.minimize.mip import cell_model, row_model

        return self._either(row_model.planned_refusals(facts), cell_model.planned_refusals(facts))

    def _either(self, rows: list[str], cells: list[str]) -> list[str]:
        if self.model != "auto":
            return rows if self.model == "rows" else cells
        if not rows or not cells:
            return []
        return [*(f"row model: {r}" for r in rows), *(f"cell model: {r}" for r in cells)]

    def explain(self, problem: DiscreteProblem, task: Task) -> str:
        """Return the name of the model that ``build`` uses, and the reason."""
        if self.model != "auto":
            return f"{self.model}: asked for"
        from privopt.oracles.minimize.mip import cell_model

        if reasons := cell_model.refusals(problem, task):
            return f"rows: the cell model does not fit ({'; '.join(reasons)})"
        return "cells: its size does not depend on the number of records, and its bounds are tight"

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        from privopt.oracles.minimize.mip import cell_model, row_model

        choice = self.explain(problem, task)
        build = cell_model.build if choice.startswith("cells") else row_model.build
        solver = build(problem, task, self.open)

        def solve(query: Query) -> Proposal:
            proposal = solver(query)
            return replace(proposal, raw_status=f"{choice}; {proposal.raw_status}")

        return solve

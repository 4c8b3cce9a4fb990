"""Mixed-integer programming through PuLP: HiGHS by default, any other solver that PuLP can run by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.minimize.mip import cell_model, row_model
from privopt.oracles.minimize.mip.model import display_name, require_solver
from privopt.oracles.task import Task
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class PulpOracle(DiscreteOracle):
    """Mixed-integer programming with any solver that PuLP runs; proves in floating point.

    Points are valued in exact integer arithmetic, whatever the solver reports. What is left to the solver is
    the proof that nothing is better, and there ``exact=False`` in a certificate means: up to the solver's
    tolerances (about 1e-6 on feasibility and integrality, gap 0), and up to its own mistakes. A gap of 0 is
    claimed when the solver's bound is within 1e-5 of the exact value; a lexicographically first minimiser
    when it finds no other point within 1e-4 of it, or when all such points, at most 20, have been compared
    exactly. Where the cell model's dual bounds, which are integers, settle a question without the solver,
    ``exact`` is true.

    Time limits, cancellation, Ctrl-C and progress reach HiGHS while it runs. PuLP passes only the time limit
    on to other solvers, and reports no proved bound of an unfinished solve: expect large gaps there.

    Solvers that are programs of their own, CBC among them, are handed the records' counts and the noise in
    files: in a folder that nobody else may enter, which goes with the solve, as the program does
    (``private``). HiGHS and SCIP write none.

    Args:
        solver: "HiGHS", "CBC", or what PuLP calls a solver ("SCIP_PY", "GUROBI", "CPLEX_PY", ...).
        model: "cells" (``ZeroOneHalfspace`` with indicator columns; size independent of the number of
            records), "rows" (any problem, for at most a few thousand distinct records), or "auto".

    Raises:
        UnknownOracleError: PuLP knows no such solver.
        MissingSolverError: the solver is not installed.
    """

    name: ClassVar[str] = "pulp-highs"
    solver: str = "HiGHS"
    model: Literal["auto", "rows", "cells"] = "auto"

    def __post_init__(self) -> None:
        if self.model not in ("auto", "rows", "cells"):
            raise InvalidInputError(f"model must be 'auto', 'rows' or 'cells', got {self.model!r}")
        require_solver(self.solver)
        object.__setattr__(self, "name", display_name(self.solver))

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        rows, cells = row_model.refusals(problem, task), cell_model.refusals(problem, task)
        if self.model != "auto":
            return rows if self.model == "rows" else cells
        if not rows or not cells:
            return []
        return [*(f"row model: {r}" for r in rows), *(f"cell model: {r}" for r in cells)]

    def explain(self, problem: DiscreteProblem, task: Task) -> str:
        """Which model ``build`` would use, and why."""
        if self.model != "auto":
            return f"{self.model}: asked for"
        if reasons := cell_model.refusals(problem, task):
            return f"rows: the cell model does not fit ({'; '.join(reasons)})"
        return "cells: its size does not depend on the number of records, and its bounds are tight"

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        choice = self.explain(problem, task)
        build = cell_model.build if choice.startswith("cells") else row_model.build
        solver = build(problem, task, self.solver)

        def solve(query: Query) -> Proposal:
            proposal = solver(query)
            return replace(proposal, raw_status=f"{choice}; {proposal.raw_status}")

        return solve

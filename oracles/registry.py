"""Registry of oracles over lattices by name: module, purpose, refusals.

Solver libraries are slow to load, so each module is imported on first use. Oracles of other packages are
found by entry points in the groups ``privopt.minimizers``, ``privopt.samplers``, ``privopt.programs`` and
``privopt.subsets``. The name of an entry point is that of the oracle; its object is a class or a function
that makes the oracle.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Kind(StrEnum):
    """Kind of an oracle: minimiser, sampler, solver of card programs or of subset programs."""

    MINIMISES = "minimises"
    DRAWS = "draws"
    PROGRAMS = "nearest cards"
    SUBSETS = "best subsets"


@dataclass(frozen=True)
class Entry:
    """An entry of the registry.

    Attributes:
        kind, name: the key of the entry.
        home: the module within ``privopt.oracles`` and the factory in it, as in "draw.stream:GibbsStream".
        purpose: what the oracle is for.
        limits: the problems that it refuses.
        proof: "integers" or "floating point" for certificates, the law of the draw for samplers.
        arguments: the keyword arguments of the factory.
    """

    kind: Kind
    name: str
    home: str
    purpose: str
    limits: str
    proof: str
    arguments: tuple[Any, ...] = ()

    def make(self) -> Any:
        """Import and make the oracle.

        Raises:
            MissingSolverError: its solver is not installed.
        """
        module, _, name = self.home.partition(":")
        return getattr(importlib.import_module(f"privopt.oracles.{module}"), name)(*self.arguments)


def _table(kind: Kind, *lines: tuple[Any, ...]) -> Mapping[str, Entry]:
    return MappingProxyType({line[0]: Entry(kind, *line) for line in lines})


_MIP = "cell model: 3,000 patterns, 20,000 numeric weight vectors; row model: 50,000 binaries"
_EXACT_LAW = "exact law, to a stated relative error"
_PULP = "minimize.mip.pulp:PulpOracle"

MINIMIZERS: Mapping[str, Entry] = _table(
    Kind.MINIMISES,
    (
        "auto",
        "select:AutoOracle",
        "the first that fits of enumerate (instant sizes), native, interval, highs",
        "",
        "as chosen",
    ),
    (
        "native",
        "minimize.native.solver:NativeOracle",
        "categorical and binned columns with a few numeric ones; any number of records",
        "50,000 distinct patterns of indicators, 200,000 weight vectors of the numeric columns, 2 GiB of "
        "tables; |w|^2 up to 4,096 where norms count",
        "integers",
    ),
    (
        "interval",
        "minimize.interval:IntervalOracle",
        "up to about eight dense numeric columns",
        "1 GiB; |w|^2 up to 4,096",
        "integers",
    ),
    (
        "enumerate",
        "minimize.enumerate:EnumerationOracle",
        "tiny lattices, any problem: every point is tried",
        "2,000,000 candidates, 2e9 candidates x records",
        "integers",
    ),
    (
        "highs",
        "minimize.mip.highs:HighsOracle",
        "a general solver, HiGHS, spoken to directly; ships with privopt",
        _MIP,
        "floating point",
    ),
    (
        "cpsat",
        "minimize.mip.cpsat:CpSatOracle",
        "OR-tools' CP-SAT, in a process of its own (privopt[cpsat])",
        "as highs",
        "integers",
    ),
    (
        "scip",
        "minimize.mip.scip:ScipOracle",
        "a general solver, SCIP, spoken to directly (privopt[scip])",
        "as highs",
        "floating point",
    ),
    ("pulp-highs", _PULP, "HiGHS through PuLP", "as highs", "floating point", ("HiGHS",)),
    (
        "pulp-cbc",
        _PULP,
        "a general solver, CBC; ships with PuLP",
        "as highs",
        "floating point",
        ("PULP_CBC_CMD",),
    ),
    (
        "pulp-scip",
        _PULP,
        "SCIP through PuLP (pip install pyscipopt)",
        "as highs",
        "floating point",
        ("SCIP_PY",),
    ),
    (
        "pulp-gurobi",
        _PULP,
        "Gurobi, commercial (pip install gurobipy)",
        "as highs",
        "floating point",
        ("GUROBI",),
    ),
    (
        "pulp-cplex",
        _PULP,
        "CPLEX, commercial (pip install cplex)",
        "as highs",
        "floating point",
        ("CPLEX_PY",),
    ),
    ("pulp-copt", _PULP, "COPT, commercial (pip install coptpy)", "as highs", "floating point", ("COPT",)),
    (
        "pulp-xpress",
        _PULP,
        "Xpress, commercial (pip install xpress)",
        "as highs",
        "floating point",
        ("XPRESS_PY",),
    ),
    (
        "local-search",
        "minimize.local_search:LocalSearchOracle",
        "a good point soon, without a proof: for baselines without privacy, refused by mechanisms",
        "",
        "none",
    ),
)

GIBBS: Mapping[str, Entry] = _table(
    Kind.DRAWS,
    (
        "auto",
        "select:AutoGibbs",
        "the first that fits of enumerate, elimination, branch, branching, supports, stream",
        "",
        _EXACT_LAW,
    ),
    (
        "native",
        "select:AutoGibbs",
        "the first that fits of elimination, branch; never enumerate",
        "",
        _EXACT_LAW,
        (("elimination", "branch"),),
    ),
    (
        "bounded",
        "select:AutoGibbs",
        "the first that fits of enumerate, elimination: their work is known beforehand",
        "",
        _EXACT_LAW,
        (("enumerate", "elimination"),),
    ),
    (
        "enumerate",
        "draw.enumerate:GibbsEnumeration",
        "tiny lattices, any problem: every point is weighed",
        "2,000,000 candidates, 2e9 candidates x records",
        _EXACT_LAW,
    ),
    (
        "elimination",
        "draw.elimination:GibbsElimination",
        "small weights, as {-1, 0, 1}^23: sums over the whole lattice, whatever the records say",
        "as native, minimising; 2e10 table additions",
        _EXACT_LAW,
    ),
    (
        "branch",
        "select:gibbs_branch",
        "wider weights and norm balls: branch and bound, time depends on the records",
        "as native, minimising",
        _EXACT_LAW,
    ),
    (
        "branching",
        "draw.branching:GibbsBranching",
        "decision trees and rule lists: sums over all of them, whatever the records say",
        "10 minutes of work as estimated, 4 GB of tables",
        _EXACT_LAW,
    ),
    (
        "supports",
        "draw.supports:GibbsSupports",
        "best subsets of columns for least squares: branch and bound, time depends on the records",
        "5,000 columns, subsets of 40",
        _EXACT_LAW,
    ),
    (
        "stream",
        "draw.stream:GibbsStream",
        "any problem: every point is weighed anew for each draw, in memory that does not grow",
        "2e10 candidates x records",
        _EXACT_LAW,
    ),
)

_PULP_PROGRAMS = "programs.pulp:PulpPrograms"
_CHECKED = "feasibility and value recomputed"

PROGRAMS: Mapping[str, Entry] = _table(
    Kind.PROGRAMS,
    ("auto", "select:default_programs", "pulp-highs, or highs in a process of its own", "", _CHECKED),
    ("pulp-highs", _PULP_PROGRAMS, "HiGHS through PuLP", "", _CHECKED, ("HiGHS",)),
    ("highs", "programs.highs:HighsPrograms", "HiGHS, spoken to directly", "", _CHECKED),
    ("cpsat", "programs.cpsat:CpSatPrograms", "OR-tools' CP-SAT (privopt[cpsat])", "", _CHECKED),
    ("scip", "programs.scip:ScipPrograms", "SCIP, spoken to directly (privopt[scip])", "", _CHECKED),
    ("pulp-cbc", _PULP_PROGRAMS, "CBC; ships with PuLP", "", _CHECKED, ("PULP_CBC_CMD",)),
    ("pulp-scip", _PULP_PROGRAMS, "SCIP through PuLP", "", _CHECKED, ("SCIP_PY",)),
    ("pulp-gurobi", _PULP_PROGRAMS, "Gurobi, commercial", "", _CHECKED, ("GUROBI",)),
    ("pulp-cplex", _PULP_PROGRAMS, "CPLEX, commercial", "", _CHECKED, ("CPLEX_PY",)),
    ("pulp-copt", _PULP_PROGRAMS, "COPT, commercial", "", _CHECKED, ("COPT",)),
    ("pulp-xpress", _PULP_PROGRAMS, "Xpress, commercial", "", _CHECKED, ("XPRESS_PY",)),
    ("enumerate", "programs.enumerate:EnumeratedPrograms", "tiny cards", "100,000 cards", _CHECKED),
)

_SUBSETS = "programs.subsets"

SUBSETS: Mapping[str, Entry] = _table(
    Kind.SUBSETS,
    ("auto", f"{_SUBSETS}.branch_and_bound:BranchingSubsets", "branch-and-bound", "", _CHECKED),
    (
        "branch-and-bound",
        f"{_SUBSETS}.branch_and_bound:BranchingSubsets",
        "own branch and bound over columns",
        "",
        _CHECKED,
    ),
    *(
        (name, "select:subsets_over", f"outer approximation over {what}", "", _CHECKED, (name,))
        for name, what in (
            ("highs", "HiGHS"),
            ("cpsat", "OR-tools' CP-SAT (privopt[cpsat])"),
            ("scip", "SCIP (privopt[scip])"),
            ("pulp-highs", "HiGHS through PuLP"),
            ("pulp-cbc", "CBC; ships with PuLP"),
            ("pulp-scip", "SCIP through PuLP"),
            ("pulp-gurobi", "Gurobi, commercial"),
            ("pulp-cplex", "CPLEX, commercial"),
            ("pulp-copt", "COPT, commercial"),
            ("pulp-xpress", "Xpress, commercial"),
        )
    ),
    ("enumerate", f"{_SUBSETS}.enumerate:EnumeratedSubsets", "few subsets", "20,000 subsets", _CHECKED),
)

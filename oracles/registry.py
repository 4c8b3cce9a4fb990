"""Registry of oracles by name, with module, purpose and refusals.

It lists minimisers and samplers over lattices, and solvers of card programs and best subsets. Solver
libraries are slow to load, so each module is imported on first use. Other packages offer oracles by entry
points in the groups ``privopt.minimizers``, ``privopt.samplers``, ``privopt.programs`` and
``privopt.subsets``. The name of the entry point is the name of the oracle; its object is a class or a
function that makes the oracle.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Kind(StrEnum):
    """The kind of an oracle: minimiser, sampler, or solver of card programs or best subset programs."""

    MINIMISES = "minimises"
    DRAWS = "draws"
    PROGRAMS = "nearest cards"
    SUBSETS = "best subsets"


@dataclass(frozen=True)
class Entry:
    """An entry of the registry.

    Attributes:
        kind, name: the key of the entry.
        home: the module in ``privopt.oracles`` and its factory, such as "draw.stream:GibbsStream".
        purpose: what the oracle is for.
        limits: the problems that it refuses.
        proof: "integers" or "floating point" for certificates; for samplers, the law of the draw; for other
            solvers, what privopt recomputes.
        arguments: the positional arguments of the factory.
    """

    kind: Kind
    name: str
    home: str
    purpose: str
    limits: str
    proof: str
    arguments: tuple[Any, ...] = ()

    def make(self) -> Any:
        """Import the module and make the oracle.

        Raises:
            MissingSolverError: the solver of the oracle is not installed.
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
        "a general solver, HiGHS, called directly; ships with privopt",
        _MIP,
        "floating point",
    ),
    (
        "cpsat",
        "minimize.mip.cpsat:CpSatOracle",
        "OR-tools' CP-SAT, in a separate process (privopt[cpsat])",
        "as highs",
        "integers",
    ),
    (
        "scip",
        "minimize.mip.scip:ScipOracle",
        "a general solver, SCIP, called directly (privopt[scip])",
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
        "a good point quickly, without a proof: for baselines without privacy, refused by mechanisms",
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
        "the first that fits of elimination, branch",
        "",
        _EXACT_LAW,
        (("elimination", "branch"),),
    ),
    (
        "bounded",
        "select:AutoGibbs",
        "the first that fits of enumerate, elimination, whose work is known before data are read",
        "",
        _EXACT_LAW,
        (("enumerate", "elimination"),),
    ),
    (
        "enumerate",
        "draw.enumerate:GibbsEnumeration",
        "tiny lattices, any problem: the weight of every point is computed",
        "2,000,000 candidates, 2e9 candidates x records",
        _EXACT_LAW,
    ),
    (
        "elimination",
        "draw.elimination:GibbsElimination",
        "small weights, such as {-1, 0, 1}^23: sums over the whole lattice, without branch and bound",
        "as native, minimising; 2e10 table additions",
        _EXACT_LAW,
    ),
    (
        "branch",
        "select:gibbs_branch",
        "wider weights and norm balls: branch and bound; time depends on the records",
        "as native, minimising",
        _EXACT_LAW,
    ),
    (
        "branching",
        "draw.branching:GibbsBranching",
        "decision trees and rule lists: sums over all of them, without branch and bound",
        "10 minutes of work as estimated, 4 GB of tables",
        _EXACT_LAW,
    ),
    (
        "supports",
        "draw.supports:GibbsSupports",
        "best subsets of columns for least squares: branch and bound; time depends on the records",
        "5,000 columns, subsets of 40",
        _EXACT_LAW,
    ),
    (
        "stream",
        "draw.stream:GibbsStream",
        "any problem: each draw computes the weight of every point again, in constant memory",
        "2e10 candidates x records",
        _EXACT_LAW,
    ),
)

_PULP_PROGRAMS = "programs.pulp:PulpPrograms"
_CHECKED = "feasibility and value recomputed"

PROGRAMS: Mapping[str, Entry] = _table(
    Kind.PROGRAMS,
    ("auto", "select:default_programs", "pulp-highs, or highs in a separate process", "", _CHECKED),
    ("pulp-highs", _PULP_PROGRAMS, "HiGHS through PuLP", "", _CHECKED, ("HiGHS",)),
    ("highs", "programs.highs:HighsPrograms", "HiGHS, called directly", "", _CHECKED),
    ("cpsat", "programs.cpsat:CpSatPrograms", "OR-tools' CP-SAT (privopt[cpsat])", "", _CHECKED),
    ("scip", "programs.scip:ScipPrograms", "SCIP, called directly (privopt[scip])", "", _CHECKED),
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
        "privopt's own branch and bound over columns",
        "",
        _CHECKED,
    ),
    *(
        (name, "select:subsets_over", f"outer approximation with {what}", "", _CHECKED, (name,))
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

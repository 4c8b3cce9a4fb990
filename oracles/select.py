"""Oracles by name, the automatic choice with its reason, and what is installed.

Backends are imported when they are asked for: compilers and solver libraries are slow to load. Oracles of
other packages are found by their entry points, in the groups ``privopt.minimizers`` and ``privopt.samplers``:
an entry point's name is the oracle's, its object a class or a function that makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from privopt.oracles.draw.interface import GibbsOracle, Law, PreparedGibbs, Sampler
from privopt.oracles.errors import MissingSolverError, UnknownOracleError, UnsupportedProblemError
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle, Solver
from privopt.oracles.task import Task
from privopt.problems.arguments import check_type
from privopt.problems.discrete.problem import DiscreteProblem, check_question
from privopt.problems.errors import PrivOptError, did_you_mean

Kind = TypeVar("Kind")


def _enumerate() -> DiscreteOracle:
    from privopt.oracles.minimize.enumerate import EnumerationOracle

    return EnumerationOracle()


def _instant() -> DiscreteOracle:
    from privopt.oracles.minimize.enumerate import EnumerationOracle

    return EnumerationOracle(max_candidates=100_000, max_work=2e8)


def _native() -> DiscreteOracle:
    from privopt.oracles.minimize.native.solver import NativeOracle

    return NativeOracle()


def _interval() -> DiscreteOracle:
    from privopt.oracles.minimize.interval import IntervalOracle

    return IntervalOracle()


def _local_search() -> DiscreteOracle:
    from privopt.oracles.minimize.local_search import LocalSearchOracle

    return LocalSearchOracle()


def _highs() -> DiscreteOracle:
    from privopt.oracles.minimize.mip.highs import HighsOracle

    return HighsOracle()


def _cpsat() -> DiscreteOracle:
    from privopt.oracles.minimize.mip.cpsat import CpSatOracle

    return CpSatOracle()


def _scip() -> DiscreteOracle:
    from privopt.oracles.minimize.mip.scip import ScipOracle

    return ScipOracle()


def _pulp(solver: str) -> Callable[[], DiscreteOracle]:
    def make() -> DiscreteOracle:
        from privopt.oracles.minimize.mip.pulp import PulpOracle

        return PulpOracle(solver)

    return make


def _gibbs_enumerate() -> GibbsOracle:
    from privopt.oracles.draw.enumerate import GibbsEnumeration

    return GibbsEnumeration()


def _gibbs_elimination() -> GibbsOracle:
    from privopt.oracles.draw.elimination import GibbsElimination

    return GibbsElimination()


def _gibbs_branch() -> GibbsOracle:
    from privopt.oracles.draw.branch import GibbsBranch
    from privopt.oracles.minimize.native.solver import smallest_loss

    return GibbsBranch(smallest_loss=smallest_loss)


def _gibbs_branching() -> GibbsOracle:
    from privopt.oracles.draw.branching import GibbsBranching

    return GibbsBranching()


def _gibbs_stream() -> GibbsOracle:
    from privopt.oracles.draw.stream import GibbsStream

    return GibbsStream()


MINIMIZERS: Mapping[str, Callable[[], DiscreteOracle]] = {
    "auto": lambda: AutoOracle(),
    "native": _native,
    "interval": _interval,
    "enumerate": _enumerate,
    "highs": _highs,
    "cpsat": _cpsat,
    "scip": _scip,
    "pulp-highs": _pulp("HiGHS"),
    "pulp-cbc": _pulp("PULP_CBC_CMD"),
    "pulp-scip": _pulp("SCIP_PY"),
    "pulp-gurobi": _pulp("GUROBI"),
    "pulp-cplex": _pulp("CPLEX_PY"),
    "pulp-copt": _pulp("COPT"),
    "pulp-xpress": _pulp("XPRESS_PY"),
    "local-search": _local_search,
}

GIBBS: Mapping[str, Callable[[], GibbsOracle]] = {
    "auto": lambda: AutoGibbs(),
    "native": lambda: AutoGibbs((_gibbs_elimination, _gibbs_branch)),
    "bounded": lambda: AutoGibbs((_gibbs_enumerate, _gibbs_elimination)),
    "enumerate": _gibbs_enumerate,
    "elimination": _gibbs_elimination,
    "branch": _gibbs_branch,
    "branching": _gibbs_branching,
    "stream": _gibbs_stream,
}


def minimizer(name: str) -> DiscreteOracle:
    """A minimising oracle by name.

    Raises:
        UnknownOracleError: listing the names there are; or what another package offers by the name is none.
        MissingSolverError: the solver behind it is not installed.
    """
    check_type(name, str, "an oracle is named by text")
    known = MINIMIZERS if name in MINIMIZERS else minimizers()  # which reads what every package offers
    if name not in known and name in samplers():
        raise UnknownOracleError(
            f"oracle {name!r} draws at random, and this mechanism needs a minimiser; "
            f"there are {', '.join(known)}"
        )
    return _named(name, known, "minimising oracle")


def gibbs_oracle(name: str) -> GibbsOracle:
    """A drawing oracle by name.

    Raises:
        UnknownOracleError: listing the names there are; or what another package offers by the name is none.
    """
    check_type(name, str, "an oracle is named by text")
    known = GIBBS if name in GIBBS else samplers()
    if name not in known and name in minimizers():
        raise UnknownOracleError(
            f"oracle {name!r} minimises, and this mechanism needs a sampler: an oracle that draws at random; "
            f"there are {', '.join(known)}. A minimiser serves mechanisms that release a minimiser, such as "
            "opdisc and rspm"
        )
    return _named(name, known, "oracle that draws")


def minimizers() -> dict[str, Callable[[], DiscreteOracle]]:
    """Ours, then those of installed packages, by name. A name of ours stays ours."""
    return {**MINIMIZERS, **_offered("minimizers", DiscreteOracle, MINIMIZERS)}  # type: ignore[type-abstract]


def samplers() -> dict[str, Callable[[], GibbsOracle]]:
    """The same for oracles that draw."""
    return {**GIBBS, **_offered("samplers", GibbsOracle, GIBBS)}  # type: ignore[type-abstract]


def _offered(group: str, kind: type[Kind], ours: Mapping[str, object]) -> dict[str, Callable[[], Kind]]:
    found = (entry for entry in entry_points(group=f"privopt.{group}") if entry.name not in ours)
    return {entry.name: partial(_loaded, entry, kind) for entry in found}


def _loaded(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """What another package offers.

    Raises:
        MissingSolverError: it cannot be loaded or made.
        UnknownOracleError: it is no oracle of the kind.
    """
    whose = f"the package {entry.dist.name!r}" if entry.dist else "another package"
    try:
        made: Any = entry.load()()
    except PrivOptError:
        raise
    except Exception as error:  # whatever goes wrong over there
        raise MissingSolverError(
            f"oracle {entry.name!r} of {whose} cannot be made ({type(error).__name__}: {error}). "
            f"To do: install what it needs, or another release of it"
        ) from error
    if not isinstance(made, kind):
        raise UnknownOracleError(
            f"{whose} offers {entry.value!r} as oracle {entry.name!r}, which makes a {type(made).__name__}, "
            f"no {kind.__name__}"
        )
    return made


def _named(name: str, known: Mapping[str, Callable[[], Kind]], what: str) -> Kind:
    if name not in known:
        raise UnknownOracleError(
            f"unknown {what} {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    return known[name]()


@dataclass(frozen=True)
class AutoOracle(DiscreteOracle):
    """The first that takes the problem: instant enumeration, native, interval, HiGHS."""

    name: ClassVar[str] = "auto"

    def choose(self, problem: DiscreteProblem, task: Task) -> tuple[DiscreteOracle, str]:
        """The oracle in use, and why.

        Raises:
            UnsupportedProblemError: nothing fits; the message lists every reason of every candidate.
        """
        candidates = (_instant, _native, _interval, _highs)
        return _first_fit(candidates, lambda oracle: oracle.refusals(problem, task))

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return _refusals(lambda: self.choose(problem, task))

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        return self.choose(problem, task)[0].build(problem, task)

    def prepare(self, problem: DiscreteProblem, task: Task) -> PreparedOracle:
        check_question(problem, task, Task)
        return self.choose(problem, task)[0].prepare(problem, task)


@dataclass(frozen=True)
class AutoGibbs(GibbsOracle):
    """The first of some oracles that takes the problem: enumeration, elimination, branch and bound, the
    recursion over trees and rule lists, a stream.

    "native" leaves enumeration out.
    """

    name: ClassVar[str] = "auto"
    candidates: tuple[Callable[[], GibbsOracle], ...] = (
        _gibbs_enumerate,
        _gibbs_elimination,
        _gibbs_branch,
        _gibbs_branching,
        _gibbs_stream,
    )

    def choose(self, problem: DiscreteProblem, law: Law) -> tuple[GibbsOracle, str]:
        """The oracle in use, and why.

        Raises:
            UnsupportedProblemError: nothing fits; the message lists every reason of every candidate.
        """
        return _first_fit(self.candidates, lambda oracle: oracle.refusals(problem, law))

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return _refusals(lambda: self.choose(problem, law))

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        return self.choose(problem, law)[0].build(problem, law)

    def prepare(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> PreparedGibbs:
        check_question(problem, law, Law)
        return self.choose(problem, law)[0].prepare(problem, law)


def _first_fit(
    candidates: tuple[Callable[[], Kind], ...], refusals: Callable[[Kind], list[str]]
) -> tuple[Kind, str]:
    passed_over: list[str] = []
    for make in candidates:
        oracle = make()
        name = getattr(oracle, "name", "?")
        reasons = refusals(oracle)
        if not reasons:
            return oracle, f"{name}: " + ("; ".join(passed_over) or "every point can be tried at once")
        passed_over.append(f"{name} does not fit ({', '.join(reasons)})")
    raise UnsupportedProblemError(
        f"no oracle fits: {'; '.join(passed_over)}. To do: a smaller lattice (lattice=..., on "
        f"the command line --lattice=LOW:HIGH:RADIUS), or fewer or coarser columns"
    )


def _refusals(choose: Callable[[], object]) -> list[str]:
    try:
        choose()
    except UnsupportedProblemError as error:
        return [str(error)]
    return []


@dataclass(frozen=True)
class Entry:
    """One line of the inventory: an oracle, and what it takes to use it.

    Attributes:
        name: what ``minimizer`` or ``gibbs_oracle`` takes.
        kind: "minimises" or "draws".
        installed: whether it can be made here.
        remedy: what to do if not.
        summary: what it is for.
        limits: what it refuses.
        proof: "integers" or "floating point" for certificates, the law of the draw for samplers.
    """

    name: str
    kind: str
    installed: bool
    remedy: str
    summary: str
    limits: str
    proof: str


_MIP = "cell model: 3,000 patterns, 20,000 numeric weight vectors; row model: 50,000 binaries"
_EXACT_LAW = "exact law, to a stated relative error"

# Name: what it is for, what it refuses, what its answers rest on.
_MINIMISES: Mapping[str, tuple[str, str, str]] = {
    "auto": (
        "the first that fits of enumerate (instant sizes), native, interval, highs",
        "",
        "as chosen",
    ),
    "native": (
        "categorical and binned columns with a few numeric ones; any number of records",
        "20,000 distinct patterns of indicators, 200,000 weight vectors of the numeric columns, 2 GiB of "
        "tables; |w|^2 up to 4,096 where norms count",
        "integers",
    ),
    "interval": ("up to about eight dense numeric columns", "1 GiB; |w|^2 up to 4,096", "integers"),
    "enumerate": (
        "tiny lattices, any problem: every point is tried",
        "2,000,000 candidates, 2e9 candidates x records",
        "integers",
    ),
    "highs": ("a general solver, HiGHS, spoken to directly; ships with privopt", _MIP, "floating point"),
    "cpsat": ("OR-tools' CP-SAT, in a process of its own (privopt[cpsat])", "as highs", "integers"),
    "scip": ("a general solver, SCIP, spoken to directly (privopt[scip])", "as highs", "floating point"),
    "pulp-highs": ("HiGHS through PuLP", "as highs", "floating point"),
    "pulp-cbc": ("a general solver, CBC; ships with PuLP", "as highs", "floating point"),
    "pulp-scip": ("SCIP through PuLP (pip install pyscipopt)", "as highs", "floating point"),
    "pulp-gurobi": ("Gurobi, commercial (pip install gurobipy)", "as highs", "floating point"),
    "pulp-cplex": ("CPLEX, commercial (pip install cplex)", "as highs", "floating point"),
    "pulp-copt": ("COPT, commercial (pip install coptpy)", "as highs", "floating point"),
    "pulp-xpress": ("Xpress, commercial (pip install xpress)", "as highs", "floating point"),
    "local-search": (
        "a good point soon, without a proof: for baselines without privacy, refused by mechanisms",
        "",
        "none",
    ),
}
_DRAWS: Mapping[str, tuple[str, str, str]] = {
    "auto": ("the first that fits of enumerate, elimination, branch, branching, stream", "", _EXACT_LAW),
    "native": ("the first that fits of elimination, branch; never enumerate", "", _EXACT_LAW),
    "bounded": (
        "the first that fits of enumerate, elimination: their work is known beforehand",
        "",
        _EXACT_LAW,
    ),
    "enumerate": (
        "tiny lattices, any problem: every point is weighed",
        "2,000,000 candidates, 2e9 candidates x records",
        _EXACT_LAW,
    ),
    "elimination": (
        "small weights, as {-1, 0, 1}^23: sums over the whole lattice, whatever the records say",
        "as native, minimising; 2e10 table additions",
        _EXACT_LAW,
    ),
    "branch": (
        "wider weights and norm balls: branch and bound, time depends on the records",
        "as native, minimising",
        _EXACT_LAW,
    ),
    "branching": (
        "decision trees and rule lists: sums over all of them, whatever the records say",
        "10 minutes of work as estimated, 4 GB of tables",
        _EXACT_LAW,
    ),
    "stream": (
        "any problem: every point is weighed anew for each draw, in memory that does not grow",
        "2e10 candidates x records",
        _EXACT_LAW,
    ),
}


def inventory() -> list[Entry]:
    """Every oracle by name: whether it can be made here, what to do if not, what it is for."""
    foreign = ("of an installed package", "its own", "its own")
    named = [("minimises", name, make, _MINIMISES.get(name, foreign)) for name, make in minimizers().items()]
    draws = [("draws", name, make, _DRAWS.get(name, foreign)) for name, make in samplers().items()]
    return [_entry(kind, name, make, facts) for kind, name, make, facts in [*named, *draws]]


def _entry(kind: str, name: str, make: Callable[[], object], facts: tuple[str, str, str]) -> Entry:
    try:
        make()
    except (MissingSolverError, UnknownOracleError) as error:
        return Entry(name, kind, False, str(error), *facts)
    return Entry(name, kind, True, "", *facts)

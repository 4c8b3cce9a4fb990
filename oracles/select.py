"""Oracles by name, the automatic choice with its reason, and what is installed.

Backends are imported when they are asked for: compilers and solver libraries are slow to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from privopt.oracles.errors import MissingSolverError, UnknownOracleError, UnsupportedProblemError
from privopt.oracles.gibbs import GibbsOracle, Law, PreparedGibbs, Sampler
from privopt.oracles.interface import DiscreteOracle, PreparedOracle, Solver, Task
from privopt.problems.discrete import DiscreteProblem

Kind = TypeVar("Kind")


def _enumerate() -> DiscreteOracle:
    from privopt.oracles.backends.enumerate import EnumerationOracle

    return EnumerationOracle()


def _instant() -> DiscreteOracle:
    from privopt.oracles.backends.enumerate import EnumerationOracle

    return EnumerationOracle(max_candidates=100_000, max_work=2e8)


def _native() -> DiscreteOracle:
    from privopt.oracles.backends.native import NativeOracle

    return NativeOracle()


def _interval() -> DiscreteOracle:
    from privopt.oracles.backends.interval import IntervalOracle

    return IntervalOracle()


def _pulp(solver: str) -> Callable[[], DiscreteOracle]:
    def make() -> DiscreteOracle:
        from privopt.oracles.backends.pulp import PulpOracle

        return PulpOracle(solver)

    return make


def _gibbs_enumerate() -> GibbsOracle:
    from privopt.oracles.backends.gibbs_enumerate import GibbsEnumeration

    return GibbsEnumeration()


def _gibbs_elimination() -> GibbsOracle:
    from privopt.oracles.backends.gibbs_elimination import GibbsElimination

    return GibbsElimination()


def _gibbs_branch() -> GibbsOracle:
    from privopt.oracles.backends.gibbs_branch import GibbsBranch

    return GibbsBranch()


MINIMIZERS: Mapping[str, Callable[[], DiscreteOracle]] = {
    "auto": lambda: AutoOracle(),
    "native": _native,
    "interval": _interval,
    "enumerate": _enumerate,
    "pulp-highs": _pulp("HiGHS"),
    "pulp-cbc": _pulp("PULP_CBC_CMD"),
    "pulp-scip": _pulp("SCIP_PY"),
    "pulp-gurobi": _pulp("GUROBI"),
    "pulp-cplex": _pulp("CPLEX_PY"),
}

GIBBS: Mapping[str, Callable[[], GibbsOracle]] = {
    "auto": lambda: AutoGibbs(),
    "native": lambda: AutoGibbs((_gibbs_elimination, _gibbs_branch)),
    "enumerate": _gibbs_enumerate,
    "elimination": _gibbs_elimination,
    "branch": _gibbs_branch,
}


def minimizer(name: str) -> DiscreteOracle:
    """A minimising oracle by name.

    Raises:
        UnknownOracleError: listing the names there are.
        MissingSolverError: the solver behind it is not installed.
    """
    return _named(name, MINIMIZERS, "minimising oracle")


def gibbs_oracle(name: str) -> GibbsOracle:
    """A drawing oracle by name.

    Raises:
        UnknownOracleError: listing the names there are.
    """
    return _named(name, GIBBS, "oracle that draws")


def _named(name: str, known: Mapping[str, Callable[[], Kind]], what: str) -> Kind:
    if name not in known:
        raise UnknownOracleError(f"unknown {what} {name!r}; there are {', '.join(known)}")
    return known[name]()


@dataclass(frozen=True)
class AutoOracle(DiscreteOracle):
    """The first that takes the problem: instant enumeration, native, interval, PuLP with HiGHS."""

    name: ClassVar[str] = "auto"

    def choose(self, problem: DiscreteProblem, task: Task) -> tuple[DiscreteOracle, str]:
        """The oracle in use, and why.

        Raises:
            UnsupportedProblemError: nothing fits; the message lists every reason of every candidate.
        """
        candidates = (_instant, _native, _interval, _pulp("HiGHS"))
        return _first_fit(candidates, lambda oracle: oracle.refusals(problem, task))

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return _refusals(lambda: self.choose(problem, task))

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        return self.choose(problem, task)[0].build(problem, task)

    def prepare(self, problem: DiscreteProblem, task: Task) -> PreparedOracle:
        return self.choose(problem, task)[0].prepare(problem, task)


@dataclass(frozen=True)
class AutoGibbs(GibbsOracle):
    """The first of some oracles that takes the problem: enumeration, elimination, branch and bound.

    "native" leaves enumeration out.
    """

    name: ClassVar[str] = "auto"
    candidates: tuple[Callable[[], GibbsOracle], ...] = (_gibbs_enumerate, _gibbs_elimination, _gibbs_branch)

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
    raise UnsupportedProblemError("no oracle fits: " + "; ".join(passed_over))


def _refusals(choose: Callable[[], object]) -> list[str]:
    try:
        choose()
    except UnsupportedProblemError as error:
        return [str(error)]
    return []


@dataclass(frozen=True)
class Entry:
    """One line of the inventory: an oracle, and what it takes to use it."""

    name: str
    kind: str
    installed: bool
    remedy: str
    summary: str


def inventory() -> list[Entry]:
    """Every oracle by name: whether it can be made here, what to do if not, what it does."""
    named = [("minimises", name, make) for name, make in MINIMIZERS.items()]
    draws = [("draws", name, make) for name, make in GIBBS.items()]
    return [_entry(kind, name, make) for kind, name, make in [*named, *draws]]


def _entry(kind: str, name: str, make: Callable[[], object]) -> Entry:
    try:
        oracle = make()
    except MissingSolverError as error:
        return Entry(name, kind, False, str(error), "")
    first_line = (type(oracle).__doc__ or "").strip().splitlines()[0]
    return Entry(name, kind, True, "", first_line)

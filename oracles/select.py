"""Selection of oracles, by name or automatically with a reason; inventory of all oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from privopt.oracles.certificate import Status
from privopt.oracles.draw.interface import GibbsOracle, Law, PreparedGibbs, Sampler
from privopt.oracles.errors import (
    MissingSolverError,
    UnfinishedDrawError,
    UnknownOracleError,
    UnsupportedProblemError,
)
from privopt.oracles.facts import Precision, ProblemFacts
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle, Solver
from privopt.oracles.programs.interface import ProgramOracle
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.oracles.registry import GIBBS, MINIMIZERS, PROGRAMS, SUBSETS, Entry, Kind
from privopt.oracles.task import Task
from privopt.oracles.vetting import outside_code, standing
from privopt.problems.arguments import check_type
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem, check_question
from privopt.problems.errors import did_you_mean
from privopt.problems.plugins import loaded, offered, provider

if TYPE_CHECKING:  # importing them takes time
    from privopt.oracles.cells.regions import CellModel
    from privopt.oracles.programs.mip import MipProgramOracle

OracleT = TypeVar("OracleT")


@dataclass(frozen=True)
class Available:
    """An entry of the inventory: an oracle, and its availability.

    Attributes:
        name: the name that ``minimizer``, ``gibbs_oracle``, ``program_oracle`` or ``subset_oracle`` takes.
        kind: the kind of the oracle.
        installed: True if the oracle can be made in this installation.
        remedy: how to install it, if it cannot be made.
        summary: its purpose.
        limits: the problems that it refuses.
        proof: "integers" or "floating point" for certificates; for samplers, the law of the draw; for other
            solvers, what privopt recomputes.
        standing: whether an oracle of another package passed the conformance kit; empty for privopt's own.
    """

    name: str
    kind: Kind
    installed: bool
    remedy: str
    summary: str
    limits: str
    proof: str
    standing: str = ""


def minimizer(name: str) -> DiscreteOracle:
    """Return a minimising oracle by name.

    Raises:
        UnknownOracleError: the name is unknown (the message lists the known names), or an entry point of
            another package makes something else.
        MissingSolverError: the solver of the oracle is not installed.
    """
    check_type(name, str, "an oracle is named by text")
    if name in MINIMIZERS:  # without reading entry points
        return cast(DiscreteOracle, MINIMIZERS[name].make())
    known = minimizers()
    if name not in known and name in samplers():
        raise UnknownOracleError(
            f"oracle {name!r} draws at random, and this mechanism needs a minimiser; "
            f"there are {', '.join(known)}"
        )
    return _named(name, known, "minimising oracle")


def gibbs_oracle(name: str) -> GibbsOracle:
    """Return a sampling oracle by name.

    Raises:
        UnknownOracleError: the name is unknown (the message lists the known names), or an entry point of
            another package makes something else.
    """
    check_type(name, str, "an oracle is named by text")
    if name in GIBBS:
        return cast(GibbsOracle, GIBBS[name].make())
    known = samplers()
    if name not in known and name in minimizers():
        raise UnknownOracleError(
            f"oracle {name!r} minimises, and this mechanism needs a sampler: an oracle that draws at random; "
            f"there are {', '.join(known)}. A minimiser serves mechanisms that release a minimiser, such as "
            "opdisc and rspm"
        )
    return _named(name, known, "oracle that draws")


def program_oracle(name: str) -> ProgramOracle:
    """Return a solver of card programs by name.

    Raises:
        UnknownOracleError: the name is unknown (the message lists the known names), or an entry point of
            another package makes something else.
        MissingSolverError: the solver is not installed.
    """
    check_type(name, str, "a solver is named by text")
    if name in PROGRAMS:
        return cast(ProgramOracle, PROGRAMS[name].make())
    return _named(name, program_oracles(), "solver of card programs")


def subset_oracle(name: str) -> SubsetOracle:
    """Return a solver of best subset programs by name.

    Raises:
        UnknownOracleError: the name is unknown (the message lists the known names), or an entry point of
            another package makes something else.
        MissingSolverError: the solver is not installed.
    """
    check_type(name, str, "a solver is named by text")
    return _named(name, subset_oracles(), "solver of best subsets")


def minimizers() -> dict[str, Callable[[], DiscreteOracle]]:
    """Return factories of minimising oracles by name: privopt's own first, then those of other packages.

    Other packages cannot override a name that privopt uses.
    """
    return _known(MINIMIZERS, "privopt.minimizers", DiscreteOracle)  # type: ignore[type-abstract]


def samplers() -> dict[str, Callable[[], GibbsOracle]]:
    """Return factories of sampling oracles by name, as ``minimizers`` does."""
    return _known(GIBBS, "privopt.samplers", GibbsOracle)  # type: ignore[type-abstract]


def program_oracles() -> dict[str, Callable[[], ProgramOracle]]:
    """Return factories of solvers of card programs by name, as ``minimizers`` does."""
    return _known(PROGRAMS, "privopt.programs", ProgramOracle)  # type: ignore[type-abstract]


def subset_oracles() -> dict[str, Callable[[], SubsetOracle]]:
    """Return factories of solvers of best subset programs by name, as ``minimizers`` does."""
    return _known(SUBSETS, "privopt.subsets", SubsetOracle)  # type: ignore[type-abstract]


def subsets_over(solver: str) -> SubsetOracle:
    """Return outer approximation with the MIP solver of card programs that has this name.

    Raises:
        MissingSolverError: the MIP solver is not installed.
    """
    from privopt.oracles.programs.subsets.outer_approximation import OuterApproximation

    return OuterApproximation(cast("MipProgramOracle", program_oracle(solver)))


def default_programs() -> ProgramOracle:
    """Return HiGHS through PuLP, or in a separate process if another library prevents its import."""
    from privopt.oracles.programs.highs import HighsPrograms
    from privopt.oracles.programs.pulp import PulpPrograms

    try:
        return PulpPrograms()
    except MissingSolverError:
        return HighsPrograms()


def _known(ours: Mapping[str, Entry], group: str, kind: type[OracleT]) -> dict[str, Callable[[], OracleT]]:
    made: dict[str, Callable[[], OracleT]] = {name: entry.make for name, entry in ours.items()}
    return made | {name: partial(_offered, entry, kind) for name, entry in offered(group, ours).items()}


def _offered(entry: EntryPoint, kind: type[OracleT]) -> OracleT:
    """Make an oracle from an entry point of another package.

    Raises:
        MissingSolverError: the entry point cannot be loaded or called.
        UnknownOracleError: it makes something that is no oracle of the given kind.
    """
    made: Any = loaded(entry, "oracle", MissingSolverError, make=True)
    if not isinstance(made, kind):
        raise UnknownOracleError(
            f"{provider(entry)} offers {entry.value!r} as oracle {entry.name!r}, which makes a "
            f"{type(made).__name__}, no {kind.__name__}"
        )
    return made


def _named(name: str, known: Mapping[str, Callable[[], OracleT]], what: str) -> OracleT:
    if name not in known:
        raise UnknownOracleError(
            f"unknown {what} {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    return known[name]()


@dataclass(frozen=True)
class AutoOracle(DiscreteOracle):
    """The first oracle that takes the problem, of enumeration if instant, native, interval and HiGHS."""

    name: ClassVar[str] = "auto"
    takes_constraints: ClassVar[bool] = True  # for a constrained lattice it chooses an oracle that takes it

    def choose(self, problem: DiscreteProblem, task: Task) -> tuple[DiscreteOracle, str]:
        """Return the chosen oracle and the reason for the choice.

        Raises:
            UnsupportedProblemError: no oracle fits; the message lists every reason of every candidate.
        """
        return _first_fit(_instant_or_exact(), lambda oracle: oracle.all_refusals(problem, task))

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return _refusals(lambda: self.choose(problem, task))

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return _none_planned(_instant_or_exact(), facts)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        return self.choose(problem, task)[0].build(problem, task)

    def prepare(self, problem: DiscreteProblem, task: Task) -> PreparedOracle:
        check_question(problem, task, Task)
        return self.choose(problem, task)[0].prepare(problem, task)


@dataclass(frozen=True)
class AutoGibbs(GibbsOracle):
    """The first sampler that takes the problem.

    The order is enumeration, elimination, branch and bound, the recursion over trees and rule lists, branch
    and bound over supports, streaming. The oracles "native" and "bounded" have fewer candidates.
    """

    name: ClassVar[str] = "auto"
    candidates: tuple[str, ...] = (
        "enumerate",
        "elimination",
        "branch",
        "branching",
        "supports",
        "stream",
    )

    @property
    def takes_constraints(self) -> bool:  # type: ignore[override]
        """Whether some candidate takes constraints on points."""
        return any(gibbs_oracle(name).takes_constraints for name in self.candidates)

    def choose(
        self, problem: DiscreteProblem, law: Law, precision: Precision | None = None
    ) -> tuple[GibbsOracle, str]:
        """Return the chosen oracle and the reason for the choice.

        Raises:
            UnsupportedProblemError: no oracle fits; the message lists every reason of every candidate.
        """
        return _first_fit(self._oracles(), lambda oracle: oracle.all_refusals(problem, law, precision))

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return _refusals(lambda: self.choose(problem, law))

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return _none_planned(self._oracles(), facts)

    def _oracles(self) -> Iterator[GibbsOracle]:
        return (gibbs_oracle(name) for name in self.candidates)

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        return self.choose(problem, law)[0].build(problem, law)

    def prepare(
        self, problem: DiscreteProblem, law: Law = Law.GIBBS, precision: Precision | None = None
    ) -> PreparedGibbs:
        check_question(problem, law, Law)
        return self.choose(problem, law, precision)[0].prepare(problem, law, precision)


def gibbs_branch() -> GibbsOracle:
    """Return the sampler by branch and bound, with a minimiser that proves the least loss.

    The minimiser is native, or auto if the lattice has constraints.
    """
    from privopt.oracles.draw.branch import GibbsBranch

    return GibbsBranch(smallest_loss=_smallest_loss, smallest_refusals=_smallest_refusals)


def _smallest_refusals(facts: ProblemFacts) -> list[str]:
    """Return why no minimiser takes every problem with these facts; without constraints, native takes all."""
    if not facts.lattice.constrained:
        return []
    return AutoOracle().planned_refusals(replace(facts, question=Task.LINEAR))


def _smallest_loss(problem: ZeroOneHalfspace, regions: CellModel, watch: Watch) -> int:
    """Return the proved smallest loss over the lattice.

    Raises:
        UnfinishedDrawError: a limit was reached before the proof.
        UnsupportedProblemError: no minimiser takes the problem under its constraints.
    """
    from privopt.oracles.minimize.native.solver import smallest_loss

    if not problem.lattice.constrained:
        return smallest_loss(problem, regions, watch)
    prepared = AutoOracle().prepare(problem, Task.LINEAR)
    answer = prepared.minimize(Perturbation.zero(problem.lattice), watch.rest)
    if (status := answer.certificate.status) is not Status.OPTIMAL:
        raise UnfinishedDrawError(
            f"permute-and-flip needs the smallest loss, and the minimiser was stopped by {status.name}: no "
            f"point was drawn. To do: {status.value}"
        )
    return problem.loss(answer.require(gap=0.0))


def _instant_or_exact() -> Iterator[DiscreteOracle]:
    from privopt.oracles.minimize.enumerate import EnumerationOracle

    yield EnumerationOracle(max_candidates=100_000, max_work=2e8)
    yield from (minimizer(name) for name in ("native", "interval", "highs"))


def _first_fit(
    candidates: Iterable[OracleT], refusals: Callable[[OracleT], list[str]]
) -> tuple[OracleT, str]:
    passed_over: list[str] = []
    for oracle in candidates:
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


def _none_planned(
    candidates: Iterable[DiscreteOracle] | Iterable[GibbsOracle], facts: ProblemFacts
) -> list[str]:
    """Return why no candidate fits, as far as this is known before data are read."""
    known: Iterable[Any] = candidates
    return _refusals(lambda: _first_fit(known, lambda oracle: oracle.all_planned_refusals(facts)))


def inventory() -> list[Available]:
    """Return the inventory of all oracles that have names."""
    return [
        *(_available(Kind.MINIMISES, name, make, MINIMIZERS) for name, make in minimizers().items()),
        *(_available(Kind.DRAWS, name, make, GIBBS) for name, make in samplers().items()),
        *(_available(Kind.PROGRAMS, name, make, PROGRAMS) for name, make in program_oracles().items()),
        *(_available(Kind.SUBSETS, name, make, SUBSETS) for name, make in subset_oracles().items()),
    ]


def _available(kind: Kind, name: str, make: Callable[[], object], ours: Mapping[str, Entry]) -> Available:
    facts = ("of an installed package", "its own", "its own")
    if name in ours:
        facts = (ours[name].purpose, ours[name].limits, ours[name].proof)
    try:
        made = make()
    except (MissingSolverError, UnknownOracleError) as error:
        return Available(name, kind, False, str(error), *facts)
    known = standing(outside_code(made), "oracle")
    return Available(name, kind, True, "", *facts, standing="" if known is None else known.words)

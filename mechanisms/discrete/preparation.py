"""Preparation of a plan's oracle for the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.oracles.draw.interface import GibbsOracle, Law
from privopt.oracles.errors import OracleError, UnknownOracleError, UnsupportedProblemError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.select import gibbs_oracle, minimizer, minimizers, samplers
from privopt.problems.arguments import told
from privopt.problems.discrete.problem import DiscreteProblem


def prepare_oracle(
    oracle: str | DiscreteOracle | GibbsOracle, plan: LatticeMechanism[Any], problem: DiscreteProblem
) -> Any:
    """Build an oracle for the data, of the kind that a plan needs; it is named, or given as an object.

    Raises:
        PlanMismatchError: the plan was made for another problem.
        OracleError: unknown name, missing solver, an oracle of the other kind or without proofs, or a problem
            that the oracle refuses.
    """
    plan.check_problem(problem)
    return prepared_for(oracle_for(oracle, plan), plan, problem)


def prepared_for(oracle: Any, plan: LatticeMechanism[Any], problem: DiscreteProblem) -> Any:
    """Build an oracle for the data, exact enough for a plan that draws.

    Raises:
        OracleError: a problem that the oracle refuses; ``check_takes`` finds this before data.
    """
    if plan.precision is None:
        return oracle.prepare(problem, plan.question)
    return oracle.prepare(problem, plan.question, plan.precision)


def oracle_for(oracle: str | DiscreteOracle | GibbsOracle, plan: LatticeMechanism[Any]) -> Any:
    """Return an oracle of the kind that a plan needs, given by name or as an object, without access to data.

    Raises:
        OracleError: unknown name, missing solver, an oracle of the other kind or without proofs.
    """
    if isinstance(plan.question, Law):
        drawing = gibbs_oracle(oracle) if isinstance(oracle, str) else oracle
        if not isinstance(drawing, GibbsOracle):
            raise UnknownOracleError(f"{plan.name} needs a GibbsOracle, which draws, got {told(oracle)}")
        return drawing
    minimizing = minimizer(oracle) if isinstance(oracle, str) else oracle
    if not isinstance(minimizing, DiscreteOracle):
        raise UnknownOracleError(f"{plan.name} needs a DiscreteOracle, which minimises, got {told(oracle)}")
    if not minimizing.certifies:
        raise UnknownOracleError(
            f"{plan.name} releases a minimiser, and oracle {minimizing.name!r} proves nothing: its points "
            f"may miss the minimum, and the privacy proof with it. To do: use an oracle that proves ('auto')"
        )
    return minimizing


def check_takes(oracle: Any, name: str, facts: ProblemFacts, remedy: str) -> None:
    """Refuse an oracle that may refuse some table of these facts, before data.

    Args:
        oracle: the oracle.
        name: the name of the mechanism.
        facts: the public worst case.
        remedy: what to do besides naming another oracle.

    Raises:
        UnsupportedProblemError: naming the oracles that take every table.
    """
    if not (reasons := oracle.all_planned_refusals(facts)):
        return
    known: Mapping[str, Callable[[], Any]] = samplers() if isinstance(facts.question, Law) else minimizers()
    one_of = ", ".join(other for other, make in known.items() if _takes(make, facts))
    constrained = "under constraints on points " if facts.lattice.constrained else ""
    others = f"one of {one_of} (oracle=, --oracle), or " if one_of else ""
    raise UnsupportedProblemError(
        f"oracle {oracle.name!r} cannot answer {name} {constrained}for every declared table, of up to "
        f"{facts.rows:,} distinct records: {'; '.join(reasons)}. To do: {others}{remedy}"
    )


def _takes(make: Callable[[], Any], facts: ProblemFacts) -> bool:
    """Return whether an installed oracle is known to take every problem of these facts."""
    try:
        oracle = make()
    except OracleError:
        return False
    return getattr(oracle, "certifies", True) and not oracle.all_planned_refusals(facts)

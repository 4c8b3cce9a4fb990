"""Preparation of a plan's oracle for the data."""

from __future__ import annotations

from typing import Any

from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.oracles.draw.interface import GibbsOracle, Law
from privopt.oracles.errors import UnknownOracleError
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.select import gibbs_oracle, minimizer
from privopt.problems.arguments import told
from privopt.problems.discrete.problem import DiscreteProblem


def prepare_oracle(
    oracle: str | DiscreteOracle | GibbsOracle, plan: LatticeMechanism[Any], problem: DiscreteProblem
) -> Any:
    """Build an oracle of the kind that a plan needs for the data. It is given by name or as an object.

    Raises:
        PlanMismatchError: the plan was made for another problem.
        OracleError: unknown name, missing solver, an oracle of the other kind or without proofs, or a problem
            that the oracle refuses.
    """
    plan.check_problem(problem)
    return oracle_for(oracle, plan).prepare(problem, plan.question)


def oracle_for(oracle: str | DiscreteOracle | GibbsOracle, plan: LatticeMechanism[Any]) -> Any:
    """An oracle of the kind that a plan needs, given by name or as an object, without access to data.

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

"""Domain of the mechanisms that choose a card from a lattice, under public constraints on points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privopt.mechanisms.scorecards.facts import card_program, constrained_box
from privopt.mechanisms.scorecards.nearest import first_card
from privopt.oracles.draw.interface import Law
from privopt.oracles.errors import OracleError, UnsupportedProblemError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.programs.interface import ProgramOracle
from privopt.oracles.select import minimizers, samplers
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import Constraint, UsedColumns
from privopt.problems.programs.lattice import ConstrainedLattice
from privopt.problems.tables.point_columns import point_columns, rules_of
from privopt.problems.tables.schema import Schema

# Boxes of at most this many points are searched for a card within a norm bound.
_SEARCHED = 2_000_000


def all_constraints(
    schema: Schema, constraints: tuple[Constraint, ...], max_columns: int | None
) -> tuple[Constraint, ...]:
    """Return all constraints together: those given, those of the columns, and the limit on columns."""
    rules = rules_of(schema.columns, schema.rules)
    return constraints + rules + (() if max_columns is None else (UsedColumns((), 0, max_columns),))


def constrained_domain(
    lattice: IntegerLattice, schema: Schema, constraints: tuple[Constraint, ...], solver: ProgramOracle
) -> IntegerLattice:
    """Return the cards of a lattice that satisfy constraints, from public facts alone.

    Bounds of points that constraints declare replace those of the lattice, as for "seeded".

    Raises:
        InfeasibleDomainError: no card satisfies the constraints; the message has those in conflict.
        InvalidInputError: no card was found.
    """
    if not constraints:
        return lattice
    box = constrained_box(lattice, schema, constraints)
    box = lattice.with_bounds(box.low, box.high)
    # Without shifts, the card that is nearest to 0 has the smallest points: one within a norm bound, if any.
    program = replace(card_program(box, schema, constraints), shifted=False)
    card = first_card(program, solver)
    witness = np.concatenate([card, np.clip(0, box.low[len(card) :], box.high[len(card) :])])
    columns = point_columns(schema.columns)
    if box.contains(witness) or box.box_size <= _SEARCHED:
        found = witness if box.contains(witness) else None
        return ConstrainedLattice(box, columns, constraints, found)
    raise InvalidInputError(
        f"no card with |w|^2 <= {box.squared_radius} was found that satisfies the constraints. To do: a "
        "lattice without a radius, or a wider one"
    )


def check_takes(oracle: Any, name: str, facts: ProblemFacts) -> None:
    """Refuse an oracle that may refuse some table of these facts, before data.

    Args:
        oracle: the oracle.
        name: the name of the mechanism.
        facts: the public worst case.

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
        f"{facts.rows:,} distinct records: {'; '.join(reasons)}. To do: {others}the mechanism 'seeded', a "
        "smaller lattice, or fewer or coarser columns"
    )


def _takes(make: Callable[[], Any], facts: ProblemFacts) -> bool:
    """Whether an installed oracle that mechanisms accept is known to take every problem of these facts."""
    try:
        oracle = make()
    except OracleError:
        return False
    return getattr(oracle, "certifies", True) and not oracle.all_planned_refusals(facts)

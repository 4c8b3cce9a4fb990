"""The set of cards from which lattice mechanisms choose, under public constraints on points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privopt.mechanisms.scorecards.facts import card_program, constrained_box
from privopt.mechanisms.scorecards.nearest import first_card
from privopt.oracles.programs.interface import ProgramOracle
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
    """Return the cards of a lattice that satisfy constraints; only public facts are used.

    Bounds of points that constraints declare replace the bounds of the lattice, as for "seeded".

    Raises:
        InfeasibleDomainError: no card satisfies the constraints; the message lists those in conflict.
        InvalidInputError: no card was found.
    """
    if not constraints:
        return lattice
    box = constrained_box(lattice, schema, constraints)
    # Without shifts, the card that is nearest to 0 has small points, so it is likely to meet a norm bound.
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

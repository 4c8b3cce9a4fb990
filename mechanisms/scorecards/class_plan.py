"""Plans of scorecards of several classes: what they take, and what they refuse."""

from __future__ import annotations

from typing import Any

from privopt.mechanisms.scorecards.card_plan import CardPlan, LatticeLike, check_scores, seeded_lattice
from privopt.mechanisms.scorecards.class_points import ClassPoints
from privopt.mechanisms.scorecards.effort import seeded_seconds
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.point_constraints import point_constraints
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.lattice import ConstrainedLattice
from privopt.problems.tables.schema import Schema

_REASON = "one release has the model of all classes, with the noise of two; rounding it costs nothing"


def plan_class_card(
    mechanism: str | type[Any],
    schema: Schema,
    n_records: int,
    classes: int,
    *,
    epsilon: float,
    delta: float,
    lattice: LatticeLike = None,
    **others: Any,
) -> CardPlan:
    """Plan a scorecard of several classes from public facts.

    Args:
        mechanism: "auto" or "seeded".
        schema: the features; with an intercept, and without constraints on points.
        n_records: n.
        classes: the number of classes.
        epsilon, delta: the target.
        lattice: bounds of the points, as for "seeded" of two classes.
        others: arguments of cards of two classes by name, which must have their defaults: None, 0 or "auto".

    Raises:
        InvalidInputError: an argument that only cards of two classes take.
        PrivacyParameterError: epsilon or delta out of range, or a lattice with a norm bound.
    """
    given = [name for name, value in others.items() if value and value not in ("auto", "sound")]
    if mechanism not in ("auto", ClassPoints.name):
        raise InvalidInputError(
            f"Only binary classification is supported. The mechanism of cards of {classes} classes is "
            f"{ClassPoints.name!r}: leave mechanism (--mechanism) out"
        )
    if schema.with_constraints(None) or point_constraints(schema):
        given.append("constraints of the schema")
    if isinstance(lattice, ConstrainedLattice):
        given.append("constraints of the lattice")
    if given:
        raise InvalidInputError(
            f"{', '.join(given)}: scorecards of {classes} classes do not take it; leave it out, or fit one "
            "class against all others, as two labels"
        )
    facts = CardFacts.of(schema, n_records, seeded_lattice(lattice, schema))
    check_scores(schema, facts.lattice)
    made = ClassPoints.plan(facts, classes, epsilon=epsilon, delta=delta)
    return CardPlan(made, made.spend, "auto", _REASON, seeded_seconds(schema, facts))

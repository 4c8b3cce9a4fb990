"""Mechanisms for scorecards by name, and the bridge from their plans to a table and an oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.registry import MECHANISMS, choose_mechanism, prepare_oracle
from privopt.mechanisms.errors import PrivacyParameterError, UnknownMechanismError
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.seeded import SeededScorecard, points_lattice
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.errors import UnknownOracleError
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.select import gibbs_oracle
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.schema import Schema

Plan = LatticeMechanism[Any] | SeededScorecard
LatticeLike = IntegerLattice | tuple[int, int] | tuple[int, int, float] | None


@dataclass(frozen=True)
class CardPlan:
    """The plan of a scorecard, made without data, and why it is this one."""

    plan: Plan
    reason: str

    def prepare(self, oracle: str | DiscreteOracle | GibbsOracle, table: ZeroOneHalfspace) -> Any:
        """What ``plan.release`` wants, for the data.

        Raises:
            PlanMismatchError: the plan was made for another table.
            OracleError: an oracle that does not exist, is of the other kind, or refuses the table.
        """
        if not isinstance(self.plan, SeededScorecard):
            return prepare_oracle(oracle, self.plan, table)
        drawing = gibbs_oracle(oracle) if isinstance(oracle, str) else oracle
        if not isinstance(drawing, GibbsOracle):
            raise UnknownOracleError(
                f"{self.plan.name} needs an oracle that draws, a GibbsOracle, got {oracle!r}"
            )
        return self.plan.prepare(table, drawing)


def card_mechanisms() -> tuple[str, ...]:
    """The names there are, those of one's own included."""
    return (*MECHANISMS, SeededScorecard.name)


def plan_card(
    name: str,
    schema: Schema,
    n_records: int,
    *,
    epsilon: float,
    delta: float,
    lattice: LatticeLike = None,
    calibration: str = "sound",
) -> CardPlan:
    """Plan a scorecard from public facts: a mechanism by name, or for "auto" the best supported one.

    Args:
        name: "auto" or one of ``card_mechanisms()``.
        schema: the features.
        n_records: n.
        epsilon, delta: the target; pure mechanisms ignore delta.
        lattice: an ``IntegerLattice``, (low, high), (low, high, radius), or None for the mechanism's own.
            For "seeded" (low, high) bounds all weights but the intercept's.
        calibration: "sound", or "printed" where there is one.

    Raises:
        UnknownMechanismError: listing the names there are.
        PrivacyParameterError: epsilon or delta out of range, or a combination that the mechanism refuses.
        InvalidInputError: a lattice that does not fit.
    """
    if name == SeededScorecard.name:
        if calibration != "sound":
            raise PrivacyParameterError(f"{name} has the calibration(s) sound; got {calibration!r}")
        facts = CardFacts.of(schema, n_records, _points(lattice, schema))
        return CardPlan(SeededScorecard.plan(facts, epsilon=epsilon, delta=delta), "it was asked for")
    if name != "auto" and name not in MECHANISMS:
        known = card_mechanisms()
        raise UnknownMechanismError(
            f"unknown mechanism {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    kind, reason = choose_mechanism(name)
    weights = as_lattice(lattice, kind, schema.n_features)
    plan = kind.plan(ZeroOneHalfspace, weights, epsilon=epsilon, delta=delta, calibration=calibration)
    return CardPlan(plan, reason)


def as_lattice(
    given: LatticeLike, kind: type[LatticeMechanism[Any]] | None, dimension: int
) -> IntegerLattice:
    """A lattice as users give it."""
    if given is None and kind is not None:
        return kind.default_lattice(dimension)
    if isinstance(given, IntegerLattice):
        if given.dimension != dimension:
            raise InvalidInputError(
                f"the lattice has dimension {given.dimension}, the schema {dimension} features"
            )
        return given
    low, high, *radius = given  # type: ignore[misc]
    return IntegerLattice(low, high, dimension=dimension, radius=radius[0] if radius else None)


def _points(given: LatticeLike, schema: Schema) -> IntegerLattice:
    """The weights that "seeded" rounds to."""
    if given is None:
        return SeededScorecard.default_lattice(schema.n_features, schema.intercept, len(schema.columns))
    plain = as_lattice(given, None, schema.n_features)
    if isinstance(given, IntegerLattice) or len(given) > 2:
        return plain
    low, high = int(plain.low[0]), int(plain.high[0])
    return points_lattice(low, high, schema.n_features, schema.intercept, len(schema.columns))

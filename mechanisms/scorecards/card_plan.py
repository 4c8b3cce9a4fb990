"""Plans of scorecards, by the name of a mechanism or by automatic choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.mechanisms.convex.screened_columns import ScreenedColumns
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.mechanism import LatticeMechanism, check_calibration
from privopt.mechanisms.discrete.preparation import check_takes, oracle_for, prepare_oracle
from privopt.mechanisms.errors import PlanMismatchError, UnknownMechanismError
from privopt.mechanisms.privacy.parameters import check_epsilon, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import MECHANISMS, SCORECARD_MECHANISMS, Family
from privopt.mechanisms.scorecards.class_points import ClassPoints
from privopt.mechanisms.scorecards.domain import (
    all_constraints,
    constrained_domain,
)
from privopt.mechanisms.scorecards.effort import (
    draw_seconds,
    draw_work,
    largest_score,
    problem_facts,
    seeded_seconds,
)
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.point_constraints import check_max_columns, point_constraints
from privopt.mechanisms.scorecards.seeded import SeededScorecard, points_lattice
from privopt.oracles.draw.interface import GibbsOracle, Law
from privopt.oracles.errors import UnknownOracleError
from privopt.oracles.limits import MOST_WORK
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.programs.interface import ProgramOracle
from privopt.oracles.select import gibbs_oracle, program_oracle
from privopt.problems.arguments import check_type, told
from privopt.problems.arrays import MOST_RECORDS
from privopt.problems.convex.coded import CodedRows
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.halfspace import SCORE_LIMIT, ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import PlanInWords
from privopt.problems.programs.constraints import Constraint, bounds_of
from privopt.problems.programs.lattice import ConstrainedLattice
from privopt.problems.tables.point_columns import point_columns, rules_of
from privopt.problems.tables.schema import Schema

Plan = LatticeMechanism[Any] | SeededScorecard | ClassPoints
LatticeLike = IntegerLattice | tuple[int, int] | tuple[int, int, float] | None


Oracle = str | DiscreteOracle | GibbsOracle

# Largest n * epsilon per feature at which "auto" draws exactly over a lattice that the user declared. Without
# a declared lattice "auto" never draws exactly: on synthetic tables of 300 to 3,000 records, exact draws over
# {-1, 0, 1} had an AUC of .58, and "seeded" had .61.
_FEW = 150

_WHY_SEEDED = (
    "a rounded linear model takes any number of features, its running time is known beforehand, and it was "
    "near the best linear models and ahead of them where the budget is small"
)


@dataclass(frozen=True)
class CardPlan(PlanInWords):
    """The plan of a scorecard, made without data.

    Attributes:
        plan: the plan of the mechanism: its noise and its spend.
        spend: the privacy spend of the whole fit.
        oracle: the oracle that the mechanism calls.
        reason: why this mechanism was chosen.
        seconds: estimated seconds of a release on one idle core; None if they depend on the records.
        constraints: the constraints on points that every card of this plan satisfies.
        intercept: whether the last weight is that of the intercept.
    """

    title: ClassVar[str] = "Plan of a scorecard"
    plan: Plan
    spend: PrivacySpend
    oracle: Oracle
    reason: str
    seconds: float | None
    constraints: tuple[Constraint, ...] = ()
    intercept: bool = True

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        noise = ", ".join(f"{key} = {value:.6g}" for key, value in self.plan.noise.items())
        if self.seconds is None:
            time = (
                "not bounded by public facts: a search, whose time depends on the records. Give a time "
                "limit; a search that it stops releases nothing, and what a ledger booked stays spent"
            )
        else:
            seconds = max(self.seconds, 0.1)
            time = f"about {seconds:.1g} s on one idle core, once the table is read; it is sure to end"
        return {
            "mechanism": f"{self.plan.name} ({self.reason})",
            "spend": str(self.spend),
            **({"in detail": self.spend.note} if self.spend.unit == "person" else {}),
            "weights": _weights(self.plan.lattice, self.intercept),
            **({"constraints": "; ".join(map(str, self.constraints))} if self.constraints else {}),
            "noise": noise,
            "time": time,
        }

    def noise_to_signal(self, n_records: int) -> NoiseToSignal | None:
        """Return the predicted sizes of noise and signal for n records; None if there is no prediction."""
        return self.plan.noise_to_signal(n_records)

    def prepare(self, table: ZeroOneHalfspace, coded: CodedRows | None = None) -> Any:
        """Return the data argument of ``plan.release``; ``coded`` as for ``SeededScorecard.prepare``.

        Raises:
            PlanMismatchError: the plan was made for another table.
            OracleError: the oracle does not exist, minimises where it should draw (or the reverse), or
                refuses the table.
        """
        if isinstance(self.plan, ClassPoints):
            raise PlanMismatchError("points of several classes are released without an oracle")
        if not isinstance(self.plan, SeededScorecard):
            return prepare_oracle(self.oracle, self.plan, table)
        return self.plan.prepare(table, self.check_oracle(), coded)

    def check_oracle(self) -> Any:
        """Return the oracle that the plan calls, without reading a table.

        Raises:
            OracleError: the oracle does not exist, or minimises where it should draw, or the reverse.
        """
        if isinstance(self.plan, ClassPoints):
            raise UnknownOracleError(f"{self.plan.name} of several classes calls no oracle")
        if not isinstance(self.plan, SeededScorecard):
            return oracle_for(self.oracle, self.plan)
        drawing = gibbs_oracle(self.oracle) if isinstance(self.oracle, str) else self.oracle
        if not isinstance(drawing, GibbsOracle):
            raise UnknownOracleError(
                f"{self.plan.name} needs a GibbsOracle, which draws, got {told(self.oracle)}"
            )
        return drawing


def plan_card(
    mechanism: str | type[Any],
    schema: Schema,
    n_records: int,
    *,
    epsilon: float,
    delta: float,
    lattice: LatticeLike = None,
    calibration: str = "sound",
    oracle: Oracle = "auto",
    costs: Costs = EQUAL_COSTS,
    max_columns: int | None = None,
    constraints: Sequence[str | Constraint] | None = None,
    card_solver: str | ProgramOracle = "auto",
    max_work: float = MOST_WORK,
    max_weight: int | None = None,
    largest_costs: Costs | None = None,
) -> CardPlan:
    """Plan a scorecard from public facts.

    Args:
        mechanism: a name of ``SCORECARD_MECHANISMS``, a custom ``LatticeMechanism``, or "auto", which chooses
            one whose running time is bounded by the arguments here: the exponential mechanism with an
            explicit oracle, or with a declared lattice if exact draws are quick and a linear model would be
            mostly noise; otherwise "seeded".
        schema: the features.
        n_records: n.
        epsilon, delta: the target; pure mechanisms ignore delta.
        lattice: an ``IntegerLattice``, (low, high), (low, high, radius), or None for the mechanism's default.
            For "seeded" (low, high) bounds all weights but the intercept's.
        calibration: "sound", or "printed" where there is one.
        oracle: "auto", a name, or a custom oracle.
        costs: cost of either kind of error; the noise is proportional to the larger one.
        max_columns: maximal number of columns with points, as the constraint "at most k columns".
        constraints: public constraints on points, besides those of the schema. "auto" then chooses "seeded";
            exponential, permute-and-flip, rspm and opdisc choose among the cards that satisfy them.
        card_solver: "auto", a name, or a custom solver of the nearest cards under constraints. Mechanisms
            other than "seeded" only use it to find out whether any card satisfies the constraints.
        max_work: largest number of steps of an exact draw that "auto" accepts; about 4e8 steps take a second.
        max_weight: bound on the weights of records; None: records have no weights.
        largest_costs: the largest possible costs, if ``costs`` are released only later; "auto" decides by
            them. None: it decides by ``costs``.

    Raises:
        UnknownMechanismError: there is no such mechanism; the message lists the names.
        PrivacyParameterError: epsilon or delta out of range, or a combination that the mechanism refuses.
        InvalidInputError: a lattice that does not fit, or whose norm bound leaves "auto" no mechanism of
            bounded running time; or constraints on points with a mechanism that takes none.
        InfeasibleDomainError: no card satisfies the constraints.
        OracleError: constraints on points with an oracle that takes none.
    """
    most = check_max_columns(max_columns)
    _check_total_weight(n_records, costs, max_weight)
    check_type(mechanism, str | type, "a mechanism is named by text")
    name = mechanism if isinstance(mechanism, str) else getattr(mechanism, "name", mechanism.__name__)
    required = schema.with_constraints(constraints)
    if isinstance(lattice, ConstrainedLattice):
        required = schema.with_constraints([*required, *lattice.constraints])
    reason, open_choice = "it was asked for", name == "auto" and isinstance(oracle, str) and oracle == "auto"
    if open_choice and (asked := _constrained_reason(schema, most, required)):
        name, reason = SeededScorecard.name, asked
    elif name == "auto":
        name, oracle, reason = _fitting(
            schema, n_records, epsilon, lattice, oracle, max_work, largest_costs or costs, max_weight
        )
    kind = SCORECARD_MECHANISMS.named(name if isinstance(mechanism, str) else mechanism)
    if kind.family is Family.CARD:
        _check_seeded(kind, name, calibration)
        facts = CardFacts.of(
            schema, n_records, seeded_lattice(lattice, schema, required), costs, most, required, max_weight
        )
        check_scores(schema, facts.lattice)
        solver = None if facts.program is None else solver_of(card_solver)
        seeded = kind.plan(facts, epsilon=epsilon, delta=delta, solver=solver)
        planned = _seeded_plan(seeded, schema, oracle, reason, required)
    else:
        inside = all_constraints(schema, required, most)
        if inside and not kind.takes_constraints:
            raise InvalidInputError(_unconstrained(name, inside))
        if max_weight is not None and not issubclass(kind, ExponentialMechanism):
            raise InvalidInputError(_unweighted(name))
        weights = _domain(kind, schema, lattice, inside, card_solver)
        largest = costs.largest * (max_weight or 1)
        bound = {} if largest == 1 else {"loss_bound": largest}
        plan = kind.plan(
            ZeroOneHalfspace, weights, epsilon=epsilon, delta=delta, calibration=calibration, **bound
        )
        bounded = issubclass(kind, ExponentialMechanism) and draw_work(schema, n_records, weights) <= max_work
        seconds = draw_seconds(schema, n_records, weights) if bounded else None
        planned = CardPlan(plan, plan.spend, oracle, reason, seconds, required, schema.intercept)
    return _answered(planned, schema, n_records, max_weight)


def _check_total_weight(n_records: int, costs: Costs, max_weight: int | None) -> None:
    """Refuse weights with which the total cost of all records could leave the range of the oracles."""
    if max_weight is not None and n_records * max_weight * costs.largest >= MOST_RECORDS:
        raise InvalidInputError(
            f"max_weight = {max_weight:,}, times {n_records:,} records and the larger cost, {costs.largest}, "
            "must be below 2^40. To do: weights in larger units"
        )


def _check_seeded(kind: type[Any], name: str, calibration: str) -> None:
    """Refuse any calibration but "sound", and mechanisms of the family CARD that do not subclass "seeded"."""
    if not issubclass(kind, SeededScorecard):
        raise UnknownMechanismError(
            f"{kind.__name__} is not a mechanism for scorecards: the family CARD is for subclasses of "
            "SeededScorecard. To do: declare the family LATTICE if it chooses a point of a lattice"
        )
    check_calibration(calibration, name, ("sound",))


def _domain(
    kind: type[LatticeMechanism[Any]],
    schema: Schema,
    lattice: LatticeLike,
    inside: tuple[Constraint, ...],
    card_solver: str | ProgramOracle,
) -> IntegerLattice:
    """Return the cards that a lattice mechanism chooses from: those that satisfy ``inside``."""
    weights = as_lattice(lattice, kind, schema.n_features)
    if inside:
        weights = constrained_domain(weights, schema, inside, solver_of(card_solver))
    check_scores(schema, weights)
    return weights


def _constrained_reason(schema: Schema, most: int | None, required: Sequence[Constraint]) -> str:
    """Return the reason why constraints on cards require "seeded"; empty without constraints."""
    if most is not None:
        return f"it gives points to at most {most} columns, as asked"
    if point_constraints(schema):
        return "it satisfies the schema's constraints on the points of columns"
    return "its cards satisfy the constraints on points" if required else ""


def _seeded_plan(
    seeded: SeededScorecard, schema: Schema, oracle: Oracle, reason: str, required: tuple[Constraint, ...]
) -> CardPlan:
    """Return the plan of a seeded scorecard with its reason and its time."""
    if seeded.means is not None:
        reason += "; as the budget is small, means of the numbers are released first and set their units"
    fitted = None
    if isinstance(seeded.seed, ScreenedColumns):
        reason += f"; {seeded.seed.selection.count} columns are drawn first, and fitted alone"
        fitted = seeded.seed.most_features
    seconds = seeded_seconds(schema, seeded.facts, fitted)
    seconds += 0.0 if seeded.nearest is None else seeded.nearest.seconds
    return CardPlan(seeded, seeded.spend, oracle, reason, seconds, required, schema.intercept)


def _answered(planned: CardPlan, schema: Schema, n_records: int, max_weight: int | None) -> CardPlan:
    """Return the plan, if its oracle takes every table of n records that the schema allows.

    Raises:
        OracleError: the oracle may refuse such a table, or does not fit the plan.
    """
    plan = planned.plan
    assert not isinstance(plan, ClassPoints)  # which calls no oracle
    choice = plan.choice if isinstance(plan, SeededScorecard) else plan
    lattice, bound, kind = choice.lattice, choice.loss_bound, choice.problem_type
    weighted = max_weight is not None
    facts = problem_facts(kind, choice.question, lattice, schema, n_records, bound, weighted=weighted)
    facts = replace(facts, precision=choice.precision)
    remedy = "the mechanism 'seeded', a smaller lattice, or fewer or coarser columns"
    check_takes(planned.check_oracle(), plan.name, facts, remedy)
    return planned


def _fitting(
    schema: Schema,
    n: int,
    epsilon: float,
    lattice: LatticeLike,
    oracle: Oracle,
    max_work: float,
    costs: Costs,
    max_weight: int | None,
) -> tuple[str, Oracle, str]:
    """Return a mechanism of bounded running time, its oracle, and the reason for the choice."""
    check_positive(max_work, "max_work (--max-work)")
    if not isinstance(oracle, str) or oracle != "auto":
        return ExponentialMechanism.name, oracle, "it is the mechanism that uses the oracle that was named"
    weights = as_lattice(lattice, ExponentialMechanism, schema.n_features)
    bound, weighted = costs.largest * (max_weight or 1), max_weight is not None
    facts = problem_facts(ZeroOneHalfspace, Law.GIBBS, weights, schema, n, bound, weighted=weighted)
    exact = ExponentialMechanism.plan(ZeroOneHalfspace, weights, epsilon=epsilon, loss_bound=bound)
    facts = replace(facts, precision=exact.precision)
    taken = not gibbs_oracle("bounded").all_planned_refusals(facts)
    work = draw_work(schema, n, weights) if taken else math.inf
    ball = weights.squared_radius is not None
    few = lattice is not None and n * check_epsilon(epsilon) <= _FEW * schema.n_features
    if work <= max_work and (ball or few):
        return ExponentialMechanism.name, "bounded", _why_exact(weights, work, n, schema)
    if ball:
        raise InvalidInputError(
            f"exact draws over {weights} {_lasting(work)}, and the mechanism that is sure to end takes no "
            "norm bound. To do: leave the radius out, raise max_work (--max-work), or name exponential, rspm "
            "or opdisc and wait"
        )
    long = "" if work <= max_work else f"; an exact draw over {weights} {_lasting(work)}"
    return SeededScorecard.name, oracle, f"{_WHY_SEEDED}{long}"


def _why_exact(weights: IntegerLattice, work: float, n: int, schema: Schema) -> str:
    """Return why a card is drawn exactly."""
    return (
        f"an exact draw over {weights} is a sum of at most {work:.2g} terms, whatever the records say; it "
        f"needs no delta, and {n} records at this epsilon are few for a linear model of {schema.n_features} "
        "features"
    )


def solver_of(given: str | ProgramOracle) -> ProgramOracle:
    """Return the solver of nearest cards."""
    check_type(given, str | ProgramOracle, "card_solver must be a name or a ProgramOracle")
    return program_oracle(given) if isinstance(given, str) else given


def _unconstrained(name: str, constraints: tuple[Constraint, ...]) -> str:
    """Return the text by which a mechanism refuses constraints."""
    known = [SeededScorecard.name, *(n for n in MECHANISMS if MECHANISMS[n].takes_constraints)]
    return (
        f"{name!r} takes no constraints on points ('{constraints[0]}'). To do: one of {', '.join(known)} "
        "(--mechanism), or no constraints"
    )


def _unweighted(name: str) -> str:
    """Return the message of a mechanism that refuses weights, as its proof assumes there are none."""
    return (
        f"{name!r} takes no weights of records. To do: seeded, exponential or permute-and-flip "
        "(--mechanism), or no weights"
    )


def _lasting(work: float) -> str:
    """Describe the time of an exact draw in words."""
    if work == math.inf:
        return "has no bound on its steps that is known before data"
    return f"may take {work:.2g} steps"


def as_lattice(
    given: LatticeLike, kind: type[LatticeMechanism[Any]] | None, dimension: int
) -> IntegerLattice:
    """Convert a lattice argument to an ``IntegerLattice``."""
    if given is None and kind is not None:
        return kind.default_lattice(dimension)
    if isinstance(given, IntegerLattice):
        if given.dimension != dimension:
            raise InvalidInputError(
                f"the lattice has dimension {given.dimension}, the schema {dimension} features"
            )
        return given
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise InvalidInputError(
            f"lattice must be an IntegerLattice, (low, high) or (low, high, radius), got {told(given)}"
        )
    low, high, *radius = given
    return IntegerLattice(low, high, dimension=dimension, radius=radius[0] if radius else None)


def check_scores(schema: Schema, weights: IntegerLattice) -> None:
    """Refuse a lattice over which the score of some record that the schema allows leaves 64 bits.

    Raises:
        InvalidInputError: with the remedy.
    """
    if largest_score(schema, weights) >= SCORE_LIMIT:
        largest = max(-int(weights.low.min()), int(weights.high.max()))
        raise InvalidInputError(
            f"scores could exceed 64-bit integers: points up to {largest} times a common denominator of "
            f"{schema.denominator}. To do: fewer points (--lattice), or coarser steps of numbers"
        )


def seeded_lattice(
    given: LatticeLike, schema: Schema, constraints: tuple[Constraint, ...] = ()
) -> IntegerLattice:
    """Return the lattice of weights that "seeded" rounds to.

    Raises:
        InvalidInputError: points that add up to more than 64 bits.
    """
    if given is None:
        return _with_room(SeededScorecard.default_lattice(schema), schema, constraints)
    plain = as_lattice(given, None, schema.n_features)
    if isinstance(given, IntegerLattice) or len(given) > 2:
        return plain
    low, high = int(plain.low[0]), int(plain.high[0])
    box = points_lattice(low, high, schema.n_features, schema.intercept, len(schema.columns))
    return _with_room(box, schema, constraints)


def _with_room(box: IntegerLattice, schema: Schema, constraints: tuple[Constraint, ...]) -> IntegerLattice:
    """Return the box with an intercept that can offset the points of any record, declared points included."""
    if not schema.intercept:
        return box
    ends = dict(enumerate(zip(box.low.tolist(), box.high.tolist(), strict=True)))
    declared = (*constraints, *rules_of(schema.columns, schema.rules))
    ends |= bounds_of(declared, point_columns(schema.columns))
    largest = [max(-low, high) for low, high in ends.values()]
    parts = [
        column.reach * max(largest[start:stop])
        for column, (start, stop) in zip(schema.columns, schema.spans, strict=True)
    ]
    most = max(largest[-1], math.ceil(sum(parts)))
    if most >= SCORE_LIMIT:
        raise InvalidInputError(
            f"points up to {max(largest[:-1])} add up to more than 64 bits. To do: fewer points (--lattice)"
        )
    return IntegerLattice(np.append(box.low[:-1], -most), np.append(box.high[:-1], most))


def _weights(lattice: IntegerLattice, intercept: bool) -> str:
    """Describe the bounds of the weights: by groups of features with equal bounds if there are at most three
    groups, else by the lattice.
    """
    pairs = list(zip(lattice.low.tolist(), lattice.high.tolist(), strict=True))
    kinds = Counter(pairs[:-1] if intercept else pairs)
    if len(set(pairs)) == 1 or len(kinds) > 3:
        return str(lattice)
    features = [f"{low} to {high} for each of {count} features" for (low, high), count in kinds.items()]
    last = [f"{pairs[-1][0]} to {pairs[-1][1]} for the intercept"] if intercept else []
    return ", ".join([*features, *last])

"""Scorecards for any number of features: a private linear model and a private choice among its roundings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.convex.column_statistics import ColumnStatistics
from privopt.mechanisms.convex.screened_columns import ScreenedColumns, drawn_columns
from privopt.mechanisms.convex.sufficient_statistics import MOST_FEATURES, SufficientStatistics
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.mechanism import Release, answering
from privopt.mechanisms.discrete.preparation import prepared_for
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import (
    beside_range_delta,
    bounded_range_to_zcdp,
    gaussian_delta,
    mu_beside_range,
    pure_to_gdp,
    zcdp_rho,
)
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_delta, check_epsilon
from privopt.mechanisms.privacy.reliance import relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.nearest import NearestCards
from privopt.mechanisms.scorecards.point_constraints import forced_columns
from privopt.mechanisms.scorecards.rounding import candidate_cards
from privopt.mechanisms.scorecards.units import Floats, NumberMeans, Units
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.limits import Limits, started, within
from privopt.oracles.programs.interface import ProgramOracle
from privopt.oracles.select import program_oracle
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import LogisticLoss, Loss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.discrete.candidates import CandidateCards
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

# The choice gets the share 40 B / (n epsilon) of epsilon, B the largest loss of a record, but at least .05
# and at most .1. On 60 synthetic tables at epsilon .1, .3 and 1, four times that share where n epsilon is
# small found no better intercepts (``rounding.intercepts``), and cost the model .0045, .0038 and .0015 AUC.
_CHOICE_SHARE, _LARGEST_SHARE, _DECISIVE = 0.05, 0.1, 40.0
# Gradient descent reads every entry of the table in every step. If it would read more entries than this in
# total (some seconds), the model is fitted by objective perturbation instead.
_MOST_READ = 1.5e9
# Largest n * mu per feature at which noisy moments were no worse on synthetic tables than any other model.
_LARGEST = 200
# Columns are drawn before the fit if the table has at least this many times ``max_columns``, the number of
# columns that may have points. On synthetic tables of 12 to 85 columns, where at least four columns and at
# most half of them mattered, cards of drawn columns had .015 more AUC than cards of the columns with the
# largest noisy weights. If the table had only three or four times ``max_columns``, drawing lost as often as
# it gained. Columns are also drawn if all their features together are too many for noisy moments.
_COLUMNS_PER_POINTS = 5
# Default bounds on the points of a level and of a number. The bound for numbers is larger, because a record
# gets only a fraction of a number's points: a small fraction if values lie near one end of the range.
_POINTS, _POINTS_OF_NUMBERS = 10, 400


@dataclass(frozen=True)
class SeededData:
    """The data argument of a release: a table, its features as floats, and the oracle that draws a card."""

    table: ZeroOneHalfspace
    features: Floats | CodedRows
    oracle: GibbsOracle


@dataclass(frozen=True)
class SeededScorecard:
    """A card drawn from roundings of a private linear model by the exponential mechanism on the 0/1 loss.

    Privacy: (epsilon, delta)-differential privacy. Neighbours differ in one replaced record; the number n of
    records and the facts are public. The list of candidate cards and thresholds is computed from the model's
    weights by post-processing. Given any list, the choice is an exponential mechanism on it. Composition
    depends on the model:

    - If the model is mu-GDP, delta is computed for a mu-GDP release followed by a choice of bounded range;
      the proof is in ``beside_range_delta``.
    - If columns are drawn, the model is rho-zCDP, and a choice of bounded range w is (w^2 / 8)-zCDP. The sum
      is converted to (epsilon, delta).
    - Otherwise the model is (epsilon_1, delta)-private, the choice is epsilon_2-private (pure), and basic
      composition applies, which holds for adaptive choices (Dwork and Roth 2014, theorem B.1).

    If the budget is small, the means of the numeric columns are released first, mu_0-GDP. The means determine
    the units of these columns in the model. If the model is mu_1-GDP for every choice of units, means and
    model together are sqrt(mu_0^2 + mu_1^2)-GDP; if it is rho-zCDP, they are (rho + mu_0^2 / 2)-zCDP.

    The running time of the choice depends only on the number of records, features and cards, and the linear
    model's solver stops after a public number of passes. The weights of the model are released with the card:
    composition covers both. If the model is one release of noisy moments, the noisy share of positive records
    and the posterior spread of the weights are released, too; both are post-processing of the moments.

    Records may have whole-number weights from 0 to W; the weight of a record is private, as a part of the
    record. The linear model divides record weights by W, so it needs no more noise than without weights. In
    the choice, the loss of a record is up to W times as large.

    An instance is a plan: noise and spend are fixed before data are read.

    Attributes:
        facts: public facts of the table.
        seed: the plan of the linear model.
        choice: the plan of the choice among its roundings.
        spend: the privacy claim.
        means: the plan of the means that determine the units of numbers, or None.
        nearest: the plan of the search for the nearest cards that satisfy the constraints of
            ``facts.program``. If None, there is no such program, and the weights are rounded.
    """

    family: ClassVar[Family] = Family.CARD
    name: ClassVar[str] = "seeded"

    facts: CardFacts
    seed: RiskMechanism
    choice: ExponentialMechanism
    spend: PrivacySpend
    means: NumberMeans | None = None
    nearest: NearestCards | None = None

    @classmethod
    def plan(
        cls,
        facts: CardFacts,
        *,
        epsilon: float,
        delta: float,
        loss: Loss | None = None,
        model: str = "auto",
        solver: ProgramOracle | None = None,
    ) -> Self:
        """Calibrate the noise to public facts.

        Args:
            facts: public facts of the table.
            epsilon, delta: the target.
            loss: loss of the linear model for labels -1 and +1; logistic by default.
            model: mechanism of the linear model, a name of ``RISK_MECHANISMS``, or "auto".
            solver: the solver that finds nearest cards, HiGHS by default. It is used only if
                ``facts.program`` is given.

        Raises:
            PrivacyParameterError: epsilon or delta out of range, or a lattice with a norm bound.
            InfeasibleDomainError: no card satisfies the constraints.
        """
        epsilon, delta = check_epsilon(epsilon), check_delta(delta)
        _check_box(facts.lattice)
        decisive = _DECISIVE * facts.loss_bound / (epsilon * facts.n_records)
        rest = (1 - min(max(_CHOICE_SHARE, decisive), _LARGEST_SHARE)) * epsilon
        left = math.nextafter(epsilon - rest, 0.0)  # the sum of both is at most epsilon
        nearest = None
        if facts.program is not None:
            nearest = NearestCards.plan(facts, solver or program_oracle("auto"))
        cards, ladders = _blank_cards(facts, nearest)
        domain = IntegerLattice([0, 0], [len(cards) - 1, ladders.shape[1] - 1])
        choice = ExponentialMechanism.plan(CandidateCards, domain, epsilon=left, loss_bound=facts.loss_bound)
        mu = mu_beside_range(epsilon, delta, choice.width)
        risk = _risk_facts(facts, loss or LogisticLoss())
        means: NumberMeans | None = None
        plain = loss is None and model == "auto" and not risk.weighted
        count = _selected_columns(facts, mu) if plain else 0
        if count and (beside := _zcdp_beside(epsilon, delta, choice.width)):
            mu = beside
            means = NumberMeans.plan(facts, mu)
            seed: RiskMechanism = ScreenedColumns.at_level(
                risk, facts.known, facts.spans, count, _rest(mu, means), delta, units=False
            )
        elif plain and _prefers_moments(facts, mu):
            means = NumberMeans.plan(facts, mu)
            seed = _moments(facts, risk, epsilon, _rest(mu, means))
        else:
            seed = _seed(model, risk, rest, delta, mu)
        claims = _claims(facts, seed, choice, means, (epsilon, delta))
        spend = PrivacySpend.approximate(epsilon, delta, cls.name, note=claims)
        return cls(facts, seed, choice, spend, means, nearest)

    @property
    def level(self) -> float | None:
        """Level of Gaussian differential privacy of the whole, rounded up; None if the model states none.

        The choice, of bounded range w, is mu-GDP for mu = ``pure_to_gdp(w / 2)`` (proved in ``CutPlan``). The
        level is for composition with other releases. Alone, ``spend`` is a slightly stronger claim than this
        level, because it is computed by ``beside_range_delta``.
        """
        own = self.seed.spend
        if own.level is None or own.notion != "gdp":
            return None
        first = 0.0 if self.means is None else self.means.level
        return math.hypot(own.level, first, pure_to_gdp(self.choice.width / 2)) * (1 + 2.0**-40)

    @staticmethod
    def default_lattice(schema: Schema) -> IntegerLattice:
        """Return bounds of +-10 points for a level, +-400 for a number, and their sum for the intercept."""
        most = np.full(schema.n_features, _POINTS)
        most[list(schema.numbers)] = _POINTS_OF_NUMBERS
        if schema.intercept:
            starts = np.array([start for start, _ in schema.spans], dtype=np.int64)
            most[-1] = np.sum(np.maximum.reduceat(most[:-1], starts))
        return IntegerLattice(-most, most)

    @property
    def lattice(self) -> IntegerLattice:
        return self.facts.lattice

    def noise_to_signal(self, n_records: int) -> NoiseToSignal:
        """Return the ratio of the linear model, as planned; the choice among its roundings adds little."""
        return self.seed.noise_to_signal

    @property
    def noised(self) -> str:
        """The noised quantities: of the linear model, and the choice."""
        return f"{self.seed.noised}; the choice among roundings"

    @property
    def noise(self) -> dict[str, float]:
        """Public noise parameters of the linear model and of the choice."""
        return {**self.seed.noise, **self.choice.noise}

    def prepare(
        self, table: ZeroOneHalfspace, oracle: GibbsOracle, coded: CodedRows | None = None
    ) -> SeededData:
        """Validate table and oracle against the plan, at no privacy cost; refusals happen here.

        Args:
            table: the records.
            oracle: the oracle that draws from a list of cards.
            coded: the features divided by their denominator, as codes of the cells of columns. Optional: the
                linear model is fitted faster with it.

        Raises:
            PlanMismatchError: the plan was made for other facts.
            UnsupportedProblemError: the oracle does not draw from so many cards or records.
        """
        facts = self.facts
        heaviest = table.max_weight if table.is_weighted else None
        seen = table.n_records, table.lattice, table.costs, heaviest
        if seen != (facts.n_records, facts.lattice, facts.costs, facts.max_weight):
            raise PlanMismatchError(
                f"this plan was made for {facts.n_records} records over {facts.lattice} at costs of "
                f"{facts.costs}, the table has {seen[0]} over {seen[1]} at {seen[2]}: plan again"
            )
        cards, ladders = _blank_cards(self.facts, self.nearest)
        alike = CandidateCards(table, cards, ladders)
        self.choice.check_problem(alike)
        prepared_for(oracle, self.choice, alike)
        return SeededData(table, table.X / self.facts.denominator if coded is None else coded, oracle)

    def release(
        self, data: SeededData, noise: NoiseSource | None = None, limits: Limits | None = None
    ) -> Release:
        """Fit the model, round it and choose a card. Costs ``spend``, also on failure.

        Raises:
            UnfinishedDrawError, CertificateError: a limit was reached, or the linear model's solver did not
                reach its tolerance; nothing is released.
        """
        source, clock = checked_source(noise), started(limits)
        table = data.table
        units = Units(self.facts) if self.means is None else self.means.release(table, source)
        model = self.seed.release(self._risk(data, units), source, limits=clock.rest)
        weights = model.point
        deviations = model.deviations
        if self.facts.middle:
            weights = units.weights(weights)
            deviations = None if deviations is None else units.deviations(deviations)
        if self.nearest is None:
            cards, ladders = candidate_cards(weights, self.facts)
        else:
            cards, ladders = self.nearest.cards(weights, clock)
        domain = CandidateCards(table, cards, ladders)
        oracle = within(clock, lambda: prepared_for(data.oracle, self.choice, domain))
        chosen = self.choice.release(oracle, source, clock.rest)
        spend = relying_on(spent(self, source), self, answering(data.oracle))
        return Release(
            domain.card(chosen.point),
            spend,
            self.noise,
            oracle.name,
            share=model.share,
            weights=np.array(weights),
            deviations=deviations,
        )

    def _risk(self, data: SeededData, units: Units) -> EmpiricalRisk:
        """Return the risk that the linear model minimises, with features in their units."""
        table, facts, given = data.table, self.seed.facts, data.features
        features = given
        if self.facts.middle:
            features = given.mapped(units.features) if isinstance(given, CodedRows) else units.features(given)
        return EmpiricalRisk(
            features,
            table.y,
            facts.loss,
            row_norm=facts.row_norm,
            norm=facts.norm,
            constant=facts.constant,
            counts=None if table.is_weighted else table.counts,
            weights=table.counts / table.max_weight if table.is_weighted else None,
        )


def _blank_cards(facts: CardFacts, nearest: NearestCards | None) -> tuple[IntArray, IntArray]:
    """Return cards and intercepts of the shapes that a release has, which are public."""
    if nearest is not None:
        return nearest.blank()
    return candidate_cards(np.zeros(facts.lattice.dimension), facts)


def _claims(
    facts: CardFacts,
    seed: RiskMechanism,
    choice: ExponentialMechanism,
    means: NumberMeans | None,
    target: tuple[float, float],
) -> str:
    """Describe the claims of the parts.

    Raises:
        PrivacyParameterError: the calibrated parts do not meet the target, (epsilon, delta).
    """
    spend, drawn = seed.spend, isinstance(seed, ScreenedColumns)
    if spend.level is None or not (drawn or spend.notion == "gdp"):
        left = choice.spend.epsilon
        return f"a model at epsilon = {spend.epsilon:.4g} ({spend.mechanism}), its rounding at {left:.4g}"
    first = 0.0 if means is None else means.level
    if drawn:
        kept = _keeps_zcdp(spend.level + first**2 / 2, choice.width, target)
        model = f"a model of drawn columns at {spend.level:.4g}-zCDP"
    else:
        kept = _keeps_gdp(math.hypot(spend.level, first), choice.width, target)
        model = f"a model at {spend.level:.4g}-GDP"
    if not kept:
        raise PrivacyParameterError("the calibrated model does not meet its own target: report this")
    claims = f"{model} ({spend.mechanism}), its rounding of bounded range {choice.width:.4g}"
    return claims if means is None else f"means of {len(facts.lines)} numbers at {first:.4g}-GDP, {claims}"


def _keeps_gdp(mu: float, width: float, target: tuple[float, float]) -> bool:
    """Return whether mu-GDP and a choice of bounded range ``width`` keep (epsilon, delta) together."""
    epsilon, delta = target
    return beside_range_delta(mu * (1 + 1e-12), width, epsilon) <= delta


def _keeps_zcdp(rho: float, width: float, target: tuple[float, float]) -> bool:
    """Return whether rho-zCDP and a choice of bounded range ``width`` keep (epsilon, delta) together."""
    return (rho + bounded_range_to_zcdp(width)) * (1 + 1e-12) <= zcdp_rho(*target)


def _zcdp_beside(epsilon: float, delta: float, width: float) -> float:
    """Return the largest mu such that (mu^2 / 2)-zCDP and a choice of bounded range ``width`` keep a target.

    It is 0 if the choice needs more than half of the rho that the target allows. A tiny delta allows little.
    """
    rho, choice = zcdp_rho(epsilon, delta) * (1 - 1e-9), bounded_range_to_zcdp(width)
    return math.sqrt(2 * (rho - choice)) if 2 * choice <= rho else 0.0


def _selected_columns(facts: CardFacts, mu: float) -> int:
    """Return how many columns to draw before the fit, from public facts; 0: all are fitted."""
    if facts.program is not None or not facts.middle or forced_columns(facts.lattice, facts.spans):
        return 0
    if facts.lattice.dimension > MOST_FEATURES:
        return drawn_columns(facts.spans, facts.n_records, mu, facts.max_columns)
    few = facts.max_columns or len(facts.spans)
    return few if few * _COLUMNS_PER_POINTS <= len(facts.spans) and _prefers_moments(facts, mu) else 0


def _rest(mu: float, means: NumberMeans | None) -> float:
    """Return the level that the means leave to the model."""
    return mu if means is None else math.sqrt((mu - means.level) * (mu + means.level)) * (1 - 1e-12)


def _prefers_moments(facts: CardFacts, mu: float) -> bool:
    """Decide from public facts whether noisy moments, used column by column, are the preferred model."""
    dimension = facts.lattice.dimension
    small = facts.n_records * mu <= _LARGEST * dimension
    return bool(facts.middle) and dimension <= MOST_FEATURES and small


def _moments(facts: CardFacts, risk: RiskFacts, epsilon: float, mu: float) -> SufficientStatistics:
    """Plan one mu-GDP release of moments that is used column by column."""
    plan = SufficientStatistics.plan(risk, epsilon=epsilon, delta=_delta_of(mu, epsilon))
    return ColumnStatistics.of(plan, facts.known, units=False)


def _check_box(lattice: IntegerLattice) -> None:
    if lattice.squared_radius is not None:
        raise PrivacyParameterError(
            f"seeded rounds to a box of weights, not {lattice}. To do: leave the radius out, or name "
            "another mechanism: exponential, rspm or opdisc (--mechanism)"
        )


def _risk_facts(facts: CardFacts, loss: Loss) -> RiskFacts:
    """Return the public facts of the linear model's risk."""
    return RiskFacts(
        facts.n_records,
        facts.lattice.dimension,
        loss,
        facts.row_norm,
        "l2",
        constant=1.0 if facts.intercept and facts.row_norm >= 1 else 0.0,
        weighted=facts.max_weight is not None,
    )


def _seed(model: str, risk: RiskFacts, epsilon: float, delta: float, mu: float) -> RiskMechanism:
    """Plan the linear model: mu-GDP if its mechanism states GDP, otherwise (epsilon, delta)-private."""
    choice = choose_risk_mechanism(model, risk, mu=mu)
    seed = choice.plan(risk, epsilon=epsilon, delta=delta, steps=None)
    read = seed.schedule.get("steps", 0) * risk.n_records * risk.dimension
    if model == "auto" and seed.name == "dp-gd" and read > _MOST_READ:
        return _seed("objective-perturbation", risk, epsilon, delta, mu)
    if seed.spend.notion == "gdp":
        return choice.plan(risk, epsilon=epsilon, delta=_delta_of(mu, epsilon), steps=None)
    return seed


def _delta_of(mu: float, epsilon: float) -> float:
    """Return delta such that mu-GDP gives (epsilon, delta), with mu lowered slightly against rounding."""
    return gaussian_delta(mu * (1 - 1e-9), epsilon)


def points_lattice(low: int, high: int, dimension: int, intercept: bool, columns: int) -> IntegerLattice:
    """Return the box [low, high] per feature, and for the intercept the sum of the bounds of all columns.

    Raises:
        InvalidInputError: the bound on the intercept does not fit into 64 bits.
    """
    lows, highs = np.full(dimension, low), np.full(dimension, high)
    if intercept:
        most = columns * max(abs(low), abs(high))
        if most >= 2**63:
            raise InvalidInputError(
                f"points up to {max(abs(low), abs(high))} in {columns} columns add up to more than 64 bits"
            )
        lows[-1], highs[-1] = -most, most
    return IntegerLattice(lows, highs)

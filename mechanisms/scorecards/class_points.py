"""Integer points for each of several classes, rounded from one private release of noisy moments."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.discrete.mechanism import Release
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_delta
from privopt.mechanisms.privacy.reliance import relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.rounding import class_points
from privopt.mechanisms.scorecards.units import Floats, Units
from privopt.oracles.limits import Limits
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import OneVsRestLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class ClassPoints:
    """A scorecard of K classes: levels have points per class; the class with most points is predicted.

    Privacy: mu-GDP, stated as (epsilon, delta); neighbours by replacing one record, n and the facts public.
    The means of x x' and x v_y', with v_y the vertex of class y of a simplex, are one Gaussian release
    (``SufficientStatistics`` has the proof), with as much noise as for two classes. The discriminant (whose
    weights are released, too), the common scale and the rounding are post-processing and cost nothing.

    An instance is a plan: noise and spend are fixed before data are read.

    Attributes:
        facts: public facts of the table.
        seed: the plan of the moments and of the discriminant.
        spend: the privacy claim.
    """

    family: ClassVar[Family] = Family.CARD
    name: ClassVar[str] = "seeded"

    facts: CardFacts
    seed: SufficientStatistics
    spend: PrivacySpend

    @classmethod
    def plan(cls, facts: CardFacts, classes: int, *, epsilon: float, delta: float) -> Self:
        """Calibrate the noise to public facts.

        Raises:
            PrivacyParameterError: epsilon or delta out of range, a lattice with a norm bound, or too many
                features for moments.
            InvalidInputError: no intercept; the points of a class start from it.
        """
        if facts.lattice.squared_radius is not None:
            raise PrivacyParameterError(f"{cls.name} rounds to a box of weights, not {facts.lattice}")
        if not facts.intercept:
            raise InvalidInputError("cards of several classes need an intercept: intercept = true")
        n, d, loss = facts.n_records, facts.lattice.dimension, OneVsRestLoss(classes)
        risk = RiskFacts(n, d, loss, facts.row_norm, "l2", constant=1.0)
        seed = SufficientStatistics.plan(risk, epsilon=epsilon, delta=check_delta(delta))
        seed = dataclasses.replace(seed, columns=facts.known)
        note = f"a model of {classes} classes ({seed.name}); its rounding is free"
        return cls(facts, seed, dataclasses.replace(seed.spend, mechanism=cls.name, note=note))

    @property
    def lattice(self) -> IntegerLattice:
        return self.facts.lattice

    @property
    def noise(self) -> dict[str, float]:
        """Public noise parameters of the moments."""
        return self.seed.noise

    def noise_to_signal(self, n_records: int) -> NoiseToSignal:
        """Return the ratio of the linear model."""
        return self.seed.noise_to_signal

    def release(
        self,
        features: Floats | CodedRows,
        label: NDArray[np.int64],
        counts: NDArray[np.int64],
        *,
        costs: Floats | None = None,
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
    ) -> Release:
        """Release points, shape (K, d). Costs ``spend``, also on failure.

        Args:
            features: the features of each distinct record, as floats or coded.
            label: the index of its class.
            counts: the number of records that it stands for.
            costs: the cost of an error on a record of each class, > 0, public or released; the class with the
                least expected cost then has the most points. None: equal costs.
            noise: source of randomness; the operating system by default.
            limits: time limit, progress and cancellation.

        Raises:
            PlanMismatchError: the plan was made for another number of records.
            UnfinishedDrawError: a limit was reached; nothing is released.
        """
        source, units = checked_source(noise), Units(self.facts)
        facts = self.seed.facts
        if int(np.sum(counts)) != facts.n_records:
            raise PlanMismatchError(f"this plan was made for {facts.n_records} records: plan again")
        centred = (
            features.mapped(units.features) if isinstance(features, CodedRows) else units.features(features)
        )
        risk = EmpiricalRisk(
            centred,
            label.astype(np.float64),
            facts.loss,
            row_norm=facts.row_norm,
            constant=facts.constant,
            counts=counts,
        )
        found = self.seed.release(risk, source, limits=limits)
        weights = np.array([units.weights(row) for row in found.point])
        if costs is not None:
            weights[:, -1] += np.log(costs)  # scores are log odds
        spend = relying_on(spent(self, source), self)
        return Release(class_points(weights, self.facts), spend, self.noise, "", weights=weights)

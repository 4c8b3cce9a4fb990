"""The descents of Wang, Xiao, Devadas and Xu (2020) without declared moments or ranges.

Features and labels are in private units: their centres and scales are released first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from privopt.mechanisms.heavy_tails.column_search import ColumnSearch
from privopt.mechanisms.heavy_tails.descent import Descent, RobustDescent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_stochastic import RobustStochasticGradient
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.unbounded import UnboundedFacts, UnboundedFit
from privopt.mechanisms.heavy_tails.units import Floats, searched_columns
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import shared_by
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.oracles.limits import Limits, started
from privopt.problems.convex.losses import Labels
from privopt.problems.convex.regularizers import NO_REGULARIZER
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts

# Guessed bounds on moments and means of gradients, and on weights: in private units features and labels, and
# so gradients, have magnitude about 1.
_MOMENT, _RANGE, _RADIUS = 2.0, (-2.0, 2.0), 5.0
_GUESS = Descent(smoothness=2.0)


@dataclass(frozen=True)
class MeasuredDescent(UnboundedFit):
    """A private search for units, and descent along robust means in these units: Algorithms 3 and 4.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public: the search
    spends part of epsilon and half of delta, the descent the rest (basic composition).

    Attributes:
        descent: the plan in private units, for the weights and the intercept.
    """

    kind: ClassVar[type[Any]]
    name: ClassVar[str]

    descent: RobustDescent

    @classmethod
    def _calibrated(cls, facts: UnboundedFacts, epsilon: float, delta: float, steps: int | None) -> Self:
        n, d, loss, releases, flags = facts
        numbers = loss.labels is Labels.REAL
        search = ColumnSearch.within(
            n, len(searched_columns(d, flags)) + numbers, gaussian_mu(epsilon, delta / 2)
        )
        spent = 0.0 if search is None else gaussian_epsilon(search.level, delta / 2)
        risk = unclipped_facts(n, d + 1, PLAIN_SQUARES if numbers else loss)
        options: dict[str, Any] = {} if steps is None else {"steps": steps}
        public = {"mean_range": _RANGE} if cls.kind is TrimmedGradientDescent else {"moment": _MOMENT}
        descent = cls.kind.plan(
            risk,
            L2Ball(d + 1, _RADIUS),
            NO_REGULARIZER,
            epsilon=(epsilon - spent) * (1 - 1e-12),
            delta=delta if search is None else delta / 2,
            descent=_GUESS,
            releases=releases,
            **public,
            **options,
        )
        spend = PrivacySpend.approximate(
            epsilon, delta, cls.name, note=shared_by(releases, "units in common")
        )
        return cls(n, d, risk.loss, releases, search, flags, spend, descent)

    @property
    def steps(self) -> int:
        return self.descent.steps

    @property
    def noised(self) -> str:
        return f"counts, and {self.descent.noised}"

    @property
    def noise(self) -> dict[str, float]:
        """Public parameters of the noise."""
        counts = {} if self.search is None else {"counts_sigma": self.search.counts.sigma}
        return {**self.descent.noise, **counts}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        return self.descent.noise_to_signal

    def _points(
        self, X: Floats, labels: Sequence[Floats], source: NoiseSource, limits: Limits | None
    ) -> list[Floats]:
        watch = started(limits)
        units, root = self._units(X, labels[0], source), math.sqrt(self.dimension)
        rows = units.rows(X) * root  # rows of length at most 1 have entries of magnitude about 1 / sqrt d
        points = []
        for y in labels:
            risk = UnclippedRisk(rows, (y - units.label_centre) / units.label_scale, self.loss)
            points.append(units.raw(self.descent.release(risk, source, limits=watch.rest).point * root))
        return points


class MeasuredRobustDescent(MeasuredDescent):
    """Algorithm 4 in private units: see ``RobustGradientDescent``."""

    kind = RobustGradientDescent
    name = RobustGradientDescent.name


class MeasuredRobustStochastic(MeasuredDescent):
    """Algorithm 4 on Poisson batches, in private units: see ``RobustStochasticGradient``."""

    kind = RobustStochasticGradient
    name = RobustStochasticGradient.name


class MeasuredTrimmedDescent(MeasuredDescent):
    """Algorithm 3, corrected, in private units: see ``TrimmedGradientDescent``."""

    kind = TrimmedGradientDescent
    name = TrimmedGradientDescent.name

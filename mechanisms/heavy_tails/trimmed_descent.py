"""Heavy-tailed DP-SCO with means in a known range: descent along private trimmed means of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.descent import Descent, RobustDescent
from privopt.mechanisms.heavy_tails.trimming import Trimming, smooth_sensitivity
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk

_STEPS = 20


@dataclass(frozen=True)
class TrimmedGradientDescent(RobustDescent):
    """Gradient descent with private trimmed means: clamped, each coordinate, with arsinh-normal noise.

    Privacy: (epsilon, delta)-differential privacy through zCDP: d T means, each with its share of rho;
    neighbours by replacing one record, n public. Two statements of the paper are wrong
    (experiments/docs/errata.md, 4 and 5): the scale of the noise depends on the data, and epsilon / sqrt(d T)
    for each mean composes to several times epsilon.

    Source: Wang, Xiao, Devadas and Xu (2020), Algorithm 3, corrected.
    """

    name: ClassVar[str] = "trimmed-gd"
    noised: ClassVar[str] = "the trimmed mean of the gradients, each coordinate, every step"

    trimming: Trimming

    @classmethod
    def _calibrated(
        cls,
        target: RiskTarget,
        mean_range: tuple[float, float],
        steps: int = _STEPS,
        trimmed: int | None = None,
        descent: Descent | None = None,
    ) -> Self:
        """Calibrate to a target.

        Args:
            target: its facts are of ``unclipped_facts``.
            mean_range: (a, b), an interval that contains the mean of every coordinate of the gradient over W.
                Public.
            steps: T.
            trimmed: number of records left out at either end; by default chosen for the budget.
            descent: public guesses for step sizes.
        """
        facts, (low, high) = target.facts, mean_range
        trimming = Trimming.plan(
            facts.n_records,
            low,
            high,
            epsilon=target.epsilon,
            delta=target.delta,
            releases=facts.dimension * check_count(steps, "steps") * target.releases,
            trimmed=trimmed,
        )
        spend = PrivacySpend.approximate(target.epsilon, target.delta, cls.name)
        found = descent or Descent()
        return cls(facts, target.convex_set, target.regularizer, spend, steps, found, trimming)

    @property
    def noise(self) -> dict[str, float]:
        noise = self.trimming.noise
        return {"t": noise.t, "s": noise.s, "trimmed": self.trimming.trimmed}

    @property
    def _coordinate(self) -> tuple[float, float]:
        return self.trimming.typical_noise, self.trimming.width / 2

    @property
    def _gradient_size(self) -> float:
        return 10 * (abs(self.trimming.low) + abs(self.trimming.high))

    def _compile(self, risk: EmpiricalRisk) -> None:
        super()._compile(risk)
        smooth_sensitivity(np.arange(5.0), 1, 1.0, 1.0)

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        records, trim, source = self._records(risk), self.trimming, run.source
        if not isinstance(records.X, np.ndarray):
            raise PrivacyParameterError(
                f"{self.name} sorts columns: it takes dense arrays, not sparse matrices"
            )

        def gradient(w: Vector) -> Vector:
            slopes = records.slopes(w)
            with np.errstate(over="ignore", invalid="ignore"):
                columns = (slopes * column for column in records.X.T)
                if source is not None:
                    return trim.release(columns, source)
                return np.array([trim.estimate(column) for column in columns])

        # The noise depends on the records, so ``gradient`` adds it.
        return self._iterate(gradient, lambda g: g, run)

"""Base of noisy gradient descent on unbounded records: parameters for accuracy, and the iteration."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self, TypedDict

from scipy import special

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.iteration import (
    Method,
    Output,
    Perturb,
    Run,
    StepClock,
    choose_output,
    noisy_iteration,
)
from privopt.mechanisms.risk.mechanism import RiskTarget, SteppedMechanism
from privopt.mechanisms.risk.step_counts import mirror_steps, whole_steps
from privopt.oracles.convex.prox import prox_step
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.unclipped import UnclippedRisk, unclipped_facts

_MOST_STEPS = 200


@dataclass(frozen=True)
class Descent:
    """Public guesses about the risk for step sizes and thresholds; they affect accuracy only.

    Attributes:
        smoothness: L of the population risk; step sizes are 1/L.
        distance: distance of the minimum from the start.
        failure: the failure probability for which thresholds are chosen, in (0, 0.5).
    """

    smoothness: float = 1.0
    distance: float = 1.0
    failure: float = 0.05

    def __post_init__(self) -> None:
        check_positive(self.smoothness, "smoothness")
        check_positive(self.distance, "distance")

    def truncation(self, n: int, moment: float, sigma: float) -> SoftTruncation:
        """Return the truncation that balances bias, deviation and noise of ``sigma`` at scale 1."""
        spread = sigma * -float(special.ndtri(self.failure / 2))
        return SoftTruncation.balanced(n, moment, self.failure, spread)

    def steps(self, wanted: int | None, convex_set: ConvexSet, regularizer: ElasticNet, error: float) -> int:
        """Return T: the number asked for, or the number at which the bounds on optimisation error and noise
        are equal.

        Args:
            error: l2 norm of the error of one gradient for T = 1; it grows as sqrt(T).
        """
        if wanted is not None:
            return check_count(wanted, "steps")
        gamma = 1 / (self.smoothness + regularizer.l2)
        distance = min(self.distance, convex_set.radius)
        return whole_steps(mirror_steps(distance**2 / 2, gamma, error), _MOST_STEPS)


@dataclass(frozen=True)
class RobustDescent(SteppedMechanism):
    """Proximal descent along noisy robust gradients; the last iterate is returned.

    x+ = prox of x - eta (robust gradient + noise), eta = 1 / (L + l2).
    """

    family: ClassVar[Family] = Family.UNBOUNDED_RISK
    instead: ClassVar[str] = "make the facts with unclipped_facts(n, d, loss)"

    descent: Descent

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Also refuse facts of clipped records."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if facts != unclipped_facts(facts.n_records, facts.dimension, facts.loss):
            reasons.append(f"takes records without clipping, got {facts}")
        return reasons

    def _find_oracles(self) -> None:
        prox_step(self.convex_set, ElasticNet(l1=self.regularizer.l1))

    def _check_numbers(self) -> None:
        """Also refuse plans whose noisy gradients may take steps beyond the range of doubles."""
        super()._check_numbers()
        if not math.isfinite(self.steps * self.step_sizes[0] * self._gradient_size):
            raise OverflowError(f"step sizes of {self.step_sizes[0]:.3g}")

    @property
    def _gradient_size(self) -> float:
        """Size of a coordinate of a noisy gradient: ten standard deviations of noise."""
        return 10 * max(self.noise.values())

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Norm of the noise of a step against the largest robust mean of one coordinate of the gradient.

        Records are not bounded, but the robust mean of a coordinate is. In directions of curvature L a step
        of size 1 / L replaces the iterate, and with less curvature earlier noise stays in it. So the noise of
        the last iterate is at least the noise of one step; no averaging over the steps reduces it.
        """
        sigma, largest = self._coordinate
        return NoiseToSignal(math.sqrt(self.facts.dimension) * sigma, largest, "mean gradient")

    @property
    @abstractmethod
    def _coordinate(self) -> tuple[float, float]:
        """Standard deviation of the noise on a coordinate of the gradient in a step, and its largest robust
        mean.
        """

    @property
    def step_sizes(self) -> tuple[float, float]:
        eta = 1 / (self.descent.smoothness + self.regularizer.l2)
        return eta, eta

    def _records(self, risk: EmpiricalRisk) -> UnclippedRisk:
        if not isinstance(risk, UnclippedRisk):
            raise PlanMismatchError(f"{self.name} needs an UnclippedRisk, got {type(risk).__name__}")
        return risk

    def _iterate(
        self, gradient: Callable[[Vector], Vector], perturb: Perturb, run: Run
    ) -> tuple[Vector, None]:
        l2, eta = self.regularizer.l2, self.step_sizes[0]
        step = prox_step(self.convex_set, ElasticNet(l1=self.regularizer.l1))
        method = Method(run.start, lambda _k, _state, x, g: step(x - eta * (g + l2 * x), eta))
        iterates = noisy_iteration(method, gradient, perturb, self.steps, StepClock(run.watch, self.steps))
        return choose_output(iterates, Output.LAST, run.start), None


class SoftOptions(TypedDict, total=False):
    """Options of descents with softly truncated gradients, besides ``moment``.

    ``descent`` holds public guesses for step sizes; ``truncation`` overrides the truncation that balances
    bias, deviation and noise.
    """

    descent: Descent | None
    truncation: SoftTruncation | None


@dataclass(frozen=True)
class TruncatedDescent(RobustDescent):
    """Descent along means of softly truncated gradients."""

    truncation: SoftTruncation
    moment: float

    @classmethod
    @abstractmethod
    def _calibrated(
        cls,
        target: RiskTarget,
        *,
        moment: float,
        descent: Descent | None = None,
        truncation: SoftTruncation | None = None,
    ) -> Self:
        """Return the plan for a target whose facts are of ``unclipped_facts``.

        ``moment`` is v, a bound on the second moment of each coordinate of a record's gradient. It is public;
        only accuracy depends on it.
        """

    @property
    def _coordinate(self) -> tuple[float, float]:
        return self.noise["sigma"], self.truncation.largest_mean(self.moment)

"""Noisy gradient descent on the full batch.

Sources: Wang, Ye and Xu (NIPS 2017) for DP-GD, Wang and Xu (AAAI 2019) for DP-PGD.
"""

from __future__ import annotations

from typing import Self, Unpack

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.risk.iteration import Method, Output
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, RiskTarget
from privopt.mechanisms.risk.options import StepOptions
from privopt.mechanisms.risk.step_counts import euclidean_steps, lojasiewicz_steps
from privopt.oracles.convex.prox import prox_step
from privopt.problems.convex.conditions import PolyakLojasiewicz
from privopt.problems.convex.regularizers import Vector


class DPGradientDescent(FullBatchMechanism):
    """DP-GD: x+ = x - eta (grad F(x) + l2 x + noise), eta = 1 / (L + l2), no constraint.

    Source: Wang, Ye and Xu (2017), Algorithm 4; T as in Theorem 6.2 (strong convexity, or a named
    Polyak-Lojasiewicz condition: the last iterate) or 6.3 (random iterate; for convex losses the average).
    Privacy: see ``FullBatchMechanism``; privacy does not depend on the condition.
    """

    name = "dp-gd"
    takes_weights = True
    takes_set = False
    takes_l1 = False
    instead = "use dp-pgd for either"

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, condition: PolyakLojasiewicz | None = None, **options: Unpack[StepOptions]
    ) -> Self:
        """Calibrate; ``condition``, on F plus the penalty, is an assumption for accuracy alone."""
        if condition is not None:
            _check_condition(condition, target)
            options["output"] = options.get("output") or Output.LAST
            if options.get("steps") is None:
                options["steps"] = lojasiewicz_steps(
                    target.facts,
                    target.convex_set,
                    target.regularizer,
                    target.precision,
                    condition.constant,
                )
        return super()._calibrated(target, **options)

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        facts, regularizer = target.facts, target.regularizer
        gamma = 1 / (facts.smoothness + regularizer.l2)
        return euclidean_steps(facts, target.convex_set, regularizer, target.precision, gamma)

    @property
    def step_sizes(self) -> tuple[float, float]:
        eta = 1 / (self.facts.smoothness + self.regularizer.l2)
        return eta, eta

    def _method(self, start: Vector) -> Method:
        l2, eta = self.regularizer.l2, self.step_sizes[0]
        return Method(start, lambda _k, _state, x, g: x - eta * (g + l2 * x))


class DPProximalGradient(FullBatchMechanism):
    """DP-PGD: x+ = argmin over u in C of <grad F(x) + noise, u> + |u - x|^2 / (2 gamma) + r(u).

    gamma = 1/(2L). Privacy: see ``FullBatchMechanism``. Source: Wang and Xu (2019), Algorithm 1 and Theorem
    2. The noise variance printed in their step 3 has L in place of the Lipschitz constant and rho^2 in place
    of rho, which is too little noise for rho > 1; the printed variance is not used here.
    """

    name = "dp-pgd"
    takes_weights = True

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        facts, gamma = target.facts, 1 / (2 * target.facts.smoothness)
        return euclidean_steps(facts, target.convex_set, target.regularizer, target.precision, gamma)

    @property
    def step_sizes(self) -> tuple[float, float]:
        gamma = 1 / (2 * self.facts.smoothness)
        return gamma, gamma

    def _method(self, start: Vector) -> Method:
        gamma = self.step_sizes[0]
        step = prox_step(self.convex_set, self.regularizer)
        return Method(start, lambda _k, _state, x, g: step(x - gamma * g, gamma))


def _check_condition(condition: PolyakLojasiewicz, target: RiskTarget) -> None:
    """Refuse another type, or a constant that no risk of this smoothness has."""
    if not isinstance(condition, PolyakLojasiewicz):
        raise PrivacyParameterError(
            f"condition must be a PolyakLojasiewicz(constant), got {type(condition).__name__}"
        )
    smoothness = target.facts.smoothness + target.regularizer.l2
    if condition.constant > smoothness:
        raise PrivacyParameterError(
            f"the constant of the condition, {condition.constant:g}, is larger than the smoothness "
            f"{smoothness:g}: no risk has |grad F|^2 > 2 L (F - min F)"
        )

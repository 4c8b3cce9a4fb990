"""Private Frank-Wolfe: DP-FW-L2 with noisy gradients, DP-FW-L1 with a noisy choice of a vertex.

Source: Wang and Xu (AAAI 2019) for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_to_zcdp, zcdp_rho
from privopt.mechanisms.privacy.gradient_noise import (
    SelectionNoise,
    selection_steps,
    shared_by,
)
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import (
    Method,
    Output,
    State,
    StepClock,
    choose_output,
    noisy_iteration,
)
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, RiskMechanism
from privopt.mechanisms.risk.sets import checked_space, need_bounded, need_smooth
from privopt.mechanisms.risk.step_counts import (
    dual_noise,
    loss_range,
    prediction_scale,
    ridged_smoothness,
    whole_steps,
)
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball

# Size of the default l1 ball, in units of the scale of predictions over the bound on features. Five features
# of weight 1 that are there or not make predictions of about that scale.
_FEATURES = 5.0


class DPFrankWolfeL2(FullBatchMechanism):
    """DP-FW-L2: v = argmin over v in C of <v, grad F(x) + noise>; x+ = x + gamma (v - x).

    gamma is constant for a random iterate (Theorem 4 of the source) and 2/(k + 2) for the last iterate of a
    convex loss, the textbook schedule. A ridge penalty is smooth and joins the gradient.

    Source: Wang and Xu (2019), Algorithm 2. Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-fw-l2"
    wants_bounded_set = True

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        need_bounded(cls.name, convex_set)
        need_smooth(cls.name, regularizer)

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        return Output.LAST if facts.loss.convex else Output.RANDOM

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        noise = 2 * dual_noise(convex_set) / mu
        return frank_wolfe_steps(facts, convex_set, regularizer, output, noise)

    def _rate(self) -> Callable[[int], float]:
        return frank_wolfe_rate(self.facts, self.convex_set, self.regularizer, self.output, self.steps)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self._rate()(0), self._rate()(self.steps - 1)

    def _method(self, start: Vector) -> Method:
        minimize, rate = linear_minimizer(self.convex_set), self._rate()
        l2 = self.regularizer.l2

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            return x + rate(k) * (minimize(g + l2 * x).point - x)

        return Method(start, step)


@dataclass(frozen=True)
class DPFrankWolfeL1(RiskMechanism):
    """DP-FW-L1: a vertex s of C is chosen by noisy max of -<s, grad F(x)>; x+ = (1 - gamma) x + gamma s.

    No vector is noised: a step costs one gradient and one Gumbel variable per vertex, and the error grows
    with the logarithm of their number. For sparse data a step costs the non-zeros and the vertices, never
    n times p. The step size is as in ``DPFrankWolfeL2``. The last iterate is the default without convexity as
    well, where Theorem 6 is about a random one at a constant step: that one had twice the excess risk, in the
    geometric mean of 27 synthetic tasks (three losses, three shapes, three epsilons), and nowhere 5% less.

    Privacy: rho-zCDP with rho = T eps0^2 / 8 (bounded range), stated as (epsilon, delta); neighbours by
    replacing one record, n public. Source: Wang and Xu (2019), Algorithm 4 and Theorem 6; Talwar, Thakurta
    and Zhang (2015) for convex losses. They print eps0 = epsilon / sqrt(8 T ln(1/delta)), which needs
    8 sqrt(rho ln(1/delta)) / epsilon times the noise, whatever T: 4.1 to 5.0 at delta = 1/n^2 (4.6 at
    (2, 1e-3), up to 7 where delta is large and epsilon small). Against the exact root of the theorem of
    advanced composition, which has no closed form, it is 2.6 times at (2, 1e-3) and T = 200.
    """

    name: ClassVar[str] = "dp-fw-l1"
    natural_norm: ClassVar[RowNorm] = "linf"
    wants_bounded_set: ClassVar[bool] = True
    noised: ClassVar[str] = "the score of each vertex, every step"

    selection: SelectionNoise

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        steps: int | None = None,
        output: Output | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts. The arguments are those of ``FullBatchMechanism.plan``.

        Several releases share rho evenly.

        Raises:
            PrivacyParameterError: parameters out of range, an l1 penalty, or a set without a finite list of
                vertices.
        """
        checked_space(facts, convex_set, regularizer)
        need_smooth(cls.name, regularizer)
        count = convex_set.vertex_count
        if count is None or convex_set.dimension != facts.dimension:
            raise PrivacyParameterError(
                f"dp-fw-l1 needs a set of dimension {facts.dimension} with finitely many vertices, got "
                f"{type(convex_set).__name__} of dimension {convex_set.dimension}: use an l1 ball, a simplex "
                "or a hull, or dp-fw-l2"
            )
        output = output or Output.LAST
        if steps is None:
            one = selection_steps(
                epsilon, delta, steps=releases, facts=facts, convex_set=convex_set, l2=regularizer.l2
            )
            noise = one.scale * math.log(count)
            steps = frank_wolfe_steps(facts, convex_set, regularizer, output, max(noise, 1e-300))
        together = check_count(steps, "steps") * check_count(releases, "releases")
        selection = selection_steps(
            epsilon, delta, steps=together, facts=facts, convex_set=convex_set, l2=regularizer.l2
        )
        rho = min(together * bounded_range_to_zcdp(selection.step_epsilon), zcdp_rho(epsilon, delta))
        note = shared_by(releases, f"{rho / releases:.4g}-zCDP each")
        spend = PrivacySpend(epsilon, delta, "zcdp", cls.name, level=rho, note=note)
        return cls(facts, convex_set, regularizer, steps, output, spend, selection)

    @classmethod
    def default_set(cls, facts: RiskFacts) -> ConvexSet:
        """An l1 ball: for rows with features of up to R, of the scale of predictions over R."""
        if facts.norm == "linf":
            return L1Ball(facts.dimension, _FEATURES * prediction_scale(facts) / facts.row_norm)
        return L1Ball(facts.dimension, super().default_set(facts).radius)

    @property
    def noise(self) -> dict[str, float]:
        return {"gumbel_scale": self.selection.scale, "sensitivity": self.selection.sensitivity}

    def _rate(self) -> Callable[[int], float]:
        return frank_wolfe_rate(self.facts, self.convex_set, self.regularizer, self.output, self.steps)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self._rate()(0), self._rate()(self.steps - 1)

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        rate, l2, steps = self._rate(), self.regularizer.l2, self._drawn_steps(source)

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            scores = self.convex_set.vertex_scores(-(g + l2 * x))
            best = int(np.argmax(scores)) if source is None else self.selection.choose(scores, source)
            return (1 - rate(k)) * x + rate(k) * self.convex_set.vertex(best)

        clock = StepClock(watch, steps)
        iterates = noisy_iteration(Method(start, step), risk.gradient, lambda g: g, steps, clock)
        return choose_output(iterates, self.output, start), None


def frank_wolfe_steps(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, noise: float
) -> int:
    """T of Frank-Wolfe steps whose gap suffers noise * sqrt(T) each: against 2 C/T, or sqrt(2 B C / T).

    C is the curvature over steps of the length of the radius. The constant of the proofs, for steps right
    through the set (Jaggi 2013), is 4 times that: it would pay, in noise, for steps that gain nothing.
    """
    curvature = ridged_smoothness(facts, convex_set, regularizer)
    if output is Output.LAST:
        return whole_steps((4 * curvature / noise) ** (2 / 3))
    return whole_steps(math.sqrt(2 * loss_range(facts, convex_set) * curvature) / noise)


def frank_wolfe_rate(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, steps: int
) -> Callable[[int], float]:
    """Step sizes: 2/(k + 2) for the last iterate, otherwise constant, sqrt(2 B / (C T)) and at most 1."""
    if output is Output.LAST:
        return lambda k: 2 / (k + 2)
    curvature = ridged_smoothness(facts, convex_set, regularizer)
    constant = min(1.0, math.sqrt(2 * loss_range(facts, convex_set) / (curvature * steps)))
    return lambda k: constant

"""Noisy mirror descent on the full batch.

Sources: Wang and Xu (AAAI 2019) for DP-PMD, Wang, Ye and Xu (NIPS 2017) for the accelerated DP-AccMD.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.mechanisms.risk.iteration import Method, Output, State
from privopt.mechanisms.risk.mechanism import FullBatchMechanism
from privopt.mechanisms.risk.step_counts import (
    dual_noise,
    farthest_divergence,
    loss_range,
    mirror_steps,
    ridged_smoothness,
    whole_steps,
)
from privopt.oracles.convex.bregman import bregman_step, natural_geometry
from privopt.oracles.convex.gauge_step import gauge_step
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet


class DPMirrorDescent(FullBatchMechanism):
    """DP-PMD: x+ = argmin over u in C of <grad F(x) + noise, u> + V(u, x) / gamma + r(u).

    V is the Bregman divergence of the natural geometry of C, 1-strongly convex in its Minkowski norm; gamma
    is 1 / (2 L_C) with L_C the smoothness in that norm. Privacy: see ``FullBatchMechanism``. Source: Wang and
    Xu (2019), Algorithm 3 and Theorem 5.
    """

    name = "dp-pmd"
    wants_bounded_set = True

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        gamma, noise = 1 / (2 * facts.smoothness_in(convex_set)), dual_noise(convex_set) / mu
        if not facts.loss.convex:
            return whole_steps(math.sqrt(4 * loss_range(facts, convex_set) / gamma) / noise)
        return whole_steps(mirror_steps(farthest_divergence(facts, convex_set), gamma, noise))

    @property
    def step_sizes(self) -> tuple[float, float]:
        gamma = 1 / (2 * self.facts.smoothness_in(self.convex_set))
        return gamma, gamma

    def _method(self, start: Vector) -> Method:
        gamma = self.step_sizes[0]
        step = bregman_step(self.convex_set, natural_geometry(self.convex_set), self.regularizer)
        return Method(start, lambda _k, _state, x, g: step(x, g, gamma))


class DPAcceleratedMirrorDescent(FullBatchMechanism):
    """DP-AccMD: accelerated mirror descent by linear coupling, for convex losses over a norm ball.

    With L' = L_C: alpha = (k + 2)/(4 L'), r = 2/(k + 2), x = r z + (1 - r) y, and one noisy gradient g at x:
    y+ = argmin over C of <g, y - x> + (L'/2)|y - x|_C^2, z+ = argmin over C of <g, z> + V(z, z_k)/alpha.
    The output is y_T.

    Source: Wang, Ye and Xu (2017), Algorithm 3 and Theorem 5.4. As printed, the y-step uses the gradient
    without noise and y_T is the output, which is not private. Here both steps use the same noisy gradient.
    Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-accmd"
    wants_bounded_set = True
    takes_l1 = False
    convex_only = True
    instead = "use dp-pmd or dp-fw-l2"

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        return Output.LAST

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        # With A_T = sum of alpha = T^2 / (8 L'), the bound is V / A_T + T sigma^2 E|xi|_*^2 / (4 L') for
        # sigma = sqrt(T) / mu: a third of the noise term from mirror steps, two thirds from gradient steps.
        smoothness = ridged_smoothness(facts, convex_set, regularizer)
        far = math.sqrt(2 * farthest_divergence(facts, convex_set))
        return whole_steps(2 * math.sqrt(smoothness * far * mu / dual_noise(convex_set)))

    @property
    def step_sizes(self) -> tuple[float, float]:
        """Step sizes of the mirror steps, alpha; the gradient steps have 1 / L'."""
        smoothness = ridged_smoothness(self.facts, self.convex_set, self.regularizer)
        return 2 / (4 * smoothness), (self.steps + 1) / (4 * smoothness)

    def _method(self, start: Vector) -> Method:
        smoothness = ridged_smoothness(self.facts, self.convex_set, self.regularizer)
        short = gauge_step(self.convex_set)
        long = bregman_step(self.convex_set, natural_geometry(self.convex_set))

        def query(k: int, state: State) -> Vector:
            r = 2 / (k + 2)
            return np.asarray(r * state[1] + (1 - r) * state[0])

        def step(k: int, state: State, x: Vector, g: Vector) -> State:
            slope = g + self.regularizer.l2 * x
            alpha = (k + 2) / (4 * smoothness)
            return np.stack([short(x, slope, smoothness), long(state[1], slope, alpha)])

        return Method(np.stack([start, start]), step, query, lambda state: state[0])

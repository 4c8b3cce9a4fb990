"""Noisy mirror descent on the full batch.

Sources: Wang and Xu (AAAI 2019) for DP-PMD, Wang, Ye and Xu (NIPS 2017) for the accelerated DP-AccMD.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.risk.iteration import Method, Output, State
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, RiskTarget
from privopt.mechanisms.risk.options import StepOptions
from privopt.mechanisms.risk.step_counts import (
    dual_noise,
    entropic_accelerated_smoothness,
    entropic_accelerated_steps,
    entropic_step_size,
    entropic_steps,
    euclidean_steps,
    farthest_divergence,
    has_entropy,
    ridged_smoothness,
    whole_steps,
)
from privopt.oracles.convex.bregman import bregman_step, natural_geometry
from privopt.oracles.convex.gauge_step import gauge_step
from privopt.oracles.convex.interface import Euclidean
from privopt.problems.arguments import check_real
from privopt.problems.convex.regularizers import Vector


@dataclass(frozen=True)
class DPMirrorDescent(FullBatchMechanism):
    """DP-PMD: x+ = argmin over u in C of <grad F(x) + noise, u> + V(u, x) / gamma + r(u).

    V is the divergence of the natural geometry of C, 1-strongly convex for its Minkowski norm.

    Defaults: iterates are averaged with weights 1, 2, ...; over l1 balls and simplices, with entropies for V,
    ``entropic_steps`` sets T and ``entropic_step_size`` gamma. Elsewhere V is Euclidean, (scale/2) |u - x|^2,
    and T and gamma / scale = 1 / (2 L) are as in ``dp-pgd``. The source has a random iterate, 1 / (2 L
    |C|^2), and T of the order of |C| n epsilon / sqrt((|C|^2 + G_C^2) ln(1/delta)). The source's bound
    charges each step with the largest of p noises; the bound used here charges a single noise, by Jensen's
    inequality (``entropic_horizon``).

    Privacy: see ``FullBatchMechanism``. Source: Wang and Xu (2019), Algorithm 3 and Theorem 5.

    Attributes:
        step_size: gamma.
    """

    name: ClassVar[str] = "dp-pmd"
    usual_output: ClassVar[Output | None] = Output.WEIGHTED
    takes_weights: ClassVar[bool] = True
    wants_bounded_set: ClassVar[bool] = True

    step_size: float = 0.0  # of an unfinished plan

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, step_size: float | None = None, **options: Unpack[StepOptions]
    ) -> Self:
        """Calibrate; ``step_size`` and the other options follow the rules above by default."""
        made = super()._calibrated(target, **options)
        if step_size is None:
            step_size = cls._default_step_size(target, made.steps)
        if not 0 < check_real(step_size, "step_size") < math.inf:
            raise PrivacyParameterError(f"step_size must be positive and finite, got {step_size}")
        return dataclasses.replace(made, step_size=float(step_size))

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        facts, space = target.facts, target.convex_set
        if has_entropy(space):
            return entropic_steps(facts, space, target.precision)
        gamma = 1 / (2 * facts.smoothness)
        return euclidean_steps(facts, space, target.regularizer, target.precision, gamma)

    @classmethod
    def _default_step_size(cls, target: RiskTarget, steps: int) -> float:
        facts, space = target.facts, target.convex_set
        if has_entropy(space):
            return entropic_step_size(facts, space, target.precision, steps)
        geometry = natural_geometry(space)
        assert isinstance(geometry, Euclidean)
        return geometry.scale / (2 * facts.smoothness)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    def _method(self, start: Vector) -> Method:
        gamma = self.step_size
        step = bregman_step(self.convex_set, natural_geometry(self.convex_set), self.regularizer)
        return Method(start, lambda _k, _state, x, g: step(x, g, gamma))


@dataclass(frozen=True)
class DPAcceleratedMirrorDescent(FullBatchMechanism):
    """DP-AccMD: accelerated mirror descent, for convex losses over a bounded set.

    alpha = (k + 2)/(4 L'), r = 2/(k + 2), x = r z + (1 - r) y, and one noisy gradient g at x: z+ = argmin
    over C of <g, z> + V(z, z_k)/alpha, and y+ = r z+ + (1 - r) y (Lan 2012). y_T is returned. Over l1 balls
    and simplices ``entropic_accelerated_steps`` sets T, and ``entropic_accelerated_smoothness`` L'.

    ``gauge_steps`` is the source's y+ = argmin over C of <g, y - x> + (L'/2)|y - x|_C^2, with L' = L_C. In
    the norm of an l1 ball this step moves to one vertex: once g is mostly noise, the vertex with the largest
    of 2p noises. So it is the default only over the other sets, whose norms are Euclidean.

    Source: Wang, Ye and Xu (2017), Algorithm 3 and Theorem 5.4. As printed, the y-step uses the gradient
    without noise, and y_T is the output: that is not private. Here both steps use the same noisy
    gradient. Privacy: see ``FullBatchMechanism``.

    Attributes:
        gauge_steps: whether y takes the source's step.
        smoothness: L'.
    """

    name: ClassVar[str] = "dp-accmd"
    usual_output: ClassVar[Output | None] = Output.LAST
    takes_weights: ClassVar[bool] = True
    wants_bounded_set: ClassVar[bool] = True
    takes_l1: ClassVar[bool] = False
    convex_only: ClassVar[bool] = True
    instead: ClassVar[str] = "use dp-pmd or dp-fw-l2"

    gauge_steps: bool = True
    smoothness: float = 0.0  # of an unfinished plan

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, gauge_steps: bool | None = None, **options: Unpack[StepOptions]
    ) -> Self:
        """Calibrate; ``gauge_steps`` and the number of steps follow the rules above by default."""
        facts, space = target.facts, target.convex_set
        ridge = target.regularizer.l2 * space.radius**2
        gauge = gauge_steps if gauge_steps is not None else not has_entropy(space)
        mu = target.precision
        if options.get("steps") is None and not gauge:
            options["steps"] = entropic_accelerated_steps(facts, space, mu, ridge)
        made = super()._calibrated(target, **options)
        smoothness = ridged_smoothness(facts, space, target.regularizer)
        if not gauge:
            smoothness = entropic_accelerated_smoothness(facts, space, mu, ridge, made.steps)
        return dataclasses.replace(made, gauge_steps=gauge, smoothness=smoothness)

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        # With A_T = sum of alpha = T^2 / (8 L'), the bound is V / A_T + T sigma^2 E|xi|_*^2 / (4 L') for
        # sigma = sqrt(T) / mu: a third of the noise term from mirror steps, two thirds from gradient steps.
        facts, space = target.facts, target.convex_set
        smoothness = ridged_smoothness(facts, space, target.regularizer)
        far = math.sqrt(2 * farthest_divergence(facts, space))
        return whole_steps(2 * math.sqrt(smoothness * far * target.precision / dual_noise(space)))

    @property
    def step_sizes(self) -> tuple[float, float]:
        """The smallest and the largest alpha of the long steps; the source's short steps have size 1 / L'."""
        return 2 / (4 * self.smoothness), (self.steps + 1) / (4 * self.smoothness)

    def _method(self, start: Vector) -> Method:
        long = bregman_step(self.convex_set, natural_geometry(self.convex_set))
        short = gauge_step(self.convex_set) if self.gauge_steps else None

        def query(k: int, state: State) -> Vector:
            r = 2 / (k + 2)
            return np.asarray(r * state[1] + (1 - r) * state[0])

        def step(k: int, state: State, x: Vector, g: Vector) -> State:
            slope = g + self.regularizer.l2 * x
            z = long(state[1], slope, (k + 2) / (4 * self.smoothness))
            y = query(k, np.stack([state[0], z])) if short is None else short(x, slope, self.smoothness)
            return np.stack([y, z])

        return Method(np.stack([start, start]), step, query, lambda state: state[0])

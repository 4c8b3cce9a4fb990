"""A noisy cubic Newton method: few steps, each with a noisy gradient and a noisy Hessian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigvalsh

from privopt.mechanisms.nonconvex.second_order import CurvatureTest, Search, SecondOrderMechanism
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import StepClock
from privopt.mechanisms.risk.step_counts import SPREAD, whole_steps
from privopt.oracles.indefinite.cubic import cubic_step
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class DPCubicNewton(SecondOrderMechanism):
    """w+ = w + argmin over s of <g, s> + <s, (H + h I) s>/2 + r |s|^3/6, g and H the noisy derivatives at w.

    A step leaves a saddle at once, along the least eigenvector, and is as long as curvature lets it be, so T
    is by default some 20 to 50 where gradient descent wants hundreds: noise is that much less. h = sigma_H
    sqrt(2 d) is the typical largest eigenvalue of the noise of H, and keeps steps short where noise hides how
    flat F is. r is rho / m^(3/2), as if rows spread evenly over m = min(d, 100) directions: rho itself, which
    would make every step of a noiseless run descend, makes them needlessly short. The rule for T, the share
    of Hessians, h and r were chosen on synthetic tasks; none matters for privacy or for what is claimed.

    Every iterate has a noisy gradient and a noisy Hessian, so that any may be shown to be an alpha-SOSP, as
    in ``DPStationaryPoint``; the last that is, is returned.

    Privacy: see ``SecondOrderMechanism``, with as many Hessians as gradients.

    Source: Ganesh, Haghifam, Steinke and Thakurta (2023), who bound the cubic method of Nesterov and Polyak
    (2006) under strong convexity. Differences: exact accounting; no convexity; h, r and the test. Their
    second method noises the step instead of the Hessian ("double noise"), with a floor on eigenvalues that
    its sensitivity rests on; the error is of the same order, and a noisy Hessian is a certificate as well.
    """

    name: ClassVar[str] = "dp-newton"
    usual_share: ClassVar[float] = 0.3
    usual_tests: ClassVar[int | None] = None

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, space: ConvexSet, regularizer: ElasticNet, mu: float, failure: float
    ) -> int:
        """Five for every factor e by which a gradient may exceed its noise, mu being per unit of noise.

        Where a loss has exponential tails, each step goes about one unit further, and divides gradients by e.
        """
        return whole_steps(max(10.0, 5 * math.log(max(1.0, mu * facts.gradient_bound))))

    def _slow_curvature(self) -> float:
        """None: a step sees the least eigenvalue."""
        return 0.0

    @property
    def damping(self) -> float:
        """h."""
        return self.hessian_noise.vector.sigma * math.sqrt(2 * self.facts.dimension)

    @property
    def bend(self) -> float:
        """r."""
        spread = float(min(self.facts.dimension, SPREAD))
        return self.facts.hessian_lipschitz / (spread * math.sqrt(spread))

    def _search(
        self, risk: TwiceDifferentiableRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> Search:
        noisy, gradient = source is not None, self._gradients(risk, source)
        damped = self.damping * noisy * np.eye(start.size)
        clock = StepClock(watch, self.steps)
        trajectory, gradients, tests = [start], list[Vector](), list[CurvatureTest]()
        for k in range(min(self.steps, self.tests)):  # equal, by the plan; no Hessian that is not paid for
            clock.tick()
            w = trajectory[-1]
            gradients.append(gradient(w))
            H = self._noisy_hessian(risk, w, source)
            least = float(eigvalsh(H, subset_by_index=[0, 0])[0])
            tests.append(CurvatureTest(k, least, least, least >= self._curved(noisy)))
            trajectory.append(w + cubic_step(H + damped, gradients[-1], self.bend))
        for k in reversed(range(len(tests))):
            if tests[k].passed and float(np.linalg.norm(gradients[k])) <= self._flat(noisy):
                return Search(trajectory[k], True, trajectory, gradients, tuple(tests))
        return Search(trajectory[-1], False, trajectory, gradients, tuple(tests))

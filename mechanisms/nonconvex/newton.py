"""Noisy cubic Newton method: few steps, each with a noisy gradient and a noisy Hessian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigvalsh

from privopt.mechanisms.nonconvex.second_order import CurvatureTest, Search, SecondOrderMechanism
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.step_counts import SPREAD, whole_steps
from privopt.oracles.indefinite.cubic import cubic_step
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class DPCubicNewton(SecondOrderMechanism):
    """Newton steps with a cubic penalty, on noisy gradients and Hessians.

    w+ = w + argmin over s of <g, s> + <s, (H + h I) s>/2 + r |s|^3/6, g and H the noisy derivatives at w.

    A step leaves a saddle at once, along the eigenvector of the least eigenvalue, and its length adapts to
    curvature. So the default T is some 20 to 50 where gradient descent needs hundreds, with accordingly less
    noise. h = sigma_H sqrt(2 d) is the typical largest eigenvalue of the noise of H; it keeps steps short
    where noise hides the curvature of F. r is rho / m^(3/2), as if rows were spread evenly over m = min(d,
    100) directions: r = rho, with which every step of a noiseless run descends, makes steps needlessly short.
    The rule for T, the share of Hessians, h and r were chosen on synthetic tasks; none matters for privacy or
    for the guarantee on the point.

    Every iterate has a noisy gradient and a noisy Hessian, so each is tested for an alpha-SOSP as in
    ``DPStationaryPoint``; the last one that passes is returned.

    Privacy: see ``SecondOrderMechanism``, with as many Hessians as gradients.

    Source: Ganesh, Haghifam, Steinke and Thakurta (2023), who bound the cubic method of Nesterov and Polyak
    (2006) under strong convexity. Differences: exact accounting; no convexity; h, r and the test. Their
    second method adds noise to the step instead of the Hessian ("double noise"), and its sensitivity depends
    on a lower bound on eigenvalues; the error is of the same order, and a noisy Hessian is a certificate as
    well.
    """

    name: ClassVar[str] = "dp-newton"
    usual_share: ClassVar[float] = 0.3
    usual_tests: ClassVar[int | None] = None

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, space: ConvexSet, regularizer: ElasticNet, mu: float, failure: float
    ) -> int:
        """Return five steps for every factor e by which a gradient may exceed its noise.

        mu is divided by the sensitivity, so a single step has noise 1 / mu. Where the loss has exponential
        tails, a Newton step moves predictions by about 1, which divides gradients by e.
        """
        return whole_steps(max(10.0, 5 * math.log(max(1.0, mu * facts.gradient_bound))))

    def _inescapable_curvature(self) -> float:
        """Return 0: a step uses the least eigenvalue, so noise alone limits the test."""
        return 0.0

    @property
    def damping(self) -> float:
        """The damping h added to the Hessian."""
        return self.hessian_noise.vector.sigma * math.sqrt(2 * self.facts.dimension)

    @property
    def cubic_coefficient(self) -> float:
        """The coefficient r of the cubic term."""
        spread = float(min(self.facts.dimension, SPREAD))
        return self.facts.hessian_lipschitz / (spread * math.sqrt(spread))

    def _search(self, risk: TwiceDifferentiableRisk, run: Run) -> Search:
        noisy, gradient = run.source is not None, self._gradients(risk, run)
        damped = self.damping * noisy * np.eye(run.start.size)
        clock = StepClock(run.watch, self.steps)
        trajectory, gradients, tests = [run.start], list[Vector](), list[CurvatureTest]()
        for k in range(min(self.steps, self.tests)):  # equal by the plan; no Hessian is unpaid
            clock.tick()
            w = trajectory[-1]
            gradients.append(gradient(w))
            H = self._noisy_hessian(risk, w, run)
            least = float(eigvalsh(H, subset_by_index=[0, 0])[0])
            tests.append(CurvatureTest(k, least, least, least >= self._eigenvalue_threshold(noisy)))
            trajectory.append(w + cubic_step(H + damped, gradients[-1], self.cubic_coefficient))
        for k in reversed(range(len(tests))):
            if tests[k].passed and float(np.linalg.norm(gradients[k])) <= self._gradient_threshold(noisy):
                return Search(trajectory[k], True, trajectory, gradients, tuple(tests))
        return Search(trajectory[-1], False, trajectory, gradients, tuple(tests))

"""DP-GD with its trajectory, and the selection of an approximate second-order stationary point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigvalsh

from privopt.mechanisms.nonconvex.second_order import CurvatureTest, Search, SecondOrderMechanism
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.problems.convex.regularizers import Vector
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class DPStationaryPoint(SecondOrderMechanism):
    """Noisy gradient descent, w+ = w - (grad F(w) + noise) / M, and the last iterate that passes a test.

    w is an alpha-SOSP (second-order stationary point) if |grad F(w)| <= alpha and the least eigenvalue of the
    Hessian is at least -sqrt(rho alpha). An iterate passes if its noisy gradient has norm at most alpha - t_g
    and its noisy Hessian has no eigenvalue below -gamma + t_H, where t_g, t_H are tail bounds of the noise at
    the stated ``failure``. So with probability 1 - failure an iterate that passes is an alpha-SOSP, with
    gamma for sqrt(rho alpha), for any data. The noise of the gradients moves iterates away from saddles. All
    T steps are made, and the trajectory is searched from its end, because its start may be near a saddle. A
    Hessian is computed only where the gradient has passed, and at most every T / tests steps. If no iterate
    passes, the last one is returned and marked.

    The default alpha is 3 t_g, the least at which small gradients surely pass. The default gamma is the
    curvature that T steps cannot escape (near a saddle of curvature -gamma noise grows by the factor 1 +
    gamma/M in each step), at most sqrt(rho alpha), but at least 2 t_H, the smallest that noisy Hessians can
    distinguish from 0.

    Privacy: see ``SecondOrderMechanism``; the trajectory is part of the release.

    Source: Wang, Chen and Xu (2019), Algorithms 4 and 5 (theorems 7 and 8). Differences: they return the
    first iterate that passes, which near the start may be the saddle itself; one noisy gradient serves both
    the step and the test; the number of Hessians is limited; tests allow for their noise, so that a pass is a
    guarantee; Frobenius sensitivities are for one replaced record.
    """

    name: ClassVar[str] = "dp-sosp"

    def _inescapable_curvature(self) -> float:
        """Return the curvature below which noise of eta sigma does not grow to about M/rho in T steps.

        The noise grows by the factor 1 + gamma/M in each step; at a distance of about M/rho the curvature has
        changed.
        """
        grown = self.smoothness**2 / (self.facts.hessian_lipschitz * self.gradient_noise.sigma)
        return self.smoothness * math.log1p(grown) / self.steps

    @property
    def step_sizes(self) -> tuple[float, float]:
        return 1 / self.smoothness, 1 / self.smoothness

    def _search(self, risk: TwiceDifferentiableRisk, run: Run) -> Search:
        noisy, gradient = run.source is not None, self._gradients(risk, run)
        clock = StepClock(run.watch, self.steps)
        trajectory, gradients, tests = [run.start], list[Vector](), list[CurvatureTest]()
        for _ in range(self.steps):
            clock.tick()
            gradients.append(gradient(trajectory[-1]))
            trajectory.append(trajectory[-1] - gradients[-1] / self.smoothness)
        looked = self.steps + self.test_interval
        for k in reversed(range(self.steps)):
            if (
                float(np.linalg.norm(gradients[k])) <= self._gradient_threshold(noisy)
                and k <= looked - self.test_interval
            ):
                looked = k
                H = self._noisy_hessian(risk, trajectory[k], run)
                least = float(eigvalsh(H, subset_by_index=[0, 0])[0])
                tests.append(CurvatureTest(k, least, least, least >= self._eigenvalue_threshold(noisy)))
                if tests[-1].passed:
                    return Search(trajectory[k], True, trajectory, gradients, tuple(tests))
        return Search(trajectory[-1], False, trajectory, gradients, tuple(tests))

"""DP-GD that returns its trajectory, and the selection of an approximate second-order stationary point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import eigvalsh

from privopt.mechanisms.convex.iteration import StepClock
from privopt.mechanisms.convex.mechanism import checked_space
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.nonconvex.second_order import CurvatureTest, Search, SecondOrderMechanism
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class DPStationaryPoint(SecondOrderMechanism):
    """Noisy gradient descent, w+ = w - (grad F(w) + noise) / M, until an iterate is seen to be an alpha-SOSP.

    w is an alpha-SOSP if |grad F(w)| <= alpha and the least eigenvalue of the Hessian is at least -sqrt(rho
    alpha). An iterate passes if its noisy gradient is at most alpha - t_g long and its noisy Hessian has no
    eigenvalue below -sqrt(rho alpha) + t_H, the tails t_g, t_H of the noise at the stated ``failure``: what
    passes is an alpha-SOSP with probability 1 - failure, whatever the data. The noise of the gradients
    carries iterates away from saddles; a Hessian is looked at only where the gradient has passed, and at
    most every T / tests steps. None found is an
    answer: the last iterate, marked.

    By default alpha is the least at which small gradients are sure to pass, 3 t_g, and sqrt(rho alpha) at
    least 2 t_H; ``gamma`` may take the place of sqrt(rho alpha), which is large where rho is.

    Privacy: see ``SecondOrderMechanism``; the trajectory is part of the release.

    Source: Wang, Chen and Xu (2019), Algorithms 4 and 5 (theorem 7). Differences: one noisy gradient serves
        both the
    step and the test; Hessians are capped; tests allow for their noise, so that what passes is certain;
    Frobenius sensitivities are those of one record. For what can be hoped for at best see Liu and Talwar
    (2024): rates published before for second-order points rested on an escape argument that was wrong;
        theirs is alpha of order
    n^(-1/3) + (sqrt(d)/(n epsilon))^(1/2).
    """

    name: ClassVar[str] = "dp-sosp"

    @classmethod
    def _space(cls, facts: RiskFacts, convex_set: ConvexSet | None) -> ConvexSet:
        space = checked_space(facts, convex_set)
        if not isinstance(space, WholeSpace):
            raise PrivacyParameterError(
                f"dp-sosp takes no constraint, got {type(space).__name__}: use dp-gd-so"
            )
        return space

    def _floors(self) -> tuple[float, float, float]:
        return self.gradient_tail, self.hessian_tail, 3 * self.gradient_tail

    @property
    def step_sizes(self) -> tuple[float, float]:
        return 1 / self.smoothness, 1 / self.smoothness

    def _search(
        self, risk: TwiceDifferentiableRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> Search:
        noisy = source is not None
        flat = self.alpha - self.gradient_tail * noisy
        curved = -self.gamma + self.hessian_tail * noisy
        clock, looked = StepClock(watch, self.steps), -math.inf
        trajectory, gradients, tests = [start], list[Vector](), list[CurvatureTest]()
        for k in range(self.steps):
            clock.tick()
            w = trajectory[-1]
            g = self._noisy_gradient(risk, w, source)
            gradients.append(g)
            if float(np.linalg.norm(g)) <= flat and k >= looked + self.patience:
                looked = k
                H = self._noisy_hessian(risk, w, source)
                least = float(eigvalsh(H, subset_by_index=[0, 0])[0])
                tests.append(CurvatureTest(k, least, least, least >= curved))
                if tests[-1].passed:
                    return Search(w, True, trajectory, gradients, tuple(tests))
            trajectory.append(w - g / self.smoothness)
        return Search(trajectory[-1], False, trajectory, gradients, tuple(tests))

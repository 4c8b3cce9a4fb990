"""DP-GD-SO: approximate local minima over a convex set, with linear and quadratic oracles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privopt.mechanisms.nonconvex.second_order import CurvatureTest, Search, SecondOrderMechanism
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.indefinite.interface import HalfSpace
from privopt.oracles.indefinite.select import indefinite_minimizer
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class DPConstrainedStationaryPoint(SecondOrderMechanism):
    """DP-GD-SO: steps towards v = argmin <g, v>, or along negative curvature in C where those gain little.

    w in C is an alpha-SOSP (second-order stationary point) if <grad F, w' - w> >= -alpha for all w' in C, and
    (w' - w)' Hess F (w' - w) >= -sqrt(rho alpha) for all w' in C with <grad F, w' - w> = 0. With D the
    diameter of C and t_g, t_H the tail bounds of the noise:

    - w+ = w + eta (v - w), eta = -<g, v - w> / (M |v - w|^2), at most 1;
    - but where <g, v - w> >= -alpha/2, at most every T / tests steps, u minimises q(u) = (u - w)' H (u - w)
      over all u in C with <g, u - w> <= r = D t_g. If q(u) is not *proved* to be at least -gamma/2 for all u:
      w+ = w + theta (u - w), theta = -q(u) / (rho |u - w|^3), at most 1;
    - otherwise w passes the test. All T steps are paid for, so the iteration continues: the last iterate that
      passed is the answer.

    The listing in the paper stops at the first iterate that passes, and always takes the smallest of these
    steps, alpha / (2 D^2 M) and sqrt(alpha / rho) / (2 D^3). The longer steps used here minimise both bounds
    on F, or nearly.

    A point returned as found is an alpha-SOSP, with gamma for sqrt(rho alpha), with probability 1 - failure:
    <grad F, w' - w> >= -alpha/2 - D t_g; a w' with <grad F, w' - w> = 0 has <g, w' - w> <= D t_g = r, so it
    is feasible for u, and its true curvature is at least -gamma/2 - D^2 t_H. The plan ensures that D t_g <=
    alpha/4 and D^2 t_H <= gamma/4. Without noise a step of the first kind gains at least alpha^2 / (8 D^2 M),
    a step of the second kind at least (Phi/2 - 1/6) gamma^3 / (8 rho^2 D^6), where Phi is the proved factor
    by which q(u) approximates the minimum (``CurvatureTest.phi``), so T of the order of the reciprocals
    suffices (compare Mokhtari, Ozdaglar and Jadbabaie 2018, whose steps these are).

    The oracles receive noisy quantities only. Over balls, vertices and polytopes they come from
    ``privopt.oracles.indefinite``. Where an oracle does not finish its proof, the step is made and the
    iteration continues.

    Privacy: see ``SecondOrderMechanism``: T gradients and ``tests`` Hessians are paid for.

    Source: Wang, Chen and Xu (2019), Algorithm 6 (Theorem 9), whose printed constants are partly illegible;
    r, theta and the conditions on the noise are derived above.
    """

    name: ClassVar[str] = "dp-gd-so"
    takes_set: ClassVar[bool] = True
    wants_bounded_set: ClassVar[bool] = True

    def _floors(self) -> tuple[float, float, float]:
        across = self.convex_set.diameter
        needed = 4 * across * self.gradient_tail
        return needed * (1 - 1e-9), 4 * across**2 * self.hessian_tail * (1 - 1e-9), needed

    def _inescapable_curvature(self) -> float:
        """Return 0: steps of the second kind use negative curvature, so noise alone limits the test."""
        return 0.0

    @property
    def step_sizes(self) -> tuple[float, float]:
        """The smallest step sizes, towards v and towards u."""
        across = self.convex_set.diameter
        eta = min(1.0, self.alpha / (2 * across**2 * self.smoothness))
        theta = min(1.0, self.gamma / (2 * self.facts.hessian_lipschitz * across**3))
        return eta, theta

    def _search(self, risk: TwiceDifferentiableRisk, run: Run) -> Search:
        minimize, gradient = linear_minimizer(self.convex_set), self._gradients(risk, run)
        room = self.convex_set.diameter * self.gradient_tail * (run.source is not None)
        clock = StepClock(run.watch, self.steps)
        trajectory, gradients, tests = [run.start], list[Vector](), list[CurvatureTest]()
        for k in range(self.steps):
            clock.tick()
            w = trajectory[-1]
            g = gradient(w)
            gradients.append(g)
            v = minimize(g).point
            slope, end = float(g @ (v - w)), v
            rate = -slope / (self.smoothness * max(float(np.sum((v - w) ** 2)), 1e-300))
            if slope >= -self.alpha / 2 and (not tests or k >= tests[-1].step + self.test_interval):
                test, u = self._least_curvature(k, w, g, self._noisy_hessian(risk, w, run), room, run.watch)
                tests.append(test)
                if not test.passed:
                    cubic_coefficient = self.facts.hessian_lipschitz * float(np.linalg.norm(u - w)) ** 3
                    rate, end = -test.curvature / max(cubic_coefficient, 1e-300), u
            trajectory.append(w + min(1.0, max(0.0, rate)) * (end - w))
        passed = [test.step for test in tests if test.passed]
        point = trajectory[passed[-1] if passed else -1]
        return Search(point, bool(passed), trajectory, gradients, tuple(tests))

    def _least_curvature(
        self, step: int, w: Vector, g: Vector, H: Vector, room: float, watch: Watch
    ) -> tuple[CurvatureTest, Vector]:
        """Minimise (u - w)' H (u - w), with a proved bound, as u' H u - 2 <H w, u> + w' H w."""
        cut = HalfSpace(g, float(g @ w) + room) if np.any(g) else None
        oracle = indefinite_minimizer(self.convex_set, 2 * H, cut)
        limits = replace(watch.rest, on_progress=None)
        found = oracle.minimize(-2 * (H @ w), limits)
        constant = float(w @ H @ w)
        value, bound = found.value + constant, min(found.bound, found.value) + constant
        return CurvatureTest(step, value, bound, bound >= -self.gamma / 2), found.point

"""DP-GLD: gradient Langevin dynamics, where the diffusion itself is the privacy noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Method, Output, Run, StepClock, choose_output, noisy_iteration
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, RealRelease, RiskTarget
from privopt.mechanisms.risk.options import StepOptions
from privopt.mechanisms.risk.step_counts import loss_range, whole_steps
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.whole_space import WholeSpace


@dataclass(frozen=True)
class EnergyTrace:
    """Diagnostics of a run, computed from iterates and noisy gradients alone: as private as the release.

    Attributes:
        norms: |w_k|_2 for k = 1, ..., shape (steps + 1,).
        energy: an unbiased estimate of F^r(w_k) - F^r(w_1), up to the curvature of the path, shape (steps +
            1,): the noisy gradients integrated along the path by the trapezoid rule. A step follows the noise
            of the gradient at its start, which biases the product of step and gradient by -eta sigma^2 d;
            this bias is corrected.
        deviation: standard deviation of the noise in ``energy``, shape (steps + 1,), to first order.
    """

    norms: Vector
    energy: Vector
    deviation: Vector


@dataclass(frozen=True)
class LangevinRelease(RealRelease):
    """A released point and the diagnostics of its run."""

    trace: EnergyTrace | None = None


@dataclass(frozen=True)
class DPLangevin(FullBatchMechanism):
    """DP-GLD: w+ = w - eta (grad F(w) + l2 w) + sqrt(2 eta / beta) xi, xi standard normal.

    Noise of standard deviation sigma on each coordinate of the mean gradient moves w by eta sigma, which is
    the diffusion of temperature 1/beta at eta = 2 / (beta sigma^2). So at a given privacy T and beta
    determine the step size, and at the same beta more steps discretise the same time T eta more finely. As
    eta goes to 0, the law of w tends, with time, to the density proportional to exp(-beta F^r(w)).

    The default beta follows the theory: max(d, (n mu)^(2/3)) over the range of the loss, mu the budget in GDP
    (the exponent balances Theorem 3 for a constant C). The default T is the least with eta <= 1 / (2 (L +
    l2)); the discretisation error is about eta (L + l2) / 2. If this T is more than ``MOST_STEPS`` steps, or
    T is given, beta is raised to the value that T steps allow: a lower temperature at the same privacy.

    Privacy: as ``FullBatchMechanism``; the whole path, ``EnergyTrace`` included, is covered.

    Source: Wang, Chen and Xu (2019), Algorithm 1 (last iterate: Theorem 2; random iterate: Theorem 3). Their
    listing omits the regulariser of their equation (1), which is included here as (lambda / 2) |w|^2. Their
    step size c n^2 epsilon^2 / (L^2 beta T log(1/delta)) with a constant c is replaced by the exact one.

    Attributes:
        beta: the inverse temperature.
    """

    name: ClassVar[str] = "dp-gld"
    takes_set: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = False
    instead: ClassVar[str] = "a ridge penalty keeps its iterates bounded"

    beta: float

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, beta: float | None = None, **options: Unpack[StepOptions]
    ) -> Self:
        """Calibrate to a target.

        Args:
            target, options: see ``FullBatchMechanism``.
            beta: inverse temperature, in units of 1 / loss.

        Raises:
            PrivacyParameterError: ``steps`` and ``beta`` that make the step size unstable.
        """
        facts, regularizer, steps = target.facts, target.regularizer, options.get("steps")
        # eta = 2 (mu / sensitivity)^2 / (beta T), so T eta beta is fixed by the budget.
        stable, reach = _stable(facts, regularizer), 2 * target.precision**2
        wanted = default_beta(facts, target.mu) if beta is None else check_positive(beta, "beta")
        steps = whole_steps(reach / (wanted * stable)) if steps is None else check_count(steps, "steps")
        if beta is None:
            wanted = max(wanted, reach / (steps * stable))
        noise, spend = target.gaussian(cls.name, steps=steps, sensitivity=facts.sensitivity)
        returned = options.get("output") or Output.LAST
        made = cls(facts, target.convex_set, regularizer, spend, steps, returned, noise, wanted)
        if made.step_size >= 4 * stable:
            needed = math.ceil(reach / (2 * wanted * stable))
            raise PrivacyParameterError(
                f"beta = {wanted:.4g} with {steps} steps makes the step size {made.step_size:.4g}, and from "
                f"{4 * stable:.4g} on Langevin dynamics diverge: at least {needed} steps, or a larger beta"
            )
        return made

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        wanted = default_beta(target.facts, target.mu)
        return whole_steps(2 * target.precision**2 / (wanted * _stable(target.facts, target.regularizer)))

    @property
    def step_size(self) -> float:
        """The step size eta."""
        return 2 / (self.beta * self.vector_noise.sigma**2)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    @property
    def noise(self) -> dict[str, float]:
        return {**super().noise, "beta": self.beta}

    def _method(self, start: Vector) -> Method:
        l2, eta = self.regularizer.l2, self.step_size
        return Method(start, lambda _k, _state, w, g: w - eta * (g + l2 * w))

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> LangevinRelease:
        """Run once; the trace covers the whole run."""
        steps = self._drawn_steps(run.source)
        path, gradients = [run.start], []
        add = run.perturbation(self.vector_noise, steps)

        def perturb(g: Vector) -> Vector:
            gradients.append(add(g))
            return gradients[-1]

        clock = StepClock(run.watch, steps)
        path += noisy_iteration(self._method(run.start), risk.gradient, perturb, steps, clock)
        trace = self._trace(np.stack(path), np.array(gradients).reshape(steps, run.start.size))
        point = choose_output(iter(path[1:]), self.output, run.start)
        return LangevinRelease(point, spend, self.noise, trace=trace)

    def _trace(self, path: Vector, gradients: Vector) -> EnergyTrace:
        """Integrate gradients along the path; for the last step only the gradient at its start is known."""
        sigma, eta, d = self.vector_noise.sigma, self.step_size, path.shape[1]
        moves, slopes = np.diff(path, axis=0), gradients + self.regularizer.l2 * path[:-1]
        before = np.sum(slopes * moves, axis=1) + eta * sigma**2 * d
        after = np.append(np.sum(slopes[1:] * moves[:-1], axis=1), before[-1:])
        lengths = np.sum(moves**2, axis=1)
        energy = np.append(0.0, np.cumsum((before + after) / 2))
        deviation = np.append(0.0, sigma * np.sqrt(np.cumsum(lengths)))
        return EnergyTrace(np.linalg.norm(path, axis=1), energy, deviation)


def _stable(facts: RiskFacts, regularizer: ElasticNet) -> float:
    """Return the target step size, a quarter of the smallest one that diverges."""
    return 1 / (2 * (facts.smoothness + regularizer.l2))


def default_beta(facts: RiskFacts, mu: float) -> float:
    """Return the default inverse temperature: max(d, (n mu)^(2/3)) over the range of the loss."""
    scale = loss_range(facts, WholeSpace(facts.dimension))
    cold: float = (facts.n_records * mu) ** (2 / 3)
    return max(float(facts.dimension), cold) / scale

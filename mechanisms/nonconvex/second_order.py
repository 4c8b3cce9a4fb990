"""Base of private searches for approximate local minima: noise, budget, and certified tests."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy import stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level
from privopt.mechanisms.privacy.matrix_noise import MatrixNoise
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Perturb, Run
from privopt.mechanisms.risk.mechanism import RealRelease, RiskTarget, SteppedMechanism
from privopt.mechanisms.risk.step_counts import MOST_STEPS, loss_range, whole_steps
from privopt.oracles.convex.smooth import SmoothCertificate
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk


@dataclass(frozen=True)
class CurvatureTest:
    """One test of a noisy Hessian.

    Attributes:
        step: index of the iterate, from 0.
        curvature: the least curvature found, from noisy quantities alone.
        bound: a proved lower bound on the least curvature; equal to ``curvature`` if that is an eigenvalue.
        passed: whether the negative curvature is small enough.
    """

    step: int
    curvature: float
    bound: float
    passed: bool

    @property
    def phi(self) -> float:
        """The proved factor Phi by which the curvature found approximates the least one, in [0, 1]."""
        return 1.0 if self.bound >= 0 else min(1.0, max(0.0, self.curvature / self.bound))


@dataclass(frozen=True)
class LocalMinimumRelease(RealRelease):
    """A released point, whether it passed the test, and the trajectory: all of it covered by ``spend``.

    Attributes:
        found: whether ``point`` passed the test. If not, ``point`` is the last iterate, without a guarantee.
        alpha: the tested tolerance on gradients.
        trajectory: all iterates up to the point, shape (k, p).
        gradients: the noisy gradients computed at them, shape (k, p) or (k - 1, p).
        tests: the tests of all Hessians computed.
    """

    found: bool = False
    alpha: float = math.nan
    trajectory: Vector = dataclasses.field(default_factory=lambda: np.empty((0, 0)), repr=False)
    gradients: Vector = dataclasses.field(default_factory=lambda: np.empty((0, 0)), repr=False)
    tests: tuple[CurvatureTest, ...] = ()


@dataclass(frozen=True)
class Search:
    """Result of a run, before it becomes a release."""

    point: Vector
    found: bool
    trajectory: list[Vector]
    gradients: list[Vector]
    tests: tuple[CurvatureTest, ...]


@dataclass(frozen=True)
class SecondOrderMechanism(SteppedMechanism):
    """Search for a point that noisy gradients and Hessians certify as an approximate local minimum.

    Privacy: mu-GDP, stated as (epsilon, delta); neighbours by replacing one record, n public. T gradients of
    sensitivity 2 G / n spend (1 - hessian_share) mu^2. ``tests`` Hessians of Frobenius sensitivity 2 M_F / n
    spend the rest, where M_F bounds one record's Hessian: M for linear models, whose Hessians have rank one
    (sqrt(d) M always holds but is larger). All are adaptive Gaussian releases, so they compose exactly (Dong,
    Roth and Su 2022). Unused Hessians are paid for as well.

    Attributes:
        alpha, gamma: tolerances of the test, on gradients and on negative curvature; ``failure`` bounds the
            probability that any point that passes violates them.
        usual_share, usual_tests: class defaults of ``hessian_share`` and ``tests``; None: a Hessian every
            step.
        tests: the largest number of Hessians that a run computes.
        failure: probability that the noise exceeds the tail bounds, over the whole run.
        hessian_share: the part of mu^2 for Hessians.
        gradient_noise, hessian_noise: the noise.
    """

    noised: ClassVar[str] = "the mean gradient, every step, and the mean Hessian, every test"
    takes_set: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = False
    instead: ClassVar[str] = "use dp-gd-so for sets, dp-gld for other losses, dp-pgd for an l1 penalty"
    usual_share: ClassVar[float] = 0.1
    usual_tests: ClassVar[int | None] = 10

    alpha: float
    gamma: float
    tests: int
    failure: float
    hessian_share: float
    gradient_noise: VectorNoise
    hessian_noise: MatrixNoise

    @classmethod
    def _calibrated(
        cls,
        target: RiskTarget,
        steps: int | None = None,
        alpha: float | None = None,
        gamma: float | None = None,
        tests: int | None = None,
        hessian_share: float | None = None,
        failure: float = 0.05,
    ) -> Self:
        """Calibrate to a target.

        Args:
            target, steps: see ``FullBatchMechanism``.
            alpha: tolerance on the gradient; by default the least that the noise permits.
            gamma: accepted negative curvature, sqrt(rho alpha) for an alpha-SOSP; by default less if T steps
                escape weaker curvature, and more where noise hides it.
            tests: number of Hessians to pay for, by default ``usual_tests``; tests are spread over the steps.
            hessian_share: the part of mu^2 for Hessians, in (0, 1); by default ``usual_share``.
            failure: allowed probability that a found point violates the tolerances, in (0, 1).

        Raises:
            PrivacyParameterError: parameters out of range, or an alpha below the noise: the message says
                which values are possible.
        """
        facts, space, regularizer = target.facts, target.convex_set, target.regularizer
        hessian_share = cls.usual_share if hessian_share is None else hessian_share
        _check_shares(hessian_share=hessian_share, failure=failure)
        together = target.releases
        mu = gaussian_mu(target.epsilon, target.delta) * (1 - 1e-12)  # rounding of the sum of two squares
        for_gradients, for_hessians = mu * math.sqrt(1 - hessian_share), mu * math.sqrt(hessian_share)
        if steps is None:
            each = for_gradients / math.sqrt(together) / facts.sensitivity
            steps = cls._default_steps(facts, space, regularizer, each, failure)
        tests = cls._checked_tests(check_count(steps, "steps"), tests)
        gradients = noise_at_level(
            for_gradients, steps * together, facts.sensitivity, facts.dimension, facts.n_records
        )
        entries = _noise_of_entries(facts, for_hessians, tests * together)
        level = math.hypot(gradients.level(steps * together), entries.level(tests * together))
        made = cls(
            facts,
            space,
            regularizer,
            target.gdp_spend(cls.name, level),
            steps,
            alpha=1.0,
            gamma=1.0,
            tests=tests,
            failure=failure,
            hessian_share=hessian_share,
            gradient_noise=gradients,
            hessian_noise=MatrixNoise(entries, facts.dimension),
        )
        return made._with_tolerances(alpha, gamma)

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Also refuse losses whose Hessian has no known Lipschitz constant."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if not math.isfinite(facts.hessian_lipschitz) or facts.hessian_lipschitz == 0:
            loss = type(facts.loss).__name__
            reasons.append(f"needs a Lipschitz constant of the Hessian, and {loss} declares none")
        return reasons

    @classmethod
    def _checked_tests(cls, steps: int, tests: int | None) -> int:
        """Return the number of Hessians paid for, at most the number of steps."""
        looks = (cls.usual_tests or steps) if tests is None else check_count(tests, "tests")
        if cls.usual_tests is None and looks < steps:
            raise PrivacyParameterError(f"{cls.name} looks at a Hessian every step: tests is {steps}")
        return min(steps, looks)

    def _with_tolerances(self, alpha: float | None, gamma: float | None) -> Self:
        """Return the plan with the tolerances alpha and gamma, by default those that its noise permits."""
        steep, curved, usual = self._floors()
        alpha = usual if alpha is None else alpha
        if check_positive(alpha, "alpha") <= steep:
            raise PrivacyParameterError(
                f"alpha = {alpha:.4g} is lost in the noise, which stays below {steep:.4g} at best: "
                f"take {usual:.4g} or more, or more records, a larger epsilon, or fewer steps"
            )
        if gamma is None:
            gamma = math.sqrt(self.facts.hessian_lipschitz * alpha)
            gamma = max(2 * curved, min(gamma, self._inescapable_curvature()))
        elif check_positive(gamma, "gamma") <= curved:
            raise PrivacyParameterError(
                f"gamma = {gamma:.4g} is lost in the noise of Hessians, below {curved:.4g} at best: "
                "a larger gamma, a larger hessian_share, more records, or fewer tests"
            )
        return dataclasses.replace(self, alpha=alpha, gamma=gamma)

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, space: ConvexSet, regularizer: ElasticNet, mu: float, failure: float
    ) -> int:
        """Return the T at which descent reaches its noise; its best step has |grad F|^2 <= 2 M B / T.

        mu is divided by the sensitivity, so sigma = sqrt(T) / mu; the tail of the noise is taken at the
        largest T.
        """
        tail = math.sqrt(float(stats.chi2.isf(failure / (2 * MOST_STEPS), facts.dimension))) / mu
        gain = 2 * loss_range(facts, space) * (facts.smoothness + regularizer.l2)
        return whole_steps(math.sqrt(gain) / tail)

    def _floors(self) -> tuple[float, float, float]:
        """Return the lower limits of alpha and gamma, and an alpha at which small gradients pass."""
        return self.gradient_tail, self.hessian_tail, 3 * self.gradient_tail

    @abstractmethod
    def _inescapable_curvature(self) -> float:
        """Return the negative curvature that T steps are too few to escape."""

    @abstractmethod
    def _search(self, risk: TwiceDifferentiableRisk, run: Run) -> Search:
        """Run the search."""

    @property
    def noise(self) -> dict[str, float]:
        return {
            "sigma": self.gradient_noise.sigma,
            "sigma_hessian": self.hessian_noise.vector.sigma,
            "alpha": self.alpha,
            "gamma": self.gamma,
        }

    @property
    def smoothness(self) -> float:
        """Smoothness of the penalised risk."""
        return self.facts.smoothness + self.regularizer.l2

    @property
    def gradient_tail(self) -> float:
        """Bound on the norm of all gradients' noise, violated with probability at most failure / 2."""
        share = self.failure / (2 * self.steps)
        return self.gradient_noise.sigma * math.sqrt(float(stats.chi2.isf(share, self.facts.dimension)))

    @property
    def hessian_tail(self) -> float:
        """Bound on the eigenvalues of all Hessians' noise, violated with probability at most failure / 2."""
        return self.hessian_noise.spectral_tail(self.failure / (2 * self.tests))

    def _gradient_threshold(self, noisy: bool) -> float:
        """Return the noisy gradient norm up to which the exact norm is certified to be at most alpha."""
        return self.alpha - self.gradient_tail * noisy

    def _eigenvalue_threshold(self, noisy: bool) -> float:
        """Return the noisy least eigenvalue from which the exact one is certified to be at least -gamma."""
        return -self.gamma + self.hessian_tail * noisy

    @property
    def test_interval(self) -> int:
        """Steps between two tests of Hessians, so that there are at most ``tests``."""
        return -(-self.steps // self.tests)

    def _gradients(self, risk: TwiceDifferentiableRisk, run: Run) -> Perturb:
        """Return w -> the noisy gradient of the penalised risk, for T steps."""
        add = run.perturbation(self.gradient_noise, self.steps)
        return lambda w: np.asarray(add(risk.gradient(w)) + self.regularizer.l2 * w)

    def _noisy_hessian(self, risk: TwiceDifferentiableRisk, w: Vector, run: Run) -> Vector:
        exact = risk.hessian(w)
        H = exact if run.source is None else self.hessian_noise.add(exact, run.source)
        return np.asarray(H + self.regularizer.l2 * np.eye(len(H)))

    def _run(self, risk: TwiceDifferentiableRisk, run: Run) -> tuple[Vector, SmoothCertificate | None]:
        return self._search(risk, run).point, None

    def _released(self, risk: TwiceDifferentiableRisk, run: Run, spend: PrivacySpend) -> LocalMinimumRelease:
        """Run once; the start may be a saddle point."""
        done = self._search(risk, run)
        return LocalMinimumRelease(
            done.point,
            spend,
            self.noise,
            found=done.found,
            alpha=self.alpha,
            trajectory=np.stack(done.trajectory),
            gradients=np.stack(done.gradients),
            tests=done.tests,
        )


def _noise_of_entries(facts: RiskFacts, mu: float, hessians: int) -> VectorNoise:
    """Calibrate the noise of the entries of a number of Hessians whose releases are mu-GDP together."""
    sensitivity, d = facts.hessian_sensitivity * (1 + 1e-12), facts.dimension
    return noise_at_level(mu, hessians, sensitivity, d * (d + 1) // 2, facts.n_records)


def _check_shares(**shares: float) -> None:
    """Raise PrivacyParameterError unless all lie in (0, 1)."""
    for name, value in shares.items():
        if not 0 < check_positive(value, name) < 1:
            raise PrivacyParameterError(f"{name} must lie in (0, 1), got {value!r}")

"""Output and objective perturbation of ridge-regularised convex risks, with approximate minima.

Both release a function of a minimum, so both fail closed without a certificate that the minimum is as good as
the plan assumed. *That* a release failed, and how long it took, are outside the guarantee.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.accounting import gaussian_mu
from privopt.mechanisms.calibration import sound_sigma
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.first_order import Output, RiskMechanism, checked_space, typical_distance
from privopt.mechanisms.gradient_noise import VectorNoise, gaussian_releases, gaussian_steps, shared_by
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.spend import PrivacySpend
from privopt.oracles.closed_form import projector
from privopt.oracles.interface import Watch
from privopt.oracles.smooth import SmoothCertificate, minimize_ridge
from privopt.problems.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.risk import EmpiricalRisk, RiskFacts
from privopt.problems.sets import ConvexSet

# Gradient norm that the solver must prove, in units of G / n: its share of the sensitivity is that share.
_OUTPUT_TOLERANCE, _OBJECTIVE_TOLERANCE = 1e-3, 1e-5
# Shares of epsilon and delta of objective perturbation that hide the distance from the exact minimum, and the
# share of epsilon that the Hessians may take.
_HIDING_EPSILON, _HIDING_DELTA, _HESSIAN_EPSILON = 0.05, 0.1, 0.25


@dataclass(frozen=True)
class OutputPerturbation(RiskMechanism):
    """The minimum of F(w) + (l2/2) |w|^2 plus Gaussian noise, projected onto C.

    Privacy: mu-GDP, one Gaussian release, stated as (epsilon, delta); neighbours by replacing one record, n
    public. Exact minima of neighbours are within 2 G / (n l2) (Chaudhuri, Monteleoni and Sarwate 2011); a
    minimum with gradient norm at most ``tolerance`` adds tolerance / l2 on either side.

    A penalty l2 = 0 in the plan is replaced by the one that balances its bias against the noise
    (``output_penalty``); ``regularizer`` tells which.
    """

    name: ClassVar[str] = "output-perturbation"
    noised: ClassVar[str] = "the minimum, each coordinate, once"

    tolerance: float
    vector_noise: VectorNoise

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts. The arguments are those of ``FullBatchMechanism.plan``.

        Raises:
            PrivacyParameterError: parameters out of range, an l1 penalty, or a loss that is not convex.
            UnsupportedProblemError: no projection onto the set.
        """
        space = _check(cls.name, facts, convex_set, regularizer)
        mu = gaussian_mu(epsilon, delta) / math.sqrt(check_count(releases, "releases"))
        l2 = regularizer.l2 or output_penalty(facts, space, mu)
        tolerance = _tolerance(facts, _OUTPUT_TOLERANCE)
        sensitivity = (2 * facts.gradient_bound / facts.n_records + 2 * tolerance) / l2
        # |w| is at most n/2 sensitivities: the rounding of w / grid is relative to that.
        sensitivity *= 1 + 1e-12 + facts.n_records * 2.0**-51
        noise, spend = gaussian_releases(
            *(epsilon, delta, cls.name),
            steps=1,
            releases=releases,
            sensitivity=sensitivity,
            dimension=facts.dimension,
        )
        return cls(facts, space, ElasticNet(l2=l2), 1, Output.LAST, spend, tolerance, noise)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}

    @property
    def step_sizes(self) -> None:
        """None: a minimum is found, and noised once."""

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, SmoothCertificate]:
        """Raises CertificateError, and releases nothing, if the minimum is not proved to be good enough."""
        answer = minimize_ridge(risk, self.regularizer.l2, self.tolerance, watch=watch)
        w = answer.require(self.tolerance)
        if source is not None:
            w = self.vector_noise.add(w, source)
        return projector(self.convex_set)(w), answer.certificate


@dataclass(frozen=True)
class ObjectivePerturbation(RiskMechanism):
    """The minimum of F(w) + (l2/2) |w|^2 + <b, w>, b Gaussian, plus a little noise, projected onto C.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. Let w be the
    exact minimum under b. On a neighbour it is the minimum under b + v, v the difference of two gradients
    divided by n, so |v| <= 2 G / n; the Hessians differ in two rank-one terms, so their determinants differ
    by a factor of at most 1 + L / (n l2). v depends on w and so on b, but stays in the plane of the two
    rows: <b, v> is bounded by |v| times the norm of b in that plane, sigma times a chi variable with 2
    degrees of freedom, whose law gives sigma (as for OPDisc, ``shift_delta``). The distance from the exact
    minimum, at most tolerance / l2, is hidden by Gaussian noise on the output.

    l2 is raised to what the Hessian term needs; ``regularizer`` tells.

    Source: Chaudhuri, Monteleoni and Sarwate (2011), Kifer, Smith and Thakurta (2012), and for approximate
    minima Iyengar et al. (2019). The calibration is not theirs: it follows from the bound above.
    """

    name: ClassVar[str] = "objective-perturbation"
    noised: ClassVar[str] = (
        "sigma: a linear term of the objective, each coordinate; output_sigma: its minimum"
    )

    tolerance: float
    sigma: float
    vector_noise: VectorNoise

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts. Raises as ``OutputPerturbation.plan``.

        Several releases have an even share of epsilon and delta each (basic composition: the proof is in
        no notion that composes better).
        """
        space = _check(cls.name, facts, convex_set, regularizer)
        whole = (check_epsilon(epsilon), check_delta(delta))
        epsilon, delta = (x / check_count(releases, "releases") for x in whole)
        if releases > 1:  # so that rounding cannot make the shares more than the whole
            epsilon, delta = epsilon * (1 - 1e-15), delta * (1 - 1e-15)
        n = facts.n_records
        factor = math.expm1(min(_HESSIAN_EPSILON * epsilon, 700.0))  # as large as doubles hold
        l2 = max(regularizer.l2, facts.smoothness / (n * factor))
        hessian = math.log1p(facts.smoothness / (n * l2)) * (1 + 1e-12)
        tolerance = _tolerance(facts, _OBJECTIVE_TOLERANCE)
        hiding = gaussian_steps(
            _HIDING_EPSILON * epsilon,
            _HIDING_DELTA * delta,
            steps=1,
            sensitivity=2 * tolerance / l2 * (1 + 1e-12),
            dimension=facts.dimension,
        )
        sigma = sound_sigma(
            (1 - _HIDING_EPSILON) * epsilon - hessian,
            (1 - _HIDING_DELTA) * delta,
            2 * facts.gradient_bound / n * (1 + 1e-12),
            min(2, facts.dimension),
        )
        note = shared_by(releases, f"({epsilon:.4g}, {delta:.3g}) each")
        spend = PrivacySpend.approximate(*whole, cls.name, note=note)
        return cls(facts, space, ElasticNet(l2=l2), 1, Output.LAST, spend, tolerance, sigma, hiding)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.sigma, "output_sigma": self.vector_noise.sigma, "l2": self.regularizer.l2}

    @property
    def step_sizes(self) -> None:
        """None: a minimum is found, and noised once."""

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, SmoothCertificate]:
        """Raises CertificateError, and releases nothing, if the minimum is not proved to be good enough."""
        l2, onto = self.regularizer.l2, projector(self.convex_set)
        if source is None:
            answer = minimize_ridge(risk, l2, self.tolerance, watch=watch)
            return onto(answer.require(self.tolerance)), answer.certificate
        b = source.gaussian(self.sigma, self.facts.dimension)
        # Doubles stand for the real numbers that they were rounded from, which moves the minimum as well: b,
        # whose small coordinates are rounded in units of sigma, and w / grid, where |w| <= (G + |b|) / l2.
        drawn = float(np.linalg.norm(b)) + self.sigma * math.sqrt(self.facts.dimension)
        rounding = 2.0**-48 * (drawn + self.facts.gradient_bound)
        answer = minimize_ridge(risk, l2, self.tolerance, linear=b, watch=watch)
        w = self.vector_noise.add(answer.require(self.tolerance - rounding), source)
        return onto(w), answer.certificate


def _check(name: str, facts: RiskFacts, convex_set: ConvexSet | None, regularizer: ElasticNet) -> ConvexSet:
    space = checked_space(facts, convex_set)
    projector(space)  # refused now, not on the data
    if not facts.loss.convex or regularizer.l1 > 0:
        raise PrivacyParameterError(
            f"{name} needs a convex loss and no l1 penalty, got {facts.loss} and {regularizer}: use dp-pgd"
        )
    return space


def _tolerance(facts: RiskFacts, share: float) -> float:
    """The gradient norm to be proved: a share of G / n, but not below what float64 sums can show."""
    return facts.gradient_bound * max(share / facts.n_records, 4 * facts.rounding)


def output_penalty(facts: RiskFacts, convex_set: ConvexSet, mu: float) -> float:
    """The l2 that minimises l2 B^2 / 8 + L s^2 / 2, s = 2 G / (n l2 mu) the noise per coordinate. Public.

    The first bounds what the penalty costs at |w*| = B (``typical_distance``) where F is quadratic: an
    eigenvalue h loses h l2^2 / (h + l2)^2 <= l2 / 4 of half its share of B^2. The second bounds what the
    noise costs: E F(w + s xi) - F(w) <= s^2 tr(H) / 2, and the trace of a Hessian is a mean of
    phi'' |a_i|^2 <= L, whatever the dimension.
    """
    noise = 2 * facts.gradient_bound / (facts.n_records * mu)
    return _trace_bound_l2(facts, convex_set, noise)


def objective_penalty(facts: RiskFacts, convex_set: ConvexSet, sigma: float) -> float:
    """The l2 that minimises l2 B^2 / 8 + what a linear term of sigma per coordinate costs. Public.

    It moves the minimum by (H + l2)^-1 b, which costs at most sigma^2 / 2 times the sum of h / (h + l2)^2
    over the eigenvalues h of a Hessian: at most p / (4 l2) and, the trace being at most L, at most L / l2^2.
    The better of the two bounds decides; the first term is that of ``output_penalty``.
    """
    distance, p = typical_distance(facts, convex_set), facts.dimension

    def cost(l2: float) -> float:  # products, not powers: those raise where floats end
        return l2 * distance * distance + sigma * sigma * min(p / l2, 4 * facts.smoothness / l2 / l2)

    first = _representable(sigma * math.sqrt(p) / distance)
    return min(first, _trace_bound_l2(facts, convex_set, sigma), key=cost)


def _trace_bound_l2(facts: RiskFacts, convex_set: ConvexSet, noise: float) -> float:
    """argmin of l2 B^2 / 8 + L noise^2 / (2 l2^2)."""
    relative = noise / typical_distance(facts, convex_set)
    return _representable(2 * math.cbrt(facts.smoothness * relative * relative))


def _representable(l2: float) -> float:
    """Within bounds beyond which nothing is left of a parameter, or of the penalty."""
    return min(max(l2, 1e-150), 1e150)

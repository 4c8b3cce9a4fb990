"""Interface of private risk minimisers, and the base class of full-batch ones.

Every plan is made from public facts: noise and cost are fixed before data. The papers' noise is not used,
because its constants are unspecified or wrong (see ``DPProximalGradient``). T steps on the full batch are
accounted as exactly one Gaussian release.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import (
    VectorNoise,
    gaussian_releases,
)
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.iteration import (
    Method,
    Output,
    Perturb,
    StepClock,
    choose_output,
    noisy_iteration,
)
from privopt.mechanisms.risk.sets import checked_space, default_start
from privopt.mechanisms.risk.step_counts import typical_distance
from privopt.oracles.convex.smooth import SmoothCertificate
from privopt.oracles.limits import Limits, Watch, started
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace

# Size of a default ball, in units of ``typical_distance``: twice, so that the guess lies well inside.
_ROOM = 2.0


@dataclass(frozen=True)
class RealRelease:
    """A released real vector.

    ``certificate`` is *not* private, and is left out when a release is printed or pickled.

    Attributes:
        point: the parameter, shape (dimension,).
        spend: what the releases of the plan cost, this one and any that share its budget.
        noise: the public parameters of the noise.
        certificate: the evidence for the minimum that was perturbed, where there is one.
    """

    point: Vector
    spend: PrivacySpend
    noise: Mapping[str, float]
    certificate: SmoothCertificate | None = dataclasses.field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**fields, "certificate": None}


@dataclass(frozen=True)
class RiskMechanism(ABC):
    """A private minimiser of F + r over C. An instance is a plan: noise and spend, fixed before data.

    Attributes:
        name, noised: of the class: its name, and the quantity that it adds noise to.
        takes_steps: of the class: True if a number of steps can be chosen.
        natural_norm: of the class: the row norm that determines its noise.
        wants_bounded_set: of the class: True if it has a default set (``default_set``).
        by_sums: of the class: True if it needs sums over all records alone, which are added up over parts of
            a table; otherwise it selects single records.
        facts: the public facts of the data.
        convex_set: C.
        regularizer: r.
        steps: T, the number of noisy steps that are paid for.
        output: the returned iterate. For ``RANDOM``, R is drawn first, uniformly from 1..T, and the
            iteration stops at x_R: the same law at half the work.
        spend: the claim.
    """

    family: ClassVar[Family] = Family.RISK
    name: ClassVar[str]
    takes_steps: ClassVar[bool] = True
    natural_norm: ClassVar[RowNorm] = "l2"
    wants_bounded_set: ClassVar[bool] = False
    noised: ClassVar[str] = "the mean gradient, each coordinate, every step"
    by_sums: ClassVar[bool] = True

    facts: RiskFacts
    convex_set: ConvexSet
    regularizer: ElasticNet
    steps: int
    output: Output
    spend: PrivacySpend

    @classmethod
    def default_set(cls, facts: RiskFacts) -> ConvexSet:
        """The default set: the whole space, or a ball that contains weights of typical size."""
        space = WholeSpace(facts.dimension)
        if not cls.wants_bounded_set:
            return space
        return L2Ball(facts.dimension, _ROOM * typical_distance(facts, space))

    @classmethod
    def usual_penalty(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet,
        regularizer: ElasticNet,
        *,
        epsilon: float,
        delta: float,
        releases: int,
    ) -> ElasticNet:
        """The regularizer for this budget: the given one, unless the mechanism has a default of its own."""
        return regularizer

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """The public parameters of the noise."""

    @property
    def step_sizes(self) -> tuple[float, float] | None:
        """The first and the last step size; None where there are no steps: a minimum is found, and noised."""
        return None

    @abstractmethod
    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, SmoothCertificate | None]:
        """The output and its certificate, if any; without a source, of the algorithm without noise."""

    def release(
        self,
        risk: EmpiricalRisk,
        noise: NoiseSource | None = None,
        start: Vector | None = None,
        limits: Limits | None = None,
    ) -> RealRelease:
        """Run once on the data. Costs ``spend``, whatever happens; a plan for several shares it among them.

        Nothing counts releases: those beyond the ones that were planned are not paid for.

        Args:
            risk: the data; its facts must be the plan's.
            noise: the source of randomness; the operating system by default.
            start: the first iterate, in C. Public: not from the same data without paying for it.
            limits: time limit, progress and cancellation. A run that they stop releases nothing.

        Raises:
            PlanMismatchError: the plan was made for other facts.
            UnfinishedDrawError, CertificateError: a limit was reached. That it was, like the running time,
                is outside the guarantee.
        """
        self._check(risk)
        source = checked_source(noise)
        point, proof = self._run(risk, self._start(start), source, started(limits))
        spend = dataclasses.replace(self.spend, insecure_seed=source.insecure_seed)
        return RealRelease(point, spend, self.noise, proof)

    def without_noise(self, risk: EmpiricalRisk, start: Vector | None = None) -> Vector:
        """The same algorithm with no noise at all, the last iterate in place of a random one. NOT private."""
        self._check(risk)
        return self._run(risk, self._start(start), None, Limits().start())[0]

    def _check(self, risk: EmpiricalRisk) -> None:
        if risk.facts != self.facts:
            raise PlanMismatchError(
                f"this plan was made for {self.facts}, the data have {risk.facts}: plan again for those facts"
            )

    def _drawn_steps(self, source: NoiseSource | None) -> int:
        """The number of steps to run: R - 1 for a random iterate, which lead from x_1 to x_R."""
        if source is None or self.output is not Output.RANDOM:
            return self.steps
        return int(source.integers(self.steps)[0])

    def _start(self, start: Vector | None) -> Vector:
        return default_start(self.convex_set) if start is None else np.array(start, dtype=np.float64)


@dataclass(frozen=True)
class FullBatchMechanism(RiskMechanism):
    """Mechanism with noise on the mean gradient of all records in every step.

    Privacy: mu-GDP with mu = sqrt(T) * sensitivity / sigma, stated as (epsilon, delta); neighbours by
    replacing one record, n public. The l2 sensitivity of the mean gradient is 2 G / n (plus rounding); T
    adaptive steps, and several such releases, are exactly one Gaussian release (``gaussian_steps``).
    """

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
        steps: int | None = None,
        output: Output | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            facts: the public facts of the data.
            convex_set: C; the whole space by default.
            regularizer: r.
            epsilon, delta: the target.
            steps: T; the theorem's choice by default, up to ``MOST_STEPS``.
            output: the returned iterate; by default the one that the theory of the loss covers.
            releases: the number of calls of ``release``, on the same records with any labels. ``spend`` is
                their total cost, mu / sqrt(releases) each.

        Raises:
            PrivacyParameterError: parameters out of range, or a combination that the method cannot take.
            UnsupportedProblemError: no oracle for the set and the regulariser.
        """
        space = checked_space(facts, convex_set, regularizer)
        cls._refuse(facts, space, regularizer)
        output = output or cls._default_output(facts, regularizer)
        if steps is None:
            mu = (
                gaussian_mu(epsilon, delta) / math.sqrt(check_count(releases, "releases")) / facts.sensitivity
            )
            steps = cls._default_steps(facts, space, regularizer, output, mu)
        noise, spend = gaussian_releases(
            *(epsilon, delta, cls.name),
            steps=check_count(steps, "steps"),
            releases=releases,
            sensitivity=facts.sensitivity,
            dimension=facts.dimension,
            n_records=facts.n_records,
        )
        plan = cls(facts, space, regularizer, steps, output, spend, noise)
        plan._method(default_start(space))  # an oracle that does not exist is refused now, not on the data
        return plan

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        """Raise if the method cannot take the combination."""

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        """Last under strong convexity, average under convexity, otherwise random."""
        if facts.loss.convex:
            return Output.LAST if regularizer.l2 > 0 else Output.AVERAGE
        return Output.RANDOM

    @classmethod
    @abstractmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        """The theorem's T, given mu per unit of noise: sigma = sqrt(T) / mu."""

    @abstractmethod
    def _method(self, start: Vector) -> Method:
        """The algorithm."""

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        method = self._method(start)
        steps = self._drawn_steps(source)
        perturb: Perturb = (lambda g: g) if source is None else self.vector_noise.adder(source, steps)
        iterates = noisy_iteration(method, risk.gradient, perturb, steps, StepClock(watch, steps))
        return choose_output(iterates, self.output, method.point(method.start)), None

"""Private minimisers of a risk, and the base of mechanisms on the full batch.

Every plan is made from public facts: noise and cost are fixed before data. The papers' noise is not used (its
constants are unspecified, or wrong: see ``DPProximalGradient``); T steps on the full batch are accounted as
exactly one Gaussian release.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_releases, shared_by
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.noisy_minimum import NoisyMinimum
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments, NoisySpread
from privopt.mechanisms.privacy.noisy_share import NoisyShare
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon, within_doubles
from privopt.mechanisms.privacy.reliance import fresh_copy, relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.iteration import Method, Output, Run, StepClock, choose_output, noisy_iteration
from privopt.mechanisms.risk.options import check_options
from privopt.mechanisms.risk.sets import check_facts, check_regularizer, checked_set, default_start
from privopt.mechanisms.risk.step_counts import typical_distance
from privopt.mechanisms.risk.support_path import SupportPath
from privopt.oracles.convex.smooth import SmoothCertificate
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits, Watch, started, within
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.notebooks import html_fields
from privopt.problems.parts import looking

# Radius of a default ball, in units of ``typical_distance``.
_ROOM = 2.0


@dataclass(frozen=True)
class RealRelease:
    """A released real vector.

    ``certificate`` is *not* private, and is left out when a release is printed or pickled.

    Attributes:
        point: the parameter, shape (dimension,); a row per class if one release has the models of several
            classes.
        spend: the total cost of all releases of the plan together.
        noise: the public parameters of the noise.
        certificate: the evidence for the perturbed minimum, if any.
        share: the released share of positive records, if the release contains it.
        moments: the released second moments of features and numeric labels, if it contains them.
        spread: the released second moments of residuals, if it contains them.
        minimum: the point with the released Hessian at it, if the release contains a Hessian.
        supports: the best subsets of columns, if the point is a model on one such subset.
        deviations: posterior standard deviations of the weights, from privacy noise and sampling, if they
            follow from what is released: for a level, of the distance of its weight from the mean of its
            column; for the constant, 0.
    """

    point: Vector
    spend: PrivacySpend
    noise: Mapping[str, float]
    certificate: SmoothCertificate | None = dataclasses.field(default=None, repr=False)
    share: NoisyShare | None = None
    moments: NoisyMoments | None = dataclasses.field(default=None, repr=False)
    spread: NoisySpread | None = dataclasses.field(default=None, repr=False)
    minimum: NoisyMinimum | None = dataclasses.field(default=None, repr=False)
    supports: SupportPath | None = dataclasses.field(default=None, repr=False)
    deviations: Vector | None = dataclasses.field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**fields, "certificate": None}


@dataclass(frozen=True)
class RiskTarget:
    """Target of a plan: public facts, a set, a penalty and a budget, all checked.

    Attributes:
        facts: public facts about the data.
        convex_set: C.
        regularizer: r.
        epsilon, delta: the budget.
        releases: number of runs that share it.
    """

    facts: RiskFacts
    convex_set: ConvexSet
    regularizer: ElasticNet
    epsilon: float
    delta: float
    releases: int

    @property
    def mu(self) -> float:
        """The budget of one release, as Gaussian differential privacy."""
        return gaussian_mu(self.epsilon, self.delta) / math.sqrt(self.releases)

    @property
    def precision(self) -> float:
        """mu over the sensitivity of the mean gradient: T steps have noise of sigma = sqrt(T) / precision."""
        return self.mu / self.facts.sensitivity

    def gdp_spend(self, name: str, level: float) -> PrivacySpend:
        """Return the cost of all releases of mechanism ``name``, together ``level``-GDP."""
        note = shared_by(self.releases, f"{level / math.sqrt(self.releases):.4g}-GDP each")
        return PrivacySpend(self.epsilon, self.delta, "gdp", name, level=level, note=note)

    def gaussian(self, name: str, *, steps: int, sensitivity: float) -> tuple[VectorNoise, PrivacySpend]:
        """Calibrate noise for ``steps`` full-batch steps a run, and the cost of all runs of mechanism
        ``name``.
        """
        return gaussian_releases(
            self.epsilon,
            self.delta,
            name,
            steps=steps,
            releases=self.releases,
            sensitivity=sensitivity,
            dimension=self.facts.dimension,
        )


@dataclass(frozen=True)
class RiskMechanism(ABC):
    """Private minimiser of F + r over C. An instance is a plan: noise and spend, fixed before data.

    Class attributes: ``name``; ``noised``, the noised quantity; ``by_sums``, whether it needs only sums over
    all records, which parts of a table can add up, or samples single records; ``natural_norm``, the norm of
    rows that determines its noise; and its requirements: ``takes_steps`` (their number can be chosen),
    ``takes_set`` (otherwise the whole space alone), ``wants_bounded_set`` (with a default: ``default_set``),
    ``takes_l1`` (a penalty), ``shrinks_by_noise`` (no set and no penalty), ``largest_dimension``,
    ``convex_only`` (losses), with the mechanisms to use ``instead``; and ``takes_classes``, whether one
    release with ``OneVsRestLoss`` has a model for each of several classes; and ``takes_weights``, whether its
    proof holds for records with weights, which multiply their losses.

    Attributes:
        facts: public facts about the data.
        convex_set: C.
        regularizer: r.
        spend: the privacy claim.
    """

    family: ClassVar[Family] = Family.RISK
    name: ClassVar[str]
    noised: ClassVar[str] = "the mean gradient, each coordinate, every step"
    by_sums: ClassVar[bool] = True
    natural_norm: ClassVar[RowNorm] = "l2"
    takes_steps: ClassVar[bool] = False
    takes_set: ClassVar[bool] = True
    wants_bounded_set: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = True
    convex_only: ClassVar[bool] = False
    takes_classes: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    instead: ClassVar[str] = "use dp-pgd"
    shrinks_by_noise: ClassVar[bool] = False
    largest_dimension: ClassVar[float] = math.inf

    facts: RiskFacts
    convex_set: ConvexSet
    regularizer: ElasticNet
    spend: PrivacySpend

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float = 0.0,
        releases: int = 1,
        **options: Any,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            facts: public facts about the data.
            convex_set: C; ``default_set`` by default.
            regularizer: r.
            epsilon, delta: the privacy target; pure mechanisms do not use delta.
            releases: number of calls of ``release``, on the same records with arbitrary labels; ``spend`` is
                the cost of all these calls together.
            options: options of the class, by name: the arguments of its ``_calibrated``, such as ``steps``,
                and ``output``, the iterate to return.

        Raises:
            PrivacyParameterError: parameters out of range, an option that the class does not have, or a
                combination that the method cannot take.
            UnsupportedProblemError: no oracle for the set and the regulariser.
        """
        check_options(cls, options)
        target = cls.target(facts, convex_set, regularizer, epsilon=epsilon, delta=delta, releases=releases)
        with within_doubles(cls.name):
            made = cls._calibrated(target, **options)
            made._find_oracles()
            made._check_numbers()
        made._fresh()
        return dataclasses.replace(made, spend=relying_on(made.spend, made))

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_fields(f"Plan of {self.name}", self)

    @classmethod
    def target(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None,
        regularizer: ElasticNet,
        *,
        epsilon: float,
        delta: float,
        releases: int,
    ) -> RiskTarget:
        """Return the checked target of a plan; arguments and errors are those of ``plan``."""
        check_facts(facts)
        check_regularizer(regularizer)
        space = cls.default_set(facts) if convex_set is None else checked_set(convex_set, facts.dimension)
        if reasons := cls.refusals(facts, space, regularizer):
            raise PrivacyParameterError(f"{cls.name} {'; '.join(reasons)}: {cls.instead}")
        budget = (check_epsilon(epsilon), check_delta(delta, zero_allowed=True))
        return RiskTarget(facts, space, regularizer, *budget, check_count(releases, "releases"))

    @classmethod
    @abstractmethod
    def _calibrated(cls, target: RiskTarget, *args: Any, **options: Any) -> Self:
        """Return the plan for a target; a subclass names its options."""

    def _find_oracles(self) -> None:  # noqa: B027
        """Look up the oracles of a release, so that a missing one is an error before data are read."""

    def _fresh(self) -> Self:
        """Return the plan for one release, with a copy of the set if that is a user's own, so that the set
        carries no state to the next release.
        """
        convex_set = fresh_copy(self.convex_set)
        return self if convex_set is self.convex_set else dataclasses.replace(self, convex_set=convex_set)

    def _check_numbers(self) -> None:
        """Compute the numbers that a release uses, and refuse infinity and NaN among them.

        Raises:
            ArithmeticError: a number of the noise or a step size leaves the range of doubles.
        """
        sizes = self.schedule.get("step_sizes") or ()
        if not np.all(np.isfinite([*self.noise.values(), *sizes])):
            raise ArithmeticError("infinite noise, or an infinite step")

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Return every reason why the mechanism cannot take the combination."""
        kind, loss = type(convex_set).__name__, type(facts.loss).__name__
        everywhere = isinstance(convex_set, WholeSpace)
        reasons = {
            f"takes no constraint, got {kind}": not (cls.takes_set or everywhere),
            "takes neither a set nor a penalty: its shrinkage follows from the noise": cls.shrinks_by_noise
            and not (everywhere and regularizer == NO_REGULARIZER),
            f"needs a bounded set, got {kind}": cls.wants_bounded_set and math.isinf(convex_set.radius),
            f"takes no l1 penalty, got {regularizer.l1:g}": regularizer.l1 > 0 and not cls.takes_l1,
            f"needs a convex loss, {loss} is not": cls.convex_only and not facts.loss.convex,
            "takes no weights of records": facts.weighted and not cls.takes_weights,
            f"takes up to {cls.largest_dimension:,} features, not {facts.dimension:,}": facts.dimension
            > cls.largest_dimension,
        }
        return [reason for reason, holds in reasons.items() if holds]

    @classmethod
    def default_set(cls, facts: RiskFacts) -> ConvexSet:
        """Return the default set: the whole space, or a ball that contains weights of typical size."""
        space = WholeSpace(facts.dimension)
        if not cls.wants_bounded_set:
            return space
        return L2Ball(facts.dimension, _ROOM * typical_distance(facts, space))

    @classmethod
    def usual_penalty(cls, target: RiskTarget) -> ElasticNet:
        """Return the regularizer for this budget: the given one, unless the mechanism has a default of
        its own.
        """
        return target.regularizer

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """Public parameters of the noise."""

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Norm of the noise of all steps together against one coordinate of a mean gradient.

        The average of all steps has noise of standard deviation Delta / mu, however many steps share the
        budget: each step has sqrt(T) times as much, and averaging T steps divides it by sqrt(T). A gradient
        of norm at most G, spread over d coordinates, has G / sqrt(d) in each. So the ratio is about 2 d / (n
        mu).
        """
        return self._gradient_ratio(self.facts.sensitivity / self._gaussian_level())

    def _gaussian_level(self) -> float:
        """Return mu of the spend. For a spend without mu, return the mu of Gaussian noise with the same
        epsilon and delta; a pure spend counts as one with delta = 1/n^2.
        """
        if self.spend.notion == "gdp" and self.spend.level is not None:
            return self.spend.level
        return gaussian_mu(self.spend.epsilon, self.spend.delta or min(0.5, 1 / self.facts.n_records**2))

    def _gradient_ratio(self, sigma: float) -> NoiseToSignal:
        root = math.sqrt(self._free_weights)
        return NoiseToSignal(root * sigma, self.facts.gradient_bound / root, "mean gradient")

    @property
    def _free_weights(self) -> int:
        """The number of weights that noise moves independently."""
        return self.facts.dimension

    @property
    def schedule(self) -> dict[str, Any]:
        """The number of steps, the first and last step size, and the returned iterate; may be empty."""
        return {}

    @abstractmethod
    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, SmoothCertificate | None]:
        """Run the algorithm, without noise if there is no source; return the output and its certificate,
        if any.
        """

    def release(
        self,
        risk: EmpiricalRisk,
        noise: NoiseSource | None = None,
        start: Vector | None = None,
        limits: Limits | None = None,
    ) -> RealRelease:
        """Run once on the data.

        Costs ``spend``, whatever happens; a plan for several releases shares it among them.

        Nobody counts the releases: those beyond the planned number are not paid for.

        Args:
            risk: the data; its facts must be the plan's.
            noise: source of randomness; the operating system by default.
            start: the first iterate, in C. It must be public: a start computed from the same data has to be
                paid for.
            limits: time limit, progress and cancellation. A run that is stopped releases nothing.

        Raises:
            PlanMismatchError: the plan was made for other facts.
            UnfinishedBuildError, UnfinishedDrawError, CertificateError: a limit was reached. That fact, like
                the running time, is outside the guarantee.
        """
        self._check(risk)
        source, fresh = checked_source(noise), self._fresh()
        run = Run(fresh._start(start), source, started(limits))
        within(run.watch, partial(fresh._compile, risk))
        with looking(partial(_check_limits, run.watch)):
            return fresh._released(risk, run, spent(self, source))

    def _compile(self, risk: EmpiricalRisk) -> None:
        """Compile what a run computes with, before the first step."""
        risk.compile()

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        """Run once and return the release; a mechanism that releases more than a point overrides it."""
        point, proof = self._run(risk, run)
        return RealRelease(point, spend, self.noise, proof)

    def without_noise(self, risk: EmpiricalRisk, start: Vector | None = None) -> Vector:
        """Run the same algorithm without noise, with the last iterate in place of a random one.

        NOT private.
        """
        self._check(risk)
        fresh = self._fresh()
        return fresh._run(risk, Run(fresh._start(start), None, Limits().start()))[0]

    def _check(self, risk: EmpiricalRisk) -> None:
        if risk.facts != self.facts:
            raise PlanMismatchError(
                f"this plan was made for {self.facts}, the data have {risk.facts}: plan again for those facts"
            )

    def _start(self, start: Vector | None) -> Vector:
        return default_start(self.convex_set) if start is None else np.array(start, dtype=np.float64)


def _check_limits(watch: Watch) -> None:
    """Raise UnfinishedDrawError if a limit was reached. Called between two parts of a table, within a pass
    over it.
    """
    if (reason := watch.stop()) is not None:
        raise UnfinishedDrawError(
            f"stopped by {reason.name} after {watch.seconds:.1f} s, within a pass over the records: nothing "
            "was released, though what a ledger reserved stays spent. To do: raise the time limit, or take "
            "fewer steps (steps=...)"
        )


@dataclass(frozen=True)
class SteppedMechanism(RiskMechanism):
    """Mechanism of noisy steps, whose number can be chosen.

    Attributes:
        steps: T, the number of noisy steps that are paid for.
    """

    takes_steps: ClassVar[bool] = True

    steps: int

    @property
    def step_sizes(self) -> tuple[float, float] | None:
        """The first and the last step size; None if steps adapt to curvature."""
        return None

    @property
    def schedule(self) -> dict[str, Any]:
        return {"steps": self.steps, "step_sizes": self.step_sizes}


@dataclass(frozen=True)
class IterativeMechanism(SteppedMechanism):
    """Mechanism of steps of which any iterate, or their average, may be returned.

    Attributes:
        output: the iterate to return. For ``RANDOM``, R is drawn first, uniformly from 1..T, and the
            iteration stops at x_R: the point has the same law at half the work.

    Class attribute: ``usual_output``, the default output; None if the default depends on the risk.
    """

    usual_output: ClassVar[Output | None] = None

    output: Output

    @property
    def schedule(self) -> dict[str, Any]:
        return {**super().schedule, "output": self.output.value}

    @classmethod
    @abstractmethod
    def _calibrated(
        cls, target: RiskTarget, *, steps: int | None = None, output: Output | None = None
    ) -> Self:
        """Return the plan for a target; ``steps`` and ``output`` are options of all these mechanisms."""

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        """Return ``usual_output``, or the last iterate under strong convexity, the average under convexity,
        otherwise a random one.
        """
        if cls.usual_output is not None:
            return cls.usual_output
        if facts.loss.convex:
            return Output.LAST if regularizer.l2 > 0 else Output.AVERAGE
        return Output.RANDOM

    def _drawn_steps(self, source: NoiseSource | None) -> int:
        """Return the number of steps to run: for a random iterate R - 1, which lead from x_1 to x_R."""
        if source is None or self.output is not Output.RANDOM:
            return self.steps
        return int(source.integers(self.steps)[0])


@dataclass(frozen=True)
class FullBatchMechanism(IterativeMechanism):
    """Mechanism with noise on the mean gradient of all records, every step.

    Privacy: mu-GDP with mu = sqrt(T) * sensitivity / sigma, stated as (epsilon, delta); neighbours by
    replacing one record, n public. The l2 sensitivity of the mean gradient is 2 G / n (plus rounding); T
    adaptive steps, and several such releases, are exactly one Gaussian release (``gaussian_steps``).
    """

    vector_noise: VectorNoise

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, steps: int | None = None, output: Output | None = None
    ) -> Self:
        """Calibrate; by default ``steps``, at most ``MOST_STEPS``, and ``output`` are as in the theorem."""
        facts, space, regularizer = target.facts, target.convex_set, target.regularizer
        output = output or cls._default_output(facts, regularizer)
        if steps is None:
            steps = cls._default_steps(target, output)
        noise, spend = target.gaussian(
            cls.name, steps=check_count(steps, "steps"), sensitivity=facts.sensitivity
        )
        return cls(facts, space, regularizer, spend, steps, output, noise)

    def _find_oracles(self) -> None:
        self._method(default_start(self.convex_set))

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Noise of an average of all steps against the largest mean gradient."""
        return self._gradient_ratio(self.vector_noise.sigma / math.sqrt(self.steps))

    @classmethod
    @abstractmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        """Return the theorem's T."""

    @abstractmethod
    def _method(self, start: Vector) -> Method:
        """Return the algorithm."""

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        method, steps = self._method(run.start), self._drawn_steps(run.source)
        perturb = run.perturbation(self.vector_noise, steps)
        iterates = noisy_iteration(method, risk.gradient, perturb, steps, StepClock(run.watch, steps))
        return choose_output(iterates, self.output, method.point(method.start)), None

"""First-order mechanisms on the full batch: one noisy iteration, and what each algorithm does with it.

Sources: Wang, Ye and Xu (NIPS 2017) for DP-GD and DP-AccMD; Wang and Xu (AAAI 2019) for DP-PGD, DP-FW-L2,
DP-PMD and DP-FW-L1. Their noise is not used (its constants are unspecified, or wrong, see
``DPProximalGradient``); T steps on the full batch are accounted as exactly one Gaussian release.

Every plan is made from public facts. Its defaults are the theorems' choices with the constants that their
proofs give: they influence accuracy only, and no privacy statement depends on them.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.accounting import bounded_range_to_zcdp, gaussian_mu, zcdp_rho
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.gradient_noise import (
    SelectionNoise,
    VectorNoise,
    gaussian_releases,
    selection_steps,
    shared_by,
)
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.parameters import check_count
from privopt.mechanisms.spend import PrivacySpend
from privopt.oracles.certificate import Status
from privopt.oracles.closed_form import (
    bregman_step,
    gauge_step,
    gaussian_width,
    linear_minimizer,
    natural_geometry,
    projector,
    prox_step,
)
from privopt.oracles.errors import UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.interface import Limits, Watch
from privopt.oracles.smooth import SmoothCertificate
from privopt.problems.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.risk import EmpiricalRisk, RiskFacts
from privopt.problems.sets import ConvexHull, ConvexSet, Polytope, Simplex, WholeSpace

# Default step counts stop here; ask for more with steps=....
MOST_STEPS = 2000

# How many directions rows are taken to spread over, at most, by ``typical_distance``.
_SPREAD = 100

State = Vector  # shape (p,), or (2, p) where a method keeps two points
Perturb = Callable[[Vector], Vector]


class Output(Enum):
    """Which iterate is returned."""

    LAST = "last"
    AVERAGE = "average"
    WEIGHTED = "weighted"
    RANDOM = "random"


@dataclass(frozen=True)
class Method:
    """What an algorithm does with a gradient.

    Attributes:
        start: the first state.
        step: (k, state, x, g) -> the next state, g the (noisy) gradient at x, k = 0, 1, ...
        query: (k, state) -> x, where the gradient is wanted.
        point: state -> the iterate that it stands for.
    """

    start: State
    step: Callable[[int, State, Vector, Vector], State]
    query: Callable[[int, State], Vector] = lambda _, state: state
    point: Callable[[State], Vector] = lambda state: state


@dataclass
class StepClock:
    """Counts the steps of an iteration, reports them, and stops it when a limit is reached.

    Attributes:
        watch: the limits.
        total: how many steps there will be.
        done: how many there were.
    """

    watch: Watch
    total: int
    done: int = 0

    def tick(self) -> None:
        """Before a step.

        Raises:
            UnfinishedDrawError: a limit was reached. Iterates so far are not released: which one would be the
                last depends on running time, and that on the records.
        """
        if (reason := self.watch.stop()) is not None:
            remedy = "raise the time limit, or take fewer steps (steps=...)"
            raise UnfinishedDrawError(
                f"stopped by {reason.name} after {self.watch.seconds:.1f} s and {self.done} of {self.total} "
                "steps: nothing was released, though what a ledger reserved stays spent. "
                f"To do: {reason.value if reason is Status.INTERRUPTED else remedy}"
            )
        self.watch.report(math.nan, math.nan, self.done, self.total)
        self.done += 1


def noisy_iteration(
    method: Method,
    gradient: Callable[[Vector], Vector],
    perturb: Perturb,
    steps: int,
    clock: StepClock | None = None,
) -> Iterator[Vector]:
    """The iterates x_2, ..., x_{steps+1} of a method: gradient, noise, oracle step, again and again."""
    state = method.start
    for k in range(steps):
        if clock is not None:
            clock.tick()
        x = method.query(k, state)
        state = method.step(k, state, x, perturb(gradient(x)))
        yield method.point(state)


def choose_output(iterates: Iterator[Vector], output: Output, first: Vector) -> Vector:
    """The last of the iterates (``first`` if there are none), their average, or that with weights 1, 2, ...

    The weights forget where the iteration began, and still average noise (Lacoste-Julien, Schmidt and Bach
    2012; Shamir and Zhang 2013).
    """
    last, total, weight, k = first, np.zeros_like(first), 0, 0
    for k, x in enumerate(iterates, start=1):
        last = x
        share = k if output is Output.WEIGHTED else 1
        total, weight = total + share * x, weight + share
    return total / weight if output in (Output.AVERAGE, Output.WEIGHTED) and k else last


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
        name, noised: of the class: what it is called, and what it adds noise to.
        facts: what is public about the data.
        convex_set: C.
        regularizer: r.
        steps: T, the number of noisy steps that are paid for.
        output: which iterate is returned. For ``RANDOM``, R is drawn first, uniformly from 1..T, and the
            iteration stops at x_R: the same law at half the work.
        spend: the claim.
    """

    name: ClassVar[str]
    noised: ClassVar[str] = "the mean gradient, each coordinate, every step"

    facts: RiskFacts
    convex_set: ConvexSet
    regularizer: ElasticNet
    steps: int
    output: Output
    spend: PrivacySpend

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """The public parameters of the noise."""

    @property
    @abstractmethod
    def step_sizes(self) -> tuple[float, float] | None:
        """The first and the last step size; None where there are no steps."""

    @abstractmethod
    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, SmoothCertificate | None]:
        """The output; without a source, of the same algorithm without noise. And its certificate, if any."""

    def release(
        self,
        risk: EmpiricalRisk,
        noise: NoiseSource | None = None,
        start: Vector | None = None,
        limits: Limits | None = None,
    ) -> RealRelease:
        """Run once on the data. Costs ``spend``, whatever happens; a plan for several shares it among them.

        Args:
            risk: the data; its facts must be the plan's.
            noise: where randomness comes from; the operating system by default.
            start: the first iterate, in C. Public: not from the same data without paying for it.
            limits: time limit, progress and cancellation. A run that they stop releases nothing.

        Raises:
            PlanMismatchError: the plan was made for other facts.
            UnfinishedDrawError, CertificateError: a limit was reached. That it was, like the running time,
                is outside the guarantee.
        """
        self._check(risk)
        source = noise or NoiseSource()
        point, proof = self._run(risk, self._start(start), source, (limits or Limits()).start())
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
        """How many steps to run: for a random iterate R - 1, which lead from x_1 to x_R."""
        if source is None or self.output is not Output.RANDOM:
            return self.steps
        return int(source.integers(self.steps)[0])

    def _start(self, start: Vector | None) -> Vector:
        return default_start(self.convex_set) if start is None else np.array(start, dtype=np.float64)


@dataclass(frozen=True)
class FullBatchMechanism(RiskMechanism):
    """Noise on the mean gradient of all records, every step.

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
            facts: what is public about the data.
            convex_set: C; the whole space by default.
            regularizer: r.
            epsilon, delta: the target.
            steps: T; the theorem's choice by default, up to ``MOST_STEPS``.
            output: which iterate; by default the one that the theory of the loss is about.
            releases: how many times ``release`` will be called, on the same records with whatever labels:
                ``spend`` is what all of them cost together, mu / sqrt(releases) each.

        Raises:
            PrivacyParameterError: parameters out of range, or a combination that the method cannot take.
            UnsupportedProblemError: no oracle for the set and the regulariser.
        """
        space = checked_space(facts, convex_set)
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


class DPGradientDescent(FullBatchMechanism):
    """DP-GD: x+ = x - eta (grad F(x) + l2 x + noise), eta = 1 / (L + l2), no constraint.

    Source: Wang, Ye and Xu (2017), Algorithm 4; T as in Theorem 6.2 (strong convexity, the last iterate) or
    6.3 (random iterate; for convex losses the average). Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-gd"

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        if not isinstance(convex_set, WholeSpace) or regularizer.l1 > 0:
            raise PrivacyParameterError(
                f"dp-gd takes neither a constraint nor an l1 penalty, got "
                f"{type(convex_set).__name__} and l1 = {regularizer.l1:g}: use dp-pgd for either"
            )

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        gamma = 1 / (facts.smoothness + regularizer.l2)
        return euclidean_steps(facts, convex_set, regularizer, mu, gamma)

    @property
    def step_sizes(self) -> tuple[float, float]:
        eta = 1 / (self.facts.smoothness + self.regularizer.l2)
        return eta, eta

    def _method(self, start: Vector) -> Method:
        l2, eta = self.regularizer.l2, self.step_sizes[0]
        return Method(start, lambda _k, _state, x, g: x - eta * (g + l2 * x))


class DPProximalGradient(FullBatchMechanism):
    """DP-PGD: x+ = argmin over u in C of <grad F(x) + noise, u> + |u - x|^2 / (2 gamma) + r(u).

    gamma = 1/(2L). Privacy: see ``FullBatchMechanism``. Source: Wang and Xu (2019), Algorithm 1 and
    Theorem 2. Their step 3 prints a noise variance with L for the Lipschitz constant and rho^2 for rho,
    which is too little noise for rho > 1; it is not used here.
    """

    name = "dp-pgd"

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        return euclidean_steps(facts, convex_set, regularizer, mu, 1 / (2 * facts.smoothness))

    @property
    def step_sizes(self) -> tuple[float, float]:
        gamma = 1 / (2 * self.facts.smoothness)
        return gamma, gamma

    def _method(self, start: Vector) -> Method:
        gamma = self.step_sizes[0]
        step = prox_step(self.convex_set, self.regularizer)
        return Method(start, lambda _k, _state, x, g: step(x - gamma * g, gamma))


class DPMirrorDescent(FullBatchMechanism):
    """DP-PMD: x+ = argmin over u in C of <grad F(x) + noise, u> + V(u, x) / gamma + r(u).

    V is the divergence of the natural geometry of C, 1-strongly convex for its Minkowski norm; gamma is
    1 / (2 L_C), L_C the smoothness in that norm. Privacy: see ``FullBatchMechanism``. Source: Wang and Xu
    (2019), Algorithm 3 and Theorem 5.
    """

    name = "dp-pmd"

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        _need_bounded(cls.name, convex_set)

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        gamma, noise = 1 / (2 * facts.smoothness_in(convex_set)), dual_noise(convex_set) / mu
        if not facts.loss.convex:
            return _whole(math.sqrt(4 * loss_range(facts, convex_set) / gamma) / noise)
        return _whole(mirror_steps(_farthest_divergence(facts, convex_set), gamma, noise))

    @property
    def step_sizes(self) -> tuple[float, float]:
        gamma = 1 / (2 * self.facts.smoothness_in(self.convex_set))
        return gamma, gamma

    def _method(self, start: Vector) -> Method:
        gamma = self.step_sizes[0]
        step = bregman_step(self.convex_set, natural_geometry(self.convex_set), self.regularizer)
        return Method(start, lambda _k, _state, x, g: step(x, g, gamma))


class DPAcceleratedMirrorDescent(FullBatchMechanism):
    """DP-AccMD: accelerated mirror descent by linear coupling, for convex losses over a norm ball.

    With L' = L_C: alpha = (k + 2)/(4 L'), r = 2/(k + 2), x = r z + (1 - r) y, and one noisy gradient g at x:
    y+ = argmin over C of <g, y - x> + (L'/2)|y - x|_C^2, z+ = argmin over C of <g, z> + V(z, z_k)/alpha.
    y_T is returned.

    Source: Wang, Ye and Xu (2017), Algorithm 3 and Theorem 5.4. As printed, the y-step uses the gradient
    without noise, and y_T is the output: that is not private. Here both steps use the same noisy
    gradient. Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-accmd"

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        _need_bounded(cls.name, convex_set)
        _need_smooth(cls.name, regularizer)
        if not facts.loss.convex:
            raise PrivacyParameterError(
                f"{cls.name} needs a convex loss, {type(facts.loss).__name__} is not: use dp-pmd or dp-fw-l2"
            )

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        return Output.LAST

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        # With A_T = sum of alpha = T^2 / (8 L'), the bound is V / A_T + T sigma^2 E|xi|_*^2 / (4 L') for
        # sigma = sqrt(T) / mu: a third of the noise from the long steps, two thirds from the short ones.
        smoothness = _ridged(facts, convex_set, regularizer)
        far = math.sqrt(2 * _farthest_divergence(facts, convex_set))
        return _whole(2 * math.sqrt(smoothness * far * mu / dual_noise(convex_set)))

    @property
    def step_sizes(self) -> tuple[float, float]:
        """Of the long steps, alpha; the short ones are 1 / L'."""
        smoothness = _ridged(self.facts, self.convex_set, self.regularizer)
        return 2 / (4 * smoothness), (self.steps + 1) / (4 * smoothness)

    def _method(self, start: Vector) -> Method:
        smoothness = _ridged(self.facts, self.convex_set, self.regularizer)
        short = gauge_step(self.convex_set)
        long = bregman_step(self.convex_set, natural_geometry(self.convex_set))

        def query(k: int, state: State) -> Vector:
            r = 2 / (k + 2)
            return np.asarray(r * state[1] + (1 - r) * state[0])

        def step(k: int, state: State, x: Vector, g: Vector) -> State:
            slope = g + self.regularizer.l2 * x
            alpha = (k + 2) / (4 * smoothness)
            return np.stack([short(x, slope, smoothness), long(state[1], slope, alpha)])

        return Method(np.stack([start, start]), step, query, lambda state: state[0])


class DPFrankWolfeL2(FullBatchMechanism):
    """DP-FW-L2: v = argmin over v in C of <v, grad F(x) + noise>; x+ = x + gamma (v - x).

    gamma is constant for a random iterate (Theorem 4 of the source) and 2/(k + 2) for the last iterate of a
    convex loss, the textbook schedule. A ridge penalty is smooth and joins the gradient.

    Source: Wang and Xu (2019), Algorithm 2. Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-fw-l2"

    @classmethod
    def _refuse(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> None:
        _need_bounded(cls.name, convex_set)
        _need_smooth(cls.name, regularizer)

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        return Output.LAST if facts.loss.convex else Output.RANDOM

    @classmethod
    def _default_steps(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, mu: float
    ) -> int:
        noise = 2 * dual_noise(convex_set) / mu
        return frank_wolfe_steps(facts, convex_set, regularizer, output, noise)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return _frank_wolfe_ends(self)

    def _method(self, start: Vector) -> Method:
        minimize = linear_minimizer(self.convex_set)
        rate = frank_wolfe_rate(self.facts, self.convex_set, self.regularizer, self.output, self.steps)
        l2 = self.regularizer.l2

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            return x + rate(k) * (minimize(g + l2 * x).point - x)

        return Method(start, step)


@dataclass(frozen=True)
class DPFrankWolfeL1(RiskMechanism):
    """DP-FW-L1: a vertex s of C is chosen by noisy max of -<s, grad F(x)>; x+ = (1 - gamma) x + gamma s.

    No vector is noised: a step costs one gradient and one Gumbel variable per vertex, and the error grows
    with the logarithm of their number. For sparse data a step costs the non-zeros and the vertices, never
    n times p. The step size is as in ``DPFrankWolfeL2``.

    Privacy: rho-zCDP with rho = T eps0^2 / 8 (bounded range), stated as (epsilon, delta); neighbours by
    replacing one record, n public. Source: Wang and Xu (2019), Algorithm 4 and Theorem 6; Talwar, Thakurta
    and Zhang (2015) for convex losses. They print eps0 = epsilon / sqrt(8 T ln(1/delta)), which needs
    8 sqrt(rho ln(1/delta)) / epsilon times the noise, whatever T: 4.1 to 5.0 at delta = 1/n^2 (4.6 at
    (2, 1e-3), up to 7 where delta is large and epsilon small). Against the exact root of the theorem of
    advanced composition, which has no closed form, it is 2.6 times at (2, 1e-3) and T = 200.
    """

    name: ClassVar[str] = "dp-fw-l1"
    noised: ClassVar[str] = "the score of each vertex, every step"

    selection: SelectionNoise

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        steps: int | None = None,
        output: Output | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts. The arguments are those of ``FullBatchMechanism.plan``.

        Several releases share rho evenly.

        Raises:
            PrivacyParameterError: parameters out of range, an l1 penalty, or a set without a finite list of
                vertices.
        """
        _need_smooth(cls.name, regularizer)
        count = convex_set.vertex_count
        if count is None or convex_set.dimension != facts.dimension:
            raise PrivacyParameterError(
                f"dp-fw-l1 needs a set of dimension {facts.dimension} with finitely many vertices, got "
                f"{type(convex_set).__name__} of dimension {convex_set.dimension}: use an l1 ball, a simplex "
                "or a hull, or dp-fw-l2"
            )
        output = output or (Output.LAST if facts.loss.convex else Output.RANDOM)
        if steps is None:
            one = selection_steps(
                epsilon, delta, steps=releases, facts=facts, convex_set=convex_set, l2=regularizer.l2
            )
            noise = one.scale * math.log(count)
            steps = frank_wolfe_steps(facts, convex_set, regularizer, output, max(noise, 1e-300))
        together = check_count(steps, "steps") * check_count(releases, "releases")
        selection = selection_steps(
            epsilon, delta, steps=together, facts=facts, convex_set=convex_set, l2=regularizer.l2
        )
        rho = min(together * bounded_range_to_zcdp(selection.step_epsilon), zcdp_rho(epsilon, delta))
        note = shared_by(releases, f"{rho / releases:.4g}-zCDP each")
        spend = PrivacySpend(epsilon, delta, "zcdp", cls.name, level=rho, note=note)
        return cls(facts, convex_set, regularizer, steps, output, spend, selection)

    @property
    def noise(self) -> dict[str, float]:
        return {"gumbel_scale": self.selection.scale, "sensitivity": self.selection.sensitivity}

    @property
    def step_sizes(self) -> tuple[float, float]:
        return _frank_wolfe_ends(self)

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        rate = frank_wolfe_rate(self.facts, self.convex_set, self.regularizer, self.output, self.steps)
        l2, steps = self.regularizer.l2, self._drawn_steps(source)

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            scores = self.convex_set.vertex_scores(-(g + l2 * x))
            best = int(np.argmax(scores)) if source is None else self.selection.choose(scores, source)
            return (1 - rate(k)) * x + rate(k) * self.convex_set.vertex(best)

        clock = StepClock(watch, steps)
        iterates = noisy_iteration(Method(start, step), risk.gradient, lambda g: g, steps, clock)
        return choose_output(iterates, self.output, start), None


def checked_space(facts: RiskFacts, convex_set: ConvexSet | None) -> ConvexSet:
    """The set, or the whole space.

    Raises:
        PrivacyParameterError: a set of another dimension.
    """
    space = convex_set or WholeSpace(facts.dimension)
    if space.dimension != facts.dimension:
        raise PrivacyParameterError(
            f"a set of dimension {space.dimension} for weights of dimension {facts.dimension} (with the "
            "intercept, if there is one): make them equal"
        )
    return space


def default_start(convex_set: ConvexSet) -> Vector:
    """A public first iterate: the centre of a simplex or a hull, otherwise the point of C nearest to 0.

    Where there is no projection, as for a set of one's own with only ``facing``: an extreme point.
    """
    if isinstance(convex_set, Simplex):
        return np.full(convex_set.dimension, convex_set.size / convex_set.dimension)
    if isinstance(convex_set, ConvexHull):
        return np.asarray(np.mean(convex_set.points, axis=0))
    if isinstance(convex_set, Polytope):
        return linear_minimizer(convex_set)(np.zeros(convex_set.dimension)).point
    try:
        return projector(convex_set)(np.zeros(convex_set.dimension))
    except UnsupportedProblemError as refusal:
        try:
            return linear_minimizer(convex_set)(np.ones(convex_set.dimension)).point
        except UnsupportedProblemError:
            raise refusal from None


def prediction_scale(facts: RiskFacts) -> float:
    """Public: by how much predictions move before the slope of the loss does; 4 for the logistic loss.

    The bound on slopes over the bound on curvature, in the unit of predictions.
    """
    return facts.loss.lipschitz / facts.loss.smoothness


def typical_distance(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """A public guess at |w* - x_1|, for step counts: no bound, and nothing private depends on it.

    Rows of norm R that spread evenly over m directions make predictions of about |w| R / sqrt(m). Those are
    of the loss's own scale at |w| = scale * sqrt(m) / R; m is taken as the dimension, but at most 100. (With
    m = 1, rows along w*, steps would be too few by far for real tables.)
    """
    spread = prediction_scale(facts) * math.sqrt(min(facts.dimension, _SPREAD)) / facts.row_norm_l2
    return max(min(spread, convex_set.radius), 1e-150)  # above 0 for a set of one point, too


def loss_range(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """How far F(x_1) is above its minimum: what predictions gain by moving by their scale, or C allows."""
    within = facts.loss.lipschitz * prediction_scale(facts)
    if isinstance(convex_set, WholeSpace):
        return within
    return min(
        within,
        facts.gradient_bound * 2 * convex_set.radius,  # the diameter, or more
        2 * facts.gradient_bound_linf * convex_set.l1_radius,
    )


def dual_noise(convex_set: ConvexSet) -> float:
    """sqrt(E |xi|_{C*}^2) for standard normal xi, at most sqrt(G_C^2 + |C|_2^2) (Gaussian concentration)."""
    return math.hypot(gaussian_width(convex_set).value, convex_set.radius)


def mirror_steps(divergence: float, gamma: float, noise: float) -> float:
    """T at which both terms of the bound for (projected, mirror) descent on convex losses are equal.

    E F(average) - F(w*) <= V / (gamma T) + gamma sigma^2 E|xi|_*^2, where sigma grows as sqrt(T): V is the
    divergence of w* from the start, gamma the step size, ``noise`` the root of sigma^2 E|xi|_*^2 for T = 1.
    Fewer steps stop short, more only add noise (Nemirovski, Juditsky, Lan and Shapiro 2009, section 2.3).
    """
    return math.sqrt(divergence) / (gamma * noise)


def euclidean_steps(
    facts: RiskFacts,
    convex_set: ConvexSet,
    regularizer: ElasticNet,
    mu: float,
    gamma: float,
    most: int = MOST_STEPS,
) -> int:
    """T of gradient steps in l2, of size gamma; fewer under strong convexity, and never more than ``most``.

    Without convexity the average squared gradient is at most 4 B / (gamma T) + sigma^2 p (Wang and Xu 2019,
    theorem 2): where both are equal.
    """
    noise = math.sqrt(facts.dimension) / mu
    if not facts.loss.convex:
        return _whole(math.sqrt(4 * loss_range(facts, convex_set) / gamma) / noise, most)
    distance = typical_distance(facts, convex_set)
    steps = mirror_steps(distance**2 / 2, gamma, noise)
    if gamma * regularizer.l2 > 0:
        # The distance shrinks by 1 - gamma l2 per step, until noise of gamma sigma^2 p / l2 remains.
        signal = min(regularizer.l2 * distance / noise, 1e300)
        decades = max(1.0, 2 * math.log(max(1.0, signal)))
        steps = min(steps, decades / (gamma * regularizer.l2))
    return _whole(steps, most)


def frank_wolfe_steps(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, noise: float
) -> int:
    """T of Frank-Wolfe steps whose gap suffers noise * sqrt(T) each: against 2 C/T, or sqrt(2 B C / T).

    C is the curvature over steps of the length of the radius. The constant of the proofs, for steps right
    through the set (Jaggi 2013), is 4 times that: it would pay, in noise, for steps that gain nothing.
    """
    curvature = _ridged(facts, convex_set, regularizer)
    if output is Output.LAST:
        return _whole((4 * curvature / noise) ** (2 / 3))
    return _whole(math.sqrt(2 * loss_range(facts, convex_set) * curvature) / noise)


def frank_wolfe_rate(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, steps: int
) -> Callable[[int], float]:
    """Step sizes: 2/(k + 2) for the last iterate, otherwise constant, sqrt(2 B / (C T)) and at most 1."""
    if output is Output.LAST:
        return lambda k: 2 / (k + 2)
    curvature = _ridged(facts, convex_set, regularizer)
    constant = min(1.0, math.sqrt(2 * loss_range(facts, convex_set) / (curvature * steps)))
    return lambda k: constant


def _frank_wolfe_ends(plan: RiskMechanism) -> tuple[float, float]:
    rate = frank_wolfe_rate(plan.facts, plan.convex_set, plan.regularizer, plan.output, plan.steps)
    return rate(0), rate(plan.steps - 1)


def _farthest_divergence(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """V from the start to a farthest point of C, in its natural geometry."""
    far = linear_minimizer(convex_set)(-np.eye(1, facts.dimension)[0]).point
    return natural_geometry(convex_set).divergence(far, default_start(convex_set))


def _ridged(facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> float:
    """Smoothness of F plus the ridge in the Minkowski norm of C."""
    return facts.smoothness_in(convex_set) + regularizer.l2 * convex_set.radius**2


def _need_bounded(name: str, convex_set: ConvexSet) -> None:
    if not math.isfinite(convex_set.radius):
        raise PrivacyParameterError(f"{name} needs a bounded set, got {type(convex_set).__name__}")


def _need_smooth(name: str, regularizer: ElasticNet) -> None:
    if regularizer.l1 > 0:
        raise PrivacyParameterError(
            f"{name} takes no l1 penalty: constrain with an l1 ball instead, or use dp-pgd or dp-pmd"
        )


def _whole(steps: float, most: int = MOST_STEPS) -> int:
    """A number of steps of at most ``most``: with more, the theory gains little and the user waits."""
    return max(1, math.ceil(min(steps, most)))

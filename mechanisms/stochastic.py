"""First-order mechanisms on Poisson batches: DP-SGD, DP-SVRG and DP-SVRG++.

Batch sizes, like everything else in a plan, come from public facts; the size of an actual batch is random
and never released. Step sizes and counts influence accuracy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.accounting import gaussian_mu
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.first_order import (
    Method,
    Output,
    Perturb,
    RiskMechanism,
    StepClock,
    checked_space,
    choose_output,
    euclidean_steps,
    loss_range,
    noisy_iteration,
    typical_distance,
)
from privopt.mechanisms.gradient_noise import VectorNoise, shared_by
from privopt.mechanisms.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.perturbation import objective_penalty
from privopt.mechanisms.poisson import poisson_batch, poisson_multiplier, sampled_noise
from privopt.mechanisms.spend import PrivacySpend
from privopt.oracles.closed_form import prox_step
from privopt.oracles.interface import Watch
from privopt.problems.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.risk import EmpiricalRisk, RiskFacts
from privopt.problems.sets import ConvexSet

# Membership in a batch moves the other rows. Their predictions stay the same to the last bit, but vectorised
# slopes may differ in it (2^-50 of their bound, say); this much more noise covers batches up to 2^29 records.
_LAYOUT = 1 + 2.0**-20
_TOGETHER = "accounted as one sequence of sampled steps"
_LEAST_BATCH = 64

# What the default number and size of batches aim at: see ``balanced_batch``.
_MOST_STEPS = 5000
_MULTIPLIER = 2.0
_SAMPLING_SHARE = 0.25
_PASSES = 20


@dataclass(frozen=True)
class DPStochasticGradient(RiskMechanism):
    """DP-SGD: x+ = prox of x - eta (sum over a Poisson batch of gradients + noise) / (q n).

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. One record
    contributes at most G without any clipping, because the loss is Lipschitz and rows are clipped; privacy
    amplification by Poisson sampling, composed as privacy loss distributions.

    Defaults: at equal privacy T sampled steps carry the noise of T full ones, so T is that of DP-GD, though
    up to 5000, and a batch is as small as it can be without costing accuracy (``balanced_batch``). The step
    size minimises the bound D^2 / (2 eta T) + eta V, V the variance of a noisy step, up to 1 / (L + l2); for
    convex losses iterates are averaged with weights 1, 2, ..., which forgets the start.

    Source: Abadi et al. (2016); Bassily, Smith and Thakurta (2014); the average: Shamir and Zhang (2013).
    """

    name: ClassVar[str] = "dp-sgd"
    noised: ClassVar[str] = "a batch's mean gradient, each coordinate, every step"

    sampling: float
    vector_noise: VectorNoise
    step_size: float

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
        batch: int | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            batch: the expected batch size q n. The other arguments are those of ``FullBatchMechanism.plan``;
                several releases are accounted together, as one sequence of steps.
        """
        check_epsilon(epsilon), check_delta(delta)
        space = checked_space(facts, convex_set)
        share = gaussian_mu(epsilon, delta) / math.sqrt(check_count(releases, "releases"))
        longest = 1 / (facts.smoothness + regularizer.l2)
        if steps is None:
            mu = share / facts.sensitivity
            steps = euclidean_steps(facts, space, regularizer, mu, longest, _MOST_STEPS)
        together = check_count(steps, "steps") * releases
        q = _sampling(facts, batch, balanced_batch(facts, steps, share))
        z = poisson_multiplier(epsilon, delta, q=q, steps=together, coordinates=together * facts.dimension)
        noise = sampled_noise(z, record_bound(facts) * _LAYOUT, facts.dimension)
        expected = q * facts.n_records
        per_step = math.hypot(
            _typical_gradient(facts) * math.sqrt((1 - q) / expected),
            math.sqrt(facts.dimension) * noise.sigma / expected,
        )
        rate = min(longest, typical_distance(facts, space) / (per_step * math.sqrt(2 * steps)))
        output = output or (Output.WEIGHTED if facts.loss.convex else Output.RANDOM)
        spend = PrivacySpend.approximate(epsilon, delta, cls.name, note=shared_by(releases, _TOGETHER))
        prox_step(space, regularizer)  # an oracle that does not exist is refused now, not on the data
        return cls(facts, space, regularizer, steps, output, spend, q, noise, rate)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma / (self.sampling * self.facts.n_records), "q": self.sampling}

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        n, q, eta = self.facts.n_records, self.sampling, self.step_size
        step = prox_step(self.convex_set, self.regularizer)
        draw = source or NoiseSource()  # batches are random with or without noise

        def gradient(x: Vector) -> Vector:
            return risk.gradient_sum(x, poisson_batch(n, q, draw))

        method = Method(start, lambda _k, _state, x, g: step(x - (eta / (q * n)) * g, eta))
        steps = self._drawn_steps(source)
        perturb: Perturb = (lambda g: g) if source is None else self.vector_noise.adder(source, steps)
        iterates = noisy_iteration(method, gradient, perturb, steps, StepClock(watch, steps))
        return choose_output(iterates, self.output, start), None


@dataclass(frozen=True)
class DPSVRG(RiskMechanism):
    """DP-SVRG: an anchor's full gradient once per epoch, then Poisson batches of gradient differences.

    Per epoch: v0 = grad F(anchor) + noise; then m times x+ = prox of x - eta (v0 + d), where q n d is the sum
    over the batch of grad f(x) - grad f(anchor), plus noise; the next anchor is the average of the x.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. x and the
    anchor are private already, so the bound min(2 G, L |x - anchor|) on one record's difference is public,
    and the noise follows it down as the iterates converge. The full gradients take ``anchor_share`` of
    mu^2; the batches, composed with them as privacy loss distributions, the rest.

    Defaults: eta = 1/(2 L) and m = 8 L / l2, which batches of at least 32 allow in the convergence condition,
    but no more than their noise allows (``quiet_rounds``); more epochs make up for it. They need strong
    convexity: with them, a penalty l2 = 0 is replaced by that of ``objective_penalty``, since an anchor's
    noise is a random linear term of its epoch's objective. ``regularizer`` and ``noise`` tell which.

    Source: Wang, Ye and Xu (2017), Algorithm 1 and Theorem 4.2, for strongly convex objectives. Their privacy
    theorem holds only for epsilon below a multiple of T m / n^2; here the sampling itself is accounted.
    """

    name: ClassVar[str] = "dp-svrg"
    noised: ClassVar[str] = (
        "anchor_sigma: the mean gradient at an anchor; multiplier: a batch's sum of differences, in units of "
        "the bound on one"
    )

    anchor_share: ClassVar[float] = 2 / 3

    rounds: tuple[int, ...]
    sampling: float
    anchor_noise: VectorNoise
    multiplier: float
    step_size: float

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        rounds: tuple[int, ...] | None = None,
        batch: int | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            rounds: inner steps of each epoch; by default the theorem's, as long as noise allows.
            batch: the expected batch size q n; by default such that all inner steps together read the data
                about as often as the full gradients do, and not so small that the noise would suffer
                (``private_batch``). The other arguments are those of
                ``FullBatchMechanism.plan``; several releases are accounted together.

        Raises:
            PrivacyParameterError: parameters out of range, or a loss that is not convex.
        """
        space = checked_space(facts, convex_set)
        if not facts.loss.convex:
            raise PrivacyParameterError(f"{cls.name} needs a convex loss: use dp-pgd or dp-sgd")
        mu = gaussian_mu(epsilon, delta)
        share = mu / math.sqrt(check_count(releases, "releases"))
        if rounds is None:
            regularizer, rounds = cls._theorem(facts, space, regularizer, share / facts.sensitivity)
        rounds = _check_rounds(rounds)
        epochs, inner = len(rounds), sum(rounds)
        p = facts.dimension
        least = private_batch(facts, inner, share * math.sqrt(1 - cls.anchor_share))
        q = _sampling(facts, batch, max(least, math.ceil(epochs * facts.n_records / inner)))
        anchors = math.sqrt(epochs / cls.anchor_share) * 2 / share  # in units of G: the sensitivity is 2
        z = poisson_multiplier(
            epsilon,
            delta,
            q=q,
            steps=inner * releases,
            coordinates=(inner + epochs) * p * releases,
            full_z=anchors,
            full_steps=epochs * releases,
        )
        bound = facts.sensitivity / 2
        anchor_noise = sampled_noise(anchors, bound, p)
        spend = PrivacySpend.approximate(epsilon, delta, cls.name, note=shared_by(releases, _TOGETHER))
        prox_step(space, regularizer)
        return cls(
            *(facts, space, regularizer, epochs + inner, Output.AVERAGE, spend),
            *(rounds, q, anchor_noise, z, cls._default_step_size(facts)),
        )

    @property
    def noise(self) -> dict[str, float]:
        return {
            "anchor_sigma": self.anchor_noise.sigma,
            "multiplier": self.multiplier,
            "q": self.sampling,
            "l2": self.regularizer.l2,
        }

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    @classmethod
    def _theorem(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, mu: float
    ) -> tuple[ElasticNet, tuple[int, ...]]:
        """The penalty and the inner steps of each epoch, by default."""
        l2 = regularizer.l2 or objective_penalty(facts, convex_set, 1 / (mu * math.sqrt(cls.anchor_share)))
        regularizer = ElasticNet(regularizer.l1, l2)
        # An epoch halves the distance from the minimum, until the noise of the anchors remains.
        signal = 2 * l2 * loss_range(facts, convex_set) * mu**2 / facts.dimension
        # But epochs are short where noise is large, and should go as far together as gradient descent would.
        rate, batches = cls._default_step_size(facts), mu * math.sqrt(1 - cls.anchor_share)
        steps = euclidean_steps(facts, convex_set, regularizer, mu, 1 / facts.smoothness)
        far = noise_growth(facts, batches, rate) * (steps / (rate * facts.smoothness)) ** 2
        epochs = max(1.0, math.log(min(max(signal, 1.0), 1e300)), min(far, steps))
        longest = math.ceil(min(8 * facts.smoothness / l2, _MOST_STEPS))
        return regularizer, quiet_rounds((1,) * math.ceil(epochs), facts, batches, rate, longest)

    @classmethod
    def _default_step_size(cls, facts: RiskFacts) -> float:
        return 1 / (2 * facts.smoothness)

    def _next_start(self, _last: Vector, average: Vector) -> Vector:
        return average

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        draw = source or NoiseSource()  # batches are random with or without noise
        step = prox_step(self.convex_set, self.regularizer)
        x = anchor = start
        clock = StepClock(watch, sum(self.rounds))
        p, noise = self.facts.dimension, None
        if source is not None:
            noise = source.discrete_gaussian_vectors(MAX_EXPONENT, p, sum(self.rounds))
        for m in self.rounds:
            full = risk.gradient(anchor)
            if source is not None:
                full = self.anchor_noise.add(full, source)
            difference = self._difference(risk, anchor, draw, noise)
            method = Method(x, _svrg_step(step, self.step_size, full))
            total = np.zeros_like(x)
            for x in noisy_iteration(method, difference, lambda g: g, m, clock):
                total += x
            anchor = total / m
            x = self._next_start(x, anchor)
        return anchor, None

    def _difference(
        self,
        risk: EmpiricalRisk,
        anchor: Vector,
        source: NoiseSource,
        noise: Iterator[NDArray[np.int64]] | None,
    ) -> Callable[[Vector], Vector]:
        """x -> the estimate of grad F(x) - grad F(anchor) from a batch, with a draw of the noise, if any."""
        facts, q = self.facts, self.sampling
        # Rounding of nearly equal slopes, and of their predictions, does not vanish with the difference.
        floor = record_bound(facts) * facts.n_records * 2.0**-46
        unit = (facts.dimension + 4) * 2.0**-53

        def estimate(x: Vector) -> Vector:
            if np.array_equal(x, anchor):
                return np.zeros_like(x)  # every difference is exactly 0, whoever is sampled
            total = risk.difference_sum(x, anchor, poisson_batch(facts.n_records, q, source))
            if noise is not None:
                lengths = float(np.linalg.norm(x) + np.linalg.norm(anchor))
                distance = float(np.linalg.norm(x - anchor)) + 2 * unit * lengths
                bound = min(2 * record_bound(facts), facts.smoothness * distance * _LAYOUT + floor) * _LAYOUT
                total = sampled_noise(self.multiplier, bound, facts.dimension).add_drawn(total, next(noise))
            return total / (q * facts.n_records)

        return estimate


class DPSVRGPlusPlus(DPSVRG):
    """DP-SVRG++: DP-SVRG with epochs that double, each starting at the last inner iterate; convex losses.

    eta = 1/(13 L), m_s = 2^s m. Source: Wang, Ye and Xu (2017), Algorithm 2 and Theorem 4.4. Privacy: see
    ``DPSVRG``.
    """

    name = "dp-svrg++"
    anchor_share = 1 / 2

    @classmethod
    def _theorem(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, mu: float
    ) -> tuple[ElasticNet, tuple[int, ...]]:
        # An epoch halves the excess risk, until what the noise costs over that distance remains.
        noise = math.sqrt(facts.dimension) / mu * typical_distance(facts, convex_set)
        epochs = math.ceil(math.log2(max(2.0, loss_range(facts, convex_set) / noise)))
        shape = tuple(2**s for s in range(1, epochs + 1))
        rate, batches = cls._default_step_size(facts), mu * math.sqrt(1 - cls.anchor_share)
        longest = _MOST_STEPS
        if regularizer.l2 > 0:  # with a penalty even gradient descent needs no more steps than that
            longest = euclidean_steps(facts, convex_set, regularizer, mu, rate, _MOST_STEPS)
        return regularizer, quiet_rounds(shape, facts, batches, rate, longest)

    @classmethod
    def _default_step_size(cls, facts: RiskFacts) -> float:
        return 1 / (13 * facts.smoothness)

    def _next_start(self, last: Vector, _average: Vector) -> Vector:
        return last


def record_bound(facts: RiskFacts) -> float:
    """G with the rounding of a computed sum: what one record adds to it at most."""
    return facts.gradient_bound * (1 + 2 * facts.n_records * facts.rounding)


def private_batch(facts: RiskFacts, steps: int, mu: float) -> int:
    """The least expected batch size at which sampling costs no privacy, for T steps that are mu-GDP together.

    By the central limit theorem the multiplier z is about 2 q sqrt(T) / mu (Bu, Dong, Long and Su 2020),
    which makes the noise of the mean gradient that of T full steps, whatever q. From z = 2 on that holds to
    a percent or so; below 1 more noise is needed.
    """
    return math.ceil(_MULTIPLIER / 2 * facts.n_records * mu / math.sqrt(steps))


def noise_growth(facts: RiskFacts, mu: float, eta: float) -> float:
    """By what multiple of m M the noise of M batches stretches log E |x - anchor|^2 in an epoch of m steps.

    Noise of a batch is a multiple of |x - anchor|, so it feeds on itself. By the central limit theorem noise
    for M batches, together mu-GDP with mu in units of the sensitivity of the mean gradient, is
    L |x - anchor| sqrt(M) / (G mu) per coordinate, of which a step adds eta times.
    """
    return facts.dimension * (eta * facts.smoothness / (facts.gradient_bound * mu)) ** 2


def quiet_rounds(
    shape: tuple[int, ...], facts: RiskFacts, mu: float, eta: float, longest: int = _MOST_STEPS
) -> tuple[int, ...]:
    """Inner steps of epochs in the proportions of ``shape``, as many as the noise of their batches allows.

    It multiplies the expected |x - anchor|^2 by up to e in the longest epoch: see ``noise_growth``.

    Args:
        longest: the most steps of the longest epoch. All together have at most 5000 or so.
    """
    quiet = 1 / math.sqrt(noise_growth(facts, mu, eta) * max(shape) * sum(shape))
    unit = min(quiet, longest / max(shape), _MOST_STEPS / sum(shape))
    return tuple(max(2, math.ceil(unit * m)) for m in shape)


def balanced_batch(facts: RiskFacts, steps: int, mu: float) -> int:
    """The least expected batch size that costs neither privacy nor accuracy, for T steps.

    The variance of sampling, with gradients of typical length, should be at most a quarter of the noise's,
    which is 2 G sqrt(T) / (n mu) per coordinate; but for this the steps need not pass over the data more
    than 20 times.
    """
    n, p = facts.n_records, facts.dimension
    variance = p * steps * (2 * facts.gradient_bound / (n * mu)) ** 2
    steady = _typical_gradient(facts) ** 2 / (_SAMPLING_SHARE * variance)
    return max(private_batch(facts, steps, mu), math.ceil(min(steady, _PASSES * n / steps)))


def _typical_gradient(facts: RiskFacts) -> float:
    """A guess, for accuracy only: slopes are half their bound, as those of the logistic loss begin."""
    return facts.gradient_bound / 2


def _svrg_step(
    step: Callable[[Vector, float], Vector], eta: float, full: Vector
) -> Callable[[int, Vector, Vector, Vector], Vector]:
    return lambda _k, _state, x, difference: step(x - eta * (full + difference), eta)


def _sampling(facts: RiskFacts, batch: int | None, default: int) -> float:
    expected = max(_LEAST_BATCH, default) if batch is None else check_count(batch, "batch")
    return min(1.0, expected / facts.n_records)


def _check_rounds(rounds: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(rounds, tuple | list) or not rounds:
        raise PrivacyParameterError(
            f"rounds must be a tuple of numbers of steps, one for each epoch, got {rounds!r}"
        )
    return tuple(check_count(m, "rounds") for m in rounds)

"""Variance-reduced gradients on Poisson batches: DP-SVRG and DP-SVRG++ (Wang, Ye and Xu, NIPS 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.penalties import objective_penalty
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.events import SampledGaussian
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level, shared_by
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.poisson import (
    grid_distance,
    poisson_batch,
    poisson_multiplier,
    sampled_noise,
)
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Method, Output, Run, StepClock, noisy_iteration
from privopt.mechanisms.risk.mechanism import RiskMechanism, RiskTarget
from privopt.mechanisms.risk.sampling import (
    MOST_SAMPLED_STEPS,
    TOGETHER,
    private_batch,
    record_bound,
    sampling_rate,
    sum_share,
)
from privopt.mechanisms.risk.step_counts import euclidean_steps, loss_range, typical_distance
from privopt.oracles.convex.prox import prox_step
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet


@dataclass(frozen=True)
class DPSVRG(RiskMechanism):
    """DP-SVRG: an anchor's full gradient once per epoch, then Poisson batches of gradient differences.

    Per epoch: v0 = grad F(anchor) + noise; then m times x+ = prox of x - eta (v0 + d), where q n d is the sum
    over the batch of grad f(x) - grad f(anchor), plus noise; the next anchor is the average of the x.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. x and the
    anchor are private already, so the bound min(2 G, L |x - anchor|) on one record's difference is public,
    and the noise decreases with it as the iterates converge. The full gradients take ``anchor_share`` of
    mu^2; the batches take the rest and are composed with the gradients as privacy loss distributions.

    Defaults: eta = 1/(2 L) and m = 8 L / l2, which the convergence condition allows for batches of at least
    32, but no more inner steps than the noise permits (``permitted_rounds``); more epochs make up for fewer
    inner steps. The convergence needs strong convexity: by default, a penalty l2 = 0 is replaced by
    ``objective_penalty``, since an anchor's noise is a random linear term of its epoch's objective.
    ``regularizer`` and ``noise`` hold the value in use.

    Later anchors have less noise (``anchor_weights``), because later epochs contract the effect of an
    anchor's noise.

    Excess risk: ``dp-sgd`` has less, by this calculation. The noise of the last anchor tilts the objective of
    its whole epoch and is not averaged. The variance of this noise is sum(w) / w_E / ``anchor_share`` times
    the variance of the average noise of T steps of dp-gd or dp-sgd at the whole budget, w the weights of E
    anchors; the excess risk that the tilt costs grows in proportion. The variance of sampling, which anchors
    reduce, is in dp-sgd already at most a quarter of the variance of the noise (``balanced_batch``).

    Source: Wang, Ye and Xu (2017), Algorithm 1 and Theorem 4.2, for strongly convex objectives. Their privacy
    theorem holds only for epsilon below a multiple of T m / n^2; here the sampling itself is accounted.
    """

    name: ClassVar[str] = "dp-svrg"
    convex_only: ClassVar[bool] = True
    instead: ClassVar[str] = "use dp-pgd or dp-sgd"
    noised: ClassVar[str] = (
        "anchor_sigma: the mean gradient at the last anchor; multiplier: a batch's sum of differences, in "
        "units of the bound on one"
    )
    by_sums: ClassVar[bool] = False

    anchor_share: ClassVar[float] = 2 / 3

    rounds: tuple[int, ...]
    sampling: float
    anchor_noise: VectorNoise
    multiplier: float
    step_size: float

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, rounds: tuple[int, ...] | None = None, batch: int | None = None
    ) -> Self:
        """Calibrate to a target.

        Args:
            target: risk, set, penalty and budget of the plan.
            rounds: inner steps of each epoch; by default as in the theorem, within what the noise permits.
            batch: the expected batch size q n. By default all inner steps together read the data about as
                often as the full gradients do, but the batch is large enough for the noise
                (``private_batch``). Several releases are accounted together.
        """
        facts, space, regularizer, share = target.facts, target.convex_set, target.regularizer, target.mu
        if rounds is None:
            regularizer, rounds = cls._theorem(facts, space, regularizer, share / facts.sensitivity)
        rounds = _check_rounds(rounds)
        epochs, inner = len(rounds), sum(rounds)
        least = private_batch(facts, inner, share * math.sqrt(1 - cls.anchor_share))
        q = sampling_rate(facts, batch, max(least, math.ceil(epochs * facts.n_records / inner)))
        anchors = math.sqrt(epochs / cls.anchor_share) * 2 / share  # in units of G: the sensitivity is 2
        z = poisson_multiplier(
            target.epsilon,
            target.delta,
            q=q,
            steps=inner * target.releases,
            coordinates=(inner + epochs) * facts.dimension * target.releases,
            full_z=anchors,
            full_steps=epochs * target.releases,
        )
        anchor_noise = sampled_noise(anchors, facts.sensitivity / 2, facts.dimension)
        note = shared_by(target.releases, TOGETHER)
        event = SampledGaussian(
            target.epsilon,
            target.delta,
            z,
            q,
            inner * target.releases,
            anchors,
            epochs * target.releases,
            grid_distance((inner + epochs) * facts.dimension * target.releases),
        )
        spend = PrivacySpend.approximate(target.epsilon, target.delta, cls.name, note=note, event=event)
        rate = cls._default_step_size(facts)
        return cls(facts, space, regularizer, spend, rounds, q, anchor_noise, z, rate)

    def _find_oracles(self) -> None:
        prox_step(self.convex_set, self.regularizer)

    @property
    def steps(self) -> int:
        """Number of anchors and inner steps."""
        return len(self.rounds) + sum(self.rounds)

    @property
    def anchor_noises(self) -> tuple[VectorNoise, ...]:
        """The noise of each anchor. All anchors together cost what as many with ``anchor_noise`` would."""
        weights = anchor_weights(
            self.facts,
            self.convex_set,
            self.regularizer,
            self.rounds,
            self.step_size,
            self.anchor_noise.sigma,
        )
        if np.ptp(weights) == 0:
            return (self.anchor_noise,) * len(self.rounds)
        one, p, n = self.anchor_noise, self.facts.dimension, self.facts.n_records
        levels = one.level(1) * np.sqrt(weights) * (1 - 2.0**-40)  # rounding of the sum of squares
        return tuple(noise_at_level(float(level), 1, one.sensitivity, p, n) for level in levels)

    @property
    def schedule(self) -> dict[str, Any]:
        rate = self.step_size
        return {"steps": self.steps, "step_sizes": (rate, rate), "output": Output.AVERAGE.value}

    @property
    def noise(self) -> dict[str, float]:
        return {
            "anchor_sigma": self.anchor_noises[-1].sigma,
            "multiplier": self.multiplier,
            "q": self.sampling,
            "l2": self.regularizer.l2,
        }

    @classmethod
    def _theorem(
        cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, mu: float
    ) -> tuple[ElasticNet, tuple[int, ...]]:
        """Return the default penalty and the default inner steps of each epoch."""
        l2 = regularizer.l2 or objective_penalty(facts, convex_set, 1 / (mu * math.sqrt(cls.anchor_share)))
        regularizer = ElasticNet(regularizer.l1, l2)
        # An epoch halves the distance from the minimum, down to the noise of the anchors.
        signal = 2 * l2 * loss_range(facts, convex_set) * mu**2 / facts.dimension
        # Where noise is large, epochs are short; together they should go as far as gradient descent would.
        rate, batches = cls._default_step_size(facts), mu * math.sqrt(1 - cls.anchor_share)
        steps = euclidean_steps(facts, convex_set, regularizer, mu, 1 / facts.smoothness)
        far = noise_growth(facts, batches, rate) * (steps / (rate * facts.smoothness)) ** 2
        epochs = max(1.0, math.log(min(max(signal, 1.0), 1e300)), min(far, steps))
        longest = math.ceil(min(8 * facts.smoothness / l2, MOST_SAMPLED_STEPS))
        return regularizer, permitted_rounds((1,) * math.ceil(epochs), facts, batches, rate, longest)

    @classmethod
    def _default_step_size(cls, facts: RiskFacts) -> float:
        return 1 / (2 * facts.smoothness)

    def _next_start(self, _last: Vector, average: Vector) -> Vector:
        return average

    def _compile(self, risk: EmpiricalRisk) -> None:
        risk.compile()
        risk.compile(batches=True)

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        source = run.source
        draw = source or NoiseSource()  # batches are random even in a fit without noise
        step = prox_step(self.convex_set, self.regularizer)
        x = anchor = run.start
        clock = StepClock(run.watch, sum(self.rounds))
        p, noise = self.facts.dimension, None
        if source is not None:
            noise = source.discrete_gaussian_vectors(MAX_EXPONENT, p, sum(self.rounds))
        for m, anchor_noise in zip(self.rounds, self.anchor_noises, strict=True):
            full = risk.gradient(anchor)
            if source is not None:
                full = anchor_noise.add(full, source)
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
        """Return x -> an estimate of grad F(x) - grad F(anchor) from a batch, noisy unless noise is None."""
        facts, q = self.facts, self.sampling

        def estimate(x: Vector) -> Vector:
            if np.array_equal(x, anchor):
                return np.zeros_like(x)  # every record's difference is exactly 0
            total = risk.difference_sum(x, anchor, poisson_batch(facts.n_records, q, source))
            if noise is not None:
                bound = difference_bound(facts, x, anchor)
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
        # An epoch halves the excess risk, down to the cost of the noise over that distance.
        noise = math.sqrt(facts.dimension) / mu * typical_distance(facts, convex_set)
        epochs = math.ceil(math.log2(max(2.0, loss_range(facts, convex_set) / noise)))
        shape = tuple(2**s for s in range(1, epochs + 1))
        rate, batches = cls._default_step_size(facts), mu * math.sqrt(1 - cls.anchor_share)
        longest = MOST_SAMPLED_STEPS
        if regularizer.l2 > 0:  # with a penalty, gradient descent itself needs no more steps than this
            longest = euclidean_steps(facts, convex_set, regularizer, mu, rate, MOST_SAMPLED_STEPS)
        return regularizer, permitted_rounds(shape, facts, batches, rate, longest)

    @classmethod
    def _default_step_size(cls, facts: RiskFacts) -> float:
        return 1 / (13 * facts.smoothness)

    def _next_start(self, last: Vector, _average: Vector) -> Vector:
        return last


def difference_bound(facts: RiskFacts, x: Vector, anchor: Vector) -> float:
    """Return the largest effect of a record on a computed batch sum of grad f(x) - grad f(anchor).

    The effect is 2 G, or L |x - anchor| plus a rounding error that does not vanish with the distance, if that
    is smaller. With u = (d + 4) 2^-53: a computed |x - anchor| has relative error u; the prediction for a row
    has the error u |x| times its length, hence the gradient u L |x| (both are taken twice); the slope of the
    row, and the slopes of up to n other rows evaluated in another order, have 2^-50 of their bound at either
    point (taken 8 times). The rounding of sums of n such terms is in ``sum_share``.
    """
    unit = (facts.dimension + 4) * 2.0**-52
    lengths = float(np.linalg.norm(x) + np.linalg.norm(anchor))
    distance = float(np.linalg.norm(x - anchor)) * (1 + unit) + unit * lengths
    slopes = facts.gradient_bound * facts.n_records * 2.0**-46
    return min(2 * record_bound(facts), (facts.smoothness * distance + slopes) * sum_share(facts))


def anchor_weights(
    facts: RiskFacts,
    convex_set: ConvexSet,
    regularizer: ElasticNet,
    rounds: tuple[int, ...],
    eta: float,
    sigma: float,
) -> Vector:
    """Return the shares of the anchors in their common budget, of mean 1, in proportion to 1 / the variance
    of their noise.

    Noise on an anchor adds a random linear term to the objective of its epoch. An epoch of m steps brings the
    average of its iterates closer to the minimum by the factor c = (r + ... + r^m) / m, r = 1 / (1 + eta l2),
    or closer where F is curved, so noise of variance s on an anchor costs s times the product of the c^2 of
    later epochs. At a given sum of 1 / s the sum of these costs is least if 1 / s is proportional to the
    product of the c of later epochs: shares grow by 1/c per epoch. The share of an early anchor does not fall
    below the share at which the noise of the anchor costs the range of the loss, or below that of the last
    anchor if this is smaller; the cost of noise is p s / (2 l2). Without a penalty c is 1, and all shares are
    equal.
    """
    l2, epochs = regularizer.l2, len(rounds)
    m, reach = np.array(rounds, dtype=np.float64), np.log1p(eta * l2)
    if reach == 0:
        return np.ones(epochs)
    kept = -np.expm1(-m * reach) / (m * np.expm1(reach))
    later = np.append(np.cumprod(kept[:0:-1])[::-1], 1.0)
    range_ = max(loss_range(facts, convex_set), 1e-150)  # above 0 also for a set of one point
    least = facts.dimension * sigma**2 / epochs / (2 * l2 * range_)
    # Levels also stay 16 times above what a grid of 2^-30 sigma adds to them: below that no amount of noise
    # reaches them.
    coarse = facts.dimension * (16 * 2.0**-MAX_EXPONENT * sigma / (facts.sensitivity / 2)) ** 2
    weights = np.maximum(later, min(1.0, max(least, coarse)))
    return np.asarray(weights * (epochs / np.sum(weights)))


def noise_growth(facts: RiskFacts, mu: float, eta: float) -> float:
    """Return the growth of log E |x - anchor|^2 by the noise of M batches in m steps, divided by m M.

    The noise of a batch is proportional to |x - anchor|, so it is self-amplifying. Let all M batches together
    be mu-GDP, with mu divided by the sensitivity of the mean gradient. By the central limit theorem the noise
    of a batch is then L |x - anchor| sqrt(M) / (G mu) per coordinate; a step adds eta times that noise.
    """
    return facts.dimension * (eta * facts.smoothness / (facts.gradient_bound * mu)) ** 2


def permitted_rounds(
    shape: tuple[int, ...], facts: RiskFacts, mu: float, eta: float, longest: int = MOST_SAMPLED_STEPS
) -> tuple[int, ...]:
    """Return inner steps per epoch in the proportions of ``shape``, as many as the noise permits.

    The noise may multiply the expected |x - anchor|^2 by e in the longest epoch: see ``noise_growth``.

    Args:
        longest: limit on the steps of the longest epoch. All epochs together have at most about 5000.
    """
    quiet = 1 / math.sqrt(noise_growth(facts, mu, eta) * max(shape) * sum(shape))
    unit = min(quiet, longest / max(shape), MOST_SAMPLED_STEPS / sum(shape))
    return tuple(max(2, math.ceil(unit * m)) for m in shape)


def _svrg_step(
    step: Callable[[Vector, float], Vector], eta: float, full: Vector
) -> Callable[[int, Vector, Vector, Vector], Vector]:
    return lambda _k, _state, x, difference: step(x - eta * (full + difference), eta)


def _check_rounds(rounds: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(rounds, tuple | list) or not rounds:
        raise PrivacyParameterError(
            f"rounds must be a tuple of positive integers, the inner steps of each epoch, got {rounds!r}"
        )
    return tuple(check_count(m, "rounds") for m in rounds)

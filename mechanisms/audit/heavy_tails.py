"""Audits of mechanisms for unbounded records: one outlier, on either side.

In one dimension the laws are known: a Gaussian, a mixture of Gaussians over how often the record was sampled,
or a monotone function of a normal variable. Records without an effect are 0.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from privopt.mechanisms.audit.audit import Binned, Outcome, Sampler
from privopt.mechanisms.audit.claims import AuditedClaim, claim_by_laws
from privopt.mechanisms.audit.convex import masses
from privopt.mechanisms.heavy_tails.arsinh_noise import ArsinhNoise
from privopt.mechanisms.heavy_tails.grid import NARROWEST
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.robust_stochastic import RobustStochasticGradient
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.subset_mean import SubsetMean
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.trimming import Trimming
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.truncation import INFLUENCE
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 0.05
# Deltas at which rare events distinguish a mutant; the exact law rejects it, as runs are too few.
_SMALL_DELTA, _TINY_DELTA = 1e-3, 1e-6
_FAR = 1e9
# A function (plan, records) -> the probabilities of the bins.
Law = Callable[[Any, tuple[float, ...]], Floats]
# A function (plan, records) -> a sampler of the outcomes of its releases.
Run = Callable[[Any, tuple[float, ...]], Sampler]


@dataclass(frozen=True)
class MeanSampler:
    """Sampler of a plan's ``release`` on records of d equal numbers: the first number released."""

    plan: Any
    records: tuple[float, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        return self.points(runs, noise)[:, 0]

    def points(self, runs: int, noise: NoiseSource) -> Floats:
        """Return all released numbers, shape (runs, d)."""
        X = np.repeat(np.array(self.records)[:, None], self.plan.dimension, axis=1)
        return np.array([self.plan.release(X, noise).point for _ in range(runs)])


class DescentSampler(MeanSampler):
    """Sampler of descents from 0 with features 1, where the gradient of a record with label y is -y."""

    def points(self, runs: int, noise: NoiseSource) -> Floats:
        """Return all released numbers, shape (runs, d)."""
        shape = len(self.records), self.plan.facts.dimension
        risk = UnclippedRisk(np.ones(shape), self.records, PLAIN_SQUARES)
        return np.array([self.plan.release(risk, noise).point for _ in range(runs)])


@dataclass(frozen=True)
class CountSampler:
    """Sampler of the number of released coordinates above 1/2."""

    points: MeanSampler

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return list(np.count_nonzero(self.points.points(runs, noise) > 0.5, axis=1).tolist())


def law_claim(
    plan: Any,
    pair: tuple[tuple[float, ...], tuple[float, ...]],
    name: str,
    run: Run,
    law: Law,
    mutants: Mapping[str, Any],
) -> AuditedClaim:
    """Build the audited claim of a plan for unbounded records, see ``claim_by_laws``."""
    n = getattr(plan, "n_records", len(pair[0]))
    return claim_by_laws(plan, pair, f"{name}, n = {n}", run, law, mutants)


def _binned(kind: type[MeanSampler] | type[DescentSampler], edges: Floats) -> Run:
    return lambda plan, records: Binned(kind(plan, records), tuple(edges.tolist()))


def _with_less_noise(plan: Any) -> Any:
    return dataclasses.replace(
        plan, vector_noise=dataclasses.replace(plan.vector_noise, sigma=plan.vector_noise.sigma / 2)
    )


# --- soft truncation -------------------------------------------------------------------------------------

# The threshold is hardly blurred, so that an outlier has its full influence.
_SHARP = SoftTruncation(1.0, 100.0)


def _robust_mean() -> tuple[AuditedClaim, ...]:
    plan = RobustMean.plan(2, 1, moment=1.0, epsilon=_EPSILON, delta=_DELTA, truncation=_SHARP)
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma

    def law(one: RobustMean, records: tuple[float, ...]) -> Floats:
        centre = sum(np.sign(records)) * INFLUENCE / len(records)
        return masses(special.ndtr((edges - centre) / one.vector_noise.sigma))

    mutants = {"noise halved": _with_less_noise(plan)}
    pair = ((_FAR, 0.0), (-_FAR, 0.0))
    return (law_claim(plan, pair, "outlier, d = 1", _binned(MeanSampler, edges), law, mutants),)


def _robust_descent() -> tuple[AuditedClaim, ...]:
    facts = unclipped_facts(2, 1, PLAIN_SQUARES)
    plan = RobustGradientDescent.plan(
        facts, epsilon=_EPSILON, delta=_DELTA, moment=1.0, steps=1, truncation=_SHARP
    )
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma

    def law(one: RobustGradientDescent, records: tuple[float, ...]) -> Floats:
        centre = sum(np.sign(records)) * INFLUENCE / len(records)
        return masses(special.ndtr((edges - centre) / one.vector_noise.sigma))

    pair = ((_FAR, 0.0), (-_FAR, 0.0))
    mutants = {"noise halved": _with_less_noise(plan)}
    return (law_claim(plan, pair, "outlier, d = 1", _binned(DescentSampler, edges), law, mutants),)


def _robust_stochastic() -> tuple[AuditedClaim, ...]:
    facts = unclipped_facts(2, 1, PLAIN_SQUARES)
    plan = RobustStochasticGradient.plan(
        facts, epsilon=_EPSILON, delta=_DELTA, moment=1.0, steps=1, batch=1, truncation=_SHARP
    )
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma / (plan.sampling * 2)

    def law(one: RobustStochasticGradient, records: tuple[float, ...]) -> Floats:
        expected = one.sampling * len(records)
        at, q = edges * expected, one.sampling
        below = sum(
            stats.binom.pmf(k, 1, q)
            * special.ndtr((at - k * np.sign(records[0]) * INFLUENCE) / one.vector_noise.sigma)
            for k in range(2)
        )
        return masses(np.asarray(below))

    pair = ((_FAR, 0.0), (-_FAR, 0.0))
    mutants = {
        "noise halved": _with_less_noise(plan),
        "everyone sampled": dataclasses.replace(plan, sampling=1.0),
    }
    return (law_claim(plan, pair, "outlier, d = 1", _binned(DescentSampler, edges), law, mutants),)


# --- trimmed means ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrintedTrimming(Trimming):
    """Trimmed mean with the scale printed in Algorithm 2, which one outlier can make arbitrarily large."""

    def sensitivity(self, ordered: Floats) -> float:
        spread = float(ordered[-1] - ordered[0]) / (self.n - 2 * self.trimmed)
        return max(spread, math.exp(-self.trimmed * self.noise.t))


def _above(trim: Trimming, records: tuple[float, ...], sign: float = 1.0) -> Floats:
    """Return the probabilities that ``sign`` times the released number exceeds 1/2, shape (1,)."""
    return 1 - _below(np.array([0.5]), trim, records, sign)


def _below(edges: Floats, trim: Trimming, records: tuple[float, ...], sign: float = 1.0) -> Floats:
    """Return the probabilities of lying below the edges.

    The grid of the release is far finer than the edges, and its clipping lies beyond them.
    """
    ordered = trim.ordered(np.array(records))
    spread = trim.width * trim.sensitivity(ordered) / trim.noise.s
    centre = trim.low / 2 + trim.high / 2 + trim.width * trim.centre(ordered)
    reach = np.arcsinh((sign * edges - centre) / spread)
    return np.asarray(special.ndtr(reach) if sign > 0 else special.ndtr(-reach))


def count_law(dimension: int, above: Floats) -> Floats:
    return np.asarray(stats.binom.pmf(np.arange(dimension + 1), dimension, above))


def printed_scale(trim: Trimming) -> Trimming:
    """Return the same plan with the scale printed in Algorithm 2."""
    return PrintedTrimming(trim.n, trim.low, trim.high, trim.trimmed, trim.noise)


def _with_more_noise(trim: Trimming, factor: float) -> Trimming:
    noise = ArsinhNoise(trim.noise.t, trim.noise.s * factor)
    return dataclasses.replace(trim, noise=noise)


# A claim adds up Renyi divergences over coordinates: with one coordinate, or a few, the true epsilon stays
# far below it, and with many it comes close.
_MANY, _FEW = 32, 8
_MEDIANS = ((0.0, 0.0, 1.0), (0.0, 1.0, 1.0))


def _trimmed_mean() -> tuple[AuditedClaim, ...]:
    """Return claims on two pairs: one record moves the median across the range, or is an outlier."""
    medians = TrimmedMean.plan(
        3, _MANY, mean_range=(0.0, 1.0), epsilon=_EPSILON, delta=_TINY_DELTA, trimmed=1
    )
    far = TrimmedMean.plan(1000, 1, mean_range=(0.0, 1.0), epsilon=_EPSILON, delta=_SMALL_DELTA, trimmed=300)

    def counts(one: TrimmedMean, records: tuple[float, ...]) -> Floats:
        return count_law(one.dimension, _above(one.trimming, records))

    with_less_noise = dataclasses.replace(medians, trimming=_with_more_noise(medians.trimming, 8.0))
    return (
        law_claim(
            medians,
            _MEDIANS,
            f"medians, d = {_MANY}",
            lambda plan, records: CountSampler(MeanSampler(plan, records)),
            counts,
            {"noise an eighth": with_less_noise},
        ),
        outlier_claim(far, 1e4),
    )


def outlier_claim(plan: TrimmedMean, outlier: float) -> AuditedClaim:
    """Return the claim of a trimmed mean of zeros, with an outlier or not: the printed scale reveals it."""
    n = plan.trimming.n
    wide = np.concatenate([-np.geomspace(60, 1e-3, 40), np.geomspace(1e-3, 60, 40)])

    def bins(one: TrimmedMean, records: tuple[float, ...]) -> Floats:
        return masses(_below(wide, one.trimming, records))

    printed = dataclasses.replace(plan, trimming=printed_scale(plan.trimming))
    pair = (0.0,) * n, (*(0.0,) * (n - 1), outlier)
    return law_claim(
        plan, pair, "outlier, d = 1", _binned(MeanSampler, wide), bins, {"printed scale": printed}
    )


def _trimmed_descent() -> tuple[AuditedClaim, ...]:
    """Return the claim of one step of length 1 from 0, which releases minus the noisy means of -y."""
    plan = TrimmedGradientDescent.plan(
        unclipped_facts(3, _MANY, PLAIN_SQUARES),
        epsilon=_EPSILON,
        delta=_TINY_DELTA,
        mean_range=(-1.0, 0.0),
        steps=1,
        trimmed=1,
    )

    def counts(one: TrimmedGradientDescent, records: tuple[float, ...]) -> Floats:
        above = _above(one.trimming, tuple(-y for y in records), sign=-1.0)
        return count_law(one.facts.dimension, above)

    # The fault is epsilon in place of epsilon-tilde, so that the whole run has (1/2) epsilon^2-zCDP.
    printed = ArsinhNoise.within(_EPSILON**2 / 2 / _MANY, enough=plan.trimming.noise.t)
    mutants = {
        "noise an eighth": dataclasses.replace(plan, trimming=_with_more_noise(plan.trimming, 8.0)),
        "printed budget": dataclasses.replace(
            plan, trimming=dataclasses.replace(plan.trimming, noise=printed)
        ),
    }
    return (
        law_claim(
            plan,
            _MEDIANS,
            f"medians, d = {_MANY}",
            lambda one, records: CountSampler(DescentSampler(one, records)),
            counts,
            mutants,
        ),
    )


# --- sample and aggregate --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CentreSampler:
    """Sampler of a plan's ``release`` with one record in every subset, whose estimate is that record."""

    plan: SampleAggregate | SubsetMean
    records: tuple[float, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        X, y = np.array(self.records)[:, None], np.zeros(len(self.records))
        return np.array([self.plan.release(X, y, _first, noise).point[0] for _ in range(runs)])


def _first(rows: Floats, labels: Floats) -> Floats:
    return np.asarray(rows[0])


@dataclass(frozen=True)
class LargestDistances(SampleAggregate):
    """Mutant with means of the largest distances, which one estimate can make arbitrarily large."""

    def mean_distances(self, distances: Floats) -> Floats:
        kept = np.partition(distances, -self.averaged, axis=0)[-self.averaged :]
        return np.asarray(np.mean(kept, axis=0))


@dataclass(frozen=True)
class TruncatedMaximum(SampleAggregate):
    """Mutant whose maximum stops at m and ignores the diameter beyond."""

    def sensitivity(self, distances: Floats) -> float:
        means = self.mean_distances(distances[:, (self.subsets + 1) // 2 + 1 :])
        largest = float(np.max(means * np.exp(-self.decay * np.arange(means.size))))
        grown = 1 + (self.averaged + 1) / (self.averaged - 1)
        return max(grown * largest, self.gamma * NARROWEST)


# Pairs of data sets for which the noise is small: one record decides a majority, or is the only one that
# disagrees.
_MAJORITY, _OUTLIER, _SUBSETS = "majority", "outlier", 121


def _sample_aggregate() -> tuple[AuditedClaim, ...]:
    plan = SampleAggregate.plan(_SUBSETS, 1, subsets=_SUBSETS, radius=1.0, epsilon=4.0, delta=_DELTA)
    wide = np.geomspace(1e-6, 60, 60)
    wide = np.concatenate([-wide[::-1], wide])

    def law(one: SampleAggregate, records: tuple[float, ...]) -> Floats:
        # Subsets are in random order, so each estimate among the best is equally likely to be the centre.
        estimates = np.array(records)[:, None]
        scale = one.centre(estimates)[1]
        reach = np.sort(np.abs(estimates - estimates.T), axis=1)[:, (one.subsets + 1) // 2]
        best = estimates[reach == reach.min(), 0]
        below = [special.ndtr((wide - centre) * one.gamma / scale) for centre in best]
        return masses(np.mean(below, axis=0))

    def run(one: SampleAggregate, records: tuple[float, ...]) -> Sampler:
        return Binned(CentreSampler(one, records), tuple(wide.tolist()))

    def changed(kind: type[SampleAggregate]) -> SampleAggregate:
        return kind(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)})

    half = _SUBSETS // 2
    majority = (-1.0,) * (half + 2) + (1.0,) * (half - 1), (-1.0,) * (half + 1) + (1.0,) * half
    outlier = (0.0,) * _SUBSETS, (0.0,) * (_SUBSETS - 1) + (1.0,)
    with_less_noise = {"noise a thirtieth": dataclasses.replace(plan, gamma=plan.gamma * 30)}
    printed = {
        "means of the largest distances": changed(LargestDistances),
        "maximum up to m": changed(TruncatedMaximum),
    }
    return (
        law_claim(plan, majority, f"{_MAJORITY}, d = 1", run, law, with_less_noise),
        law_claim(plan, outlier, f"{_OUTLIER}, d = 1", run, law, printed),
    )


def _subset_mean() -> tuple[AuditedClaim, ...]:
    plan = SubsetMean.plan(2, 1, subsets=2, radius=3.0, epsilon=_EPSILON, delta=_DELTA)
    edges = 3.0 * np.linspace(-4, 4, 65) * plan.vector_noise.sigma

    def law(one: SubsetMean, records: tuple[float, ...]) -> Floats:
        centre = sum(np.clip(records, -one.radius, one.radius)) / len(records)
        return masses(special.ndtr((edges - centre) / one.noise["sigma"]))

    def run(one: SubsetMean, records: tuple[float, ...]) -> Sampler:
        return Binned(CentreSampler(one, records), tuple(edges.tolist()))

    pair = ((_FAR, 0.0), (-_FAR, 0.0))
    mutants = {"noise halved": _with_less_noise(plan)}
    return (law_claim(plan, pair, "outlier, d = 1", run, law, mutants),)


HEAVY_TAILED_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    RobustMean.name: _robust_mean,
    RobustGradientDescent.name: _robust_descent,
    RobustStochasticGradient.name: _robust_stochastic,
    TrimmedMean.name: _trimmed_mean,
    TrimmedGradientDescent.name: _trimmed_descent,
    SampleAggregate.name: _sample_aggregate,
    SubsetMean.name: _subset_mean,
}

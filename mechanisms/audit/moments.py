"""Audits of released moments: the sign of a model's weight, and the moments themselves.

The moments of two neighbouring data sets differ by a known vector, and the noise is the same in all
directions: the release projected on that vector is Gaussian, and no other function of it distinguishes the
data sets better. Between the rows (e_1, B) and (e_2, 0), with B the bound on labels, the difference is as
long as the sensitivity allows; a third of its square is due to the squared label. With several classes, two
rows of one class at an angle of 120 degrees attain the sensitivity.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import Binned, Outcome, Sampler
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.audit.convex import PointSampler, Records, masses, risk_claim, with_less_noise
from privopt.mechanisms.convex.sufficient_statistics import (
    Moments,
    SufficientStatistics,
    label_bound,
    moments,
)
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments
from privopt.mechanisms.risk.iteration import Run
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import Loss, OneVsRestLoss, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 0.01
_LOSS = SquaredLoss(2.0)  # labels are bounded by 1
_CLASSES = OneVsRestLoss(3)
# Two rows at an angle of 120 degrees.
_TURNED = ((1.0, 0.0), (-0.5, math.sqrt(3) / 2))
# Noise without the part of the sensitivity that is due to labels: sqrt 2 in place of 3 / sqrt 2.
_ROWS_ALONE = 2 / 3


@dataclass(frozen=True)
class SignSampler:
    """Sampler of the sign of a plan's release: 0 for below 0, 1 for 0, 2 for above."""

    points: PointSampler

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return list((np.sign(self.points(runs, noise)).astype(int) + 1).tolist())


def _sign_claim() -> AuditedClaim:
    """Return the claim on a label of B or -B beside three of B: the tail of the noise decides the sign.

    There is no constant feature. The weight has the sign of the noisy mean of products, whatever the prior
    and the noisy mean of squares, which is never estimated as 0.
    """
    pair = tuple(Records((1.0,) * 4, (label, 1.0, 1.0, 1.0), _LOSS) for label in (-1.0, 1.0))
    plan = SufficientStatistics.plan(pair[0].facts, epsilon=_EPSILON, delta=_DELTA)

    def law(one: SufficientStatistics, records: Records) -> Floats:
        sigma = one.vector_noise.sigma
        up = special.ndtr(np.dot(records.features, records.labels) / 4 / sigma)
        return np.array([1 - up, 0.0, up])

    def run(one: SufficientStatistics, records: Records) -> Sampler:
        return SignSampler(PointSampler(one, records))

    mutants = {"noise halved": _noise_halved(plan)}
    return risk_claim(plan, (pair[0], pair[1]), "labels at either end", run, law, mutants)


class HeavySquare(SufficientStatistics):
    """Mutant: the weight of the squared label is ten times what the sensitivity allows."""

    @property
    def _square_weight(self) -> float:
        return 10 * super()._square_weight


# Features and label of one record.
Row = tuple[tuple[float, ...], float]


@dataclass(frozen=True)
class MomentsSampler:
    """Sampler of the moments that a plan releases on one of two records, projected on their difference.

    Attributes:
        plan: the plan.
        pair: the two records; their projected moments have the middle 0.
        second: whether to run on the second.
    """

    plan: SufficientStatistics
    pair: tuple[Row, Row]
    second: bool

    @cached_property
    def risks(self) -> tuple[EmpiricalRisk, EmpiricalRisk]:
        first, second = (EmpiricalRisk([x], [label], self.plan.facts.loss) for x, label in self.pair)
        return first, second

    @cached_property
    def direction(self) -> tuple[Floats, float, float]:
        """The unit vector of the difference, the distance, and the projection of the middle."""
        first, second = (self._vector(moments(risk, 0.0, Limits().start())) for risk in self.risks)
        distance = float(np.linalg.norm(second - first))
        unit = (second - first) / distance
        return unit, distance, float(unit @ (first + second)) / 2

    def _vector(self, found: Moments) -> Floats:
        """Return the moments weighted as they are released.

        Matrices have each off-diagonal entry twice, in place of once times sqrt 2: the lengths are the same.
        """
        products = self.plan._label_weight * found.products.ravel()
        if isinstance(self.plan.facts.loss, OneVsRestLoss):
            return np.concatenate([found.features.ravel(), products])
        return np.concatenate([found.features.ravel(), products, [self.plan._square_weight * found.square]])

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        unit, _, middle = self.direction
        vectors = [self._vector(self._released(noise)) for _ in range(runs)]
        return np.asarray(vectors) @ unit - middle

    def _released(self, noise: NoiseSource) -> Moments:
        """Release and return the noisy moments, which the release of several classes does not contain."""
        risk = self.risks[self.second]
        if isinstance(self.plan.facts.loss, OneVsRestLoss):
            return self.plan._noisy_moments(risk, Run(np.zeros(0), noise, Limits().start()))[0]
        found = self.plan.release(risk, noise).moments
        assert found is not None
        return Moments(found.features, found.products, found.square)


class NoFit(SufficientStatistics):
    """Sufficient statistics whose fit is 0, so that residuals are labels: the worst case of the proof.

    The second release is private whatever function of the first one the fit is. A least-squares fit would
    follow the noise of the first release, and residuals would vary with it.
    """

    def _residual_fit(self, moments: NoisyMoments, sigma: float) -> tuple[Floats, float]:
        return np.zeros(len(moments.products)), label_bound(self.facts.loss)


@dataclass(frozen=True)
class ResidualsSampler(MomentsSampler):
    """Sampler of the standardised log ratio of both releases of ``with_residuals`` on one of two records.

    Their labels are 1 and their rows are two axes. Residuals of ``NoFit`` are labels, clipped to 1, so the
    second release is e_k e_k' plus noise.
    """

    @property
    def distances(self) -> tuple[float, float]:
        """Distances by which the two records move either release, in units of its noise."""
        assert self.plan.residual_noise is not None
        second = math.sqrt(2) / self.plan.residual_noise.vector.sigma
        return self.direction[1] / self.plan.vector_noise.sigma, second

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        return np.array([self._log_ratio(noise) for _ in range(runs)])

    def _log_ratio(self, noise: NoiseSource) -> float:
        plan, (unit, _, middle), (first, second) = self.plan, self.direction, self.distances
        found = plan.release(self.risks[self.second], noise)
        assert found.moments is not None
        assert found.spread is not None
        assert plan.residual_noise is not None
        seen = Moments(found.moments.features, found.moments.products, found.moments.square)
        along = float(unit @ self._vector(seen)) - middle
        across = float(found.spread.matrix[1, 1] - found.spread.matrix[0, 0]) / math.sqrt(2)
        sigmas = plan.vector_noise.sigma, plan.residual_noise.vector.sigma
        return (first * along / sigmas[0] + second * across / sigmas[1]) / math.hypot(first, second)


def _residuals_claim() -> AuditedClaim:
    axes = np.eye(6)
    pair: tuple[Row, Row] = ((tuple(axes[0]), 1.0), (tuple(axes[1]), 1.0))
    facts = EmpiricalRisk([pair[0][0]], [1.0], _LOSS).facts
    plan = NoFit.plan(facts, epsilon=_EPSILON, delta=_DELTA).with_residuals()
    assert plan.residual_noise is not None
    quiet = dataclasses.replace(plan.residual_noise, vector=with_less_noise(plan.residual_noise.vector, 0.2))
    edges = np.linspace(-4, 4, 65)

    def subject(name: str, one: SufficientStatistics) -> Subject:
        samplers = ResidualsSampler(one, pair, False), ResidualsSampler(one, pair, True)
        half = math.hypot(*samplers[0].distances) / 2
        laws = masses(special.ndtr(edges + half)), masses(special.ndtr(edges - half))
        binned = [Binned(sampler, tuple(edges.tolist())) for sampler in samplers]
        return subject_by_laws(name, binned, laws, plan.spend.epsilon, _DELTA)

    mutant = subject("a fifth of the residuals' noise", dataclasses.replace(plan, residual_noise=quiet))
    where = "with residuals, (e1, 1) or (e2, 1), n = 1, d = 6"
    return AuditedClaim(plan.name, where, subject(RELEASED, plan), (mutant,))


def _pair_claim(
    pair: tuple[Row, Row],
    name: str,
    mutants: Mapping[str, Callable[..., SufficientStatistics]],
    loss: Loss = _LOSS,
) -> AuditedClaim:
    facts = EmpiricalRisk([pair[0][0]], [pair[0][1]], loss).facts
    plan = SufficientStatistics.plan(facts, epsilon=_EPSILON, delta=_DELTA)
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma

    def subject(name: str, one: SufficientStatistics) -> Subject:
        samplers = MomentsSampler(one, pair, False), MomentsSampler(one, pair, True)
        half, sigma = samplers[0].direction[1] / 2, one.vector_noise.sigma
        laws = masses(special.ndtr((edges + half) / sigma)), masses(special.ndtr((edges - half) / sigma))
        binned = [Binned(sampler, tuple(edges.tolist())) for sampler in samplers]
        return subject_by_laws(name, binned, laws, plan.spend.epsilon, _DELTA)

    where = f"{name}, n = 1, d = {facts.dimension}"
    found = tuple(subject(mutant, made(plan)) for mutant, made in mutants.items())
    return AuditedClaim(plan.name, where, subject(RELEASED, plan), found)


def _noise_halved(plan: SufficientStatistics) -> SufficientStatistics:
    return dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise))


def _labels_forgotten(plan: SufficientStatistics) -> SufficientStatistics:
    return dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise, _ROWS_ALONE))


def _with_heavy_square(plan: SufficientStatistics) -> SufficientStatistics:
    return HeavySquare(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)})


def moments_claims() -> tuple[AuditedClaim, ...]:
    """Return claims of sufficient statistics: moments with the squared label, sign, classes, residuals."""
    classes = {"labels forgotten": _labels_forgotten}
    heavy = {"squared label forgotten": _with_heavy_square}
    return (
        _pair_claim(
            (((1.0, 0.0), 1.0), ((0.0, 1.0), 0.0)),
            "(e1, 1) or (e2, 0)",
            {**heavy, "noise halved": _noise_halved},
        ),
        _pair_claim((((1.0,), 1.0), ((0.0,), 0.0)), "(1, 1) or (0, 0)", heavy),
        _sign_claim(),
        _pair_claim(
            ((_TURNED[0], 1.0), (_TURNED[1], 1.0)), "3 classes, rows at 120 degrees", classes, _CLASSES
        ),
        _residuals_claim(),
    )

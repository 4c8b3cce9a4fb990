"""Audits of clipped Newton steps: outlying labels for steps, opposite rows for moments, ties for counts.

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
from scipy import special

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import AuditedClaim
from privopt.mechanisms.audit.heavy_tails import count_law, law_claim
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.unclipped import PLAIN_SQUARES

Floats = NDArray[np.float64]

_DELTA, _FAR = 0.05, 1e9
_COLUMNS = 8


@dataclass(frozen=True)
class FitSampler:
    """Sampler of a plan's ``release`` on two records of one number and a label."""

    plan: ClippedNewton
    records: tuple[float, ...]  # (x, y) of the first record; the second is (0, 0)
    product: bool  # whether slope times intercept is observed, or the intercept alone

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        X, y = np.array([[self.records[0]], [0.0]]), np.array([self.records[1], 0.0])
        points = np.array([self.plan.release(X, [y], noise)[0].point for _ in range(runs)])
        seen = points[:, 0] * points[:, 1] if self.product else points[:, 1]
        return list((seen > 0).astype(int).tolist())


@dataclass(frozen=True)
class SearchSampler:
    """Sampler of the number of equal columns for which a plan's search finds a centre above 0."""

    plan: ClippedNewton
    ones: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        n, search = self.plan.n_records, self.plan.search
        assert search is not None
        columns = np.repeat((np.arange(n) < self.ones)[:, None], search.counts.dimension, axis=1).astype(
            np.float64
        )
        found = [search.centres(columns, noise) for _ in range(runs)]
        return list(np.count_nonzero(np.array(found) > 0, axis=1).tolist())


def _far_label() -> AuditedClaim:
    plan = ClippedNewton.plan(2, 1, PLAIN_SQUARES, epsilon=0.5, delta=_DELTA, steps=1)

    def law(one: ClippedNewton, records: tuple[float, ...]) -> Floats:
        # Whatever the metric, the intercept is normal. In units in which its standard deviation equals the
        # standard deviation of the noise, its mean is half of the clipping norm.
        mean = math.copysign(one.clip_of(1, one.loss) / 2, records[1])
        return _coin(float(special.ndtr(mean / one.step_noise.sigma)))

    return law_claim(
        plan,
        ((0.0, _FAR), (0.0, -_FAR)),
        "far label, d = 1",
        lambda one, records: FitSampler(one, records, False),
        law,
        {"noise of steps a quarter": _with_less_noise(plan, "step_noise", 4.0)},
    )


def _sides() -> AuditedClaim:
    plan = ClippedNewton.plan(2, 1, PLAIN_SQUARES, epsilon=0.25, delta=_DELTA, steps=1)

    def law(one: ClippedNewton, records: tuple[float, ...]) -> Floats:
        # Labels are 0, so weights are noise multiplied by the metric: the law averages over the metric.
        z = np.array([[math.copysign(1.0, records[0]), 0.5], [0.0, 0.5]])  # clipped
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        share = weights / math.sqrt(2 * math.pi)
        above, sigma = 0.0, one.moment_noise.sigma
        for x, p in zip(nodes, share, strict=True):
            for y, q in zip(nodes, share, strict=True):
                A = z.T @ z / 2 + sigma * np.array([[x, y / math.sqrt(2)], [y / math.sqrt(2), 0.0]])
                turn = one.metric(A)
                cov = turn @ turn.T
                above += p * q * (0.5 + math.asin(cov[0, 1] / math.sqrt(cov[0, 0] * cov[1, 1])) / math.pi)
        return _coin(above)

    return law_claim(
        plan,
        ((_FAR, 0.0), (-_FAR, 0.0)),
        "sides, d = 1",
        lambda one, records: FitSampler(one, records, True),
        law,
        {"noise of moments a fiftieth": _with_less_noise(plan, "moment_noise", 50.0)},
    )


def _tied_medians() -> AuditedClaim:
    plan = ClippedNewton.plan(500, _COLUMNS, LogisticLoss(), epsilon=0.5, delta=_DELTA, steps=1)

    def law(one: ClippedNewton, records: tuple[float, ...]) -> Floats:
        assert one.search is not None
        noise, zeros = one.search.counts, one.n_records - records[0]
        above = np.asarray(special.ndtr((one.n_records / 2 - zeros) / noise.sigma))
        return count_law(noise.dimension, above)

    quiet = dataclasses.replace(plan, search=_with_less_noise(plan.search, "counts", 30.0))
    return law_claim(
        plan,
        ((250.0,), (249.0,)),
        f"tied medians, d = {_COLUMNS}",
        lambda one, records: SearchSampler(one, int(records[0])),
        law,
        {"noise of counts a thirtieth": quiet},
    )


def _coin(above: float) -> Floats:
    return np.array([1 - above, above])


def _with_less_noise(plan: Any, part: str, factor: float) -> Any:
    noise = getattr(plan, part)
    return dataclasses.replace(plan, **{part: dataclasses.replace(noise, sigma=noise.sigma / factor)})


NEWTON_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    ClippedNewton.name: lambda: (_far_label(), _sides(), _tied_medians())
}

"""Localisation after Asi, Liu and Tian (2024), and plain clipped descent: baselines, never mechanisms.

Their reduction (Private Stochastic Convex Optimization with Heavy Tails, NeurIPS 2024), as we read it: in
phases on disjoint parts of the records, each half as large as the one before, the risk with a penalty
around the previous answer is minimised privately by clipped descent, several times on parts of the part,
and the answer that is nearest to most others is kept; penalties grow by a factor from phase to phase.
Different here: descent takes full batches of a part, where theirs draws single records many times, and
noise is accounted exactly, which is less than their bounds ask for. A record is in one run of one phase, so
all of it is mu-GDP if each run is; replace-one.

Constants are the best of a grid *on the true error*, for free: more than anybody could have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from privopt.problems.convex.losses import Loss

Floats = NDArray[np.float64]
_LEAST = 200  # records of a part


@dataclass(frozen=True)
class Tuning:
    """Constants of a run.

    Attributes:
        clip: the norm that gradients are clipped to.
        penalty: of the first phase.
        growth: of the penalty from phase to phase; theirs is 32.
        copies: answers per phase, of which one is kept.
        phases: 1 is plain clipped descent on all records.
        steps: of each descent.
    """

    clip: float
    penalty: float = 0.0
    growth: float = 32.0
    copies: int = 1
    phases: int = 1
    steps: int = 20


def plain() -> Iterator[Tuning]:
    """Clipped descent."""
    return (Tuning(float(clip)) for clip in np.geomspace(0.1, 10, 7))


def localising(n: int) -> Iterator[Tuning]:
    """Phases until parts would be too small."""
    grid = itertools.product(np.geomspace(0.1, 10, 7), (0.0, 0.01, 0.1), (4.0, 32.0), (1, 5))
    for clip, penalty, growth, copies in grid:
        phases = max(2, int(math.log2(n / (_LEAST * copies))))
        yield Tuning(float(clip), penalty or 1e-4, growth, copies, phases)


def best(
    candidates: Iterator[Tuning],
    X: Floats,
    y: Floats,
    loss: Loss,
    mu: float,
    error: Callable[[Floats], float],
    runs: int,
) -> list[float]:
    """The errors of the candidate whose mean error is the smallest."""
    curve = loss.smoothness * float(
        np.linalg.eigvalsh(X.T @ X / len(X))[-1]
    )  # read off the records, for free
    tried = (
        [error(localised(X, y, loss, mu, one, curve, np.random.default_rng(run))) for run in range(runs)]
        for one in candidates
    )
    return min(tried, key=lambda errors: float(np.mean(errors)))


def localised(
    X: Floats, y: Floats, loss: Loss, mu: float, tuning: Tuning, curve: float, rng: np.random.Generator
) -> Floats:
    """Weights, mu-GDP for one replaced record but for what the constants were chosen by.

    Args:
        curve: the largest curvature of the mean loss: steps are as long as it allows.
    """
    order, w = rng.permutation(len(X)), np.zeros(X.shape[1])
    for phase in range(tuning.phases):
        left = len(order)
        size = left if phase == tuning.phases - 1 else left - left // 2
        part, order = order[:size], order[size:]
        penalty = tuning.penalty * tuning.growth**phase
        answers = np.array(
            [
                _descent(X[rows], y[rows], loss, mu, tuning, penalty, w, curve, rng)
                for rows in np.array_split(part, tuning.copies)
            ]
        )
        w = answers[int(np.argmin(np.median(cdist(answers, answers), axis=1)))]
    return w


def deviation(tuning: Tuning, n: int, mu: float) -> float:
    """Of the noise on a mean gradient of n records: T Gaussian releases are one of sqrt(T) times the mu."""
    return 2 * tuning.clip * math.sqrt(tuning.steps) / (n * mu)


def _descent(
    X: Floats,
    y: Floats,
    loss: Loss,
    mu: float,
    tuning: Tuning,
    penalty: float,
    centre: Floats,
    curve: float,
    rng: np.random.Generator,
) -> Floats:
    """Steps along clipped mean gradients with noise, later iterates weighing more."""
    n, lengths = len(X), np.maximum(np.linalg.norm(X, axis=1), 1e-300)
    sigma, clip = deviation(tuning, n, mu), tuning.clip
    w, total, weight = centre.copy(), np.zeros_like(centre), 0
    for k in range(tuning.steps):
        slopes: Any = np.clip(loss.slope(X @ w, y), -clip / lengths, clip / lengths)
        gradient = X.T @ slopes / n + sigma * rng.normal(size=w.size) + penalty * (w - centre)
        w = w - gradient / (curve + penalty)
        total, weight = total + (k + 1) * w, weight + k + 1
    return np.asarray(total / weight)

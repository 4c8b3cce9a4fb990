"""Localisation after Asi, Liu and Tian (2024), and plain clipped descent: baselines, never mechanisms.

Their reduction (Private Stochastic Convex Optimization with Heavy Tails, NeurIPS 2024), as we read it, has
phases on disjoint parts of the records, each half as large as the one before. In a phase, clipped descent
privately minimises the risk plus a penalty on the distance to the previous answer. This is done several
times, on disjoint subsets of the part, and the answer with the smallest median distance to all answers is
kept. The penalty grows by a factor from phase to phase.

Two differences: descent here uses full batches, theirs samples single records many times; and the noise is
accounted exactly, which needs less than their bounds. Each record is in one run of one phase, so the whole
is mu-GDP under replace-one if each run is.

Constants are the best of a grid *by the true error*, not paid for: better than any user could choose them.
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
_LEAST = 200  # smallest number of records of a subset


@dataclass(frozen=True)
class Tuning:
    """Constants of a run.

    Attributes:
        clip: the clipping norm of gradients.
        penalty: the penalty of the first phase.
        growth: the factor of the penalty from phase to phase; 32 in the paper.
        copies: the number of answers per phase, of which one is kept.
        phases: the number of phases; 1 is plain clipped descent on all records.
        steps: the number of steps of each descent.
    """

    clip: float
    penalty: float = 0.0
    growth: float = 32.0
    copies: int = 1
    phases: int = 1
    steps: int = 20


def plain() -> Iterator[Tuning]:
    """Yield the candidates of plain clipped descent."""
    return (Tuning(float(clip)) for clip in np.geomspace(0.1, 10, 7))


def localising(n: int) -> Iterator[Tuning]:
    """Yield the candidates of localisation, with as many phases as the number of records allows."""
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
    """Return the errors of the candidate with the smallest mean error."""
    curve = loss.smoothness * float(
        np.linalg.eigvalsh(X.T @ X / len(X))[-1]
    )  # NOT private: computed from the records
    tried = (
        [error(localised(X, y, loss, mu, one, curve, np.random.default_rng(run))) for run in range(runs)]
        for one in candidates
    )
    return min(tried, key=lambda errors: float(np.mean(errors)))


def localised(
    X: Floats, y: Floats, loss: Loss, mu: float, tuning: Tuning, curve: float, rng: np.random.Generator
) -> Floats:
    """Fit weights by localisation; mu-GDP under replace-one for fixed constants and a fixed ``curve``.

    Args:
        curve: the largest curvature of the mean loss; steps have the length 1 / (curve + penalty).
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
    """Return the standard deviation of the noise on a mean gradient of n records.

    T steps, each mu / sqrt(T)-GDP, are mu-GDP together.
    """
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
    """Descend along noisy clipped mean gradients; return the average of iterates, the k-th weighted by k."""
    n, lengths = len(X), np.maximum(np.linalg.norm(X, axis=1), 1e-300)
    sigma, clip = deviation(tuning, n, mu), tuning.clip
    w, total, weight = centre.copy(), np.zeros_like(centre), 0
    for k in range(tuning.steps):
        slopes: Any = np.clip(loss.slope(X @ w, y), -clip / lengths, clip / lengths)
        gradient = X.T @ slopes / n + sigma * rng.normal(size=w.size) + penalty * (w - centre)
        w = w - gradient / (curve + penalty)
        total, weight = total + (k + 1) * w, weight + k + 1
    return np.asarray(total / weight)

"""Calibration of Gumbel noise for selections of a vertex: the exponential mechanism, step by step.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_step_epsilon
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.draw.interface import chain_error
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex


@dataclass(frozen=True)
class SelectionNoise:
    """Gumbel noise for report-noisy-max over the vertices of a set: the exponential mechanism.

    Attributes:
        sensitivity: the largest change of <s, grad F>, for any vertex s, when one record is replaced.
        step_epsilon: each selection has a privacy loss of range at most this, hence epsilon^2/8-zCDP.
        float_epsilon: the part of ``step_epsilon`` that covers the floating-point error of the law of a draw.
    """

    sensitivity: float
    step_epsilon: float
    float_epsilon: float = 0.0

    @property
    def scale(self) -> float:
        return 2 * self.sensitivity / (self.step_epsilon - self.float_epsilon)

    def choose(self, scores: Vector, source: NoiseSource) -> int:
        """Return the index of the largest noisy score."""
        return int(np.argmax(scores + self.scale * source.gumbel(scores.size)))


def selection_steps(
    epsilon: float, delta: float, *, steps: int, facts: RiskFacts, convex_set: ConvexSet, l2: float = 0.0
) -> SelectionNoise:
    """Calibrate noise for ``steps`` adaptively chosen selections of a vertex, together (epsilon,
    delta)-private.

    One record changes <s, grad F> by at most min(|s|_1 Delta_inf, |s|_2 Delta_2), and the computed value <s,
    grad F + l2 x>, x in C, by its rounding as well. Bounded range: Durfee and Rogers (2019), Cesar and Rogers
    (2021).

    If the log probabilities of a draw are off by at most a, its range grows by at most 4 a. The part of a
    that is proportional to log weights is a part of the sensitivity: 24 2^-53 of each (``selection_error``)
    is 48 2^-53 of the largest score. The rest is ``SelectionNoise.float_epsilon``.

    Raises:
        PrivacyParameterError: a parameter outside its range, or draws in doubles that are too coarse for it.
    """
    exact = min(facts.sensitivity_linf * convex_set.l1_radius, facts.sensitivity * convex_set.radius)
    products = 1 if isinstance(convex_set, L1Ball | Simplex) else facts.dimension
    size = convex_set.l1_radius * (facts.gradient_bound_linf + l2 * convex_set.radius)
    sensitivity = (exact + size * (products + 27) * 2.0**-52) * (1 + 1e-9)
    step = bounded_range_step_epsilon(epsilon, delta, steps)
    float_epsilon = 4 * selection_error(convex_set.vertex_count or 1)
    if not float_epsilon <= step / 2:
        raise PrivacyParameterError(
            f"draws in doubles are too coarse for an epsilon of {step:.3g} each: a larger epsilon, or "
            "fewer steps"
        )
    return SelectionNoise(sensitivity, step, float_epsilon)


def selection_error(vertices: int) -> float:
    """Return a bound on the error of log probabilities of vertices, apart from a part of at most 24 2^-53 of
    their log weights.

    ``SelectionNoise.choose`` runs one race. A draw from sparse rows runs three races: one among frequent
    vertices, one of its winner against rare vertices, whose arrival time is a sum, and one of a proposal
    against a constant. A sum of k times is off by k 2^-53; the probability that more than 2^13 proposals are
    needed is below 2^-200.
    """
    return chain_error(3, 2.0**-40, math.log(vertices) + 2)

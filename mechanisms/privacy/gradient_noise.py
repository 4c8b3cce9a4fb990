"""Calibration of Gaussian noise for released vectors, and of Gumbel noise for selections.

Every iterate of a gradient method may be released, so its noise is a discrete Gaussian on a public grid
(``DiscreteGaussianRelease``): the low bits of the output reveal nothing about the data.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_step_epsilon, gaussian_mu
from privopt.mechanisms.privacy.grid_releases import DiscreteGaussianRelease
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.draw.interface import chain_error
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex

# Covers the rounding of the few operations that compute sigma from mu.
_INFLATION = 1 + 1e-12


@dataclass(frozen=True)
class VectorNoise:
    """Gaussian noise of standard deviation ``sigma`` per coordinate on a vector of known l2 sensitivity."""

    sensitivity: float
    sigma: float
    dimension: int

    def add(self, vector: Vector, source: NoiseSource) -> Vector:
        """Round the vector to the grid and add exact discrete Gaussian noise."""
        return self.add_drawn(vector, source.discrete_gaussian(MAX_EXPONENT, self.dimension))

    def add_drawn(self, vector: Vector, drawn: NDArray[np.int64]) -> Vector:
        """Like ``add``, with a fresh draw of ``discrete_gaussian(MAX_EXPONENT, dimension)``."""
        plan = DiscreteGaussianRelease(self.sensitivity, self.sigma, self.dimension)
        return plan.add(vector[None, :], drawn)

    def adder(self, source: NoiseSource, steps: int) -> Callable[[Vector], Vector]:
        """Return ``add`` for the steps of one run, with a fresh draw for each; draws are made in batches."""
        draws = source.discrete_gaussian_vectors(MAX_EXPONENT, self.dimension, steps)
        return lambda vector: self.add_drawn(vector, next(draws))

    def level(self, steps: int) -> float:
        """Return mu of the Gaussian differential privacy of ``steps`` adaptively chosen releases."""
        one = DiscreteGaussianRelease(self.sensitivity, self.sigma, self.dimension).mu
        return math.sqrt(steps) * one * (1 + 2.0**-50)


def gaussian_steps(
    epsilon: float, delta: float, *, steps: int, sensitivity: float, dimension: int, n_records: int = 1
) -> VectorNoise:
    """Calibrate noise for ``steps`` adaptively chosen full-batch releases, together (epsilon, delta)-private.

    Each is mu-GDP on the grid (``DiscreteGaussianRelease``), and they compose to sqrt(steps) * mu (Dong, Roth
    and Su 2022, corollary 3.3): see ``VectorNoise.level``.

    Raises:
        PrivacyParameterError: a parameter outside its range, or one that leaves no privacy loss on the grid.
    """
    mu = gaussian_mu(epsilon, delta)
    return noise_at_level(mu, check_count(steps, "steps"), sensitivity, dimension, n_records)


def noise_at_level(
    mu: float, steps: int, sensitivity: float, dimension: int, n_records: int = 1
) -> VectorNoise:
    """Calibrate noise for ``steps`` adaptively chosen releases, together mu-GDP; as ``gaussian_steps``."""
    # Replacing all n records moves a release by at most n * sensitivity, which must fit into 2^60 grid steps
    # of sigma 2^-30; otherwise a release could be refused depending on the records.
    if not n_records * (mu / math.sqrt(steps)) <= 2.0 ** (60 - MAX_EXPONENT):
        raise PrivacyParameterError(
            f"mu = {mu:.3g} (GDP) in {steps} steps leaves too little noise for the 64-bit grid of a release "
            f"from {n_records:,} records: a smaller epsilon, more steps, or fewer records"
        )
    # (sensitivity + sqrt(dimension) sigma 2^-30)(1 + 2^-40) sqrt(steps) <= mu sigma, solved for sigma.
    usable = mu / math.sqrt(steps) / (1 + 2.0**-39) - math.sqrt(dimension) * 2.0**-MAX_EXPONENT
    if usable <= 0:
        raise PrivacyParameterError(
            f"{steps} steps in {dimension} dimensions leave nothing of mu = {mu:.3g} (GDP) on the "
            "grid: fewer steps, or a larger epsilon"
        )
    sigma = check_positive(sensitivity, "sensitivity") / usable * _INFLATION
    noise = VectorNoise(sensitivity, sigma, dimension)
    if noise.level(steps) > mu:
        raise PrivacyParameterError("the calibrated noise does not meet its own target: report this")
    return noise


def gaussian_releases(
    epsilon: float,
    delta: float,
    mechanism: str,
    *,
    steps: int,
    releases: int,
    sensitivity: float,
    dimension: int,
    n_records: int = 1,
) -> tuple[VectorNoise, PrivacySpend]:
    """Calibrate noise for several releases of ``steps`` steps each, and their total spend.

    Under adaptive composition they are one sequence of ``releases`` * ``steps`` steps.
    """
    together = check_count(steps, "steps") * check_count(releases, "releases")
    mu = gaussian_mu(epsilon, delta)
    noise = noise_at_level(mu, together, sensitivity, dimension, n_records)
    mu = noise.level(together)
    note = shared_by(releases, f"{noise.level(steps):.4g}-GDP each")
    return noise, PrivacySpend(epsilon, delta, "gdp", mechanism, level=mu, note=note)


def shared_by(releases: int, each: str) -> str:
    """Return a note for a spend that several releases share; empty for one release."""
    return "" if releases == 1 else f"{releases} releases share it, {each}"


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
    arithmetic = 4 * selection_error(convex_set.vertex_count or 1)
    if not arithmetic <= step / 2:
        raise PrivacyParameterError(
            f"draws in doubles are too coarse for an epsilon of {step:.3g} each: a larger epsilon, or "
            "fewer steps"
        )
    return SelectionNoise(sensitivity, step, arithmetic)


def selection_error(vertices: int) -> float:
    """Return a bound on the error of log probabilities of vertices, but for 24 2^-53 of their log weights.

    ``SelectionNoise.choose`` runs one race. A draw from sparse rows runs one among frequent vertices, one of
    their winner against rare ones, whose arrival time is a sum, and one of a proposal against a constant. A
    sum of k times is off by k 2^-53; more than 2^13 proposals are needed with probability below 2^-200.
    """
    return chain_error(3, 2.0**-40, math.log(vertices) + 2)

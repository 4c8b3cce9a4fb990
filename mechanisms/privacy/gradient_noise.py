"""Calibration of Gaussian noise for released vectors.

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
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.grid_releases import DiscreteGaussianRelease
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.convex.regularizers import Vector

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
        """Do the same as ``add`` with a fresh draw of ``discrete_gaussian(MAX_EXPONENT, dimension)``."""
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
        PrivacyParameterError: a parameter outside its range, or a budget that rounding to the grid uses up.
    """
    mu = gaussian_mu(epsilon, delta)
    return noise_at_level(mu, check_count(steps, "steps"), sensitivity, dimension, n_records)


def noise_at_level(
    mu: float, steps: int, sensitivity: float, dimension: int, n_records: int = 1
) -> VectorNoise:
    """Calibrate noise for ``steps`` adaptively chosen releases, together mu-GDP: see ``gaussian_steps``."""
    # Replacing all n records moves a release by at most n * sensitivity. This bound must fit into 2^60 grid
    # steps of sigma 2^-30; otherwise, whether a release is refused would depend on the records.
    if not n_records * (mu / math.sqrt(steps)) <= 2.0 ** (60 - MAX_EXPONENT):
        known, fewer = (f" from {n_records:,} records", ", or fewer records") if n_records > 1 else ("", "")
        raise PrivacyParameterError(
            f"mu = {mu:.3g} (GDP) in {steps} steps leaves too little noise for the 64-bit grid of a release"
            f"{known}: a smaller epsilon, or more steps{fewer}"
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

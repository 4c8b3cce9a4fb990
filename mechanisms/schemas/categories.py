"""Private categories of a column of text: those whose count, with noise, exceeds a threshold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import special

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_delta, check_positive

# The standard deviation of the noise, in its own steps.
_SIGMA = 1 << MAX_EXPONENT
# Covers the rounding of the few operations that compute a threshold from delta.
_INFLATION = 1 + 1e-9


@dataclass(frozen=True)
class CategoryPlan:
    """Count the records of each category that occurs, add noise, and keep the categories with a noisy count
    >= T.

    A noisy count is c * steps + Z, with c the count and Z an exact discrete Gaussian of sigma = 2^30. T is
    the least threshold at which a count of 1 is kept with a probability of at most delta. A category that no
    record has is never kept.

    Privacy: (epsilon, delta' + delta) for every (epsilon, delta') of ``level``-GDP, neighbours by replacing
    one record, the number of records public. Replacing a record lowers one count by 1 and raises another by
    1, or does one of these alone.

    - Counts that stay >= 1: a shift by ``steps`` in at most two coordinates, sqrt(2) steps / 2^30-GDP with
      the constant of ``DiscreteGaussianRelease`` (its proof: a shift by k is |k| (1 + 2^-60) / 2^30-GDP).
    - A count that falls from 1 to 0, and one that rises from 0 to 1. On one table the first category is kept
      with probability p <= delta and the other never; on the neighbour the reverse. Outside an event of
      probability p both tables have the same law. That costs p once, even if one count falls and one rises.

    A sum over j >= m of exp(-j^2 / (2 sigma^2)) is at most the integral from m - 1, and the normalising sum
    is at least the integral over the whole line: P[Z >= m] <= P[N(0, sigma^2) >= m - 1] (Canonne, Kamath and
    Steinke 2020, proposition 25). Hence T = steps + 1 + sigma Phi^-1(1 - delta), rounded up.

    Attributes:
        steps: noise steps of one record, >= 1.
        delta: probability p above.
        n_records: public.
    """

    steps: int
    delta: float
    n_records: int

    @classmethod
    def plan(cls, mu: float, delta: float, n_records: int) -> Self:
        """Calibrate to mu-GDP and delta.

        Raises:
            PrivacyParameterError: too little or too much noise for counts in 64 bits.
        """
        steps = math.floor(check_positive(mu, "mu") * _SIGMA / math.sqrt(2) * (1 - 2.0**-50))
        if not 1 <= steps * n_records < 1 << 61 or steps < 1:
            raise PrivacyParameterError(
                f"mu = {mu:.3g} (GDP) for counts of {n_records:,} records: their noise is too large or too "
                "small for 64 bits. To do: an epsilon nearer to 1"
            )
        return cls(steps, check_delta(delta), n_records)

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        return math.sqrt(2) * self.steps / _SIGMA * (1 + 2.0**-50)

    @property
    def threshold(self) -> int:
        """The threshold T, in noise steps."""
        quantile = -float(special.ndtri(self.delta)) * _INFLATION
        return self.steps + 1 + math.ceil(_SIGMA * max(quantile, 0.0))

    @property
    def found(self) -> int:
        """The smallest count that is kept with a probability of 95%."""
        return math.ceil((self.threshold + 1.645 * _SIGMA) / self.steps)

    def release(self, values: Iterable[str] | Mapping[str, int], source: NoiseSource) -> tuple[str, ...]:
        """Release the categories that are kept, by their noisy counts, the largest first.

        Costs ``level`` and ``delta``. In the proof above the noisy counts of kept categories are released,
        too, so they may be used for the order.

        Args:
            values: the texts that are not missing, at most n_records, or their counts.
            source: the source of noise.
        """
        # Texts are sorted, because the noise that a text gets must not depend on the order of rows.
        counts = dict(sorted(Counter(values).items()))
        held = np.fromiter(counts.values(), dtype=np.int64, count=len(counts)) * self.steps
        noisy = (held + source.discrete_gaussian(MAX_EXPONENT, len(counts))).tolist()
        kept = [
            (-count, value) for value, count in zip(counts, noisy, strict=True) if count >= self.threshold
        ]
        return tuple(value for _, value in sorted(kept))

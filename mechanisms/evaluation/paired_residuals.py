"""Sums of differences between the errors of two regressions, with exact integer noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.evaluation.residuals import Block, ClippedSumsPlan, NoisySums, clipped, pair
from privopt.mechanisms.privacy.noise import NoiseSource

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The squares of the differences are for their sampling variances. Squared errors get the larger share of
# epsilon: they are smaller than absolute errors, so noise is larger relative to them.
PAIRED_BLOCKS = (pair("squares", "squares^2", 0.6), pair("absolutes", "absolutes^2", 0.4))


class PairedResidualPlan(ClippedSumsPlan):
    """Sums of e1^2 - e2^2, |e1| - |e2| and their squares over records (``PAIRED_BLOCKS``).

    e1 and e2 are the residuals of two models on a record, in units of the width of the label range, so that
    both differences are in [-1, 1]. A replaced record changes a difference and its square by at most 2.25
    together (``residuals.pair``).
    """

    name: ClassVar[str] = "regression-comparison"
    noised: ClassVar[str] = "sums of differences of squared and of absolute errors, and of their squares"
    blocks: ClassVar[tuple[Block, ...]] = PAIRED_BLOCKS

    def contributions(self, labels: Floats, first: Floats, second: Floats) -> Ints:
        """Return what each record adds to the sums, shape (n, 4); not private.

        Args:
            labels: finite, shape (n,).
            first, second: the predictions of both models, also finite, shape (n,).

        Raises:
            InvalidInputError: a number is not finite.
        """
        low, high = self.label_range
        y, p, q = (clipped(values, self.label_range) for values in (labels, first, second))
        e1, e2 = np.abs(y - p) / (high - low), np.abs(y - q) / (high - low)
        squares, absolutes = e1**2 - e2**2, e1 - e2
        return self.sums.rounded(np.column_stack([squares, squares**2, absolutes, absolutes**2]))

    def release(self, labels: Floats, first: Floats, second: Floats, noise: NoiseSource) -> NoisySums:
        """Sum and add noise, once. Costs ``spend``."""
        held = np.sum(self.contributions(labels, first, second), axis=0)
        return self.release_sums(held, len(labels), noise)

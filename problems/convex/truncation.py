"""Soft truncation (Catoni and Giulini 2017): the identity near 0, constant far out, smooth between."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

EDGE = math.sqrt(2.0)
# The largest influence of a record on a robust mean, in units of its scale / n: |phi|, and so any average of
# it.
INFLUENCE = 2 * math.sqrt(2.0) / 3


def soft_truncate(x: ArrayLike) -> NDArray[np.float64]:
    """phi(x) = x - x^3/6 for |x| <= sqrt 2, and +-2 sqrt(2)/3 beyond; elementwise."""
    clipped = np.clip(np.asarray(x, dtype=np.float64), -EDGE, EDGE)
    return np.asarray(clipped - clipped**3 / 6)

"""Pairs of order statistics, for the smooth sensitivity of a trimmed mean. Imports numba."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def best_window(x: NDArray[np.float64], m: int, t: float, cap: float) -> float:
    """Maximise e^(-t (q - p - (n - 2m))) min(cap, x_q - x_p) over 0 <= p <= m, n - m - 1 <= q < n.

    The pair p = m, q = n - m - 1 is excluded: it corresponds to no change. The method is divide and conquer:
    a best q for the middle p bounds the best q for smaller p from above, and for larger p from below.
    """
    n = x.size
    first, last = n - m - 1, n - 1
    best = 0.0
    for q in range(n - m, n):  # p = m
        best = max(best, math.exp(-t * (q - n + m)) * min(cap, x[q] - x[m]))
    # A stack of pending ranges of p and q: as deep as the number of halvings, plus one.
    waiting = np.empty((80, 4), dtype=np.int64)
    waiting[0] = (0, m - 1, first, last)
    count = 1
    while count:
        count -= 1
        low, high, left, right = waiting[count]
        if low > high:
            continue
        p = (low + high) // 2
        at, found = left, -1.0
        for q in range(left, right + 1):
            here = math.exp(-t * (q - p - n + 2 * m)) * min(cap, x[q] - x[p])
            if here >= found:
                at, found = q, here
        best = max(best, found)
        waiting[count] = (low, p - 1, left, at)
        waiting[count + 1] = (p + 1, high, at, right)
        count += 2
    return best

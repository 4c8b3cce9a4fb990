"""The grid that numbers with continuous noise leave on, and what doubles do to probabilities of its cells.

What is released is a multiple of the width (of a range, of a ball) times 2^-20, within 64 widths, and the
noise is at least 2^-16 widths wide, so that densities hardly change across a cell.

Let f >= 2^-16 be the width of the noise in the same unit, f Z or f sinh(Z), Z normal. Z is a function of a
uniform of 53 significant bits on the side of the nearer tail. A step of those is a share of 2^-53 of the
tail, which is at most sqrt(pi/2) times the density of Z: it moves the number by up to (f + 64) 2^-52.6. The
inverse of the normal law, sinh and the sum are off by some units in the last place; up to |Z| = 14, beyond
which lie 2^-144 of the law, that is 2^-40.2. Twice both, for two ends of a cell, over 2^-20 is the share by
which the probability of a cell may be off, and twice that the share for a ratio of two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELL, REACH, NARROWEST = 2.0**-20, 64.0, 2.0**-16


def on_grid(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers, in widths, as they may leave."""
    return np.asarray(np.rint(np.clip(noisy, -REACH, REACH) / CELL) * CELL, dtype=np.float64)


def rounding(widest: float) -> float:
    """Floating-point addition to the epsilon of one number; half of it, as a share, is added to its delta.

    Args:
        widest: f, the most that it can be.
    """
    return 2.0**-18 + widest * 2.0**-30

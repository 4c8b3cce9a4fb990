"""Grid of released numbers with continuous noise, and the effect of floating point on cell probabilities.

A released number is a multiple of the width (of a range, of a ball) times 2^-20, within 64 widths. The noise
is at least 2^-16 widths wide, so that densities hardly change across a cell.

Let f >= 2^-16 be the width of the noise in the same unit: f Z or f sinh(Z), Z normal. Z is a function of a
uniform of 53 significant bits on the side of the nearer tail. A step of the uniform is a fraction 2^-53 of
the tail, which is at most sqrt(pi/2) times the density of Z: it moves the number by up to (f + 64) 2^-52.6.
The inverse of the normal law, sinh and the sum have errors of some units in the last place: 2^-40.2 up to |Z|
= 14, beyond which the law has mass 2^-144. Twice the sum of both errors (once for each end of a cell), over
2^-20, is the relative error of the probability of a cell, and twice that is the relative error of the ratio
of two probabilities.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELL, REACH, NARROWEST = 2.0**-20, 64.0, 2.0**-16


def on_grid(noisy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round numbers, in widths, to the released grid."""
    return np.asarray(np.rint(np.clip(noisy, -REACH, REACH) / CELL) * CELL, dtype=np.float64)


def rounding(widest: float) -> float:
    """Return the epsilon that rounding adds for one number; delta grows by half of it, relatively.

    Args:
        widest: upper bound on f.
    """
    return 2.0**-18 + widest * 2.0**-30

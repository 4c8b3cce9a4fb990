"""Readable cuts: rounding of released cuts, by a rule that sees nothing but the cuts."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence

# A cut moves by at most this share of the smaller gap to its neighbours.
_SHARE = 0.05
_MOST_DIGITS = 17
_LARGEST = sys.float_info.max


def readable_cuts(cuts: Sequence[float], *, whole: bool) -> list[float]:
    """Round each cut to the fewest digits within 5% of the smaller gap to its neighbours.

    A cut never moves onto or across 0. Cuts of whole numbers are rounded up first, which changes nothing:
    x < t and x < ceil(t) say the same of a whole number x. Cuts that become equal are merged.

    Args:
        cuts: increasing.
        whole: whether the column holds whole numbers.
    """
    if whole:
        cuts = sorted({float(math.ceil(cut)) for cut in cuts})
    gaps = [math.inf, *(b - a for a, b in itertools.pairwise(cuts)), math.inf]
    rounded = []
    for cut, below, above in zip(cuts, gaps, gaps[1:], strict=False):
        gap = min(below, above)
        rounded.append(_roundest(cut, _SHARE * gap if math.isfinite(gap) else 0.0, whole))
    return sorted(set(rounded))


def _roundest(cut: float, tolerance: float, whole: bool) -> float:
    for digits in range(1, _MOST_DIGITS + 1):
        found = float(f"{cut:.{digits - 1}e}")
        if abs(found - cut) <= tolerance and not (whole and not found.is_integer()):
            return found
    return cut


def outer_edges(cuts: Sequence[float], *, whole: bool) -> list[float]:
    """Return the edges of bins with these inner edges; numbers beyond the outer ones join the outer bins.

    The outer bins are shown as wide as their neighbours, or, next to a single cut, as wide as the cut is far
    from 0; they end at 0 rather than beyond it.
    """
    first, last = cuts[0], cuts[-1]
    widths = [b - a for a, b in itertools.pairwise(cuts)] or [abs(first) or 1.0]
    low, high = max(first - widths[0], -_LARGEST), min(last + widths[-1], _LARGEST)
    low, high = (_roundest(e, _SHARE * min(widths[k], 1e300), whole) for e, k in ((low, 0), (high, -1)))
    low = max(low, 0.0) if first > 0 else low
    high = min(high, 0.0) if last < 0 else high
    if whole:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low = low if low < first else math.nextafter(first, -math.inf)
    high = high if high > last else math.nextafter(last, math.inf)
    return [low, *cuts, high]

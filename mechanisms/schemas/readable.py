"""Readable cuts: rounding of released cuts, by a rule that depends on nothing but the cuts."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from datetime import date

# A cut moves by at most this share of the smaller gap to its neighbours, or, near 0, by this share of the
# next larger cut in absolute value.
_SHARE, _RESOLUTION = 0.05, 0.001
# A cut without neighbours moves by at most this share of itself, because the spread of its column is unknown.
_ALONE = 1e-5
_MOST_DIGITS = 17
_LARGEST, _SMALLEST = sys.float_info.max, 1e-300
# Days since 1970 of the first and the last day of the calendar.
_FIRST, _LAST = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))


def readable_cuts(cuts: Sequence[float], *, whole: bool) -> list[float]:
    """Round each cut to the fewest digits within 5% of the smaller gap to its neighbours; a single cut within
    a share of 1e-5 of itself.

    The number 0 never changes its side of a cut: if a cut below 0 moves onto 0, the number 0 is still on its
    right. Before that, cuts near 0 (nearer than a thousandth of the next larger cut) move: those below 0 onto
    0, those above 0 to a power of ten. Cuts of whole numbers are rounded up first of all, which changes
    nothing: for a whole number x, x < t and x < ceil(t) are equivalent. Cuts that become equal are merged.

    Args:
        cuts: increasing.
        whole: whether the column holds whole numbers.
    """
    if whole:
        cuts = [float(math.ceil(cut)) for cut in cuts]
    cuts = _off_zero(cuts)
    gaps = [math.inf, *(b - a for a, b in itertools.pairwise(cuts)), math.inf]
    rounded = []
    for cut, below, above in zip(cuts, gaps, gaps[1:], strict=False):
        gap = min(below, above)
        rounded.append(_roundest(cut, _SHARE * gap if math.isfinite(gap) else _ALONE * abs(cut), whole))
    return sorted(set(rounded))


def _off_zero(cuts: Sequence[float]) -> list[float]:
    """Move cuts within the resolution of 0 onto 0, or to a power of ten."""
    moved: list[float] = []
    for cut in sorted(cuts, key=abs, reverse=True):
        larger = min((abs(other) for other in moved if abs(other) > abs(cut)), default=0.0)
        resolution = _RESOLUTION * larger
        if 0 < abs(cut) < resolution and resolution > _SMALLEST:
            cut = 0.0 if cut < 0 else float(f"1e{math.floor(math.log10(resolution))}")
        moved.append(cut)
    return sorted(set(moved))


def _roundest(cut: float, tolerance: float, whole: bool) -> float:
    for digits in range(1, _MOST_DIGITS + 1):
        found = float(f"{cut:.{digits - 1}e}")
        if abs(found - cut) <= tolerance and not (whole and not found.is_integer()):
            return found
    return cut


def outer_edges(cuts: Sequence[float], *, whole: bool) -> list[float]:
    """Return the edges of bins with these inner edges; numbers beyond the outer ones join the outer bins.

    The outer bins are as wide as their neighbours. If there is a single cut, their width is the distance of
    the cut from 0. An outer bin that would cross 0 ends at 0.
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


def date_edges(cuts: Sequence[float]) -> list[date]:
    """Return the edges of bins of dates, from cuts in days since 1970.

    A cut becomes the roundest day within 5% of the smaller gap to its neighbours: the first of a decade, of a
    year, of a quarter, of a month, or itself. As for numbers, outer edges have no meaning.
    """
    days = sorted({min(max(math.ceil(cut), _FIRST + 1), _LAST - 1) for cut in cuts})
    gaps = [b - a for a, b in itertools.pairwise(days)]
    room = [min(around) for around in zip([_LAST, *gaps], [*gaps, _LAST], strict=True)]
    inner = sorted(
        {_roundest_day(day, _SHARE * gap if gaps else 0.0) for day, gap in zip(days, room, strict=True)}
    )
    before, after = (gaps[0], gaps[-1]) if gaps else (365, 365)
    low, high = max(inner[0] - before, _FIRST), min(inner[-1] + after, _LAST)
    epoch = date(1970, 1, 1).toordinal()
    return [date.fromordinal(day + epoch) for day in (low, *inner, high)]


def _roundest_day(day: int, tolerance: float) -> int:
    epoch = date(1970, 1, 1).toordinal()
    at = date.fromordinal(day + epoch)
    for months in (120, 12, 3, 1):
        month = at.year * 12 + at.month - 1
        starts = [month // months * months, (month // months + 1) * months]
        around = [date(s // 12, s % 12 + 1, 1).toordinal() - epoch for s in starts if 12 < s < 12 * 9999]
        near = min(around, key=lambda start: abs(start - day), default=day + 1)
        if around and abs(near - day) <= tolerance:
            return near
    return day

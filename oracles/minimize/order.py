"""The lexicographic order of points, and the first of equally good ones."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit

from privopt.oracles.certificate import Status
from privopt.problems.discrete.lattice import IntArray


@njit(cache=True, nogil=True)
def precedes(a: IntArray, b: IntArray) -> bool:
    for i in range(len(a)):
        if a[i] != b[i]:
            return bool(a[i] < b[i])
    return False


def first_in_order(
    point: IntArray,
    low: IntArray,
    high: IntArray,
    find: Callable[[IntArray, IntArray], tuple[IntArray | None, Status | None]],
) -> tuple[IntArray, Status | None]:
    """Return the first of all points of a box that are as good as an optimal one, coordinate by coordinate.

    Keeps w_0..w_{j-1} and looks for an equally good point with a smaller w_j, until there is none.

    Args:
        find: returns an equally good point of a box, or None; and the limit that stopped it, if one did.

    Returns:
        the point, and the limit that stopped the search for earlier ones, if one did.
    """
    low, high = low.copy(), high.copy()
    for j in range(len(low)):
        while point[j] > low[j]:
            high[j] = point[j] - 1
            found, stopped = find(low, high)
            if found is None:
                if stopped is not None:
                    return point, stopped
                break
            point = found
        low[j] = high[j] = point[j]
    return point, None

"""The lexicographic order of points, and the first of all minimisers in this order."""

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
    """Return the lexicographically first minimiser over a box, given one minimiser, ``point``.

    For each j in turn, w_0..w_{j-1} are fixed, and minimisers with a smaller w_j are searched until there is
    none.

    Args:
        point: a minimiser over the box.
        low, high: the box.
        find: returns a minimiser that lies in a smaller box, or None; and the limit that stopped the search,
            or None.

    Returns:
        The first minimiser found, and the limit that stopped the search for earlier ones, or None.
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

"""Lower bounds for one numeric weight vector: a dual of the cell model, by message passing in integers.

The problem over the indicator weights x_0..x_{k-1} (as indices into their levels) is

    sum_c E_c[sum of the x_j active in c] + sum_j unary_j(x_j) + N(sum of squares),

N infinite outside the norm ball. Costs may be shifted between the cells, the variables and the norm term
without changing the sum: phi moves cost from a cell to a variable, kappa from a variable to the norm term,

    sum_j theta_j(x_j) + sum_c (E_c - sum_j phi_cj(x_j)) + (N + sum_j kappa_j(x_j)),
    theta_j = unary_j + sum_c phi_cj - kappa_j,

and whatever phi and kappa are, the sum of the separate minima is a lower bound. Sweeps over the variables
raise it: each variable collects the min-marginals of everything it appears in and deals out equal shares
(sequential reweighted message passing, Kolmogorov 2015). A cell's min-marginals cost little because its
table depends on a sum: prefix tables F and suffix tables G are kept over partial sums. All of it is exact
int64 arithmetic; rounding of the shares costs tightness, never validity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells import CellStructure
from privopt.problems.lattice import IntArray
from privopt.problems.objective import UNIT

BIG = 1 << 60  # stands for infinity; costs stay below 2**53, so sums with it neither wrap nor look finite
INFEASIBLE = 1 << 59
SHARES = 1 << 12
NORM_SHARE = 0.2  # of a variable's cost, dealt to the norm term; cells get theirs by the root of their size


class Shape(NamedTuple):
    """What does not depend on noise or numeric weights. k variables, C cells, M cell members.

    A cell's members come in increasing order of variable; member e of cell c is its number
    e - member_start[c], and its prefix and suffix tables have index e + c (there is one more table than
    there are members).
    """

    coordinate: IntArray  # (k,) coordinate of w
    low: IntArray  # (k,) smallest weight
    span: IntArray  # (k,) number of levels
    squares: IntArray  # (k, B) squared weight of each level; zeros if nothing depends on |w|^2
    block: IntArray  # (k,) number of the exclusive block
    member_start: IntArray  # (C + 1,)
    member_var: IntArray  # (M,)
    member_cell: IntArray  # (M,)
    level_start: IntArray  # (M + C + 1,) where each prefix/suffix table starts
    table_start: IntArray  # (C + 1,)
    var_start: IntArray  # (k + 1,)
    var_member: IntArray  # (M,) the members that belong to each variable
    share_up: IntArray  # (M,) share of a variable's cost that each member is dealt going up, in 1/SHARES
    share_down: IntArray  # (M,) and going down
    norm_share: IntArray  # (k,) the share that goes to the norm term
    coupled: bool


class Dual(NamedTuple):
    """Working memory of one thread; the state of the dual for one region (numeric weights, domains)."""

    dom_size: IntArray  # (k,)
    dom: IntArray  # (k, B) levels that are left, increasing
    unary: IntArray  # (k, B)
    radial: IntArray  # (S,) N as a function of the sum of squares; entries from ``width`` on are unused
    phi: IntArray  # (M, B)
    kappa: IntArray  # (k, B)
    theta: IntArray  # (k, B)
    prefix: IntArray  # F, see Shape.level_start
    suffix: IntArray  # G
    norm_prefix: IntArray  # (k + 1, S)
    norm_suffix: IntArray  # (k + 1, S)


def make_shape(cells: CellStructure, coupled: bool) -> Shape:
    """Variables are ordered by block, the largest block last."""
    blocks = sorted(cells.blocks, key=len)
    coordinate = np.concatenate([*blocks, np.empty(0, dtype=np.int64)]).astype(np.int64)
    low, high = cells.lattice.low[coordinate], cells.lattice.high[coordinate]
    span = high - low + 1
    levels = np.arange(int(span.max(initial=1)))
    squares = (
        (low[:, None] + levels[None, :]) ** 2 if coupled else np.zeros((len(low), len(levels)), np.int64)
    )
    variable = np.full(cells.lattice.dimension, -1)
    variable[coordinate] = np.arange(len(coordinate))
    counts = np.diff(cells.cell_start)
    member_cell = np.repeat(np.arange(cells.n_cells), counts)
    member_var = variable[cells.cell_members]
    member_var = member_var[np.lexsort((member_var, member_cell))]
    by_var = np.argsort(member_var, kind="stable")
    per_var = np.bincount(member_var, minlength=len(coordinate))
    first = np.zeros(len(member_var), dtype=bool)
    last = np.zeros(len(member_var), dtype=bool)
    first[cells.cell_start[:-1][counts > 0]] = True
    last[cells.cell_start[1:][counts > 0] - 1] = True
    norm_share = np.full(len(coordinate), int(NORM_SHARE * SHARES) if coupled else 0)
    mass = np.sqrt(cells.records)[member_cell]
    total_up = np.bincount(member_var[~last], weights=mass[~last], minlength=len(coordinate))
    total_down = np.bincount(member_var[~first], weights=mass[~first], minlength=len(coordinate))
    most = np.maximum(1e-9, np.maximum(total_up, total_down))[member_var]
    share_up = np.where(last, 0, (SHARES - norm_share[member_var]) * mass / most).astype(np.int64)
    share_down = np.where(first, 0, (SHARES - norm_share[member_var]) * mass / most).astype(np.int64)
    return Shape(
        coordinate,
        low,
        span,
        np.ascontiguousarray(squares, dtype=np.int64),
        np.repeat(np.arange(len(blocks)), [len(b) for b in blocks]).astype(np.int64),
        cells.cell_start,
        member_var.astype(np.int64),
        member_cell.astype(np.int64),
        _level_starts(span[member_var], cells.cell_start),
        cells.table_start,
        np.concatenate(([0], np.cumsum(per_var))).astype(np.int64),
        by_var.astype(np.int64),
        share_up,
        share_down,
        norm_share,
        coupled,
    )


def _level_starts(spans: IntArray, start: IntArray) -> IntArray:
    sizes = []
    for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        sizes.extend((1 + np.concatenate(([0], np.cumsum(spans[a:b] - 1)))).tolist())
    return np.concatenate(([0], np.cumsum(np.array(sizes, dtype=np.int64)))).astype(np.int64)


def make_dual(shape: Shape, radial_size: int) -> Dual:
    k, most = shape.squares.shape
    members = len(shape.member_var)

    def zeros(*size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    return Dual(
        zeros(k),
        zeros(k, most),
        zeros(k, most),
        zeros(radial_size),
        zeros(members, most),
        zeros(k, most),
        zeros(k, most),
        zeros(int(shape.level_start[-1])),
        zeros(int(shape.level_start[-1])),
        zeros(k + 1, radial_size),
        zeros(k + 1, radial_size),
    )


@njit(cache=True, nogil=True)
def restrict_to_ball(shape: Shape, dual: Dual, width: int) -> bool:
    """Drop the levels that no point of the norm ball has; False if nothing is left."""
    k = len(shape.low)
    least = np.zeros(k, dtype=np.int64)
    total = 0
    for j in range(k):
        least[j] = BIG
        for i in range(dual.dom_size[j]):
            least[j] = min(least[j], shape.squares[j, dual.dom[j, i]])
        if dual.dom_size[j] == 0:
            return False
        total += least[j]
    if total >= width:
        return False
    for j in range(k):
        kept = 0
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            if total - least[j] + shape.squares[j, v] < width:
                dual.dom[j, kept] = v
                kept += 1
        dual.dom_size[j] = kept
    return True


@njit(cache=True, nogil=True)
def load(shape: Shape, dual: Dual, table: Any, width: int) -> None:
    """Set theta from unary, phi and kappa, and the suffix tables from the table, phi and kappa."""
    k = len(shape.low)
    for j in range(k):
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            total = dual.unary[j, v] - dual.kappa[j, v]
            for e in range(shape.var_start[j], shape.var_start[j + 1]):
                total += dual.phi[shape.var_member[e], v]
            dual.theta[j, v] = total
    for c in range(len(shape.member_start) - 1):
        top = shape.member_start[c + 1] + c
        out = dual.suffix[shape.level_start[top] : shape.level_start[top + 1]]
        source = table[shape.table_start[c] : shape.table_start[c + 1]]
        for t in range(len(out)):
            out[t] = source[t] * UNIT
        for e in range(shape.member_start[c + 1] - 1, shape.member_start[c] - 1, -1):
            _pull_suffix(shape, dual, e)
    if shape.coupled:
        for s in range(width):
            dual.norm_suffix[k, s] = dual.radial[s]
        for j in range(k - 1, -1, -1):
            _pull_norm(shape, dual, j, width)


@njit(cache=True, nogil=True)
def _pull_suffix(shape: Shape, dual: Dual, e: int) -> None:
    """G of the member from G of the next: minimise over this member's level."""
    j, at = shape.member_var[e], e + shape.member_cell[e]
    start, middle, end = shape.level_start[at], shape.level_start[at + 1], shape.level_start[at + 2]
    size = middle - start
    out = dual.suffix[start:middle]
    above = dual.suffix[middle:end]
    out[:] = BIG
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        cost = dual.phi[e, v]
        source = above[v : v + size]
        for s in range(size):
            out[s] = min(out[s], source[s] - cost)


@njit(cache=True, nogil=True)
def _push_prefix(shape: Shape, dual: Dual, e: int) -> None:
    """F of the next member from F of this one."""
    j, at = shape.member_var[e], e + shape.member_cell[e]
    start, middle, end = shape.level_start[at], shape.level_start[at + 1], shape.level_start[at + 2]
    size = middle - start
    source = dual.prefix[start:middle]
    out = dual.prefix[middle:end]
    out[:] = BIG
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        cost = dual.phi[e, v]
        target = out[v : v + size]
        for s in range(size):
            target[s] = min(target[s], source[s] - cost)


@njit(cache=True, nogil=True)
def _pull_norm(shape: Shape, dual: Dual, j: int, width: int) -> None:
    out, above = dual.norm_suffix[j], dual.norm_suffix[j + 1]
    out[:width] = BIG
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        cost, q = dual.kappa[j, v], shape.squares[j, v]
        for s in range(width - q):
            out[s] = min(out[s], above[s + q] + cost)


@njit(cache=True, nogil=True)
def _push_norm(shape: Shape, dual: Dual, j: int, width: int) -> None:
    source, out = dual.norm_prefix[j], dual.norm_prefix[j + 1]
    out[:width] = BIG
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        cost, q = dual.kappa[j, v], shape.squares[j, v]
        for s in range(width - q):
            out[s + q] = min(out[s + q], source[s] + cost)


@njit(cache=True, nogil=True)
def _collect(shape: Shape, dual: Dual, j: int, width: int) -> None:
    """Move all min-marginals of variable j, of its cells and of the norm term, into theta_j."""
    theta = dual.theta[j]
    for b in range(shape.var_start[j], shape.var_start[j + 1]):
        e = shape.var_member[b]
        at = e + shape.member_cell[e]
        start, middle = shape.level_start[at], shape.level_start[at + 1]
        size = middle - start
        left = dual.prefix[start:middle]
        phi = dual.phi[e]
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            right = dual.suffix[middle + v : middle + v + size]
            least = BIG
            for s in range(size):
                least = min(least, left[s] + right[s])
            least -= phi[v]
            phi[v] += least
            theta[v] += least
    if shape.coupled:
        kappa = dual.kappa[j]
        before, after = dual.norm_prefix[j], dual.norm_suffix[j + 1]
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            q = shape.squares[j, v]
            least = 2 * BIG
            for s in range(width - q):
                least = min(least, before[s] + after[s + q])
            least += kappa[v]
            kappa[v] -= least
            theta[v] += least


@njit(cache=True, nogil=True)
def _drop_levels(dual: Dual, j: int, slack: int) -> bool:
    """Drop the levels that cost at least ``slack`` more than the best one; False if none is left."""
    theta = dual.theta[j]
    least = BIG
    for i in range(dual.dom_size[j]):
        least = min(least, theta[dual.dom[j, i]])
    kept = 0
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        if theta[v] - least < slack:
            dual.dom[j, kept] = v
            kept += 1
    dual.dom_size[j] = kept
    return kept > 0


@njit(cache=True, nogil=True)
def sweep(shape: Shape, dual: Dual, width: int, slack: int) -> bool:
    """One pass up and one down; on return the suffix tables are consistent, as after ``load``.

    Levels are dropped when ``slack`` (cutoff minus ``simple_bound`` before the sweep) shows that no point
    with that level is below the cutoff; False if that empties a domain, that is, the region is pruned.
    """
    k = len(shape.low)
    for c in range(len(shape.member_start) - 1):
        dual.prefix[shape.level_start[shape.member_start[c] + c]] = 0
    dual.norm_prefix[0, :width] = BIG
    dual.norm_prefix[0, 0] = 0
    for j in range(k):
        _collect(shape, dual, j, width)
        if not _drop_levels(dual, j, slack):
            return False
        _deal(shape, dual, j, shape.share_up, j != k - 1)
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            _push_prefix(shape, dual, shape.var_member[b])
        if shape.coupled:
            _push_norm(shape, dual, j, width)
    for j in range(k - 1, -1, -1):
        _collect(shape, dual, j, width)
        if not _drop_levels(dual, j, slack):
            return False
        _deal(shape, dual, j, shape.share_down, j != 0)
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            _pull_suffix(shape, dual, shape.var_member[b])
        if shape.coupled:
            _pull_norm(shape, dual, j, width)
    return True


@njit(cache=True, nogil=True)
def _deal(shape: Shape, dual: Dual, j: int, shares: IntArray, norm: bool) -> None:
    """Give each cell (and the norm term) that the sweep meets again its share of theta_j.

    Only what exceeds the minimum is dealt, so that no separate minimum falls: ``sweep`` relies on that.
    """
    theta = dual.theta[j]
    least = BIG
    for i in range(dual.dom_size[j]):
        least = min(least, theta[dual.dom[j, i]])
    for i in range(dual.dom_size[j]):
        v = dual.dom[j, i]
        piece = (theta[v] - least) // SHARES
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            dual.phi[e, v] -= piece * shares[e]
            theta[v] -= piece * shares[e]
        if norm:
            dual.kappa[j, v] += piece * shape.norm_share[j]
            theta[v] -= piece * shape.norm_share[j]


@njit(cache=True, nogil=True)
def simple_bound(shape: Shape, dual: Dual, width: int) -> int:
    """The sum of the separate minima; needs consistent suffix tables."""
    total = 0
    for c in range(len(shape.member_start) - 1):
        total += dual.suffix[shape.level_start[shape.member_start[c] + c]]
    for j in range(len(shape.low)):
        least = BIG
        for i in range(dual.dom_size[j]):
            least = min(least, dual.theta[j, dual.dom[j, i]])
        total += least
    if shape.coupled:
        total += dual.norm_suffix[0, 0]
    else:
        total += dual.radial[0]
    return int(total)


@njit(cache=True, nogil=True)
def norm_bound(shape: Shape, dual: Dual, width: int, x: IntArray) -> int:
    """A bound that minimises variables and norm term together; at least ``simple_bound``.

    Uses the norm prefix tables as scratch. Writes the minimiser of that part, which is a point of the norm
    ball, to ``x`` (levels).
    """
    k = len(shape.low)
    total: int = 0
    for c in range(len(shape.member_start) - 1):
        total += dual.suffix[shape.level_start[shape.member_start[c] + c]]
    best = dual.norm_prefix
    best[0, :width] = BIG
    best[0, 0] = 0
    for j in range(k):
        best[j + 1, :width] = BIG
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            cost, q = dual.theta[j, v] + dual.kappa[j, v], shape.squares[j, v]
            for s in range(width - q):
                best[j + 1, s + q] = min(best[j + 1, s + q], best[j, s] + cost)
    least, at = 2 * BIG, 0
    for s in range(width):
        if best[k, s] + dual.radial[s] < least:
            least, at = best[k, s] + dual.radial[s], s
    for j in range(k - 1, -1, -1):
        for i in range(dual.dom_size[j]):
            v = dual.dom[j, i]
            cost, q = dual.theta[j, v] + dual.kappa[j, v], shape.squares[j, v]
            if q <= at and best[j, at - q] + cost == best[j + 1, at]:
                x[j] = v
                at -= q
                break
    return total + least


@njit(cache=True, nogil=True)
def start(
    shape: Shape,
    dual: Dual,
    table: Any,
    unary: IntArray,
    radial: IntArray,
    square: int,
    first: IntArray,
    last: IntArray,
    tilt: int = 0,
) -> int:
    """Set up the region of one numeric weight vector: levels first_j..last_j, all cost in the norm term.

    Args:
        square: sum of squares of the numeric weights.
        tilt: multiplier of the sum of squares that is moved from the norm term to the variables. Without
            noise all min-marginals are level and sweeps cannot start: a tilt gets them going.

    Returns:
        the number of values that the sum of squares of the others can take; 0 if the region is empty.
    """
    width = len(radial) - square
    for s in range(width):
        dual.radial[s] = radial[square + s]
    for j in range(len(shape.low)):
        dual.dom_size[j] = last[j] - first[j] + 1
        for i in range(dual.dom_size[j]):
            dual.dom[j, i] = first[j] + i
        for v in range(shape.span[j]):
            dual.unary[j, v] = unary[j, v]
            dual.kappa[j, v] = unary[j, v] - tilt * shape.squares[j, v] if shape.coupled else 0
    dual.phi[:] = 0
    if not restrict_to_ball(shape, dual, width):
        return 0
    load(shape, dual, table, width)
    return width


@njit(cache=True, nogil=True)
def quick_bounds(
    shape: Shape,
    unary: IntArray,
    radial: IntArray,
    squares: IntArray,
    offsets: IntArray,
    first: IntArray,
    last: IntArray,
    out: IntArray,
) -> None:
    """Bounds for many numeric weight vectors: cells, variables with the norm term minimised apart.

    Args:
        squares: sums of squares of the numeric weights.
        offsets: their own costs plus the minima of the cells.
        out: the bounds, BIG where the norm ball leaves nothing.
    """
    size = len(radial)
    current, following = np.full(size, BIG), np.empty(size, dtype=np.int64)
    current[0] = 0
    for j in range(len(shape.low)):
        following[:] = BIG
        for v in range(first[j], last[j] + 1):
            cost, q = unary[j, v], shape.squares[j, v]
            for s in range(size - q):
                following[s + q] = min(following[s + q], current[s] + cost)
        current, following = following, current
    for a in range(len(out)):
        least = BIG
        for s in range(size - squares[a]):
            if current[s] < INFEASIBLE:
                least = min(least, current[s] + radial[s + squares[a]])
        out[a] = least + offsets[a] if least < INFEASIBLE else BIG

"""Depth-first search over the indicator weights, for one numeric weight vector and one set of domains.

The variables of one exclusive block, the *leaves*, are optimised last. A cell contains at most one leaf, so
once all other variables are fixed, only the norm couples the leaves. Their optimum is then found by an exact
knapsack over the sum of squares, which includes the norm ball and the radial term. Before that, the same
knapsack gives a lower bound, the *star bound*: the cost of a leaf is the sum of the costs of its cells, and
each cell is minimised over its own free variables, independently of other cells. These partial minima are
tables over partial sums. They are filled once per tree, so a node costs a few additions for each cell of the
variable that it fixes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import inner
from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import BIG, INFEASIBLE, Region, Shape, knapsack, last_table
from privopt.oracles.minimize.order import precedes
from privopt.problems.discrete.lattice import IntArray

DONE, PAUSED, IMPROVED = 0, 1, 2


class Tree(Record):
    """Search tree, with p = ``stack[1]`` non-leaf variables, L - 1 leaves, and C cells."""

    norm: IntArray  # (S,) the norm term, by the sum of squares
    order: IntArray  # (k,) the p non-leaf variables in the order in which they are fixed
    place: IntArray  # (k,) the place of each variable in ``order``, or -1 - leaf number
    leaf_var: IntArray  # (L,) variables of the leaves; entry L - 1 is a dummy for cells without a leaf
    leaf_size: IntArray  # (L,) number of levels left
    base: IntArray  # (k,) lowest level left
    cell_leaf: IntArray  # (C,) the leaf of each cell
    cell_depth: IntArray  # (C,) number of the cell's variables that are fixed now
    cell_sum: IntArray  # (C,) sum of (level - base) over the cell's fixed variables
    member: IntArray  # (M,) the non-leaf members of the cells, in search order
    table_start: IntArray  # (M + C,) start of a cell's table for each number of fixed members
    tables: IntArray  # partial minima: ``row`` leaf levels for each partial sum
    leaf_cost: NDArray[np.int64]  # (p + 1, L, B, row) star costs of children, by depth and level - base
    root: NDArray[np.int64]  # (L, 1, row) star costs if no variable is fixed
    leaf_square: IntArray  # (L, row)
    leaf_class: IntArray  # (L, row) class of each level; levels with equal squares are in the same class
    class_square: IntArray  # (L, row) squares of the classes, increasing
    class_count: IntArray  # (L,)
    rest: NDArray[np.int64]  # (p + 1, S) knapsack of the non-leaf variables that are free at each depth
    tilt: IntArray  # (1,) multiplier of |w|^2 in quick bounds
    rest_tilted: IntArray  # (p + 1,) min over s of rest + tilt * s
    norm_tilted: IntArray  # (S,) by the fixed sum of squares f: min over s >= f of norm[s] - tilt * (s - f)
    child: NDArray[np.int64]  # (p + 1, B) levels of the children, best first
    child_bound: NDArray[np.int64]  # (p + 1, B)
    child_count: IntArray  # (p + 1,)
    child_next: IntArray  # (p + 1,)
    level: IntArray  # (k,) levels of the fixed variables
    fixed_cost: IntArray  # (p + 1,) unary cost of the fixed variables
    fixed_square: IntArray  # (p + 1,)
    scratch: NDArray[np.int64]  # (3, S)
    stack: IntArray  # (5,): current depth, p, L, row, 1 once the root is expanded


def choose_order(shape: Shape, region: Region, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the non-leaf variables by decreasing number of rows, and the leaves by coordinate.

    The leaves are the variables of the block with the largest product of domain sizes.
    """
    volume = np.bincount(shape.block, np.log(region.dom_size))
    leaf = shape.block == np.argmax(volume)
    order, leaves = np.argsort(-rows, kind="stable"), np.flatnonzero(leaf)
    return order[~leaf[order]], leaves[np.argsort(shape.coordinate[leaves])]


def plant(shape: Shape, region: Region, order: IntArray, leaves: IntArray) -> Tree:
    """Make a tree with all tables filled, whose root is not expanded yet."""
    tree = _empty_tree(shape, region, order, leaves)
    _set_squares(shape, region, tree)
    _fill(shape, region, tree)
    _choose_tilt(tree)
    if len(order) == 0:
        _stand_for_root(tree)
    return tree


def _empty_tree(shape: Shape, region: Region, order: IntArray, leaves: IntArray) -> Tree:
    """Make a tree whose tables have the right sizes and contain zeros."""
    (k, most), width = shape.squares.shape, int(region.width[0])
    p, n_leaves = len(order), len(leaves) + 1
    place = np.empty(k, dtype=np.int64)
    place[order] = np.arange(p)
    place[leaves] = -1 - np.arange(n_leaves - 1)
    leaf_size = np.append(region.dom_size[leaves], 1)
    row = int(leaf_size.max())
    cell_leaf, member = np.full(shape.cells, n_leaves - 1), np.full(len(shape.member_var), -1)
    table_start = np.zeros(len(shape.member_var) + shape.cells, dtype=np.int64)
    total = _layout(shape, region, place, row, cell_leaf, member, table_start)

    def zeros(*size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    return Tree(
        norm=last_table(shape, region, shape.cells)[:width],
        order=order,
        place=place,
        leaf_var=np.append(leaves, 0),
        leaf_size=leaf_size,
        base=np.ascontiguousarray(region.dom[:, 0]),
        cell_leaf=cell_leaf,
        cell_depth=zeros(len(cell_leaf)),
        cell_sum=zeros(len(cell_leaf)),
        member=member,
        table_start=table_start,
        tables=zeros(total),
        leaf_cost=zeros(p + 1, n_leaves, most, row),
        root=zeros(n_leaves, 1, row),
        leaf_square=zeros(n_leaves, row),
        leaf_class=zeros(n_leaves, row),
        class_square=zeros(n_leaves, row),
        class_count=zeros(n_leaves),
        rest=zeros(p + 1, width),
        tilt=zeros(1),
        rest_tilted=zeros(p + 1),
        norm_tilted=zeros(width),
        child=zeros(p + 1, most),
        child_bound=zeros(p + 1, most),
        child_count=zeros(p + 1),
        child_next=zeros(p + 1),
        level=zeros(k),
        fixed_cost=zeros(p + 1),
        fixed_square=zeros(p + 1),
        scratch=zeros(3, width),
        stack=np.array([0, p, n_leaves, row, 0]),
    )


def _set_squares(shape: Shape, region: Region, tree: Tree) -> None:
    """Set the squares of the levels of leaves, and the classes of levels with equal squares."""
    for m, j in enumerate(tree.leaf_var[:-1].tolist()):
        size = tree.leaf_size[m]
        squares = shape.squares[j, region.dom[j, :size]]
        values, tree.leaf_class[m, :size] = np.unique(squares, return_inverse=True)
        tree.leaf_square[m, :size] = squares
        tree.class_square[m, : len(values)], tree.class_count[m] = values, len(values)


def _choose_tilt(tree: Tree) -> None:
    """Choose the multiplier with the best root bound among 0 and powers of two of either sign."""
    best, chosen = -4 * BIG, 0
    powers = [1 << power for power in range(10, 41)]  # smaller multipliers hardly change the bound
    for tilt in (*(-power for power in reversed(powers)), 0, *powers):
        _set_tilt(tree, tilt)
        if (bound := _quick_bound(tree, tree.root, 0, 0, 0)) > best:
            best, chosen = bound, tilt
    _set_tilt(tree, chosen)


def _stand_for_root(tree: Tree) -> None:
    """Make one child represent the root, with its star costs and bound, as all variables are leaves."""
    tree.leaf_cost[0, :, 0] = tree.root[:, 0]
    tree.child_bound[0, 0] = _knapsack(tree, tree.root, 0, tree.rest[0], 0)
    tree.child_count[0] = tree.stack[4] = 1


@njit(cache=True, nogil=True)
def _layout(
    shape: Shape,
    region: Region,
    place: IntArray,
    row: int,
    cell_leaf: IntArray,
    member: IntArray,
    table_start: IntArray,
) -> int:
    """Write the leaf of each cell, its other members in search order, and the starts of its tables.

    Returns the total size of the tables.
    """
    total = 0
    for c in range(shape.cells):
        begin, end = shape.member_start[c], shape.member_start[c + 1]
        count = 0
        for e in range(begin, end):
            at = place[shape.member_var[e]]
            if at < 0:
                cell_leaf[c] = -1 - at
                continue
            i = begin + count
            while i > begin and place[shape.member_var[member[i - 1]]] > at:
                member[i] = member[i - 1]
                i -= 1
            member[i] = e
            count += 1
        size = 1
        for i in range(count + 1):
            table_start[begin + c + i] = total
            total += size * row
            if i < count:
                j = shape.member_var[member[begin + i]]
                size += region.dom[j, region.dom_size[j] - 1] - region.dom[j, 0]
    return total


@njit(cache=True, nogil=True)
def _fill(shape: Shape, region: Region, tree: Tree) -> None:
    """Fill the partial minima of all cells, the knapsacks of the free variables and the root's star costs."""
    for c in range(len(tree.cell_leaf)):
        _fill_cell(shape, region, tree, c)
    p = len(tree.order)
    tree.rest[:, :] = BIG
    tree.rest[p, 0] = 0
    for i in range(p - 1, -1, -1):
        j = tree.order[i]
        here, after = tree.rest[i], tree.rest[i + 1]
        for u in range(region.dom_size[j]):
            v = region.dom[j, u]
            e, q = shape.var_member[shape.var_start[j + 1] - 1], shape.squares[j, v]
            cost = region.theta[j, v] + region.shift[e, v]
            for s in range(len(tree.norm) - q):
                here[s + q] = min(here[s + q], after[s] + cost)
    for m in range(tree.stack[2] - 1):
        for u in range(tree.leaf_size[m]):
            tree.root[m, 0, u] = region.unary[tree.leaf_var[m], region.dom[tree.leaf_var[m], u]]
    for c in range(len(tree.cell_leaf)):
        m, at = tree.cell_leaf[c], tree.table_start[shape.member_start[c] + c]
        for u in range(tree.leaf_size[m]):
            tree.root[m, 0, u] += tree.tables[at + u]


@njit(inline="always")
def _fill_cell(shape: Shape, region: Region, tree: Tree, c: int) -> None:
    """Fill the partial minima of one cell: first for all its variables fixed, last for none."""
    begin, end = shape.member_start[c], shape.member_start[c + 1]
    member, base, row, out = tree.member, tree.base, tree.stack[3], tree.tables
    top, count, lowest, reach = last_table(shape, region, c), 0, 0, 0
    for i in range(begin, end):
        if member[i] >= 0:
            j = shape.member_var[member[i]]
            lowest += base[j]
            reach += region.dom[j, region.dom_size[j] - 1] - base[j]
            count += 1
    full, leaf = tree.table_start[begin + c + count], tree.cell_leaf[c]
    dummy = leaf == len(tree.leaf_var) - 1
    for s in range(reach + 1):
        for u in range(tree.leaf_size[leaf]):
            v = 0 if dummy else region.dom[tree.leaf_var[leaf], u]
            out[full + s * row + u] = top[lowest + s + v]
    for i in range(count - 1, -1, -1):
        e = member[begin + i]
        j = shape.member_var[e]
        reach -= region.dom[j, region.dom_size[j] - 1] - base[j]
        at, size = tree.table_start[begin + c + i], (reach + 1) * row
        here = out[at : at + size]
        for s in range(size):
            here[s] = BIG
        for w in range(region.dom_size[j]):
            v = region.dom[j, w]
            cost = region.shift[e, v]
            above = out[tree.table_start[begin + c + i + 1] + (v - base[j]) * row :]
            for s in range(size):
                here[s] = min(here[s], above[s] + cost)


@njit(cache=True, nogil=True)
def _set_tilt(tree: Tree, tilt: int) -> None:
    width = len(tree.norm)
    tree.tilt[0] = tilt
    for i in range(len(tree.rest_tilted)):
        tree.rest_tilted[i] = BIG
        for s in range(width):
            if tree.rest[i, s] < INFEASIBLE:
                tree.rest_tilted[i] = min(tree.rest_tilted[i], tree.rest[i, s] + tilt * s)
    tree.norm_tilted[width - 1] = tree.norm[width - 1]
    for fixed in range(width - 2, -1, -1):
        tree.norm_tilted[fixed] = min(tree.norm[fixed], tree.norm_tilted[fixed + 1] - tilt)


@njit(cache=True, nogil=True)
def _quick_bound(tree: Tree, cost: Any, i: Any, depth: Any, square: Any) -> Any:
    """Return a lower bound on ``_knapsack`` in less time, with the Lagrange multiplier ``tilt`` of |w|^2."""
    tilt = tree.tilt[0]
    total = tree.rest_tilted[depth] + tree.norm_tilted[square]
    for m in range(tree.stack[2]):
        least = BIG
        for u in range(tree.leaf_size[m]):
            least = min(least, cost[m, i, u] + tilt * tree.leaf_square[m, u])
        total += least
    return total


@njit(cache=True, nogil=True)
def _knapsack(tree: Tree, cost: Any, i: Any, rest: IntArray, square: Any) -> Any:
    """Minimise the costs of leaves and free variables plus the norm term, with |w|^2 exact."""
    room = len(tree.norm) - square
    n_leaves = tree.stack[2]
    total = cost[n_leaves - 1, i, 0]
    if len(tree.norm) == 1:
        for m in range(n_leaves - 1):
            least = BIG
            for u in range(tree.leaf_size[m]):
                least = min(least, cost[m, i, u])
            total += least
        return total + rest[0] + tree.norm[0]
    current, following = tree.scratch[0], tree.scratch[1]
    by_class = tree.scratch[2]
    for s in range(room):
        current[s] = rest[s]
    for m in range(n_leaves - 1):
        classes = tree.class_count[m]
        for u in range(classes):
            by_class[u] = BIG
        for u in range(tree.leaf_size[m]):
            by_class[tree.leaf_class[m, u]] = min(by_class[tree.leaf_class[m, u]], cost[m, i, u])
        first = min(tree.class_square[m, 0], room)
        extra = by_class[0]
        for s in range(first):
            following[s] = BIG
        for s in range(room - first):
            following[first + s] = current[s] + extra
        for u in range(1, classes):
            q = tree.class_square[m, u]
            extra = by_class[u]
            target = following[q:]
            for s in range(room - q):
                target[s] = min(target[s], current[s] + extra)
        current, following = following, current
    least = BIG
    norm = tree.norm[square:]
    for s in range(room):
        least = min(least, current[s] + norm[s])
    return total + least


@njit(inline="always")
def _expand(shape: Shape, region: Region, tree: Tree, cost: Any, parent: Any, limit: Any) -> None:
    """Bound all children of a node at the current depth, and sort them, best first.

    The star costs of the node are ``cost[:, parent]``. A quick bound above ``limit`` is not refined.
    """
    depth, row = tree.stack[0], tree.stack[3]
    j = tree.order[depth]
    children = tree.leaf_cost[depth]
    _add_cells(shape, region, tree, cost, parent, children, j, row)
    for i in range(region.dom_size[j]):
        v = region.dom[j, i]
        square = tree.fixed_square[depth] + shape.squares[j, v]
        bound = BIG
        if square < len(tree.norm):
            level = v - tree.base[j]
            fixed = tree.fixed_cost[depth] + region.unary[j, v]
            bound = fixed + _quick_bound(tree, children, level, depth + 1, square)
            if bound <= limit:
                bound = fixed + _knapsack(tree, children, level, tree.rest[depth + 1], square)
        at = i
        while at > 0 and tree.child_bound[depth, at - 1] > bound:
            tree.child_bound[depth, at] = tree.child_bound[depth, at - 1]
            tree.child[depth, at] = tree.child[depth, at - 1]
            at -= 1
        tree.child_bound[depth, at] = bound
        tree.child[depth, at] = v
    tree.child_count[depth] = region.dom_size[j]
    tree.child_next[depth] = 0


@njit(inline="always")
def _add_cells(
    shape: Shape, region: Region, tree: Tree, cost: Any, parent: Any, children: Any, j: int, row: int
) -> None:
    """Compute the star costs of children, for all levels of variable j from the lowest to the highest left.

    Rows of consecutive levels are contiguous, both in ``children`` and in the tables.
    """
    reach = region.dom[j, region.dom_size[j] - 1] - tree.base[j] + 1
    size = reach * row
    stripped = np.empty((tree.stack[2], row), dtype=np.int64)
    for m in range(tree.stack[2]):
        for u in range(row):
            stripped[m, u] = cost[m, parent, u]
    for b in range(shape.var_start[j], shape.var_start[j + 1] - 1):
        c = shape.member_factor[shape.var_member[b]]
        m = tree.cell_leaf[c]
        at = tree.table_start[shape.member_start[c] + c + tree.cell_depth[c]] + tree.cell_sum[c] * row
        for u in range(row):
            stripped[m, u] -= tree.tables[at + u]
    for m in range(tree.stack[2]):
        for i in range(reach):
            for u in range(row):
                children[m, i, u] = stripped[m, u]
    flat = children.reshape((tree.stack[2], -1))
    for b in range(shape.var_start[j], shape.var_start[j + 1] - 1):
        c = shape.member_factor[shape.var_member[b]]
        at = tree.table_start[shape.member_start[c] + c + tree.cell_depth[c] + 1] + tree.cell_sum[c] * row
        new, target = tree.tables[at : at + size], flat[tree.cell_leaf[c]]
        for u in range(size):
            target[u] += new[u]


@inner
def _fix(shape: Shape, region: Region, tree: Tree, depth: int, v: int, sign: Any) -> None:
    """Fix the variable of a depth at a level (sign 1), or free it again (sign -1)."""
    j = tree.order[depth]
    tree.level[j] = v
    for b in range(shape.var_start[j], shape.var_start[j + 1] - 1):
        c = shape.member_factor[shape.var_member[b]]
        tree.cell_depth[c] += sign
        tree.cell_sum[c] += sign * (v - tree.base[j])


@njit(inline="always")
def _may_precede(
    shape: Shape, region: Region, tree: Tree, best: IntArray, trial: IntArray, depth: int
) -> bool:
    """Return whether a node's point with all free variables at their lowest levels precedes ``best``."""
    for j in range(len(shape.low)):
        fixed = 0 <= tree.place[j] < depth
        trial[shape.coordinate[j]] = shape.low[j] + (tree.level[j] if fixed else region.dom[j, 0])
    return precedes(trial, best)


def search(
    shape: Shape,
    region: Region,
    tree: Tree,
    cutoff: int,
    best: IntArray,
    trial: IntArray,
    budget: int,
    tie_budget: int,
) -> tuple[int, int, int, int]:
    """Search until the tree is empty, a better point is found, or ``budget`` nodes are expanded.

    Args:
        cutoff: value of the point ``best``; nodes that cannot contain a better point are pruned.
        best: the incumbent, (d,).
        trial: (d,), contains the numeric weights; the point found is written to it.
        tie_budget: the number of nodes with a bound equal to the cutoff that may be opened in search of a
            lexicographically earlier point; when it is used up, such nodes are pruned.

    Returns:
        The outcome, the value of the point found (if IMPROVED), and the numbers of nodes expanded and of ties
        opened.
    """
    nodes, ties = 0, 0
    while True:
        outcome, value, expanded, opened = _search(
            shape, region, tree, cutoff, best, trial, budget - nodes, tie_budget - ties
        )
        nodes, ties = nodes + expanded, ties + opened
        if outcome == IMPROVED:
            _finish(shape, region, tree, trial)
            if value == cutoff and not precedes(trial, best):
                continue
        return outcome, value, nodes, ties


def _finish(shape: Shape, region: Region, tree: Tree, trial: IntArray) -> None:
    """Set the leaves to the lexicographically first of their optima, and write the point to ``trial``."""
    depth, i, square, leaves = tree.stack[0], 0, 0, tree.leaf_var[:-1]
    if len(tree.order) > 0:
        j = tree.order[depth]
        i = tree.level[j] - tree.base[j]
        square = tree.fixed_square[depth] + shape.squares[j, tree.level[j]]
    costs = np.zeros(shape.squares.shape, dtype=np.int64)
    for m, j in enumerate(leaves.tolist()):
        size = tree.leaf_size[m]
        costs[j, region.dom[j, :size]] = tree.leaf_cost[depth, m, i, :size]
    knapsack(shape, region, leaves, costs, tree.norm[square:], tree.level)
    trial[shape.coordinate] = shape.low + tree.level


@njit(cache=True, nogil=True)
def _search(
    shape: Shape,
    region: Region,
    tree: Tree,
    cutoff: int,
    best: IntArray,
    trial: IntArray,
    budget: int,
    tie_budget: int,
) -> Any:
    """Search like ``search``, without the leaves of the point found, which ``_finish`` sets."""
    p, offset = tree.stack[1], region.constant[0]
    nodes, ties = 0, 0
    cost, parent, limit, to_expand = tree.root, 0, BIG, tree.stack[4] == 0
    tree.stack[4] = 1
    while True:
        if to_expand:  # the only call of _expand, so that it is compiled once
            _expand(shape, region, tree, cost, parent, limit)
            to_expand = False
        depth = tree.stack[0]
        at = tree.child_next[depth]
        bound = BIG
        if at < tree.child_count[depth]:
            bound = tree.child_bound[depth, at] + offset
        if bound >= cutoff and (bound > cutoff or ties >= tie_budget):
            if depth == 0:
                return DONE, 0, nodes, ties
            depth -= 1
            tree.stack[0] = depth
            _fix(shape, region, tree, depth, tree.level[tree.order[depth]], np.int64(-1))
            continue
        if nodes >= budget:
            return PAUSED, 0, nodes, ties
        tree.child_next[depth] += 1
        v = tree.child[depth, at]
        if p > 0:
            tree.level[tree.order[depth]] = v
        if bound == cutoff:
            ties += 1
            if not _may_precede(shape, region, tree, best, trial, depth + 1):
                continue
        nodes += 1
        if depth >= p - 1:
            return IMPROVED, bound, nodes, ties
        j = tree.order[depth]
        _fix(shape, region, tree, depth, v, np.int64(1))
        tree.stack[0] = depth + 1
        tree.fixed_square[depth + 1] = tree.fixed_square[depth] + shape.squares[j, v]
        tree.fixed_cost[depth + 1] = tree.fixed_cost[depth] + region.unary[j, v]
        cost, parent, limit, to_expand = tree.leaf_cost[depth], v - tree.base[j], cutoff - offset, True


@njit(cache=True, nogil=True)
def open_bound(tree: Tree) -> int:
    """Return a lower bound for all open nodes, without the constant of the region."""
    least = BIG
    for depth in range(tree.stack[0] + 1):
        if tree.child_next[depth] < tree.child_count[depth]:
            least = min(least, tree.child_bound[depth, tree.child_next[depth]])
    return least

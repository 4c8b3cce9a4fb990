"""Dual bound over a trie of cells, and a tree search with it, for regions where star bounds are too weak.

Each cell of a region is a list of its variables in a common order. These lists form a trie: cells with the
same first variables share a path. Each edge of the trie belongs to a variable. At a node, let t be the sum of
the levels of the variables on the path to it. A lower bound on the cost of the cells at and below the node is

    G[t] = own[t] + sum over its children of min over v of G_child[t + v] + shift(v),

where v is the level of the variable of the child's edge. A variable with several edges has a copy on each,
and the levels of the copies may differ. Shifts penalise differences, as they do between cells (``regions``).
A copy in the trie is common to all cells below its edge, while the bound by single cells has a copy per cell;
so the bound by the trie is stronger. The norm term is a further factor, over all variables.

The search fixes the variables in the common order. Fixing the first variable removes its edge and merges the
subtree below the edge with the rest of the trie: tables and shifts are added, so the trie becomes smaller and
its bound better. When no path is longer than one edge, there are no copies, and the bound is the minimum.

All arithmetic is in int64. Shares are rounded, which makes bounds weaker but never invalid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import BIG, Region, Shape, assign, last_table
from privopt.oracles.minimize.native.tries import Tries
from privopt.oracles.minimize.order import precedes
from privopt.problems.discrete.lattice import IntArray

DONE, PAUSED, IMPROVED = 0, 1, 2
# Share of a variable's cost for the norm term. The rest is divided among the edges of the variable, in
# proportion to the square roots of their numbers of records.
NORM_SHARE = 0.2


class State(Record):
    """Memory of one search. Arrays of m + 1 rows have a row for each number of fixed variables."""

    own: IntArray  # tables of all tries
    shift: IntArray  # (N, B) of all tries
    theta: NDArray[np.int64]  # (m + 1, k, B) the norm term's share of the variables' costs
    dom_size: IntArray  # (m + 1, k) number of levels left
    dom: NDArray[np.int64]  # (m + 1, k, B) the levels left
    unary: IntArray  # (k, B)
    constant: IntArray  # (m + 1,)
    square: IntArray  # (m + 1,) sum of squares of the fixed variables
    norm: IntArray  # (S,)
    level: IntArray  # (k,) levels of fixed variables; for other variables the best levels in the last pass
    child: NDArray[np.int64]  # (m + 1, B) levels, best first
    child_bound: NDArray[np.int64]  # (m + 1, B)
    child_count: IntArray  # (m + 1,)
    child_next: IntArray  # (m + 1,)
    inner: IntArray  # G of the current trie
    outer: IntArray  # lower bounds on the cost outside the subtree of a node, by the sum at the node
    least: IntArray  # minima over the level of each edge
    path: IntArray  # nodes from the root to the current node
    scratch: NDArray[np.int64]  # (2, longest table)
    before: NDArray[np.int64]  # (k + 1, S) knapsacks of the variables before each variable
    after: NDArray[np.int64]  # (k + 1, S) knapsacks of the variables from each on, and the norm term
    marginal: IntArray  # (B,)
    excess: IntArray  # (k, B)
    depth: IntArray  # (2,) first and current number of fixed variables


def new_state(tries: Tries, width: int) -> State:
    k, most = tries.squares.shape
    m = tries.last + 1

    def zeros(*size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    tables, nodes = int(np.diff(tries.table).max()), int(np.diff(tries.first).max())
    least = int(max(tries.above[b - 1] + tries.size[b - 1] for b in tries.first[1:].tolist()))
    return State(
        own=zeros(int(tries.table[-1])),
        shift=zeros(len(tries.var), most),
        theta=zeros(m, k, most),
        dom_size=zeros(m, k),
        dom=zeros(m, k, most),
        unary=zeros(k, most),
        constant=zeros(m),
        square=zeros(m),
        norm=zeros(width),
        level=zeros(k),
        child=zeros(m, most),
        child_bound=zeros(m, most),
        child_count=zeros(m),
        child_next=zeros(m),
        inner=zeros(tables),
        outer=zeros(tables),
        least=zeros(least),
        path=zeros(nodes + 1),
        scratch=zeros(2, int(tries.size.max()) + 1),
        before=zeros(k + 1, width),
        after=zeros(k + 1, width),
        marginal=zeros(most),
        excess=zeros(k, most),
        depth=zeros(2),
    )


@njit(cache=True, nogil=True)
def load(shape: Shape, region: Region, tries: Tries, state: State, tilt: int) -> None:
    """Load a region with no variable fixed, and shift the cost tilt * |w|^2 from the norm term to the edges.

    Without noise all min-marginals are equal and passes make no progress; a tilt makes them different.
    """
    state.own[: tries.table[1]] = 0
    for c in range(shape.cells):
        q = tries.place[c]
        table = last_table(shape, region, c)
        own = state.own[tries.start[q] :]
        for t in range(len(table)):
            own[t] += table[t]
    for j in range(len(tries.order)):
        old = tries.order[j]
        state.dom_size[0, j] = region.dom_size[old]
        for v in range(region.dom.shape[1]):
            state.unary[j, v] = state.theta[0, j, v] = region.unary[old, v]
            state.dom[0, j, v] = region.dom[old, v]
    for q in range(1, tries.first[1]):
        j, piece = tries.var[q], np.int64(tilt * tries.share[q])
        for v in range(tries.span[j]):
            state.shift[q, v] = piece * tries.squares[j, v]
            state.theta[0, j, v] -= state.shift[q, v]
    state.norm[:] = BIG
    norm = last_table(shape, region, shape.cells)[: region.width[0]]
    assign(state.norm, norm)
    state.constant[0], state.square[0] = region.constant[0], 0
    state.depth[:] = 0


@njit(cache=True, nogil=True)
def _least(tries: Tries, state: State, i: int, q: int, out: IntArray) -> None:
    """Write to ``out`` the minima over the level of the edge above node q, by the sum at the parent of q."""
    a = tries.first[i] + q
    j, begin = tries.var[a], tries.start[a]
    inner = state.inner[begin : begin + tries.size[a]]
    out[:] = BIG
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        source, cost = inner[v:], state.shift[a, v]
        for t in range(len(out)):
            out[t] = min(out[t], source[t] + cost)


@njit(cache=True, nogil=True)
def _lift(tries: Tries, state: State, i: int, q: Any) -> None:
    """Update G of the parent of node q after a change of G of q."""
    a = tries.first[i] + q
    p = tries.first[i] + tries.parent[a]
    size = tries.size[p]
    new, old = state.scratch[1, :size], state.least[tries.above[a] : tries.above[a] + size]
    _least(tries, state, i, q, new)
    inner = state.inner[tries.start[p] : tries.start[p] + size]
    for t in range(size):
        inner[t] += new[t] - old[t]
        old[t] = new[t]


@njit(cache=True, nogil=True)
def gather(tries: Tries, state: State, i: int) -> None:
    """Compute G of all nodes, children before parents."""
    base, n = tries.first[i], tries.first[i + 1] - tries.first[i]
    assign(state.inner, state.own[tries.table[i] : tries.table[i + 1]])
    for q in range(n - 1, 0, -1):
        a = base + q
        p = base + tries.parent[a]
        size = tries.size[p]
        out = state.least[tries.above[a] : tries.above[a] + size]
        _least(tries, state, i, q, out)
        inner = state.inner[tries.start[p] : tries.start[p] + size]
        for t in range(size):
            inner[t] += out[t]


@njit(cache=True, nogil=True)
def _visit(tries: Tries, state: State, i: int, begin: int, end: int, collecting: Any) -> None:
    """Visit the edges of variables begin..end-1, to collect min-marginals or to distribute excess costs."""
    base, n = tries.first[i], tries.first[i + 1] - tries.first[i]
    bit = 1 << tries.group[end - 1] % 62
    state.outer[0] = 0
    q, top = np.int64(1), 0  # int64 like other node numbers, so that callees are compiled once
    state.path[0] = 0
    while True:
        while top > 0 and (q >= n or state.path[top] != tries.parent[base + q]):
            _lift(tries, state, i, state.path[top])
            top -= 1
        if q >= n:
            return
        a = base + q
        j, p = tries.var[a], base + tries.parent[a]
        if j >= end:
            q = tries.end[p]
        elif j >= begin:
            if collecting:
                _collect(tries, state, i, j, a, p)
            else:
                _deal(tries, state, i, j, a)
            _lift(tries, state, i, q)
            q = tries.end[a]
        elif tries.below[a] & bit == 0:
            q = tries.end[a]
        else:
            if collecting:
                _descend(tries, state, i, j, a, p)
            top += 1
            state.path[top] = q
            q += 1


@njit(inline="always")
def _rest(tries: Tries, state: State, a: int, p: int, size: int) -> None:
    """Write to ``scratch`` bounds on the cost outside the edge above node a, by the sum at its parent p."""
    rest, inner = state.scratch[0, :size], state.inner[tries.start[p] :]
    outer, least = state.outer[tries.start[p] :], state.least[tries.above[a] :]
    for t in range(size):
        rest[t] = outer[t] + inner[t] - least[t]


@njit(inline="always")
def _descend(tries: Tries, state: State, i: int, j: int, a: int, p: int) -> None:
    """Write to ``outer`` bounds on the cost outside the subtree of node a, by the sum at a."""
    size = tries.size[p]
    _rest(tries, state, a, p, size)
    rest, shift = state.scratch[0, :size], state.shift[a]
    out = state.outer[tries.start[a] : tries.start[a] + tries.size[a]]
    out[:] = BIG
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        target, cost = out[v:], shift[v]
        for t in range(size):
            target[t] = min(target[t], rest[t] + cost)


@njit(inline="always")
def _collect(tries: Tries, state: State, i: int, j: int, a: int, p: int) -> None:
    """Move the min-marginals of an edge into theta."""
    size = tries.size[p]
    _rest(tries, state, a, p, size)
    rest, shift = state.scratch[0, :size], state.shift[a]
    below = state.inner[tries.start[a] : tries.start[a] + tries.size[a]]
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        source = below[v:]
        lowest = 2 * BIG
        for t in range(size):
            lowest = min(lowest, rest[t] + source[t])
        state.theta[i, j, v] += lowest + shift[v]
        shift[v] = -lowest


@njit(inline="always")
def _deal(tries: Tries, state: State, i: int, j: int, a: int) -> None:
    """Shift an edge's share of the excess costs of its variable from theta to the edge."""
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        piece = np.int64(state.excess[j, v] * tries.share[a])
        state.shift[a, v] += piece
        state.theta[i, j, v] -= piece


@njit(cache=True, nogil=True)
def _knapsack(
    tries: Tries, state: State, i: int, j: int, out: IntArray, source: IntArray, forward: Any
) -> None:
    """Add a variable to a knapsack over the sum of squares."""
    out[:] = BIG
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        cost, square = state.theta[i, j, v], tries.squares[j, v]
        for s in range(len(out) - square):
            if forward:
                out[s + square] = min(out[s + square], source[s] + cost)
            else:
                out[s] = min(out[s], source[s + square] + cost)


@njit(inline="always")
def _bound_levels(tries: Tries, state: State, i: int, j: int, before: IntArray, after: IntArray) -> int:
    """Set ``marginal`` to the least cost of the knapsacks with each level of a variable; return the least."""
    lowest = 2 * BIG
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        square, least = tries.squares[j, v], BIG
        for s in range(len(before) - square):
            least = min(least, before[s] + after[s + square])
        state.marginal[v] = min(BIG, least + state.theta[i, j, v])
        if state.marginal[v] < lowest:
            lowest, state.level[j] = state.marginal[v], v
    return lowest


@njit(inline="always")
def _drop_levels(state: State, i: int, j: int, lowest: Any, floor: Any, cutoff: Any) -> int:
    """Drop the levels with no point below the cutoff; add ``floor`` to the marginals, return what is left."""
    keep = NORM_SHARE if len(state.norm) > 1 else 0.0
    kept = 0
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        if state.marginal[v] < BIG >> 1 and state.marginal[v] + floor < cutoff:
            state.dom[i, j, kept] = v
            kept += 1
            state.excess[j, v] = np.int64((state.marginal[v] - lowest) * (1.0 - keep))
            state.marginal[v] += floor
    state.dom_size[i, j] = kept
    return kept


@njit(inline="always")
def _move_excess(state: State, i: int, j: int, sign: Any) -> None:
    """Add the excess of a variable's levels to theta, or subtract it."""
    for u in range(state.dom_size[i, j]):
        v = state.dom[i, j, u]
        state.theta[i, j, v] += sign * state.excess[j, v]


@njit(cache=True, nogil=True)
def tighten(tries: Tries, state: State, i: int, cutoff: int) -> int:
    """Make one pass over all variables, from the last to the first, and return a lower bound.

    G must be up to date on entry, and is on return. Levels that have no point below the cutoff are dropped;
    if a variable has no level left, BIG is returned. On return, ``marginal`` has the bound of each level of
    the first free variable.
    """
    k, width = len(tries.span), len(state.norm) - state.square[i]
    if width <= 0:
        return BIG
    before, after = state.before[:, :width], state.after[:, :width]
    before[i] = BIG
    before[i, 0] = 0
    for j in range(i, k):
        _knapsack(tries, state, i, j, before[j + 1], before[j], np.int64(1))
    assign(after[k], state.norm[state.square[i] :])
    bound, end = -BIG, k
    while end > i:
        begin = max(i, tries.group[end - 1])
        _visit(tries, state, i, begin, end, np.int64(1))
        # The thetas of this group have changed, so the knapsacks that contain them are computed again.
        for j in range(begin, end):
            _knapsack(tries, state, i, j, before[j + 1], before[j], np.int64(1))
        for j in range(end - 1, begin - 1, -1):
            floor = state.constant[i] + state.inner[0]
            lowest = _bound_levels(tries, state, i, j, before[j], after[j + 1])
            if _drop_levels(state, i, j, lowest, floor, cutoff) == 0:
                return BIG
            bound = max(bound, lowest + floor)
            # The second visit below gives the excess to the edges, so the knapsacks go on without it.
            _move_excess(state, i, j, np.int64(-1))
            _knapsack(tries, state, i, j, after[j], after[j + 1], np.int64(0))
            _move_excess(state, i, j, np.int64(1))
        _visit(tries, state, i, begin, end, np.int64(0))
        end = begin
    return bound


@njit(cache=True, nogil=True)
def fix(tries: Tries, state: State, i: int, v: int) -> None:
    """Make the next trie: fix the first free variable, i, at level v."""
    base, n, following = tries.first[i], tries.first[i + 1] - tries.first[i], tries.first[i + 1]
    state.own[tries.table[i + 1] : tries.table[i + 2]] = 0
    state.shift[following : tries.first[i + 2]] = 0
    edge, last = 0, 0  # the node below the edge of variable i, and the first node after its subtree
    if n > 1 and tries.var[base + 1] == i:
        edge, last = 1, tries.end[base + 1]
    for q in range(n):
        a, b = base + q, following + tries.into[base + q]
        begin = tries.table[i] + tries.start[a] + (v if 0 < edge <= q < last else 0)
        target = state.own[tries.table[i + 1] + tries.start[b] :][: tries.size[b]]
        for t in range(min(len(target), tries.table[i] + tries.start[a] + tries.size[a] - begin)):
            target[t] += state.own[begin + t]
        if q > 0 and q != edge:
            for u in range(state.shift.shape[1]):
                state.shift[b, u] += state.shift[a, u]
    for j in range(len(tries.span)):
        assign(state.theta[i + 1, j], state.theta[i, j])
        assign(state.dom[i + 1, j], state.dom[i, j])
    assign(state.dom_size[i + 1], state.dom_size[i])
    state.constant[i + 1] = state.constant[i] + state.unary[i, v]
    state.square[i + 1] = state.square[i] + tries.squares[i, v]
    state.level[i] = v


@njit(cache=True, nogil=True)
def settle(tries: Tries, state: State, i: int) -> int:
    """Return the minimum over the last trie, or BIG if it is empty, and write the minimiser to ``level``.

    Of several minimisers, the first in lexicographic order of the free variables is taken.
    """
    k, width = len(tries.span), len(state.norm) - state.square[i]
    if width <= 0:
        return BIG
    after = state.after[:, :width]
    gather(tries, state, i)
    _visit(tries, state, i, i, k, np.int64(1))
    assign(after[k], state.norm[state.square[i] :])
    for j in range(k - 1, i - 1, -1):
        _knapsack(tries, state, i, j, after[j], after[j + 1], np.int64(0))
    if after[i, 0] >= BIG >> 1:
        return BIG
    t = 0
    for j in range(i, k):
        for u in range(state.dom_size[i, j]):
            v = state.dom[i, j, u]
            further = t + tries.squares[j, v]
            if further < width and after[j + 1, further] + state.theta[i, j, v] == after[j, t]:
                state.level[j], t = v, further
                break
    return int(state.constant[i] + state.inner[0] + after[i, 0])


@njit(cache=True, nogil=True)
def enter(tries: Tries, state: State, i: int, passes: Any, cutoff: int) -> int:
    """Return the bound of the current node, or BIG if it is pruned, and list its children, best first."""
    gather(tries, state, i)
    bound = -BIG
    for _ in range(passes):
        bound = max(bound, tighten(tries, state, i, cutoff))
        if bound >= cutoff:
            return BIG
    count = state.dom_size[i, i]
    for u in range(count):
        v, at = state.dom[i, i, u], u
        while at > 0 and state.child_bound[i, at - 1] > state.marginal[v]:
            state.child_bound[i, at] = state.child_bound[i, at - 1]
            state.child[i, at] = state.child[i, at - 1]
            at -= 1
        state.child_bound[i, at], state.child[i, at] = max(bound, state.marginal[v]), v
    state.child_count[i], state.child_next[i] = count, 0
    return bound


@njit(cache=True, nogil=True)
def _may_precede(tries: Tries, state: State, i: int, best: IntArray, trial: IntArray) -> bool:
    """Return whether the node's point with all free variables at their lowest levels precedes ``best``."""
    for j in range(len(tries.span)):
        trial[tries.coordinate[j]] = tries.low[j] + (state.level[j] if j < i else state.dom[i, j, 0])
    return precedes(trial, best)


@njit(cache=True, nogil=True)
def search(
    tries: Tries,
    state: State,
    cutoff: int,
    best: IntArray,
    trial: IntArray,
    budget: int,
    tie_budget: int,
) -> Any:
    """Search until the tree is empty, a better point is found, or ``budget`` nodes are entered.

    ``enter`` must have been called for the root. See ``search.search`` for arguments and results.
    """
    last, nodes, ties = tries.last, 0, 0
    while True:
        i = state.depth[1]
        at = state.child_next[i]
        if at >= state.child_count[i]:
            if i == state.depth[0]:
                return DONE, 0, nodes, ties
            state.depth[1] = i - 1
            continue
        bound, v = state.child_bound[i, at], state.child[i, at]
        equal = bound == cutoff and ties < tie_budget
        if bound >= cutoff and not equal:
            state.child_next[i] = state.child_count[i]
            continue
        if nodes >= budget:
            return PAUSED, 0, nodes, ties
        state.child_next[i] += 1
        nodes += 1
        fix(tries, state, i, v)
        if equal:
            ties += 1
            if not _may_precede(tries, state, i + 1, best, trial):
                continue
        if i + 1 == last:
            value = settle(tries, state, last)
            if value < cutoff or (value == cutoff and ties < tie_budget):
                for j in range(len(tries.span)):
                    trial[tries.coordinate[j]] = tries.low[j] + state.level[j]
                if value < cutoff or precedes(trial, best):
                    return IMPROVED, value, nodes, ties
            continue
        limit = cutoff + 1 if ties < tie_budget else cutoff
        if enter(tries, state, i + 1, np.int64(1), limit) < limit:
            state.depth[1] = i + 1


Dual = tuple[NDArray[np.int64], ...]


def dual(tries: Tries, state: State) -> Dual:
    """Return a copy of the dual of the first trie: its shifts, theta and remaining levels."""
    kept = state.shift[: tries.first[1]], state.theta[0], state.dom_size[0], state.dom[0]
    return tuple(a.copy() for a in kept)


def resume(tries: Tries, state: State, known: Dual, fixed: IntArray) -> None:
    """Set up the part of a region with the given levels fixed, from the known dual of the whole region.

    The region must have been loaded.
    """
    state.shift[: tries.first[1]], state.theta[0], state.dom_size[0], state.dom[0] = known
    for i, v in enumerate(fixed.tolist()):
        fix(tries, state, i, v)
    state.depth[:] = len(fixed)


def what_is_left(tries: Tries, state: State, fixed: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the bound and the fixed levels of each node that is still open."""
    left, levels = [], list(fixed)
    for i in range(int(state.depth[0]), int(state.depth[1]) + 1):
        rest = slice(int(state.child_next[i]), int(state.child_count[i]))
        for bound, v in zip(state.child_bound[i, rest].tolist(), state.child[i, rest].tolist(), strict=True):
            left.append((bound, (*levels, v)))
        levels.append(int(state.child[i, state.child_next[i] - 1]))
    return left

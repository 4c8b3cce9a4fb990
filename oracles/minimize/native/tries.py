"""Tries of cells, one for each number of fixed variables; cells with the same first variables share a path.

They are made once per problem. ``nested`` defines their bound and searches with it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import Shape
from privopt.problems.discrete.lattice import FloatArray, IntArray


class Tries(Record):
    """Tries with the first 0, 1, ..., m of k variables fixed, stored one after the other in flat arrays.

    Nodes are in preorder: the root is first, and children are sorted by variable. Node numbers and table
    positions count from the start of their trie.
    """

    order: IntArray  # (k,) the variables of ``Shape`` in the order in which they are fixed
    coordinate: IntArray  # (k,) coordinate of w
    low: IntArray  # (k,) smallest weight
    span: IntArray  # (k,) number of levels
    squares: IntArray  # (k, B) squared weight of each level
    group: IntArray  # (k + 1,) first of the consecutive variables of the same block; k at the end
    place: IntArray  # (cells,) node of each cell in the first trie
    first: IntArray  # (m + 2,) first node of each trie
    var: IntArray  # (N,) variable of the edge above a node, -1 for roots
    parent: IntArray  # (N,)
    end: IntArray  # (N,) the first node after the subtree of a node
    below: IntArray  # (N,) bits for the groups of variables on edges below a node (groups may share a bit)
    into: IntArray  # (N,) the node of the next trie that a node is merged into
    share: FloatArray  # (N,) share of the variable's cost for the edge above a node
    table: IntArray  # (m + 2,) first table entry of each trie
    start: IntArray  # (N,) start of the table of a node
    size: IntArray  # (N,) size of the table of a node
    above: IntArray  # (N,) start of the minima over the edge above a node, as many as the parent's table has
    last: int  # number of fixed variables in the last trie, m


def make_tries(shape: Shape, rows: IntArray) -> Tries:
    """Make the tries; ``rows`` has the number of records of each variable."""
    order = _order(shape, rows)
    rank = np.argsort(order)
    span, blocks = shape.span[order], shape.block[order]
    keys = [
        tuple(sorted(rank[shape.member_var[a:b]].tolist()))
        for a, b in itertools.pairwise(shape.member_start[:-1].tolist())
    ]
    records = shape.records[:-1].tolist()
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    first, table, fixed = [0], [0], 0
    nodes, where = _nodes(keys)
    place = np.array([where[key] for key in keys], dtype=np.int64)
    group = _groups(blocks.tolist())
    while True:
        size = _describe(nodes, where, dict(_sums(keys, records)), span, group, columns)
        first.append(first[-1] + len(nodes))
        table.append(table[-1] + size)
        if fixed > 0 and max(map(len, nodes)) <= 1:
            columns["into"].extend([-1] * len(nodes))
            break
        keys = [key[key[0] == fixed :] if key else key for key in keys]
        below, where = _nodes(keys)
        columns["into"].extend(where[n[n[0] == fixed :] if n else n] for n in nodes)
        nodes, fixed = below, fixed + 1
    integers = {n: np.array(c, dtype=np.int64) for n, c in columns.items() if n != "share"}
    return Tries(
        order=order,
        coordinate=shape.coordinate[order],
        low=shape.low[order],
        span=span,
        squares=shape.squares[order],
        group=np.array([*group, len(order)]),
        place=place,
        first=np.array(first),
        table=np.array(table),
        share=np.array(columns["share"], dtype=np.float64),
        last=fixed,
        **integers,
    )


def _order(shape: Shape, rows: IntArray) -> IntArray:
    """Return the variables by decreasing number of records; the largest block, never fixed, comes last."""
    leaves = shape.block == np.argmax(np.bincount(shape.block))
    by_rows = np.argsort(-rows, kind="stable")
    last = np.flatnonzero(leaves)
    return np.concatenate([by_rows[~leaves[by_rows]], last[np.argsort(shape.coordinate[last])]])


Key = tuple[int, ...]
_COLUMNS = ("var", "parent", "end", "below", "into", "share", "start", "size", "above")


def _groups(blocks: list[int]) -> list[int]:
    """Return for each variable the first of the consecutive variables of the same block."""
    first: list[int] = []
    for j, block in enumerate(blocks):
        first.append(first[-1] if j > 0 and blocks[j - 1] == block else j)
    return first


def _bit(group: int) -> int:
    return 1 << group % 62


def _nodes(keys: list[Key]) -> tuple[list[Key], dict[Key, int]]:
    """Return the paths of the nodes of a trie in preorder, and the number of each node."""
    nodes = sorted({key[:length] for key in keys for length in range(len(key) + 1)})
    return nodes, {node: number for number, node in enumerate(nodes)}


def _sums(keys: list[Key], records: list[int]) -> dict[Key, int]:
    """Return the number of records of each key, the sum over the cells with this key."""
    total: dict[Key, int] = {}
    for key, count in zip(keys, records, strict=True):
        total[key] = total.get(key, 0) + count
    return total


def _describe(
    nodes: list[Key],
    where: dict[Key, int],
    records: dict[Key, int],
    span: IntArray,
    group: list[int],
    columns: dict[str, list[Any]],
) -> int:
    """Append one trie to the columns, and return the total size of its tables."""
    n = len(nodes)
    weight, end, size = [records.get(node, 0) for node in nodes], list(range(1, n + 1)), [1] * n
    parent, below = [where[node[:-1]] if node else -1 for node in nodes], [0] * n
    for q in range(n - 1, 0, -1):
        below[parent[q]] |= below[q] | _bit(group[nodes[q][-1]])
        weight[parent[q]] += weight[q]
        end[parent[q]] = max(end[parent[q]], end[q])
    for q in range(1, n):
        size[q] = size[parent[q]] + int(span[nodes[q][-1]]) - 1
    above = [0, *(size[parent[q]] for q in range(1, n))]
    root = np.sqrt(weight)
    total = np.zeros(len(span))
    for q in range(1, n):
        total[nodes[q][-1]] += root[q]
    columns["var"].extend(node[-1] if node else -1 for node in nodes)
    columns["parent"].extend(parent)
    columns["end"].extend(end)
    columns["below"].extend(below)
    columns["share"].extend([0.0, *(root[q] / max(total[nodes[q][-1]], 1e-9) for q in range(1, n))])
    columns["size"].extend(size)
    columns["start"].extend(np.cumsum([0, *size[:-1]]).tolist())
    columns["above"].extend(np.cumsum([0, *above[:-1]]).tolist())
    return int(sum(size))

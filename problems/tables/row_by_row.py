"""Refusal of lazy tables whose rows depend on several records: Ibis expressions and Dask graphs.

Neighbours are tables that differ in one row of the *expression*. If a row combines several records, or a
record enters several rows, one row no longer stands for one record. What a function or a view does inside is
not checked.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privopt.problems.errors import InvalidInputError

if TYPE_CHECKING:
    from dask.typing import Key

# Steps of Ibis expressions by which a row depends on several records, or a record makes several rows.
_MIXING = (
    "JoinChain", "Aggregate", "Reduction", "WindowFunction", "Analytic", "Limit", "Sample", "Distinct",
    "Intersection", "Difference", "ScalarSubquery", "InSubquery", "ExistsSubquery", "Unnest", "TableUnnest",
)  # fmt: skip
# Layers of Dask graphs that cut partitions into rows, and that put rows together.
_SPLITS = ("rechunk-split", "repartition-split")
_MERGES = ("rechunk", "repartition", "concat")
# Layers that repeat a record within its partition: always, and for some arguments alone.
_REPEATS = ("repeat", "explode", "melt", "broadcast_to")
_SAMPLE, _LOC, _TAKE = "sample", "loc", "shuffle-taker"


def check_expression(table: Any) -> None:
    """Raise InvalidInputError if a step of an Ibis expression can make several rows depend on one record."""
    operations = importlib.import_module("ibis.expr.operations")
    mixing = tuple(getattr(operations, name) for name in _MIXING if hasattr(operations, name))
    if found := [*table.op().find(mixing), *_repeating(table.op(), operations)]:
        raise InvalidInputError(
            f"the table is an expression with a step that mixes rows ({type(found[0]).__name__}): joins, "
            "windows, aggregations, limits, subqueries, unnested arrays and unions of a table with itself "
            "let one record into several rows, while privacy is for one row. Where every row stands for one "
            "record anyhow, store the result as a table first"
        )


def _repeating(expression: Any, operations: Any) -> list[Any]:
    """Return the unions that leave out equal rows, or have the rows of one table on both sides."""

    def tables(side: Any) -> set[Any]:
        return {_place(table) for table in side.find(operations.PhysicalTable)}

    return [
        union
        for union in expression.find(operations.Union)
        if union.distinct or tables(union.left) & tables(union.right)
    ]


def _place(table: Any) -> Any:
    """Return a key of a table that does not depend on upper case or on whether its database is named."""
    within = getattr(table, "namespace", None)
    if within is None:
        return table
    source, name = table.source, table.name.lower()
    catalog = within.catalog or getattr(source, "current_catalog", None)
    return id(source), catalog, within.database or getattr(source, "current_database", None), name


def check_graph(X: Any, y: Any) -> None:
    """Raise InvalidInputError if a partition of Dask collections depends on records of other partitions.

    Partitions depend on others in shuffles, joins, windows across partitions (rolling, map_overlap),
    cumulative sums, and reductions whose result comes back into the rows (X - X.mean(axis=0)), not where they
    are split or concatenated. Steps that repeat records (repeat, explode, melt, broadcast_to, samples with
    replacement, an index with a record twice) are refused, too; other steps within one partition are not
    checked. Filters by which Parquet files are read are refused as well: PyArrow evaluates them on statistics
    of row groups, which leave NaN out, so that one record decides for all NaN.

    Args:
        X, y: records and labels, partition by partition.
    """
    graph: dict[Key, Any] = {**X.__dask_graph__(), **y.__dask_graph__()}
    tasks = [(_layer(key), task) for key, task in _tasks(graph)]
    if repeated := {layer for layer, task in tasks if _repeats(layer, task)}:
        raise InvalidInputError(
            f"the Dask graph has a step that makes several rows of one record ({min(repeated)}), while "
            "privacy is for one row: leave it out"
        )
    if any(_reads_by_a_filter(layer, task) for layer, task in tasks):
        raise InvalidInputError(
            'Dask reads Parquet files by a filter (filters=, or with filesystem="arrow" a condition on the '
            "frame), which statistics of the files decide for many records together. To do: "
            "read_parquet(...) without filters and filesystem, and the condition on the frame"
        )
    outputs: dict[Key, Key] = {
        key: key[1] for collection in (X, y) for key in _flat(collection.__dask_keys__())
    }
    mixing = _mixing_step(graph, outputs)
    if mixing is not None:
        raise InvalidInputError(
            f"the Dask graph has a step in which a partition depends on others ({_layer(mixing)}): shuffles, "
            "joins, rolling windows, cumulative sums and statistics of the whole table let one record into "
            "several rows, while privacy is for one row. Where every row stands for one record anyhow, write "
            "the result to files first; make constants NumPy arrays, by compute()"
        )


def _mixing_step(graph: Mapping[Key, Any], outputs: Mapping[Key, Key]) -> Key | None:
    """Return a task that mixes partitions, None if there is none.

    A task leads to a partition if it is one, or if all tasks that use it lead there; a task that is split
    leads to itself. A task that leads to several partitions mixes them, unless it is a constant. A task that
    takes several blocks of rows of one layer mixes them, too; so does a partition made of constants alone.
    """
    from dask.core import get_deps, toposort

    needs, uses = get_deps(graph)
    order: list[Key] = toposort(graph, dependencies=needs)  # type: ignore[no-untyped-call]
    objects: set[Key] = set()  # delayed objects, such as an open file
    for key in order:
        if needs[key] <= objects and not _is_block(key):
            objects.add(key)
        elif _takes_several_blocks(key, needs[key]):
            return key
    shared = _shared(order, uses, outputs) - objects
    constants = {key for key in shared if needs[key] <= objects and _is_constant(key, graph)}
    if shared > constants:
        return next(key for key in order if key in shared - constants)
    derived = set(constants)
    for key in order:
        if (blocks := needs[key] - objects) and blocks <= derived:
            derived.add(key)
    return next((key for key in outputs if key in derived), None)


def _shared(order: Sequence[Key], uses: Mapping[Key, set[Key]], outputs: Mapping[Key, Key]) -> set[Key]:
    """Return the tasks that lead to several partitions."""
    leads: dict[Key, Key] = {}
    shared: set[Key] = set()
    for key in reversed(order):
        ends: set[Key] = {
            ("split", key) if _layer(use).startswith(_SPLITS) else leads[use] for use in uses[key]
        }
        if key in outputs:
            ends.add(("partition", outputs[key]))
        if len(ends) > 1:
            shared.add(key)
        leads[key] = next(iter(ends)) if len(ends) == 1 else ("shared", key)
    return shared


def _is_block(key: Key) -> bool:
    return isinstance(key, tuple) and len(key) > 1


def _is_constant(key: Key, graph: Mapping[Key, Any]) -> bool:
    """Return whether a task is a NumPy array in the expression: the one block of an array."""
    if not isinstance(key, tuple) or _layer(key) != "array":
        return False
    return key[1] == 0 and (key[0], 1, *key[2:]) not in graph


def _takes_several_blocks(key: Key, needs: set[Key]) -> bool:
    if _layer(key).startswith(_MERGES):
        return False
    rows: dict[Key, Key] = {}
    blocks = [need for need in needs if isinstance(need, tuple) and len(need) > 1]
    return any(rows.setdefault(layer, row) != row for layer, row, *_ in blocks)


def _tasks(graph: Mapping[Key, Any]) -> Iterator[tuple[Key, Any]]:
    """Yield the tasks of a graph, also tasks that are fused into other tasks or are arguments of tasks."""
    for key, task in graph.items():
        yield key, task
        for part in getattr(task, "args", ()):
            if isinstance(part, Mapping):
                yield from _tasks(part)
            elif hasattr(part, "args"):
                yield from _tasks({key: part})


def _repeats(layer: str, task: Any) -> bool:
    """Return whether a task makes several rows of one record."""
    arguments = tuple(getattr(task, "args", ()))
    if layer == _SAMPLE:  # of a data frame: state, fraction, whether with replacement
        return any(isinstance(value, bool | np.bool_) and bool(value) for value in arguments)
    if layer == _LOC:
        return any(map(_has_twice, arguments[1:2]))
    if layer == _TAKE:  # a number, and the indices of each axis
        return any(_has_twice(index[0]) for index in getattr(task, "value", ()) if isinstance(index, tuple))
    return layer in _REPEATS


def _reads_by_a_filter(layer: str, task: Any) -> bool:
    """Return whether a task reads a Parquet file by a filter, also by one that leaves nothing to read."""
    if layer != "read_parquet":
        return False
    reader = getattr(task, "func", None)
    options = {**(getattr(task, "kwargs", None) or {}), **getattr(reader, "common_kwargs", {})}
    return bool(options.get("filters")) or getattr(reader, "__name__", "") == "identity"


def _has_twice(index: Any) -> bool:
    if not isinstance(index, list | np.ndarray | pd.Index) or np.ndim(index) != 1:
        return False
    places = pd.Index(index)
    return bool(places.dtype != bool and places.has_duplicates)


def _layer(key: Key) -> str:
    """Return the name of a task's layer, without the token that makes it unique."""
    name = str(key[0] if isinstance(key, tuple) else key)
    return name.rpartition("-")[0] or name


def _flat(keys: Any) -> list[Any]:
    return [found for key in keys for found in _flat(key)] if isinstance(keys, list) else [keys]

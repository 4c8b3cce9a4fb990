"""Partitioned tables: Dask arrays and data frames, and memory-mapped files. Dask is imported on first use.

Tasks return their errors instead of raising them, so that no worker logs its input.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privopt.problems.arguments import check_same_length, told
from privopt.problems.errors import InvalidInputError, PrivOptError, missing
from privopt.problems.parts import Blocks, Parts, look_up
from privopt.problems.tables.row_by_row import check_graph

_ALIGNED = (
    "X and y need the same partitions: take both from one data frame, or rechunk one array to the chunks of "
    "the other"
)


# ``_LOOK``: seconds between two checks of the limits and of the cluster's workers. ``_PATIENCE``: seconds
# that a cluster may be without workers.
_LOOK, _PATIENCE = 0.5, 120.0


class LostPartsError(PrivOptError):
    """A distributed computation on the partitions of a table failed, for example because a worker died."""


@dataclass(frozen=True)
class _Refused:
    """An error that a task returned instead of raising it."""

    error: PrivOptError


def is_dask(table: object) -> bool:
    """Return whether a table is a Dask collection; Dask is not imported."""
    return hasattr(type(table), "__dask_graph__")


def parts_of(X: Any, y: Any, columns: Sequence[str] = ()) -> Parts | None:
    """Return the partitions of X and y if they are Dask collections or X is a memory-mapped file, else None.

    Args:
        X, y: records and their labels.
        columns: the columns of a data frame that are needed, so that others are not read; empty: all.

    Raises:
        InvalidInputError: the partitions of X and y do not match.
    """
    if is_dask(X) or is_dask(y):
        return DaskParts.of(X, y, columns)
    if not isinstance(X, np.memmap) or X.ndim != 2 or len(X) == 0:
        return None
    labels = np.asarray(y)
    if labels.shape != X.shape[:1]:
        raise InvalidInputError(f"X has {len(X)} rows and y has the shape {labels.shape}")
    return Blocks.of(X, labels)


def rows_of_parts(X: Any, parts: Parts) -> int:
    """Return the number of records of ``parts_of(X, y)``; a pass over the data if Dask does not know it.

    Raises:
        PrivOptError: as ``Parts.each``; records without labels.
    """
    known = _lengths(X) if is_dask(X) else [len(X)]
    return sum(known or parts.each(_rows))


def _rows(pair: tuple[Any, Any]) -> int:
    return int(pair[0].shape[0])


@dataclass(frozen=True, eq=False)
class DaskParts(Parts):
    """Partitions of Dask collections, computed by a Dask cluster or by the threads of this process.

    A cluster's workers keep the results of ``made``, in memory while there is room. Without a cluster they
    are recomputed for every task, so that a table need not fit in memory. A partition whose worker dies is
    recomputed. ``each`` returns one result for each partition that has records, in the order of the
    partitions.
    """

    pieces: tuple[Any, ...]

    @classmethod
    def of(cls, X: Any, y: Any, columns: Sequence[str] = ()) -> Self:
        """Pair the partitions of X and y; arguments as for ``parts_of``.

        Raises:
            InvalidInputError: collections without partitions, or whose partitions do not match.
        """
        if not (is_dask(X) and is_dask(y)):
            raise InvalidInputError("X and y must both be Dask collections, or neither")
        _dask()  # raises MissingExtraError if Dask is not installed
        rows, labels = _lengths(X), _lengths(y)
        check_graph(_simplified(X), _simplified(y))
        if rows and labels and rows != labels:
            check_same_length(sum(rows), sum(labels))
            y = y.rechunk((rows,))
        both = _pieces(X, columns), _pieces(y)
        if len(both[0]) != len(both[1]):
            raise InvalidInputError(_ALIGNED)
        return cls(tuple(_dask().delayed(_pair)(*pair) for pair in zip(*both, strict=True)))

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        """Run a task on every partition, as ``Parts.each``.

        Raises:
            PrivOptError: the error of the first partition that has one.
            LostPartsError: the computation failed in Dask.
        """
        asked = [_dask().delayed(_result)(task, piece) for piece in self.pieces]
        lost = ""
        try:
            answers = _answers(asked)
        except _NoWorkersError:
            raise LostPartsError(
                f"the Dask cluster has had no workers for {_PATIENCE:g} seconds: start some, and fit again. "
                "Nothing was released"
            ) from None
        except PrivOptError:  # a limit was reached; tasks return their errors
            raise
        except Exception as error:  # its text may quote cells, as a file reader's error does
            lost = type(error).__name__
        if lost:  # outside the handler, so that the error has no context that quotes cells
            raise LostPartsError(
                f"Dask could not compute on every partition ({lost}): workers or the scheduler are gone, or "
                "the table cannot be read. Nothing was released"
            )
        for answer in answers:
            if isinstance(answer, _Refused):
                raise answer.error
        return [answer for answer in answers if answer is not None]

    def made(self, make: Callable[[Any], Any]) -> DaskParts:
        pieces = [_dask().delayed(_result)(make, piece) for piece in self.pieces]
        return DaskParts(tuple(pieces if _client() is None else _dask().persist(*pieces)))


def lazily(X: Any, function: Callable[[Any], Any], dtype: Any, columns: Sequence[int] = ()) -> Any:
    """Apply a function to each partition of X; return the results, joined as one Dask array.

    Each result has the shape (rows of the partition, *columns).

    Raises:
        InvalidInputError: a collection without partitions.
    """
    known, pieces = _lengths(X), _pieces(X)
    lengths: list[float] = [*known] or [math.nan] * len(pieces)
    arrays = [
        _dask().array.from_delayed(_dask().delayed(function)(piece), shape=(rows, *columns), dtype=dtype)
        for piece, rows in zip(pieces, lengths, strict=True)
    ]
    return _dask().array.concatenate(arrays, allow_unknown_chunksizes=True)


def computed(*values: Any) -> tuple[Any, ...]:
    """Compute Dask collections together; return other values unchanged."""
    if not any(map(is_dask, values)):
        return values
    try:
        return tuple(_answers(values))
    except _NoWorkersError:
        raise LostPartsError(f"the Dask cluster has had no workers for {_PATIENCE:g} seconds") from None


def _pieces(collection: Any, columns: Sequence[str] = ()) -> list[Any]:
    """Return the partitions of a collection, with all columns or, for a data frame, the named ones."""
    if _is_array(collection) and collection.ndim == 2 and collection.numblocks[1] > 1:
        collection = collection.rechunk({1: -1})
    if _is_array(collection):
        return list(collection.to_delayed().ravel())
    if columns and set(columns) <= set(collection.columns):
        collection = collection[list(columns)]
    # Only the named columns are read from files. Dask's graph optimization is off: it fuses more files into a
    # partition if fewer columns are read, and the partitions of X and y would not match.
    return list(_simplified(collection).to_delayed(optimize_graph=False))


def _simplified(collection: Any) -> Any:
    """Drop columns of a data frame that its computation does not need; return an array unchanged."""
    return collection if _is_array(collection) else collection.simplify()


def _is_array(collection: Any) -> bool:
    return hasattr(collection, "chunks") and hasattr(collection, "rechunk")


def _lengths(collection: Any) -> list[int]:
    """Return the lengths of the partitions, or an empty list if one is unknown, as for every data frame.

    Raises:
        InvalidInputError: a collection without partitions of rows.
    """
    dimensions = getattr(collection, "ndim", None)
    if not isinstance(dimensions, int) or dimensions not in (1, 2):
        raise InvalidInputError(
            f"Dask arrays and data frames are taken, of one or two dimensions, not {told(collection)}"
        )
    lengths = collection.chunks[0] if _is_array(collection) else (math.nan,)
    return [] if any(math.isnan(rows) for rows in lengths) else [int(rows) for rows in lengths]


def _dask() -> Any:
    """Import Dask, typed as Any."""
    try:
        import dask
        import dask.array
    except ImportError as error:
        raise missing("a table in partitions", "Dask", "dask") from error
    return dask


def _client() -> Any | None:
    """Return the default client of this process, if it is connected to a Dask cluster."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class _NoWorkersError(Exception):
    """A cluster that stays without workers."""


def _answers(asked: Sequence[Any]) -> Sequence[Any]:
    """Compute Dask collections together. Without workers Dask itself would wait forever.

    Raises:
        _NoWorkersError: there were no workers for ``_PATIENCE`` seconds.
    """
    client = _client()
    if client is None:
        callbacks = importlib.import_module("dask.callbacks")
        with callbacks.Callback(pretask=lambda *_: look_up()):
            return tuple(_dask().compute(*asked))
    answers = client.compute(list(asked))  # futures for collections, other values unchanged
    futures = [answer for answer in answers if hasattr(answer, "release")]
    try:
        _wait(client, futures)
        return tuple(client.gather(answers))
    finally:
        for future in futures:
            future.release()


def _wait(client: Any, futures: Sequence[Any]) -> None:
    """Wait for futures.

    Raises:
        _NoWorkersError: the cluster has had no workers for ``_PATIENCE`` seconds.
    """
    distributed: Any = sys.modules["distributed"]
    alone = 0.0
    while True:
        try:
            distributed.wait(futures, timeout=_LOOK)
            return
        except distributed.TimeoutError:
            look_up()
            # If the scheduler does not answer, Dask itself gives up.
            is_alone = client.status == "running" and not client.scheduler_info()["workers"]
            alone = alone + _LOOK if is_alone else 0.0
        if alone == _LOOK:
            warnings.warn(
                f"the Dask cluster has no workers: waiting up to {_PATIENCE:g} seconds for one",
                UserWarning,
                stacklevel=2,
            )
        if alone >= _PATIENCE:
            raise _NoWorkersError


def _pair(X: Any, y: Any) -> tuple[Any, Any] | _Refused | None:
    """Pair a partition with its labels; None if it has no records."""
    if X.shape[0] != len(y):
        return _Refused(InvalidInputError(_ALIGNED))
    return (X, y) if len(y) else None


def _result(task: Callable[[Any], Any], part: Any) -> Any:
    """Run a task on a part and return its result or its error; None for an empty part."""
    if part is None or isinstance(part, _Refused):
        return part
    try:
        return task(part)
    except PrivOptError as error:
        return _Refused(error.with_traceback(None))
    except Exception as error:  # its text may quote cells
        return _Refused(InvalidInputError(f"a partition cannot be used ({type(error).__name__})"))

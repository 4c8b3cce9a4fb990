"""Dask arrays and data frames, and memory-mapped files, as tables in parts. Dask is imported with the first.

Tasks return what they refuse instead of raising it, so that no worker logs what it was given.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.parts import Blocks, Parts

_ALIGNED = (
    "X and y need the same partitions: take both from one data frame, or rechunk one array as the other is"
)


class LostPartsError(PrivOptError):
    """Whoever computes on the parts of a table gave up: workers or the scheduler are gone, say."""


@dataclass(frozen=True)
class _Refused:
    """What a task raised."""

    error: PrivOptError


def is_dask(table: object) -> bool:
    """Whether it is a Dask collection; Dask is not imported for it."""
    return hasattr(type(table), "__dask_graph__")


def parts_of(X: Any, y: Any, columns: Sequence[str] = ()) -> Parts | None:
    """Pairs of records and labels, of Dask collections or a memory-mapped file; None for other tables.

    Args:
        X, y: records and their labels.
        columns: those of a data frame that are asked for, all others need not be read; none: all are.

    Raises:
        InvalidInputError: labels that do not lie beside the records.
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
    """The number of records of ``parts_of(X, y)``, y included; a pass over them where Dask does not know it.

    Raises:
        PrivOptError: as ``Parts.each``; records without labels.
    """
    known = _lengths(X) if is_dask(X) else [len(X)]
    return sum(known or parts.each(_rows))


def _rows(pair: tuple[Any, Any]) -> int:
    return int(pair[0].shape[0])


@dataclass(frozen=True, eq=False)
class DaskParts(Parts):
    """Partitions, where a Dask cluster or, without one, the threads of this process find them.

    On a cluster, parts that are made stay with the workers, in memory as long as there is room; without one
    they are made anew for every task, so that a table need not fit in memory. A part whose worker dies is
    made again. Answers are taken by the number of the part: one for each, whoever computed it.
    """

    pieces: tuple[Any, ...]

    @classmethod
    def of(cls, X: Any, y: Any, columns: Sequence[str] = ()) -> Self:
        """Pairs of partitions of X and y; arguments as for ``parts_of``.

        Raises:
            InvalidInputError: collections that have none, or that do not fit together.
        """
        if not (is_dask(X) and is_dask(y)):
            raise InvalidInputError("X and y must both be Dask collections, or neither")
        rows, labels = _lengths(X), _lengths(y)
        if rows and labels and rows != labels:
            if sum(rows) != sum(labels):
                raise InvalidInputError(f"X has {sum(rows)} rows and y has {sum(labels)}")
            y = y.rechunk((rows,))
        both = _pieces(X, columns), _pieces(y)
        if len(both[0]) != len(both[1]):
            raise InvalidInputError(_ALIGNED)
        return cls(tuple(_dask().delayed(_pair)(*pair) for pair in zip(*both, strict=True)))

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        """As ``Parts.each``.

        Raises:
            PrivOptError: what a part refuses, of the first that does.
            LostPartsError: Dask gave up.
        """
        asked = [_dask().delayed(_told)(task, piece) for piece in self.pieces]
        lost = ""
        try:
            answers = _dask().compute(*asked)
        except Exception as error:  # Dask has many, and those of whoever reads the table can quote cells
            lost = type(error).__name__
        if lost:  # raised here, the error has no context that quotes them
            raise LostPartsError(
                f"Dask could not compute on every partition ({lost}): workers or the scheduler are gone, or "
                "the table cannot be read. Nothing was released"
            )
        for answer in answers:
            if isinstance(answer, _Refused):
                raise answer.error
        return [answer for answer in answers if answer is not None]

    def made(self, make: Callable[[Any], Any]) -> DaskParts:
        pieces = [_dask().delayed(_told)(make, piece) for piece in self.pieces]
        return DaskParts(tuple(_dask().persist(*pieces) if _has_cluster() else pieces))


def lazily(X: Any, function: Callable[[Any], Any], dtype: Any, columns: Sequence[int] = ()) -> Any:
    """A Dask array of what ``function`` returns for the partitions of X, (their rows, *columns) each.

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
    """Dask collections as what they hold, computed together; other values as they are."""
    if not any(map(is_dask, values)):
        return values
    return tuple(_dask().compute(*values))


def _pieces(collection: Any, columns: Sequence[str] = ()) -> list[Any]:
    """The partitions of a collection, each with all of its columns, or of a data frame with some."""
    if _is_array(collection) and collection.ndim == 2 and collection.numblocks[1] > 1:
        collection = collection.rechunk({1: -1})
    if _is_array(collection):
        return list(collection.to_delayed().ravel())
    if columns and set(columns) <= set(collection.columns):
        collection = collection[list(columns)]
    # Files are read for the columns that are asked for, but each as a partition: what else Dask optimizes
    # would read several as one, more of them the fewer columns there are, and X and y would part.
    return list(collection.simplify().to_delayed(optimize_graph=False))


def _is_array(collection: Any) -> bool:
    return hasattr(collection, "chunks") and hasattr(collection, "rechunk")


def _lengths(collection: Any) -> list[int]:
    """The lengths of the partitions, where all of them are known; data frames do not know theirs.

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
    """Dask, whose names are not typed."""
    import dask
    import dask.array

    return dask


def _has_cluster() -> bool:
    """Whether Dask computes on the workers of a client in this process."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True


def _pair(X: Any, y: Any) -> tuple[Any, Any] | _Refused | None:
    """A partition and its labels; None: no records."""
    if X.shape[0] != len(y):
        return _Refused(InvalidInputError(_ALIGNED))
    return (X, y) if len(y) else None


def _told(task: Callable[[Any], Any], part: Any) -> Any:
    """What a task returns for a part, or what it refuses; nothing for nothing."""
    if part is None or isinstance(part, _Refused):
        return part
    try:
        return task(part)
    except PrivOptError as error:
        return _Refused(error.with_traceback(None))
    except Exception as error:  # whose text may quote cells
        return _Refused(InvalidInputError(f"a partition cannot be used ({type(error).__name__})"))

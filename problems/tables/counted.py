"""Records by what a schema can tell of them: the distinct ones, and how many there are of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.problems.arrays import record_counts
from privopt.problems.convex.coded import CodedRows
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import IntegerFeatures, Schema

# Keys are 64-bit integers.
_KEY_LIMIT = 1 << 62


@dataclass(frozen=True, eq=False)
class CountedRecords:
    """Distinct records, in the order of their codes, with labels and counts: all that fitting asks for.

    Privacy: not private. Replacing one record lowers one count by one and raises another by one.

    Attributes:
        schema: what tells records apart.
        codes: of each column, shape (rows,) each.
        classes: the labels there are.
        label: the class of each row, a number, shape (rows,).
        counts: how many records each row stands for, >= 1, shape (rows,).
    """

    schema: Schema
    codes: tuple[IntArray, ...]
    classes: tuple[Any, ...]
    label: IntArray
    counts: IntArray

    @classmethod
    def of(cls, schema: Schema, codes: Sequence[IntArray], classes: Sequence[Any], label: IntArray) -> Self:
        """Count the records of a table in memory: ``schema.codes(table)``, and the number of each's class."""
        sizes = [len(classes), *(column.n_codes for column in schema.columns)]
        keys = pack([label, *codes], sizes)
        grouped = pd.DataFrame(dict(enumerate(keys))).groupby(list(range(len(keys))), sort=True).size()
        found = grouped.index.to_frame().to_numpy(dtype=np.int64).T
        return cls.from_keys(schema, classes, list(found), np.asarray(grouped, dtype=np.int64), sizes)

    @classmethod
    def together(cls, parts: Sequence[CountedRecords]) -> Self:
        """The records of the parts of a table, each counted by the same schema and for the same classes.

        Raises:
            InvalidInputError: no parts, so no records, or too many.
        """
        if not parts:
            raise InvalidInputError("no records: at least one row is needed")
        schema, classes = parts[0].schema, parts[0].classes
        sizes = [len(classes), *(column.n_codes for column in schema.columns)]
        keys = [pack([part.label, *part.codes], sizes) for part in parts]
        table = pd.DataFrame({k: np.concatenate(column) for k, column in enumerate(zip(*keys, strict=True))})
        names = list(table.columns)
        table["counts"] = np.concatenate([part.counts for part in parts])
        grouped = table.groupby(names, sort=True)["counts"].sum()
        found = grouped.index.to_frame().to_numpy(dtype=np.int64).T
        return cls.from_keys(schema, classes, list(found), np.asarray(grouped, dtype=np.int64), sizes)

    @classmethod
    def from_keys(
        cls,
        schema: Schema,
        classes: Sequence[Any],
        keys: Sequence[IntArray],
        counts: IntArray,
        sizes: Sequence[int],
    ) -> Self:
        """From distinct keys as ``pack`` makes them of class and codes, in any order.

        Raises:
            InvalidInputError: no records, or too many.
        """
        if len(counts) == 0:
            raise InvalidInputError("no records: at least one row is needed")
        order = np.lexsort(list(keys)[::-1])
        label, *codes = unpack([key[order] for key in keys], sizes)
        return cls(schema, tuple(codes), tuple(classes), label, record_counts(counts[order], len(counts)))

    @property
    def n_records(self) -> int:
        return int(np.sum(self.counts))

    @cached_property
    def features(self) -> IntegerFeatures:
        """Of the distinct records, times their common denominator."""
        return self.schema.features(self.codes)

    @cached_property
    def coded(self) -> CodedRows | None:
        """The same features as floats, by their codes; None where there are too many codes."""
        return self.schema.coded(self.codes)

    @property
    def labels(self) -> NDArray[Any]:
        """The class of each row by its name, shape (rows,)."""
        return np.asarray(self.classes)[self.label]


def pack(codes: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Numbers below ``sizes`` as few 64-bit keys: codes are arrays, or columns of an engine."""
    keys: list[Any] = []
    for places in _together(sizes):
        key = codes[places[0]]
        for k in places[1:]:
            key = key * sizes[k] + codes[k]
        keys.append(key)
    return keys


def unpack(keys: Sequence[IntArray], sizes: Sequence[int]) -> list[IntArray]:
    """The codes that ``pack`` made keys of."""
    codes: list[IntArray] = []
    for key, places in zip(keys, _together(sizes), strict=True):
        found = []
        for k in places[:0:-1]:
            key, code = np.divmod(key, sizes[k])
            found.append(code)
        codes += [key, *found[::-1]]
    return codes


def _together(sizes: Sequence[int]) -> list[list[int]]:
    """Which codes share a key."""
    groups: list[list[int]] = []
    room = _KEY_LIMIT
    for k, size in enumerate(sizes):
        if groups and room * size < _KEY_LIMIT:
            groups[-1].append(k)
            room *= size
        else:
            groups.append([k])
            room = size
    return groups

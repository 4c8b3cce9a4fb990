"""Counts of distinct records, as a schema encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.problems.arguments import check_some_records
from privopt.problems.arrays import record_counts
from privopt.problems.convex.coded import CodedRows
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.cuts import codes_in_bins
from privopt.problems.tables.schema import IntegerFeatures, Schema

# Keys are 64-bit integers.
_KEY_LIMIT = 1 << 62


@dataclass(frozen=True, eq=False)
class CountedRecords:
    """Distinct records with labels and counts, ordered by their codes: the input of fitting.

    Privacy: not private. Replacing one record lowers one count by one and raises another by one.

    Attributes:
        schema: the encoding; records with equal codes are equal.
        codes: one array per column, shape (rows,) each.
        classes: the possible labels.
        label: the index of each row's class, shape (rows,).
        counts: the number of records of each row, >= 1, shape (rows,).
    """

    schema: Schema
    codes: tuple[IntArray, ...]
    classes: tuple[Any, ...]
    label: IntArray
    counts: IntArray

    @classmethod
    def of(cls, schema: Schema, codes: Sequence[IntArray], classes: Sequence[Any], label: IntArray) -> Self:
        """Count the records of a table in memory, from ``schema.codes(table)`` and class indices."""
        sizes = [len(classes), *(column.n_codes for column in schema.columns)]
        keys = pack([label, *codes], sizes)
        grouped = pd.DataFrame(dict(enumerate(keys))).groupby(list(range(len(keys))), sort=True).size()
        found = grouped.index.to_frame().to_numpy(dtype=np.int64).T
        return cls.from_keys(schema, classes, list(found), np.asarray(grouped, dtype=np.int64), sizes)

    @classmethod
    def together(cls, parts: Sequence[CountedRecords]) -> Self:
        """Merge the counts of the parts of a table; all have the same schema and classes.

        Raises:
            InvalidInputError: no parts (and so no records), or too many records.
        """
        check_some_records(len(parts))
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
        """Build the counts from distinct keys, as ``pack`` makes them of class and codes, in any order.

        Raises:
            InvalidInputError: no records, or too many.
        """
        check_some_records(len(counts))
        order = np.lexsort(list(keys)[::-1])
        label, *codes = unpack([key[order] for key in keys], sizes)
        return cls(schema, tuple(codes), tuple(classes), label, record_counts(counts[order], len(counts)))

    def codes_in(self, schema: Schema) -> tuple[IntArray, ...]:
        """Return the codes of the rows in a schema that this one ``refines``.

        Raises:
            InvalidInputError: another schema.
        """
        if not self.schema.refines(schema):
            raise InvalidInputError("records were counted by another schema: count again")
        columns = zip(self.schema.columns, schema.columns, self.codes, strict=True)
        return tuple(codes if own == other else codes_in_bins(own, codes) for own, other, codes in columns)

    def in_schema(self, schema: Schema) -> CountedRecords:
        """Return the counts by a schema that this one refines; errors as for ``codes_in``."""
        if schema.columns == self.schema.columns:
            return replace(self, schema=schema, codes=self.codes_in(schema))
        return CountedRecords.together([replace(self, schema=schema, codes=self.codes_in(schema))])

    @property
    def n_records(self) -> int:
        return int(np.sum(self.counts))

    @cached_property
    def features(self) -> IntegerFeatures:
        """The features of the distinct records, times their common denominator."""
        return self.schema.features(self.codes)

    @cached_property
    def coded(self) -> CodedRows | None:
        """The same features as floats, stored as codes; None if there are too many codes."""
        return self.schema.coded(self.codes)

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each row, shape (rows,)."""
        return np.asarray(self.classes)[self.label]


def pack(codes: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Pack integers below ``sizes`` into few 64-bit keys; codes are arrays, or columns of an engine."""
    keys: list[Any] = []
    for places in _together(sizes):
        key = codes[places[0]]
        for k in places[1:]:
            key = key * sizes[k] + codes[k]
        keys.append(key)
    return keys


def unpack(keys: Sequence[IntArray], sizes: Sequence[int]) -> list[IntArray]:
    """Return the codes that ``pack`` packed into the keys."""
    codes: list[IntArray] = []
    for key, places in zip(keys, _together(sizes), strict=True):
        found = []
        for k in places[:0:-1]:
            key, code = np.divmod(key, sizes[k])
            found.append(code)
        codes += [key, *found[::-1]]
    return codes


def _together(sizes: Sequence[int]) -> list[list[int]]:
    """Return groups of positions whose codes share a key."""
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

"""Persons of a table in a SQL engine: k places for each person, filled with its own records, as counts.

Neighbours are defined as in ``persons``: tables that differ in one person with all of its records; the number
of persons is public. An engine keeps no order of rows, so the records of a person fill its places in an order
that their contents decide: by a hash of the person's value, of the codes of features and label, and of a
number that tells records of the person with the same codes apart; then by the codes. (Without that number, if
every person had nine records of one kind and one of another, either kind would come first for half of the
persons.) Records that tie have the same codes, and the number tells apart only records with the same codes.
So it does not matter which tied record comes first: what fills the places depends on the records of this
person alone, and not on an engine's order of rows or text.

The h records of a person, in this order, fill its k places in turn: record r, from 0, fills the places r,
r + h, r + 2h, ... below k: floor((k - 1 - r) / h) + 1 places if r < k, else none. So every person counts k
times, and the counts of a table add up to k times the number of persons. The counts of neighbouring tables
differ in k records at most, because the other persons fill their places in the same way.

Where each column is counted by itself, as for a schema, every person counts once in a column, with one of its
cells there: the cells are put in order, and which cell counts depends on the person's value and on the number
of its records. So the counts of a column add up to the number of persons, and the counts in neighbouring
tables differ in one person at most.

A person is a value of a column: texts with different bytes, and different whole numbers, are different
persons; all rows without a value are one person. If an engine takes two persons for one, they share k places,
and each of the two changes k places at most.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.expressions import exact_text, with_type
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.parquet_files import NUMBER, fields, is_mixed
from privopt.problems.tables.parquet_text import TEXT, answer
from privopt.problems.tables.sources import ibis_library, unquoted

_ENGINES = ("duckdb", "sqlite", "postgres")
# Mixed numbers have 31 bits, and a product with this factor 61.
_BITS, _FACTOR = 31, 1_057_334_677
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True, eq=False)
class EnginePersons:
    """The persons of a table.

    Attributes:
        table: an Ibis table, every row of which stands for one record.
        value: an expression whose values tell persons apart.
        salt: a number of 31 bits that depends on the value alone.
    """

    table: Any
    value: Any
    salt: Any

    @classmethod
    def of(cls, table: Any, name: str) -> EnginePersons:
        """Check the column of persons, ``name``, without reading a cell.

        Raises:
            InvalidInputError: no such column, one that is neither text nor whole numbers, or another engine.
        """
        engine = table.get_backend().name
        if engine not in _ENGINES:
            raise InvalidInputError(
                f"person takes tables of DuckDB, SQLite and PostgreSQL, Parquet files and tables in memory; "
                f"this one is in {engine}. To do: X.to_pandas()"
            )
        if name not in table.columns:
            raise InvalidInputError(f"person: no {missing_columns([name], list(table.columns))}")
        value = _one_type(with_type(table[name], "string"))
        kind = value.type()
        if not (kind.is_string() or kind.is_integer() or kind.is_uuid()):
            held = "different kinds of cells in different files" if is_mixed(kind) else str(kind)
            raise InvalidInputError(
                f"the column of persons, {name!r}, holds {held}: text or whole numbers are needed. To do: "
                "cast it to text in a view"
            )
        if kind.is_uuid() or engine == "sqlite":  # whose cells are of any type
            value = value.cast("string")
        value = exact_text(value, engine) if value.type().is_string() else value
        salt = _SALTS[engine](value) & _literal(_MASK)
        return cls(table, value, ibis_library().coalesce(salt, _literal(0)))

    @cached_property
    def count(self) -> int:
        """The number of persons, which is public. Only their column is read.

        Raises:
            InvalidInputError: the engine cannot count them.
        """
        query = self._each().aggregate(privopt_n=lambda t: t.count())
        with unquoted():
            return int(answer(query)["privopt_n"][0].as_py())

    def held(self) -> IntArray:
        """Return the number of records of each person, in any order.

        Raises:
            InvalidInputError: the engine cannot count them.
        """
        query = self._each().group_by("privopt_held").aggregate(privopt_n=lambda t: t.count())
        with unquoted():
            found = answer(query)
        held, n = (found[name].to_numpy().astype(np.int64) for name in ("privopt_held", "privopt_n"))
        return np.repeat(held, n)

    def _each(self) -> Any:
        named = self.table.select(privopt_person=self.value)
        return named.group_by("privopt_person").aggregate(privopt_held=lambda t: t.count())

    def placed(self, keys: Sequence[Any], k: int) -> Any:
        """Return the query for the distinct keys and the number of places that each fills.

        Args:
            keys: expressions of a record, integers from 0 below 2^62; in the answer ``privopt_0``, ...
            k: the number of places of each person; in the answer ``privopt_n`` is how many a key fills.
        """
        ibis, named = ibis_library(), {f"privopt_{i}": key for i, key in enumerate(keys)}
        own = ibis.window(group_by=self.value)
        read = self.table.select(
            privopt_person=self.value,
            privopt_salt=self.salt,
            privopt_held=self.table.count().over(own),
            **named,
        )
        alike = ibis.window(group_by=["privopt_person", *named])
        read = read.mutate(privopt_copy=ibis.row_number().over(alike).cast("int64"))
        parts = [read[name] for name in (*named, "privopt_copy")]
        mixed = read.mutate(privopt_mixed=_mixed(read.privopt_salt, parts))
        order = _middle(mixed.privopt_mixed * mixed.privopt_mixed, 15)
        ordered = mixed.mutate(privopt_order=order)
        turn = ibis.window(group_by="privopt_person", order_by=["privopt_order", *named])
        ranked = ordered.select(
            *named, "privopt_held", privopt_rank=ibis.row_number().over(turn).cast("int64")
        )
        kept = ranked.filter(ranked.privopt_rank < _literal(k))
        fills = (_literal(k - 1) - kept.privopt_rank) // kept.privopt_held + _literal(1)
        return kept.group_by(list(named)).aggregate(privopt_n=fills.sum().cast("int64"))

    def one_each(self, cells: Mapping[str, Any]) -> Any:
        """Return the query for the distinct cells of a column and the number of persons each counts for.

        Args:
            cells: expressions that tell cells apart, by their names in the answer, where the number of
                persons is ``privopt_n``.
        """
        ibis, names = ibis_library(), list(cells)
        read = self.table.select(privopt_person=self.value, privopt_salt=self.salt, **cells)
        alike = read.group_by(["privopt_person", *names])
        own = alike.aggregate(privopt_of=lambda t: t.count(), privopt_salt=lambda t: t.privopt_salt.min())
        person = ibis.window(group_by="privopt_person")
        in_order = ibis.cumulative_window(group_by="privopt_person", order_by=names)
        counted = own.mutate(
            privopt_salt=own.privopt_salt.min().over(person),
            privopt_held=own.privopt_of.sum().over(person).cast("int64"),
            privopt_to=own.privopt_of.sum().over(in_order).cast("int64"),
        )
        mixed = counted.mutate(privopt_mixed=_mixed(counted.privopt_salt, [_literal(0)]))
        place = _middle(mixed.privopt_mixed * mixed.privopt_mixed, 15) % mixed.privopt_held
        before = mixed.privopt_to - mixed.privopt_of
        kept = mixed.filter((before <= place) & (place < mixed.privopt_to))
        return kept.group_by(names).aggregate(privopt_n=lambda t: t.count())


def _one_type(value: Any) -> Any:
    """Return the text of persons whose files hold them as text and as whole numbers; other columns as is."""
    if not is_mixed(value.type()) or set(held := fields(value)) != {TEXT, NUMBER}:
        return value
    number = held[NUMBER]
    return ibis_library().coalesce(held[TEXT], number.cast("string")) if number.type().is_integer() else value


def _mixed(salt: Any, keys: Sequence[Any]) -> Any:
    """Hash a salt and keys, so that neither features nor label decide which records of a person come first.

    As the salt is the person's, the same two records are in either order for about half of the persons.
    """
    found = salt
    for key in keys:
        for part in (key & _literal(_MASK), key >> _literal(_BITS)):
            found = _middle((found + part) * _literal(_FACTOR), 16)
    return found


def _middle(product: Any, low: int) -> Any:
    """Return 31 bits of a number from 0 below 2^62, without its lowest ``low`` ones."""
    return (product >> _literal(low)) & _literal(_MASK)


@cache
def _literal(value: int) -> Any:
    return ibis_library().literal(value, "int64")


def _duckdb_salt(value: Any) -> Any:
    """Return 31 bits of DuckDB's hash, which is an unsigned integer of 64 bits."""

    @ibis_library().udf.scalar.builtin(name="hash", signature=((value.type(),), "uint64"))
    def hashed(value):  # type: ignore[no-untyped-def]
        ...

    return (hashed(value) % ibis_library().literal(1 << _BITS, "uint64")).cast("int64")


def _postgres_salt(value: Any) -> Any:
    """Return a whole number itself, or the first four bytes of the SHA-256 of a text."""
    if value.type().is_integer():
        return value.cast("int64")
    udf = ibis_library().udf.scalar

    @udf.builtin(name="sha256", signature=(("binary",), "binary"))
    def sha256(value):  # type: ignore[no-untyped-def]
        ...

    @udf.builtin(name="get_byte", signature=(("binary", "int32"), "int32"))
    def get_byte(value, place):  # type: ignore[no-untyped-def]
        ...

    found = _literal(0)
    for place in range(4):
        found = found * _literal(256) + get_byte(sha256(value), place).cast("int64")
    return found


def _sqlite_salt(value: Any) -> Any:
    def checksum(cell: bytes) -> int:
        return zlib.crc32(cell)

    udf = ibis_library().udf.scalar.python
    return udf(checksum, name="privopt_checksum", signature=(("binary",), "int64"))(value)


_SALTS = {"duckdb": _duckdb_salt, "postgres": _postgres_salt, "sqlite": _sqlite_salt}

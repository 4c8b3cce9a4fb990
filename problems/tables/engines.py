"""Tables in engines: a schema becomes a query that groups there, and only counts come back.

The layer over engines is Ibis (https://ibis-project.org), an optional dependency; DuckDB is embedded. What
``Schema.codes`` does with arrays is said in expressions: numbers are doubles that are compared with
thresholds, which are exact in every engine (integers over powers of two), so ties fall where they fall in
memory. A value that a declaration refuses gets a code of its own, which is looked for in the counts: no value
comes back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from glob import glob
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow.parquet

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.cells import Markers
from privopt.problems.tables.columns import Categorical, Column, Number
from privopt.problems.tables.counted import CountedRecords, pack, unpack
from privopt.problems.tables.frames import check_distinct, missing_columns
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.values import Refused

# A column of numbers is one comparison after the other: as many as this, halving.
_MOST_CODES = 4096
# Up to so many thresholds are compared with one after the other, more by halves.
_IN_A_ROW = 8
# Numbers in the features of all distinct records, 8 bytes each: more do not shrink, and may not fit.
_MOST_NUMBERS = 1 << 26
# What does not fit in memory is refused: DuckDB would write it to files that anybody may read.
_NO_FILES = {"temp_directory": ""}
# Below it integers are doubles: comparing the one or the other is the same.
_WHOLE = 1 << 53
# Codes of what is refused come after a column's own.
_REFUSED = tuple(Refused)
_INSTALL = "pip install 'privopt[engines]'"


def is_engine_table(table: object) -> bool:
    """Whether it is an Ibis table; Ibis is not imported for it."""
    return type(table).__module__.partition(".")[0] == "ibis"


def is_engine_address(data: str) -> bool:
    """Whether it names a table that an engine reads: a URL, or a pattern of Parquet files."""
    return "://" in data or (any(mark in data for mark in "*?[") and not Path(data).is_file())


def open_table(data: str, name: str | None = None) -> Any:
    """An Ibis table: of Parquet files by a pattern, or the table ``name`` of a database.

    Args:
        data: ``folder/*.parquet``, or a URL that Ibis knows: duckdb://PATH, sqlite://PATH,
            postgresql://USER@HOST/DATABASE.
        name: the table of a database; SCHEMA.TABLE where that is needed.

    Raises:
        InvalidInputError: Ibis or a driver is not installed, no such file or table, or a database that does
            not answer. URLs, which can hold passwords, are not repeated.
    """
    ibis = _ibis()
    if "://" not in data:
        if name is not None:
            raise InvalidInputError("--table names a table of a database, a URL: files hold one each")
        return _parquet(ibis, data)
    kind, _, path = data.partition("://")
    if name is None:
        raise InvalidInputError(f"a table of a {kind} database needs its name: --table")
    if kind in ("duckdb", "sqlite") and not Path(path).is_file():
        raise InvalidInputError(f"{path}: no such file")
    *schema, table = name.split(".")
    try:
        options = {"read_only": True, **_NO_FILES} if kind == "duckdb" else {}
        connection = ibis.connect(data, **options)
        return connection.table(table, database=schema[0] if schema else None)
    except Exception as error:  # every driver has its own
        raise InvalidInputError(
            f"no table {name!r} can be opened at that {kind} address ({type(error).__name__}): is the server "
            f"running, the name right, and a driver installed ({_INSTALL}, or ibis-framework[{kind}])?"
        ) from None


def _ibis() -> Any:
    try:
        import ibis
    except ImportError:
        raise InvalidInputError(f"tables in engines need Ibis and DuckDB: {_INSTALL}") from None
    return ibis


def _parquet(ibis: Any, data: str) -> Any:
    if not data.lower().endswith(".parquet"):
        raise InvalidInputError(f"{data}: patterns of files end in .parquet")
    try:
        # By the names and types of all files: by the first one's, 0.9 in another becomes 1, and "7" a number.
        options = {"union_by_name": True, "hive_partitioning": False}
        table = ibis.duckdb.connect(**_NO_FILES).read_parquet(data, **options)
    except Exception as error:
        raise InvalidInputError(
            f"{data}: no Parquet files that can be read together ({type(error).__name__})"
        ) from None
    if any(name.removesuffix("_1") in table.columns for name in table.columns if name.endswith("_1")):
        for file in glob(data, recursive=True):  # DuckDB renames the second of two columns of one name
            check_distinct(file, pyarrow.parquet.read_schema(file).names)
    return table


def count_records(
    table: Any, schema: Schema, target: str, classes: Sequence[Any], *, written: bool = False
) -> CountedRecords:
    """Group the records of an Ibis table by the schema and their class, where they are.

    What comes back is what ``CountedRecords.of`` counts in memory. Columns are found by name; they must be
    booleans, integers, floats, decimals of up to 15 digits, or text. This reads the records, and no ledger
    knows: estimators and ``evaluate``, which take the table itself, book first.

    Args:
        table: an Ibis table, or an expression that is one.
        schema: the features.
        target: the column of labels.
        classes: the labels there are, all text, or all integers or booleans.
        written: classes are text as a person writes them, "1" for 1 and for 1.0.

    Raises:
        SchemaError, InvalidInputError: a column or a value that the declaration refuses, and more distinct
            records than fit in memory. No value is quoted.
    """
    return EngineCount.of(table, schema, target, classes, written=written).counted()


@dataclass(frozen=True, eq=False)
class EngineCount:
    """``count_records`` in two steps: whether a declaration fits a table's columns, and then its records.

    Attributes:
        table: an Ibis table.
        schema, classes: as declared.
        keys: expressions to group by, as ``pack`` makes them of numbers below ``sizes``.
        most: distinct records that fit in memory.
    """

    table: Any
    schema: Schema
    classes: tuple[Any, ...]
    keys: tuple[Any, ...]
    sizes: tuple[int, ...]
    most: int

    @classmethod
    def of(
        cls, table: Any, schema: Schema, target: str, classes: Sequence[Any], *, written: bool = False
    ) -> Self:
        """The first step, which reads no record; arguments as for ``count_records``.

        Raises:
            SchemaError, InvalidInputError: a column that is not there, or of a type that the declaration
                refuses.
        """
        if not isinstance(target, str):
            raise InvalidInputError("y is the name of the label column, where X is a table in an engine")
        if not isinstance(table, _ibis().Table):
            raise InvalidInputError(f"an Ibis table is needed, not {type(table).__name__}")
        if len(set(classes)) < max(len(classes), 2):
            raise InvalidInputError("at least 2 different classes are needed, each of them once")
        names = list(table.columns)
        if lacking := [c for c in (*(c.name for c in schema.columns), target) if c not in names]:
            raise SchemaError(f"missing from the table: {missing_columns(lacking, names)}")
        if any(c.name == target for c in schema.columns):
            raise InvalidInputError(f"the schema declares {target!r}, which is the label, not a feature")
        engine = table.get_backend().name
        sizes = [len(classes) + len(_REFUSED)]
        codes = [_label(_Cell(table[target], "y", engine), classes, written)]
        for column in schema.columns:
            if column.n_codes > _MOST_CODES:
                raise SchemaError(
                    f"column {column.name!r}: {column.n_codes} different values are too many to be grouped "
                    f'by; declare a coarser step, or bins (kind = "binned")'
                )
            sizes.append(column.n_codes + len(_REFUSED))
            codes.append(_code(_Cell(table[column.name], f"column {column.name!r}", engine), column))
        most = max(1, _MOST_NUMBERS // schema.n_features)
        keys = pack([c.cast("int64") for c in codes], sizes)
        return cls(table, schema, tuple(classes), tuple(keys), tuple(sizes), most)

    @cached_property
    def n_records(self) -> int:
        """The number of records, which is public.

        Raises:
            InvalidInputError: the engine cannot count them.
        """
        with _unquoted():
            return int(self.table.count().execute())

    def counted(self) -> CountedRecords:
        """The second step.

        Raises:
            SchemaError, InvalidInputError: a value that the declaration refuses, or more distinct records
                than fit in memory. No value is quoted.
        """
        keys, counts = _grouped(self.table, self.keys, self.most)
        if len(counts) > self.most:
            raise SchemaError(
                f"more than {self.most} distinct records: they do not fit in memory. Declare coarser steps "
                "or bins for the columns with the most values"
            )
        found = unpack(keys, self.sizes)
        _check_refused(found[0], len(self.classes), _label_refused)
        for code, column in zip(found[1:], self.schema.columns, strict=True):
            _check_refused(code, column.n_codes, column.refusal)
        return CountedRecords.from_keys(self.schema, self.classes, keys, counts, self.sizes)


def rows_of(table: Any, names: Sequence[str], size: int) -> Iterator[pd.DataFrame]:
    """Columns of an Ibis table by name, ``size`` rows at a time, in the engine's order; None if missing.

    Numbers of single precision come as the doubles that ``count_records`` compares: a driver may read the
    decimal that they print as instead, which can lie on the other side of an edge.

    Raises:
        SchemaError: a column that is not there.
        InvalidInputError: an engine that cannot be read in parts (Spark).
    """
    if lacking := [name for name in names if name not in table.columns]:
        raise SchemaError(f"missing from the table: {missing_columns(lacking, list(table.columns))}")
    exact = {
        name: table[name].cast("float64") if table[name].type().is_float32() else table[name]
        for name in names
    }
    with _unquoted():
        cursor = table.get_backend().raw_sql(_ibis().to_sql(table.select(**exact)))
    if not hasattr(cursor, "fetchmany"):
        raise InvalidInputError("this engine is not read in parts: bring records here by X.to_pandas()")
    while rows := _next(cursor, size):
        yield pd.DataFrame(rows, columns=list(names), dtype=object)


def _next(cursor: Any, size: int) -> list[Any]:
    with _unquoted():
        return list(cursor.fetchmany(size))


@contextmanager
def _unquoted() -> Iterator[None]:
    """Errors of an engine can quote cells; InvalidInputError in their place does not."""
    try:
        yield
    except Exception as error:  # every driver has its own
        raise InvalidInputError(
            f"the engine could not read the table ({type(error).__name__}): does every value fit the type of "
            "its column, and the grouping into memory? What a view computes may fail as well"
        ) from None


def _grouped(table: Any, keys: Sequence[Any], most: int) -> tuple[list[IntArray], IntArray]:
    named = {f"privopt_{k}": key for k, key in enumerate(keys)}
    query = table.select(**named).group_by(list(named)).aggregate(privopt_n=lambda t: t.count())
    with _unquoted():
        found = query.limit(most + 1).to_pyarrow()
    columns = [found[name].to_numpy().astype(np.int64) for name in (*named, "privopt_n")]
    return columns[:-1], columns[-1]


def _check_refused(codes: IntArray, own: int, refusal: Any) -> None:
    for k, reason in enumerate(_REFUSED):
        if bool(np.any(codes == own + k)):
            raise refusal(reason)


def _label_refused(reason: Refused) -> InvalidInputError:
    if reason is Refused.KIND:
        return InvalidInputError("y holds labels of another type than its column")
    if reason is Refused.MISSING:
        return InvalidInputError("y holds missing labels: give them a class of their own")
    return InvalidInputError(
        "y holds labels outside the declared classes; declare them, or correct the declaration"
    )


class _Cell:
    """A column of an engine, and what is known of its type.

    Raises:
        SchemaError: a type whose values mean other things in other places, such as times.
    """

    def __init__(self, value: Any, where: str, engine: str) -> None:
        kind = value.type()
        self.where, self.text = where, kind.is_string()
        decimal = kind.is_decimal() and kind.precision is not None and kind.precision <= 15
        if not (self.text or kind.is_boolean() or kind.is_integer() or kind.is_floating() or decimal):
            raise SchemaError(
                f"{where}: numbers, booleans or text are needed, the table in the engine holds {kind}"
            )
        self.kind, self.engine = kind, engine
        self.raw = value
        self.value = _exact_text(value, engine) if self.text else value

    @property
    def missing(self) -> Any:
        """NULL or NaN."""
        gaps = self.raw.isnull()
        return gaps | self.raw.isnan() if self.kind.is_floating() and self.engine != "sqlite" else gaps

    def markers(self, declared: Markers) -> list[Any]:
        """Missing-value markers that the column can hold."""
        if self.text or self.kind.is_boolean():
            return sorted(declared.texts) if self.text else []
        fractions = self.kind.is_floating() or self.kind.is_decimal()
        return [m for m in sorted(declared.numbers) if fractions or (m.is_integer() and abs(m) < _WHOLE)]

    @property
    def misplaced(self) -> Any | None:
        """Values of another type than the column's, which SQLite allows."""
        if self.engine != "sqlite":
            return None
        if self.kind.is_boolean():
            return ~self.raw.cast("int64").isin([0, 1])
        kinds = {"text": self.text, "integer": not self.text, "real": self.kind.is_floating()}
        return ~self.raw.typeof().isin([kind for kind, allowed in kinds.items() if allowed])

    @property
    def plain(self) -> Any:
        """The value, as a number if it is a boolean: not all engines convert those."""
        return _ibis().ifelse(self.raw, _literal(1), _literal(0)) if self.kind.is_boolean() else self.raw

    @cached_property
    def number(self) -> Any:
        """The value as a double."""
        return self.plain.cast("float64")

    def below(self, threshold: float) -> Any:
        """Whether the value, as a double, is less than a double."""
        if self.kind.is_integer() and abs(threshold) < _WHOLE:
            return self.raw < _literal(math.ceil(threshold))
        return self.number < _double(threshold)

    def above(self, threshold: float) -> Any:
        """Whether the value, as a double, is more than a double."""
        if self.kind.is_integer() and abs(threshold) < _WHOLE:
            return self.raw > _literal(math.floor(threshold))
        return self.number > _double(threshold)

    def before(self, known: Any) -> Any:
        """Whether the value comes before ``known``, a number below 2^53 or text, by its bytes."""
        return self.value < _exact_literal(known, self.engine) if self.text else self.below(float(known))

    def equals(self, known: Any) -> Any:
        """Whether the value is ``known``, as Python has it."""
        if self.text:
            return self.value == _exact_literal(known, self.engine)
        if self.kind.is_floating() or self.kind.is_decimal():
            return self.number == _double(float(known))
        return self.plain == int(known)


def _code(cell: _Cell, column: Column) -> Any:
    """The code of a cell, as ``column.code`` has it; of a refused one, a code beyond the column's own."""
    plain, _ = plain_column(column)
    own = column.n_codes
    gap = _refused(own, Refused.MISSING) if column.gap is None else column.gap
    unreadable = _refused(own, Refused.KIND)
    if isinstance(plain, Number):
        inner = _number_code(cell, plain, own)
        unreadable = unreadable if column.gap is None else column.gap
    else:
        assert isinstance(plain, Categorical)
        inner = _category_code(cell, plain, own)
        unreadable = len(plain.categories) if plain.outside == "ignore" else unreadable
    marked = [(cell.equals(marker), _literal(gap)) for marker in cell.markers(plain.markers)]
    return _whole(cell, gap, unreadable, _first_of(marked, inner))


def _whole(cell: _Cell, gap: int, unreadable: int, inner: Any) -> Any:
    """``inner``, where there is a value of the right type; codes of missing ones, and of other types."""
    ibis = _ibis()
    if (wrong := cell.misplaced) is not None:
        inner = ibis.ifelse(wrong, _literal(unreadable), inner)
    # Plain integers are of 32 bits to most engines, and keys are products; one of 64 makes all of them so.
    return ibis.ifelse(cell.missing, ibis.literal(gap, "int32").cast("int64"), inner)


def _refused(own: int, reason: Refused) -> int:
    return own + _REFUSED.index(reason)


def _number_code(cell: _Cell, column: Number, own: int) -> Any:
    ibis = _ibis()
    if cell.text:
        raise column.refusal(Refused.KIND)
    code = _counted_cuts(cell, *column.cuts())
    if column.outside == "refuse":
        low, high = (float(bound) for bound in column.bounds)
        code = ibis.ifelse(cell.below(low) | cell.above(high), _literal(_refused(own, Refused.OUTSIDE)), code)
    return code


def _counted_cuts(cell: _Cell, reached: int, cuts: Sequence[float]) -> Any:
    """``reached`` and how many of the increasing ``cuts`` a cell has reached."""
    if len(cuts) <= _IN_A_ROW:
        steps = [(cell.below(cut), _literal(reached + k)) for k, cut in enumerate(cuts)]
        return _first_of(steps, _literal(reached + len(cuts)))
    middle = len(cuts) // 2
    below = _counted_cuts(cell, reached, cuts[:middle])
    above = _counted_cuts(cell, reached + middle + 1, cuts[middle + 1 :])
    return _ibis().ifelse(cell.below(cuts[middle]), below, above)


def _category_code(cell: _Cell, column: Categorical, own: int) -> Any:
    if cell.text != isinstance(column.categories[0], str):
        raise column.refusal(Refused.KIND)
    other = len(column.categories) if column.outside == "ignore" else _refused(own, Refused.OUTSIDE)
    return _matched(cell, [[c] for c in column.categories], other)


def _label(cell: _Cell, classes: Sequence[Any], written: bool) -> Any:
    """The number of the class, or a code beyond."""
    known = [_typed(cell, str(c)) for c in classes] if written else [[c] for c in classes]
    if cell.kind.is_decimal() or (not written and cell.text != isinstance(classes[0], str)):
        raise InvalidInputError(
            "y: labels are text, integers or booleans, and the classes of the same type; convert one of them"
        )
    own = len(classes)
    inner = _matched(cell, known, _refused(own, Refused.OUTSIDE))
    return _whole(cell, _refused(own, Refused.MISSING), _refused(own, Refused.KIND), inner)


def _typed(cell: _Cell, text: str) -> list[Any]:
    """The values of a column that a person writes as ``text``: one at most."""
    if cell.text:
        return [text]
    if cell.kind.is_boolean():
        return [text == "True"] if text in ("True", "False") else []
    try:
        value = float(text) if cell.kind.is_floating() else int(text)
        again = str(int(value)) if float(value).is_integer() else str(value)
    except (ValueError, OverflowError):
        return []
    return [value] if again == text and abs(value) < 1 << 63 else []


def _matched(cell: _Cell, known: Sequence[Sequence[Any]], other: int) -> Any:
    """The place of the first list that holds the value, or ``other``."""
    places: dict[Any, int] = {}
    for place, values in enumerate(known):
        for value in values:
            places.setdefault(value, place)
    if not cell.text and any(abs(value) >= _WHOLE for value in places):  # no doubles that order them
        return _among(cell, list(places.items()), other, len(places))
    order = sorted(places.items(), key=lambda item: item[0].encode() if cell.text else item[0])
    return _among(cell, order, other, _IN_A_ROW)


def _among(cell: _Cell, order: Sequence[tuple[Any, int]], other: int, most: int) -> Any:
    """The place beside a value: up to ``most`` are compared one after the other, more by halves."""
    if len(order) <= most:
        return _first_of([(cell.equals(value), _literal(place)) for value, place in order], _literal(other))
    middle = len(order) // 2
    halves = [_among(cell, part, other, most) for part in (order[:middle], order[middle:])]
    return _ibis().ifelse(cell.before(order[middle][0]), *halves)


def _first_of(steps: Sequence[tuple[Any, Any]], other: Any) -> Any:
    """What stands beside the first condition that holds."""
    return _ibis().cases(*steps, else_=other) if steps else other


@cache
def _literal(code: int) -> Any:
    return _ibis().literal(code, "int64")


@cache
def _double(value: float) -> Any:
    """A double that no engine's way of reading decimals can change: an integer times powers of two."""
    ibis = _ibis()
    numerator, denominator = value.as_integer_ratio()
    zeros = (numerator & -numerator).bit_length() - 1 if numerator else 0
    exponent = zeros - (denominator.bit_length() - 1)
    x = ibis.literal(numerator >> zeros, "int64").cast("float64")
    while exponent:
        step = min(abs(exponent), 62)
        power = ibis.literal(1 << step, "int64").cast("float64")
        x = x * power if exponent > 0 else x / power
        exponent -= step if exponent > 0 else -step
    return x


def _exact_text(value: Any, engine: str) -> Any:
    """Text to be compared byte by byte: a column can have a collation that takes "a" for "A"."""
    if engine == "duckdb":
        return _duckdb_bytes()(value)
    if engine == "postgres":
        return _postgres_bytes()(value, "UTF8")
    return value.cast("binary") if engine in ("sqlite", "pyspark") else value


def _exact_literal(text: str, engine: str) -> Any:
    return _exact_text(_ibis().literal(text, "string"), engine)


@cache
def _postgres_bytes() -> Any:
    ibis = _ibis()

    @ibis.udf.scalar.builtin(name="convert_to", signature=(("string", "string"), "binary"))
    def convert_to(text, encoding):  # type: ignore[no-untyped-def]
        ...

    return convert_to


@cache
def _duckdb_bytes() -> Any:
    ibis = _ibis()

    @ibis.udf.scalar.builtin(name="encode", signature=(("string",), "binary"))
    def encode(text):  # type: ignore[no-untyped-def]
        ...

    return encode

"""Codes of cells as expressions of a SQL engine, equal to the codes of ``Column.code`` for arrays.

Numbers are doubles that are compared with thresholds, which are exact in every engine (integers over powers
of two), so ties are decided as in memory. A value that a declaration refuses gets a separate code.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.cells import MISSING, UNDECLARED, UNREADABLE, Markers, written_number
from privopt.problems.tables.columns import Binned, Categorical, Column, Number, Numeric
from privopt.problems.tables.date_expressions import date_number
from privopt.problems.tables.dates import Date
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.notation import PLAIN
from privopt.problems.tables.parquet_files import NUMBER, TIME, fields, is_mixed
from privopt.problems.tables.parquet_text import TEXT
from privopt.problems.tables.sources import decoded, ibis_library, is_type_of_null
from privopt.problems.tables.values import Refused

# Largest number of thresholds compared sequentially; with more the search is binary.
_IN_A_ROW = 8
# Integers below this are doubles: comparisons as integers and as doubles agree.
_WHOLE = 1 << 53
# A bound on the error of computed grid positions, and what is subtracted from them: see ``_grid_code``.
_POSITION_ERROR, _LOW = 2.0**-12, 2.0**-10
# Codes of refused values come after a column's own.
REFUSED = tuple(Refused)
# The smallest decimal that is infinite as a double, and the largest that is 0, to forty digits, rounded so
# that PostgreSQL's cast does not fail for any decimal between them.
_INFINITE = "1.797693134862315807937289714053034150799e308"
_NOTHING = "2.470328229206232720882843964341106861826e-324"
# As doubles, decimals of up to so many digits are finite, and 0 only if they are 0.
_FINITE_DIGITS = 300
_NO_NUMBER = "no number"
# Engines that make the nearest doubles of decimals of any length: DuckDB by way of text, as its cast divides
# by powers of ten.
_ANY_DECIMALS = ("duckdb", "postgres", "sqlite", "pyspark")
_SHORT_DECIMALS = 15  # digits; such a decimal is a quotient of two integers that doubles represent


class Cell:
    """A column of an engine, and the facts known from its type.

    Args:
        value: the column.
        where: its name, for errors.
        engine: the name of its Ibis backend.
        column: the declaration of a column of features; None for labels.

    Raises:
        SchemaError: a type whose values have different meanings in different engines, such as times.
    """

    def __init__(self, value: Any, where: str, engine: str, column: Column | None = None) -> None:
        kind = value.type()
        read = engine == "sqlite" and column is not None and holds_numbers(column) and kind.is_string()
        self.where, self.text = where, kind.is_string() and not read
        if not (
            kind.is_string()
            or kind.is_boolean()
            or kind.is_integer()
            or kind.is_floating()
            or kind.is_decimal()
        ):
            held = "a type of its own (a domain, say)" if kind.is_unknown() else str(kind)
            raise SchemaError(
                f"{where}: numbers, booleans or text are needed, the table in the engine holds "
                f"{held}; cast it to one of them in a view"
                + (', or declare kind = "date"' if kind.is_date() or kind.is_timestamp() else "")
            )
        self.is_long = kind.is_decimal() and not (kind.precision or _WHOLE) <= _SHORT_DECIMALS
        if self.is_long and engine not in _ANY_DECIMALS:
            raise SchemaError(f"{where}: {kind} has more than {_SHORT_DECIMALS} digits; cast it to a double")
        self.kind, self.engine = ibis_library().dtype("float64") if read else kind, engine
        self.raw = value
        if engine == "sqlite" and isinstance(column, Number | Categorical) and not self.text:
            self.raw = _parsed_text(value, column)  # text, which is read as numbers
        self.value = exact_text(value, engine) if self.text else value

    @property
    def missing(self) -> Any:
        """Return whether the value is NULL or NaN."""
        gaps = self.raw.isnull()
        if self.engine == "sqlite":
            return gaps
        if (
            self.kind.is_decimal() and self.engine == "postgres"
        ):  # the only engine with decimals that are not a number
            return gaps | self.number.isnan()
        if not self.kind.is_floating():
            return gaps
        return gaps | self.raw.isnan()

    def markers(self, declared: Markers) -> list[Any]:
        """Return the missing-value markers of the column's type."""
        if self.text:
            return sorted(declared.texts)
        fractions = self.engine == "sqlite" or self.kind.is_floating() or self.kind.is_decimal()
        return [m for m in sorted(declared.numbers) if fractions or (m.is_integer() and abs(m) < _WHOLE)]

    @property
    def misplaced(self) -> Any | None:
        """Return whether a cell has another type than its column, which SQLite allows; None: no cell can."""
        if self.engine != "sqlite":
            return None
        return ~self.raw.typeof().isin(["text"] if self.text else ["integer", "real"])

    @property
    def plain(self) -> Any:
        """The value, as a number if it is a boolean: not all engines convert those."""
        if not self.kind.is_boolean():
            return self.raw
        if self.engine == "sqlite":  # where a boolean may be any number
            return self.raw.cast("float64")
        return _first_of([(self.raw, _literal(1)), (~self.raw, _literal(0))], None)  # NULL of NULL

    @cached_property
    def number(self) -> Any:
        """Return the value as the nearest double."""
        if self.is_long and self.engine == "duckdb":
            return self.raw.cast("string").cast("float64")
        if self.kind.is_decimal() and self.engine == "postgres":
            return _double_of_decimal(self.raw)
        return self.plain.cast("float64")

    def below(self, threshold: float) -> Any:
        """Return whether the value, as a double, is less than a double."""
        if self.kind.is_integer() and abs(threshold) < _WHOLE:
            return self.raw < _literal(math.ceil(threshold))
        return self.number < _double(threshold)

    def above(self, threshold: float) -> Any:
        """Return whether the value, as a double, is more than a double."""
        if self.kind.is_integer() and abs(threshold) < _WHOLE:
            return self.raw > _literal(math.floor(threshold))
        return self.number > _double(threshold)

    def before(self, known: Any) -> Any:
        """Return whether the value is less than ``known``, a number below 2^53 or text, compared by bytes."""
        return self.value < _exact_literal(known, self.engine) if self.text else self.below(float(known))

    def equals(self, known: Any) -> Any:
        """Return whether the value equals ``known``, as in Python."""
        if self.text:
            return self.value == _exact_literal(known, self.engine)
        if isinstance(known, float) and math.isinf(known):
            largest = math.copysign(sys.float_info.max, known)
            return self.above(largest) if known > 0 else self.below(largest)
        as_doubles = self.kind.is_floating() or self.kind.is_decimal() or not float(known).is_integer()
        if as_doubles or (known < 0 and self.kind.is_unsigned_integer()):  # which Ibis does not compare
            return self.number == _double(float(known))
        return self.plain == int(known)


def holds_numbers(column: Column) -> bool:
    """Return whether a column compares its cells as numbers: a number, or categories that are numbers."""
    return isinstance(column, Number) or not isinstance(_categories(column)[0], str)


def _categories(column: Column) -> tuple[str | int, ...]:
    assert isinstance(column, Categorical)
    return column.categories


def with_type(value: Any, usual: str) -> Any:
    """Return a column, cast to the type ``usual`` if its own type is the type of NULL.

    A column of a Parquet file has the type of NULL if all of its cells are missing. So refusing it would
    reveal something about cells, before anything is booked.
    """
    return value.cast(usual) if is_type_of_null(value.type()) else value


def feature_cell(value: Any, column: Column, engine: str) -> Cell:
    """Return a column of features in an engine; errors as ``Cell``."""
    plain, _ = plain_column(column)
    assert isinstance(plain, Number | Categorical)
    value = with_type(value, _usual_type(plain))
    if isinstance(plain, Date):
        return Cell(date_number(value, plain, engine), f"column {column.name!r}", engine)
    return Cell(value, f"column {column.name!r}", engine, plain)


def feature_code(value: Any, column: Column, engine: str) -> Any:
    """Return the code of a column of features in an engine, also if its Parquet files hold different kinds.

    Raises:
        SchemaError: a type that the declaration refuses.
    """
    if not is_mixed(value.type()):
        return column_code(feature_cell(value, column, engine), column)
    gap, unreadable = map(_literal, _codes_of_none(column))
    steps = []
    for field, part in fields(value).items():
        if field in _kinds_read(column):
            code = column_code(feature_cell(part, column, engine), column)
        else:  # NaN is missing in a column of text, too
            is_nan = Cell(part, column.name, engine).missing if field == NUMBER else part.isnull()
            code = ibis_library().ifelse(is_nan, gap, unreadable)
        steps.append((part.notnull(), code))
    return _first_of(steps, gap)


def _kinds_read(column: Column) -> tuple[str, ...]:
    """Return the kinds of cells that a column reads; cells of other kinds are unreadable."""
    plain, _ = plain_column(column)
    if isinstance(plain, Date):
        return TEXT, TIME
    return (TEXT, NUMBER) if holds_numbers(plain) else (TEXT,)


def _usual_type(column: Number | Categorical) -> str:
    if isinstance(column, Date):
        return "date"
    is_text = isinstance(column, Categorical) and isinstance(column.categories[0], str)
    return "string" if is_text else "float64"


def column_code(cell: Cell, column: Column) -> Any:
    """Return the code of a cell: as ``column.code`` does, or for a refused cell a code after the column's."""
    plain, _ = plain_column(column)
    if cell.text and cell.engine == "duckdb" and holds_numbers(plain):
        return _code_of_text(cell, column)
    own, (gap, unreadable) = column.n_codes, _codes_of_none(column)
    if isinstance(plain, Number):
        inner = _number_code(cell, plain, own)
    else:
        assert isinstance(plain, Categorical)
        inner = _category_code(cell, plain, own)
    marked = [(cell.equals(marker), _literal(gap)) for marker in cell.markers(plain.markers)]
    return _if_readable(cell, gap, unreadable, _first_of(marked, inner))


def _codes_of_none(column: Column) -> tuple[int, int]:
    """Return the codes of missing cells and of cells of another type; both may be refused ones."""
    plain, _ = plain_column(column)
    gap = _refused(column.n_codes, Refused.MISSING) if column.gap is None else column.gap
    unreadable = _refused(column.n_codes, Refused.KIND)
    if isinstance(plain, Number):
        return gap, unreadable if column.gap is None else column.gap
    ignored = isinstance(plain, Categorical) and plain.outside == "ignore"
    return gap, _other(plain, column.n_codes) if ignored else unreadable


def _other(column: Column, own: int) -> int:
    """Return the code of an undeclared category."""
    assert isinstance(column, Categorical)
    return len(column.categories) if column.outside == "ignore" else _refused(own, Refused.OUTSIDE)


def _code_of_text(cell: Cell, column: Column) -> Any:
    """Return the code of a text in a column of numbers, computed by the parser of tables in memory.

    DuckDB runs in this process, and calls the function below with parts of the column, without NULL.
    """
    ibis, arrow = ibis_library(), importlib.import_module("pyarrow")

    def codes(texts: Any) -> Any:
        held = texts.combine_chunks() if isinstance(texts, arrow.ChunkedArray) else texts
        return arrow.array(text_codes(held, column), type=arrow.int64())

    read = ibis.udf.scalar.pyarrow(codes, name="privopt_code", signature=(("string",), "int64"))
    gap, _ = _codes_of_none(column)
    return ibis.ifelse(cell.raw.isnull(), _literal(gap), read(cell.raw))


def text_codes(texts: Any, column: Column) -> NDArray[np.int64]:
    """Return the codes of an Arrow array of text in a column of numbers, as ``column_code`` does."""
    plain, _ = plain_column(column)
    gap, wrong = _codes_of_none(column)
    if isinstance(plain, Categorical):
        places = plain.positions(texts)
        codes = np.where(places == MISSING, gap, np.where(places == UNREADABLE, wrong, places))
        return np.where(places == UNDECLARED, _other(plain, column.n_codes), codes)
    assert isinstance(plain, Number)
    (values, unreadable), (low, high) = plain.read(texts), map(float, plain.bounds)
    codes = np.where(unreadable, wrong, gap)
    outside = (values < low) | (values > high) if plain.outside == "refuse" else np.zeros(len(values), bool)
    codes[outside] = _refused(column.n_codes, Refused.OUTSIDE)
    known = ~np.isnan(values) & ~outside
    codes[known] = plain.coded(values[known], None)
    return codes


def _if_readable(cell: Cell, gap: int, unreadable: int, inner: Any) -> Any:
    """Return ``inner`` for values of the right type, ``gap`` for missing cells, else ``unreadable``."""
    ibis = ibis_library()
    if (wrong := cell.misplaced) is not None:
        inner = ibis.ifelse(wrong, _literal(unreadable), inner)
    # Plain integers have 32 bits in most engines, and keys are sums of products of codes; so codes have 64
    # bits.
    return ibis.ifelse(cell.missing, ibis.literal(gap, "int32").cast("int64"), inner)


def _refused(own: int, reason: Refused) -> int:
    return own + REFUSED.index(reason)


def _number_code(cell: Cell, column: Number, own: int) -> Any:
    ibis = ibis_library()
    if cell.text:
        raise SchemaError(
            f"{cell.where}: DuckDB and SQLite read text as numbers, {cell.engine} does not; cast it to "
            "numbers in a view"
        )
    reached, cuts = column.cuts()
    code = _grid_code(cell, column, reached, cuts)
    if code is None:
        code = _counted_cuts(cell, reached, cuts)
    if column.outside == "refuse":
        low, high = (float(bound) for bound in column.bounds)
        code = ibis.ifelse(cell.below(low) | cell.above(high), _literal(_refused(own, Refused.OUTSIDE)), code)
    return code


def _grid_code(cell: Cell, column: Number, reached: int, cuts: Sequence[float]) -> Any | None:
    """Compute ``reached`` and the number of cuts reached; None for cuts that are not on an exact grid.

    Cut j, from 0 to n - 1, has to be (a + j b) / d for integers a, b and d; this is checked here for each
    cut, in the arithmetic of engines: integers below 2^53 are doubles, and their quotient is the nearest
    double. The number of cuts that x reaches is k = floor(p), p = (x d - a) / b + 1, for x from half a step
    below the first cut, where p = 1/2, to the last cut, where p = n; other x are moved to the nearer end,
    which has the same k. In doubles r = p - 1/2 - 2^-10 has an error below 2^-12. So the integer q, to which
    the engine rounds or truncates r, is k - 1 or k, and lies in 0 to n - 1. A comparison with cut q, which is
    computed exactly, decides: k = q + [x >= cut q].
    """
    grid = _grid(column, reached, cuts)
    if grid is None:
        return None
    a, b, d = grid
    ibis, first, step = ibis_library(), Fraction(a, d), Fraction(b, d)
    low, high, shift = float(first - step / 2), cuts[-1], step * (Fraction(1, 2) - Fraction(_LOW)) - first
    error = 2.0**-50 * (max(abs(low), abs(high), abs(float(shift))) / float(step) + len(cuts) + 2)
    if not (error < _POSITION_ERROR and low < cuts[0] and shift):
        return None
    x = ibis.least(ibis.greatest(cell.number, _double(low)), _double(high))
    # A product of x itself could be too small for a double, which is an error in PostgreSQL.
    q = _times(x + _double(float(shift)), 1 / step).cast("int64")
    by = d if d & (d - 1) else 1  # a power of two divides the integers exactly, so it is no divisor here
    cut = _times(q.cast("float64"), step * by) + _double(float(first * by))
    cut = cut if by == 1 else cut / _double(float(by))
    return q + ibis.ifelse(cell.number >= cut, _literal(reached + 1), _literal(reached))


def _times(value: Any, factor: Fraction) -> Any:
    return value if factor == 1 else value * _double(float(factor))


def _grid(column: Number, reached: int, cuts: Sequence[float]) -> tuple[int, int, int] | None:
    """Return integers a, b and d, b and d positive, such that cut j is (a + j b) / d in doubles."""
    if len(cuts) <= _IN_A_ROW:
        return None
    if isinstance(column, Numeric):
        first, step = column.low + (reached + Fraction(1, 2)) * column.step, column.step
    elif isinstance(column, Binned):
        first, step = column.edges[1], column.edges[2] - column.edges[1]
    else:
        return None
    d = math.lcm(first.denominator, step.denominator)
    a, b = int(first * d), int(step * d)
    if max(d, abs(a) + b * (len(cuts) + 1)) >= _WHOLE:
        return None
    computed = (a + b * np.arange(len(cuts), dtype=np.float64)) / d
    return (a, b, d) if np.array_equal(computed, cuts) else None


def _counted_cuts(cell: Cell, reached: int, cuts: Sequence[float]) -> Any:
    """Return ``reached`` and the number of the increasing ``cuts`` that a cell has reached."""
    if len(cuts) <= _IN_A_ROW:
        steps = [(cell.below(cut), _literal(reached + k)) for k, cut in enumerate(cuts)]
        return _first_of(steps, _literal(reached + len(cuts)))
    middle = len(cuts) // 2
    below = _counted_cuts(cell, reached, cuts[:middle])
    above = _counted_cuts(cell, reached + middle + 1, cuts[middle + 1 :])
    return ibis_library().ifelse(cell.below(cuts[middle]), below, above)


def _category_code(cell: Cell, column: Categorical, own: int) -> Any:
    if cell.text != isinstance(column.categories[0], str):
        raise SchemaError(_other_type(cell))
    if cell.is_long:
        raise SchemaError(
            f"{cell.where}: categories are compared exactly, and the column of the table holds "
            f"{cell.kind}; cast it to integers in a view"
        )
    return _matched(cell, [[c] for c in column.categories], _other(column, own))


def _other_type(cell: Cell) -> str:
    if cell.text:
        return (
            f"{cell.where}: the column of the table in the engine is text, which DuckDB and SQLite read as "
            f'numbers and {cell.engine} does not: declare the categories as the text that it holds ("1")'
        )
    return (
        f"{cell.where}: the categories are text, and the column of the table in the engine is {cell.kind}: "
        "cast the column to text in a view, or declare numbers"
    )


def label_code(value: Any, classes: Sequence[Any], written: bool, engine: str) -> Any:
    """Return the index of the class, or for a refused label a code beyond the last index.

    Args:
        value: the column of labels.
        classes: the classes.
        written: whether classes are given as text for labels of any type.
        engine: the name of the Ibis backend.

    Raises:
        SchemaError, InvalidInputError: a type that labels cannot have, or a type other than the classes'.
    """
    is_text, own = isinstance(classes[0], str), len(classes)
    if not is_mixed(value.type()):
        labels = with_type(value, "string" if written or is_text else "int64")
        return _label_code(Cell(labels, "y", engine), classes, written)
    held = fields(value)
    if not written or not set(held) <= {TEXT, NUMBER}:
        raise InvalidInputError(
            "y: the Parquet files hold the labels as different kinds (numbers, text): write them as one, or "
            "cast them in a view"
        )
    steps = [
        (part.notnull(), _label_code(Cell(part, "y", engine), classes, written)) for part in held.values()
    ]
    return _first_of(steps, _literal(_refused(own, Refused.MISSING)))


def _label_code(cell: Cell, classes: Sequence[Any], written: bool) -> Any:
    known = [_typed(cell, str(c)) for c in classes] if written else [[c] for c in classes]
    if cell.kind.is_decimal() or (not written and cell.text != isinstance(classes[0], str)):
        raise InvalidInputError(
            "y: labels are text, integers or booleans, and the classes of the same type; convert one of them"
        )
    own = len(classes)
    inner = _matched(cell, known, _refused(own, Refused.OUTSIDE))
    return _if_readable(cell, _refused(own, Refused.MISSING), _refused(own, Refused.KIND), inner)


def _typed(cell: Cell, text: str) -> list[Any]:
    """Return the values of the column's type that are written as ``text``: at most one."""
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


def _matched(cell: Cell, known: Sequence[Sequence[Any]], other: int) -> Any:
    """Return the position of the first list that contains the value, or ``other``."""
    places: dict[Any, int] = {}
    for place, values in enumerate(known):
        for value in values:
            places.setdefault(value, place)
    if not cell.text and any(abs(value) >= _WHOLE for value in places):  # ``before`` compares doubles
        return _among(cell, list(places.items()), other, len(places))
    order = sorted(places.items(), key=lambda item: item[0].encode() if cell.text else item[0])
    return _among(cell, order, other, _IN_A_ROW)


def _among(cell: Cell, order: Sequence[tuple[Any, int]], other: int, most: int) -> Any:
    """Look up the position of a value: up to ``most`` by sequential comparison, more by binary search."""
    if len(order) <= most:
        return _first_of([(cell.equals(value), _literal(place)) for value, place in order], _literal(other))
    middle = len(order) // 2
    halves = [_among(cell, part, other, most) for part in (order[:middle], order[middle:])]
    return ibis_library().ifelse(cell.before(order[middle][0]), *halves)


def _first_of(steps: Sequence[tuple[Any, Any]], other: Any) -> Any:
    """Return the value of the first condition that holds."""
    return ibis_library().cases(*steps, else_=other) if steps else other


def _double_of_decimal(value: Any) -> Any:
    """Return the nearest double of a decimal of PostgreSQL, whose cast fails where that is infinite or 0."""
    kind = value.type()
    digits, after = kind.precision, kind.scale
    if digits is not None and after is not None and 0 <= after <= digits <= _FINITE_DIGITS:
        return value.cast("float64")
    infinite, nothing = _decimal(_INFINITE), _decimal(_NOTHING)
    known = ibis_library().ifelse(value.abs() <= nothing, _double(0.0), value.cast("float64"))
    steps = [
        (value == _decimal("NaN"), _decimal("NaN").cast("float64")),
        (value >= infinite, _decimal("Infinity").cast("float64")),
        (value <= -infinite, _decimal("-Infinity").cast("float64")),
    ]
    return _first_of(steps, known)


def _decimal(digits: str) -> Any:
    return ibis_library().literal(digits, "string").cast("decimal")


@cache
def _literal(code: int) -> Any:
    return ibis_library().literal(code, "int64")


@cache
def _double(value: float) -> Any:
    """Write a double as an integer times powers of two, which every engine reads exactly."""
    ibis = ibis_library()
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


def _parsed_text(value: Any, column: Number | Categorical) -> Any:
    """Parse texts in a numeric column of SQLite as ``cells`` does; texts that are no numbers become one text.

    Cells are passed as bytes, because a text that is not UTF-8 would be an error of the query.
    """
    ibis = ibis_library()
    notation = column.notation if isinstance(column, Number) else PLAIN

    def parsed(cell: bytes) -> float | str:
        text = decoded(cell)
        found = written_number(notation.rewritten(text), column.markers)
        return _NO_NUMBER if found is None else found

    kind = value.type()
    parse = ibis.udf.scalar.python(parsed, name="privopt_number", signature=(("binary",), kind))
    return ibis.ifelse(value.typeof() == "text", parse(value.cast("binary")), value)


def exact_text(value: Any, engine: str) -> Any:
    """Return text for comparison byte by byte: a column can have a collation that treats "a" as "A"."""
    if engine == "duckdb":
        return _duckdb_bytes()(value)
    if engine == "postgres":
        return _postgres_bytes()(value + "", "UTF8")  # an enumeration also becomes text
    return value.cast("binary") if engine in ("sqlite", "pyspark") else value


def _exact_literal(text: str, engine: str) -> Any:
    if "\0" in text and engine in ("sqlite", "postgres"):  # characters that end text, or a statement, there
        raise SchemaError(
            f"{text!r} holds a NUL, and cannot be looked for in {engine}: rename it in the table"
        )
    return exact_text(ibis_library().literal(text, "string"), engine)


@cache
def _postgres_bytes() -> Any:
    ibis = ibis_library()

    @ibis.udf.scalar.builtin(name="convert_to", signature=(("string", "string"), "binary"))
    def convert_to(text, encoding):  # type: ignore[no-untyped-def]
        ...

    return convert_to


@cache
def _duckdb_bytes() -> Any:
    ibis = ibis_library()

    @ibis.udf.scalar.builtin(name="encode", signature=(("string",), "binary"))
    def encode(text):  # type: ignore[no-untyped-def]
        ...

    return encode

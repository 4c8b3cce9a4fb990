"""Translation of scorecards to SQL: CASE expressions that agree with ``predict`` on every row.

Values are compared as in ``predict``: numbers as 64-bit floats with the declared edges, categories as text.
For records that ``predict`` refuses (a missing value without a replacement, an undeclared category, a number
out of range), points and prediction are NULL. There is one difference: SQLite allows text such as '9' in a
column of numbers. ``predict`` reads it as a number; here points and prediction are NULL.

A table may have any columns besides the declared ones, for example one called ``points``. Prediction and risk
therefore refer to the sum of points by an alias that contains a hash. The alias is a column of the result: in
the SQL common to SQLite, DuckDB and PostgreSQL it cannot be hidden without computing the sum once for every
comparison.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from privopt.mechanisms.estimators.sql_dates import date_cases
from privopt.mechanisms.evaluation.risk import RiskTable
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.dates import Date
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

# Alias of the table, which qualifies all column names: SQLite reads an unknown name in double quotes as text,
# but refuses an unknown qualified name.
TABLE = "privopt"
# Decimals of up to this many significant digits are distinct as 64-bit floats.
_SHORT = sys.float_info.dig
# A number is rounded to its grid by one comparison with each midpoint between grid points.
_MOST_GRID_POINTS = 1000


def points_expression(schema: Schema, points: Sequence[int]) -> str:
    """Return SQL for the sum of points times the schema's denominator, which is an integer.

    The expression is NULL for records that ``predict`` refuses.

    Raises:
        InvalidInputError: a number with more than 1,000 grid points, a custom column type, or text that SQL
            cannot represent.
    """
    left = list(points)
    terms = []
    for column in schema.columns:
        own, left = left[: len(column.feature_names)], left[len(column.feature_names) :]
        terms.append(points_of_column(column, own, schema.denominator))
    terms += [str(weight * schema.denominator) for weight in left]
    return "\n  + ".join(terms)


def select_statement(
    schema: Schema,
    points: Sequence[int],
    classes: tuple[Any, Any],
    risks: RiskTable | None,
    table: str,
    columns: Sequence[str] = (),
) -> str:
    """Return a SELECT that adds the columns points, prediction and, with a table of risks, risk.

    If a declared column, or one of ``columns``, has the name of an added column, in upper or lower case, a
    number is appended to the name of the added column: ``points_1``.

    Raises:
        InvalidInputError: a schema without a translation, or text that SQL cannot represent.
    """
    total = f"(\n  {points_expression(schema, points)}\n)"
    if schema.denominator != 1:
        total = f"{as_double(total)} / {schema.denominator}"
    alias = alias_of(total)
    added = [("points", alias), ("prediction", class_by_sign(alias, classes))]
    if risks is not None:
        steps = [
            f"WHEN {alias} <= {double(edge)} THEN {double(risk)}"
            for edge, risk in zip(risks.up_to, risks.risks, strict=False)
        ]
        last = f"WHEN {alias} IS NOT NULL THEN {double(risks.risks[-1])}"
        added.append(("risk", as_double("CASE " + "\n  ".join([*steps, last]) + " END")))
    return statement_with(schema, table, {alias: total}, added, columns)


def alias_of(expression: str) -> str:
    """Return the alias of an expression that a statement computes once for each record."""
    return f"privopt_{hashlib.sha256(expression.encode()).hexdigest()[:16]}"


def class_by_sign(alias: str, classes: Sequence[Any]) -> str:
    """Return SQL for the class, negative or positive, by the sign of a score; NULL if the score is NULL."""
    return (
        f"CASE WHEN {alias} > 0 THEN {literal(classes[1])} WHEN {alias} <= 0 THEN {literal(classes[0])} END"
    )


def statement_with(
    schema: Schema,
    table: str,
    expressions: Mapping[str, str],
    added: Sequence[tuple[str, str]],
    columns: Sequence[str] = (),
) -> str:
    """Return a SELECT of a table with columns added.

    If a declared column, one of ``columns`` or a column added before has the name of an added column, in
    upper or lower case, a number is appended to the name of the added column.

    Args:
        expressions: expressions that are computed once for each record, by the aliases under which the added
            columns use them.
        added: names of the added columns, and SQL for their values.
    """
    taken = {str(name).lower() for name in (*columns, *(column.name for column in schema.columns))}
    named = [(take_free_name(name, taken), value) for name, value in added]
    selected = ",\n  ".join(["*", *(f"{value} AS {_written(name)}" for name, value in named)])
    computed = ",\n".join(f"{expression} AS {alias}" for alias, expression in expressions.items())
    inner = f"SELECT {TABLE}.*, {computed} FROM {identifier(table)} AS {TABLE}"
    return f"{_comments(schema)}SELECT {selected}\nFROM (\n{inner}\n) AS scored\n"


def _comments(schema: Schema) -> str:
    """Return a comment for each column with a label or a unit, each on one line whatever the names hold."""
    shown = [(name, title) for name, title in schema.titles.items() if name != title]
    return "".join(f"-- {name if name.isprintable() else ascii(name)}: {title}\n" for name, title in shown)


def take_free_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number appended if it is taken in any case of letters; add it to ``taken``."""
    names = (name, *(f"{name}_{k}" for k in range(1, len(taken) + 1)))
    free = next(free for free in names if free.lower() not in taken)
    taken.add(free.lower())
    return free


def _written(name: str) -> str:
    """Write the name of an added column, in quotes if SQL would otherwise read it differently."""
    return name if re.fullmatch(r"[a-z]+(_[0-9]+)?", name) else identifier(name)


def identifier(name: str) -> str:
    """Quote an identifier with double quotes, as in the SQL standard."""
    return '"' + _without_nul(name).replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Write a literal: text in single quotes, numbers unchanged, booleans as TRUE or FALSE for PostgreSQL."""
    if isinstance(value, str):
        return "'" + _without_nul(value).replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool | np.bool_) else str(value)


def _without_nul(text: str) -> str:
    """Return the text; refuse NUL, which ends a statement in SQLite and which PostgreSQL does not allow."""
    if "\0" in text:
        raise InvalidInputError(
            f"{text!r} cannot be written in SQL, because it holds a NUL: rename it in the table"
        )
    return text


def _cell(column: Column) -> str:
    return f"{TABLE}.{identifier(column.name)}"


def points_of_column(column: Column, points: list[int], denominator: int = 1) -> str:
    """Return SQL for the points of one column, times a denominator; NULL where a value is refused.

    Raises:
        InvalidInputError: as ``points_expression``.
    """
    kind, has_level = plain_column(column)
    scaled = [p * denominator for p in points]
    if isinstance(kind, Date):
        gap = scaled[-1] if has_level else None if kind.gap is None else scaled[kind.gap]
        cases = date_cases(kind, _cell(kind), scaled[: kind.n_codes], "NULL" if gap is None else str(gap))
        return "CASE " + " ".join(cases) + " END"
    if isinstance(kind, Categorical):
        cases, gap = _categorical(kind, scaled)
    elif isinstance(kind, Binned):
        cases, gap = _binned(kind, scaled)
    elif isinstance(kind, Numeric):
        cases, gap = _numeric(kind, scaled[0])
    else:
        raise InvalidInputError(f"column {column.name!r}: {type(column).__name__} has no translation to SQL")
    if has_level:
        gap = scaled[-1]
    filled = "NULL" if gap is None else str(gap)
    if isinstance(kind, Numeric | Binned) or _is_of_numbers(kind):
        cases = _no_numbers(_cell(kind), filled) + cases
    cases = _markers(kind, filled) + cases
    if isinstance(kind, Numeric | Binned):
        cases.insert(0, _text_refused(_cell(kind)))
    if gap is not None and isinstance(kind, Categorical):
        cases.append(f"WHEN {_cell(column)} IS NULL THEN {filled}")
    return "CASE " + " ".join(cases) + " END"


def _no_numbers(cell: str, filled: str) -> list[str]:
    """Return the case for NULL and NaN; NaN is found by its text, "NaN", "nan" or "-nan".

    Comparing with NaN fails in DuckDB: it decides comparisons, but not patterns, by the statistics of Parquet
    files, which ignore NaN. The pattern has no per cent sign, as drivers of PostgreSQL would read it as a
    parameter.
    """
    return [f"WHEN {cell} IS NULL OR LTRIM(LOWER(CAST({cell} AS VARCHAR)), '-') LIKE 'na_' THEN {filled}"]


def _text_refused(cell: str) -> str:
    """Return the case that refuses text in a column of numbers of SQLite.

    Depending on the column's type, SQLite compares "9" and 10 as texts, or takes text as above all numbers. A
    unary plus removes the type of the column: text is then above all numbers and equal to no number, not
    even to the number that it spells.
    """
    return f"WHEN +{cell} > 1e300 AND {cell} + 0e0 <> +{cell} THEN NULL"


def _markers(kind: Numeric | Binned | Categorical, filled: str) -> list[str]:
    """Return the cases for the declared missing-value markers."""
    if isinstance(kind, Categorical) and isinstance(kind.categories[0], bool):
        return []  # boolean columns have no numeric markers
    if isinstance(kind, Categorical) and isinstance(kind.categories[0], str):
        return [f"WHEN {_cell(kind)} || '' = {literal(m)} THEN {filled}" for m in sorted(kind.markers.texts)]
    return [f"WHEN {_equals(_cell(kind), m)} THEN {filled}" for m in sorted(kind.markers.numbers)]


def _equals(cell: str, marker: float) -> str:
    """Return SQL for whether a cell equals a marker.

    Infinity has no literal in SQL, so an infinite marker is compared with the largest finite number.
    """
    if math.isfinite(marker):
        return f"{cell} = {double(marker)}"
    largest = math.copysign(sys.float_info.max, marker)
    return f"{cell} {'>' if marker > 0 else '<'} {double(largest)}"


def _is_of_numbers(kind: Column) -> bool:
    return isinstance(kind, Categorical) and not isinstance(kind.categories[0], str | bool)


def _categorical(kind: Categorical, points: list[int]) -> tuple[list[str], int | None]:
    """Return the cases of the categories, and the points of the category that replaces missing values."""
    cell, known = _cell(kind), dict(zip(kind.categories, points, strict=False))
    # Concatenation with '' removes the column's collation, trailing blanks and enumeration type.
    value = f"{cell} || ''" if isinstance(kind.categories[0], str) else cell
    cases = [f"WHEN {value} = {literal(c)} THEN {p}" for c, p in known.items()]
    if kind.outside == "ignore":
        cases.append(f"WHEN {cell} IS NOT NULL THEN 0")
    return cases, None if kind.missing is None else known.get(kind.missing, 0)


def _binned(kind: Binned, points: list[int]) -> tuple[list[str], int | None]:
    edges = [float(e) for e in kind.edges]
    held = points[: len(edges) - 1]
    cases = _outside(kind, edges[0], edges[-1]) + _steps(kind, edges[1:-1], held)
    if kind.missing is None:
        return cases, None
    return cases, held[int(np.searchsorted(edges[1:-1], float(kind.missing), side="right"))]


def _numeric(kind: Numeric, slope: int) -> tuple[list[str], int | None]:
    if kind.top >= _MOST_GRID_POINTS:
        raise InvalidInputError(
            f"column {kind.name!r} has {kind.top + 1} grid points; SQL takes up to {_MOST_GRID_POINTS}: "
            "declare a coarser step"
        )
    first, last = kind.ends
    points = [int((first + (last - first) * Fraction(k, kind.top)) * slope) for k in range(kind.top + 1)]
    half = Fraction(1, 2)
    middles = [_first_float(kind.low + (k - half) * kind.step) for k in range(1, kind.top + 1)]
    # A column without points still refuses invalid values.
    steps = _steps(kind, middles, points) if slope else _steps(kind, [], [0])
    cases = _outside(kind, float(kind.low), float(kind.high)) + steps
    if kind.missing is None:
        return cases, None
    return cases, points[min(math.floor((kind.missing - kind.low) / kind.step + half), kind.top)]


def _outside(kind: Numeric | Binned, low: float, high: float) -> list[str]:
    if kind.outside == "clip":
        return []
    cell = _cell(kind)
    return [f"WHEN {cell} < {double(low)} OR {cell} > {double(high)} THEN NULL"]


def _steps(column: Column, edges: list[float], points: list[int]) -> list[str]:
    """Return cases that give a number the points that belong to the first edge above it."""
    cell = _cell(column)
    pairs = zip(edges, points, points[1:], strict=False)
    cases = [f"WHEN {cell} < {double(e)} THEN {p}" for e, p, following in pairs if p != following]
    return [*cases, f"ELSE {points[-1]}"]


def _first_float(bound: Fraction) -> float:
    """Return the smallest double whose printed decimal value is at least a bound."""
    value = float(bound)
    while Fraction(repr(value)) >= bound:
        value = math.nextafter(value, -math.inf)
    while Fraction(repr(value)) < bound:
        value = math.nextafter(value, math.inf)
    return value


def as_double(expression: str) -> str:
    """Cast to double precision, because PostgreSQL takes literals and their sums as decimals."""
    return f"CAST({expression} AS DOUBLE PRECISION)"


def double(value: float) -> str:
    """Write a number with an exponent, so that databases treat it as a 64-bit float, not as a decimal.

    SQLite rounds decimals of many digits twice. All databases read a decimal correctly if it is an integer of
    up to 15 digits divided by a power of ten up to 10^22, as floats hold both exactly. Other floats are
    written as an integer times or divided by powers of two.
    """
    _, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    if len(digits) <= _SHORT and isinstance(exponent, int) and -22 <= exponent <= _SHORT - len(digits):
        text = repr(float(value))
        return text if "e" in text else f"{text}e0"
    numerator, denominator = float(value).as_integer_ratio()
    zeros = (numerator & -numerator).bit_length() - 1
    power = zeros - (denominator.bit_length() - 1)
    found = as_double(str(numerator >> zeros))
    while power:
        step = min(abs(power), 62)
        found += f" {'*' if power > 0 else '/'} {1 << step}"
        power -= step if power > 0 else -step
    return f"({found})"

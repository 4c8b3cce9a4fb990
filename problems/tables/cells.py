"""Parsing of cells: each cell by itself is a number, a text, a missing value, or unreadable.

Every table in memory is parsed by this module, whatever library holds it. SQL engines apply the same rules
in their queries.

In a numeric column, a cell is a number if it is numeric (booleans count as 0 and 1) or if it is the text of a
number: digits with an optional sign, decimal point and exponent, or ``inf``, ``infinity``, ``true`` or
``false`` in upper or lower case. Surrounding blanks are ignored. The value is the nearest 64-bit float;
numbers too large for one are infinite, hence outside the bounds of their column: clipped or refused
(``Number.coded``). A cell is missing if it is None, NaN, NA or NaT, or the text of a
missing-value marker. Any other cell is unreadable.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Positions of cells that match no declared level.
UNDECLARED, MISSING, UNREADABLE = -1, -2, -3

BLANKS = " \t\n\r\v\f"
# Missing-value markers of numeric columns, in lower case.
USUAL_MARKERS = frozenset(
    [
        "", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "+nan", "-nan", "null", "none", "nat",
        "missing", "?", "-", "--", ".",
    ]
)  # fmt: skip
_WORDS = {"true": 1.0, "false": 0.0}
_WORDS |= {sign + word: math.inf for sign in ("", "+") for word in ("inf", "infinity")}
_WORDS |= {"-inf": -math.inf, "-infinity": -math.inf}
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Arrow and Python convert these texts to the same floats; they neither overflow nor underflow.
_USUAL_NUMBER = r"^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$"
ABSENT = (type(None), type(pd.NA), type(pd.NaT))
_REAL = (numbers.Real, Decimal, np.bool_)


@dataclass(frozen=True)
class Markers:
    """Missing-value markers that a column declares in addition to the usual ones.

    Attributes:
        texts: the exact texts, for text columns.
        words: the texts in lower case without surrounding blanks, for numeric columns.
        numbers: the markers that are numbers or the text of one.
    """

    texts: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()

    @classmethod
    def of(cls, declared: Iterable[str | float], levels: Iterable[object] = ()) -> Self:
        """Return the markers that a schema lists, except those that are ``levels`` of the column."""
        left = [marker for marker in declared if marker not in set(levels)]
        texts = frozenset(marker for marker in left if isinstance(marker, str))
        values = [number_in(m) if isinstance(m, str) else float(m) for m in left]
        known = set(levels)
        found = frozenset(v for v in values if v is not None and not math.isnan(v) and v not in known)
        return cls(texts, frozenset(map(_word, texts)), found)


NO_MARKERS = Markers()


class Numbers(NamedTuple):
    """The parsed cells of a numeric column.

    Attributes:
        values: float64, shape (n,); infinite if too large, NaN where a cell is missing or unreadable.
        unreadable: boolean, shape (n,); true for cells that are neither a number nor missing.
    """

    values: NDArray[np.float64]
    unreadable: NDArray[np.bool_]


def _word(text: str) -> str:
    return text.strip(BLANKS).lower()


def number_in(text: str) -> float | None:
    """Parse a text: its number, NaN for a usual missing-value marker, None for any other text."""
    stripped = text.strip(BLANKS)
    if NUMBER.fullmatch(stripped):
        return float(stripped)
    word = stripped.lower()
    return math.nan if word in USUAL_MARKERS else _WORDS.get(word)


def is_marker(text: str, markers: Markers) -> bool:
    """Return whether a text is a missing-value marker: a usual one, or one that a column declares."""
    return is_usual_marker(text) or _word(text) in markers.words


def is_usual_marker(text: str) -> bool:
    """Return whether a text is a usual missing-value marker."""
    return _word(text) in USUAL_MARKERS


def read_numbers(values: Any, markers: Markers = NO_MARKERS) -> Numbers:
    """Parse the cells of a column as numbers, by the rules of this module.

    Args:
        values: a NumPy array of shape (n,), or an Arrow array of text.
        markers: missing-value markers in addition to the usual ones.
    """
    found = _numbers(values, markers)
    if markers.numbers:
        coded = np.isin(found.values, np.array(sorted(markers.numbers)))
        found.values[coded] = np.nan
    return found


def _numbers(values: Any, markers: Markers) -> Numbers:
    if isinstance(values, pa.Array):
        return _written_numbers(values, markers)
    none = np.zeros(len(values), dtype=bool)
    if values.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return Numbers(values.astype(np.float64), none)
    if values.dtype.kind == "U":
        return _numbers(values.astype(object), markers)
    if values.dtype.kind != "O":
        absent = np.asarray(pd.isna(values)) if values.dtype.kind in "mM" else none
        return Numbers(np.full(len(values), np.nan), ~absent)
    return _by_type(values, markers)


def _by_type(values: NDArray[Any], markers: Markers) -> Numbers:
    """Parse Python objects, all objects of one type together."""
    found = Numbers(np.full(len(values), np.nan), np.zeros(len(values), dtype=bool))
    for reader, rows in grouped(values, _reader_of):
        part = reader(values[rows], markers)
        found.values[rows], found.unreadable[rows] = part.values, part.unreadable
    return found


def grouped(values: NDArray[Any], of: Callable[[type], Any]) -> list[tuple[Any, Any]]:
    """Group the rows of an array of objects by ``of(type)``; return pairs of its value and the rows."""
    by_type = {kind: of(kind) for kind in set(map(type, values))}
    different = list(dict.fromkeys(by_type.values()))
    if len(different) == 1:
        return [(different[0], slice(None))]
    number = {kind: different.index(what) for kind, what in by_type.items()}
    places = np.fromiter((number[type(v)] for v in values), dtype=np.int8, count=len(values))
    return [(what, places == k) for k, what in enumerate(different)]


def _reader_of(kind: type) -> Callable[[NDArray[Any], Markers], Numbers]:
    if issubclass(kind, str):
        return _read_texts
    if issubclass(kind, ABSENT):
        return _read_missing
    # NumPy's timedelta64 is a subclass of its integers, so it must not reach ``_read_reals``.
    if issubclass(kind, np.datetime64 | np.timedelta64):
        return _read_times
    return _read_reals if issubclass(kind, _REAL) else _read_unreadable


def _read_texts(values: NDArray[Any], markers: Markers) -> Numbers:
    try:
        return _written_numbers(pa.array(values, type=pa.large_string()), markers)
    except (UnicodeEncodeError, pa.ArrowException):  # lone surrogates, which Arrow cannot encode
        return _one_by_one([written_number(str.__str__(v), markers) for v in values])


def _read_reals(values: NDArray[Any], markers: Markers) -> Numbers:
    try:
        with np.errstate(all="ignore"):
            return Numbers(values.astype(np.float64), np.zeros(len(values), dtype=bool))
    except Exception:  # integers beyond floats, signalling NaN, or an error of a foreign type
        return _one_by_one([_as_float(v) for v in values])


def _read_missing(values: NDArray[Any], markers: Markers) -> Numbers:
    return Numbers(np.full(len(values), np.nan), np.zeros(len(values), dtype=bool))


def _read_times(values: NDArray[Any], markers: Markers) -> Numbers:
    """Read times and spans of time, which are no numbers; NaT is missing, as in a column of times."""
    return Numbers(np.full(len(values), np.nan), ~np.fromiter(map(np.isnat, values), bool, len(values)))


def _read_unreadable(values: NDArray[Any], markers: Markers) -> Numbers:
    return Numbers(np.full(len(values), np.nan), np.ones(len(values), dtype=bool))


def _one_by_one(found: list[float | None]) -> Numbers:
    unreadable = np.array([v is None for v in found], dtype=bool)
    return Numbers(np.array([np.nan if v is None else v for v in found], dtype=np.float64), unreadable)


def _as_float(value: Any) -> float | None:
    try:
        return math.nan if isinstance(value, Decimal) and value.is_nan() else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # a type that is registered as a number but does not convert
        return None


def written_number(text: str, markers: Markers) -> float | None:
    """Parse a text as ``number_in``; markers that a column declares are missing, too."""
    found = number_in(text)
    return math.nan if found is None and _word(text) in markers.words else found


def _written_numbers(texts: Any, markers: Markers) -> Numbers:
    """Parse an Arrow array of text: common notations by Arrow, other texts once per distinct value."""
    stripped = pc.ascii_trim_whitespace(texts)
    usual = pc.fill_null(pc.match_substring_regex(stripped, _USUAL_NUMBER), False)
    converted = pc.cast(pc.if_else(usual, stripped, pa.scalar(None, stripped.type)), pa.float64())
    values = np.array(converted.to_numpy(zero_copy_only=False), dtype=np.float64)
    unreadable = np.zeros(len(values), dtype=bool)
    rows = np.flatnonzero(np.asarray(pc.and_(pc.invert(usual), pc.is_valid(texts))))
    if len(rows):
        rest = texts.take(pa.array(rows)).dictionary_encode()
        known = _one_by_one([written_number(text, markers) for text in rest.dictionary.to_pylist()])
        place = np.asarray(rest.indices)
        values[rows], unreadable[rows] = known.values[place], known.unreadable[place]
    return Numbers(values, unreadable)


def number_positions(
    values: Any, declared: Mapping[Any, int], markers: Markers = NO_MARKERS
) -> NDArray[np.int64]:
    """Return the position of each cell among declared numbers, shape (n,).

    Cells without a position are UNDECLARED, MISSING or UNREADABLE. Declared numbers are below 2^53 in
    absolute value, where distinct integers have distinct 64-bit floats.
    """
    found = read_numbers(values, markers)
    codes, levels = pd.factorize(found.values)
    places = np.array([*(declared.get(v, UNDECLARED) for v in levels.tolist()), MISSING], dtype=np.int64)
    result = places[codes]
    result[found.unreadable] = UNREADABLE
    return result


def text_positions(
    values: Any, declared: Mapping[Any, int], markers: Markers = NO_MARKERS
) -> NDArray[np.int64]:
    """Return the position of each cell among declared texts, shape (n,).

    Cells without a position are UNDECLARED, MISSING or UNREADABLE. Texts are compared exactly. Numbers and
    other objects are unreadable.
    """
    if isinstance(values, pa.Array):
        encoded = pc.dictionary_encode(values)
        texts = encoded.dictionary.to_pylist()
        return _looked_up(np.asarray(pc.fill_null(encoded.indices, -1)), texts, declared, markers)
    if values.dtype.kind == "U":
        values = values.astype(object)
    if values.dtype.kind != "O":
        absent = pd.isna(values) if values.dtype.kind in "fmMc" else np.zeros(len(values), dtype=bool)
        return np.where(absent, MISSING, UNREADABLE).astype(np.int64)
    result = np.full(len(values), UNREADABLE, dtype=np.int64)
    for reader, rows in grouped(values, _reader_of):
        part = values[rows]
        if reader is _read_texts:
            codes, texts = distinct_texts(part)
            result[rows] = _looked_up(codes, texts, declared, markers)
        elif reader is not _read_unreadable:
            found = reader(part, markers)
            missing = np.isnan(found.values) & ~found.unreadable
            result[rows] = np.where(missing, MISSING, UNREADABLE)
    return result


def distinct_texts(texts: NDArray[Any]) -> tuple[NDArray[Any], list[str]]:
    """Return texts as codes into the distinct ones.

    pandas is not used for this, as its version 2.2 ends a text at its first null character. Instances of
    subclasses of str are read as plain text: no method of the subclass, such as its hash, is called.
    """
    try:
        encoded = pa.array(texts, type=pa.large_string()).dictionary_encode()
    except (UnicodeEncodeError, pa.ArrowException):  # lone surrogates, which Arrow cannot encode
        levels: dict[str, int] = {}
        codes = [levels.setdefault(str.__str__(text), len(levels)) for text in texts]
        return np.array(codes, dtype=np.int64), list(levels)
    return np.asarray(encoded.indices), encoded.dictionary.to_pylist()


def _looked_up(
    codes: NDArray[np.intp], texts: Iterable[str], declared: Mapping[Any, int], markers: Markers
) -> NDArray[np.int64]:
    """Return the positions of texts, given as codes into the distinct texts; code -1 is missing."""
    places = [declared.get(t, MISSING if t in markers.texts else UNDECLARED) for t in texts]
    return np.array([*places, MISSING], dtype=np.int64)[codes]

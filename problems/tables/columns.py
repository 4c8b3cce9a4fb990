"""Column kinds of a ``Schema``: encoding of one column of a table as features, from public declarations.

A value is encoded as a *code*, one of finitely many public integers, and a code as features. Records with
equal codes have equal features, so they can be counted, here or by the SQL engine that holds them.

In declarations and in data, a float means the decimal number that it prints as: 0.1 is one tenth.
Declarations also accept strings such as "1/3". Data are 64-bit floats: integers beyond 2**53 are rounded.
"""

from __future__ import annotations

import itertools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import told
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import SchemaError, did_you_mean
from privopt.problems.tables.cells import (
    MISSING,
    UNREADABLE,
    Markers,
    Numbers,
    number_positions,
    read_numbers,
    text_positions,
)
from privopt.problems.tables.notation import Notation
from privopt.problems.tables.values import (
    FEATURE_LIMIT,
    Real,
    Refused,
    check_exact,
    plain,
    rational,
    refusal,
)

_DIGITS = 15  # different decimals of up to this many digits have different doubles


class Column(ABC):
    """One declared column: its name in the table and the features that it becomes."""

    name: str

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature."""

    @property
    @abstractmethod
    def levels(self) -> tuple[str, ...]:
        """A description of each feature's level, to print in a scorecard."""

    @property
    def denominator(self) -> int:
        """The least common denominator of all values that the features can take."""
        return 1

    @property
    def reach(self) -> Fraction:
        """The largest absolute value that a feature can take."""
        return Fraction(1)

    @property
    def middle(self) -> tuple[Fraction, ...]:
        """A public centre of the features: for k >= 2 levels the point (1/k, ..., 1/k), for one level 1/2."""
        return (Fraction(1, max(2, len(self.feature_names))),) * len(self.feature_names)

    @property
    def squared_spread(self) -> Fraction:
        """The largest squared l2 distance of a record's features from ``middle``.

        For k >= 2 levels it is 1 - 1/k, attained by records with one of the levels; records with none have
        1/k, which is no larger.
        """
        levels = len(self.feature_names)
        return Fraction(1, 4) if levels == 1 else 1 - Fraction(1, levels)

    @property
    @abstractmethod
    def n_codes(self) -> int:
        """The number of codes."""

    @property
    def gap(self) -> int | None:
        """The code of missing values; None if missing values are refused."""
        return None

    def code(self, values: Any) -> IntArray:
        """Encode ``values`` as codes from 0 to ``n_codes`` - 1, shape (n,), each cell by itself.

        Args:
            values: a NumPy array, or an Arrow array of text.

        Raises:
            SchemaError: a value that the declaration refuses.
        """
        return self.coded(values, self.gap)

    @abstractmethod
    def coded(self, values: Any, gap: int | None) -> IntArray:
        """Encode ``values`` as ``code`` does, with the code ``gap`` for missing values."""

    @abstractmethod
    def write(self, codes: IntArray, out: IntArray, denominator: int) -> None:
        """Write the features of ``codes``, (n,), times ``denominator``, to the zero array ``out``, (n, k)."""

    @abstractmethod
    def refusal(self, reason: Refused) -> SchemaError:
        """Build the error for a value that the declaration refuses."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain numbers, strings and lists."""


class Number(Column):
    """A numeric column, whose codes are intervals between thresholds."""

    outside: Literal["clip", "refuse"]
    missing: Fraction | None
    na_values: tuple[str | float, ...]
    notation: Notation

    @property
    @abstractmethod
    def bounds(self) -> tuple[Fraction, Fraction]:
        """The bounds (low, high); values outside are clipped or refused."""

    @abstractmethod
    def cuts(self) -> tuple[int, list[float]]:
        """Return (k, thresholds); the code of a 64-bit float is k plus the number of thresholds <= it."""

    @abstractmethod
    def _cell_codes(self, x: NDArray[np.float64]) -> IntArray:
        """Return the codes of numbers within the bounds."""

    @cached_property
    def markers(self) -> Markers:
        written = (self.notation.rewritten(m) for m in self.na_values if isinstance(m, str))
        return Markers.of([*self.na_values, *written])

    def read(self, values: Any) -> Numbers:
        """Convert cells to numbers, each by itself."""
        return read_numbers(self.notation.usual(values), self.markers)

    @property
    def gap(self) -> int | None:
        return None if self.missing is None else int(self._cell_codes(np.array([float(self.missing)]))[0])

    def coded(self, values: Any, gap: int | None) -> IntArray:
        """Encode numbers; those outside the bounds are clipped or refused, unreadable cells are missing."""
        found = self.read(values)
        low, high = map(float, self.bounds)
        missing = np.isnan(found.values)
        if gap is None and bool(np.any(missing)):
            raise self.refusal(Refused.KIND if bool(np.any(found.unreadable)) else Refused.MISSING)
        outside = (found.values < low) | (found.values > high)
        if self.outside == "refuse" and bool(np.any(outside)):
            raise self.refusal(Refused.OUTSIDE)
        codes = self._cell_codes(np.clip(np.where(missing, low, found.values), low, high))
        return codes if gap is None else np.where(missing, gap, codes)

    def refusal(self, reason: Refused) -> SchemaError:
        if reason is not Refused.OUTSIDE:
            return refusal(f"column {self.name!r}", reason)
        low, high = self.bounds
        return SchemaError(
            f"column {self.name!r}: values must lie in [{_text(low)}, {_text(high)}]; "
            f"correct them, or declare outside='clip'"
        )


@dataclass(frozen=True)
class Numeric(Number):
    """A numeric feature: values are clipped to [low, high], rounded to a grid, and mapped affinely.

    The grid is low, low + step, ..., up to high. A value is rounded to the nearest grid point, ties upwards.
    The feature is (grid point - zero) / (one - zero), exactly.

    Args:
        name: the column.
        low, high: public bounds.
        step: distance of grid points; it determines the size of the common denominator.
        zero, one: the values that are mapped to 0 and 1; default low and high.
        outside: treatment of values outside [low, high]: "clip" moves them to the bound, "refuse" raises.
            Infinite numbers are outside.
        missing: the number that replaces a cell that is missing (empty, NaN, None, a marker) or is not a
            number; None refuses such cells.
        na_values: missing-value markers in addition to the usual ones ("NA", "?", ...): texts, and numbers
            like -999.
        decimal, thousands, symbols, words: how text writes numbers: "1.234,5 EUR" with ",", "." and ["EUR"];
            ``words`` maps texts to numbers, {"none": 0}. See ``Notation``.

    Raises:
        SchemaError: low >= high, step <= 0 or above high - low, zero == one, missing outside the bounds, or
            a number beyond 64 bits.
    """

    name: str
    low: Fraction
    high: Fraction
    step: Fraction
    zero: Fraction
    one: Fraction
    outside: Literal["clip", "refuse"]
    missing: Fraction | None
    na_values: tuple[str | float, ...]
    notation: Notation

    def __init__(
        self,
        name: str,
        low: Real,
        high: Real,
        step: Real = 1,
        zero: Real | None = None,
        one: Real | None = None,
        outside: Literal["clip", "refuse"] = "clip",
        missing: Real | None = None,
        na_values: Sequence[str | float] = (),
        decimal: str = ".",
        thousands: str | None = None,
        symbols: Sequence[str] = (),
        words: Mapping[str, Real] | None = None,
    ) -> None:
        check_declaration(self, name, outside, ("clip", "refuse"), na_values)
        object.__setattr__(self, "notation", Notation.of(name, decimal, thousands, symbols, words))
        given = {"low": low, "high": high, "step": step}
        given |= {"zero": low if zero is None else zero, "one": high if one is None else one}
        for key, value in given.items():
            object.__setattr__(self, key, rational(value, name, key))
        self._check_grid()
        object.__setattr__(self, "missing", _declared_missing(missing, name, self.low, self.high))

    def _check_grid(self) -> None:
        """Raise SchemaError unless bounds, step, zero and one make a grid."""
        if not float(self.low) < float(self.high):
            raise SchemaError(
                f"column {self.name!r}: low must be below high, as 64-bit floats; "
                f"got low = {_text(self.low)}, high = {_text(self.high)}"
            )
        if not 0 < self.step <= self.high - self.low or float(self.step) < sys.float_info.min:
            raise SchemaError(
                f"column {self.name!r}: step must be above 0 and at most high - low = "
                f"{_text(self.high - self.low)}; got {_text(self.step)}"
            )
        if self.zero == self.one:
            raise SchemaError(
                f"column {self.name!r}: zero and one must differ; both are {_text(self.zero)} "
                f"(their defaults are low and high)"
            )
        if self.top >= FEATURE_LIMIT:
            raise SchemaError(
                f"column {self.name!r}: step = {_text(self.step)} is too fine for its bounds: "
                f"more than 2^53 grid points"
            )

    @property
    def top(self) -> int:
        """The index of the last grid point; the first has index 0."""
        return int((self.high - self.low) // self.step)

    @property
    def _map(self) -> tuple[Fraction, Fraction]:
        """The affine map (a, b): the k-th grid point has the feature a + k b."""
        return (self.low - self.zero) / (self.one - self.zero), self.step / (self.one - self.zero)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def levels(self) -> tuple[str, ...]:
        return (f"in proportion: none at {_text(self.zero)}, all at {_text(self.one)}",)

    @property
    def denominator(self) -> int:
        return math.lcm(*(q.denominator for q in self._map))

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The features of the first and of the last grid point."""
        a, b = self._map
        return a, a + self.top * b

    @property
    def reach(self) -> Fraction:
        return max(map(abs, self.ends))

    @property
    def middle(self) -> tuple[Fraction, ...]:
        a, b = self._map
        return (a + self.top * b / 2,)

    @property
    def squared_spread(self) -> Fraction:
        return (self.top * self._map[1] / 2) ** 2

    @property
    def n_codes(self) -> int:
        return self.top + 1

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        return self.low, self.high

    def _cell_codes(self, x: NDArray[np.float64]) -> IntArray:
        return self._grid_points(x)

    def write(self, codes: IntArray, out: IntArray, denominator: int) -> None:
        a, b = (int(q * denominator) for q in self._map)
        out[:, 0] = a + b * codes

    def cuts(self) -> tuple[int, list[float]]:
        found = self._thresholds()
        low, high = float(self.low), float(self.high)
        return sum(t <= low for t in found), [t for t in found if low < t <= high]

    def binned(self, edges: Sequence[Real]) -> Binned:
        """Return the column in bins; its cells are read as before."""
        notation = self.notation.to_dict()
        return Binned(self.name, edges, self.outside, self.missing, self.na_values, **notation)

    def threshold(self, k: int) -> float:
        """Return the smallest 64-bit float that is rounded to the k-th grid point or a higher one."""
        border = self.low + (k - Fraction(1, 2)) * self.step
        t = float(border)
        while Fraction(repr(t)) >= border:
            t = math.nextafter(t, -math.inf)
        while Fraction(repr(t)) < border:
            t = math.nextafter(t, math.inf)
        return t

    def _thresholds(self) -> list[float]:
        """Return ``threshold`` of all grid points but the first.

        The nearest double of a decimal of up to 15 digits prints as this decimal, and a division of doubles
        yields the nearest double. So no threshold of such a grid has to be searched for.
        """
        first, last = (self.low + (k - Fraction(1, 2)) * self.step for k in (1, self.top))
        d = math.lcm(first.denominator, self.step.denominator)
        unit = next((10**places for places in range(_DIGITS) if 10**places % d == 0), None)
        if unit is None or max(abs(first), abs(last)) * unit >= 10**_DIGITS:
            return [self.threshold(k) for k in range(1, self.top + 1)]
        found: list[float] = (
            (int(first * unit) + int(self.step * unit) * np.arange(self.top)) / unit
        ).tolist()
        return found

    def _grid_points(self, x: NDArray[np.float64]) -> IntArray:
        """Return the exact indices of the nearest grid points, for x within the bounds."""
        scaled, offset = x / float(self.step), float(self.low / self.step)
        position = scaled - offset + 0.5
        k = np.floor(position)
        # Positions so near an integer that rounding errors could cross it are recomputed exactly.
        doubt = np.abs(position - np.rint(position)) <= 2.0**-49 * (np.abs(scaled) + abs(offset) + 1)
        unique, inverse = np.unique(x[doubt], return_inverse=True)
        k[doubt] = np.array([self._nearest(v) for v in unique.tolist()], dtype=np.float64)[inverse]
        return np.clip(k, 0, self.top).astype(np.int64)

    def _nearest(self, value: float) -> int:
        return math.floor((Fraction(repr(value)) - self.low) / self.step + Fraction(1, 2))

    def to_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {"kind": "numeric", "name": self.name}
        result |= {"low": plain(self.low), "high": plain(self.high), "step": plain(self.step)}
        if self.zero != self.low:
            result["zero"] = plain(self.zero)
        if self.one != self.high:
            result["one"] = plain(self.one)
        result["outside"] = self.outside
        return result | _plain_missing(self.missing) | plain_markers(self.na_values) | self.notation.to_dict()


@dataclass(frozen=True)
class Categorical(Column):
    """One-hot encoding of a declared list of categories: one 0/1 feature for each.

    A list with one category and ``outside="ignore"`` gives a single 0/1 feature.

    Args:
        name: the column.
        categories: all text, or all integers (below 2^53 in absolute value) or booleans; distinct.
        outside: "refuse" raises at an undeclared value, "ignore" sets all of its features to 0.
        missing: the category that replaces a missing value (empty, NaN, None); None refuses missing values.
            With ``outside="ignore"`` it may be an undeclared category.
        na_values: missing-value markers, compared exactly; a declared category is never a marker. For
            categories that are numbers, the usual markers apply too.

    Raises:
        SchemaError: no categories, repeated ones, mixed or unsuitable types, or ``missing`` not among them.
    """

    name: str
    categories: tuple[str | int, ...]
    outside: Literal["refuse", "ignore"]
    missing: str | int | None
    na_values: tuple[str | float, ...]

    def __init__(
        self,
        name: str,
        categories: Sequence[str | int],
        outside: Literal["refuse", "ignore"] = "refuse",
        missing: str | int | None = None,
        na_values: Sequence[str | float] = (),
    ) -> None:
        check_declaration(self, name, outside, ("refuse", "ignore"), na_values)
        if isinstance(categories, str | bytes) or not isinstance(categories, Sequence) or not categories:
            raise SchemaError(f"column {name!r}: categories must be a list with at least one entry")
        if not any(all(isinstance(c, kind) for c in categories) for kind in (str, int)):
            raise SchemaError(f"column {name!r}: categories must be all text, or all integers or booleans")
        check_exact(f"column {name!r}", (*categories, missing))
        if len(set(categories)) < len(categories):
            twice = [c for i, c in enumerate(categories) if c in categories[:i]]
            raise SchemaError(f"column {name!r}: categories must be distinct; {twice[0]!r} occurs twice")
        if missing is not None and not isinstance(missing, str if isinstance(categories[0], str) else int):
            raise SchemaError(f"column {name!r}: missing must be of the type of the categories")
        if missing is not None and outside == "refuse" and missing not in categories:
            raise SchemaError(
                f"column {name!r}: missing = {missing!r} is not among the categories; "
                f"add it, or declare outside='ignore'"
            )
        object.__setattr__(self, "categories", tuple(categories))
        object.__setattr__(self, "missing", missing)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={c}" for c in self.categories)

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(map(str, self.categories))

    @cached_property
    def _index(self) -> dict[str | int, int]:
        return {c: i for i, c in enumerate(self.categories)}

    @property
    def n_codes(self) -> int:
        return len(self.categories) + (self.outside == "ignore")

    @cached_property
    def markers(self) -> Markers:
        return Markers.of(self.na_values, self.categories)

    @property
    def gap(self) -> int | None:
        return None if self.missing is None else self._index.get(self.missing, len(self.categories))

    def positions(self, values: Any) -> IntArray:
        """Return the position of each cell among the categories, or UNDECLARED, MISSING or UNREADABLE."""
        read = text_positions if isinstance(self.categories[0], str) else number_positions
        return read(values, self._index, self.markers)

    def coded(self, values: Any, gap: int | None) -> IntArray:
        """Encode categories; a value of another type than theirs is an undeclared category."""
        found = self.positions(values)
        missing = found == MISSING
        if gap is None and bool(np.any(missing)):
            raise self.refusal(Refused.MISSING)
        if self.outside == "refuse" and bool(np.any((found < 0) & ~missing)):
            raise self.refusal(Refused.KIND if bool(np.any(found == UNREADABLE)) else Refused.OUTSIDE)
        codes = np.where(found < 0, len(self.categories), found)
        return codes if gap is None else np.where(missing, gap, codes)

    def write(self, codes: IntArray, out: IntArray, denominator: int) -> None:
        rows = np.flatnonzero(codes < len(self.categories))
        out[rows, codes[rows]] = denominator

    def refusal(self, reason: Refused) -> SchemaError:
        if reason is not Refused.OUTSIDE:
            return refusal(f"column {self.name!r}", reason, categories=True)
        return SchemaError(
            f"column {self.name!r}: holds a category that is not declared; "
            f"add it to the categories, or declare outside='ignore'"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "categorical",
            "name": self.name,
            "categories": list(self.categories),
            "outside": self.outside,
            **({} if self.missing is None else {"missing": self.missing}),
            **plain_markers(self.na_values),
        }


@dataclass(frozen=True)
class Binned(Number):
    """One-hot encoding of a number by the bins between declared edges: one 0/1 feature for each.

    Bins are half-open, [e0, e1), [e1, e2), ..., except the last one, which includes its right edge. Values
    and edges are compared as 64-bit floats.

    Args:
        name: the column.
        edges: at least two, increasing.
        outside: "clip" puts a value outside the edges into the first or the last bin, "refuse" raises.
            Infinite numbers are outside.
        missing: the number that replaces a cell that is missing (empty, NaN, None, a marker) or is not a
            number; None refuses such cells.
        na_values: missing-value markers in addition to the usual ones ("NA", "?", ...): texts, and numbers
            like -999.
        decimal, thousands, symbols, words: how text writes numbers: "1.234,5 EUR" with ",", "." and ["EUR"];
            ``words`` maps texts to numbers, {"none": 0}. See ``Notation``.

    Raises:
        SchemaError: fewer than two edges, edges that do not increase, or ``missing`` outside them.
    """

    name: str
    edges: tuple[Fraction, ...]
    outside: Literal["clip", "refuse"]
    missing: Fraction | None
    na_values: tuple[str | float, ...]
    notation: Notation

    def __init__(
        self,
        name: str,
        edges: Sequence[Real],
        outside: Literal["clip", "refuse"] = "clip",
        missing: Real | None = None,
        na_values: Sequence[str | float] = (),
        decimal: str = ".",
        thousands: str | None = None,
        symbols: Sequence[str] = (),
        words: Mapping[str, Real] | None = None,
    ) -> None:
        check_declaration(self, name, outside, ("clip", "refuse"), na_values)
        object.__setattr__(self, "notation", Notation.of(name, decimal, thousands, symbols, words))
        if isinstance(edges, str) or not isinstance(edges, Sequence) or len(edges) < 2:
            raise SchemaError(f"column {name!r}: edges must be a list of at least two numbers")
        object.__setattr__(self, "edges", tuple(rational(e, name, "edges") for e in edges))
        rising = np.asarray(self._floats[:-1]) < np.asarray(self._floats[1:])  # differences may overflow
        if not bool(np.all(rising)):
            k = int(np.argmin(rising))
            raise SchemaError(
                f"column {name!r}: edges must increase, as 64-bit floats; "
                f"got {_text(self.edges[k])} before {_text(self.edges[k + 1])}"
            )
        found = _declared_missing(missing, name, self.edges[0], self.edges[-1])
        object.__setattr__(self, "missing", found)

    @property
    def _floats(self) -> NDArray[np.float64]:
        return np.array([float(e) for e in self.edges])

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} in {level}" for level in self.levels)

    @property
    def is_ordered(self) -> bool:
        """Whether points can be asked to rise or fall with the bins."""
        return True

    @property
    def edge_texts(self) -> tuple[str, ...]:
        """The edges as they are printed."""
        return tuple(_text(e) for e in self.edges)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        texts = self.edge_texts
        closing = [")"] * (len(texts) - 2) + ["]"]
        pairs = zip(texts[:-1], texts[1:], closing, strict=True)
        return tuple(f"[{a}, {b}{end}" for a, b, end in pairs)

    @property
    def words(self) -> tuple[str, ...]:
        """The bins in words, for cards. Outer bins have one edge only where values beyond are clipped."""
        return self._in_words("below {}", "{} to below {}", "{} or more")

    def _in_words(self, first: str, between: str, last: str) -> tuple[str, ...]:
        texts = self.edge_texts
        names = [between.format(low, high) for low, high in itertools.pairwise(texts)]
        names[-1] = f"{texts[-2]} to {texts[-1]}"
        if self.outside == "clip" and len(names) > 1:
            names[0], names[-1] = first.format(texts[1]), last.format(texts[-2])
        return tuple(names) if len(names) > 1 or self.outside == "refuse" else ("any",)

    @property
    def n_codes(self) -> int:
        return len(self.edges) - 1

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        return self.edges[0], self.edges[-1]

    def _cell_codes(self, x: NDArray[np.float64]) -> IntArray:
        return np.searchsorted(self._floats[1:-1], x, side="right").astype(np.int64)

    def write(self, codes: IntArray, out: IntArray, denominator: int) -> None:
        out[np.arange(len(codes)), codes] = denominator

    def cuts(self) -> tuple[int, list[float]]:
        return 0, self._floats[1:-1].tolist()

    def to_dict(self) -> dict[str, Any]:
        edges = [plain(e) for e in self.edges]
        found = {"kind": "binned", "name": self.name, "edges": edges, "outside": self.outside}
        return found | _plain_missing(self.missing) | plain_markers(self.na_values) | self.notation.to_dict()


def _text(q: Fraction) -> str:
    return str(plain(q))


def _declared_missing(value: Real | None, name: str, low: Fraction, high: Fraction) -> Fraction | None:
    if value is None:
        return None
    found = rational(value, name, "missing")
    if not low <= found <= high:
        raise SchemaError(
            f"column {name!r}: missing must lie in [{_text(low)}, {_text(high)}]; got {_text(found)}"
        )
    return found


def _plain_missing(value: Fraction | None) -> dict[str, Any]:
    return {} if value is None else {"missing": plain(value)}


def check_declaration(
    column: Column, name: str, outside: str, allowed: tuple[str, ...], na_values: Sequence[str | float]
) -> None:
    """Check and set the fields common to all columns, which are frozen dataclasses."""
    if not isinstance(name, str) or not name:
        raise SchemaError("every column needs a name: a string that is not empty")
    if not isinstance(outside, str) or outside not in allowed:
        raise SchemaError(
            f"column {name!r}: outside must be {' or '.join(map(repr, allowed))}; "
            f"got {told(outside)}{did_you_mean(outside, allowed)}"
        )
    is_list = isinstance(na_values, Sequence) and not isinstance(na_values, str)
    if not is_list or not all(map(_is_marker, na_values)):
        raise SchemaError(
            f"column {name!r}: na_values must be a list of missing-value markers, texts or finite numbers"
        )
    object.__setattr__(column, "name", name)
    object.__setattr__(column, "outside", outside)
    object.__setattr__(column, "na_values", tuple(na_values))


def _is_marker(value: object) -> bool:
    if isinstance(value, str):
        return True
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < FEATURE_LIMIT
    return whole or (isinstance(value, float) and math.isfinite(value))


def plain_markers(na_values: tuple[str | float, ...]) -> dict[str, Any]:
    return {"na_values": list(na_values)} if na_values else {}

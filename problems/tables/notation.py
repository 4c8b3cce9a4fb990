"""Notation of numbers in text, as a column declares it: each cell is rewritten by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privopt.problems.arguments import told
from privopt.problems.errors import SchemaError
from privopt.problems.tables.cells import BLANKS, NUMBER, distinct_texts, grouped
from privopt.problems.tables.values import Real, plain, rational

KEYS = ("decimal", "thousands", "symbols", "words")
# Blanks that do not break a line, which texts may have between digits and before units.
_FIXED = "\u00a0\u202f"
# Neither a number nor a missing-value marker.
_NO_NUMBER = "no number"


@dataclass(frozen=True)
class Notation:
    """Notation of the numbers in a column of text, where it differs from 1234.5.

    Attributes:
        decimal: the decimal mark, "." or ",".
        thousands: the mark between groups of three digits, None for none; a blank includes non-breaking ones.
        symbols: units and currencies before or after a number, which are not read: "%", "EUR".
        words: texts in lower case that mean numbers ("yes": 1), even if they are missing-value markers.
    """

    decimal: str = "."
    thousands: str | None = None
    symbols: tuple[str, ...] = ()
    words: tuple[tuple[str, Fraction], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        decimal: str,
        thousands: str | None,
        symbols: Sequence[str],
        words: Mapping[str, Real] | None,
    ) -> Self:
        """Check the declaration of column ``name``.

        Raises:
            SchemaError: marks that are not allowed or equal, or symbols or words of a wrong type.
        """
        where = f"column {name!r}"
        if decimal not in (".", ","):
            raise SchemaError(f"{where}: decimal must be '.' or ','; got {told(decimal)}")
        is_mark = isinstance(thousands, str) and re.fullmatch(r"[^0-9A-Za-z+\-]", thousands)
        if thousands is not None and (not is_mark or thousands == decimal):
            raise SchemaError(
                f"{where}: thousands must be one character, no digit or letter, other than decimal = "
                f"{decimal!r}; got {told(thousands)}"
            )
        is_list = isinstance(symbols, Sequence) and not isinstance(symbols, str)
        if not is_list or not all(isinstance(s, str) and s.strip() and not _has_digit(s) for s in symbols):
            raise SchemaError(f"{where}: symbols must be a list of texts without digits, as in ['%', 'EUR']")
        if words is not None and not isinstance(words, Mapping):
            raise SchemaError(f"{where}: words must map texts to numbers, as in {{yes = 1, no = 0}}")
        numbers = {
            str(word).strip(BLANKS).lower(): rational(value, name, f"words: {word!r}")
            for word, value in (words or {}).items()
        }
        return cls(decimal, thousands, tuple(s.strip() for s in symbols), tuple(numbers.items()))

    def usual(self, values: Any) -> Any:
        """Rewrite the text cells of a column, a NumPy array or an Arrow array of text, by ``rewritten``."""
        if self == PLAIN:
            return values
        if isinstance(values, pa.Array):
            encoded = pc.dictionary_encode(values)
            texts = [self.rewritten(text) for text in encoded.dictionary.to_pylist()]
            return pa.array(texts, type=pa.large_string()).take(encoded.indices)
        if values.dtype.kind == "U":
            values = values.astype(object)
        if values.dtype.kind != "O":
            return values
        result = values.copy()
        for is_text, rows in grouped(values, lambda kind: issubclass(kind, str)):
            if is_text:
                codes, texts = distinct_texts(values[rows])
                result[rows] = np.array([*map(self.rewritten, texts), None], dtype=object)[codes]
        return result

    def rewritten(self, text: str) -> str:
        """Return a number in the usual notation; any other text without surrounding blanks.

        A text that is a number in the usual notation but not in this one becomes ``_NO_NUMBER``.
        """
        stripped = text.strip(BLANKS)
        if (value := self._known.get(stripped.lower())) is not None:
            return repr(float(value))
        found = self._pattern.fullmatch(self._without_symbols(stripped))
        if found is not None:
            whole = re.sub("[^0-9]", "", found["whole"])
            fraction = "" if found["fraction"] is None else f".{found['fraction']}"
            return f"{found['sign'] or ''}{whole}{fraction}{found['power'] or ''}"
        return _NO_NUMBER if NUMBER.fullmatch(stripped) else stripped

    @cached_property
    def _known(self) -> dict[str, Fraction]:
        return dict(self.words)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        mark = re.escape(self.thousands or "")
        if self.thousands == " ":
            mark = f"[ {_FIXED}]"
        groups = f"|[0-9]{{1,3}}({mark}[0-9]{{3}})+" if mark else ""
        return re.compile(
            f"(?P<sign>[+-])?(?P<whole>[0-9]+{groups}|(?={re.escape(self.decimal)}[0-9]))"
            f"({re.escape(self.decimal)}(?P<fraction>[0-9]*))?(?P<power>[eE][+-]?[0-9]+)?"
        )

    def _without_symbols(self, text: str) -> str:
        """Remove a symbol before and one after a number; a sign before the symbol stays."""
        if not self.symbols:
            return text
        sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
        longest = sorted(self.symbols, key=len, reverse=True)
        rest = _stripped(rest)
        before = next((s for s in longest if rest.startswith(s)), "")
        rest = _stripped(rest[len(before) :])
        after = next((s for s in longest if rest.endswith(s)), "")
        return sign + _stripped(rest[: len(rest) - len(after)])

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of a schema file that are not the default."""
        found: dict[str, Any] = {} if self.decimal == "." else {"decimal": self.decimal}
        found |= {} if self.thousands is None else {"thousands": self.thousands}
        found |= {"symbols": list(self.symbols)} if self.symbols else {}
        return found | ({"words": {w: plain(q) for w, q in self.words}} if self.words else {})


PLAIN = Notation()


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _stripped(text: str) -> str:
    return text.strip(BLANKS + _FIXED)

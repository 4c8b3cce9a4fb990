"""Types of columns for learning a schema: declared, or by a private vote of the cells."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.accounting import pure_to_gdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.cuts import ARITHMETIC_SHARE, ENOUGH, strength_of
from privopt.oracles.draw.interface import race
from privopt.problems.tables.cells import NUMBER, Markers, read_numbers
from privopt.problems.tables.counted_cells import CountedCells
from privopt.problems.tables.days import day_parser, read_days
from privopt.problems.tables.notation import PLAIN, Notation


class ColumnType(StrEnum):
    """Types of columns: all but ``VOTE`` are declared, as public facts."""

    NUMBER = "number"
    WHOLE = "whole"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    RANGE = "range"
    VOTE = "vote"


class Candidate(NamedTuple):
    """A type that a vote may find, with the format of dates (None: YYYY-MM-DD) or the notation of numbers."""

    type: ColumnType
    format: str | None = None
    notation: Notation = PLAIN


# How texts write dates and numbers, in the vote: 1,234.5 before 1.234,5 and 1 234,5 and 1'234.5.
FORMATS = (None, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_SYMBOLS = ("%", "€", "$", "£", "EUR", "USD", "GBP", "CHF")
NOTATIONS = tuple(Notation(*marks, _SYMBOLS) for marks in ((".", ","), (",", "."), (",", " "), (".", "'")))
CANDIDATES = (
    Candidate(ColumnType.NUMBER),
    Candidate(ColumnType.WHOLE),
    Candidate(ColumnType.TEXT),
    *(Candidate(ColumnType.DATE, form) for form in FORMATS),
    *(Candidate(ColumnType.NUMBER, notation=notation) for notation in NOTATIONS),
)
# Votes are counted in tenths. A whole number gives a full vote to whole numbers and nine tenths of a vote to
# numbers, so whole numbers win if fewer than about a tenth of the numbers are not whole. A number in the
# usual notation gives a full vote to numbers and eight tenths of a vote to every other notation that reads
# it, so such a notation wins if more than about a sixth of the cells need it.
_ONE, _ALMOST, _TOO = 10, 9, 8
# A number with a mark of thousands does not begin with 0, but a decimal fraction may.
_ZERO_FIRST = re.compile(r"[^0-9]*0([^0-9])")


@dataclass(frozen=True)
class VotePlan:
    """Choose among ``CANDIDATES``: a candidate with v votes has the weight exp(strength v).

    Privacy: ``level``-GDP, neighbours by replacing one record, the number of records public. A cell gives
    every candidate between none and one vote, by a rule of the cell alone (``votes_of``), so the votes of a
    candidate move by at most 1 and the logarithm of its weight by at most strength: a release of bounded
    range 2 strength, like one level of the tree of ``CutPlan``, whose conversion and charge for rounding
    apply.

    Attributes:
        strength: > 0.
    """

    strength: float

    @classmethod
    def plan(cls, mu: float, n_records: int) -> Self:
        """Calibrate to mu-GDP.

        Raises:
            PrivacyParameterError: a mu for which doubles are too coarse.
        """
        return cls(strength_of(mu, n_records))

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        return pure_to_gdp(self.strength * (1 + ARITHMETIC_SHARE)) * (1 + 2.0**-50)

    @property
    def margin(self) -> int:
        """The lead in votes beyond which another candidate wins with a probability below exp(-20)."""
        return math.ceil((ENOUGH / 2 + math.log(len(CANDIDATES) - 1)) / self.strength)

    def release(self, votes: NDArray[np.int64], source: NoiseSource) -> Candidate:
        """Choose, once. Costs ``level``.

        Args:
            votes: in tenths, shape (len(CANDIDATES),).
            source: the source of noise.
        """
        # Logarithms of weights are shifted so that they lie around 0, where doubles are finest.
        return CANDIDATES[race(source, self.strength / _ONE * (votes - votes.max() / 2))]


def votes_of(held: Any, markers: Markers) -> NDArray[np.int64]:
    """Return the votes of the cells of a column for each candidate, in tenths.

    A number votes for numbers, a whole number also for whole numbers, and both vote for the notations that
    read them as the same number. A text votes for each format of dates and each notation of numbers in which
    it is written; a cell of a date type votes for the first format. Other cells vote for text; missing ones
    do not vote.

    Args:
        held: a NumPy array, an Arrow array of text, or cells with counts.
        markers: missing-value markers in addition to the usual ones.
    """
    counted = CountedCells.of(held)
    values, unreadable = read_numbers(counted.cells, markers)
    is_number = ~np.isnan(values)
    whole = counted.total(is_number & np.isfinite(values) & (values == np.rint(values)))
    numbers = _ONE * counted.total(is_number) - (_ONE - _ALMOST) * whole
    texts, others = counted.where(unreadable).apart()
    parsers = [day_parser("a column", form) for form in FORMATS]
    counts = np.array(list(texts.values()), dtype=np.int64)
    dated = np.array([[parse(text) is not None for parse in parsers] for text in texts], dtype=bool)
    written = np.array([_notation_votes(text) for text in texts], dtype=np.int64)
    dated, written = dated.reshape(-1, len(FORMATS)), written.reshape(-1, len(NOTATIONS))
    dates = counts @ dated
    stamps = others.total(~np.isnat(read_days(others.cells, parsers[0], bool).days))
    dates[0] += stamps
    alike = [_TOO * (counted.total(is_number) if n.decimal == "." else whole) for n in NOTATIONS]
    rest = int(counts[~(dated.any(axis=1) | written.any(axis=1))].sum()) + int(others.counts.sum()) - stamps
    return np.array(
        [numbers, _ONE * whole, _ONE * rest, *(_ONE * dates), *(counts @ written + alike)], dtype=np.int64
    )


def _notation_votes(text: str) -> list[int]:
    """Return the votes of a text that is not a number in the usual notation: a full vote for the first
    notation that reads it, and a little less for every other notation that reads it.
    """
    reads = [_reads(notation, text) for notation in NOTATIONS]
    first = reads.index(True) if any(reads) else -1
    return [_ONE if k == first else _ALMOST * read for k, read in enumerate(reads)]


def _reads(notation: Notation, text: str) -> bool:
    zero = _ZERO_FIRST.match(text)
    grouped = zero is not None and zero[1] == notation.thousands
    return not grouped and NUMBER.fullmatch(notation.rewritten(text)) is not None

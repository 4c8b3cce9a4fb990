"""Predicates of a schema: yes-or-no questions about one column, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.predicates import Bools, PredicateTable
from privopt.problems.errors import SchemaError
from privopt.problems.tables.columns import Binned, Categorical, Column
from privopt.problems.tables.cuts import codes_in_bins, in_bins
from privopt.problems.tables.dates import Date
from privopt.problems.tables.display import UNNAMED, Display
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.values import plain

# Prior weights: with more than _MOST_QUESTIONS questions about a column, each question weighs less than 1, so
# that the column weighs as much as _MOST_QUESTIONS. Weights are rounded to quarters, at least one quarter.
_MOST_QUESTIONS, _PARTS = 7, 4


@dataclass(frozen=True, eq=False)
class Predicate:
    """A yes-or-no question about one column.

    Attributes:
        column: the index of the column.
        name: the name of the column.
        kind: "below" a cut, "is" a category, or "missing".
        value: the cut, as a number, or the category; None for "missing".
        truths: the answer to each code of the column, by the coarse schema; shape (codes,).
        missing: the code of a missing value; None if missing values are refused.
        display: label and unit of the column.
    """

    column: int
    name: str
    kind: str
    value: Any
    truths: Bools
    missing: int | None
    display: Display = UNNAMED

    @property
    def gap(self) -> bool | None:
        """The answer for a missing value; None if missing values are refused."""
        return None if self.missing is None else bool(self.truths[self.missing])

    def text(self, true: bool = True, possible: Bools | None = None) -> str:
        """Return the condition for the answer yes, or for no, in words.

        Args:
            true: the answer.
            possible: whether a record can have each code when the question is asked, shape (codes,). None:
                it can have all.
        """
        shown = self.name if self.display.label is None else self.display.label
        if self.kind == "missing":
            return f"{shown} is {'missing' if true else 'known'}"
        sign = {("below", True): "<", ("below", False): "\N{GREATER-THAN OR EQUAL TO}"}.get(
            (self.kind, true), "=" if true else "\N{NOT EQUAL TO}"
        )
        here = self.missing is not None and (possible is None or bool(possible[self.missing]))
        also = " or missing" if here and self.gap == true else ""
        unit = f" {self.display.unit}" if self.display.unit is not None and self.kind == "below" else ""
        return f"{shown} {sign} {self.value}{unit}{also}"


@dataclass(frozen=True, eq=False)
class Predicates:
    """All predicates of a schema, in the order of its columns.

    There is a question for each cut of a number on a grid (``cuts``: evenly spaced ones, and further ones
    near 0 if its range starts there), each inner edge of a binned number, each declared category, and each
    missing level.

    Attributes:
        schema: the declared schema.
        coarse: a schema whose codes distinguish records exactly as far as the predicates do; numbers are
            binned.
        questions: the predicates.
    """

    schema: Schema
    coarse: Schema
    questions: tuple[Predicate, ...]

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Build the predicates of a schema.

        Raises:
            SchemaError: no column has two codes, or a kind of column that is not known here.
        """
        columns = [in_bins(column) for column in schema.columns]
        shown = zip(columns, schema.displays, strict=True)
        asked = (q for k, (column, display) in enumerate(shown) for q in _questions(k, column, display))
        questions = [q for q in asked if 0 < int(np.count_nonzero(q.truths)) < len(q.truths)]
        if not questions:
            raise SchemaError("no column of the schema has two distinct values")
        return cls(schema, Schema(columns), tuple(questions))

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def most_rows(self) -> int:
        """The largest number of rows that the predicates can distinguish."""
        return math.prod(column.n_codes for column in self.coarse.columns)

    @cached_property
    def weights(self) -> IntArray:
        """The weight of each predicate in the prior, in quarters, shape (p,): a public fact.

        Otherwise a column of many categories would dominate the prior.
        """
        columns = np.array([question.column for question in self.questions])
        asked = np.bincount(columns)[columns]
        shares = np.rint(_PARTS * np.minimum(1.0, _MOST_QUESTIONS / asked))
        whole = np.maximum(shares, 1).astype(np.int64)
        return np.asarray(whole // np.gcd.reduce(whole))

    @cached_property
    def values(self) -> IntArray:
        """The predicates, each repeated as often as its weight, shape (sum of the weights,)."""
        return np.repeat(np.arange(len(self)), self.weights)

    def table(self, codes: Sequence[IntArray]) -> PredicateTable:
        """Return the truth values of rows, from their codes in the coarse schema."""
        truths = (question.truths[codes[question.column]] for question in self.questions)
        return PredicateTable.from_columns(truths, len(codes[0]), self.weights)

    def coarsened(self, codes: Sequence[IntArray]) -> list[IntArray]:
        """Convert codes of the declared schema to codes of the coarse one."""
        return [codes_in_bins(column, own) for column, own in zip(self.schema.columns, codes, strict=True)]


def _questions(place: int, column: Column, display: Display) -> Iterator[Predicate]:
    kind, has_level = plain_column(column)
    codes = np.arange(column.n_codes)

    def made(name: str, value: Any, truths: Bools) -> Predicate:
        return Predicate(place, column.name, name, value, truths, column.gap, display)

    if isinstance(kind, Date):
        yield from (made(*asked) for asked in _date_questions(kind, codes))
    elif isinstance(kind, Binned):
        for k, edge in enumerate(kind.edges[1:-1], 1):
            yield made("below", plain(edge), codes < k)
    elif isinstance(kind, Categorical):
        # The answer for one of two categories determines the other.
        known = kind.categories[1:] if column.n_codes == 2 == len(kind.categories) else kind.categories
        for category in known:
            yield made("is", category, codes == kind.categories.index(category))
    else:
        raise SchemaError(f"column {column.name!r}: {type(column).__name__} has no predicates")
    if has_level:
        yield made("missing", None, codes == column.n_codes - 1)


def _date_questions(kind: Date, codes: IntArray) -> Iterator[tuple[str, str, Bools]]:
    if kind.part is not None:
        for k, level in enumerate(kind.levels):
            yield "is", level, codes == k
        return
    unit = "" if kind.age_at is None else " years"
    for k, edge in enumerate(kind.edge_texts[1:-1], 1):
        yield "below", edge + unit, codes < k

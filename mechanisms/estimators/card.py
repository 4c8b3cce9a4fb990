"""Printable scorecards (points per level, base, threshold, risks), with output as Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privopt.mechanisms.evaluation.risk import RiskTable
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import html_table
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.values import plain


@dataclass(frozen=True)
class CardColumn:
    """The points of one column.

    Attributes:
        name: the name of the column.
        rows: (level, points) pairs; one level applies to a record.
        proportion: (value, points) at both ends of a line, for a number whose points are linear; otherwise
            None.
        title: its name for people, with label and unit if the schema declares them.
    """

    name: str
    rows: tuple[tuple[str, int], ...]
    proportion: tuple[tuple[str, float], tuple[str, float]] | None = None
    title: str = ""

    @property
    def shown(self) -> str:
        """The name that is printed."""
        return self.title or self.name

    @property
    def points(self) -> tuple[float, ...]:
        """The points of all levels, and of both ends of the line."""
        line = () if self.proportion is None else tuple(p for _, p in self.proportion)
        return (*line, *(p for _, p in self.rows))

    @property
    def used(self) -> bool:
        """Whether the column has non-zero points."""
        return any(self.points)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        levels = [{"level": level, "points": points} for level, points in self.rows]
        line = None if self.proportion is None else [list(end) for end in self.proportion]
        title = {"title": self.title} if self.shown != self.name else {}
        return {"name": self.name, **title, "levels": levels, "in_proportion": line}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield levels and points as text."""
        if self.proportion is not None:
            (low, first), (high, last) = self.proportion
            yield f"{low} to {high}, in proportion", f"{number(first)} to {number(last)}"
        for level, points in self.rows:
            yield level, number(points)


@dataclass(frozen=True)
class Card:
    """A released scorecard for printing.

    The score of a record is ``base`` plus the points of its level in every column. The record is classified
    as positive if its score exceeds ``threshold``.

    Attributes:
        columns: the columns with points, in the order of the schema.
        unused: names, for people, of the columns without points.
        base, threshold: integers.
        whole: whether every sum of points is an integer.
        classes: labels, (negative, positive).
        risks: the table from points to risk, or None.
        spend: the privacy spend of the card, including its risks.
        n_records: the number of training records, or None if unknown.
        target: the name of the label column, or "" if unknown.
        constraints: the public constraints on points that the released card satisfies, as text.
        moved: whether points were shifted after the release; ``constraints`` are about the released points.
    """

    columns: tuple[CardColumn, ...]
    unused: tuple[str, ...]
    base: int
    threshold: int
    whole: bool
    classes: tuple[Any, Any]
    risks: RiskTable | None
    spend: PrivacySpend
    n_records: int | None = None
    target: str = ""
    constraints: tuple[str, ...] = ()
    moved: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """Readable names of the classes, (negative, positive)."""
        negative, positive = (class_name(label, self.target) for label in self.classes)
        return negative, positive

    @property
    def rule(self) -> str:
        """The decision rule in words."""
        negative, positive = self.names
        return f"{positive}: {self.enough} points; else {negative}"

    @property
    def enough(self) -> str:
        """The points required for the positive class, in words."""
        return (
            f"{number(self.threshold + 1)} or more" if self.whole else f"more than {number(self.threshold)}"
        )

    @property
    def reach(self) -> tuple[float, float]:
        """The smallest and the largest possible score."""
        return (
            self.base + sum(min(c.points) for c in self.columns),
            self.base + sum(max(c.points) for c in self.columns),
        )

    @property
    def warning(self) -> str:
        """A warning if the rule predicts the same class for every record; otherwise empty."""
        fewest, most = self.reach
        if fewest <= self.threshold < most:
            return ""
        only = self.names[int(fewest > self.threshold)]
        return (
            f"This rule predicts {only} for every record: sums of points are from {number(fewest)} to "
            f"{number(most)}. "
            "They still rank records"
            + (", and the risks show how likely each class is." if self.risks is not None else ".")
            + " A larger weight of the rarer class (class_weight) may help."
        )

    def _repr_html_(self) -> str:
        """Return a table of the points for notebooks."""
        rows = [(column.shown, *line) for column in self.columns for line in column.lines()]
        return html_table(self.rule, ("column", "level", "points"), rows)

    def without_negative_points(self) -> Card:
        """Return an equivalent card without negative points: points of columns and threshold are shifted."""
        shifts = [-math.floor(min(c.points)) for c in self.columns]
        moved = tuple(_shifted(c, by) for c, by in zip(self.columns, shifts, strict=True))
        by = sum(shifts) - self.base
        risks = None
        if self.risks is not None:
            risks = replace(self.risks, up_to=tuple(edge + by for edge in self.risks.up_to))
        changed = self.moved or bool(any(shifts) or self.base)
        return replace(self, columns=moved, base=0, threshold=self.threshold + by, risks=risks, moved=changed)

    @property
    def constrained(self) -> str:
        """The constraints in a sentence; empty if there are none."""
        if not self.constraints:
            return ""
        when = " before they were shifted" if self.moved else ""
        return f"The points satisfy these constraints{when}: {'; '.join(self.constraints)}."

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "rule": self.rule,
            "classes": list(self.classes),
            **({"target": self.target} if self.target else {}),
            "base": self.base,
            "threshold": self.threshold,
            "columns": [c.to_dict() for c in self.columns],
            "unused": list(self.unused),
            **({"constraints": list(self.constraints)} if self.constraints else {}),
            "risks": None if self.risks is None else self.risk_rows(),
            "spend": self.spend.to_dict(),
        }

    def risk_rows(self) -> list[dict[str, Any]]:
        """Return points, risk and interval of each row of ``risks``, for JSON."""
        assert self.risks is not None
        rows = zip(self.risk_ranges(), self.risks.risks, self.risks.lows, self.risks.highs, strict=True)
        return [{"points": text, "risk": risk, "low": low, "high": high} for text, risk, low, high in rows]

    def risk_ranges(self) -> list[str]:
        """Return the range of points of each row of ``risks`` as text."""
        assert self.risks is not None
        if not self.risks.up_to:
            return ["any"]
        edges = self.risks.up_to
        if not self.whole:
            middle = [f"over {number(a)} to {number(b)}" for a, b in pairwise(edges)]
            return [f"up to {number(edges[0])}", *middle, f"over {number(edges[-1])}"]
        middle = [_between(math.floor(a) + 1, math.floor(b)) for a, b in pairwise(edges)]
        last = number(math.floor(edges[-1]) + 1)
        return [f"{number(math.floor(edges[0]))} or fewer", *middle, f"{last} or more"]

    def to_markdown(self) -> str:
        """Return the tables in Markdown."""
        lines = [f"**{markdown_cell(self.rule)}**", ""]
        if self.warning:
            lines += [markdown_cell(self.warning), ""]
        if self.base:
            lines += [f"Start with {number(self.base)} points.", ""]
        lines += ["| column | level | points |", "|---|---|---:|"]
        for column in self.columns:
            lines += [
                f"| {markdown_cell(column.shown)} | {markdown_cell(a)} | {b} |" for a, b in column.lines()
            ]
        if self.unused:
            lines += ["", f"No points for {', '.join(map(markdown_cell, self.unused))}."]
        if self.constrained:
            lines += ["", markdown_cell(self.constrained)]
        if self.risks is not None:
            interval = f"{self.risks.confidence:.0%} interval"
            head = f"| points | risk of {markdown_cell(self.names[1])} | {interval} |"
            lines += ["", head, "|---|---:|---:|"]
            lines += [
                f"| {row['points']} | {row['risk']:.1%} | {row['low']:.1%} to {row['high']:.1%} |"
                for row in self.risk_rows()
            ]
        lines += ["", f"Privacy: {markdown_cell(str(self.spend))}."]
        return "\n".join(lines) + "\n"


def card_of(
    schema: Schema,
    points: ArrayLike,
    classes: tuple[Any, Any],
    spend: PrivacySpend,
    risks: RiskTable | None = None,
    n_records: int | None = None,
    target: str = "",
) -> Card:
    """Build a card from released points, shape (features,)."""
    left = np.asarray(points, dtype=np.int64)
    base = int(left[-1]) if schema.intercept else 0
    columns = []
    for column in schema.columns:
        own, left = np.split(left, [len(column.feature_names)])
        columns.append(replace(card_column(column, own.tolist()), title=schema.titles[column.name]))
    whole = all(c.proportion is None for c in columns if c.used)
    used, unused = [c for c in columns if c.used], [c.shown for c in columns if not c.used]
    return Card(tuple(used), tuple(unused), base, 0, whole, classes, risks, spend, n_records, target)


def class_name(label: Any, target: str = "") -> str:
    """Return a readable name of a class: with the name of the label column if known, never a bare number."""
    if target:
        return f"{target} = {label}"
    return label if isinstance(label, str) else f"class {label}"


def number(value: float) -> str:
    """Format points, with a typographic minus sign."""
    text = f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return text.replace("-", "\N{MINUS SIGN}")


def card_column(column: Column, points: list[int]) -> CardColumn:
    """Return the points of one column, level by level."""
    kind, _ = plain_column(column)
    if isinstance(kind, Numeric):
        slope, *rest = points
        low, high = (str(plain(kind.low + k * kind.step)) for k in (0, kind.top))
        first, last = (float(end * slope) for end in kind.ends)
        rows = tuple(("missing", p) for p in rest)
        return CardColumn(column.name, rows, ((low, first), (high, last)) if slope else None)
    rows = tuple(zip(level_words(column), points, strict=True))
    if isinstance(kind, Categorical) and kind.outside == "ignore":
        rows = (*rows, ("any other", 0))
    return CardColumn(column.name, rows)


def level_words(column: Column) -> tuple[str, ...]:
    """Return the levels of a column in words; an outer bin that takes values beyond it has no outer edge."""
    kind, _ = plain_column(column)
    if not isinstance(kind, Binned):
        return column.levels
    return (*kind.words, "missing")[: len(column.levels)]


def _between(low: int, high: int) -> str:
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _shifted(column: CardColumn, by: int) -> CardColumn:
    rows = tuple((level, points + by) for level, points in column.rows)
    if column.proportion is None:
        return replace(column, rows=rows)
    (low, first), (high, last) = column.proportion
    return replace(column, rows=rows, proportion=((low, first + by), (high, last + by)))


def markdown_cell(text: str) -> str:
    """Escape text for a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")

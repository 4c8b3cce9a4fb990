"""Printable scorecards with a column of points for each of several classes, as Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privopt.mechanisms.estimators.card import CardColumn, card_column, class_name, markdown_cell, number
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import html_table
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class ClassColumn:
    """The points of one column for every class.

    Attributes:
        name: the name of the column.
        rows: (level, points of each class) pairs; one level applies to a record.
        proportion: (value, points of each class) at both ends of a line, for a number whose points are
            linear; otherwise None.
        title: its name for people, with label and unit if the schema declares them.
    """

    name: str
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    proportion: tuple[tuple[str, tuple[float, ...]], tuple[str, tuple[float, ...]]] | None = None
    title: str = ""

    @property
    def shown(self) -> str:
        """The name that is printed."""
        return self.title or self.name

    @property
    def ends(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """All levels with their points, including both ends of the line."""
        return (*(self.proportion or ()), *self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        levels = [{"level": level, "points": list(points)} for level, points in self.rows]
        line = None if self.proportion is None else [[end, list(points)] for end, points in self.proportion]
        title = {"title": self.title} if self.shown != self.name else {}
        return {"name": self.name, **title, "levels": levels, "in_proportion": line}

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield levels and the points of each class as text."""
        if self.proportion is not None:
            (low, first), (high, last) = self.proportion
            pairs = (f"{number(a)} to {number(b)}" for a, b in zip(first, last, strict=True))
            yield (f"{low} to {high}, in proportion", *pairs)
        for level, points in self.rows:
            yield (level, *map(number, points))

    def shifted(self, by: int) -> ClassColumn:
        """Return the column with ``by`` points added for every class, which changes no prediction."""
        rows = tuple((level, tuple(p + by for p in points)) for level, points in self.rows)
        if self.proportion is None:
            return replace(self, rows=rows)
        (low, first), (high, last) = self.proportion
        line = (low, tuple(p + by for p in first)), (high, tuple(p + by for p in last))
        return replace(self, rows=rows, proportion=line)


@dataclass(frozen=True)
class ClassCard:
    """A released scorecard of several classes for printing.

    The score of a class is its base plus its points for the record's level in every column. The class with
    the highest score is predicted; of several such classes, the first.

    Attributes:
        columns: the columns with points, in the order of the schema.
        unused: names, for people, of the columns without points.
        bases: the points with which each class starts.
        classes: the labels.
        spend: the privacy spend of the card.
        target: the name of the label column, or "" if unknown.
    """

    columns: tuple[ClassColumn, ...]
    unused: tuple[str, ...]
    bases: tuple[int, ...]
    classes: tuple[Any, ...]
    spend: PrivacySpend
    target: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Readable names of the classes, without the name of the label column."""
        return tuple(class_name(label) for label in self.classes)

    @property
    def rule(self) -> str:
        """The decision rule in words."""
        about = f"{self.target}: " if self.target else ""
        return f"{about}the class with the most points, of equal ones the first"

    def without_negative_points(self) -> ClassCard:
        """Return an equivalent card without negative points: the same points are added for all classes."""
        columns = tuple(
            column.shifted(-math.floor(min(min(points) for _, points in column.ends)))
            for column in self.columns
        )
        least = min(self.bases)
        return replace(self, columns=columns, bases=tuple(base - least for base in self.bases))

    def _repr_html_(self) -> str:
        """Return a table of the points for notebooks."""
        rows = [("start", "", *map(number, self.bases))]
        rows += [(column.shown, *line) for column in self.columns for line in column.lines()]
        return html_table(self.rule, ("column", "level", *self.names), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "rule": self.rule,
            "classes": list(self.classes),
            **({"target": self.target} if self.target else {}),
            "bases": list(self.bases),
            "columns": [c.to_dict() for c in self.columns],
            "unused": list(self.unused),
            "spend": self.spend.to_dict(),
        }

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"**{markdown_cell(self.rule)}**", ""]
        lines += ["| " + " | ".join(["column", "level", *map(markdown_cell, self.names)]) + " |"]
        lines += ["|---|---|" + "---:|" * len(self.names)]
        lines += ["| start | | " + " | ".join(map(number, self.bases)) + " |"]
        for column in self.columns:
            lines += [
                "| " + " | ".join(map(markdown_cell, (column.shown, *line))) + " |" for line in column.lines()
            ]
        if self.unused:
            lines += ["", f"No points for {', '.join(map(markdown_cell, self.unused))}."]
        lines += ["", f"Privacy: {markdown_cell(str(self.spend))}."]
        return "\n".join(lines) + "\n"


def class_card_of(
    schema: Schema, points: ArrayLike, classes: tuple[Any, ...], spend: PrivacySpend, target: str = ""
) -> ClassCard:
    """Build a card from released points, shape (classes, features)."""
    left = np.asarray(points, dtype=np.int64)
    bases = tuple(left[:, -1].tolist()) if schema.intercept else (0,) * len(left)
    columns = []
    for column in schema.columns:
        own, left = np.split(left, [len(column.feature_names)], axis=1)
        title = schema.titles[column.name]
        columns.append([replace(card_column(column, row), title=title) for row in own.tolist()])
    used = tuple(_together(each) for each in columns if any(column.used for column in each))
    unused = tuple(each[0].shown for each in columns if not any(column.used for column in each))
    return ClassCard(used, unused, bases, classes, spend, target)


def _together(columns: list[CardColumn]) -> ClassColumn:
    """Merge the points of all classes in one column."""
    levels = [level for level, _ in columns[0].rows]
    points = zip(*([p for _, p in column.rows] for column in columns), strict=True)
    rows = tuple(zip(levels, points, strict=True))
    lines = [column.proportion for column in columns]
    first = columns[0]
    known = next((line for line in lines if line is not None), None)
    if known is None:
        return ClassColumn(first.name, rows, title=first.title)
    ends = [(known[k][0], tuple(0.0 if line is None else line[k][1] for line in lines)) for k in (0, 1)]
    return ClassColumn(first.name, rows, (ends[0], ends[1]), first.title)

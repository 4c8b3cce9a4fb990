"""What a figure of a paper is: points to measure, a picture to draw of them, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import pandas as pd
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """One point of a figure, or one curve of iterations: all runs at one setting.

    Attributes:
        panel: which picture of the figure, such as the data set.
        curve: what is compared, such as a mechanism.
        level: the number that is varied: epsilon, T, n, ...
    """

    panel: str
    curve: str
    level: float

    def __str__(self) -> str:
        return f"{self.panel}: {self.curve}, {self.level:g}"


@dataclass(frozen=True)
class Point:
    """A number that was measured.

    Attributes:
        run: which repetition, from 0.
        at: where on the axis: the level of the cell, or the iteration.
        measure: of what.
    """

    run: int
    at: float
    measure: str
    value: float


@dataclass(frozen=True)
class Line:
    """A line of the file of results: a cell and a point of it."""

    panel: str
    curve: str
    level: float
    run: int
    at: float
    measure: str
    value: float

    @classmethod
    def of(cls, cell: Cell, point: Point) -> Line:
        """Six digits of the value are kept."""
        value = float(f"{point.value:.6g}")
        return cls(cell.panel, cell.curve, cell.level, point.run, point.at, point.measure, value)


class Agreement(Enum):
    """Whether what a paper shows was seen here."""

    YES = "agrees"
    PARTLY = "agrees in part"
    NO = "does not agree"
    HOLDS = "holds (not in the paper)"
    HOLDS_PARTLY = "holds in part (not in the paper)"
    FAILS = "does not hold (not in the paper)"

    @property
    def beside(self) -> Agreement:
        """The same about a statement of our own."""
        own = {Agreement.YES: Agreement.HOLDS, Agreement.PARTLY: Agreement.HOLDS_PARTLY}
        return own.get(self, Agreement.FAILS)


@dataclass(frozen=True)
class Verdict:
    """One statement of a paper about a figure, and what was measured here.

    Attributes:
        claim: the paper's, in our words.
        agreement: computed from the figures measured.
        words: the figures that say so.
    """

    claim: str
    agreement: Agreement
    words: str


def held(count: int, of: int) -> Agreement:
    """The agreement of a claim that held at so many of the settings."""
    return Agreement.YES if count == of else Agreement.NO if count == 0 else Agreement.PARTLY


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of a paper.

    Attributes:
        name: what ``privopt reproduce`` calls it; the file of this module, with hyphens.
        paper: the source in full.
        cite, figure: the source in short.
        shows: what the paper shows there, in our words.
        setting: quick -> what is run here, and what differs from the paper's setting.
        cells: quick -> what is measured.
        compute: (cell, quick) -> its points. Seeded: the same every time, but for times.
        draw: what was measured -> the picture. Columns are those of ``Line``.
        caption: what one sees.
        table: what was measured -> numbers to read.
        verdicts: what was measured -> each claim, held against it.
        measured_by: the figure whose results this one draws, where it measures nothing of its own.
    """

    name: str
    paper: str
    cite: str
    figure: str
    shows: str
    setting: Callable[[bool], str]
    cells: Callable[[bool], Sequence[Cell]]
    compute: Callable[[Cell, bool], Iterable[Point]]
    draw: Callable[[pd.DataFrame], Figure]
    caption: str
    table: Callable[[pd.DataFrame], pd.DataFrame]
    verdicts: Callable[[pd.DataFrame], Sequence[Verdict]]
    measured_by: str | None = None

    @property
    def title(self) -> str:
        """The source in short."""
        return f"{self.cite}, {self.figure}"

    @property
    def source(self) -> str:
        """Whose file of results it draws."""
        return self.measured_by or self.name

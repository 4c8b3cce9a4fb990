"""Interface of a reproduced figure: cells to measure, a picture of the results, verdicts on the claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import pandas as pd

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.study import Study


@dataclass(frozen=True)
class Cell:
    """One setting, measured in several runs: one point of a figure, or one curve against iterations.

    Attributes:
        panel: the panel of the figure, such as the data set.
        curve: the curve in the panel, such as the mechanism.
        level: the value of the varied parameter: epsilon, T, n, ...
    """

    panel: str
    curve: str
    level: float

    def __str__(self) -> str:
        return f"{self.panel}: {self.curve}, {self.level:g}"


@dataclass(frozen=True)
class Point:
    """One measured value.

    Attributes:
        run: the number of the repetition, from 0.
        at: the position on the x axis: the level of the cell, or the iteration.
        measure: the name of the measured quantity.
    """

    run: int
    at: float
    measure: str
    value: float


@dataclass(frozen=True)
class Line:
    """One line of the results file: a cell and one value measured in it."""

    panel: str
    curve: str
    level: float
    run: int
    at: float
    measure: str
    value: float

    @classmethod
    def of(cls, cell: Cell, point: Point) -> Line:
        """Build the line of a point; the value is rounded to six digits."""
        value = float(f"{point.value:.6g}")
        return cls(cell.panel, cell.curve, cell.level, point.run, point.at, point.measure, value)


class Agreement(Enum):
    """Agreement of a claim with the measurements here; the last three: of a claim that is not in a paper."""

    YES = "agrees"
    PARTLY = "agrees in part"
    NO = "does not agree"
    HOLDS = "holds (not in the paper)"
    HOLDS_PARTLY = "holds in part (not in the paper)"
    FAILS = "does not hold (not in the paper)"

    @property
    def beside(self) -> Agreement:
        """The same degree of agreement, for a claim that is not in the paper."""
        own = {Agreement.YES: Agreement.HOLDS, Agreement.PARTLY: Agreement.HOLDS_PARTLY}
        return own.get(self, Agreement.FAILS)


@dataclass(frozen=True)
class Reason:
    """Cause of a difference between a claim and its measurement.

    Attributes:
        text: the cause, without the last full stop.
        derived: whether the cause is derived or computed; otherwise other measurements showed it.
    """

    text: str
    derived: bool = False

    def __str__(self) -> str:
        return f"{'Derived' if self.derived else 'Measured'}: {self.text}."


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper about a figure, with the measurements here.

    Attributes:
        claim: the paper's claim in our words.
        agreement: the agreement, computed from the measurements.
        words: the measured values that decide it.
        reason: why the measurement differs from the claim, if it differs and the cause is known.
    """

    claim: str
    agreement: Agreement
    words: str
    reason: Reason | None = None

    @property
    def differs(self) -> bool:
        """Whether the measurements contradict a claim of the paper, or confirm only a part of it."""
        return self.agreement in (Agreement.PARTLY, Agreement.NO)


def held(count: int, of: int) -> Agreement:
    """Return the agreement of a claim that held at ``count`` of ``of`` settings."""
    return Agreement.YES if count == of else Agreement.NO if count == 0 else Agreement.PARTLY


def stem(name: str, quick: bool) -> str:
    """Return the stem of a figure's file names; it ends in -quick for quick runs."""
    return f"{name}-quick" if quick else name


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of a paper.

    Attributes:
        name: its name for ``privopt reproduce``; the file name of its module, with hyphens.
        paper: the full reference.
        cite, figure: the short reference.
        shows: the content of the paper's figure in our words.
        setting: quick -> the setting here, and its differences from the paper's.
        cells: quick -> the cells to measure.
        compute: (cell, quick) -> its points; seeded, so reproducible except for times.
        draw: results -> the picture. The columns of the results are the fields of ``Line``.
        caption: the caption of the picture.
        table: results -> a table.
        verdicts: results -> the verdicts on the paper's claims.
        measured_by: the name of the figure whose results this one draws, if it measures nothing itself.
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
        """The short reference."""
        return f"{self.cite}, {self.figure}"

    @property
    def source(self) -> str:
        """The name of the figure whose results this one draws: by default its own."""
        return self.measured_by or self.name

    def study(self, quick: bool) -> Study[Cell]:
        """Return the study that measures the cells; quick runs have a separate file of results."""
        return Study(
            stem(self.source, quick),
            Line,
            ("panel", "curve", "level"),
            compute=lambda cell: [Line.of(cell, point) for point in self.compute(cell, quick)],
            is_finished=lambda kept, cell: bool(kept.matching(**vars(cell))),
        )

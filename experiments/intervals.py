"""Coverage and width of confidence intervals of private linear models, through the estimators.

    python -m privopt.experiments.intervals [--draws 200] [--output FOLDER] [--quick]

Every draw has new records from the population of a design and new noise. Lines are kept in ``intervals.csv``
as they come: the same command resumes an interrupted run, and then writes ``intervals.md``.
Neighbours: replace-one, n public, delta = 1/n^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateLinearRegression
from privopt.mechanisms.errors import NoIntervalError
from privopt.mechanisms.inference.interval import Summary
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0)
_CONFIDENCE, _POPULATION = 0.95, 1_000_000
_Z = 1.959964
_KEY = ("design", "epsilon", "draws", "coefficient")
# Draws count as clear where the smallest eigenvalue of the noisy moments is this multiple of the noise.
_CLEAR = 1.0
_FEW = 50  # of fewer draws no share is shown


@dataclass(frozen=True)
class Line:
    """Intervals of one coefficient over the draws of a cell.

    Attributes:
        refused: draws without intervals.
        covered: other draws whose interval holds the coefficient of the population.
        clear, clear_covered: draws whose signal is at least the noise, and those of them that cover.
        signal: the median ratio of smallest eigenvalue and noise.
        width, plain_width: median width, and the width of least squares without privacy.
        noise_share: the mean share of noise in the variance.
    """

    design: str
    epsilon: float
    draws: int
    coefficient: str
    refused: int
    covered: int
    clear: int
    clear_covered: int
    signal: float
    width: float
    plain_width: float
    noise_share: float


class Records(NamedTuple):
    """Records: what the estimator gets, the columns that coefficients are of, and labels."""

    given: Any
    columns: Floats
    labels: Floats


@dataclass(frozen=True)
class Design:
    """A population of records within bounds, and the arguments of the estimator for it.

    Attributes:
        draw: (random numbers, n) -> n records, already clipped.
        n: the number of records of a draw.
    """

    name: str
    draw: Callable[[np.random.Generator, int], Records]
    n: int
    arguments: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def population(self) -> tuple[Floats, Floats]:
        """Coefficients of least squares in the population, the intercept last, and plain widths at n."""
        _, columns, y = self.draw(np.random.default_rng(12345), _POPULATION)
        Z = np.column_stack([columns, np.ones(len(y))])
        inverse = np.linalg.inv(Z.T @ Z / len(y))
        theta = inverse @ (Z.T @ y / len(y))
        variance = float(np.mean((y - Z @ theta) ** 2))
        return theta, 2 * _Z * np.sqrt(variance * np.diag(inverse) / self.n)

    def summary(self, epsilon: float, run: int) -> tuple[Summary | None, float]:
        """Fit new records; return intervals, None if they are refused, and the signal."""
        records = self.draw(np.random.default_rng(run), self.n)
        model = PrivateLinearRegression(
            epsilon, label_range=(-1.0, 1.0), insecure_seed=run, **self.arguments
        ).fit(records.given, records.labels)
        assert model.inference_ is not None
        try:
            return model.summary(_CONFIDENCE), model.inference_.signal_to_noise
        except NoIntervalError:
            return None, model.inference_.signal_to_noise


def _clipped(x: Floats, y: Floats) -> Records:
    X = np.clip(x, -1, 1)
    return Records(X, X, np.clip(y, -1, 1))


def _weights(p: int) -> Floats:
    return np.array([0.5, -0.3, 0.2, 0.0, 0.1, -0.2, 0.3, 0.0, -0.1, 0.1][:p])


def normal(p: int, correlation: float = 0.0) -> Callable[[np.random.Generator, int], Records]:
    """Normal columns and errors; neighbouring columns have the correlation."""
    root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))))

    def draw(rng: np.random.Generator, n: int) -> Records:
        x = rng.normal(size=(n, p)) @ root.T / 3
        return _clipped(x, x @ _weights(p) + 0.2 * rng.normal(size=n))

    return draw


def binary(rng: np.random.Generator, n: int) -> Records:
    x = (rng.random((n, 3)) < [0.5, 0.3, 0.2]).astype(float)
    return _clipped(x, x @ _weights(3) + 0.2 * rng.normal(size=n))


def skewed(rng: np.random.Generator, n: int) -> Records:
    """Labels with exponential errors."""
    x = rng.uniform(-1, 1, (n, 3))
    return _clipped(x, x @ _weights(3) / 2 - 0.3 + 0.15 * rng.exponential(size=n))


def heavy(rng: np.random.Generator, n: int) -> Records:
    """Labels with errors of 3 degrees of freedom, of which some are clipped."""
    x = rng.uniform(-1, 1, (n, 3))
    return _clipped(x, x @ _weights(3) + 0.2 * rng.standard_t(3, n))


def uneven(rng: np.random.Generator, n: int) -> Records:
    """Columns whose spreads differ by a factor of 3."""
    x = rng.uniform(-1, 1, (n, 4)) * [1, 0.7, 0.5, 0.33]
    return _clipped(x, x @ _weights(4) + 0.1 * rng.normal(size=n))


def shares(rng: np.random.Generator, n: int) -> Records:
    """Skewed columns: shares, most of them small."""
    x = rng.beta(1, 3, (n, 3))
    return _clipped(x, x @ _weights(3) - 0.2 + 0.1 * rng.normal(size=n))


REGIONS = ("north", "east", "south", "west")
SCHEMA = Schema(
    [Numeric("age", 18, 90), Numeric("hours", 0, 80), Categorical("region", REGIONS)], intercept=False
)


def table(rng: np.random.Generator, n: int) -> Records:
    """Two numbers in their units and a category, of which the first level is the reference."""
    age = np.clip(np.rint(rng.gamma(6, 8, n)), 18, 90)
    hours = np.clip(np.rint(rng.normal(38, 15, n)), 0, 80)
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    frame = pd.DataFrame({"age": age, "hours": hours, "region": np.array(REGIONS)[region]})
    columns = np.column_stack([age, hours, *(region == k for k in (1, 2, 3))])
    y = columns @ [0.006, 0.004, 0.1, 0.0, -0.2] - 0.4 + 0.15 * rng.normal(size=n)
    return Records(frame, columns, np.clip(y, -1, 1))


def designs() -> list[Design]:
    def ball(p: int) -> dict[str, Any]:
        return {"data_norm": math.sqrt(p)}

    return [
        Design("normal, 2 columns", normal(2), 20_000, ball(2)),
        Design("normal, 5 columns", normal(5), 10_000, ball(5)),
        Design("normal, 10 columns", normal(10), 50_000, ball(10)),
        Design("correlated by .7, 4 columns", normal(4, 0.7), 20_000, ball(4)),
        Design("binary, 3 columns", binary, 5_000, ball(3)),
        Design("few records, 2 columns", normal(2), 1_000, ball(2)),
        Design("exponential errors, 3 columns", skewed, 5_000, ball(3)),
        Design("t(3) errors, clipped, 3 columns", heavy, 5_000, ball(3)),
        Design("uneven spreads, 4 columns", uneven, 10_000, ball(4)),
        Design("numbers and a category", table, 10_000, {"schema": SCHEMA}),
    ]


class Cell(NamedTuple):
    design: Design
    epsilon: float
    draws: int

    def __str__(self) -> str:
        return f"{self.design.name}, epsilon {self.epsilon:g}"

    @property
    def about(self) -> dict[str, object]:
        return {"design": self.design.name, "epsilon": self.epsilon, "draws": self.draws}


def measured(cell: Cell) -> list[Line]:
    """Measure the intervals of a cell."""
    truth, plain = cell.design.population
    found = [cell.design.summary(cell.epsilon, run) for run in range(cell.draws)]
    signal = np.array([signal for _, signal in found])
    given = [summary is not None for summary, _ in found]
    names: dict[str, None] = {one.name: None for summary, _ in found if summary for one in summary}
    lines = []
    for j, name in enumerate(names or [f"column {j}" for j in range(len(truth))]):
        ones = [summary.intervals[j] for summary, _ in found if summary is not None]
        inside = np.array([one.low <= truth[j] <= one.high for one in ones], dtype=bool)
        clear = signal[given] >= _CLEAR
        widths = [one.high - one.low for one in ones]
        lines.append(
            Line(
                **cell.about,  # type: ignore[arg-type]
                coefficient=name,
                refused=cell.draws - len(ones),
                covered=int(inside.sum()),
                clear=int(clear.sum()),
                clear_covered=int(inside[clear].sum()),
                signal=float(np.median(signal)),
                width=float(np.median(widths)) if widths else math.nan,
                plain_width=float(plain[j]),
                noise_share=float(np.mean([one.noise_share for one in ones])) if ones else math.nan,
            )
        )
    return lines


def coverage(frame: pd.DataFrame) -> str:
    """Tabulate a row per design and epsilon."""
    rows = []
    for (design, epsilon), some in frame.groupby(["design", "epsilon"], sort=False):
        given = some["draws"] - some["refused"]
        rate, clear = some["covered"] / given, some["clear_covered"] / some["clear"]
        ratio = some["width"] / some["plain_width"]
        few, fewer = given.max() < _FEW, some["clear"].max() < _FEW
        rows.append(
            {
                "design": design,
                "epsilon": f"{epsilon:g}",
                "signal / noise": f"{some['signal'].iloc[0]:.2g}",
                "refused": f"{some['refused'].iloc[0] / some['draws'].iloc[0]:.0%}",
                "coverage": "" if few else f"{some['covered'].sum() / given.sum():.3f}",
                "least, most": "" if few else f"{rate.min():.3f}, {rate.max():.3f}",
                "where signal >= noise: least, most": ""
                if fewer
                else f"{clear.min():.3f}, {clear.max():.3f}",
                "width / plain": "" if few else f"{ratio.min():.2g} to {ratio.max():.2g}",
                "noise": "" if few else f"{some['noise_share'].mean():.0%}",
            }
        )
    return markdown_table(pd.DataFrame(rows))


def within(frame: pd.DataFrame) -> str:
    """Say how many cells of a coefficient lie between 93 and 97%, where the signal is at least the noise."""
    some = frame[frame["clear"] >= _FEW]
    if some.empty:
        return "too few draws"
    rate = some["clear_covered"] / some["clear"]
    inside = ((rate >= 0.93) & (rate <= 0.97)).sum()
    return (
        f"{inside} of {len(some)}; together {some['clear_covered'].sum() / some['clear'].sum():.4f}, "
        f"the least {rate.min():.3f}, the largest {rate.max():.3f}"
    )


def page(frame: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    frame = frame[frame["draws"] == frame["draws"].max()]
    places = {"draws": str(frame["draws"].max()), "coverage": coverage(frame), "within": within(frame)}
    return filled("intervals", places)


STUDY = Study[Cell](
    "intervals",
    Line,
    _KEY,
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell.about)),
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")] = Path("intervals"),
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each cell.")] = 200,
    quick: Annotated[bool, typer.Option("--quick", help="One design, as a test.")] = False,
) -> None:
    """Measure the missing cells, and write the page."""
    chosen = designs()[5:6] if quick else designs()
    cells = [Cell(design, epsilon, draws) for design in chosen for epsilon in EPSILONS]
    STUDY.run(output, cells, Console(stderr=True, soft_wrap=True, emoji=False))


if __name__ == "__main__":
    typer.run(main)

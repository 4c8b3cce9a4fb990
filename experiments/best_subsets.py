"""Compare two private ways to find the informative columns of a table.

One is an exact draw of a subset with half of epsilon (``best-subset``), the other the best subset by noisy
moments (``sufficient-statistics``).

    python -m privopt.experiments.best_subsets [--output FOLDER] [--tables N]

Tables are drawn from ``SparseDesign``, and their numbers clipped to [-1, 1]. ``best-subsets.csv`` keeps the
fits of every finished design: the same command resumes an interrupted run. It then writes the table
``best-subsets.md``. Neighbours: replace-one, n public; delta = 1/n^2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer

from privopt.experiments.workbench.pages import markdown_table
from privopt.experiments.workbench.resumable import Kept
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateLinearRegression
from privopt.mechanisms.estimators.column_choice import by_moments
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.datasets.synthetic import SparseDesign

WAYS = ("best-subset", "sufficient-statistics")
_TABLES, _TEST, _SECONDS = 10, 2000, 300.0
# (columns p, informative columns s, records n, epsilon, correlation of neighbouring columns)
_DESIGNS = (
    (30, 5, 1000, 1.0, 0.1),
    (30, 5, 2000, 1.0, 0.1),
    (30, 5, 2000, 1.0, 0.6),
    (30, 5, 4000, 1.0, 0.6),
    (60, 10, 3000, 1.0, 0.1),
    (100, 2, 1000, 1.0, 0.1),
    (100, 5, 2500, 1.0, 0.1),
    (100, 5, 2500, 1.0, 0.6),
    (100, 5, 5000, 1.0, 0.6),
    (30, 5, 5000, 0.3, 0.1),
    (100, 5, 8000, 0.3, 0.1),
    (30, 5, 600, 3.0, 0.1),
    (100, 5, 1500, 3.0, 0.1),
)


class Cell(NamedTuple):
    """A design, a budget, and the number of tables that are drawn from the design."""

    features: int
    informative: int
    records: int
    epsilon: float
    correlation: float
    tables: int


@dataclass(frozen=True)
class Line:
    """A fit: whether it chose exactly the informative columns, R^2 on fresh records, processor seconds."""

    features: int
    informative: int
    records: int
    epsilon: float
    correlation: float
    table: int
    way: str
    recovered: bool
    r2: float
    seconds: float


def fits(cell: Cell) -> Iterator[Line]:
    """Fit every table of a cell in both ways. The noise is seeded, for measurement only."""
    design = SparseDesign(cell.features, cell.informative, correlation=cell.correlation)
    for number in range(cell.tables):
        rng = np.random.default_rng(number)
        X, y = (np.clip(part, -1, 1) for part in design.table(cell.records + _TEST, rng))
        for way in WAYS:
            model = PrivateLinearRegression(
                cell.epsilon,
                mechanism=way,
                max_features=cell.informative,
                data_norm=1.0,
                label_range=(-1.0, 1.0),
                limits=Limits(seconds=_SECONDS),
                insecure_seed=number,
            )
            began, found, r2 = time.process_time(), False, 0.0
            try:
                model.fit(X[:-_TEST].copy(), y[:-_TEST])
                found = bool(np.array_equal(np.flatnonzero(model.support_), design.support))
                r2 = float(model.score(X[-_TEST:], y[-_TEST:]))
            except UnfinishedDrawError:
                pass  # a draw stopped by the limit releases nothing: not recovered, R^2 of 0
            yield Line(*cell[:5], number, way, found, r2, time.process_time() - began)


def page(lines: pd.DataFrame) -> str:
    """Return the table: a line for each design and budget; bold is the way that ``auto`` takes."""
    rows = []
    facts = ["epsilon", "features", "informative", "correlation", "records"]
    for _, group in lines.groupby(facts):
        epsilon, p, s, correlation, n = (group[name].iloc[0] for name in facts)
        mu = gaussian_mu(float(epsilon), 1 / float(n) ** 2)
        auto = WAYS[by_moments(int(p), int(s), float(epsilon), mu)[0]]
        row = {"epsilon": f"{epsilon:g}", "p": p, "s": s, "correlation": f"{correlation:g}", "n": f"{n:,}"}
        for way, what in zip(WAYS, ("draw", "moments"), strict=True):
            own = group[group["way"] == way]
            mark = "**" if way == auto else ""
            row[f"{what}: recovered"] = f"{mark}{own['recovered'].sum()} of {len(own)}{mark}"
            row[f"{what}: R^2"] = f"{own['r2'].mean():.3f}"
        rows.append(row)
    return markdown_table(pd.DataFrame(rows)) + "\n"


def _finished(kept: Kept, cell: Cell) -> bool:
    design = {name: value for name, value in cell._asdict().items() if name != "tables"}
    return len(kept.matching(**design)) >= len(WAYS) * cell.tables


STUDY = Study[Cell](
    name="best-subsets",
    line=Line,
    key=("features", "informative", "records", "epsilon", "correlation", "table", "way"),
    compute=lambda cell: list(fits(cell)),
    is_finished=_finished,
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")] = Path("best-subsets"),
    tables: Annotated[int, typer.Option(min=1, help="Number of tables of each design.")] = _TABLES,
) -> None:
    """Measure the missing designs, and write the table."""
    cells = [Cell(*design, tables) for design in _DESIGNS]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

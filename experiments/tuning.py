"""Compare private searches with default models at the same total epsilon, on public tables.

    python -m privopt.experiments.tuning --output FOLDER [--environments FOLDER] [--splits 10]

The tables are Adult and the ones of ``privopt.experiments.scorecards`` that ``--environments`` has. Each is
split into random halves: models are fitted to at most 8,000 records of one half and measured on the other.
Every fit and every search has epsilon 1 in total and delta 1/n^2. ``tuning.csv`` keeps the results of
finished splits: an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from sklearn.metrics import accuracy_score, roc_auc_score

from privopt.experiments.scorecards import Table, site_of, tables
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression, PrivateSearchCV

EPSILON, MOST_RECORDS = 1.0, 8_000
PENALTIES = ("none", "l2:0.01", "l2:0.1", "l2:1")
# Names of the ways to get a model; ``COMPARED`` has the defaults that a way is compared with.
LINEAR, CARD = "linear, defaults", "card, defaults"
OVER_PENALTIES, OVER_KINDS = "linear, search over 4 penalties", "search: card or linear"
ORACLE = "linear, best of 4 penalties on the test records (not private)"
COMPARED = {OVER_PENALTIES: LINEAR, OVER_KINDS: CARD, ORACLE: LINEAR}


@dataclass(frozen=True)
class Line:
    """Measures of one fit or search on one split.

    Attributes:
        n: the number of training records.
    """

    table: str
    n: int
    split: int
    way: str
    auc: float
    accuracy: float


class Cell(NamedTuple):
    table: Table
    split: int

    def __str__(self) -> str:
        return f"{self.table[0]}, split {self.split}"

    @property
    def key(self) -> dict[str, object]:
        return {"table": self.table[0], "split": self.split}


def measured(cell: Cell) -> list[Line]:
    """Measure defaults, searches and the choice by test records, on one split."""
    _, frame, y, schema = cell.table
    order = np.random.default_rng(cell.split).permutation(len(y))
    train, test = order[: len(y) // 2][:MOST_RECORDS], order[len(y) // 2 :]
    given: dict[str, Any] = {"schema": schema, "classes": (0, 1)}

    def line(way: str, model: Any) -> Line:
        fitted = model.fit(frame.iloc[train], y[train])
        scores = fitted.decision_function(frame.iloc[test])
        auc, accuracy = float(roc_auc_score(y[test], scores)), float(accuracy_score(y[test], scores > 0))
        key: dict[str, Any] = dict(cell.key)
        return Line(**key, n=len(train), way=way, auc=auc, accuracy=accuracy)

    linear, card = PrivateLogisticRegression(EPSILON, **given), PrivateHalfspaceClassifier(EPSILON, **given)
    oracle = [line(ORACLE, PrivateLogisticRegression(EPSILON, regularizer=one, **given)) for one in PENALTIES]
    return [
        line(LINEAR, linear),
        line(CARD, card),
        line(OVER_PENALTIES, PrivateSearchCV(linear, {"regularizer": list(PENALTIES)}, epsilon=EPSILON)),
        line(OVER_KINDS, PrivateSearchCV([card, linear], epsilon=EPSILON)),
        max(oracle, key=lambda one: one.auc),
    ]


def differences(lines: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the gain of each way over its defaults on the same split, by way and table.

    Columns: mean gain, its standard error, number of splits.
    """
    wide = lines.pivot_table(index=["table", "split"], columns="way", values=measure, sort=False)
    rows = [
        {"way": way, "table": table, "gain": gain.mean(), "error": gain.sem(), "splits": len(gain)}
        for way, defaults in COMPARED.items()
        for table, gain in (wide[way] - wide[defaults]).groupby("table", sort=False)
    ]
    return pd.DataFrame(rows)


def gains(lines: pd.DataFrame) -> str:
    """Tabulate, per table, the AUC of the defaults and the gain of each way (its standard error)."""
    found = differences(lines, "auc")
    means = lines.pivot_table(index="table", columns="way", values="auc", sort=False)
    sizes = lines.groupby("table")["n"].first()
    rows = []
    for table, own in found.groupby("table", sort=False):
        row = {"table": table, "n": f"{sizes[str(table)]:,}"}
        row |= {way: f"{means[way][str(table)]:.3f}" for way in (LINEAR, CARD)}
        row |= {str(one.way): f"{one.gain:+.3f} ({one.error:.3f})" for one in own.itertuples()}
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))


def verdicts(lines: pd.DataFrame) -> str:
    """Say for each way on how many tables it gains or loses more than two standard errors."""
    found, correct = differences(lines, "auc"), differences(lines, "accuracy")
    said = []
    for way, defaults in COMPARED.items():
        own, right = found[found["way"] == way], correct[correct["way"] == way]
        better = int((own["gain"] > 2 * own["error"]).sum())
        worse = int((own["gain"] < -2 * own["error"]).sum())
        said.append(
            f"- **{way}**, against *{defaults}*: AUC {own['gain'].mean():+.3f} on average over tables, from "
            f"{own['gain'].min():+.3f} to {own['gain'].max():+.3f}. By more than two standard errors AUC is "
            f"higher on {better} and lower on {worse} of {len(own)} tables. Accuracy: "
            f"{right['gain'].mean():+.3f} on average."
        )
    return "\n".join(said)


def page(lines: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    splits = lines.groupby("table")["split"].nunique()
    few, many = splits.min(), splits.max()
    values = {
        "splits": str(many) if few == many else f"{few} to {many}",
        "verdicts": verdicts(lines),
        "gains": gains(lines),
    }
    return filled("tuning", values)


STUDY = Study[Cell](
    "tuning",
    Line,
    ("table", "split", "way"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
    page=page,
)


def cells(found: list[Table], splits: int) -> Iterator[Cell]:
    """Yield the first split of every table, then the second, so that an interrupted run has all tables."""
    for split in range(splits):
        for table in found:
            yield Cell(table, split)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")],
    environments: Annotated[
        Path | None, typer.Option(help="Folder that privopt.experiments.scorecards --build filled.")
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits of a table.")] = 10,
) -> None:
    """Measure the missing cells, and write the page."""
    found = list(tables(site_of(environments)))
    STUDY.run(output, list(cells(found, splits)))


if __name__ == "__main__":
    typer.run(main)

"""Measure accuracy and time of private scorecards against columns, levels, rows and epsilon.

    python -m privopt.experiments.feasible --output FOLDER

Synthetic tables come from a logistic law over categorical columns, so that the best AUC is known; beside them
are increasing numbers of records of Adult. Writes ``feasible.csv`` (a line per fit; the fits of a table are
appended together, and an interrupted run resumes with the next table), ``feasible.md`` and ``feasible.png``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.palette import SERIES
from privopt.experiments.workbench.panels import Curve, Panel, panels_figure
from privopt.experiments.workbench.resumable import isolated, machine, peak_megabytes, seconds
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.estimators.bounded_linear import PrivateLogisticRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.problems.datasets.adult import ADULT_TARGET, adult_labels, adult_schema, load_adult
from privopt.problems.tables.columns import Categorical
from privopt.problems.tables.schema import Schema

SHAPES = ((5, 4), (10, 5), (20, 10), (40, 12))  # columns, levels of each
ROWS = (1_000, 10_000, 100_000, 1_000_000)
ADULT_ROWS = (1_000, 3_000, 10_000, 30_000)
EPSILONS = (0.1, 1.0, 10.0)
CARD, LINEAR, FREE = "card", "logistic", "not private"
CLOSE = 0.02  # AUC that a fit may lose by privacy and still count as close
_TESTED = 20_000
_LARGEST = 10**8  # rows times levels of all columns; larger tables belong in an engine


@dataclass(frozen=True)
class Unit:
    """One table.

    Attributes:
        columns, levels: the numbers of columns and of levels per column of a synthetic table; 0 for Adult.
        rows: the number of training records.
        run: the number of the draw of such a table.
    """

    columns: int
    levels: int
    rows: int
    run: int

    @property
    def table(self) -> str:
        return f"{self.columns} columns of {self.levels} levels" if self.columns else "adult"

    def __str__(self) -> str:
        return f"{self.table}, {self.rows:,} rows, run {self.run}"


@dataclass(frozen=True)
class Line:
    """The result of one fit.

    Attributes:
        epsilon: the budget; infinite without privacy.
        seconds: processor time over all cores, encoding included.
        peak_megabytes: peak memory of the process so far, interpreter and table included.
        best: the AUC of the true law on the same test records; NaN if unknown.
    """

    table: str
    features: int
    rows: int
    run: int
    model: str
    epsilon: float
    mechanism: str
    seconds: float
    peak_megabytes: float
    auc: float
    best: float


@dataclass(frozen=True)
class Task:
    """Training and test records.

    Attributes:
        records, labels: for training.
        others, truth: records and labels for the test.
        best: the AUC of the true law on the test records; NaN if unknown.
    """

    schema: Schema
    records: pd.DataFrame
    labels: np.ndarray[Any, Any]
    others: pd.DataFrame
    truth: np.ndarray[Any, Any]
    classes: tuple[int, int]
    best: float


def drawn(unit: Unit) -> Task:
    """Draw a table from a logistic law with about 20% positives.

    The score of a record is a sum of normal points, one per column by its level; scores have a standard
    deviation of 2.
    """
    rng = np.random.default_rng([unit.columns, unit.rows, unit.run])
    codes = rng.integers(0, unit.levels, (unit.rows + _TESTED, unit.columns))
    points = rng.normal(size=(unit.columns, unit.levels))
    score = points[np.arange(unit.columns), codes].sum(axis=1)
    score = 2 * (score - score.mean()) / score.std() - 2.1
    y = (rng.random(len(score)) < 1 / (1 + np.exp(-score))).astype(int)
    frame = pd.DataFrame(codes, columns=[f"c{j}" for j in range(unit.columns)])
    schema = Schema([Categorical(name, list(range(unit.levels))) for name in frame.columns], intercept=True)
    cut = unit.rows
    best = float(roc_auc_score(y[cut:], score[cut:]))
    return Task(schema, frame.iloc[:cut], y[:cut], frame.iloc[cut:], y[cut:], (0, 1), best)


def adult(unit: Unit) -> Task:
    """Return a sample of Adult's training file, with all columns, and all of Adult's test file."""
    train, test = load_adult("train"), load_adult("test")
    some = train.iloc[np.random.default_rng(unit.run).permutation(len(train))[: unit.rows]]
    X, others = (frame.drop(columns=[ADULT_TARGET]) for frame in (some, test))
    return Task(
        adult_schema(intercept=True), X, adult_labels(some), others, adult_labels(test), (-1, 1), float("nan")
    )


def work(unit: Unit) -> Iterator[Line]:
    """Yield the fits of a unit; to be run in a fresh process. A small fit before the first compiles."""
    task = drawn(unit) if unit.columns else adult(unit)
    small = drawn(Unit(2, 2, 100, 0))
    for model in _models(1.0, small).values():
        model.fit(small.records, small.labels)
    facts = (unit.table, task.schema.n_features, unit.rows, unit.run)
    for epsilon in EPSILONS:
        for name, model in _models(epsilon, task).items():
            began = time.process_time()
            model.fit(task.records, task.labels)
            took = time.process_time() - began
            auc = float(roc_auc_score(task.truth, model.decision_function(task.others)))
            yield Line(*facts, name, epsilon, model.mechanism_, took, peak_megabytes(), auc, task.best)
    if unit.rows <= 100_000:
        X = encoded(task.schema, task.records)
        began = time.process_time()
        fitted = LogisticRegression(max_iter=1000).fit(X, task.labels)
        took = time.process_time() - began
        auc = float(roc_auc_score(task.truth, fitted.decision_function(encoded(task.schema, task.others))))
        yield Line(*facts, FREE, np.inf, "", took, peak_megabytes(), auc, task.best)


def _models(epsilon: float, task: Task) -> dict[str, Any]:
    common: dict[str, Any] = {"schema": task.schema, "classes": task.classes}
    return {
        CARD: PrivateHalfspaceClassifier(epsilon, **common),
        LINEAR: PrivateLogisticRegression(epsilon, **common),
    }


def units() -> list[Unit]:
    """Return all tables by number of records, ascending; the fewer records, the more draws."""
    found = [Unit(0, 0, rows, run) for rows in ADULT_ROWS for run in range(_runs(rows))]
    for columns, levels in SHAPES:
        for rows in ROWS:
            if rows * columns * levels <= _LARGEST:
                found += [Unit(columns, levels, rows, run) for run in range(_runs(rows))]
    return sorted(found, key=lambda unit: unit.rows)


def _runs(rows: int) -> int:
    return 8 if rows <= 3_000 else 4 if rows <= 30_000 else 2 if rows <= 100_000 else 1


# --- Tables and figures of the results ----------------------------------------------------------------


def gaps(lines: pd.DataFrame) -> pd.DataFrame:
    """Add to private fits ``gap``, the AUC lost by privacy, and ``ratio`` = rows * epsilon / features.

    The loss is against the fit without privacy or, where that is missing, against the true law.
    """
    where = ["table", "rows", "run"]
    free = lines[lines["model"] == FREE].set_index(where)["auc"].rename("free")
    private = lines[lines["model"] != FREE].join(free, on=where)
    reference = private["free"].fillna(private["best"])
    ratio = private["rows"] * private["epsilon"] / private["features"]
    return private.assign(gap=reference - private["auc"], ratio=ratio)


def enough(found: pd.DataFrame) -> float:
    """Return the smallest ratio from which on the mean gap of cards is at most ``CLOSE``; NaN if none is."""
    cards = found[found["model"] == CARD].groupby(["table", "rows", "epsilon"])[["ratio", "gap"]].mean()
    cards = cards.sort_values("ratio")
    wide = cards[cards["gap"] > CLOSE]
    left = cards if wide.empty else cards[cards["ratio"] > wide["ratio"].max()]
    return float(left["ratio"].min()) if len(left) else float("nan")


def _loss(found: pd.DataFrame) -> str:
    """Describe the mean gap of cards for ratios below 1,000, by powers of ten."""
    cards = found[found["model"] == CARD]
    powers = np.floor(np.log10(cards["ratio"])).astype(int)
    parts = [
        f"{cards['gap'][powers == power].mean():.2f} between {10.0**power:,g} and {10.0 ** (power + 1):,g}"
        for power in sorted(set(powers.tolist()))
        if power < 3
    ]
    return f"The mean AUC that a card loses, by this number: {'; '.join(parts)}."


def overview(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate, per table and rows, the AUC of cards at each epsilon and of a fit without privacy, and costs.

    The fit without privacy is a logistic regression; seconds and memory are for cards.
    """
    rows = []
    for (table, features, n), group in lines.groupby(["table", "features", "rows"], sort=False):
        cards = group[group["model"] == CARD]
        row: dict[str, object] = {"table": table, "features": features, "rows": f"{n:,}"}
        for epsilon in EPSILONS:
            found = cards[cards["epsilon"] == epsilon]["auc"]
            row[f"ε = {epsilon:g}"] = f"{found.mean():.3f} ± {found.std(ddof=0):.3f}"
        free = group[group["model"] == FREE]["auc"]
        row["not private"] = f"{free.mean():.3f}" if len(free) else ""
        row["seconds"] = seconds(float(cards["seconds"].mean()))
        row["MB"] = f"{cards['peak_megabytes'].max():.0f}"
        rows.append(row)
    return pd.DataFrame(rows).sort_values(["features", "table"], kind="stable")


def picture(lines: pd.DataFrame) -> Figure:
    """Draw the AUC that cards lose against rows * epsilon / features, and seconds against rows."""
    found = gaps(lines)
    cards = found[found["model"] == CARD]
    names = sorted(cards["table"].unique(), key=lambda t: int(cards[cards["table"] == t]["features"].iloc[0]))
    costs, times = [], []
    for name, colour in zip(names, SERIES, strict=False):
        some = cards[cards["table"] == name]
        cost = some.groupby("ratio")["gap"].agg(["mean", "std"]).fillna({"std": 0.0})
        costs.append(Curve(name, colour, cost))
        took = some.groupby("rows")["seconds"].agg(["mean", "std"]).fillna({"std": 0.0})
        times.append(Curve(name, colour, took, spread="none"))
    return panels_figure(
        [
            Panel(
                "What privacy costs a card", "records × ε / features", "AUC lost", costs, levels={"": CLOSE}
            ),
            Panel("A fit", "records", "seconds", times, yscale="log"),
        ]
    )


def page(lines: pd.DataFrame) -> str:
    """Write the page from the finished fits."""
    found = gaps(lines)
    apart = found.pivot_table(index=["table", "rows", "epsilon"], columns="model", values="auc")
    places = {
        "machine": machine(),
        "least": f"{enough(found):,.0f}",
        "losses": _loss(found),
        "overview": markdown_table(overview(lines)),
        "behind": f"{float((apart[LINEAR] - apart[CARD]).mean()):.3f}",
    }
    return filled("feasible", places)


STUDY = Study[Unit](
    "feasible",
    Line,
    ("table", "rows", "run", "model", "epsilon"),
    compute=lambda unit: list(isolated(work, unit)),
    is_finished=lambda kept, unit: bool(kept.matching(table=unit.table, rows=unit.rows, run=unit.run)),
    page=page,
    figures={".png": picture},
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page, picture and results.")] = Path(
        "feasible"
    ),
) -> None:
    """Fit every table."""
    console = Console(soft_wrap=True, emoji=False)
    STUDY.run(output, units(), console)
    console.print(f"Open {output / 'feasible.md'}", markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(main)

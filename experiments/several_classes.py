"""Compare models of several classes: one release for all classes against one release for each class.

    python -m privopt.experiments.several_classes [--draws 5] [--output FOLDER]

The tables are two synthetic ones of four classes, and Covertype with its seven; each draw has new records,
and measures are on held-out ones. Writes ``several-classes.md``, and ``several-classes.csv``, which keeps the
results of finished draws: an interrupted run resumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.metrics import balanced_accuracy_score

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression, PrivateTreeClassifier
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.datasets.covertype import covertype_bounds, load_covertype
from privopt.problems.tables.columns import Binned, Categorical, Numeric
from privopt.problems.tables.schema import Schema

EPSILONS = (0.1, 0.3, 1.0, 3.0)
_LEVELS, _CLASSES = ("a", "b", "c", "d"), 4
_MOMENTS = "sufficient-statistics"


@dataclass(frozen=True)
class Task:
    """Records with classes 0, 1, ...; ``trained`` of the records are for training, the rest held out."""

    name: str
    records: pd.DataFrame
    labels: NDArray[np.int64]
    schema: Schema
    trained: int


def synthetic(name: str, seed: int) -> Task:
    """Draw six categories and four numbers, with classes of a multinomial model or ranges of one score."""
    rng, n = np.random.default_rng(seed), 12_000
    table: dict[str, Any] = {f"c{j}": rng.choice(_LEVELS, n, p=[0.4, 0.3, 0.2, 0.1]) for j in range(6)}
    scores = np.zeros((n, _CLASSES))
    for cells in table.values():
        scores += rng.normal(0, 0.7, (4, _CLASSES))[np.searchsorted(_LEVELS, cells)]
    for j in range(4):
        table[f"x{j}"] = np.clip(rng.normal(0, 0.4, n), -1, 1)
        scores += np.outer(table[f"x{j}"], rng.normal(0, 1.2, _CLASSES))
    if name == "ordered":
        line = scores[:, 0] - scores[:, 1]
        cuts = np.quantile(line, np.arange(1, _CLASSES) / _CLASSES)
        labels = np.digitize(line + 0.7 * rng.logistic(size=n), cuts)
    else:
        labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    columns = [Categorical(f"c{j}", list(_LEVELS)) for j in range(6)]
    schema = Schema([*columns, *(Numeric(f"x{j}", -1, 1) for j in range(4))], intercept=True)
    return Task(f"{_CLASSES} classes, {name}", pd.DataFrame(table), labels.astype(np.int64), schema, 8_000)


def covertype(seed: int) -> Task:
    """Take 40,000 records of Covertype, with its ten numbers in twelve bins of their public ranges."""
    X, y = load_covertype(np.float32)
    drawn, bounds = np.random.default_rng(seed).choice(len(y), 40_000, replace=False), covertype_bounds()
    table, columns = {}, []
    for j in range(10):
        table[f"q{j}"] = X[drawn, j].astype(np.float64)
        columns.append(Binned(f"q{j}", np.linspace(bounds.low[j], bounds.high[j], 13).round(2).tolist()))
    table["area"], table["soil"] = np.argmax(X[drawn, 10:14], axis=1), np.argmax(X[drawn, 14:], axis=1)
    groups = [Categorical("area", list(range(4))), Categorical("soil", list(range(40)))]
    return Task(
        "Covertype, 7 classes",
        pd.DataFrame(table),
        y[drawn] - 1,
        Schema([*columns, *groups], intercept=True),
        20_000,
    )


class OneVsRestMoments:
    """A classifier with one release of noisy moments per class, which predicts the class of largest score.

    Each of K releases has mu / sqrt(K), mu the level of Gaussian differential privacy of the whole.
    """

    def __init__(self, epsilon: float, *, schema: Schema, classes: tuple[int, ...]) -> None:
        self.epsilon, self.schema, self.classes = epsilon, schema, classes

    def fit(self, X: pd.DataFrame, y: NDArray[np.int64]) -> OneVsRestMoments:
        delta = 1 / len(y) ** 2
        each = gaussian_mu(self.epsilon, delta) / math.sqrt(len(self.classes))
        own = brentq(lambda e: gaussian_mu(e, delta) - each, 1e-4 * self.epsilon, self.epsilon)
        options: dict[str, Any] = {"delta": delta, "mechanism": _MOMENTS, "schema": self.schema}
        self.models = [
            PrivateLogisticRegression(own, classes=(False, True), **options).fit(X, y == k)
            for k in self.classes
        ]
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.int64]:
        scores = [model.decision_function(X) for model in self.models]
        return np.asarray(np.argmax(scores, axis=0))


def _perturbed(epsilon: float, **known: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(epsilon, mechanism="objective-perturbation", **known)


def _one_release(epsilon: float, **known: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(epsilon, mechanism=_MOMENTS, **known)


MODELS: dict[str, Callable[..., Any]] = {
    "card": PrivateHalfspaceClassifier,
    "linear, one release": _one_release,
    "linear, a release of moments for each class": OneVsRestMoments,
    "linear, objective perturbation for each class": _perturbed,
    "tree": PrivateTreeClassifier,
}


@dataclass(frozen=True)
class Line:
    """Measures of one model on held-out records."""

    task: str
    draw: int
    model: str
    epsilon: float
    accuracy: float
    balanced_accuracy: float


TASKS: dict[str, Callable[[int], Task]] = {
    "4 classes, multinomial": partial(synthetic, "multinomial"),
    "4 classes, ordered": partial(synthetic, "ordered"),
    "Covertype, 7 classes": covertype,
}


class Cell(NamedTuple):
    task: str
    draw: int

    def __str__(self) -> str:
        return f"{self.task}, draw {self.draw}"


def measures(task: Task, seed: int, epsilon: float) -> Iterator[Line]:
    """Yield accuracy and balanced accuracy of every model on held-out records."""
    order = np.random.default_rng(seed).permutation(len(task.labels))
    train, test = order[: task.trained], order[task.trained :]
    classes = tuple(range(int(task.labels.max()) + 1))
    for name, make in MODELS.items():
        model = make(epsilon, schema=task.schema, classes=classes)
        said = model.fit(task.records.iloc[train], task.labels[train]).predict(task.records.iloc[test])
        right = float(np.mean(said == task.labels[test]))
        balanced = float(balanced_accuracy_score(task.labels[test], said))
        yield Line(task.name, seed, name, epsilon, right, balanced)


def measured(cell: Cell) -> list[Line]:
    """Fit every model at every epsilon to one draw of the records."""
    task = TASKS[cell.task](cell.draw)
    return [line for epsilon in EPSILONS for line in measures(task, cell.draw, epsilon)]


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate mean accuracy and balanced accuracy: a row per task and model, a column per epsilon."""
    rows = []
    for (task, model), group in lines.groupby(["task", "model"], sort=False):
        means = group.groupby("epsilon")[["accuracy", "balanced_accuracy"]].mean()
        cells = {f"{e:g}": f"{right:.3f} / {balanced:.3f}" for e, right, balanced in means.itertuples()}
        rows.append({"table": task, "model": model, **cells})
    return pd.DataFrame(rows)


def page(lines: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    places = {"draws": f"{lines['draw'].nunique()}", "figures": markdown_table(table(lines))}
    return filled("howto/several-classes", places)


STUDY = Study[Cell](
    "several-classes",
    Line,
    ("task", "draw", "model", "epsilon"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(task=cell.task, draw=cell.draw)),
    page=page,
)


def main(
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each table.")] = 5,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path(
        "several-classes"
    ),
) -> None:
    """Measure the missing draws, and write the page."""
    cells = [Cell(task, draw) for draw in range(draws) for task in TASKS]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

"""Compare linear models of wide and sparse tables: screened features, and Frank-Wolfe over an l1 ball.

    python -m privopt.experiments.wide_tables [--tables 5] [--records 4000] [--output FOLDER]

Writes ``wide-tables.md``, and ``wide-tables.csv``, which keeps the results of finished tables: an interrupted
run resumes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import typer
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.convex.sufficient_statistics import MOST_FEATURES
from privopt.mechanisms.estimators.repeats import RepeatedReleaseWarning
from privopt.mechanisms.privacy.usefulness import NoiseWarning

EPSILONS = (1.0, 3.0, 5.0, 20.0)
MECHANISMS = ("auto", "sufficient-statistics", "dp-fw-l1")
FREE = "without privacy"
_FEATURES = 5_000
Floats = NDArray[np.float64]
Table = tuple[Any, Floats]


@dataclass(frozen=True)
class Line:
    """The AUC of one fit; epsilon is infinite without privacy."""

    task: str
    table: int
    mechanism: str
    epsilon: float
    auc: float


@dataclass(frozen=True)
class Cell:
    """One table of a task, with ``records`` training records and as many held-out ones."""

    task: str
    table: int
    records: int

    def __str__(self) -> str:
        return f"{self.task}, table {self.table}"


def rare_features(rows: int, rng: np.random.Generator) -> Table:
    """Draw 5,000 independent 0/1 features with Zipf frequencies, of which a record has 137 on average.

    Labels depend on 40 of the features, with effects of equal size and random sign; 5% to 23% of the records
    have such a feature.
    """
    zipf = 1 / (np.arange(_FEATURES) + 10.0)
    shares = np.minimum(139 * zipf / zipf.sum(), 0.5)
    shares = np.minimum(139 * shares / shares.sum(), 0.5)
    columns = [np.flatnonzero(rng.random(rows) < share) for share in shares]
    X = _zeros_and_ones(columns, rows).T.tocsr()
    weights = np.zeros(_FEATURES)
    weights[100 + rng.choice(400, 40, replace=False)] = 2.1 * rng.choice([-1, 1], 40)
    return X, _labels(X @ weights, 0.5, rng)


def topics(rows: int, rng: np.random.Generator) -> Table:
    """Draw documents of words from mixtures of 20 topics, whose shares decide the label.

    Words have Zipf frequencies, times a gamma variable for each topic. Features say whether a word occurs.
    19% of the labels are positive.
    """
    words = rng.gamma(0.3, size=(20, _FEATURES)) / (np.arange(_FEATURES) + 5.0)
    words /= words.sum(axis=1, keepdims=True)
    mixtures = rng.dirichlet(np.full(20, 0.2), rows)
    lengths = rng.poisson(190, rows) + 5
    drawn = [
        np.unique(rng.choice(_FEATURES, length, p=mixture @ words))
        for length, mixture in zip(lengths, mixtures, strict=True)
    ]
    return _zeros_and_ones(drawn, _FEATURES), _labels(mixtures @ rng.normal(size=20) * 4, 0.19, rng)


def many_numbers(rows: int, rng: np.random.Generator) -> Table:
    """Draw 600 uniform numbers, on all of which labels depend: neither rows nor weights are sparse."""
    X = rng.uniform(-1, 1, (rows, 600))
    scores = X @ rng.normal(size=600)
    return X, _labels(scores / np.std(scores) * 1.6, 0.5, rng)


TASKS: dict[str, Callable[[int, np.random.Generator], Table]] = {
    "40 of 5,000 rare features": rare_features,
    "words of topics, 19% positive": topics,
    "600 numbers, all of them": many_numbers,
}


def _zeros_and_ones(places: list[Any], width: int) -> Any:
    """Return a sparse table of zeros, with ones at the given places of each row."""
    indices, ends = np.concatenate(places), np.cumsum([0, *map(len, places)])
    return sp.csr_array((np.ones(len(indices)), indices, ends), shape=(len(places), width))


def _labels(scores: Floats, share: float, rng: np.random.Generator) -> Floats:
    """Draw logistic labels, with an intercept by which the share ``share`` is positive on average."""
    middle = brentq(lambda c: float(np.mean(expit(scores - c))) - share, -100, 100)
    return (rng.random(len(scores)) < expit(scores - middle)).astype(np.float64)


def auc(model: Any, X: Any, y: Floats) -> float:
    return float(roc_auc_score(y, model.decision_function(X)))


def fitted(mechanism: str, epsilon: float, X: Any, y: Floats) -> PrivateLogisticRegression:
    model = PrivateLogisticRegression(
        epsilon, mechanism=mechanism, data_norm=1.0, norm="linf", classes=(0.0, 1.0)
    )
    with warnings.catch_warnings():
        for kind in (RepeatedReleaseWarning, NoiseWarning):  # the records are synthetic
            warnings.simplefilter("ignore", kind)
        return model.fit(X, y)


def measured(cell: Cell) -> list[Line]:
    """Fit every mechanism at every epsilon to one table."""
    n = cell.records
    X, y = TASKS[cell.task](2 * n, np.random.default_rng(cell.table))
    train, test = (X[:n], y[:n]), (X[n:], y[n:])

    def line(mechanism: str, epsilon: float, model: Any) -> Line:
        return Line(cell.task, cell.table, mechanism, epsilon, round(auc(model, *test), 5))

    small = X.shape[1] < MOST_FEATURES
    chosen = [name for name in MECHANISMS if small or name != "sufficient-statistics"]
    return [
        line(FREE, math.inf, LogisticRegression(max_iter=300).fit(*train)),
        *(line(name, e, fitted(name, e, *train)) for name in chosen for e in EPSILONS),
    ]


def page(lines: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    rows = []
    for task, some in lines.groupby("task", sort=False):
        plain = some[some["mechanism"] == FREE]["auc"].mean()
        for mechanism, group in some[some["mechanism"] != FREE].groupby("mechanism", sort=False):
            of = group.groupby("epsilon")["auc"]
            means, errors = of.mean(), of.sem(ddof=1).fillna(0)
            cells = {f"{e:g}": f"{means[e]:.3f} ± {errors[e]:.3f}" for e in EPSILONS}
            rows.append({"task": task, "mechanism": mechanism} | cells | {FREE: f"{plain:.3f}"})
    places = {"tables": f"{lines['table'].nunique()}", "figures": markdown_table(pd.DataFrame(rows))}
    return filled("wide-tables", places)


STUDY = Study[Cell](
    "wide-tables",
    Line,
    ("task", "table", "mechanism", "epsilon"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(task=cell.task, table=cell.table)),
    page=page,
)


def main(
    tables: Annotated[int, typer.Option(min=1, help="Number of tables of each task.")] = 5,
    records: Annotated[int, typer.Option(min=100, help="Number of training and of test records.")] = 4_000,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path("wide-tables"),
) -> None:
    """Measure the missing tables, and write the page."""
    cells = [Cell(task, table, records) for table in range(tables) for task in TASKS]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

"""Measure default linear models, regression and classification, under small budgets, beside AdaSSP.

    python -m privopt.experiments.small_budgets [--draws 30] [--shard K/N] [--output FOLDER]

Writes ``small-budgets.md``, and ``small-budgets.csv``, which keeps the results of finished draws: an
interrupted run resumes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.private_peers import ada_ssp
from privopt.experiments.workbench.study import ShardText, Study
from privopt.mechanisms import PrivateLinearRegression, PrivateLogisticRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.datasets.adult import adult_schema, load_adult
from privopt.problems.datasets.covertype import covertype_binary
from privopt.problems.tables.schema import Schema

EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Budgets at which results vary most have all draws; the other budgets have the first ``FIRST_DRAWS`` only.
NOISY, FIRST_DRAWS = (0.1, 0.3, 1.0), 10
MECHANISMS = ("auto", "sufficient-statistics", "objective-perturbation")
FREE = "without privacy"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Records with a public bound on row norms; labels are numbers in [0, 1], or classes 0 and 1.

    The first three quarters are for training, the last quarter for the test.
    """

    name: str
    X: Floats
    y: Floats
    norm: float

    @property
    def trained(self) -> int:
        return int(0.75 * len(self.X))

    @property
    def classes(self) -> bool:
        return bool(np.all((self.y == 0) | (self.y == 1)))


@dataclass(frozen=True)
class Line:
    """One measure of one draw; epsilon is infinite without privacy."""

    task: str
    records: int
    features: int
    draw: int
    mechanism: str
    epsilon: float
    measure: str
    value: float


class Cell(NamedTuple):
    task: Task
    draw: int

    def __str__(self) -> str:
        return f"{self.task.name}, draw {self.draw}"

    @property
    def key(self) -> dict[str, object]:
        return {"task": self.task.name, "draw": self.draw}


def tasks() -> Iterator[Task]:
    """Generate synthetic tables of categories and of numbers, and load Adult and Covertype."""
    for seed, (n, columns, levels) in enumerate([(4_000, 10, 4), (8_000, 7, 4), (26_000, 12, 5)]):
        rng = np.random.default_rng(seed)
        chosen = [rng.choice(levels, n, p=rng.dirichlet(np.ones(levels))) for _ in range(columns)]
        X = np.concatenate([np.eye(levels)[c] for c in chosen], axis=1)
        yield from _labelled(f"{columns} columns of {levels} levels", X, rng, math.sqrt(columns))
    for n, d in ((6_500, 5), (26_000, 12)):
        rng = np.random.default_rng(d)
        X = np.clip(rng.normal(size=(n, d)) @ (np.eye(d) + rng.normal(size=(d, d)) / 2) / 5, -1, 1)
        yield from _labelled(f"{d} correlated numbers", X, rng, math.sqrt(d))
    table, whole = load_adult("train").sample(frac=1, random_state=0), adult_schema()
    for target, high in (("hours-per-week", 100.0), ("age", 90.0)):
        schema = Schema([c for c in whole.columns if c.name != target])
        y = np.clip(np.asarray(table[target], dtype=float) / high, 0, 1)
        yield Task(f"Adult, {target}", encoded(schema, table), y, schema.norm())
    X, cover = covertype_binary()  # scaled to [0, 1]; ten quantities and two categories
    kept = np.random.default_rng(0).permutation(len(X))[:60_000]
    yield Task("Covertype, elevation", X[kept, 1:], X[kept, 0], math.sqrt(11))
    yield Task("Covertype, type 2", X[kept], (cover[kept] > 0).astype(float), math.sqrt(12))


def _labelled(name: str, X: Floats, rng: np.random.Generator, norm: float) -> Iterator[Task]:
    signal = X @ (rng.normal(size=X.shape[1]) * (rng.random(X.shape[1]) < 0.6))
    skewed = np.exp((signal - signal.mean()) / 2 + rng.normal(size=len(X)) / 2)
    yield Task(f"{name}, skewed label", X, np.clip(skewed / 8, 0, 1), norm)
    latent = signal + rng.logistic(size=len(X))
    yield Task(f"{name}, 10% positive", X, (latent > np.quantile(latent, 0.9)).astype(float), norm)


def by_ada_ssp(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> Floats:
    """Return predictions of AdaSSP for the held-out records."""
    X, y, rest = task.X[: task.trained], task.y[: task.trained] - 0.5, task.X[task.trained :]
    w = ada_ssp(X, y, task.norm, epsilon, delta, rng)
    return np.asarray(rest @ w[:-1] + w[-1] * task.norm / 2 + 0.5)


def mean_alone(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> Floats:
    """Predict for every record the mean label, released with Gaussian noise for the whole budget."""
    noise = rng.normal() / (task.trained * gaussian_mu(epsilon, delta))
    return np.full(len(task.X) - task.trained, float(np.mean(task.y[: task.trained])) + noise)


def scores(task: Task, predicted: Floats, probability: Floats | None = None) -> dict[str, float]:
    y = task.y[task.trained :]
    if not task.classes:
        return {"R^2": float(r2_score(y, np.clip(predicted, 0, 1)))}
    lost = {} if probability is None else {"log loss": float(log_loss(y, probability))}
    return {"AUC": float(roc_auc_score(y, predicted)), **lost}


def without_privacy(task: Task) -> dict[str, float]:
    X, y, rest = task.X[: task.trained], task.y[: task.trained], task.X[task.trained :]
    if not task.classes:
        return scores(task, LinearRegression().fit(X, y).predict(rest))
    model = LogisticRegression(max_iter=3000).fit(X, y)
    return scores(task, model.decision_function(rest), model.predict_proba(rest)[:, 1])


def draw(task: Task, mechanism: str, epsilon: float) -> dict[str, float]:
    X, y, rest = task.X[: task.trained], task.y[: task.trained], task.X[task.trained :]
    options: dict[str, Any] = {"mechanism": mechanism, "data_norm": task.norm}
    if not task.classes:
        regression = PrivateLinearRegression(epsilon, label_range=(0.0, 1.0), **options)
        return scores(task, regression.fit(X, y).predict(rest))
    model = PrivateLogisticRegression(epsilon, classes=(0.0, 1.0), **options).fit(X, y)
    return scores(task, model.decision_function(rest), model.predict_proba(rest)[:, 1])


def measured(cell: Cell) -> list[Line]:
    """Fit every model once at every epsilon, and in the first draw also the model without privacy."""
    task, k = cell
    found = [] if k else [(FREE, math.inf, without_privacy(task))]
    for epsilon in EPSILONS if k < FIRST_DRAWS else NOISY:
        found += [(name, epsilon, draw(task, name, epsilon)) for name in MECHANISMS]
        delta, seed = 1 / task.trained**2, [k, int(1000 * epsilon)]
        ssp = by_ada_ssp(task, epsilon, delta, np.random.default_rng(seed))
        found.append(("AdaSSP", epsilon, scores(task, ssp)))
        if not task.classes:
            mean = mean_alone(task, epsilon, delta, np.random.default_rng([*seed, 1]))
            found.append(("mean alone", epsilon, scores(task, mean)))
    return [
        Line(task.name, task.trained, task.X.shape[1], k, name, epsilon, measure, round(value, 5))
        for name, epsilon, values in found
        for measure, value in values.items()
    ]


def page(lines: pd.DataFrame) -> str:
    """Write the page of the documentation: a table for each measure."""
    parts = []
    for measure, some in lines.groupby("measure", sort=False):
        rows = []
        for (task, n, d), group in some.groupby(["task", "records", "features"], sort=False):
            means = group.groupby(["mechanism", "epsilon"], sort=False)["value"].mean()
            for name in dict.fromkeys(group["mechanism"]):
                if name != FREE:
                    row = {"task": task, "n": f"{n:,}", "features": d, "mechanism": name}
                    row |= {f"{e:g}": f"{value:.3f}" for e, value in means[name].items()}
                    rows.append(row | {FREE: f"{means[FREE, math.inf]:.3f}"})
        parts.append(f"## {measure}\n\n{markdown_table(pd.DataFrame(rows))}")
    draws = f"{lines['draw'].nunique()}"
    return filled("small-budgets", {"draws": draws, "tables": "\n\n".join(parts)})


STUDY = Study[Cell](
    "small-budgets",
    Line,
    ("task", "draw", "mechanism", "epsilon", "measure"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
    page=page,
)


def main(
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each setting.")] = 30,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path("small-budgets"),
    shard: ShardText = None,
) -> None:
    """Measure the missing draws, and write the page."""
    cells = [Cell(task, k) for task in tasks() for k in range(draws)]
    STUDY.run(output, cells, shard=shard)


if __name__ == "__main__":
    typer.run(main)

"""Several classes: one release for all of them against one release for each, on held-out records.

    python -m privopt.experiments.several_classes [--draws 5] [--output several-classes.csv]

Two synthetic tables of four classes, and Covertype with its seven; records to train on are drawn anew.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.metrics import balanced_accuracy_score

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression, PrivateTreeClassifier
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.datasets.covertype import covertype_bounds, load_covertype
from privopt.problems.files import write_atomically
from privopt.problems.tables.columns import Binned, Categorical, Numeric
from privopt.problems.tables.schema import Schema

EPSILONS = (0.1, 0.3, 1.0, 3.0)
_LEVELS, _CLASSES = ("a", "b", "c", "d"), 4
_MOMENTS = "sufficient-statistics"


@dataclass(frozen=True)
class Task:
    """Records with classes 0, 1, ...; ``trained`` of them are trained on, the others are held out."""

    name: str
    records: pd.DataFrame
    labels: NDArray[np.int64]
    schema: Schema
    trained: int


def synthetic(name: str, seed: int) -> Task:
    """Six categories and four numbers; multinomial classes, or ordered ones along one score."""
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
    """40,000 records of Covertype, its ten quantities in twelve bins of their public ranges."""
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
    """Noisy moments released once for each class, at mu / sqrt(K), and the class of the largest score."""

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


def measures(task: Task, seed: int, epsilon: float) -> Iterator[dict[str, Any]]:
    """Yield accuracy and balanced accuracy of every model on held-out records."""
    order = np.random.default_rng(seed).permutation(len(task.labels))
    train, test = order[: task.trained], order[task.trained :]
    classes = tuple(range(int(task.labels.max()) + 1))
    for name, make in MODELS.items():
        model = make(epsilon, schema=task.schema, classes=classes)
        said = model.fit(task.records.iloc[train], task.labels[train]).predict(task.records.iloc[test])
        yield {
            "task": task.name,
            "model": name,
            "epsilon": epsilon,
            "accuracy": float(np.mean(said == task.labels[test])),
            "balanced accuracy": float(balanced_accuracy_score(task.labels[test], said)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=5, help="tables of each kind")
    parser.add_argument("--output", type=Path, default=Path("several-classes.csv"), help="file of every fit")
    options = parser.parse_args()
    rows = []
    for seed in range(options.draws):
        for task in (synthetic("multinomial", seed), synthetic("ordered", seed), covertype(seed)):
            rows += [row for epsilon in EPSILONS for row in measures(task, seed, epsilon)]
    found = pd.DataFrame(rows)
    write_atomically(options.output, found.to_csv(index=False, float_format="%.4g"))
    print(found.groupby(["task", "model", "epsilon"])["accuracy"].mean().unstack().round(3).to_string())
    print(
        found.groupby(["task", "model", "epsilon"])["balanced accuracy"].mean().unstack().round(3).to_string()
    )


if __name__ == "__main__":
    main()

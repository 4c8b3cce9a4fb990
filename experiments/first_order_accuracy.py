"""Accuracy against epsilon of logistic regression on Adult and Covertype: a table and a picture.

Run: ``python -m privopt.experiments.first_order_accuracy OUTPUT [DRAWS]``.

Every mechanism runs with its defaults: nothing is tuned on the data, and bounds on rows are the schema's.
Neighbours: replace-one; delta = 1/n^2. The data is public and the noise seeded, so that the page can be
reproduced; accuracies are facts about the records.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.experiments.figures import accuracy_figure, save
from privopt.experiments.first_order_command import encoded, schema_norm
from privopt.mechanisms.classifier import write_atomically
from privopt.mechanisms.estimators import PrivateLogisticRegression
from privopt.mechanisms.utility import accuracy
from privopt.oracles.smooth import minimize_ridge
from privopt.problems.adult import adult_labels, adult_schema, load_adult
from privopt.problems.covertype import covertype_binary
from privopt.problems.losses import LogisticLoss
from privopt.problems.risk import EmpiricalRisk

EPSILONS = (0.1, 1.0, 5.0)
MECHANISMS = (
    *("objective-perturbation", "output-perturbation", "dp-gd", "dp-accmd", "dp-fw-l2", "dp-fw-l1"),
)
_TRAIN = 50_000  # records of Covertype that the default run trains on; the rest is the test set


@dataclass(frozen=True)
class Task:
    """A binary task with labels -1 and +1 and a public bound on rows."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    norm: float


def adult_task() -> Task:
    """All 14 attributes of Adult, 108 features; the training and the test file."""
    schema, train, test = adult_schema(), load_adult("train"), load_adult("test")
    return Task(
        "Adult",
        encoded(schema, train),
        adult_labels(train),
        encoded(schema, test),
        adult_labels(test),
        schema_norm(schema),
    )


def covertype_task(train: int = _TRAIN) -> Task:
    """Lodgepole Pine against the rest; ``train`` records drawn at random, the others are the test set."""
    X, y = covertype_binary()
    order = np.random.default_rng(0).permutation(len(y))
    return Task("Covertype", X[order[:train]], y[order[:train]], X[order[train:]], y[order[train:]], 12**0.5)


def rows(task: Task, draws: int) -> Iterator[dict[str, object]]:
    """One row per mechanism, epsilon and draw."""
    for mechanism in MECHANISMS:
        for epsilon in EPSILONS:
            for draw in range(draws):
                began = time.perf_counter()
                model = PrivateLogisticRegression(
                    epsilon, mechanism=mechanism, data_norm=task.norm, classes=(-1, 1), insecure_seed=draw
                ).fit(task.X, task.y)
                seconds = time.perf_counter() - began
                yield {
                    "lattice": task.name,
                    "mechanism": mechanism,
                    "epsilon": epsilon,
                    "draw": draw,
                    "train_accuracy": float(model.score(task.X, task.y)),
                    "test_accuracy": float(model.score(task.X_test, task.y_test)),
                    "seconds": seconds,
                }


def reference(task: Task) -> float:
    """Test accuracy of the regression without noise, with a slight ridge."""
    constant = np.full((len(task.y), 1), task.norm)
    risk = EmpiricalRisk(np.hstack([task.X, constant]), task.y, LogisticLoss(), row_norm=task.norm * 2**0.5)
    w = minimize_ridge(risk, 1e-6, 1e-6).point
    test = np.hstack([task.X_test, np.full((len(task.y_test), 1), task.norm)])
    return accuracy(EmpiricalRisk(test, task.y_test, LogisticLoss(), row_norm=task.norm * 2**0.5), w)


def run(output: Path, draws: int) -> pd.DataFrame:
    """Write first-order-accuracy.csv, .md and a picture per task."""
    output.mkdir(parents=True, exist_ok=True)
    found, pages = [], []
    for task in (adult_task(), covertype_task()):
        part = pd.DataFrame(rows(task, draws))
        best = reference(task)
        larger = max(np.mean(task.y_test == 1), np.mean(task.y_test == -1))
        figure = accuracy_figure(part, {"not private": best, "larger class": larger}, "test_accuracy")
        save(figure, output / f"first-order-{task.name.lower()}.png")
        pages.append(
            f"## {task.name}: n = {len(task.y)}, d = {task.X.shape[1]}; test accuracy without privacy "
            f"{best:.4f}, of the larger class {larger:.4f}\n\n```\n{table(part)}\n```\n"
        )
        found.append(part)
    write_atomically(output / "first-order-accuracy.md", "\n".join(pages))
    everything = pd.concat(found)
    write_atomically(output / "first-order-accuracy.csv", everything.to_csv(index=False))
    return everything


def table(part: pd.DataFrame) -> str:
    """Mean and standard deviation of the test accuracy, and the median time of a fit."""
    measures = part.groupby(["mechanism", "epsilon"], sort=False).agg(
        test=("test_accuracy", "mean"),
        deviation=("test_accuracy", "std"),
        train=("train_accuracy", "mean"),
        seconds=("seconds", "median"),
    )
    return measures.to_string(float_format="{:.4f}".format)


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("accuracy-output")
    run(output, int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    print((output / "first-order-accuracy.md").read_text())


if __name__ == "__main__":
    main()

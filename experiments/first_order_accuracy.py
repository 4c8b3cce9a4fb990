"""Measure accuracy against epsilon of logistic regression on Adult and Covertype, beside other libraries.

    python -m privopt.experiments.first_order_accuracy --output FOLDER [--draws 10]

Writes ``first-order-accuracy.csv`` (a line per draw, appended as the draw finishes: an interrupted run
resumes), ``first-order-accuracy.md`` and a picture per task. Every mechanism of privopt runs with its
defaults, which are functions of public facts; bounds on rows follow from the schema. The data are public and
the noise is seeded, so that a run can be reproduced; accuracies are facts about the records. Other libraries
take part where they are installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from privopt.experiments.workbench import peers
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import accuracy_figure
from privopt.experiments.workbench.measures import accuracy
from privopt.experiments.workbench.pages import filled, markdown_table, processor
from privopt.experiments.workbench.runs import KEY, Row, key_of
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.estimators.bounded_linear import PrivateLogisticRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.oracles.convex.smooth import minimize_ridge
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk, RowNorm
from privopt.problems.datasets.adult import adult_labels, adult_schema, load_adult
from privopt.problems.datasets.covertype import covertype_binary

EPSILONS = (0.1, 0.3, 1.0, 3.0)
PANELS = {
    "Steps on all records": ("dp-gd", "dp-pgd", "dp-accmd", "dp-fw-l2", "dp-fw-l1"),
    "Steps on batches": (
        "dp-sgd",
        "dp-svrg",
        "dp-svrg++",
        "Opacus DP-SGD, replace-one",
        "Opacus DP-SGD, add/remove",
    ),
    "Perturbed objectives and minimisers": ("objective-perturbation", "output-perturbation", "diffprivlib"),
}
MECHANISMS = (
    "objective-perturbation",
    "output-perturbation",
    "dp-gd",
    "dp-pgd",
    "dp-accmd",
    "dp-sgd",
    "dp-svrg",
    "dp-svrg++",
    "dp-fw-l2",
    "dp-fw-l1",
)
# Mechanisms with thousands of steps get fewer draws, so that the page takes minutes.
SLOW, SLOW_DRAWS = ("dp-gd", "dp-pgd", "dp-svrg", "dp-svrg++"), 3
_TRAIN = 50_000  # number of training records of Covertype; the other records are the test set
# features -> -1 or +1
Predictor = Callable[[NDArray[np.float64]], NDArray[np.int64]]


@dataclass(frozen=True)
class Task:
    """A binary task with labels -1 and +1, and public bounds on rows.

    Attributes:
        norm: bound on the l2 norm of a row.
        largest: bound on the size of an entry.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    norm: float
    largest: float

    @property
    def delta(self) -> float:
        return 1.0 / len(self.y) ** 2


def adult_task() -> Task:
    """Load Adult with all 14 attributes (108 features): the training and the test file."""
    schema, train, test = adult_schema(), load_adult("train"), load_adult("test")
    return Task(
        "Adult",
        encoded(schema, train),
        adult_labels(train),
        encoded(schema, test),
        adult_labels(test),
        schema.norm(),
        schema.norm("linf"),
    )


def covertype_task(train: int = _TRAIN) -> Task:
    """Load Covertype, Lodgepole Pine against the rest, with ``train`` random training records."""
    X, y = covertype_binary()
    order = np.random.default_rng(0).permutation(len(y))
    chosen, rest = order[:train], order[train:]
    return Task("Covertype", X[chosen], y[chosen], X[rest], y[rest], norm=12**0.5, largest=1.0)


Fit = Callable[[Task, float, int], Predictor]  # task, epsilon, seed


def fits() -> dict[str, Fit]:
    """Return every competitor by name: privopt's mechanisms, then the installed peers."""
    found: dict[str, Fit] = {name: partial(_fit_ours, name) for name in MECHANISMS}
    if peers.module("diffprivlib.models"):
        found["diffprivlib"] = partial(_fit_peer, peers.diffprivlib_fit)
    if peers.module("opacus") and peers.module("torch"):
        for name, replace_one in (("replace-one", True), ("add/remove", False)):
            fit = partial(peers.opacus_fit, replace_one=replace_one)
            found[f"Opacus DP-SGD, {name}"] = partial(_fit_peer, fit)
    return found


def _fit_ours(mechanism: str, task: Task, epsilon: float, seed: int) -> Predictor:
    norm: RowNorm = "linf" if mechanism == "dp-fw-l1" else "l2"  # dual to the norm of its ball
    model = PrivateLogisticRegression(
        epsilon,
        mechanism=mechanism,
        delta=task.delta,
        data_norm=task.largest if norm == "linf" else task.norm,
        norm=norm,
        classes=(-1, 1),
        insecure_seed=seed,
    )
    return model.fit(task.X, task.y).predict


def _fit_peer(fit: Callable[..., peers.Weights], task: Task, epsilon: float, seed: int) -> Predictor:
    w, intercept = fit(task.X, task.y, task.norm, epsilon, task.delta, seed)
    return lambda X: np.where(X @ w + intercept > 0, 1, -1)


@dataclass(frozen=True)
class Cell:
    """One fit of a competitor."""

    task: Task
    name: str
    epsilon: float
    draw: int

    @property
    def key(self) -> dict[str, object]:
        return key_of(self.name, self.task.name, self.epsilon, self.draw)

    def __str__(self) -> str:
        return f"{self.task.name}: {self.name}, epsilon {self.epsilon:g}"

    def row(self, fit: Fit) -> Row:
        """Fit, and measure accuracy on both tables."""
        task = self.task
        began = time.perf_counter()
        predict = fit(task, self.epsilon, self.draw)
        seconds = time.perf_counter() - began
        return Row(
            mechanism=self.name,
            lattice=task.name,
            epsilon=self.epsilon,
            delta=task.delta,
            draw=self.draw,
            oracle="gradient",
            train_accuracy=float(np.mean(predict(task.X) == task.y)),
            test_accuracy=float(np.mean(predict(task.X_test) == task.y_test)),
            status="NO_CERTIFICATE",
            gap=float("nan"),
            seconds=seconds,
        )


def cells(tasks: Sequence[Task], draws: int, epsilons: Sequence[float] = EPSILONS) -> list[Cell]:
    """Return every draw of every competitor."""
    return [
        Cell(task, name, epsilon, draw)
        for task in tasks
        for name in fits()
        for epsilon in epsilons
        for draw in range(draws_of(name, draws))
    ]


def draws_of(competitor: str, draws: int) -> int:
    """Return the number of draws of a competitor, where a fast one has ``draws``."""
    return min(draws, SLOW_DRAWS) if competitor in SLOW else draws


def reference(task: Task) -> float:
    """Return the test accuracy of the regression without noise, with a small ridge penalty."""
    constant = np.full((len(task.y), 1), task.norm)
    risk = EmpiricalRisk(np.hstack([task.X, constant]), task.y, LogisticLoss(), row_norm=task.norm * 2**0.5)
    w = minimize_ridge(risk, 1e-6, 1e-6).point
    test = np.hstack([task.X_test, np.full((len(task.y_test), 1), task.norm)])
    return accuracy(EmpiricalRisk(test, task.y_test, LogisticLoss(), row_norm=task.norm * 2**0.5), w)


def study(tasks: Sequence[Task]) -> Study[Cell]:
    """Return the study of these tasks, with a section of the page and a picture per task."""
    competitors = fits()
    return Study(
        "first-order-accuracy",
        Row,
        KEY,
        compute=lambda cell: [cell.row(competitors[cell.name])],
        is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
        page=lambda rows: _page([_section(task, rows) for task in tasks], rows["draw"].nunique()),
        figures={f"-{task.name.lower()}.png": partial(_figure, task) for task in tasks},
    )


def _figure(task: Task, rows: pd.DataFrame) -> Figure:
    best, larger = _levels(task)
    levels = {"not private": best, "larger class": larger}
    return accuracy_figure(rows[rows["lattice"] == task.name], levels, "test_accuracy", PANELS)


def _levels(task: Task) -> tuple[float, float]:
    """Return the test accuracies of the regression without privacy and of predicting the larger class."""
    return reference(task), float(max(np.mean(task.y_test == 1), np.mean(task.y_test == -1)))


def _section(task: Task, rows: pd.DataFrame) -> str:
    rows = rows[rows["lattice"] == task.name]
    best, larger = _levels(task)
    picture = f"first-order-accuracy-{task.name.lower()}.png"
    return (
        f"## {task.name}\n\n"
        f"{len(task.y):,} records to train on, {len(task.y_test):,} to test on, {task.X.shape[1]} features, "
        f"row norms at most {task.norm:.4g}, delta = {task.delta:.2g}. Test accuracy without privacy "
        f"{best:.4f}, of the larger class {larger:.4f}.\n\n{markdown_table(table(rows))}\n\n"
        f"*Test accuracy by epsilon, mean ± standard deviation of the draws; the last column is the median "
        f"time of a fit.*\n\n![test accuracy on {task.name}]({picture})\n\n"
        f"*{task.name}: mean test accuracy against epsilon, with bars of one standard deviation. Opacus and "
        "diffprivlib are shown where they were installed. Grey dashed lines: the regression without "
        "privacy, and always predicting the larger class.*"
    )


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate a line per competitor, a column per epsilon, and the median time of a fit."""
    lines = []
    for name, group in rows.groupby("mechanism", sort=False):
        points = group.groupby("epsilon")["test_accuracy"]
        cells = {
            f"{e:g}": f"{mean:.3f} ± {spread:.3f}"
            for e, mean, spread in zip(points.mean().index, points.mean(), points.std(ddof=1), strict=True)
        }
        lines.append({"": name, **cells, "s per fit": f"{group['seconds'].median():.2f}"})
    return pd.DataFrame(lines)


def _page(sections: Sequence[str], draws: int) -> str:
    versions = peers.versions("scikit-learn", "diffprivlib", "torch", "opacus")
    places = {
        "draws": f"{draws}",
        "processor": processor(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "slow": ", ".join(SLOW),
        "slow-draws": f"{SLOW_DRAWS}",
        "tasks": "\n\n".join(sections),
    }
    return filled("first-order-accuracy", places)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page, pictures and draws.")],
    draws: Annotated[int, typer.Option(min=2, help="Number of draws per competitor and epsilon.")] = 10,
) -> None:
    """Measure the missing draws, and write the page."""
    tasks = (adult_task(), covertype_task())
    study(tasks).run(output, cells(tasks, draws))


if __name__ == "__main__":
    typer.run(main)

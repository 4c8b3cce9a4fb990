"""Script that fits classifiers of other packages in an environment of their own; it does not import privopt.

    python tree_peers.py TASK.json

TASK names ``train`` and ``test``, CSV files; ``label``, a column of 0 and 1; ``bounds``, (low, high) of each
number; ``package``, "interpret" or "diffprivlib"; ``epsilons``, ``delta``, ``depth`` and ``seed``. The output
is JSON: a list of ``model``, ``epsilon``, ``scores`` of ``test`` and ``seconds``, one for each fit. A score
is the probability of the label 1.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Made = Callable[[float], Any]


def interpret(task: dict[str, Any], train: Any) -> Iterator[tuple[str, Made]]:
    """Fit differentially private explainable boosting, at its defaults."""
    found = importlib.import_module("interpret.privacy").DPExplainableBoostingClassifier
    bounds = {name: tuple(ends) for name, ends in task["bounds"].items()}
    types = ["continuous" if name in bounds else "nominal" for name in train.columns]

    def made(epsilon: float) -> Any:
        return found(
            feature_types=types,
            privacy_bounds={k: bounds[name] for k, name in enumerate(train.columns) if name in bounds},
            epsilon=epsilon,
            delta=task["delta"],
            random_state=task["seed"],
        )

    yield "DP-EBM", made


def diffprivlib(task: dict[str, Any], train: Any) -> Iterator[tuple[str, Made]]:
    """Fit a tree with random splits, of a given depth, and a forest of such trees at its defaults."""
    models = importlib.import_module("diffprivlib.models")
    known: dict[str, Any] = {"bounds": (0.0, 1.0), "classes": [0, 1], "random_state": task["seed"]}
    yield (
        "diffprivlib tree",
        lambda e: models.DecisionTreeClassifier(max_depth=task["depth"], epsilon=e, **known),
    )
    yield "diffprivlib forest", lambda e: models.RandomForestClassifier(epsilon=e, **known)


def _frames(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return records, their labels, and records to score, as data frames."""
    pandas = importlib.import_module("pandas")
    train, test = (pandas.read_csv(task[name], keep_default_na=False) for name in ("train", "test"))
    return train, train.pop(task["label"]).to_numpy(), test


def _arrays(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the same as arrays of numbers, scaled to [0, 1] by their declared bounds."""
    train, test = (np.loadtxt(task[name], delimiter=",", skiprows=1) for name in ("train", "test"))
    lows, highs = np.array(list(task["bounds"].values()), dtype=float).T
    X, others = (np.clip((half[:, : len(lows)] - lows) / (highs - lows), 0.0, 1.0) for half in (train, test))
    return X, train[:, -1].astype(int), others


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    read, models = {"interpret": (_frames, interpret), "diffprivlib": (_arrays, diffprivlib)}[task["package"]]
    X, labels, others = read(task)
    found = []
    for model, make in models(task, X):
        for epsilon in task["epsilons"]:
            began = time.perf_counter()
            fitted = make(epsilon).fit(X, labels)
            seconds = time.perf_counter() - began
            scores = fitted.predict_proba(others)[:, 1].tolist()
            found.append({"model": model, "epsilon": epsilon, "scores": scores, "seconds": seconds})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

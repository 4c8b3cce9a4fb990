"""Script that fits classifiers of other packages in a separate environment; it does not import privopt.

    python tree_peers.py TASK.json

TASK names ``train`` and ``test``, CSV files; ``label``, a column of 0 and 1; ``bounds``, (low, high) of each
number; ``schema``; ``package``, a name of ``PACKAGES``; ``epsilons``, ``delta``, ``depth`` and ``seed``. The
output is JSON: a list of ``model``, ``epsilon``, ``scores`` of ``test`` and ``seconds``, one for each fit. A
score is the probability of the label 1; for an earlier scorecard, the points.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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


def privatree(task: dict[str, Any], train: Any) -> Iterator[tuple[str, Made]]:
    """Fit a tree of PrivaTree at its defaults; its published code is a folder of the environment."""
    sys.path.insert(0, str(Path(sys.prefix) / "published"))
    found = importlib.import_module("privatree.privatree").PrivaTreeClassifier
    columns = task["schema"]["columns"]
    # One level more for categories that were not declared.
    levels = [len(c["categories"]) + 1 if "categories" in c else 0 for c in columns]
    known: dict[str, Any] = {
        "feature_range": [task["bounds"].get(c["name"], (0, 0)) for c in columns],
        "categorical_features": np.array(levels),
        "random_state": task["seed"],
    }
    yield "PrivaTree", lambda e: found(max_depth=task["depth"], epsilon=e, **known)


def earlier(task: dict[str, Any], train: Any) -> Iterator[tuple[str, Made]]:
    """Fit the scorecard of an earlier version of privopt, classes balanced, a tenth of epsilon for risks."""
    found = importlib.import_module("privopt.mechanisms").PrivateHalfspaceClassifier
    schema = task["schema"]
    for column in schema["columns"]:
        column.pop("zero", None)  # of how a card is shown; unknown to that version
    known: dict[str, Any] = {"schema": schema, "classes": (0, 1)}
    known |= {"class_weight": "balanced", "risk_share": 0.1}
    yield "card of commit 10feeddd", lambda e: found(e, **known)


def _frames(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return records, their labels, and records to score, as data frames."""
    pandas = importlib.import_module("pandas")
    texts = {
        c["name"]: str
        for c in task["schema"]["columns"]
        if any(isinstance(level, str) for level in c.get("categories", ()))
    }
    train, test = (
        pandas.read_csv(task[name], keep_default_na=False, dtype=texts) for name in ("train", "test")
    )
    return train, train.pop(task["label"]).to_numpy(), test


def _arrays(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the same as arrays of numbers, scaled to [0, 1] by their declared bounds."""
    train, test = (np.loadtxt(task[name], delimiter=",", skiprows=1) for name in ("train", "test"))
    lows, highs = np.array(list(task["bounds"].values()), dtype=float).T
    X, others = (np.clip((half[:, : len(lows)] - lows) / (highs - lows), 0.0, 1.0) for half in (train, test))
    return X, train[:, -1].astype(int), others


def _codes(task: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the same as arrays of numbers without scaling."""
    train, test = (np.loadtxt(task[name], delimiter=",", skiprows=1) for name in ("train", "test"))
    return train[:, :-1], train[:, -1].astype(int), test


PACKAGES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "interpret": (_frames, interpret),
    "diffprivlib": (_arrays, diffprivlib),
    "privatree": (_codes, privatree),
    "earlier": (_frames, earlier),
}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    read, models = PACKAGES[task["package"]]
    X, labels, others = read(task)
    found = []
    for model, make in models(task, X):
        for epsilon in task["epsilons"]:
            began = time.perf_counter()
            fitted = make(epsilon).fit(X, labels)
            seconds = time.perf_counter() - began
            if task["package"] == "earlier":
                scores = fitted.decision_function(others)
            else:
                scores = fitted.predict_proba(others)[:, 1]
            seen = {"model": model, "epsilon": epsilon, "scores": scores.tolist(), "seconds": seconds}
            found.append(seen)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

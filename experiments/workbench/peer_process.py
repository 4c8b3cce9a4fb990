"""Script that fits a model of another package in a separate environment; it does not import privopt.

    python peer_process.py {fasterrisk,diffprivlib} TASK.npz OPTIONS

TASK contains ``train`` and ``test``, features of shape (n, d), and ``labels``, the labels 0 and 1 of
``train``. OPTIONS are JSON. The output is JSON: ``scores`` of ``test``, ``points`` (the number of nonzero
weights), ``seconds`` of the fit.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import numpy as np


def fasterrisk(train: Any, labels: Any, columns: int) -> tuple[Any, float]:
    """Fit integer weights of at most ``columns`` features, without privacy (Liu et al. 2022), at defaults."""
    optimizer = importlib.import_module("fasterrisk.fasterrisk").RiskScoreOptimizer
    model = optimizer(X=train, y=np.where(labels > 0, 1.0, -1.0), k=columns)
    model.optimize()
    _, offsets, weights = model.get_models()
    return weights[0], offsets[0]


def diffprivlib(train: Any, labels: Any, epsilon: float, data_norm: float, seed: int) -> tuple[Any, float]:
    """Fit logistic regression at its defaults, pure epsilon, for rows of norm at most ``data_norm``."""
    regression = importlib.import_module("diffprivlib.models").LogisticRegression
    model = regression(epsilon=epsilon, data_norm=data_norm, random_state=seed).fit(train, labels)
    return np.ravel(model.coef_), np.ravel(model.intercept_)[0]


def main() -> None:
    name, task, options = sys.argv[1:]
    data = np.load(task)
    fit: Any = {"fasterrisk": fasterrisk, "diffprivlib": diffprivlib}[name]
    began = time.perf_counter()
    weights, offset = fit(data["train"], data["labels"], **json.loads(options))
    seconds = time.perf_counter() - began
    scores = data["test"] @ weights + offset
    print(
        json.dumps({"scores": scores.tolist(), "points": int(np.count_nonzero(weights)), "seconds": seconds})
    )


if __name__ == "__main__":
    main()

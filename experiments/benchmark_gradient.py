"""What a gradient step costs: time per full pass over Covertype against reading the matrix once, and NumPy.

Run: ``python -m privopt.experiments.benchmark_gradient``.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import expit

from privopt.mechanisms.first_order import DPFrankWolfeL1, DPGradientDescent
from privopt.problems.covertype import covertype_binary
from privopt.problems.losses import LogisticLoss
from privopt.problems.risk import EmpiricalRisk
from privopt.problems.sets import L1Ball

_REPEATS = 7
_STEPS = 5


def gradient_costs(dtype: Any) -> dict[str, float]:
    """Seconds per pass (the best of a few), ratios, and peak extra memory in MB, all in this run.

    read: ``X.sum()``, which streams the matrix once and does nothing else. numpy: the textbook expression
    with full-length temporaries. full: ``EmpiricalRisk.gradient``, which also clips rows. step: one noisy
    iteration of DP-GD, everything included.
    """
    X, y = covertype_binary(dtype)
    signs: Any = y.astype(X.dtype)
    w: Any = np.random.default_rng(0).normal(size=X.shape[1])
    risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=12**0.5)
    plan = DPGradientDescent.plan(risk.facts, epsilon=1.0, delta=1 / len(y) ** 2, steps=_STEPS)

    def textbook() -> Any:
        return X.T @ (-signs * expit(-signs * (X @ w.astype(X.dtype)))) / len(y)

    read = best_seconds(lambda: X.sum())
    full = best_seconds(lambda: risk.gradient(w))
    naive = best_seconds(textbook)
    step = best_seconds(lambda: plan.release(risk)) / _STEPS
    return {
        "matrix MB": X.nbytes / 1e6,
        "read s": read,
        "read GB/s": X.nbytes / read / 1e9,
        "gradient s": full,
        "numpy s": naive,
        "DP-GD step s": step,
        "gradient / read": full / read,
        "gradient / numpy": full / naive,
        "gradient peak MB": peak_megabytes(lambda: risk.gradient(w)),
        "numpy peak MB": peak_megabytes(textbook),
    }


def sparse_costs(n: int = 20_000, per_row: int = 50) -> pd.DataFrame:
    """Seconds per DP-FW-L1 step against the number of features, at the same number of non-zeros."""
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], n)
    rows = []
    for p in (1_000, 10_000, 100_000, 1_000_000):
        columns = rng.integers(0, p, (n, per_row)).ravel()
        starts = np.arange(0, n * per_row + 1, per_row)
        X = sp.csr_array((np.ones(n * per_row), columns, starts), shape=(n, p))
        X.sum_duplicates()
        risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=1.0, norm="linf")
        plan = DPFrankWolfeL1.plan(risk.facts, L1Ball(p, 10.0), epsilon=1.0, delta=1e-9, steps=_STEPS)
        fit = partial(plan.release, risk)
        seconds = best_seconds(fit) / _STEPS
        rows.append(
            {
                "p": p,
                "non-zeros": X.nnz,
                "s per step": seconds,
                "ns per non-zero": 1e9 * seconds / X.nnz,
                "ns per (non-zero + vertex)": 1e9 * seconds / (X.nnz + 2 * p),
                "peak MB": peak_megabytes(fit),
                "dense MB": 8e-6 * n * p,
            }
        )
    return pd.DataFrame(rows)


def best_seconds(run: Callable[[], object]) -> float:
    """The least of a few times: what the machine needs when nothing else disturbs it."""
    run()
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def peak_megabytes(run: Callable[[], object]) -> float:
    """Memory that a call allocates at most, beyond what was there."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    dense = pd.DataFrame({np.dtype(t).name: gradient_costs(t) for t in (np.float64, np.float32)})
    print("Covertype, 581,012 x 54, logistic loss\n", dense.to_string(float_format="{:.4g}".format))
    print("\nDP-FW-L1, sparse\n", sparse_costs().to_string(float_format="{:.4g}".format))


if __name__ == "__main__":
    main()

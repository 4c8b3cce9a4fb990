"""Measure the cost of a gradient step, in times to read the matrix once, beside other libraries.

    python -m privopt.experiments.benchmark_gradient [--output FOLDER]

Dense gradients are passes over all rows of Covertype, timed in one run; steps of DP-FW-L1 are timed on
synthetic sparse matrices, in processor time. Every time is the minimum of several repetitions. ``--output``
writes ``gradient.md``, ``gradient.csv`` and ``sparse-steps.csv``. The page says which of the other libraries
(``privopt.experiments.workbench.peers``) are not installed.
"""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import typer
from numba import njit
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import expit

from privopt.experiments.workbench import peers
from privopt.experiments.workbench.pages import filled, markdown_table, processor, readable
from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.convex.sparse_frank_wolfe import SparsePath, VertexDraws
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex import passes
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.datasets.covertype import covertype_binary
from privopt.problems.files import write_atomically

_REPEATS = 9
_STEPS = 5
_SPARSE_STEPS = 100
_ROW_NORM = 12**0.5  # bound on the rows of Covertype, from its schema
_PEERS = ("numpy", "scipy", "numba", "scikit-learn", "torch", "opacus", "diffprivlib")
READ = "reading the matrix: a sum on as many threads as the gradient"
GRADIENT = "gradient, rows clipped"
STEP = "one step of DP-GD, noise included"


@dataclass(frozen=True)
class Cost:
    """Seconds of one call (the minimum of several) and the additional memory at its peak."""

    what: str
    dtype: str
    seconds: float
    peak_megabytes: float


def gradient_costs(X: Any, y: Any) -> Iterator[Cost]:
    """Measure one iteration over all rows of a dense matrix by privopt, NumPy and the other libraries."""
    signs: Any = y.astype(X.dtype)
    w: Any = np.random.default_rng(0).normal(size=X.shape[1])
    lowered = w.astype(X.dtype)
    risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=_ROW_NORM)
    plan = DPGradientDescent.plan(risk.facts, epsilon=1.0, delta=1 / len(y) ** 2, steps=_STEPS)
    flat, cuts = X.ravel(), [slice(p.start, p.stop) for p in passes.parts(X.size, 1, X.size)]

    def textbook() -> Any:
        return X.T @ (-signs * expit(-signs * (X @ lowered))) / len(y)

    cost = partial(measure, dtype=X.dtype.name)
    yield cost(READ, lambda: passes.in_order(lambda part: _sum(flat[part]), cuts))
    yield cost("reading the matrix: NumPy's sum, one thread", lambda: X.sum())
    yield cost(GRADIENT, lambda: risk.gradient(w))
    yield cost("value and gradient", lambda: risk.value_and_gradient(w))
    yield cost(STEP, lambda: plan.release(risk), calls=_STEPS)
    yield cost("NumPy, textbook expression, no clipping", textbook)
    yield from _peer_costs(cost, X, signs, lowered)


def _peer_costs(cost: Any, X: NDArray[Any], signs: NDArray[Any], w: NDArray[Any]) -> Iterator[Cost]:
    if peers.module("torch"):
        gradient = peers.torch_gradient(X, signs)
        yield cost("PyTorch autograd, no clipping", lambda: gradient(w))
        clipped = peers.vmap_gradient(X, signs, _ROW_NORM)
        yield cost("PyTorch vmap, per-sample gradients clipped", lambda: clipped(w))
    if peers.module("opacus"):
        yield cost("Opacus step, per-sample gradients clipped, noise", peers.opacus_step(X, signs, _ROW_NORM))
    if X.dtype == np.float64:
        estimator = peers.module("sklearn.linear_model").LogisticRegression
        yield _per_iteration("scikit-learn, per L-BFGS iteration", estimator, X, signs)
        if peers.module("diffprivlib"):
            private = partial(
                peers.module("diffprivlib.models").LogisticRegression, epsilon=1.0, data_norm=_ROW_NORM
            )
            yield _per_iteration("diffprivlib, per L-BFGS iteration", private, X, signs)


def _per_iteration(what: str, estimator: Any, X: Any, y: Any) -> Cost:
    """Measure one iteration of an iterative fit from the difference of two fits, so that set-up cancels."""
    few, many = 2, 8

    def fit(iterations: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit does not converge, on purpose
            return estimator(max_iter=iterations, tol=1e-12, random_state=0).fit(X, y)

    long, short = (measure(what, partial(fit, k), X.dtype.name, repeats=3) for k in (many, few))
    return Cost(what, X.dtype.name, (long.seconds - short.seconds) / (many - few), long.peak_megabytes)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _sum(values: NDArray[Any]) -> Any:
    total = values.dtype.type(0)
    for i in range(values.size):
        total += values[i]
    return total


def sparse_costs(
    n: int = 10_000, per_row: int = 100, features: Sequence[int] = (1_000, 100_000, 1_000_000, 10_000_000)
) -> pd.DataFrame:
    """Measure processor time per DP-FW-L1 step on sparse rows and, in the same run, over all vertices.

    Each record draws ``per_row`` of the p features, uniformly or with probability proportional to 1 / rank
    (Zipf's law); a feature drawn twice counts once.
    """
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], n)
    rows = []
    for law, p in itertools.product(("uniform", "1 / rank"), features):
        at = rng.random((n, per_row))
        columns = (at * p if law == "uniform" else np.expm1(at * math.log(p))).astype(np.int64).ravel()
        starts = np.arange(0, n * per_row + 1, per_row)
        X = sp.csr_array((np.ones(n * per_row), columns, starts), shape=(n, p))
        X.sum_duplicates()
        X.data[:] = 1.0
        rows.append({"features drawn": law, "p": p, "non-zeros": X.nnz, **_frank_wolfe_costs(X, y)})
    return pd.DataFrame(rows)


def _frank_wolfe_costs(X: Any, y: Any) -> dict[str, float]:
    """Measure a step, a step over all vertices and a whole release, and memory.

    The time of a step comes from the difference of two runs, so that set-up cancels.
    """
    n, p = X.shape
    risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=1.0, norm="linf")
    ball, draw = L1Ball(p, 10.0), NoiseSource()
    plan = DPFrankWolfeL1.plan(risk.facts, ball, epsilon=1.0, delta=1e-9, steps=_SPARSE_STEPS)
    draws = VertexDraws.of(risk, ball, plan.selection.scale)

    def walk(steps: int) -> None:
        path = SparsePath(risk, np.zeros(p), ball.size, draws.columns)
        for k in range(steps):
            path.step(draws.draw(path.slopes(), draw), 2 / (k + 2))

    def over_all_vertices() -> None:
        plan.selection.choose(ball.vertex_scores(-risk.gradient(point)), draw)

    point = np.zeros(p)
    point[:100] = 0.1
    long, short, every = (
        least_processor_ms(run) for run in (partial(walk, _SPARSE_STEPS), partial(walk, 1), over_all_vertices)
    )
    step = (long - short) / (_SPARSE_STEPS - 1)
    release = least_processor_ms(partial(plan.release, risk))
    return {
        "frequent": draws.frequent.size,
        "step ms": step,
        "over all vertices ms": every,
        "ratio": every / step,
        f"release of {_SPARSE_STEPS} steps ms": release,
        "peak MB": peak_megabytes(partial(plan.release, risk)),
        "dense MB": 8e-6 * n * p,
    }


def least_processor_ms(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor time of several calls, all threads together, in milliseconds."""
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - began))
    return min(times)


def measure(
    what: str, run: Callable[[], object], dtype: str = "float64", *, calls: int = 1, repeats: int = _REPEATS
) -> Cost:
    """Measure time and peak memory of a call. The time is the least of several: other load only adds to it.

    Args:
        calls: the number of iterations of ``run``; the time is per iteration.
    """
    run()
    peak = peak_megabytes(run)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return Cost(what, dtype, min(times) / calls, peak)


def peak_megabytes(run: Callable[[], object]) -> float:
    """Measure the additional memory of a call at its peak.

    The result is the larger of two measures: the count of Python's allocators, which includes NumPy, and the
    growth of the resident memory, which includes PyTorch but not memory that a library kept from an earlier
    call.
    """
    before = _resident_peak(reset=True)
    tracemalloc.start()
    run()
    counted = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return max(counted, _resident_peak() - before) / 1e6


def _resident_peak(*, reset: bool = False) -> float:
    """Return the peak resident memory since the last reset, in bytes; 0 if the system does not report it."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return 0.0
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def wide(costs: pd.DataFrame) -> pd.DataFrame:
    """Tabulate, per dtype, milliseconds, multiples of one read and memory: a line per measured call."""
    lines = []
    for what, group in costs.groupby("what", sort=False):
        line: dict[str, object] = {"one pass over the rows": what}
        for dtype in ("float64", "float32"):
            found = group[group["dtype"] == dtype]
            read = costs[(costs["what"] == READ) & (costs["dtype"] == dtype)]["seconds"]
            seconds, peak = (found[c].iloc[0] if len(found) else None for c in ("seconds", "peak_megabytes"))
            line[f"{dtype} ms"] = "" if seconds is None else f"{1e3 * seconds:.1f}"
            line["x reading" if dtype == "float64" else "x reading "] = (
                "" if seconds is None else f"{seconds / read.iloc[0]:.2f}"
            )
            line["memory MB" if dtype == "float64" else "memory MB "] = "" if peak is None else f"{peak:.1f}"
        lines.append(line)
    return pd.DataFrame(lines)


def page(costs: pd.DataFrame, sparse: pd.DataFrame, shape: tuple[int, int]) -> str:
    """Write the page of the documentation."""
    read = costs[costs["what"] == READ].set_index("dtype")["seconds"]
    speeds = ", ".join(
        f"{shape[0] * shape[1] * np.dtype(str(t)).itemsize / s / 1e9:.0f} GB/s for {t}"
        for t, s in read.items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in peers.versions(*_PEERS).items())
    places = {
        "machine": processor(),
        "threads": f"{passes.threads_available()}",
        "versions": versions,
        "repeats": f"{_REPEATS}",
        "shape": f"{shape[0]:,} x {shape[1]}",
        "passes": markdown_table(wide(costs)),
        "speeds": speeds,
        "steps": markdown_table(sparse.map(readable)),
    }
    return filled("gradient", places)


def main(
    output: Annotated[Path | None, typer.Option(help="Output folder for the page and its figures.")] = None,
) -> None:
    """Run the benchmark, print the page, and write page and results to the output folder if one is given."""
    costs: list[Cost] = []
    shape = (0, 0)
    for dtype in (np.float64, np.float32):
        X, y = covertype_binary(dtype)
        shape = (X.shape[0], X.shape[1])
        costs += gradient_costs(X, y)
    dense, sparse = pd.DataFrame([asdict(c) for c in costs]), sparse_costs()
    text = page(dense, sparse, shape)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / "gradient.md", text)
        write_atomically(output / "gradient.csv", dense.to_csv(index=False))
        write_atomically(output / "sparse-steps.csv", sparse.to_csv(index=False))
    Console(soft_wrap=True, emoji=False).print(text, highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)

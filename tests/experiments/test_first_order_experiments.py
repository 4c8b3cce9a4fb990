"""The pages about first-order methods: made on small data, resumed, and complete without peers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import benchmark_gradient, first_order_accuracy, first_order_noise
from privopt.experiments.first_order_accuracy import Task
from privopt.experiments.workbench import peers

DOCS = Path(__file__).resolve().parents[2] / "experiments" / "docs"


def small_task(n: int = 400, d: int = 3) -> Task:
    """Labels by the sign of the first feature, 5% flipped."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2 * n, d))
    y = np.where(X[:, 0] > 0, 1, -1) * np.where(rng.uniform(size=2 * n) < 0.05, -1, 1)
    return Task("Small", X[:n], y[:n], X[n:], y[n:], norm=d**0.5, largest=1.0)


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"sklearn.linear_model": peers.module("sklearn.linear_model")}
    monkeypatch.setattr(peers, "module", found.get)


@pytest.mark.usefixtures("no_peers")
def test_accuracy_page_is_complete_and_a_second_run_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanisms = ("objective-perturbation", "output-perturbation", "dp-gd", "dp-fw-l1")
    monkeypatch.setattr(first_order_accuracy, "SLOW_DRAWS", 1)
    monkeypatch.setattr(first_order_accuracy, "MECHANISMS", mechanisms)
    tasks, console = [small_task(2_000)], Console(quiet=True)
    study, cells = first_order_accuracy.study(tasks), first_order_accuracy.cells(tasks, 2, (1.0, 8.0))
    rows = study.run(tmp_path, cells, console)
    text = (tmp_path / "first-order-accuracy.md").read_text()
    assert len(rows) == (len(mechanisms) * 2 - 1) * 2  # dp-gd is drawn once
    assert all(f"| {name} |" in text for name in mechanisms)
    assert (tmp_path / "first-order-accuracy-small.png").read_bytes().startswith(b"\x89PNG")
    # The best that any rule can expect is 95%; with little noise the most accurate mechanism comes near.
    assert rows[rows["epsilon"] == 8].groupby("mechanism")["test_accuracy"].mean().max() > 0.9
    study.run(tmp_path, cells, console)
    assert (tmp_path / "first-order-accuracy.md").read_text() == text
    assert len(pd.read_csv(tmp_path / "first-order-accuracy.csv")) == len(rows)


@pytest.mark.usefixtures("no_peers")
def test_gradient_page_from_small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_gradient, "_REPEATS", 2)
    task = small_task(2_000, 5)
    costs = pd.DataFrame([vars(c) for c in benchmark_gradient.gradient_costs(task.X, task.y)])
    assert np.isfinite(costs["seconds"]).all()  # a difference of times may be negative on data this small
    lines = benchmark_gradient.wide(costs).set_index("one pass over the rows")
    assert lines.loc[benchmark_gradient.READ, "x reading"] == "1.00"
    assert "scikit-learn, per L-BFGS iteration" in lines.index
    sparse = benchmark_gradient.sparse_costs(50, 3, (100,))
    text = benchmark_gradient.page(costs, sparse, (2_000, 5))
    assert benchmark_gradient.STEP in text


def test_the_noise_page_in_the_docs_is_what_the_code_adds() -> None:
    """It depends on public facts alone. Stale: run the module with ``--output experiments/docs``."""
    assert (DOCS / "first-order-noise.md").read_text() == first_order_noise.page()


def test_peak_memory_sees_what_a_call_holds() -> None:
    found = benchmark_gradient.peak_megabytes(lambda: np.ones(5_000_000).sum())
    assert 40 <= found < 60  # 5 million float64


def test_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peers.module("no_such_module_anywhere") is None
    assert peers.versions("no-such-distribution")["no-such-distribution"] == "not installed"
    monkeypatch.setattr(peers, "module", lambda name: None)
    assert peers.versions("numpy")["numpy"].endswith("does not import here")


@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(
            peers.diffprivlib_fit,
            marks=pytest.mark.skipif(not peers.module("diffprivlib.models"), reason="diffprivlib"),
        ),
        pytest.param(
            lambda *a: peers.opacus_fit(*a, replace_one=True),
            marks=pytest.mark.skipif(not importlib.util.find_spec("opacus"), reason="opacus"),
        ),
    ],
)
def test_peers_learn_where_they_are_installed(fit: Callable[..., peers.Weights]) -> None:
    task = small_task(4_000)
    w, intercept = fit(task.X, task.y, task.norm, 8.0, task.delta, 0)
    assert np.mean(np.where(task.X_test @ w + intercept > 0, 1, -1) == task.y_test) > 0.85

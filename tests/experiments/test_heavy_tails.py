"""The experiment on heavy tails, run in small: lines, page, baselines, and going on where it stopped."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privopt.experiments import heavy_tails
from privopt.experiments.workbench import localisation
from privopt.experiments.workbench.localisation import Tuning, localised
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.convex.soft_truncation import soft_mean
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.datasets.heavy_tails import make_lognormal_line


def test_a_quick_run_leaves_lines_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heavy_tails.main(tmp_path, None, 1, True)
    lines = pd.read_csv(tmp_path / "heavy-tails.csv")
    assert set(lines["part"]) == {"kernel", "means", "paper", "real"}
    assert not lines.duplicated(list(heavy_tails._KEY)).any()
    assert lines["value"].notna().all()
    page = (tmp_path / "heavy-tails.md").read_text()
    for part in (heavy_tails.UNITS, "Algorithm 3, κ x 10", heavy_tails.LOCALISED, "Adult, capital"):
        assert f"| {part} |" in page

    def again(*_: object) -> None:
        raise AssertionError("a part was run twice")

    monkeypatch.setattr(heavy_tails, "kernel", again)
    monkeypatch.setattr(heavy_tails, "paper", again)
    heavy_tails.main(tmp_path, None, 1, True)
    assert len(pd.read_csv(tmp_path / "heavy-tails.csv")) == len(lines)


def test_the_expression_in_numpy_is_the_fused_pass() -> None:
    X = np.random.default_rng(0).standard_t(3, (2000, 3))
    assert heavy_tails.plain_mean(X, 5.0, 3.0) == pytest.approx(soft_mean(X, 5.0, 3.0), rel=1e-9)


def test_memory_that_compiled_code_takes_is_counted() -> None:
    # Above 32 MiB, below which the C library may give memory that the process freed before.
    grown = heavy_tails._growth(lambda: np.ones(8_000_000))
    if grown is None:
        pytest.skip("no /proc/self/clear_refs: not on Linux")
    assert 63e6 < grown < 72e6


def test_a_record_is_in_one_descent_of_one_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all of it is mu-GDP if each descent is: T means that a record moves by 2 C / n."""
    seen: list[float] = []

    def spy(X: np.ndarray, *_: object) -> np.ndarray:
        seen.extend(X[:, 0].tolist())
        return np.zeros(1)

    monkeypatch.setattr(localisation, "_descent", spy)
    X = np.arange(1000.0)[:, None]
    tuning = Tuning(1.0, 0.1, 32.0, copies=3, phases=4)
    localised(X, X[:, 0], PLAIN_SQUARES, 0.3, tuning, 1.0, np.random.default_rng(0))
    assert sorted(seen) == X[:, 0].tolist()
    sigma, mu = localisation.deviation(Tuning(2.0, steps=50), 500, 0.3), 0.3
    assert math.sqrt(50) * (2 * 2.0 / 500) / sigma == pytest.approx(mu)


def test_localisation_and_clipped_descent_learn() -> None:
    X, y, w = make_lognormal_line(20_000, 3, seed=0)
    mu = gaussian_mu(1.0, 1e-6)

    def error(found: np.ndarray) -> float:
        return float(np.linalg.norm(found - w))

    for tuning in (Tuning(3.0), Tuning(3.0, 0.01, 4.0, 5, 4)):
        found = localised(X, y, PLAIN_SQUARES, mu, tuning, 1.1, np.random.default_rng(1))
        assert error(found) < 0.2
    grid = iter([Tuning(1e-6), Tuning(3.0)])
    assert localisation.best(grid, X, y, PLAIN_SQUARES, mu, error, 2)[0] < 0.2

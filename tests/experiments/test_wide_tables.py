"""The tasks of the comparison on wide tables, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from privopt.experiments import wide_tables
from privopt.experiments.wide_tables import EPSILONS, MECHANISMS, STUDY, TASKS, Cell, page


@pytest.mark.parametrize(
    ("task", "features", "ones", "share"),
    [("40 of 5,000 rare features", 5000, 137, 0.5), ("words of topics, 19% positive", 5000, 144, 0.19)],
)
def test_tasks_are_as_sparse_as_the_page_says(task: str, features: int, ones: int, share: float) -> None:
    X, y = TASKS[task](1000, np.random.default_rng(1))
    assert X.shape == (1000, features)
    assert set(X.data) == {1.0}
    assert X.sum() / 1000 == pytest.approx(ones, abs=6)
    assert np.mean(y) == pytest.approx(share, abs=0.05)  # three standard errors


def test_a_run_writes_its_page_and_its_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(rows: int, rng: np.random.Generator) -> Any:
        X = rng.uniform(-1, 1, (rows, 4))
        return X, (X[:, 0] > 0).astype(float)

    monkeypatch.setattr(wide_tables, "TASKS", {"few": few})
    lines = STUDY.run(tmp_path, [Cell("few", table, 300) for table in range(2)], Console(quiet=True))
    assert len(lines) == 2 * (1 + len(MECHANISMS) * len(EPSILONS))
    assert lines["auc"].between(0, 1).all()
    assert (tmp_path / "wide-tables.md").read_text("utf-8") == page(lines)
    assert STUDY.missing(tmp_path, [Cell("few", table, 300) for table in range(3)]) == [Cell("few", 2, 300)]

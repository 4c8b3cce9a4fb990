"""The experiment on heavy tails, run in small: lines, page, pictures, and going on where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privopt.experiments import heavy_tails
from privopt.problems.convex.soft_truncation import soft_mean


def test_a_quick_run_leaves_lines_page_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heavy_tails.main(tmp_path, None, 1, True)
    lines = pd.read_csv(tmp_path / "heavy-tails.csv")
    assert set(lines["part"]) == {"kernel", "means", "gaps", "paper", "real"}
    assert not lines.duplicated(list(heavy_tails._KEY)).any()
    assert lines["value"].notna().all()
    page = (tmp_path / "heavy-tails.md").read_text()
    for part in ("units found privately", "Algorithm 3, range x 10", "Laplace scale", "Adult, capital"):
        assert part in page
    assert all((tmp_path / f"heavy-tails-{name}.png").stat().st_size > 10_000 for name in ("line", "signs"))

    def again(*_: object) -> None:
        raise AssertionError("a part was run twice")

    monkeypatch.setattr(heavy_tails, "kernel", again)
    monkeypatch.setattr(heavy_tails, "paper", again)
    heavy_tails.main(tmp_path, None, 1, True)
    assert len(pd.read_csv(tmp_path / "heavy-tails.csv")) == len(lines)


def test_the_expression_in_numpy_is_the_fused_pass() -> None:
    X = np.random.default_rng(0).standard_t(3, (2000, 3))
    assert heavy_tails.plain_mean(X, 5.0, 3.0) == pytest.approx(soft_mean(X, 5.0, 3.0), rel=1e-9)

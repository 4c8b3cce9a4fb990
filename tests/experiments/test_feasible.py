"""The page of what is feasible: its rule is read off the fits, and a run goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.metrics import roc_auc_score

from privopt.experiments import feasible


def line(rows: int, epsilon: float, auc: float, model: str = feasible.CARD) -> feasible.Line:
    return feasible.Line("a table", 10, rows, 0, model, epsilon, "seeded", 1.0, 100.0, auc, 0.9)


def test_gaps_are_below_the_fit_without_privacy_or_the_law() -> None:
    lines = [line(100, 1.0, 0.8), line(100, np.inf, 0.85, feasible.FREE), line(200, 1.0, 0.88)]
    found = feasible.gaps(pd.DataFrame(lines))
    assert found["gap"].tolist() == pytest.approx([0.05, 0.02])
    assert found["ratio"].tolist() == [10, 20]


def test_the_rule_holds_from_its_number_on() -> None:
    gap = {1: 0.3, 3: 0.01, 10: 0.05, 30: 0.015, 100: 0.0}  # close once by chance, at 3
    lines = [line(10 * ratio, 1.0, 0.9 - lost) for ratio, lost in gap.items()]
    free = [line(10 * ratio, np.inf, 0.9, feasible.FREE) for ratio in gap]
    assert feasible.enough(feasible.gaps(pd.DataFrame(lines + free))) == 30
    assert np.isnan(feasible.enough(feasible.gaps(pd.DataFrame([line(10, 1.0, 0.5)]))))


def test_the_law_is_the_best_score_of_a_drawn_table() -> None:
    task = feasible.drawn(feasible.Unit(3, 3, 500, 0))
    assert len(task.records) == len(task.labels) == 500
    assert 0.1 < task.truth.mean() < 0.3
    fitted = [task.others[name].to_numpy() for name in task.others]
    assert task.best > max(roc_auc_score(task.truth, column) for column in fitted)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = feasible.Unit(2, 3, 300, 0)
    asked = []

    def isolated(work: object, unit: feasible.Unit) -> list[feasible.Line]:
        asked.append(unit)
        return list(feasible.work(unit))

    monkeypatch.setattr(feasible, "isolated", isolated)
    lines = feasible.STUDY.run(tmp_path, [unit], Console(quiet=True))
    assert set(lines["model"]) == {feasible.CARD, feasible.LINEAR, feasible.FREE}
    again = feasible.STUDY.run(tmp_path, [unit, replace(unit, run=1)], Console(quiet=True))
    assert asked == [unit, replace(unit, run=1)]
    assert len(again) == 2 * len(lines)
    page = (tmp_path / "feasible.md").read_text()
    assert "2 columns of 3 levels" in page
    assert "Not all is there" not in page
    assert (tmp_path / "feasible.png").stat().st_size > 10_000

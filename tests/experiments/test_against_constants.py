"""Defaults of the registry against constants: plans say where a constant may be better, before data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import against_constants, nonconvex
from privopt.experiments.against_constants import Line, Unit, measured, summary, units
from privopt.experiments.reproduce import wang2017_table1, wang2017_table3
from privopt.mechanisms.privacy.usefulness import CAUTION
from privopt.mechanisms.registry import ENTRIES, Entry, Family
from privopt.problems.datasets.adult import load_adult23


@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{e.family.name}-{e.name}" for e in ENTRIES])
def test_no_default_is_behind_a_constant_in_silence(entry: Entry) -> None:
    """Few records at a small budget, where most mechanisms are behind."""
    settings = units((2_000,), (0.1,))
    unit = next(u for u in settings if (u.family, u.mechanism) == (entry.family, entry.name))
    found = summary(pd.DataFrame(measured(unit, 3)))
    assert len(found) == 1
    assert not found["silent"].any(), found.to_string()


def line(run: int, loss: float, *, told: bool) -> Line:
    return Line(Family.RISK, "dp-gd", 10, 1.0, run, loss, 0.5, 0.05, told)


@pytest.mark.parametrize("told", [False, True])
def test_silence_is_a_constant_that_is_ahead_beyond_chance(told: bool) -> None:
    """Means of 0.2 above a constant: with deviations of 0.01 it is ahead, with 1 it may be chance."""
    for spread, ahead in ((0.01, True), (1.0, False)):
        lines = [line(run, 0.7 + spread * (-1) ** run, told=told) for run in range(10)]
        found = summary(pd.DataFrame(lines)).iloc[0]
        assert found["lead"] == pytest.approx(0.2)
        assert found["ahead"] == ahead
        assert found["silent"] == (ahead and not told)
    better = summary(pd.DataFrame([line(run, 0.4, told=told) for run in range(10)])).iloc[0]
    assert not better["ahead"]


def test_every_mechanism_is_measured_at_every_setting_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {(unit.family, unit.mechanism) for unit in units()}
    assert every == {(entry.family, entry.name) for entry in ENTRIES}
    assert len(set(units())) == len(units()) == 12 * len(ENTRIES)
    unit = Unit(Family.MEAN, "robust-mean", 500, 1.0)
    found = against_constants.STUDY.run(tmp_path, [unit], Console(quiet=True))
    assert len(found) == against_constants.RUNS
    monkeypatch.setattr(against_constants, "measured", lambda unit: pytest.fail("it is kept"))
    again = against_constants.STUDY.run(tmp_path, [unit], Console(quiet=True))
    pd.testing.assert_frame_equal(found, again, check_dtype=False)


def test_caution_begins_below_the_signals_of_the_tasks() -> None:
    """Largest entry or norm of the mean gradient at zero weights, as a share of the largest plausible one."""
    shares = []
    for study, order in ((wang2017_table1.STUDY, 2), (wang2017_table3.STUDY, np.inf)):
        X, y = study.records(8_000, 0)
        shares.append(np.linalg.norm(X.T @ y, order) / 2 / len(y) * np.sqrt(X.shape[1]))
    X, y, _ = load_adult23()
    shares.append(
        np.linalg.norm(X.T @ y) / 2 / len(y) * np.sqrt(X.shape[1]) / np.linalg.norm(X, axis=1).max()
    )
    risk = nonconvex.classes(8_000, 2, 0)
    gradient = np.linalg.norm(risk.gradient(np.zeros(2)))
    shares.append(gradient * np.sqrt(2) / risk.facts.gradient_bound)
    assert CAUTION < min(shares) < 2 * CAUTION  # far below them it would warn of useful fits

"""Defaults of the registry against constants: plans say where a constant may be better, before data."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import against_constants
from privopt.experiments.against_constants import Line, Unit, measured, summary, units
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.mechanisms.registry import ENTRIES, Entry, Family


@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{e.family.name}-{e.name}" for e in ENTRIES])
def test_no_default_is_behind_a_constant_in_silence(entry: Entry) -> None:
    """Few records at a small budget, where most mechanisms are behind, and a large budget."""
    settings = units((2_000,), (0.1,))
    unit = next(u for u in settings if (u.family, u.mechanism) == (entry.family, entry.name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
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

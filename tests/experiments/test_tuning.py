"""The study of searches: gains over defaults on the same splits, and sentences that follow from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import tuning
from privopt.experiments.tuning import CARD, LINEAR, ORACLE, OVER_KINDS, OVER_PENALTIES
from privopt.experiments.workbench.tree_tasks import populations


def frame(**gains: tuple[float, ...]) -> pd.DataFrame:
    """Lines of tables in which the search over penalties gains these AUC, by split, and others nothing."""
    lines = [
        tuning.Line(table, 100, split, way, 0.7 + split / 100 + (gain if way == OVER_PENALTIES else 0), 0.6)
        for table, found in gains.items()
        for split, gain in enumerate(found)
        for way in (LINEAR, CARD, OVER_PENALTIES, OVER_KINDS, ORACLE)
    ]
    return pd.DataFrame([dataclasses.asdict(line) for line in lines])


def test_gains_are_differences_on_the_same_split() -> None:
    found = tuning.differences(frame(a=(0.01, 0.03), b=(-0.02, -0.04)), "auc")
    own = found[found["way"] == OVER_PENALTIES].set_index("table")
    assert own["gain"].to_dict() == pytest.approx({"a": 0.02, "b": -0.03})
    # The spread over splits of the defaults, .01, drops out: half of |x - y| is the error of two.
    assert own["error"].to_dict() == pytest.approx({"a": 0.01, "b": 0.01})


def test_verdicts_count_tables_beyond_two_standard_errors() -> None:
    lines = frame(up=(0.02, 0.03), down=(-0.02, -0.03), either=(-0.02, 0.03))
    first, *rest = tuning.verdicts(lines).splitlines()
    assert "AUC +0.002 on average over tables, from -0.025 to +0.025" in first
    assert "higher on 1 and lower on 1 of 3 tables" in first
    assert all("higher on 0 and lower on 0 of 3 tables" in one for one in rest)


def test_a_run_measures_every_way_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(iter(populations(1, rows=300)))
    table = ("one", one.records, one.labels, one.schema)
    [cell] = tuning.cells([table], 1)
    study = dataclasses.replace(tuning.STUDY, page=None)
    lines = study.run(tmp_path, [cell], Console(quiet=True))
    assert list(lines["way"]) == [LINEAR, CARD, OVER_PENALTIES, OVER_KINDS, ORACLE]
    assert set(lines["n"]) == {150}
    assert lines["auc"].between(0, 1).all()
    monkeypatch.setattr(tuning, "measured", None)
    assert study.missing(tmp_path, [cell]) == []

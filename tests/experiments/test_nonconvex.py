"""The page about non-convex mechanisms: made from little, resumed, and complete."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import nonconvex


def test_the_page_is_complete_and_a_second_run_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One draw of every kind of work; those of the saddle are judged by exact derivatives."""
    kinds = {}
    for part in nonconvex.parts(quick=True):
        kinds.setdefault((part.part, part.mechanism), part)
    little = [p for p in kinds.values() if p.mechanism != "dp-gld"]
    for part in little:
        object.__setattr__(part, "draws", 1)
    monkeypatch.setattr(nonconvex, "parts", lambda quick: iter(little))
    study = nonconvex.study()
    study.run(tmp_path, nonconvex.draws(True), Console(quiet=True))
    text = (tmp_path / "nonconvex.md").read_text("utf-8")
    rows = pd.read_csv(tmp_path / "nonconvex.csv")
    assert set(rows["part"]) == {"saddle", "excess", "later", "regression", "speed"}
    left = rows[rows["measure"] == "left"].set_index("mechanism")["value"]
    assert left["without noise"] == 0
    assert left["dp-newton"] == left["dp-sosp"] == left["dp-gd-so"] == 1
    assert rows[rows["measure"] == "true"]["value"].eq(1).all()
    assert "not measured" not in text
    for picture in ("trajectories", "escape", "excess"):
        assert f"](nonconvex-{picture}.png)" in text
        assert (tmp_path / f"nonconvex-{picture}.png").read_bytes().startswith(b"\x89PNG")
    study.run(tmp_path, nonconvex.draws(True), Console(quiet=True))
    assert len(pd.read_csv(tmp_path / "nonconvex.csv")) == len(rows)

"""Runs that keep what they have finished, and the pictures and the page made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from privopt.experiments.demo import summary
from privopt.experiments.figures import accuracy_figure, certificate_figure, save, solver_profile
from privopt.experiments.report import page
from privopt.experiments.runs import Results, Setting, run_settings
from privopt.mechanisms import MECHANISMS
from privopt.oracles import Progress
from privopt.problems import IntegerLattice

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(-3, 4, (40, 3)), RNG.choice([-1, 1], 40)
SETTINGS = [
    Setting(m, IntegerLattice(-1, 1, dimension=3), e, 1e-3) for m in MECHANISMS.values() for e in (1.0, 5.0)
]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "draws.csv"
    run_settings(SETTINGS[:3], 2, TRAIN, TRAIN, Results(path))
    assert len(pd.read_csv(path)) == 6
    fresh: list[object] = []
    resumed = Results(path)
    run_settings(SETTINGS, 2, TRAIN, TRAIN, resumed, on_row=fresh.append)
    assert len(fresh) == 2 * len(SETTINGS) - 6
    whole = Results(tmp_path / "whole.csv")
    run_settings(SETTINGS, 2, TRAIN, TRAIN, whole)
    columns = ["mechanism", "epsilon", "draw", "train_accuracy", "gap"]
    pd.testing.assert_frame_equal(
        resumed.frame[columns].reset_index(drop=True), whole.frame[columns].reset_index(drop=True)
    )
    table = summary(whole.frame)
    assert table["draws"].tolist() == [2] * len(SETTINGS)
    assert table["largest_gap"].max() == 0


def test_pictures_and_page(tmp_path: Path) -> None:
    results = Results(tmp_path / "draws.csv")
    run_settings(SETTINGS, 2, TRAIN, TRAIN, results)
    figures = [
        accuracy_figure(results.frame, {"best": 0.9}, "train_accuracy"),
        solver_profile(results.frame),
        certificate_figure([Progress(9.0, 1.0, 1, 0.1), Progress(5.0, 5.0, 2, 0.3)], "a solve"),
    ]
    ticks = [label.get_text() for label in figures[0].axes[0].get_xticklabels()]
    assert ticks == ["1", "5"]
    for number, figure in enumerate(figures):
        save(figure, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
    text = page("A <title>", [("Heading", ["1 < 2", summary(results.frame), *figures])])
    assert "A &lt;title&gt;" in text
    assert "1 &lt; 2" in text
    assert text.count("<svg") == 3
    # Self-contained: nothing is loaded from anywhere.
    assert "<script" not in text
    assert "<img" not in text
    assert "<link" not in text

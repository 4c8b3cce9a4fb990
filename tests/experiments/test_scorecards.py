"""The experiment on real tables: schemas that it declares, and its page, on a small table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import scorecards
from privopt.experiments.workbench.figures import save


def small() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(37.2, 900, 400), "few": rng.integers(0, 3, 400), "text": rng.choice(["a", "b"], 400)}
    )
    return frame, (frame["x"] > 0).astype(int).to_numpy()


def test_declared_schemas_hold_all_records() -> None:
    frame, _ = small()
    schema = scorecards.declared(frame)
    assert [type(c).__name__ for c in schema.columns] == ["Numeric", "Categorical", "Categorical"]
    number: Any = schema.columns[0]
    assert number.low <= frame["x"].min()
    assert frame["x"].max() <= number.high
    assert number.high - number.low < 2.5 * (frame["x"].max() - frame["x"].min())
    assert schema.encode(frame).X.shape == (400, 7)


def test_every_model_is_measured_on_the_other_half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frame, y = small()
    found = [("small", frame, y, scorecards.declared(frame))]
    monkeypatch.setattr(scorecards, "SEARCHED", (20.0,))
    monkeypatch.setattr(scorecards, "EPSILONS", (20.0,))
    study, cells = scorecards.study(found, tmp_path), scorecards.cells(found, tmp_path, 1)
    assert [cell[2] for cell in cells] == ["private", "simple peers", "searches"]
    lines = study.run(tmp_path, cells, Console(quiet=True))
    assert len(lines) == 1 + 8 + 2 + 3
    assert lines.loc[lines["model"] == "not private", "auc"].item() > 0.8
    assert lines.loc[lines["model"] == "card (auto)", "auc"].item() > 0.7
    page = (tmp_path / "scorecards.md").read_text()
    ended = [name for name in scorecards.LATTICE_MECHANISMS if lines.set_index("model").auc.notna()[name]]
    assert "exponential" in ended  # a small lattice
    # 4 measures of ours and 3 of peers; 3 models with points, 5 with Brier scores, and the searches.
    ours = 8 + len(ended)
    assert page.count("| small | 200 | 7 |") == 4 * ours + 3 * 2 + 3 + 5 + len(ended)
    # What is done is not done again.
    assert study.missing(tmp_path, cells) == []


def test_features_of_fasterrisk_are_binary() -> None:
    """Numbers become a feature for each tenth, from the first half alone; what never differs goes."""
    rng = np.random.default_rng(0)
    train, test = (np.column_stack([rng.random(100), np.ones(100), rng.random(100) < 0.3]) for _ in range(2))
    binary = scorecards._binary(train, test)
    assert [half.shape for half in binary] == [(100, 10), (100, 10)]
    assert set(np.unique(binary[1])) == {0.0, 1.0}
    assert np.array_equal(binary[1][:, -1], test[:, 2])


def measured(model: str, aucs: list[float], table: str = "small", **more: Any) -> list[scorecards.Line]:
    facts = {"epsilon": 1.0, "brier": 0.2, **more}
    return [scorecards.Line(table, 100, 3, 0.3, seed, model, auc, **facts) for seed, auc in enumerate(aucs)]


def test_models_stand_beside_the_private_peer_of_the_highest_mean(tmp_path: Path) -> None:
    """Differences on the same splits by hand: .1 and .3 on two of three; one split alone has no error."""
    lines = pd.DataFrame(
        [
            *measured("card (auto)", [0.8, 0.9, 0.7]),
            *measured("logistic", [0.7, 0.7, 0.7]),
            *measured("AdaSSP", [0.7, 0.6]),
            *measured("naive Bayes", [0.6, 0.6]),
            *measured("not private", [0.9], epsilon=np.nan),
            *measured("card (auto)", [0.8, 0.9], "alone"),
            *measured("logistic", [0.8, 0.9], "alone"),
            *measured("AdaSSP", [0.7], "alone"),
        ]
    )
    found = scorecards.beside_best_peer(lines)
    assert found[["table", "model", "peer", "splits"]].to_numpy().tolist() == [
        ["small", "card (auto)", "AdaSSP", 2],
        ["small", "logistic", "AdaSSP", 2],
    ]
    assert found["ahead"].tolist() == pytest.approx([0.2, 0.05])
    assert found["error"].tolist() == pytest.approx([0.1, 0.05])
    page = scorecards.page(lines, "", "")
    assert "| small | 1.0 | AdaSSP | +0.200 (0.100; 2) | +0.050 (0.050; 2) |" in page
    # Brier scores at epsilon 1 and without privacy, and 0.3 (1 - 0.3) of a constant.
    assert "| small | 100 | 3 | AdaSSP | 0.2 | 0.2 | 0.21 |" in page
    save(scorecards.beside_picture(lines), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 5_000
    assert scorecards.beside_picture(lines[lines["model"] == "logistic"]).axes


def test_first_fits_are_drawn(tmp_path: Path) -> None:
    lines = [scorecards.FirstFit(100_000, 50, 1.0, 2.0), *scorecards.first_fit(200, 50)]
    assert min(lines[1].seconds, lines[1].core_seconds) > 0
    save(scorecards.picture(pd.DataFrame(lines)), tmp_path / "speed.png")
    assert (tmp_path / "speed.png").stat().st_size > 5_000

"""The experiment on real tables: schemas that it declares, and its page, on a small table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.experiments import scorecards


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


def test_every_model_is_measured_on_the_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = small()

    def only(root: Path | None) -> Any:
        yield "small", frame, y, scorecards.declared(frame)

    monkeypatch.setattr(scorecards, "tables", only)
    found = scorecards.measured(None, 1, (20.0,))
    assert len(found) == 5
    assert found.loc[found["model"] == "not private", "auc"].item() > 0.8
    assert found.loc[found["model"] == "card (auto)", "auc"].item() > 0.7
    page = scorecards.page(found)
    assert page.count("| small | 200 | 7 |") == 4 * 4 + 2

"""The curve of AUC: quantiles of fits, errors on tables left out, and the constants that ship."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privopt.mechanisms.estimators.expected_auc as shipped
from privopt.experiments import planning
from privopt.experiments.workbench.tree_tasks import populations

DOCS = Path(planning.__file__).parent / "docs"


def fits(tables: int, constants: list[float]) -> pd.DataFrame:
    """Fits whose AUC lies on curves, each table on each of them."""
    signals = np.geomspace(0.2, 50, 7)
    rows = [
        {"table": f"t{k}", "n": 1000, "epsilon": float(x), "signal": x, "not_private": 0.9,
         "auc": 0.5 + 0.4 * x / (x + h)}
        for k in range(tables) for h in constants for x in signals
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_constants_are_quantiles_of_the_curves_that_fits_lie_on() -> None:
    found = fits(3, [float(h) for h in range(1, 12)])
    assert planning.constant_at(found, 0.5) == pytest.approx(6, rel=1e-3)
    assert planning.constant_at(found, 0.1) == pytest.approx(10, rel=1e-3)  # nine or ten of eleven are better
    assert planning.constant_at(found, 0.9) == pytest.approx(2, rel=1e-3)


def test_errors_are_of_tables_that_are_left_out() -> None:
    same = fits(3, [2.0])
    odd = fits(1, [20.0]).assign(table="odd")
    apart = planning.left_out(pd.concat([same, odd]))
    error = (apart["auc"] - apart["middle"]).abs().groupby(apart["table"]).max()
    x = same["signal"].to_numpy()
    assert error["odd"] == pytest.approx(np.max(0.4 * (x / (x + 2) - x / (x + 20))), rel=1e-3)
    one = planning.fitted_curve(pd.concat([same, odd]))
    assert one.covered == pytest.approx(0.75)  # the odd table is outside any band of the others
    assert one.tables == 4


def test_the_curves_that_ship_are_those_of_the_shipped_fits() -> None:
    fits = planning.prepared(pd.read_csv(DOCS / "planning.csv"))
    for name, own in fits.groupby("model"):
        worst, middle, best = (planning.constant_at(own, q) for q in planning.QUANTILES)
        assert shipped.AucCurve.of_model(name).constants == pytest.approx((best, middle, worst), abs=6e-4)


@pytest.mark.slow
def test_the_errors_that_ship_are_those_of_the_shipped_fits() -> None:
    found = json.loads(planning.constants(pd.read_csv(DOCS / "planning.csv")))
    assert found == {name: json.loads(json.dumps(asdict(shipped.AucCurve.of_model(name)))) for name in found}
    assert list(found) == list(planning.MODELS)


def test_a_cell_measures_both_models_at_every_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "EPSILONS", (1e4,))
    one = next(iter(populations(1, rows=1_000)))
    [cell, *_] = planning.cells([("one", one.records, one.labels, one.schema)], 1)
    lines = planning.measured(cell)
    assert [(line.model, line.n, line.columns) for line in lines] == [("card", 500, 6), ("linear", 500, 6)]
    for line in lines:  # hardly any noise
        assert line.auc == pytest.approx(line.not_private, abs=0.05)


def test_small_tables_give_half_of_their_records() -> None:
    one = next(iter(populations(1, rows=1_000)))
    table = ("one", one.records, one.labels, one.schema)
    assert [(cell.n, cell.split) for cell in planning.cells([table], 2)] == [(500, 0), (500, 1)]

"""The comparison of trees runs on a small table, goes on where it stopped, and sums up in its page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import trees
from privopt.experiments.trees import CART, MODELS, OPTIMAL, OURS, STUDY, Cell, Line
from privopt.experiments.workbench import table_peers
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema


def test_a_cell_has_every_model_and_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: MODELS[name] for name in ("tree", "card")}
    monkeypatch.setattr(trees, "MODELS", few)
    frame = pd.DataFrame({"level": ["a", "b"] * 300})
    schema = Schema([Categorical("level", ["a", "b"])], intercept=True)
    cell = Cell(("levels", frame, np.arange(600) % 2, schema), 0, OURS, (1.0, 20.0))
    study = replace(STUDY, page=None)
    lines = study.run(tmp_path, [cell], Console(quiet=True))
    assert lines["model"].tolist() == [CART, OPTIMAL, *few, *few]
    assert lines["balanced_accuracy"].eq(1).sum() >= 4  # those without privacy, and at epsilon 20
    assert lines["brier"].isna().tolist() == [True, True, False, False, False, False]
    assert study.missing(tmp_path, [cell]) == []
    assert study.missing(tmp_path, [cell._replace(seed=1)]) != []


def test_halves_are_fitted_by_trees_with_equal_costs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of Adult's halves enters no mean over tables."""
    few = {name: MODELS[name] for name in ("tree", trees.EQUAL)}
    monkeypatch.setattr(trees, "MODELS", few)
    frame = pd.DataFrame({"level": ["a", "b"] * 300})
    schema = Schema([Categorical("level", ["a", "b"])])
    lines = Cell((trees.HALVES, frame, np.arange(600) % 2, schema), 0, OURS, (20.0,)).lines()
    assert [(line.model, line.n) for line in lines] == [(trees.EQUAL, 300)]


def test_differences_are_means_over_tables_with_their_errors() -> None:
    """Tables weigh the same, however many splits they have; models without epsilon stand beside all."""

    def lines(table: str, seed: int, tree: float, card: float, cart: float) -> list[Line]:
        known = {
            "n": 9,
            "predicates": 3,
            "part": OURS,
            "accuracy": 0.5,
            "auc": 0.5,
            "brier": 0.2,
            "seconds": 0.1,
        }
        return [
            Line(table=table, seed=seed, model=model, epsilon=e, balanced_accuracy=value, **known)
            for model, e, value in (("tree", 1.0, tree), ("card", 1.0, card), (CART, math.inf, cart))
        ]

    rows = [*lines("a", 0, 0.7, 0.6, 0.9), *lines("a", 1, 0.9, 0.6, 0.9), *lines("b", 0, 0.6, 0.6, 0.5)]
    found = trees.differences(pd.DataFrame(rows))
    assert found["against"].tolist() == ["card", CART]
    assert found["1"].tolist() == ["+0.100 (0.100)", "+0.000 (0.100)"]


def test_targets_hold_by_the_smallest_mean_over_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Automatic choices are the lines of the models that are chosen; what has no lines does not hold."""
    monkeypatch.setattr(trees, "EPSILONS", (0.1, 0.3))
    values = {"tree": (0.7, 0.8), "card": (0.5, 0.6), "card and tree": (0.5, 0.84), CART: (0.7, 0.7)}
    values |= dict.fromkeys((trees.EARLIER_CARD, *trees.PEERS), (0.62, 0.74))
    known = {"n": 5000, "seed": 0, "accuracy": 0.831}
    lines = pd.DataFrame(
        {"table": "a", "model": model, "epsilon": math.inf if model == CART else e, **known}
        | {"balanced_accuracy": value, "auc": value}
        for model, both in values.items()
        for e, value in zip((0.1, 0.3), both, strict=True)
    )
    chosen = trees.chosen(lines)
    assert set(chosen["model"]) == set(trees.AUTO)
    assert chosen[chosen["model"] == "auto"]["balanced_accuracy"].tolist() == [0.7, 0.8]
    halves = lines[lines["model"] == "tree"].assign(table=trees.HALVES)
    found = trees.targets(pd.concat([lines, chosen]), halves.assign(epsilon=[0.03, 0.3])).set_index("what")
    assert found.loc[f"tree, over the {trees.EARLIER_CARD}"].tolist()[2:] == ["0.060, at epsilon 0.3", "no"]
    assert found.loc["tree, over CART of depth 3 without privacy", "smallest mean"] == "not measured"
    assert found.loc[f"tree, over {trees.PEERS[0]}", "holds"] == "yes"
    gaps = found.filter(like="over the best", axis=0)
    assert gaps["smallest mean"].tolist() == ["-0.040, at epsilon 0.3", "-0.200, at epsilon 0.1"]
    assert found.filter(like="accuracy on", axis=0)["holds"].tolist() == ["yes", "no"]


@pytest.mark.parametrize(
    ("package", "spent", "labels", "rows"),
    [
        ("privatree", [0.5, 1.0, 2.0], ["M, as labelled", "M, replace-one"], ["30,1,0", "40,0,1"]),
        (table_peers.EARLIER, [1.0, 2.0], ["M"], ["b,30,0", "a,40,1"]),
    ],
)
def test_others_are_asked_by_their_own_neighbours(
    package: str, spent: list[float], labels: list[str], rows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that add or remove a record have half of epsilon, too; PrivaTree reads categories as numbers."""
    seen = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        task = json.loads(Path(command[-1]).read_text())
        seen.append((task["epsilons"], Path(task["train"]).read_text().splitlines()))
        found = [{"model": "M", "epsilon": e, "scores": [0.5], "seconds": 0.1} for e in task["epsilons"]]
        return SimpleNamespace(stdout=json.dumps(found))

    monkeypatch.setattr(table_peers.subprocess, "run", run)
    frame = pd.DataFrame({"level": ["b", "a"], "age": [30, 40]})
    schema = Schema([Numeric("age", 0, 90), Categorical("level", ["a", "b"])])
    halves = table_peers.TablePeer(schema, frame, np.array([0, 1]), frame, 0)
    fits = halves.fits(Path("python"), package, (1.0, 2.0))
    assert {(fit.model, fit.epsilon) for fit in fits} == {(m, e) for m in labels for e in (1.0, 2.0)}
    assert seen[0][0] == spent
    assert seen[0][1][1:] == rows

"""Race of solvers of programs after the noise, and AUC of cards under constraints: small runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from privopt.experiments import card_constraints
from privopt.experiments.cli.compare_oracles import app
from privopt.experiments.comparison import programs
from privopt.oracles.errors import UnknownOracleError

SMALL = {"cards": (8, 3), "subsets": (12, 3)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    workloads = {name: (made[0], (SMALL[name],), *made[2:]) for name, made in programs.WORKLOADS.items()}
    monkeypatch.setattr(programs, "WORKLOADS", workloads)


@pytest.mark.usefixtures("small")
def test_solvers_of_programs_race_on_the_command_line(tmp_path: Path) -> None:
    words = ["--output", str(tmp_path / "a"), "--workload", "subsets"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    assert "contradictions: 0" in run.output
    text = (tmp_path / "a" / "programs.md").read_text()
    for name in ("branch-and-bound", "highs"):
        assert f"| subsets | 12 x 3 | {name} | 1 of 1 | 1 of 1 |" in text
    cards = ["--output", str(tmp_path / "b"), "--workload", "cards", "--oracle", "highs"]
    run = CliRunner().invoke(app, cards)
    assert run.exit_code == 0, run.output
    assert "| cards | 8 x 3 | highs | 1 of 1 | 1 of 1 |" in run.output
    with pytest.raises(UnknownOracleError):
        programs.race(tmp_path / "c", "subsets", ["magic"], 1, 1.0, Console())


def test_contradictions_are_of_those_that_claim_to_be_done() -> None:
    entry = programs.Entry("subsets", (12, 3), 0, "branch-and-bound", 10.0)
    [right] = programs.solve(entry)
    worse = replace(right, oracle="worse", value=right.value / 2)
    unfinished = replace(worse, oracle="unfinished", finished=False)
    frame = programs.pd.DataFrame([vars(one) for one in (right, worse, unfinished)])
    assert programs.contradictions(frame)["oracle"].tolist() == ["worse"]


def test_cards_of_a_kind_keep_its_constraints(tmp_path: Path) -> None:
    most = "all but list and implications"
    cells = [card_constraints.Cell("breast cancer", kind, 1) for kind in ("none", most)]
    lines = card_constraints.STUDY.run(tmp_path, cells, Console(stderr=True))
    assert (lines["auc"] > 0.9).all()
    rows = (tmp_path / "card-constraints.md").read_text().splitlines()
    assert rows[2].startswith("| none | 0.9")
    table = card_constraints.load("breast cancer")
    together = card_constraints.constraints(most, table)
    assert "at most 5 columns" in together
    assert len(together) == 3 + 15 + 30  # 30 numbers: 15 pairs, and an order each
    assert card_constraints.STUDY.missing(tmp_path, cells) == []

"""Runs in cells, in one process and in parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from privopt.experiments.workbench.study import Shard, Study
from privopt.problems.errors import InvalidInputError

CELLS = list(range(10))


@dataclass(frozen=True)
class Line:
    cell: int
    epsilon: float
    value: float


def study() -> Study[int]:
    return Study(
        "squares",
        Line,
        ("cell", "epsilon"),
        compute=lambda cell: [Line(cell, float("nan"), 0.0), Line(cell, 1.0, float(cell**2))],
        is_finished=lambda kept, cell: bool(kept.matching(cell=cell)),
        page=lambda lines: f"# Squares\n\nMeasured.\n\n{len(lines)}\n",
    )


def test_parts_of_a_run_have_all_cells_once() -> None:
    parts = [Shard.of(f"{k}/3").cells(CELLS) for k in (1, 2, 3)]
    assert sorted(cell for part in parts for cell in part) == CELLS
    assert parts[0] != CELLS[::3]
    assert all(part == sorted(part) for part in parts)  # the first ones first


def test_a_run_takes_over_the_lines_of_its_parts(tmp_path: Path) -> None:
    """Lines that are there, or in two parts, are kept once, lines without a privacy level, too."""
    quiet = Console(quiet=True)
    study().run(tmp_path, [0, 1], quiet)
    for part in ("1/2", "2/2", "1/1"):
        study().run(tmp_path, CELLS[:8], quiet, part)
    assert not any("squares.md" in name.name for name in tmp_path.glob("*-of-*"))
    lines = study().run(tmp_path, CELLS, quiet)
    assert sorted(lines["cell"]) == sorted(2 * CELLS)
    assert [name.name for name in sorted(tmp_path.iterdir())] == ["squares.csv", "squares.md"]
    again = study().kept(tmp_path).frame
    assert again["value"].tolist() == lines["value"].tolist()


def test_a_part_leaves_out_what_the_results_have(tmp_path: Path) -> None:
    quiet = Console(quiet=True)
    study().run(tmp_path, CELLS[:4], quiet)
    later = [study().run(tmp_path, CELLS, quiet, part) for part in ("1/2", "2/2")]
    assert sorted(cell for part in later for cell in set(part["cell"])) == CELLS[4:]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/2", "1/0", "-1/2"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="1 <= K <= N"):
        Shard.of(text)

"""The runnable of recovery: a line for each fit, a row for each design, and what auto takes in bold."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from privopt.experiments import best_subsets

LARGE, SMALL = (8, 2, 4000, 2.0, 0.1), (8, 4, 2, 0.01, 0.1)


@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
def test_lines_are_counted_in_a_row_of_their_design(tmp_path: Path) -> None:
    cells = [best_subsets.Cell(*design, 2) for design in (LARGE, SMALL)]
    lines = best_subsets.STUDY.run(tmp_path, cells, Console(stderr=True))
    assert len(lines) == 8
    large = lines[lines["records"] == 4000]
    assert large["recovered"].all()
    assert (large["r2"] > 0.5).all()
    rows = (tmp_path / "best-subsets.md").read_text().splitlines()
    # Tables of 2 records at epsilon 0.01 say nothing: any support is as good as another.
    assert rows[2].startswith("| 0.01 | 8 | 4 | 0.1 | 2 |")
    assert "**" in rows[2]
    assert rows[3].startswith("| 2 | 8 | 2 | 0.1 | 4,000 |")
    assert rows[3].count("2 of 2") == 2
    assert rows[3].count("**2 of 2**") == 1
    again = best_subsets.STUDY.missing(tmp_path, cells)
    assert again == []

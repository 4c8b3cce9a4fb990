"""The study of intervals counts what draws show, resumes where it stopped, and tabulates shares of draws."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import intervals

FEW = "few records, 2 columns"


@pytest.fixture
def design(monkeypatch: pytest.MonkeyPatch) -> intervals.Design:
    monkeypatch.setattr(intervals, "_POPULATION", 20_000)
    [found] = [one for one in intervals.designs() if one.name == FEW]
    return found


def test_lines_count_draws_that_cover_and_draws_that_are_refused(design: intervals.Design) -> None:
    draws, truth = 4, design.population[0]
    for epsilon in (0.01, 3.0):  # nothing, and all
        lines = intervals.measured(intervals.Cell(design, epsilon, draws))
        bounds = [design.summary(epsilon, run)[0] for run in range(draws)]
        assert [one is None for one in bounds] == [epsilon == 0.01] * draws
        given = [np.array([[i.low, i.high] for i in one]) for one in bounds if one is not None]
        for j, line in enumerate(lines):
            assert line.refused == draws - len(given)
            assert line.covered == sum(low <= truth[j] <= high for low, high in (one[j] for one in given))
            if given:
                assert line.width == pytest.approx(np.median([one[j, 1] - one[j, 0] for one in given]))
                assert line.clear == draws  # the signal is five times the noise
                assert line.clear_covered == line.covered


def test_plain_widths_are_those_of_least_squares(design: intervals.Design) -> None:
    """Two columns of variance 1/9 without correlation, residuals of deviation .2, almost never clipped."""
    _, widths = design.population
    expected = 2 * 1.96 * 0.2 / np.sqrt(design.n) * np.array([3.0, 3.0, 1.0])
    assert widths == pytest.approx(expected, rel=0.03)


def test_a_run_resumes_and_writes_its_page(
    design: intervals.Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[float] = []

    def measure(cell: intervals.Cell) -> list[intervals.Line]:
        if cell.epsilon in measured or (cell.epsilon == 3.0 and not measured):
            raise AssertionError("out of turn, or once more")
        measured.append(cell.epsilon)
        return intervals.measured(cell)

    monkeypatch.setattr(intervals, "STUDY", dataclasses.replace(intervals.STUDY, compute=measure))
    monkeypatch.setattr(intervals, "designs", lambda: [design] * 6)
    first = intervals.Cell(design, 0.3, 2)
    intervals.STUDY.run(tmp_path, [first], Console(quiet=True))
    assert measured == [0.3]
    intervals.main(tmp_path, draws=2, quick=True)
    assert measured == list(intervals.EPSILONS)
    page = (tmp_path / "intervals.md").read_text("utf-8")
    assert "<!-- fill: draws -->2<!-- end -->" in page
    assert page.count(f"| {FEW} |") == len(intervals.EPSILONS)
    lines = pd.read_csv(tmp_path / "intervals.csv")
    assert len(lines) == 3 * len(intervals.EPSILONS)
    intervals.main(tmp_path, draws=2, quick=True)
    assert measured == list(intervals.EPSILONS)


def line(coefficient: str, **counts: Any) -> intervals.Line:
    given = {"refused": 0, "covered": 95, "clear": 0, "clear_covered": 0} | counts
    return intervals.Line(
        "one", 1.0, 100, coefficient, **given, signal=2.0, width=3.0, plain_width=2.0, noise_share=0.5
    )


def test_shares_are_of_the_draws_that_are_not_refused() -> None:
    lines = [
        line("a", refused=20, covered=76, clear=60, clear_covered=54),
        line("b", refused=20, covered=72, clear=60, clear_covered=57),
    ]
    frame = pd.DataFrame([dataclasses.asdict(one) for one in lines])
    [row] = intervals.coverage(frame).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # 148 of 160; 72 and 76 of 80; 54 and 57 of 60.
    assert cells == ["one", "1", "2", "20%", "0.925", "0.900, 0.950", "0.900, 0.950", "1.5 to 1.5", "50%"]
    assert intervals.within(frame) == "1 of 2; together 0.9250, the least 0.900, the largest 0.950"
    assert intervals.within(frame.assign(clear=49)) == "too few draws"

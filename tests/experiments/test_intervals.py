"""The study of intervals counts what draws show, resumes where it stopped, and judges shares of draws."""

from __future__ import annotations

import dataclasses
import math
import types
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
    monkeypatch.setattr(intervals, "module", lambda name: None)
    return dataclasses.replace(named(FEW), kinds=(intervals.PLAIN,))


def named(name: str) -> intervals.Design:
    [found] = [one for one in intervals.designs() if one.name == name]
    return found


def test_lines_count_draws_that_cover_and_draws_that_are_refused(
    design: intervals.Design, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, truth = 4, design.population[0]
    ran: list[intervals.Found] = []
    find = intervals.Design.found
    monkeypatch.setattr(intervals.Design, "found", lambda *of: ran.append(find(*of)) or ran[-1])
    for epsilon in (0.01, 3.0):  # nothing, and all
        ran.clear()
        lines = intervals.measured(intervals.Cell(design, epsilon, draws))
        given = 0 if epsilon == 0.01 else draws
        assert [line.given for line in lines] == [given] * 8 + [given // 2]
        bounds = [one.intervals for one in ran if one.intervals is not None]
        for j, (line, value) in enumerate(zip(lines, truth, strict=False)):
            assert line.clear == line.given  # the signal is five times the noise
            assert line.clear_covered == line.covered == sum(o[j].low <= value <= o[j].high for o in bounds)
            if given:
                assert line.width == pytest.approx(np.median([one[j].high - one[j].low for one in bounds]))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        assert lines[-1].covered == sum(b.low <= 0 <= b.high for b in (f[0].minus(s[0]) for f, s in pairs))


@pytest.mark.parametrize("name", ["numbers and a category", "means of groups", "rare positives, 3 columns"])
def test_numbers_of_the_population_are_those_of_the_intervals(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a huge epsilon intervals are narrow: all hold the number that they are compared with, or nearly."""
    monkeypatch.setattr(intervals, "_POPULATION", 200_000)
    design = named(name)
    found = design.found(design.kinds[0], design.records(1, design.n), 1e4, 0)
    truth, width = design.population
    assert found.intervals is not None
    assert len(truth) == len(width) == len(found.intervals) == len(design.quantities)
    for one, value, plain in zip(found.intervals, truth, width, strict=True):
        assert abs((one.low + one.high) / 2 - value) < 2 * plain
        assert one.high - one.low == pytest.approx(plain, rel=0.3)


def test_predictions_of_groups_are_those_of_all_levels() -> None:
    assert sorted(named("means of groups").asked.given["region"]) == sorted(intervals.REGIONS)


def test_plain_widths_are_those_of_least_squares(design: intervals.Design) -> None:
    """Two columns of variance 1/9 without correlation, residuals of deviation .2, almost never clipped."""
    _, widths = design.population
    expected = 2 * 1.96 * 0.2 / np.sqrt(design.n) * np.array([3.0, 3.0, 1.0, 3 * math.sqrt(2)])
    assert widths[:4] == pytest.approx(expected, rel=0.04)


def test_the_peer_gets_half_the_budget_for_replacing_and_units_are_those_of_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[float, float]] = []

    class Peer:
        def __init__(self, epsilon: float, delta: float, **_: Any) -> None:
            asked.append((epsilon, delta))

        def fit(self, y: Any, X: Any) -> Peer:
            self.X, self.y = X, y
            return self

        def conf_int(self, alpha: float) -> Any:
            assert np.abs(self.X).max() <= 1
            Z = np.column_stack([np.ones(len(self.X)), self.X])
            at = np.linalg.lstsq(Z, self.y)[0]
            return np.column_stack([at - alpha, at + alpha])

    monkeypatch.setattr(intervals, "module", lambda name: types.SimpleNamespace(DPOLS=Peer))
    design = named("numbers and a category")
    records = design.records(1, 2000)
    for kind in (intervals.PEER, intervals.PEER_REPLACED):
        intervals_, _ = design.found(kind, records, 1.0, 0)
        assert intervals_ is not None
        middle = [(one.low + one.high) / 2 for one in intervals_]
        assert middle == pytest.approx([0.006, 0.004, 0.1, 0.0, -0.2], abs=0.03)
        assert intervals_[0].high - intervals_[0].low == pytest.approx(0.1 / 36)  # 72 years on [-1, 1]
    full, half = asked
    assert full == (1.0, 1e-8)
    # A removal, then an addition: (e / 2, d') twice is (e, d' (1 + exp(e / 2))).
    assert (half[0], half[1] * (1 + math.exp(half[0]))) == (0.5, pytest.approx(1e-8))


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
    intervals.main(tmp_path, draws=2, quick=True)
    assert measured == list(intervals.EPSILONS)


def line(quantity: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"kind": intervals.PLAIN, "about": intervals.COEFFICIENT, "signal": 2.0}
    given |= {"given": 1000, "covered": 950, "clear": 0, "clear_covered": 0, "width": 3.0, "noise_share": 0.5}
    found = intervals.Line(
        **{"design": "one", "epsilon": 1.0, "draws": 1000, "quantity": quantity, "plain_width": 2.0}
        | given
        | more
    )
    return dataclasses.asdict(found)


def test_shares_are_of_the_draws_that_are_not_refused() -> None:
    lines = [line("a", given=800, covered=760), line("b", given=800, covered=720)]
    [row] = intervals.coverage(pd.DataFrame(lines)).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # 1,480 of 1,600; 720 and 760 of 800.
    assert cells == ["one", "1", "1,000", "2", "20%", "0.925", "0.900, 0.950", "1.5 to 1.5", "50%"]


def test_a_verdict_counts_strictly_and_fails_where_chance_does_not_explain() -> None:
    """Of a thousand draws with a coverage of 93% 918 or fewer hold by chance once in 14, 880 never."""
    lines = [line("a"), line("b", covered=918), line("hidden", signal=0.9, covered=0)]
    said = intervals.verdicts(pd.DataFrame(lines))
    assert said.startswith("- *least squares*, coefficient: holds: 1 of 2 are in the range, 0 outside")
    for covered in (880, 995):
        said = intervals.verdicts(pd.DataFrame([*lines, line("c", covered=covered)]))
        assert "**does not hold**: 1 of 3 are in the range, 1 outside by more than chance" in said
        assert said.endswith("(one, epsilon 1, c).")
    assert "coefficient: open (too few" in intervals.verdicts(pd.DataFrame([line("a", draws=499)]))
    assert intervals.verdicts(pd.DataFrame([line("a", given=49, covered=49)])) == "too few draws"


def test_hidden_signals_are_those_of_designs_that_are_not_judged() -> None:
    lines = [line("a", signal=0.8, clear=100, clear_covered=90), line("b", clear=100, clear_covered=10)]
    assert intervals.hidden(pd.DataFrame(lines)).startswith("they cover 0.900")
    assert intervals.hidden(pd.DataFrame(lines[1:])) == "there are too few of them"


def test_widths_are_compared_by_coefficient_and_one_wider_interval_is_said() -> None:
    lines = [line("a"), line("b")]
    for kind, widths in ((intervals.PEER_REPLACED, (6.0, 4.0)), (intervals.PEER, (3.5, 2.0))):
        lines += [line(k, kind=kind, signal=math.nan, width=w) for k, w in zip("ab", widths, strict=True)]
    said = intervals.widths(pd.DataFrame(lines)).splitlines()
    assert "replace-one*: holds: 2 of 2 coefficients; width / peer's 0.50 to 0.75" in said[0]
    assert "add or remove*: **does not hold**: 1 of 2 coefficients" in said[1]
    assert said[1].endswith("(one, epsilon 1).")
    assert "| one | 1 | 2 | 0.5 to 0.75 | 0.86 to 1.5 | 0.950, 0.950 |" in intervals.peers(
        pd.DataFrame(lines)
    )
    assert "not installed" in intervals.widths(pd.DataFrame(lines[:2]))


def test_a_page_is_in_the_order_of_the_designs_however_parts_of_its_run_end() -> None:
    names = [design.name for design in intervals.designs()]
    lines = [line("a", design=name, epsilon=epsilon) for name in names[:3] for epsilon in intervals.EPSILONS]
    assert intervals.page(pd.DataFrame(lines[::-1])) == intervals.page(pd.DataFrame(lines))

"""Long runs on small tasks: what is kept, what is done again, what the pages say."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from privopt.experiments import benchmark_solvers as draws
from privopt.experiments import scaling
from privopt.experiments.workbench.resumable import Kept, WorkerDiedError, isolated, markdown, peak_megabytes
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class Fact:
    name: str
    epsilon: float
    done: bool


def test_lines_are_kept_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "facts.csv"
    kept = Kept(path, Fact, ("name", "epsilon"))
    kept.add(Fact("a, b", math.inf, True))
    kept.add(Fact("c", 0.1, False))
    again = Kept(path, Fact, ("name", "epsilon"))
    assert [Fact(**line) for line in again.lines] == [Fact("a, b", math.inf, True), Fact("c", 0.1, False)]
    assert again.holds(Fact("c", 0.1, True))
    assert not again.holds(Fact("c", 0.2, True))
    again.add(Fact("d", 1.0, True))
    assert again.frame["done"].dtype == bool
    assert len(path.read_text().splitlines()) == 4


def test_lines_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("name,done\na,True\n")
    with pytest.raises(InvalidInputError, match="columns differ"):
        Kept(tmp_path / "facts.csv", Fact, ("name",))


def test_tables_for_a_page() -> None:
    text = markdown(pd.DataFrame({"a|b": ["x|y", "z"], "number": [0.12345, math.nan]}))
    assert text.splitlines()[2:] == ["| x\\|y | 0.123 |", "| z |  |"]


def test_what_comes_from_a_process_comes_one_by_one_and_its_errors_are_raised() -> None:
    assert list(isolated(map, math.sqrt, [4.0, 9.0])) == [2.0, 3.0]
    with pytest.raises(ValueError, match="math domain"):
        list(isolated(map, math.sqrt, [4.0, -1.0]))
    with pytest.raises(WorkerDiedError, match="exit code 7"):
        list(isolated(map, os._exit, [7]))


def test_peak_memory_is_that_of_the_process_alone() -> None:
    """A fresh process does not inherit the peak of the one that started it, and sees its own arrays."""
    ballast = np.ones(100 << 17)  # 100 MB
    assert peak_megabytes() > 100
    fresh = (
        "from privopt.experiments.workbench.resumable import peak_megabytes as peak\n"
        "before, ballast = peak(), bytearray(b'1') * (80 << 20)\n"
        "print(before, peak())\n"
    )
    run = subprocess.run([sys.executable, "-c", fresh], capture_output=True, text=True, check=True)
    before, after = map(float, run.stdout.split())
    assert 64 <= after - before < 96  # memory that imports have freed is used again
    if sys.platform == "linux":
        assert peak_megabytes() - before > ballast.nbytes / 2**20 - 60


PLAN = [
    draws.Unit("exponential", draws.BALL, 1.0, 2, 5.0, small=True),
    draws.Unit("permute-and-flip", draws.TERNARY, 1.0, 2, 5.0, small=True),
]


def quiet() -> Console:
    return Console(quiet=True)


@pytest.mark.usefixtures("imported_once")
def test_the_benchmark_of_draws_runs_resumes_and_writes_its_page(tmp_path: Path) -> None:
    first = draws.study(small=True).run(tmp_path, PLAN[:1], quiet())
    assert first["finished"].all()
    rows = draws.study(small=True).run(tmp_path, PLAN, quiet())
    assert len(rows) == 4
    pd.testing.assert_frame_equal(rows.iloc[:2], first)  # not done again
    page = (tmp_path / "exact-draws.md").read_text()
    assert "Not all is there" not in page
    assert "| exponential | OPDisc's ball | 1 | gibbs-elimination |" in page
    assert (tmp_path / "exact-draws.png").read_bytes().startswith(b"\x89PNG")
    complete = (tmp_path / "exact-draws.csv").read_text()
    draws.study(small=True).run(tmp_path, PLAN, quiet())
    assert (tmp_path / "exact-draws.csv").read_text() == complete


def line(**changes: object) -> draws.Draw:
    whole = draws.Draw("exponential", draws.TERNARY, "gibbs-branch", 1.0, 0, 2.0, True, 7.0, 0.1, 300.0)
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_open_draws_are_said_to_be_open() -> None:
    opened = line(epsilon=0.01, finished=False, loss=math.nan, seconds=300.0)
    rows = pd.DataFrame([vars(x) for x in (line(), line(draw=1, seconds=0.5, loss=9.0), opened)])
    table = draws.drawn(rows, 100)
    assert table["first draw"].tolist() == ["2", "open at 300"]
    assert table["next draws"].tolist() == ["0.5", ""]
    assert table["accuracy"].tolist() == ["0.9200", ""]


def test_an_open_draw_completes_its_unit(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "exact-draws.csv", draws.Draw, draws.KEY)
    unit = draws.Unit("exponential", draws.TERNARY, 1.0, 5, 1.0)
    assert not draws.complete(kept, unit)
    kept.add(line(finished=False))
    assert draws.complete(kept, unit)


def test_the_default_run_asks_what_it_promises() -> None:
    plan = draws.units(5, 300.0, small=False)
    lattices = (draws.TERNARY, draws.QUINARY, draws.BALL, draws.WIDE)
    assert {(u.over, u.epsilon) for u in plan if u.law == "exponential"} == {
        (over, e) for over in lattices for e in (0.01, 0.1, 1.0, 5.0)
    }


@pytest.mark.usefixtures("imported_once")
def test_scaling_runs_resumes_and_writes_its_page(tmp_path: Path) -> None:
    plan = [scaling.Unit((), "opdisc", 1.0, 5.0), scaling.Unit((), "exponential", 1.0, 5.0)]
    scaling.STUDY.run(tmp_path, plan[:1], quiet())
    rows = scaling.STUDY.run(tmp_path, plan, quiet())
    assert rows["status"].tolist() == ["solved"] * 2
    assert rows["levels"].tolist() == [5, 3]  # |w_j| <= floor(sqrt 6); {-1, 0, 1}
    assert rows["gap"][0] == 0
    page = (tmp_path / "scaling.md").read_text()
    assert "| 6 | " in page
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_open_lines_of_scaling_show_gap_and_bound() -> None:
    where = {
        "columns": "age+sex",
        "dimension": 8,
        "cells": 10,
        "levels": 3,
        "question": "rspm",
        "epsilon": 1.0,
    }
    found = {"by": "native", "seconds": 0.5, "status": "solved", "value": 7.0, "bound": 7.0, "gap": 0.0}
    solved = scaling.Line(**where, **found, early_gap=math.nan, peak_megabytes=250.0)
    unsolved = replace(
        solved, dimension=60, cells=4000, seconds=60.0, status="open", bound=-5.0, gap=12.0, early_gap=15.0
    )
    none = dict.fromkeys(("bound", "gap", "early_gap"), math.nan)
    refused = replace(unsolved, question="opdisc", status="refused", **none)
    draw = replace(unsolved, question="exponential", **none)
    rows = pd.DataFrame([vars(x) for x in (solved, unsolved, refused, draw)])
    table = scaling.table(rows)
    assert table["rspm, epsilon 1"].tolist() == ["0.5", "open at 60 s: gap 15, then 12, bound -5"]
    assert table["opdisc, epsilon 1"].tolist() == ["", "refused"]
    assert table["exponential, epsilon 1"].tolist() == ["", "open at 60 s"]
    assert scaling.sizes(rows)["cells x levels, {-1,0,1}^d"].tolist() == [30, 12000]
    least = replace(unsolved, epsilon=math.inf, value=100.0, bound=90.0, gap=10.0)
    known = scaling.table(pd.DataFrame([vars(x) for x in (solved, unsolved, draw, least)]))
    # -100 / 2, and -90 / 2 + 60 log 3
    assert known["exponential, epsilon 1"].tolist() == ["", "open at 60 s: log Z -50 to 21"]
    minima, draws = scaling.picture(rows).axes
    assert [axes.get_title(loc="left") for axes in (minima, draws)] == ["Proved minima", "Exact draws"]
    # What was left open stands on the dashed line, above all that was solved.
    (ceiling,) = {float(np.max(axes.lines[0].get_ydata())) for axes in (minima, draws)}  # type: ignore[arg-type]
    assert ceiling == 120.0
    assert minima.lines[0].get_ydata()[0] == 0.5  # type: ignore[index]


def test_scaling_reaches_from_eight_to_sixty_dimensions() -> None:
    """The smallest and the largest size, with as many dimensions as their columns have categories."""
    sizes = [
        scaling.problem(scaling.Unit(columns, "rspm", 1.0, 1.0))
        for columns in (scaling.SIZES[0], scaling.SIZES[-1])
    ]
    assert sizes[0].lattice.dimension == 8
    assert 58 <= sizes[1].lattice.dimension <= 64


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "privopt.experiments.benchmark_solvers",
        "--try-out",
        "--output",
        str(tmp_path),
    ]
    with subprocess.Popen([*command, "--draws", "1"], stdout=subprocess.PIPE, text=True) as process:
        kept = tmp_path / "exact-draws.csv"
        for _ in wait(300):
            if kept.exists():
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "the same command resumes" in out
    assert "**Not all is there yet.**" in (tmp_path / "exact-draws.md").read_text()
    assert len(pd.read_csv(kept)) >= 1


def wait(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.1)

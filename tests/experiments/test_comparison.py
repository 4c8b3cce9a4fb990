"""The race of oracles on small instances: what is kept and lost, what its report says, what it exports."""

from __future__ import annotations

import dataclasses
import io
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from privopt.experiments.cli.compare_oracles import app
from privopt.experiments.comparison import race, report, workload
from privopt.experiments.comparison.export import export
from privopt.experiments.comparison.race import DIED, OPEN, REFUSED, SOLVED, Moment, Solve
from privopt.experiments.workbench import resumable
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.minimize.mip.cpsat import CpSatOracle
from privopt.oracles.minimize.mip.highs import HighsOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("imported_once")

TINY = workload.workload("tiny", 1)


def quiet() -> Console:
    return Console(quiet=True)


def test_instances_are_the_same_everywhere() -> None:
    """Values by hand would prove little: the same instance twice, another draw, and known sizes."""
    one = TINY[0]
    a, b, c = (workload.perturbation(i) for i in (one, one, dataclasses.replace(one, draw=1)))
    assert all(np.array_equal(x, y) for x, y in zip(a.unary, b.unary, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(a.unary, c.unary, strict=True))
    everything = workload.workload("all", 2)
    assert len(set(everything)) == len(everything) > 80
    assert {(i.n, i.d) for i in everything if i.data == "adult"} >= {(200, 5), (15_682, 23)}
    problem = workload.problem("adult", 200, 10, "opdisc")
    assert (problem.n_records, problem.lattice.dimension) == (200, 10)
    with pytest.raises(InvalidInputError, match="there are tiny, ladder"):
        workload.workload("huge", 1)


def test_a_race_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    names = ["native", "highs:rows"]
    first, _ = race.run(tmp_path, TINY[:1], names[:1], limit=20.0, jobs=1, console=quiet())
    assert first.frame["status"].tolist() == [SOLVED]
    before = (tmp_path / "solves.csv").read_text()
    solves, moments = race.run(tmp_path, TINY, names, limit=20.0, jobs=2, console=quiet())
    assert (tmp_path / "solves.csv").read_text().startswith(before)
    frame = solves.frame
    assert len(frame) == len(TINY) * len(names)
    assert frame[frame["oracle"] == "highs:rows"]["status"].tolist() == [SOLVED] * 3
    assert frame[frame["oracle"] == "native"]["status"].tolist() == [SOLVED, SOLVED, REFUSED]
    assert report.disagreements(frame).empty
    ends = moments.frame.groupby(list(race.KEY))[["seconds", "incumbent", "bound"]].last()
    assert len(ends) == 5
    assert (ends["incumbent"] == ends["bound"]).all()
    sections = report.parts(frame, moments.frame, 20.0)
    page = report.html(sections)
    report.write_markdown(tmp_path, sections)
    assert (tmp_path / "report-1.png").read_bytes().startswith(b"\x89PNG")
    assert "| highs:rows | 3 |" in (tmp_path / "report.md").read_text()
    assert page.count("data:image/svg+xml;base64") == 2
    assert "Contradictions between proofs: 0." in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    with pytest.raises(InvalidInputError, match="time limit of 20"):
        race.run(tmp_path, TINY, names, limit=9.0, jobs=1, console=quiet())


class Fatal(DiscreteOracle):
    """Ends its process at the second question."""

    name = "fatal"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        def solve(query: Query) -> Proposal:
            if problem.lattice.dimension == 12 and not query.perturbation.is_zero and task is Task.NORMALIZED:
                os.kill(os.getpid(), signal.SIGKILL)
            return Proposal(problem.lattice.low * 0, -query.perturbation.magnitude)

        return solve


def deadly_runner(*words: object) -> Iterator[race.Finding]:
    """``runner`` with an oracle that is no built-in one, in a fresh process."""
    race.minimizer = lambda name: Fatal()  # type: ignore[assignment]
    yield from race.runner(*words)  # type: ignore[arg-type]


def test_a_killed_runner_loses_only_its_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "runner", deadly_runner)
    found = [solve for solve, _ in race._survived("fatal", list(TINY), 5.0, None)]
    assert [solve.status for solve in found] == [OPEN, DIED, OPEN]
    assert "exit code -9" in found[1].said


class Endless(DiscreteOracle):
    """Never ends building problems of a size, deaf to the polite signal; leaves a file when it begins."""

    name = "endless"

    def __init__(self, at: int, begun: Path) -> None:
        self.at, self.begun = at, begun

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        if problem.lattice.dimension == self.at:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.begun.touch()
            while True:
                time.sleep(1)
        return lambda query: Proposal(problem.lattice.low * 0, -query.perturbation.magnitude)


def endless_runner(name: str, *words: object) -> Iterator[race.Finding | race.Stage]:
    warm = race.Instance("synthetic", 60, 20, "rspm", 1.0, 0)
    at, _, begun = name.partition(" ")
    race.minimizer = lambda _: Endless(int(at), Path(begun))  # type: ignore[assignment,return-value]
    race._warm = lambda oracle: race._built(oracle, warm)  # type: ignore[assignment]
    yield from race.runner(name, *words)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dimension", "stage"), [(8, race.Stage.BUILD), (20, race.Stage.WARM_UP)])
def test_a_build_or_a_warm_up_that_never_ends_is_ended_and_the_race_goes_on(
    dimension: int, stage: race.Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is up as soon as the oracle says that it has begun to go on for ever."""
    begun = tmp_path / "begun"
    monkeypatch.setattr(race, "runner", endless_runner)
    monkeypatch.setattr(resumable, "_GRACE", 0.2)
    stages = []

    def check(timer: race.StageTimer, process: object) -> None:
        if begun.exists():
            begun.unlink()
            stages.append(timer.stage)
            raise race.StageTimeoutError("time is up")

    monkeypatch.setattr(race.StageTimer, "check", check)
    instances = [TINY[2], TINY[0]]
    found = [solve.status for solve, _ in race._survived(f"{dimension} {begun}", instances, 5.0, None)]
    assert found == [race.TIMED_OUT, OPEN if stage is race.Stage.BUILD else race.TIMED_OUT]
    assert stages == [stage]


def test_a_stage_is_over_when_its_time_with_a_processor_or_asleep_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, 10 s a build: 16 s allowed, 20 times as many on the clock of a busy machine."""
    now, used, awake = [0.0], [100.0], [True]
    monkeypatch.setattr(race.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(race, "processor_seconds", lambda pid, stats: used[0])
    monkeypatch.setattr(race, "is_awake", lambda pid, stats: awake[0])
    process = multiprocessing.Process()
    for stage, after, passed, over in (
        (race.Stage.BUILD, 115.9, 319.0, False),
        (race.Stage.BUILD, 116.1, 20.0, True),
        (race.Stage.BUILD, 101.0, 321.0, True),
        (race.Stage.WARM_UP, 236.0, 20.0, False),
        (race.Stage.WARM_UP, 238.0, 20.0, True),
        (race.Stage.SOLVE, 115.9, 319.0, False),
        (race.Stage.SOLVE, 116.1, 20.0, True),
        (race.Stage.SOLVE, 101.0, 321.0, True),
    ):
        now[0], used[0] = 0.0, 100.0
        timer = race.StageTimer(10.0)
        timer.begin(stage)
        timer.check(process)
        now[0], used[0] = passed, after
        with pytest.raises(race.StageTimeoutError, match=stage.value) if over else nullcontext():
            timer.check(process)
        now[0], used[0], awake[0] = 0.0, 100.0, False
        timer.begin(stage)
        timer.check(process)
        now[0], used[0] = timer.allowed - 1.1, 101.0
        timer.check(process)
        now[0], awake[0] = timer.allowed + 300.0, True  # in which it waits for a processor
        timer.check(process)
        now[0], awake[0] = timer.allowed + 300.2, False
        with pytest.raises(race.StageTimeoutError):
            timer.check(process)
        awake[0] = True


def test_a_process_that_sleeps_is_not_awake() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("not Linux")
    assert race.is_awake(None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        while race.is_awake(process.pid):
            time.sleep(0.01)
        process.kill()


def test_the_race_is_told_line_by_line_where_there_is_no_terminal(tmp_path: Path) -> None:
    file = io.StringIO()
    race.run(tmp_path, TINY[:1], ["enumerate"], limit=5.0, jobs=1, console=Console(file=file))
    assert "enumerate, synthetic n=60 d=12: solved" in file.getvalue()


def line(oracle: str, status: str = SOLVED, **changes: object) -> dict[str, object]:
    solve = Solve("adult", 200, 5, "rspm", 1.0, 0, oracle, status, 2.0, 1.0, 0.1, 7.0, 7.0, 0.0, True, 3, "")
    return dataclasses.asdict(dataclasses.replace(solve, **changes))  # type: ignore[arg-type]


def test_contradictions_are_found_and_tolerances_are_not_contradictions() -> None:
    proof = line("native")
    for other, wrong in (
        (line("highs:rows", exact=False, value=7.00005, bound=7.00005), 0),
        (line("highs:rows", exact=False, value=7.1, bound=7.1), 1),
        (line("cpsat:rows", value=7.00005, bound=7.00005), 1),
        (line("scip:rows", OPEN, value=9.0, bound=6.0, gap=3.0), 0),
        (line("scip:rows", OPEN, value=6.5, bound=6.0, gap=0.5), 1),  # a point below a proved minimum
        (line("pulp-cbc:rows", REFUSED, value=math.nan, bound=math.nan), 0),
    ):
        assert len(report.disagreements(pd.DataFrame([proof, other]))) == wrong


def test_the_profile_shows_ratios_to_the_fastest() -> None:
    """By hand: a takes 1 and 8 s, b 2 s and never: a's curve steps at 1 (both), b's once, at 2."""
    again = {"draw": 1}
    solves = pd.DataFrame(
        [
            line("a"),
            line("b", processor_seconds=2.0),
            line("a", processor_seconds=8.0, **again),
            line("b", OPEN, **again),
        ]
    )
    a, b = report.performance_profile(solves).axes[0].lines
    assert list(zip(*a.get_data(), strict=True))[:3] == [(1.0, 0.0), (1.0, 0.5), (1.0, 1.0)]
    assert list(zip(*b.get_data(), strict=True))[:2] == [(1.0, 0.0), (2.0, 0.5)]
    assert b.get_data()[1][-1] == 0.5
    table = report.certified(solves, 10.0).set_index("oracle")
    assert table.loc["a", "share proved"] == "100%"
    assert table.loc["b", "median seconds"] == "not within the limit"
    assert report.ratios(solves, "b", "a")["processor_seconds"] == 2.0
    assert report.reach(solves).set_index("oracle")["n = 200"].to_dict() == {"a": 5, "b": "none"}


def test_gaps_are_read_off_the_trace() -> None:
    asked: dict[str, Any] = {k: v for k, v in line("a").items() if k in race.KEY}
    trace = [(0.1, 9.0, 1.0), (1.0, 9.0, 5.0), (2.0, 7.0, 7.0)]
    moments = pd.DataFrame(
        [dataclasses.asdict(Moment(**asked, seconds=t, incumbent=v, bound=b)) for t, v, b in trace]
    )
    assert report._gaps(moments, np.array([0.01, 0.5, 1.5, 5.0])).tolist() == [8.0, 8.0, 4.0, 0.0]


def test_processor_time_counts_what_was_started() -> None:
    before = race.processor_seconds()
    if math.isnan(before):
        pytest.skip("not Linux")
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert race.processor_seconds() - before > 0.25  # ended processes are counted in hundredths, rounded down


def test_exported_files_have_the_optimum_that_is_stated(tmp_path: Path) -> None:
    """Read back by HiGHS itself, as anybody would."""
    import highspy

    lines = export(tmp_path, TINY, 20.0)
    assert {(e.model, e.proved) for e in lines} == {("rows", True), ("cells", True)}
    assert len(lines) == 5
    for exported in lines:
        for ending in ("mps", "lp"):
            solver = highspy.Highs()
            solver.silent()
            solver.readModel(str(tmp_path / f"{exported.file}.{ending}"))
            solver.setOptionValue("mip_rel_gap", 0.0)
            solver.run()
            assert solver.getObjectiveValue() == pytest.approx(exported.optimum, abs=1e-5)
            assert solver.getNumCol() == exported.columns
    table = pd.read_csv(tmp_path / "optima.csv")
    assert table["file"].tolist() == [e.file for e in lines]


def test_the_command(tmp_path: Path) -> None:
    words = ["--output", str(tmp_path), "--oracle", "native", "--workload", "tiny"]
    done = CliRunner().invoke(app, [*words, "--time-limit", "20"])
    assert done.exit_code == 0, done.output
    assert "contradictions: 0" in done.output
    assert pd.read_parquet(tmp_path / "solves.parquet")["oracle"].unique().tolist() == ["native"]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    files = CliRunner().invoke(app, [*words, "--export", str(tmp_path / "files")])
    assert "5 models in" in files.output.replace("\n", "")


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    code = "from privopt.experiments.cli.start import main; main()"
    words = ["compare-oracles", "--output", str(tmp_path), "--workload", "ladder", "--oracle", "highs:rows"]
    words += ["--time-limit", "0.5"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as process:
        kept, end = tmp_path / "solves.csv", time.monotonic() + 300
        while not kept.exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert len(pd.read_csv(kept)) >= 1


def test_entrants_are_oracles_by_name_and_model_on_one_thread() -> None:
    assert race.entrant("highs:cells") == HighsOracle("cells")
    with pytest.raises(InvalidInputError, match="no models to choose from"):
        race.entrant("enumerate:rows")
    assert CpSatOracle.threads is None

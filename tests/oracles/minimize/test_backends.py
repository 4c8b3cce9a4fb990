"""Every backend on the same questions: the kit, the same optimum, honest ends, strangers, clashes."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pulp
import pytest

from privopt.experiments.comparison.race import processor_seconds
from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.oracles.certificate import Status
from privopt.oracles.errors import MissingSolverError, SolverFailedError, UnknownOracleError
from privopt.oracles.limits import Limits, Progress, Watch
from privopt.oracles.minimize.conformance import check_oracle
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle
from privopt.oracles.minimize.interval import IntervalOracle
from privopt.oracles.minimize.local_search import LocalSearchOracle
from privopt.oracles.minimize.mip import pulp as pulp_oracle
from privopt.oracles.minimize.mip import worker_process
from privopt.oracles.minimize.mip.cpsat import CpSatOracle, CpSatSession, grid_steps
from privopt.oracles.minimize.mip.highs import HighsOracle, HighsSession
from privopt.oracles.minimize.mip.model import MipModel, Outcome, Question, SolverProgress
from privopt.oracles.minimize.mip.pulp import PulpOracle, PulpSession, translated
from privopt.oracles.minimize.mip.row_model import formulation
from privopt.oracles.minimize.mip.scip import ScipOracle
from privopt.oracles.minimize.mip.worker_process import RemoteSession, _answered, _Worker
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.task import Task
from privopt.problems import Categorical, Schema
from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation, from_fixed, levels
from privopt.problems.discrete.problem import DiscreteProblem

INSTALLED = {name: importlib.util.find_spec(name) is not None for name in ("ortools", "pyscipopt")}
cpsat = pytest.mark.skipif(not INSTALLED["ortools"], reason="OR-tools is not installed: privopt[cpsat]")
scip = pytest.mark.skipif(not INSTALLED["pyscipopt"], reason="PySCIPOpt is not installed: privopt[scip]")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


# --- The kit --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_task_each")
def test_local_search_passes_the_kit() -> None:
    report = check_oracle(LocalSearchOracle(starts=2), seeds=[0])
    assert len(report.passed) >= 95


@pytest.mark.parametrize(
    ("kind", "third"),
    [pytest.param(CpSatOracle, 1, marks=cpsat), pytest.param(ScipOracle, 2, marks=scip)],
    indirect=["third"],
)
@pytest.mark.usefixtures("third")
def test_backends_pass_their_share_of_the_kit(kind: type[DiscreteOracle]) -> None:
    """HiGHS has the rest, in test_mip."""
    report = check_oracle(kind(), seeds=[0])
    assert len(report.passed) >= 35
    assert not report.skipped


@pytest.mark.slow
@pytest.mark.parametrize(
    "oracle",
    [
        LocalSearchOracle(starts=2),
        pytest.param(CpSatOracle, marks=cpsat),
        pytest.param(ScipOracle, marks=scip),
        PulpOracle(),
    ],
    ids=lambda oracle: getattr(oracle, "name", "oracle"),
)
def test_backends_pass_the_kit(oracle: DiscreteOracle | type[DiscreteOracle]) -> None:
    report = check_oracle(oracle if isinstance(oracle, DiscreteOracle) else oracle(), seeds=[0])
    assert len(report.passed) >= 190
    assert not report.skipped or report.oracle == "local-search"  # which claims no order of ties


# --- The same optimum ---------------------------------------------------------------------------------


def backends(problem: DiscreteProblem) -> Iterator[DiscreteOracle]:
    """All that prove, each with every model that it has."""
    yield from (NativeOracle(threads=1), IntervalOracle())
    yield from (HighsOracle("rows"), HighsOracle("cells"))
    yield from (PulpOracle("HiGHS", "rows"), PulpOracle("CBC"))
    if INSTALLED["ortools"]:
        yield from (CpSatOracle("rows", 1), CpSatOracle("cells", 1))
    if INSTALLED["pyscipopt"]:
        yield from (ScipOracle("rows"), ScipOracle("cells"))


def random_problem(seed: int) -> tuple[DiscreteProblem, Perturbation, Task]:
    """A small problem of any kind; a third of the perturbations are whole numbers, so that values tie."""
    rng = np.random.default_rng([14, seed])
    n, task = int(rng.integers(5, 40)), (Task.LINEAR, Task.NORMALIZED)[int(rng.integers(2))]
    problem: DiscreteProblem
    if seed % 3 == 0:
        kind = (MonotoneConjunction, MonotoneDisjunction)[int(rng.integers(2))]
        d = int(rng.integers(3, 8))
        problem = kind(rng.integers(0, 2, (n, d)), rng.choice([-1, 1], n))
    else:
        blocks, bound = tuple(rng.integers(2, 4, int(rng.integers(1, 3))).tolist()), int(rng.integers(1, 3))
        columns = [6 * np.eye(b, dtype=np.int64)[rng.integers(0, b, n)] for b in blocks]
        numeric = int(rng.integers(0, 2))
        X = np.hstack([rng.integers(-4, 7, (n, numeric)), *columns])
        d = X.shape[1]
        radius = None if rng.random() < 0.5 else float(np.sqrt(d))
        y = np.where((X @ rng.integers(-1, 2, d) > 0) ^ (rng.random(n) < 0.2), 1, -1)
        problem = ZeroOneHalfspace(X, y, IntegerLattice(-bound, bound, dimension=d, radius=radius))
    return problem, _noise(problem.lattice, task, rng), task


def _noise(lattice: IntegerLattice, task: Task, rng: np.random.Generator) -> Perturbation:
    kind = int(rng.integers(3))
    if kind == 0:
        return Perturbation.zero(lattice)
    if kind == 1:
        tables = tuple((rng.integers(-1, 2, len(v)) << 20).astype(np.int64) for v in levels(lattice))
        return Perturbation(lattice, tables)
    scale = float(rng.choice([1.0, 30.0]))
    if task is Task.LINEAR:
        return Perturbation.linear(lattice, rng.normal(0, scale, lattice.dimension))
    return Perturbation.normalized(lattice, rng.normal(0, scale, lattice.dimension + 1))


def disagreements(seeds: range) -> tuple[list[str], dict[str, int]]:
    """Disagreements of a backend with enumeration, and the number of questions each has answered."""
    wrong, answered = list[str](), dict[str, int]()
    for seed in seeds:
        problem, p, task = random_problem(seed)
        best = EnumerationOracle().prepare(problem, task).minimize(p).certificate.fixed_value
        for oracle in backends(problem):
            if oracle.refusals(problem, task):
                continue
            c = oracle.prepare(problem, task).minimize(p).certificate
            name = f"{oracle.name} {getattr(oracle, 'model', '')}"
            answered[name] = answered.get(name, 0) + 1
            if c.fixed_value != best or c.fixed_bound != best:
                wrong.append(f"{seed} {name}: {c}, the minimum is {from_fixed(best or 0)}")
    return wrong, answered


def test_all_backends_find_the_same_optimum() -> None:
    wrong, answered = disagreements(range(6))
    assert wrong == []
    assert min(answered.values()) >= 2


@pytest.mark.slow
def test_all_backends_find_the_same_optimum_of_many_instances() -> None:
    wrong, answered = disagreements(range(210))
    assert wrong == []
    assert answered["highs rows"] == 210
    assert min(answered.values()) >= 60


# --- CP-SAT counts in integers --------------------------------------------------------------------------


@cpsat
def test_certificates_of_cpsat_are_integers_even_beyond_the_reach_of_tolerances() -> None:
    """Two points differ by one grid step, 2**-20, beside noise of a billion errors' worth: 2**-50 of it."""
    lattice = IntegerLattice(0, 1, dimension=2)
    problem = ZeroOneHalfspace([[1, -1], [1, -1]], [1, -1], lattice)
    big = 1 << 49
    p = Perturbation(lattice, (np.array([big, big + 1]), np.array([-big + 1, -big])))
    c = CpSatOracle("rows", 1).prepare(problem, Task.LINEAR).minimize(p, break_ties=True).certificate
    assert c.exact
    assert (
        c.fixed_bound
        == c.fixed_value
        == EnumerationOracle().prepare(problem, Task.LINEAR).minimize(p).certificate.fixed_value
    )


def test_costs_off_the_grid_are_no_integers() -> None:
    assert grid_steps(np.array([1.5, -(2.0**-20)])).tolist() == [3 << 19, -1]
    for costs in ([2.0**-21], [2.0**42, 2.0**42]):
        with pytest.raises(SolverFailedError, match="grid step"):
            grid_steps(np.array(costs))


# --- Limits, Ctrl-C, killed workers ---------------------------------------------------------------------


def hard() -> ZeroOneHalfspace:
    """Random signs, flipped labels, 24 dense columns: no model finishes this in seconds."""
    rng = np.random.default_rng(0)
    return ZeroOneHalfspace(
        rng.integers(-20, 21, (150, 24)), rng.choice([-1, 1], 150), IntegerLattice(-1, 1, dimension=24)
    )


LIVELY = [
    HighsOracle("rows"),
    PulpOracle("HiGHS", "rows"),
    PulpOracle("CBC", "rows"),
    pytest.param(CpSatOracle, marks=cpsat),
    pytest.param(ScipOracle, marks=scip),
]


def prepared(oracle: DiscreteOracle | type[DiscreteOracle]) -> PreparedOracle:
    return (oracle if isinstance(oracle, DiscreteOracle) else oracle()).prepare(hard(), Task.LINEAR)


def identity(value: object) -> str:
    return value.name if isinstance(value, DiscreteOracle) else getattr(value, "name", "")


@pytest.mark.parametrize("oracle", LIVELY, ids=identity)
def test_a_cancelled_solve_tells_its_best_point_and_an_honest_bound(oracle: DiscreteOracle) -> None:
    asked = prepared(oracle)
    zero = Perturbation.zero(asked.problem.lattice)
    began, seen = time.monotonic(), list[Progress]()
    limits = Limits(seconds=60, on_progress=seen.append, cancelled=lambda: time.monotonic() > began + 1.0)
    answer = asked.minimize(zero, limits)
    assert answer.certificate.status is Status.INTERRUPTED
    assert answer.point is not None
    assert 0 <= answer.certificate.bound < answer.certificate.value == asked.problem.loss(answer.point)
    assert all(p.bound <= answer.certificate.value for p in seen)
    pull = Perturbation.linear(asked.problem.lattice, np.full(24, 1000.0))  # outweighs every loss
    assert asked.minimize(pull).require().tolist() == [-1] * 24


@linux
def test_a_cancelled_program_writes_down_its_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three seconds of its processor time, and in as much time as a busy machine takes."""
    monkeypatch.setattr(pulp_oracle, "_PATIENCE", 300.0)

    def used() -> float:
        return processor_seconds() - time.process_time()  # without this process

    asked = formulation(hard(), Task.LINEAR, Perturbation.zero(hard().lattice))
    session, before = PulpSession(asked.model, "CBC"), used()
    limits = Limits(seconds=300, cancelled=lambda: used() > before + 3.0)
    answer = session.solve(Question(asked.costs), limits.start(), lambda news: None)
    assert (answer.outcome, answer.reason) == (Outcome.STOPPED, Status.INTERRUPTED)
    assert answer.values is not None
    assert 0 < asked.costs @ np.rint(answer.values) + asked.constant <= 150


@pytest.mark.parametrize("oracle", LIVELY, ids=identity)
def test_ctrl_c_comes_out_and_leaves_the_oracle_usable(oracle: DiscreteOracle) -> None:
    asked = prepared(oracle)
    zero = Perturbation.zero(asked.problem.lattice)
    alarm = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    alarm.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            asked.minimize(zero, Limits(seconds=60))
    finally:
        alarm.join()
    pull = Perturbation.linear(asked.problem.lattice, np.full(24, 1000.0))
    assert asked.minimize(pull).require().tolist() == [-1] * 24


def knapsack() -> tuple[MipModel, Question]:
    model = MipModel("knapsack")
    model.constrain(model.add(3, integer=True), [2, 3, 4], ">=", 5)
    return model, Question(np.array([3.0, 4.0, 6.0]))


@linux
def test_a_killed_worker_loses_only_its_own_solve() -> None:
    model, question = knapsack()
    session = RemoteSession(HighsSession, model)
    (worker,) = session._hand
    os.kill(worker._process.pid, signal.SIGSTOP)  # it hears, but does not answer
    killer = threading.Timer(0.3, worker._process.kill)
    killer.start()
    with pytest.raises(SolverFailedError, match="exit code -9 before it had answered"):
        session.solve(question, Limits().start(), lambda news: None)
    again = session.solve(question, Limits().start(), lambda news: None)
    assert again.outcome is Outcome.OPTIMAL
    assert again.bound == 7.0
    assert session._hand[0] is not worker


@linux
def test_a_worker_that_does_not_hear_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.oracles.minimize.mip.worker_process._PATIENCE", 0.1)
    model, question = knapsack()
    session = RemoteSession(HighsSession, model)
    os.kill(session._hand[0]._process.pid, signal.SIGSTOP)
    answer = session.solve(question, Limits(seconds=0.2).start(), lambda news: None)
    assert (answer.outcome, answer.reason) == (Outcome.STOPPED, Status.TIME_LIMIT)
    assert answer.bound == -np.inf


@linux
def test_no_worker_outlives_its_caller() -> None:
    code = (
        "import os, signal; from privopt.oracles.minimize.mip.highs import HighsSession;"
        "from privopt.oracles.minimize.mip.model import MipModel;"
        "from privopt.oracles.minimize.mip.worker_process import RemoteSession;"
        "model = MipModel('m'); model.choose_one(model.add(2, integer=True));"
        "session = RemoteSession(HighsSession, model);"
        "print(session._hand[0]._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    worker = Path("/proc") / run.stdout.strip()
    end = time.monotonic() + 60
    while worker.exists() and "State:\tZ" not in (worker / "status").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_workers_are_used_again_and_errors_of_theirs_are_raised() -> None:
    model, question = knapsack()
    first = RemoteSession(HighsSession, model)
    process = first._hand[0]._process.pid
    del first
    second = RemoteSession(HighsSession, model)
    assert second._hand[0]._process.pid == process
    assert isinstance(second._hand[0], _Worker)
    with pytest.raises(ValueError, match="could not convert"):
        RemoteSession(HighsSession, MipModel("odd", low=[0], high=["one"], integer=[True]))  # type: ignore[list-item]
    assert second.solve(question, Limits().start(), lambda news: None).bound == 7.0


# --- Libraries that do not get along --------------------------------------------------------------------


@cpsat
@pytest.mark.parametrize("first", ["ortools.sat.python.cp_model", "highspy", "privopt.problems"])
def test_highs_and_cpsat_serve_one_process_whatever_was_imported_first(first: str) -> None:
    """Both packages bring a libhighs.so.1, in different versions; a process can load one of them."""
    code = f"""
        import numpy as np, {first}
        from privopt.oracles import Task, minimizer
        from privopt.problems import IntegerLattice, Perturbation, ZeroOneHalfspace
        rng = np.random.default_rng(0)
        problem = ZeroOneHalfspace(rng.integers(-9, 9, (30, 4)), rng.choice([-1, 1], 30),
                                   IntegerLattice(-1, 1, dimension=4))
        zero = Perturbation.zero(problem.lattice)
        for name in ("highs", "cpsat", "highs"):
            print(minimizer(name).prepare(problem, Task.LINEAR).minimize(zero).certificate.value)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(values := run.stdout.split()) == 3
    assert len(set(values)) == 1


# --- Heuristics -----------------------------------------------------------------------------------------


def test_local_search_is_for_baselines_and_refused_where_the_minimum_is_needed() -> None:
    problem, _, _ = random_problem(1)
    answer = LocalSearchOracle().prepare(problem, Task.LINEAR).minimize(Perturbation.zero(problem.lattice))
    assert answer.certificate.status is Status.HEURISTIC
    assert answer.certificate.value == problem.loss(answer.point)  # type: ignore[arg-type]
    lattice = IntegerLattice(-1, 1, dimension=problem.lattice.dimension)
    signs = ZeroOneHalfspace(problem.X, problem.y, lattice)  # type: ignore[attr-defined]
    for name in ("opdisc", "rspm"):
        plan = MECHANISMS[name].plan(ZeroOneHalfspace, signs.lattice, epsilon=1.0, delta=1e-6)
        with pytest.raises(UnknownOracleError, match="'local-search' proves nothing"):
            prepare_oracle("local-search", plan, signs)
        assert prepare_oracle("auto", plan, signs).problem is signs


# --- Oracles of other packages --------------------------------------------------------------------------

STRANGER = '''
from privopt.oracles import DiscreteOracle, Proposal
import numpy as np


class Patient(DiscreteOracle):
    """Tries every point, one by one."""

    name = "patient"

    def refusals(self, problem, task):
        return ["more than 100,000 points"] if problem.lattice.box_size > 100_000 else []

    def build(self, problem, task):
        points = np.concatenate(list(problem.lattice.batches()))

        def solve(query):
            if reason := query.watch.stop():
                return Proposal(None, -query.perturbation.magnitude, reason)
            values = problem.values(points, query.perturbation)
            best = int(np.argmin(values))
            return Proposal(points[best], int(values[best]), lexicographic=True)

        return solve


def broken():
    raise OSError("no licence")


class Wrong:
    pass
'''


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A throw-away package, as ``pip install`` leaves it: a module, and its entry points beside it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "patient.py").write_text(STRANGER)
    facts = folder / "patient-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: patient\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[privopt.minimizers]\npatient = patient:Patient\nbroken = patient:broken\n"
        "wrong = patient:Wrong\nnative = patient:Wrong\n"
    )
    return folder


@pytest.fixture
def beside(stranger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(stranger))


@pytest.mark.usefixtures("beside")
def test_an_installed_package_offers_oracles_by_name() -> None:
    from privopt.mechanisms import PrivateHalfspaceClassifier
    from privopt.oracles.select import inventory, minimizer

    assert minimizer("patient").name == "patient"
    report = check_oracle(minimizer("patient"), seeds=[0])  # the three lines of the documentation
    assert len(report.passed) >= 150
    assert minimizer("native").name == "native"  # a name of ours stays ours
    with pytest.raises(MissingSolverError, match=r"'broken' of the package 'patient' .*OSError: no licence"):
        minimizer("broken")
    with pytest.raises(UnknownOracleError, match="makes a Wrong, no DiscreteOracle"):
        minimizer("wrong")
    told = {e.name: e for e in inventory() if e.kind == "minimises"}
    assert told["patient"].installed
    assert not told["broken"].installed
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(["no", "yes"], 60) for name in ("a", "b")})
    model = PrivateHalfspaceClassifier(
        mechanism="rspm",
        oracle="patient",
        schema=Schema([Categorical(name, ("no", "yes")) for name in table]),
        classes=("no", "yes"),
        insecure_seed=0,
    )
    assert model.fit(table, table["a"]).predict(table).shape == (60,)


def on_the_command_line(stranger: Path, *words: object) -> str:
    """Output of ``privopt`` where the package is installed."""
    code = "from privopt.experiments.cli.start import main; main()"
    path = os.pathsep.join([str(stranger), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_is_offered_on_the_command_line_too(stranger: Path) -> None:
    told = on_the_command_line(stranger, "solvers")
    assert "patient" in told
    assert "no licence" in " ".join(told.split())


def test_it_fits_on_the_command_line(stranger: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(["no", "yes"], 80) for name in ("a", "b", "label")})
    table.to_csv(tmp_path / "table.csv", index=False)
    schema = "".join(
        f'[[columns]]\nkind = "categorical"\nname = "{name}"\ncategories = ["no", "yes"]\n' for name in "ab"
    )
    (tmp_path / "schema.toml").write_text(schema)
    words = ["--data", tmp_path / "table.csv", "--target", "label", "--schema", tmp_path / "schema.toml"]
    words += ["--classes", "no,yes", "--epsilon", "5", "--mechanism", "rspm", "--oracle", "patient"]
    report = tmp_path / "report.json"
    on_the_command_line(stranger, "fit", *words, "--insecure-seed", "0", "--json", report)
    assert json.loads(report.read_text())["oracle"] == "patient"


def test_a_process_tells_every_point_at_once_and_bounds_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four pieces of news at one moment the first and the one with a point."""
    model, question = knapsack()
    told = [SolverProgress(float(k), 0, np.ones(3) if k == 3 else None) for k in range(1, 5)]

    class Talking(HighsSession):
        def solve(
            self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
        ) -> Any:
            for news in told:
                on_progress(news)

    heard = io.BytesIO()
    monkeypatch.setattr(worker_process, "time", SimpleNamespace(monotonic=lambda: 100.0))
    _answered(Talking(model), question, None, threading.Event(), heard)
    heard.seek(0)
    assert [pickle.load(heard).bound for _ in range(2)] == [1.0, 3.0]
    assert not heard.read()


@cpsat
def test_a_row_with_one_end_is_open_at_the_other() -> None:
    """Pairs of columns from -5 to 5 with sums of at most, at least and exactly 3: -10 + 3 + 3, 3 + 10 + 3."""
    model = MipModel("open")
    columns = model.add(6, integer=True, low=-5, high=5)
    for pair, sense in zip(columns.reshape(3, 2), ("<=", ">=", "="), strict=True):
        model.constrain(pair, [1, 1], sense, 3)
    session = RemoteSession(CpSatSession, model, 1)
    for cost, least in ((1.0, -4.0), (-1.0, -16.0)):
        answer = session.solve(Question(np.full(6, cost)), Limits().start(), lambda news: None)
        assert (answer.outcome, answer.bound) == (Outcome.OPTIMAL, least)


@cpsat
def test_a_cutoff_reaches_cpsat() -> None:
    model, question = knapsack()
    session = RemoteSession(CpSatSession, model, 1)
    for cutoff, outcome in ((6.9, Outcome.NOTHING), (7.0, Outcome.OPTIMAL), (-1.0, Outcome.NOTHING)):
        limited = question._replace(cutoff=cutoff)
        assert session.solve(limited, Limits().start(), lambda news: None).outcome is outcome


def test_highs_starts_from_the_best_point_known() -> None:
    """A start that is the optimum is what it tells first; one beyond the cutoff does no harm."""
    model, question = knapsack()
    session, news = HighsSession(model), list[SolverProgress]()
    answer = session.solve(question._replace(start=np.array([0, 1])), Limits().start(), news.append)
    assert answer.bound == 7.0
    first = next(n.values for n in news if n.values is not None)
    assert first.tolist() == [1.0, 1.0, 0.0]
    for cutoff, outcome in ((6.9, Outcome.NOTHING), (7.1, Outcome.OPTIMAL)):
        dear = question._replace(start=np.array([0, 1, 2]), cutoff=cutoff)
        assert session.solve(dear, Limits().start(), news.append).outcome is outcome


def test_infeasible_at_the_time_limit_proves_nothing() -> None:
    """CBC 2.10 says so of feasible models when its time is over before the first relaxation is solved."""
    model, question = knapsack()
    session = PulpSession(model, "CBC")
    problem, _ = translated(model)
    problem.assignStatus(pulp.LpStatusInfeasible, pulp.LpSolutionInfeasible)
    answers = [
        session._answer(problem, question.costs, 0.0, Limits(seconds=s).start()) for s in (60.0, 0.5, 1e-9)
    ]
    assert [a.outcome for a in answers] == [Outcome.NOTHING, Outcome.STOPPED, Outcome.STOPPED]
    assert answers[1].bound == -np.inf
    assert session._answer(problem, question.costs, 0.0, Limits().start()).outcome is Outcome.NOTHING

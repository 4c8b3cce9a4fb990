"""Files for solvers that are programs are private, and are removed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pulp
import pytest

from privopt.oracles.errors import MissingSolverError, SolverFailedError, UnknownOracleError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.mip.pulp import PulpOracle
from privopt.oracles.minimize.mip.solver_files import CARELESS, private_folder, uses_files
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation

posix = pytest.mark.skipif(os.name != "posix", reason="no watchdog")
linux = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at processes in /proc")

HARD = """
import numpy as np
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.mip.pulp import PulpOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation
rng = np.random.default_rng(0)
X, y = rng.integers(-20, 21, (150, 24)), rng.choice([-1, 1], 150)
problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=24))
prepared = PulpOracle("CBC", "rows").prepare(problem, Task.LINEAR)
prepared.minimize(Perturbation.zero(problem.lattice), Limits(seconds=100))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for name in ("TMPDIR", "TMP", "TEMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def running(folder: Path) -> list[str]:
    """The processes that were started with something in a folder."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def wait_for(condition: object, seconds: float = 300.0) -> bool:
    """Whether something becomes true in time; never a measure of speed."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def solving(temporary: Path) -> bool:
    """Whether CBC is at work on a problem."""
    return any(temporary.glob("privopt-*/*.mps")) and any(" -solve" in line for line in running(temporary))


@posix
@linux
def test_during_a_solve_the_files_are_in_a_folder_that_nobody_else_may_enter(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privopt.oracles.minimize.mip.pulp._PATIENCE", 0.0)  # its answer is not asked for
    rng = np.random.default_rng(0)
    X, y = rng.integers(-20, 21, (150, 24)), rng.choice([-1, 1], 150)
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=24))
    prepared = PulpOracle("CBC", "rows").prepare(problem, Task.LINEAR)
    before = set(Path.cwd().iterdir())
    seen = threading.Event()
    limits = Limits(cancelled=seen.is_set)
    worker = threading.Thread(target=prepared.minimize, args=(Perturbation.zero(problem.lattice), limits))
    worker.start()
    try:
        assert wait_for(lambda: solving(temporary))
        (folder,) = temporary.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert any("-pulp.mps" in file.name for file in folder.iterdir())
        assert set(Path.cwd().iterdir()) == before
    finally:
        seen.set()
        worker.join()
    assert list(temporary.iterdir()) == []
    assert running(temporary) == []


@posix
@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_nothing_is_left_of_a_solve_that_is_killed(temporary: Path, number: signal.Signals) -> None:
    caller = subprocess.Popen([sys.executable, "-c", HARD], stderr=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: solving(temporary))
        caller.send_signal(number)
        assert caller.wait(60) != 0
        assert wait_for(lambda: running(temporary) == [])
        assert wait_for(lambda: list(temporary.iterdir()) == [])
    finally:
        caller.kill()
        caller.wait()


def test_nothing_is_left_of_a_solve_that_fails(temporary: Path) -> None:
    class Fails(pulp.PULP_CBC_CMD):  # type: ignore[misc]
        def actualSolve(self, lp: object, **options: object) -> None:
            assert Path(self.tmpDir).parent == temporary
            (Path(self.tmpDir) / "written").write_text("counts")
            raise pulp.PulpSolverError("no licence")

    with pytest.raises(pulp.PulpSolverError), private_folder(solver := Fails(msg=False)):
        solver.actualSolve(None)
    assert list(temporary.iterdir()) == []


def test_a_folder_that_pulp_cannot_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (blank := tmp_path / "temporary files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(blank))
    with pytest.raises(SolverFailedError, match="blanks"), private_folder(pulp.PULP_CBC_CMD(msg=False)):
        pass
    assert list(blank.iterdir()) == []


@posix
def test_a_folder_from_which_no_program_runs_is_an_error(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    solver = pulp.PULP_CBC_CMD(msg=False)
    with pytest.raises(SolverFailedError, match="noexec"), private_folder(solver):
        pass
    assert list(temporary.iterdir()) == []


def test_every_solver_of_pulp_keeps_files_to_itself_or_is_not_used() -> None:
    """Those that write files write them where ``tmpDir`` says, but for the ones that are refused."""
    for name in dict.fromkeys(pulp.listSolvers()):
        kind = next(s for s in pulp.apis._all_solvers if s.name == name)
        if name in CARELESS:
            with pytest.raises(UnknownOracleError, match="to files that others may read"):
                PulpOracle(name)
        elif issubclass(kind, pulp.apis.core.LpSolver_CMD):
            assert uses_files(kind.__new__(kind))
        else:
            source = Path(sys.modules[kind.__module__].__file__ or "").read_text()
            body = source.split(f"class {kind.__name__}(")[1].split("\nclass ")[0]
            assert "writeMPS" not in body
            assert "writeLP" not in body


def test_solvers_in_the_process_need_no_folder(temporary: Path) -> None:
    with private_folder(pulp.HiGHS(msg=False)):
        assert list(temporary.iterdir()) == []


def test_a_clash_of_solver_libraries_is_told_as_such(tmp_path: Path) -> None:
    """PuLP hides why highspy cannot be loaded: it was "not installed" although it was."""
    (tmp_path / "highspy.py").write_text("raise ImportError('undefined symbol: _ZN5Highs')")
    (tmp_path / "ortools.py").write_text("")
    code = (
        "import ortools\n"
        "from privopt.oracles.errors import MissingSolverError\n"
        "from privopt.oracles.minimize.mip.pulp import PulpOracle\n"
        "try: PulpOracle()\n"
        "except MissingSolverError as error: print(error)"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    ).stdout
    assert "highspy is installed, but loading it failed, perhaps because" in out
    assert "ortools" in out
    assert "undefined symbol: _ZN5Highs" in out
    assert "one of them per process" in out
    assert "pip install highspy" not in out


def test_a_missing_library_is_still_told_as_missing() -> None:
    missing = set(pulp.listSolvers()) - set(pulp.listSolvers(onlyAvailable=True)) - set(CARELESS)
    for name in sorted(missing & {"GUROBI", "CPLEX_PY", "MOSEK"}):
        with pytest.raises(MissingSolverError, match=f"To do: install {name}"):
            PulpOracle(name)

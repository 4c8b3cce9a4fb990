"""Solvers that are programs of their own get the problem in files: where these are, and what becomes of them.

The files hold the records' counts and the noise. So every solve has a folder that nobody else may enter
(mode 0700), the solver works in that folder under a ``watchdog``, and both are gone when the solve is over:
finished, failed, interrupted, or because this process was killed. Only where the watchdog is killed too, or
the machine stops, is a folder ``privopt-...`` left below the folder for temporary files. On Windows there is
no watchdog: there a killed process leaves the solver and the folder.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privopt.oracles.errors import SolverFailedError
from privopt.oracles.minimize.mip import watchdog

# They write the problem where no folder of ours is asked for, or send it to another machine.
CARELESS = ("CyLP", "SAS94", "SASCAS")
Tell = Callable[[bool], None]
_PATIENCE = 5.0  # seconds until a watchdog that was told to stop has stopped


def uses_files(solver: Any) -> bool:
    """Whether a PuLP solver is a program of its own."""
    import pulp

    return isinstance(solver, pulp.apis.core.LpSolver_CMD)


@contextmanager
def private_folder(solver: Any) -> Iterator[Tell]:
    """A PuLP solver that uses files keeps them to itself while the context lasts.

    Yields a function that tells the program, if there is one that can be told: to stop with what it has
    (False) or to end at once (True).

    Raises:
        SolverFailedError: programs cannot be started, or PuLP cannot name files, in the folder for temporary
            files.
    """
    if not uses_files(solver):
        yield lambda at_once: None
        return
    # Removed on leaving, and at exit of the interpreter if that comes first.
    with tempfile.TemporaryDirectory(prefix="privopt-", ignore_cleanup_errors=True) as folder:
        if any(letter.isspace() for letter in folder):
            raise SolverFailedError(
                f"PuLP cannot name files in a folder with blanks in its name, such as {folder!r}. "
                f"To do: set TMPDIR to another folder, or use a solver that needs no files (HiGHS)"
            )
        solver.tmpDir = folder
        if os.name == "posix":
            solver.path = str(_launcher(Path(folder), solver.path))
            if not os.access(solver.path, os.X_OK):
                raise SolverFailedError(
                    f"no program can be started in {folder}. To do: set TMPDIR to a folder on a disk that is "
                    f"not mounted 'noexec', or use a solver that needs no files (HiGHS)"
                )
        try:
            yield lambda at_once: _tell(Path(folder), at_once)
        finally:
            _stop(Path(folder))


def _launcher(folder: Path, program: str) -> Path:
    """A program that runs ``program`` under the watchdog. It leaves its process number behind."""
    launcher, python = folder / "solver", [sys.executable, "-I", "-S", watchdog.__file__]
    command = shlex.join([*python, str(folder), str(os.getpid()), program])
    launcher.write_text(
        f'#!/bin/sh\necho $$ > {shlex.quote(str(folder / "watchdog"))}\nexec {command} "$@"\n'
    )
    launcher.chmod(0o700)
    return launcher


def _tell(folder: Path, at_once: bool) -> None:
    with suppress(OSError, ValueError):
        number = int((folder / "watchdog").read_text())
        os.kill(number, signal.SIGTERM if at_once else signal.SIGUSR1)


def _stop(folder: Path) -> None:
    """End the watchdog and with it the solver, if it still runs: our child, so its number is not reused."""
    with suppress(OSError, ValueError):
        number = int((folder / "watchdog").read_text())
        for _ in range(int(_PATIENCE / 0.01)):
            if os.waitpid(number, os.WNOHANG)[0]:
                break
            os.kill(number, signal.SIGTERM)
            time.sleep(0.01)

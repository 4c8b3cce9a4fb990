"""Private temporary folders for solvers that run as external programs and read the problem from files.

The files contain record counts and noise. Therefore every solve gets its own folder, which no other user can
read (mode 0700), and the solver runs there under a ``watchdog``. When the solve finishes, fails or is
interrupted, or if this process is killed, the solver is ended and the folder removed. Only if the watchdog is
killed, too, or the machine stops, a folder ``privopt-...`` remains in the folder for temporary files. On
Windows there is no watchdog: if the process is killed, the solver and the folder remain.
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

# Solvers that write the problem outside the private folder, or send it to another machine.
CARELESS = ("CyLP", "SAS94", "SASCAS")
Tell = Callable[[bool], None]
_PATIENCE = 5.0  # seconds that a watchdog has to stop after SIGTERM


def uses_files(solver: Any) -> bool:
    """Return whether a PuLP solver runs as an external program."""
    import pulp

    return isinstance(solver, pulp.apis.core.LpSolver_CMD)


@contextmanager
def private_folder(solver: Any) -> Iterator[Tell]:
    """Give a PuLP solver a private folder while the context lasts, if the solver uses files.

    Yields a function of a boolean that signals the external program, if there is one: False to stop and write
    its best point, True to end at once.

    Raises:
        SolverFailedError: the folder for temporary files has blanks in its name, which PuLP cannot handle, or
            programs cannot be started in it.
    """
    if not uses_files(solver):
        yield lambda at_once: None
        return
    # The folder is removed at the end of the context, or at the exit of the interpreter if this is earlier.
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
    """Write a script that runs ``program`` under the watchdog and writes the process id to a file."""
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
    """End the watchdog, and so the solver. As our child process, the watchdog still has its process id."""
    with suppress(OSError, ValueError):
        number = int((folder / "watchdog").read_text())
        for _ in range(int(_PATIENCE / 0.01)):
            if os.waitpid(number, os.WNOHANG)[0]:
                break
            os.kill(number, signal.SIGTERM)
            time.sleep(0.01)

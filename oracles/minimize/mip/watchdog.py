"""Run a solver in a folder; if the calling process dies, end the solver and remove the folder.

``solver_files`` starts this file as a program: python watchdog.py FOLDER CALLER PROGRAM ARGUMENT..., where
CALLER is the id of the calling process. SIGTERM ends this program and the solver. SIGUSR1 is passed to the
solver as Ctrl-C, at which solvers stop and write their best point.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

_LOOK = 0.1  # seconds between two checks of the caller


def run(folder: str, caller: int, command: list[str]) -> int:
    """Run the command; return its exit status, or 1 if the command had to be ended."""

    def wanted() -> bool:
        return os.getppid() == caller and os.path.isdir(folder)

    def told(*_: object) -> None:
        raise SystemExit(1)

    def asked(*_: object) -> None:
        if solver is not None:
            solver.send_signal(signal.SIGINT)

    solver: subprocess.Popen[bytes] | None = None
    # Ctrl-C is ignored here, because the caller receives it, too, and decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGUSR1, asked)
    try:
        if wanted():
            own = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), folder)
            # In a new session, the solver and its child processes can be ended together, and receive no
            # signals from the terminal.
            solver = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **own}, start_new_session=True, preexec_fn=_hears
            )
        while solver is not None and wanted():
            try:
                return solver.wait(_LOOK)
            except subprocess.TimeoutExpired:
                continue
        return 1
    finally:
        if solver is not None and solver.poll() is None:
            os.killpg(solver.pid, signal.SIGKILL)
            solver.wait()
        if os.getppid() != caller:
            shutil.rmtree(folder, ignore_errors=True)


def _hears() -> None:
    """Restore the default handling of Ctrl-C in the solver, which would otherwise ignore it, as we do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

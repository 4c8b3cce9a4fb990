"""A process that has imported privopt, and runs programs and command lines in forks of itself.

Imports are most of the seconds of a short program. A request is a JSON object on a Unix socket, with the
standard streams of whoever asks; the answer is the exit status.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

# What stands for the command on PATH: the standard library's sockets, and nothing that is slow to import.
COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [b"."], [0, 1, 2])
    asked.sendall(json.dumps({{"words": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}).encode())
    asked.shutdown(socket.SHUT_WR)
    sys.exit(int(asked.recv(8)))
"""


@contextmanager
def warm_process(folder: Path) -> Iterator[Path]:
    """Start the process; a folder with the command ``privopt`` and the socket while it runs."""
    address = folder / "socket"
    command = folder / "privopt"
    command.write_text(COMMAND.format(python=sys.executable, address=str(address)))
    command.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.warm_process", str(address)], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield folder
        finally:
            running.terminate()


def run_program(folder: Path, program: str, cwd: Path) -> tuple[int, str, str]:
    """Run a Python program in a fork; its exit status, and what it printed."""
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    with (
        socket.socket(socket.AF_UNIX) as asked,
        (cwd / ".out").open("w+") as out,
        (cwd / ".err").open("w+") as err,
    ):
        asked.connect(str(folder / "socket"))
        socket.send_fds(asked, [b"."], [0, out.fileno(), err.fileno()])
        asked.sendall(json.dumps({"program": program, "cwd": str(cwd), "env": env}).encode())
        asked.shutdown(socket.SHUT_WR)
        status = int(asked.recv(8))
        out.seek(0), err.seek(0)
        return status, out.read(), err.read()


# What commands import when they run, other libraries included.
MODULES = """
numba pandas.core.methods.to_dict pyarrow.pandas_compat pydantic.type_adapter sqlalchemy.dialects.sqlite
privopt.experiments.cli.budget privopt.experiments.cli.estimate privopt.experiments.cli.evaluate
privopt.experiments.cli.fit privopt.experiments.cli.schema privopt.experiments.cli.search
privopt.mechanisms.estimators.tree privopt.mechanisms.heavy_tails.subset_mean
privopt.mechanisms.privacy.ledger.ledger privopt.mechanisms.scorecards.near_cards
privopt.problems.convex.passes
"""


def import_and_freeze() -> None:
    """Import what forks would import each for itself, and hide it from their garbage collector."""
    for module in MODULES.split():
        if find_spec(module.partition(".")[0]):  # pydantic belongs to another library, where that is new
            importlib.import_module(module)
    # With the first function that is compiled or loaded, numba imports a second part of itself.
    importlib.import_module("numba.core.registry").cpu_target.target_context.refresh()
    gc.freeze()


def _serve(address: str) -> None:
    import_and_freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            asked, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _answer(asked)
            asked.close()


def _answer(asked: socket.socket) -> None:
    """Run what is asked in a fork of this process, and say how it ended."""
    _, streams, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as words:
        request = json.load(words)
    child = os.fork()
    if child == 0:
        asked.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return _run(request)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    asked.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(request: dict[str, Any]) -> None:
    from privopt.mechanisms.privacy.usefulness import NoiseWarning

    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if "words" in request:
        _run_command(request["words"])
    warnings.simplefilter("error", UserWarning)
    warnings.simplefilter("default", NoiseWarning)  # pages fit few records, to be quick
    sys.argv = ["-c"]
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    exec(compile(request["program"], "<string>", "exec"), module.__dict__)


def _run_command(words: list[str]) -> NoReturn:
    """Run a command line and leave at once: to free what was imported takes longer than most commands."""
    from privopt.experiments.cli.start import main

    sys.argv = ["privopt", *words]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])

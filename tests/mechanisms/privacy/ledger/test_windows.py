"""Ledgers need nothing that Windows lacks.

A program keeps, shows, exports and moves a ledger. Elsewhere than on Windows it does so without the modules
and functions of POSIX systems, and fails where it renames, removes or opens what Windows does not let it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.ledger.place import Address
from privopt.mechanisms.privacy.spend import PrivacySpend

# Python's own libraries know Windows by other means, and are imported before.
AS_ON_WINDOWS = """
import asyncio, getpass, io, multiprocessing, os, pathlib, shutil, signal, subprocess, sys, tempfile, warnings
import matplotlib.figure, typer, rich.console
if os.name != "nt":
    for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
        sys.modules[name] = None
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile
    for module, names in (
        (os, "fork uname getuid geteuid getgid chown fchmod killpg setsid mkfifo pread pwrite sync statvfs"),
        (os, "O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_SYNC"),
        (signal, "SIGKILL SIGALRM SIGHUP SIGUSR1 setitimer"),
    ):
        for name in names.split():
            delattr(module, name)

    def is_open(path):
        held = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
        return any(os.path.realpath(h) == os.path.realpath(path) for h in held)

    def refusing(whole, forbidden):
        def use(*words, **more):
            for word in words:
                if isinstance(word, (str, os.PathLike)) and forbidden(word):
                    raise PermissionError(13, "used by another process", str(word))
            return whole(*words, **more)
        return use

    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, refusing(getattr(os, name), is_open))
    os.open = refusing(os.open, os.path.isdir)

# Files that are opened in the encoding of the machine, which is not UTF-8 there.
warnings.filterwarnings("error", category=EncodingWarning, module="privopt")
"""

PROGRAM = """
from privopt.experiments.cli.main import main
from privopt.mechanisms.errors import BudgetExceededError, LedgerError
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.spend import PrivacySpend

def run(*words):
    sys.argv = ["privopt", *words]
    try:
        main()
    except SystemExit as done:
        return done.code

path, tenth = sys.argv[1], PrivacySpend.pure(0.1, "\\u2192", note="\\u00fc")
Ledger.create(f"{path}#data", 1.0, 1e-6)
Ledger.create(f"{path}#data/ana", 1.0, 1e-6)
ana = Ledger(f"{path}#data/ana")
with ana.spending(tenth):
    pass
ana.cancel(ana.reserve(tenth), "nothing was read")
assert Ledger(f"sqlite:///{path}#data").affords(PrivacySpend.pure(0.9, "m"))
for words in (
    ("spend", path + "#data/ana", "--epsilon", "0.9", "--mechanism", "\\u2192"),
    ("list", path), ("show", path), ("show", path, "--json"), ("verify", path), ("export", path),
    ("export", path, "--output", "r.csv"), ("export", path, "--output", "r.json"),
    ("picture", path, "--output", "r.svg"), ("move", path, "moved.db"), ("show", path),
):
    assert run("budget", *words) in (None, 0), words
assert run("budget", "spend", "moved.db#data", "--epsilon", "0.1") == 1
assert run("budget", "spend", path + "#data", "--epsilon", "0.1") == 2
assert verify(path) == verify("moved.db") == []
assert ana.entries()[0].who.startswith("ana@")
with open("old.json", "w") as file:
    file.write('{"privopt_ledger": 2}\\n')
try:
    Ledger("old.json")
except LedgerError as error:
    print(error)
os.unlink("moved.db")  # nothing holds it
"""


@pytest.mark.skipif(not (os.name == "nt" or Path("/proc/self/fd").exists()), reason="cannot see what is open")
def test_a_ledger_needs_nothing_that_windows_lacks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "LOGNAME": "ana"}
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "warn_default_encoding",
            "-c",
            AS_ON_WINDOWS + PROGRAM,
            str(tmp_path / "ü 100%41'.db"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        timeout=300,
    )
    said = (done.stdout + done.stderr).decode("cp1252")
    assert done.returncode == 0, said[-3000:]
    assert "\\u2192" in said  # in the place of an arrow, which that console has not
    assert "old.json is an older version's, which ran on POSIX systems" in said
    assert (tmp_path / "r.csv").read_bytes().count("→".encode()) == 3
    assert b"\r\r" not in (tmp_path / "r.csv").read_bytes()
    assert len(json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["trail"]) == 8


def test_paths_of_windows_are_paths() -> None:
    for text in (r"C:\data\ledger.db", r"\\server\share\ledger.db", "C:/data/ledger.db"):
        address = Address.of(f"{text}#adult/ana")
        assert address.is_file
        assert (address.place, address.names) == (text, ("adult/ana",))
        assert Address.of(f"sqlite:///{text}").place == text


def test_a_head_that_somebody_reads_for_a_moment_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses to replace an open file, which scanners and backups open when they please."""
    ledger, replace, refused = Ledger.create(tmp_path / "l", 1.0), os.replace, [1, 2]

    def held(*words: str) -> None:
        if refused:
            refused.pop()
            raise PermissionError(13, "Access is denied")
        replace(*words)

    monkeypatch.setattr(os, "replace", held)
    ledger.reserve(PrivacySpend.pure(0.1, "m"))
    assert not refused
    assert '"number": 2' in (tmp_path / "l.head").read_text(encoding="utf-8")

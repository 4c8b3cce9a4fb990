"""The command line in the process of the tests."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from privopt.experiments.cli.main import main


@dataclass
class Run:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def privopt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """The installed command in this process: one import instead of one per test."""

    def run(*words: object, cwd: Path | None = None) -> Run:
        monkeypatch.setattr(sys, "argv", ["privopt", *map(str, words)])
        monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # main replaces it
        if cwd is not None:
            monkeypatch.chdir(cwd)
        with pytest.raises(SystemExit) as stopped:
            main()
        return Run(int(stopped.value.code or 0), *capsys.readouterr())

    return run

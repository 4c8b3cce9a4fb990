"""Progress of a solve on the command line: what takes the time is said."""

from __future__ import annotations

import threading

import pytest

from privopt.experiments.cli import running
from privopt.oracles.limits import Limits, Progress


def test_the_interfaces_say_it_too() -> None:
    for documented in (Progress, Limits):
        assert documented.__doc__ is not None
        assert "privacy" in documented.__doc__ or "private" in documented.__doc__


@pytest.mark.parametrize("solving", [False, True])
def test_a_long_preparation_says_what_takes_the_time(
    solving: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "_PATIENCE", 3600.0 if solving else 0.0)
    with running.stoppable(None) as limits:
        assert limits.cancelled is not None
        if solving:
            limits.cancelled()
        for waiting in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
            waiting.join()  # until it has spoken, or was cancelled
    assert ("still preparing" in capsys.readouterr().err) != solving

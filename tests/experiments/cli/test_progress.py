"""Progress of a solve on the command line names its numbers."""

from __future__ import annotations

import math
import threading

import pytest

from privopt.experiments.cli import running
from privopt.experiments.cli.running import described
from privopt.oracles.limits import Limits, Progress


def test_progress_of_a_search_says_that_it_is_not_private() -> None:
    for progress in (Progress(12.5, 3.0, 77, 0.4), Progress(math.nan, math.nan, 77, 0.4)):
        assert "77 nodes (progress is not private)" in described(progress)
    assert "best 12.5  bound 3  gap 9.5" in described(Progress(12.5, 3.0, 77, 0.4))


def test_steps_that_are_fixed_in_advance_tell_nothing() -> None:
    assert described(Progress(math.nan, math.nan, 3, 0.4, total=8)) == "3 of 8 steps"


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

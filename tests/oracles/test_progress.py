"""Progress bars: in a notebook below the cell, gone at its end; elsewhere in a terminal only."""

from __future__ import annotations

import math
from typing import Any

import pytest

from privopt.oracles import Limits, Progress, progress_bar
from privopt.oracles.progress import described
from privopt.problems.errors import InvalidInputError

CELL = """
from privopt.oracles import progress_bar

with progress_bar() as limits:
    limits.start().report(float("nan"), float("nan"), 3, 8)
    print("said by the cell")
    raise TimeoutError
"""


def test_progress_of_a_search_says_that_it_is_not_private() -> None:
    for progress in (Progress(12.5, 3.0, 77, 0.4), Progress(math.nan, math.nan, 77, 0.4)):
        assert "77 nodes (progress is not private)" in described(progress)
    assert "best 12.5  bound 3  gap 9.5" in described(Progress(12.5, 3.0, 77, 0.4))


def test_steps_that_are_fixed_in_advance_tell_nothing() -> None:
    assert described(Progress(math.nan, math.nan, 3, 0.4, total=8)) == "3 of 8 steps"


def test_a_terminal_shows_the_bar_until_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar() as limits:
        limits.start().report(math.nan, math.nan, 3, 8)
        fixed = capsys.readouterr().err
        limits.start().report(12.5, 3.0, 77)
        searched = capsys.readouterr().err.rsplit("best 12.5", 1)[0].rsplit("\n", 1)[-1]
    assert "3 of 8 steps" in fixed
    assert "━" in fixed
    assert "━" not in searched  # how much is left is not known
    capsys.readouterr()
    limits.start().report(math.nan, math.nan, 4, 8)  # by an estimator that still has the limits
    assert capsys.readouterr() == ("", "")


def test_limits_stay_and_their_own_function_is_called() -> None:
    seen: list[Progress] = []
    with progress_bar(Limits(seconds=60.0, on_progress=seen.append, cancelled=lambda: False)) as limits:
        assert limits.seconds == 60.0
        assert limits.cancelled is not None
        limits.start().report(math.nan, math.nan, 3, 8)
    assert [now.nodes for now in seen] == [3]


def test_nothing_is_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as limits:
        limits.start().report(12.5, 3.0, 77)
    assert capsys.readouterr() == ("", "")


def test_other_arguments_than_limits_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Limits"), progress_bar(60):  # type: ignore[arg-type]
        pass


def test_a_kernel_shows_the_bar_and_a_saved_notebook_keeps_nothing_of_it() -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("ipywidgets")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    drawn: list[str] = []

    class Recorded(client.NotebookClient):  # type: ignore[misc, name-defined]
        def process_message(self, message: Any, cell: Any, index: int) -> Any:
            if message["msg_type"] == "display_data":
                drawn.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, cell, index)

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    Recorded(book, timeout=120, kernel_name="python3", allow_errors=True).execute()
    assert any("3 of 8 steps" in text for text in drawn)
    saved = nbformat.writes(nbformat.from_dict({**book, "cells": [{**book.cells[0], "source": ""}]}))
    assert "said by the cell" in saved
    assert "TimeoutError" in saved
    assert "steps" not in saved

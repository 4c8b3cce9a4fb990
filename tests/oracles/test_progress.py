"""Progress bars: in a notebook below the cell, gone at its end; elsewhere in a terminal only."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import pytest

from privopt.oracles import Limits, Progress, progress_bar
from privopt.oracles.progress import described
from privopt.problems.errors import InvalidInputError

CELL = """
from privopt.oracles import progress_bar

with progress_bar() as limits:
    limits.start().report(float("nan"), float("nan"), 3, 8)
"""


def test_progress_of_a_search_says_that_it_is_not_private() -> None:
    for progress in (Progress(12.5, 3.0, 77, 0.4), Progress(math.nan, math.nan, 77, 0.4)):
        assert "77 nodes (progress is not private)" in described(progress)
    assert "best 12.5  bound 3  gap 9.5" in described(Progress(12.5, 3.0, 77, 0.4))


def test_steps_that_are_fixed_in_advance_tell_nothing() -> None:
    assert described(Progress(math.nan, math.nan, 3, 0.4, total=8)) == "3 of 8 steps"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a notebook was given to show in the place of the bar, in order."""
    texts: list[str] = []

    class Place:
        update = staticmethod(texts.append)

    def display(text: str, display_id: bool) -> Place:
        assert display_id
        texts.append(text)
        return Place()

    module: Any = ModuleType("IPython.display")
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    return texts


def test_a_bar_below_the_cell_goes_away_with_what_it_showed(shown: list[str]) -> None:
    with progress_bar() as limits:
        limits.start().report(math.nan, math.nan, 3, 8)
        limits.start().report(12.5, 3.0, 77)
    assert shown[1].startswith('<label><progress max="8" value="3">')
    assert shown[2].startswith("<label><progress></progress> best 12.5")
    assert shown[3:] == [""]
    limits.start().report(math.nan, math.nan, 4, 8)  # by an estimator that still has the limits
    assert shown[3:] == [""]


def test_a_bar_goes_away_after_an_error_too(shown: list[str]) -> None:
    def interrupted(now: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), progress_bar(Limits(on_progress=interrupted)) as limits:
        limits.start().report(math.nan, math.nan, 3, 8)
    assert shown[1:] == [""]


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


def test_a_real_kernel_shows_the_bar_and_keeps_nothing_of_it() -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    notebooks = pytest.importorskip("nbformat").v4
    updates: list[str] = []

    class Recorded(client.NotebookClient):  # type: ignore[misc, name-defined]
        def process_message(self, message: Any, cell: Any, index: int) -> Any:
            if message["msg_type"] == "update_display_data":
                updates.append(message["content"]["data"]["text/html"])
            return super().process_message(message, cell, index)

    book = notebooks.new_notebook(cells=[notebooks.new_code_cell(CELL)])
    Recorded(book, timeout=120, kernel_name="python3").execute()
    assert "3 of 8 steps" in updates[0]
    assert [output["data"]["text/html"] for output in book.cells[0].outputs] == [""]

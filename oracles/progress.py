"""A progress bar for solves, below the cell of a notebook or in a line of a terminal; drawn by rich."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from privopt.oracles.limits import Limits, Progress, check_limits


@contextmanager
def progress_bar(limits: Limits | None = None) -> Iterator[Limits]:
    """Provide limits that show the progress of a solve; if the output is a pipe or a file, they show nothing.

    Use: ``with progress_bar() as limits: Estimator(..., limits=limits).fit(X, y)``. What a bar shows depends
    on the records, unless the number of steps is fixed. So the bar disappears at the end, and a saved
    notebook does not contain it. Notebooks need ipywidgets, which ``privopt[notebooks]`` installs.

    Args:
        limits: time limit and cancellation; ``limits.on_progress`` is called, too.

    Raises:
        InvalidInputError: the argument is no ``Limits``.
    """
    check_limits(limits)
    with drawn_on(Console(stderr=True), limits or Limits()) as shown:
        yield shown


@contextmanager
def drawn_on(console: Console, given: Limits) -> Iterator[Limits]:
    """Provide the given limits, which now show progress on a console if it is interactive."""
    shown = console.is_terminal or console.is_jupyter
    columns = (SpinnerColumn(), _Steps(), TextColumn("{task.description}"), TimeElapsedColumn())
    # In a notebook no thread refreshes the bar: otherwise text printed meanwhile would vanish with it.
    by_itself = not console.is_jupyter
    with Bar(*columns, console=console, transient=True, disable=not shown, auto_refresh=by_itself) as bar:
        line = bar.add_task("planning", total=None)

        def on_progress(now: Progress) -> None:
            if given.on_progress is not None:
                given.on_progress(now)
            bar.tasks[0].total = now.total  # ``update`` takes None for no change
            bar.update(line, description=described(now), completed=now.nodes, refresh=True)

        try:
            yield replace(given, on_progress=on_progress)
        finally:  # a saved notebook keeps the last state of the bar, so the bar is made empty
            bar.update(line, visible=False, refresh=True)


class _Steps(BarColumn):
    """A progress bar, hidden while the total amount of work is unknown."""

    def render(self, task: Task) -> Any:
        return "" if task.total is None else super().render(task)


def described(now: Progress) -> str:
    """Describe the progress of a solve. It depends on the records unless the number of steps is fixed."""
    if now.total is not None:
        return f"{now.nodes} of {now.total} steps"
    known = f"best {now.incumbent:.6g}  bound {now.bound:.6g}  gap {now.gap:.3g}  "
    return f"{known if np.isfinite(now.gap) else ''}{now.nodes} nodes (progress is not private)"

"""A progress bar of solves, below the cell of a notebook or in a line of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from privopt.oracles.limits import Limits, Progress, check_limits

Show = Callable[[Progress], None]


@contextmanager
def progress_bar(limits: Limits | None = None) -> Iterator[Limits]:
    """Provide limits that show how far a solve is; in a pipe or a log they show nothing.

    ``with progress_bar() as limits: Estimator(..., limits=limits).fit(X, y)``. What a bar shows depends on
    the records, unless the number of steps is fixed: it goes away at the end, and a saved notebook does not
    keep it.

    Args:
        limits: time limit and cancellation. An ``on_progress`` of their own is called, too.

    Raises:
        InvalidInputError: an argument that is no ``Limits``.
    """
    check_limits(limits)
    given = limits or Limits()
    console = Console(stderr=True)
    with below_the_cell() if console.is_jupyter else line_of_terminal(console) as show:

        def on_progress(now: Progress) -> None:
            if given.on_progress is not None:
                given.on_progress(now)
            show(now)

        yield replace(given, on_progress=on_progress)


# The bars of tqdm and rich need ipywidgets in a notebook, and what they showed last stays in a notebook that
# nbclient runs and saves; without ipywidgets tqdm writes lines, which stay, and rich shows nothing.
@contextmanager
def below_the_cell() -> Iterator[Show]:
    """Provide a function that shows progress in a notebook, in the browser's own element for it."""
    shown = import_module("IPython.display")
    place = shown.display(shown.HTML(""), display_id=True)
    is_open = True

    def show(now: Progress) -> None:
        if is_open:
            share = "" if now.total is None else f' max="{now.total}" value="{now.nodes}"'
            place.update(shown.HTML(f"<label><progress{share}></progress> {described(now)}</label>"))

    try:
        yield show
    finally:
        is_open = False
        place.update(shown.HTML(""))


class _Steps(BarColumn):
    """A progress bar, hidden while the total amount of work is unknown."""

    def render(self, task: Task) -> Any:
        return "" if task.total is None else super().render(task)


@contextmanager
def line_of_terminal(console: Console) -> Iterator[Show]:
    """Provide a function that shows progress in a line of a terminal; on other consoles nothing is shown."""
    columns = (SpinnerColumn(), _Steps(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("planning", total=None)

        def show(now: Progress) -> None:
            bar.update(line, description=described(now), completed=now.nodes, total=now.total)

        yield show


def described(now: Progress) -> str:
    """Describe the progress of a solve. It is not private unless the number of steps is fixed in advance."""
    if now.total is not None:
        return f"{now.nodes} of {now.total} steps"
    known = f"best {now.incumbent:.6g}  bound {now.bound:.6g}  gap {now.gap:.3g}  "
    return f"{known if np.isfinite(now.gap) else ''}{now.nodes} nodes (progress is not private)"

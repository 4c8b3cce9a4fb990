"""Page and figure of a resumable study, complete or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pandas as pd
from rich.console import Console

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.resumable import Kept, each
from privopt.problems.files import write_atomically

T = TypeVar("T")


def fill(
    kept: Kept,
    plan: Sequence[T],
    do: Callable[[T], None],
    page: Callable[[pd.DataFrame], str],
    picture: Callable[[pd.DataFrame], Figure],
    console: Console,
) -> pd.DataFrame:
    """Run every part of a plan, then write the page and the figure of all finished lines beside their file.

    Below its first paragraph the page lists the parts that are missing.
    """
    kept.path.parent.mkdir(parents=True, exist_ok=True)
    missing = each(plan, do, console, kept.path.stem.replace("-", " "))
    if kept.lines:
        parts = page(kept.frame).split("\n\n")
        if missing:
            parts.insert(2, f"**Not all is there yet.** Missing: {'; '.join(missing)}.")
        write_atomically(kept.path.with_suffix(".md"), "\n\n".join(parts))
        save(picture(kept.frame), kept.path.with_suffix(".png"))
    return kept.frame

"""Measuring figures: cells side by side on all cores, each kept when it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import joblib  # type: ignore[import-untyped]
import pandas as pd

from privopt.experiments.reproduce.interface import Cell, Line, Reproduction
from privopt.experiments.reproduce.registry import reproduction
from privopt.experiments.workbench.resumable import Kept
from privopt.problems.errors import PrivOptError

# Libraries of linear algebra, each with threads of its own: cells run side by side instead.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Done = Callable[[str, Cell], None]


def stem(name: str, quick: bool) -> str:
    """What files of a figure are called: quick results never mix with others."""
    return f"{name}-quick" if quick else name


def results(figure: Reproduction, folder: Path, quick: bool) -> Kept:
    """The file of results that a figure draws."""
    return Kept(folder / f"{stem(figure.source, quick)}.csv", Line, ("panel", "curve", "level"))


def missing(figure: Reproduction, kept: Kept, quick: bool) -> list[Cell]:
    """The cells that are not there yet."""
    return [c for c in figure.cells(quick) if not kept.matching(panel=c.panel, curve=c.curve, level=c.level)]


def measure(
    figures: Sequence[Reproduction], folder: Path, quick: bool, workers: int, done: Done
) -> dict[str, str]:
    """Measure what is not there yet; ``done`` is told of each cell that is finished, and kept.

    Returns:
        What could not be measured, and why, by figure and cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {f.source: results(f, folder, quick) for f in figures}
    own = [f for f in figures if f.measured_by is None]
    todo = [(f.name, cell) for f in own for cell in missing(f, kept[f.name], quick)]
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # for the workers, which inherit it
    failures: dict[str, str] = {}
    parallel = joblib.Parallel(
        n_jobs=workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers
    )
    found = parallel(joblib.delayed(_computed)(name, cell, quick) for name, cell in todo)
    try:
        for name, cell, lines, trouble in found:
            if trouble:
                failures[f"{name}, {cell}"] = trouble
            kept[name].add_all(lines)
            done(name, cell)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return failures


def _computed(name: str, cell: Cell, quick: bool) -> tuple[str, Cell, list[Line], str]:
    """In a process of its own: the lines of a cell, or what went wrong."""
    try:
        return name, cell, [Line.of(cell, p) for p in reproduction(name).compute(cell, quick)], ""
    except PrivOptError as error:
        return name, cell, [], str(error)


def frame(figure: Reproduction, folder: Path, quick: bool) -> pd.DataFrame:
    """What was measured for a figure; columns are those of ``Line``."""
    return results(figure, folder, quick).frame

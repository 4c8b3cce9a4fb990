"""Measurement of figures: cells run in parallel on all cores, and each is saved when it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import joblib  # type: ignore[import-untyped]

from privopt.experiments.reproduce.interface import Cell, Line, Reproduction
from privopt.experiments.reproduce.registry import reproduction
from privopt.problems.errors import PrivOptError

# Thread counts of linear algebra libraries, set to one because cells run in parallel.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Done = Callable[[str, Cell], None]


def measure(
    figures: Sequence[Reproduction], folder: Path, quick: bool, workers: int, done: Done
) -> dict[str, str]:
    """Measure the missing cells; ``done`` is called for each cell after it is saved.

    Returns:
        The reason of every failed measurement, by figure and cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = {f.source: f.study(quick).kept(folder) for f in figures}
    own = [f for f in figures if f.measured_by is None]
    todo = [(f.name, cell) for f in own for cell in f.study(quick).missing(folder, f.cells(quick))]
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # worker processes inherit these
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
    """Compute the lines of a cell in a worker process, or return the error."""
    try:
        return name, cell, list(reproduction(name).study(quick).compute(cell)), ""
    except PrivOptError as error:
        return name, cell, [], str(error)

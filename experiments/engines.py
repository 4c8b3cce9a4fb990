"""Measure fits to large tables, compared with one read of the table: a GROUP BY of DuckDB or a sum by Dask.

    python -m privopt.experiments.engines [--rows N] [--repeats K] [--folder DIR] [--output DIR]

DuckDB makes Parquet files of synthetic records and groups them; Dask adds up an array of numbers. Every
measurement has a separate process, so that its peak memory is measured alone; its baseline runs just before
it, in another process. Results are kept as they come: the same command resumes an interrupted run.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import typer
from rich.console import Console

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.palette import SERIES
from privopt.experiments.workbench.resumable import isolated, machine, peak_megabytes
from privopt.experiments.workbench.study import Study
from privopt.problems.tables.columns import Binned, Categorical
from privopt.problems.tables.schema import Schema

CLASSES = ("low", "high")
_LEVELS = {
    "status": ("married", "never-married", "divorced", "separated", "widowed", "absent", "other"),
    "relation": ("husband", "wife", "own-child", "unmarried", "other-relative", "not-in-family"),
    "sex": ("female", "male"),
}
_EDGES = {
    "age": (17, 25, 30, 35, 40, 45, 50, 60, 90),
    "education": (1, 8, 9, 10, 13, 14, 16),
    "hours": (1, 30, 40, 41, 50, 99),
}
SCHEMA = Schema(
    [
        *(Binned(name, edges) for name, edges in _EDGES.items()),
        *(Categorical(name, levels) for name, levels in _LEVELS.items()),
    ],
    intercept=True,
)
GROUP_BY = "GROUP BY"
CARD, LOGISTIC, TREE = "scorecard", "logistic regression", "decision tree"
FRAMES = ("pandas", "pandas, objects", "polars", "Arrow")  # tables in memory
FITTED = tuple(f"logistic regression, {frame}" for frame in FRAMES)
PREDICTED = tuple(f"its predictions, {frame}" for frame in FRAMES)
SUM, STEP = "Dask sum, from the file", "Dask gradient, from the file"
HELD_SUM, HELD_STEP = "Dask sum, held by workers", "Dask gradient, held by workers"
# The baseline of each subject that is measured.
AGAINST = {
    CARD: GROUP_BY,
    LOGISTIC: GROUP_BY,
    TREE: GROUP_BY,
    **dict.fromkeys((*FITTED, *PREDICTED), LOGISTIC),
    STEP: SUM,
    HELD_STEP: HELD_SUM,
}
# The most rows at which tables in memory and arrays held by workers are measured.
_MOST = {**dict.fromkeys((*FITTED, *PREDICTED), 1_000_000), HELD_STEP: 10_000_000}
_FEW = 100_000  # records of the warm-up: enough that the fit takes the same mechanism
_NUMBERS = 10  # columns of the array of numbers
_CHUNK = 250_000  # rows of a partition of the array

Cell = tuple[int, str]  # rows, subject


@dataclass(frozen=True)
class Measured:
    """Measurements of one subject at one number of rows.

    Attributes:
        seconds: time from opening the table to the result, after a warm-up on ``_FEW`` records; for a Dask
            gradient, the time of a gradient after a first one.
        work: processor seconds of the process, which other load of the machine hardly changes.
        plain, plain_work: ``seconds`` and ``work`` of the baseline.
        peak: peak resident memory of the process in MB, libraries included; with workers, the client's.
        first: seconds of the warm-up, which imports libraries and loads compiled code.
    """

    rows: int
    subject: str
    seconds: float
    work: float
    plain: float
    plain_work: float
    peak: float
    first: float

    @property
    def rate(self) -> float:
        """The number of rows per second."""
        return self.rows / self.seconds


def make(folder: Path, rows: int) -> None:
    """Generate a folder of Parquet files by DuckDB: records whose label depends on their columns."""
    import duckdb

    def one_of(name: str, salt: int) -> str:
        levels = ", ".join(f"'{level}'" for level in _LEVELS[name])
        return f"[{levels}][1 + (hash(i + {salt}) % {len(_LEVELS[name])})::INT] AS {name}"

    numbers = (
        "17 + (hash(i) % 74)::INT AS age, 1 + (hash(i + 1000000007) % 16)::INT AS education, "
        "1 + (hash(i + 2000000011) % 99)::INT AS hours"
    )
    texts = ", ".join(one_of(name, 3_000_000_019 * (k + 1)) for k, name in enumerate(_LEVELS))
    connection = duckdb.connect()
    folder.mkdir(parents=True, exist_ok=True)
    step = 10_000_000
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        connection.execute(
            f"COPY (SELECT *, CASE WHEN age + 4 * education + (relation = 'husband')::INT * 20 "
            f"+ (hash(i + 77) % 60)::INT > 110 THEN 'high' ELSE 'low' END AS income "
            f"FROM (SELECT i, {numbers}, {texts} FROM range({start}, {stop}) t(i))) "
            f"TO '{folder}/{start}.parquet' (FORMAT PARQUET)"
        )


def group_by() -> str:
    """Return the GROUP BY query of the baseline, as a person would write it."""
    bins = [
        "CASE " + " ".join(f"WHEN {name} < {e} THEN {k}" for k, e in enumerate(edges[1:-1]))
        + f" ELSE {len(edges) - 2} END AS {name}"
        for name, edges in _EDGES.items()
    ]  # fmt: skip
    return f"SELECT {', '.join([*bins, *_LEVELS, 'income'])}, COUNT(*) FROM records GROUP BY ALL"


def make_numbers(folder: Path, rows: int) -> None:
    """Generate an array of numbers and its labels as NumPy files."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    X = np.lib.format.open_memmap(folder / "X.partial", "w+", np.float64, (rows, _NUMBERS))
    y = np.empty(rows, dtype=np.int8)
    for start in range(0, rows, _CHUNK):
        part = rng.normal(size=(min(_CHUNK, rows - start), _NUMBERS)) / 5
        X[start : start + len(part)], y[start : start + len(part)] = part, part[:, 0] > 0
    X.flush()
    np.save(folder / "y.npy", y)
    (folder / "X.partial").rename(folder / "X.npy")


def run(subject: str, folder: Path, address: str | None) -> Iterator[tuple[float, float, float, float]]:
    """Yield once: seconds, processor seconds and peak memory of a subject, and the seconds of its warm-up.

    Args:
        address: the address of a Dask cluster; None for the threads of this process.
    """
    numbers, began = subject in (SUM, STEP, HELD_SUM, HELD_STEP), perf_counter()
    ask = _dask(subject, folder, address) if numbers else _query(subject, folder)
    first, began, worked = perf_counter() - began, perf_counter(), process_time()
    ask()
    yield perf_counter() - began, process_time() - worked, peak_megabytes(), first


def _query(subject: str, folder: Path) -> Callable[[], object]:
    import duckdb

    from privopt.mechanisms import (
        PrivateHalfspaceClassifier,
        PrivateLogisticRegression,
        PrivateTreeClassifier,
    )
    from privopt.problems.tables.sources import open_table

    options: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES}
    pattern = f"{folder}/*.parquet"
    kinds: dict[str, Any] = {CARD: PrivateHalfspaceClassifier, TREE: PrivateTreeClassifier}
    model = kinds.get(subject, PrivateLogisticRegression)(1.0, **options)

    def plain(limit: str) -> None:
        connection = duckdb.connect()
        connection.execute(f"CREATE VIEW records AS FROM '{pattern}' {limit}")
        connection.execute(group_by()).fetchall()

    def grouped(limit: str) -> None:
        if not limit:
            model.fit(open_table(pattern), "income")
            return
        with tempfile.TemporaryDirectory() as few:  # a fit refuses a LIMIT, a step that mixes rows
            make(Path(few), _FEW)
            model.fit(open_table(f"{few}/*.parquet"), "income")

    if subject in FITTED or subject in PREDICTED:
        return _in_memory(subject, folder, model)
    ask = plain if subject == GROUP_BY else grouped
    ask(f"LIMIT {_FEW}")  # the warm-up
    return lambda: ask("")


def _in_memory(subject: str, folder: Path, model: Any) -> Callable[[], object]:
    """Read a table into memory, fit to its first records, and return the call to time: fit or predictions."""
    made: Callable[[pd.DataFrame], Any] = {
        "pandas": lambda table: table,
        "pandas, objects": lambda table: table.astype(dict.fromkeys([*_LEVELS, "income"], object)),
        "polars": lambda table: import_module("polars").from_pandas(table),
        "Arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    }[subject.split(", ", 1)[1]]
    table = made(pd.read_parquet(folder, columns=[*_EDGES, *_LEVELS, "income"]))
    few = table[:_FEW]
    model.fit(few, few["income"])
    if subject in PREDICTED:
        model.predict(few)
        return lambda: model.predict(table)
    return lambda: model.fit(table, table["income"])


def _dask(subject: str, folder: Path, address: str | None) -> Callable[[], object]:
    from privopt.mechanisms import PrivateLogisticRegression
    from privopt.mechanisms.estimators.bounded_fit import risk_of_table

    X, y = (_partitions(folder / f"{name}.npy") for name in "Xy")
    if address is not None:
        distributed: Any = import_module("distributed")
        distributed.Client(address)
        X, y = X.persist(), y.persist()
        distributed.wait([X, y])
    if subject in (SUM, HELD_SUM):
        X[:_CHUNK].sum(axis=0).compute()
        return lambda: X.sum(axis=0).compute()
    risk = risk_of_table(PrivateLogisticRegression(1.0, data_norm=1.0, classes=(0, 1)), X, y)
    w = np.full(risk.facts.dimension, 0.1)
    risk.gradient(w)
    return lambda: risk.gradient(w)


def _partitions(path: Path) -> Any:
    """Return a Dask array of a NumPy file; every worker reads its own partitions."""
    dask: Any = import_module("dask")  # Any: dask has no types
    whole, array = np.load(path, mmap_mode="r"), import_module("dask.array")
    parts = [
        array.from_delayed(
            dask.delayed(_rows)(path, start), (min(_CHUNK, len(whole) - start), *whole.shape[1:]), whole.dtype
        )
        for start in range(0, len(whole), _CHUNK)
    ]
    return array.concatenate(parts)


def _rows(path: Path, start: int) -> Any:
    return np.load(path, mmap_mode="r")[start : start + _CHUNK]


def measured(rows: int, subject: str, folder: Path, repeats: int) -> Measured:
    """Run a subject and its baseline alternately; return the least time of each and the largest memory."""
    runs = []
    with _workers(subject == HELD_STEP) as address:
        for _ in range(repeats):
            runs.append([next(isolated(run, what, folder, address)) for what in (AGAINST[subject], subject)])
    plain, own = (np.array(part) for part in zip(*runs, strict=True))
    (seconds, work), (plain_seconds, plain_work) = own.min(0)[:2].tolist(), plain.min(0)[:2].tolist()
    peak, first = float(own[:, 2].max()), float(own[:, 3].min())
    return Measured(rows, subject, seconds, work, plain_seconds, plain_work, peak, first)


@contextmanager
def _workers(wanted: bool) -> Iterator[str | None]:
    """Provide the address of a cluster of two worker processes, if it is wanted; otherwise None."""
    if not wanted:
        yield None
        return
    distributed: Any = import_module("distributed")
    own: dict[str, Any] = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "dashboard_address": None,
        "memory_limit": 0,
    }
    with distributed.LocalCluster(**own) as cluster:
        yield cluster.scheduler_address


def table(results: Sequence[Measured]) -> pd.DataFrame:
    """Format the measurements as a table with display names."""
    return pd.DataFrame(
        {
            "measured": [m.subject for m in results],
            "rows": [f"{m.rows:,}" for m in results],
            "seconds": [f"{m.seconds:.2f}" for m in results],
            "baseline": [AGAINST[m.subject] for m in results],
            "baseline, seconds": [f"{m.plain:.2f}" for m in results],
            "ratio": [f"{m.seconds / m.plain:.2f}" for m in results],
            "ratio of processor time": [
                "" if m.subject == HELD_STEP else f"{m.work / m.plain_work:.2f}" for m in results
            ],
            "million rows per second": [f"{m.rate / 1e6:.1f}" for m in results],
            "peak memory, MB": [f"{m.peak:.0f}" for m in results],
            "warm-up, seconds": [f"{m.first:.1f}" for m in results],
        }
    )


def page(results: Sequence[Measured], command: str) -> str:
    """Write the page of the documentation."""
    longest = {m.subject: m for m in sorted(results, key=lambda m: m.rows)}
    shortest = {m.subject: m for m in sorted(results, key=lambda m: -m.rows)}
    rate, pace = (longest[name].rate if name in longest else math.nan for name in (CARD, HELD_STEP))
    pace /= 2  # two workers
    fixed = {n: 1000 * (m.seconds - m.plain) for n, m in shortest.items()}
    held = [m for m in results if m.subject in (*FITTED, *PREDICTED)]
    places = {
        "command": command,
        "machine": machine(),
        "fits": markdown_table(table(results)),
        "distinct": f"{math.prod(c.n_codes for c in SCHEMA.columns) * len(CLASSES):,}",
        "least-rows": f"{min(m.rows for m in results):,}",
        "card-fixed": f"{fixed.get(CARD, math.nan):.0f}",
        "logistic-fixed": f"{fixed.get(LOGISTIC, math.nan):.0f}",
        "longest-held": f"{max((m.seconds / m.plain for m in held), default=math.nan):.1f}",
        "most-held": f"{max((m.work / m.plain_work for m in held), default=math.nan):.1f}",
        "rate": f"{rate / 1e6:.1f}",
        "minutes": f"{1e10 / rate / 60:.0f}",
        "pace": f"{pace / 1e6:.0f}",
        "step": f"{1e10 / pace / 1600:.1f}",  # 100 workers of 16 cores
    }
    return filled("engines", places)


def picture(results: Sequence[Measured]) -> Figure:
    """Draw seconds and memory against rows: a curve per subject, and dashed ones for the baselines."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    panels = figure.subplots(1, 3)
    drawn = [name for name in AGAINST if name not in (*FITTED, *PREDICTED)]  # these have one size only
    marks = dict(zip(drawn, "osPDv", strict=True))
    sizes = [m.rows for m in results]
    lines = {name: [m for m in results if m.subject == name] for name in drawn}
    for axes, plain in zip(panels, ((GROUP_BY,), (SUM, HELD_SUM), ()), strict=False):
        for base in plain:
            against = [m for m in results if AGAINST[m.subject] == base]
            least = {
                n: min(m.plain for m in against if m.rows == n) for n in sorted({m.rows for m in against})
            }
            shade = "0.6" if base == HELD_SUM else "0.2"
            axes.plot(list(least), list(least.values()), "--", color=shade, label=base)
        for k, (name, line) in enumerate(lines.items()):
            if line and (not plain or AGAINST[name] in plain):
                numbers = [m.seconds if plain else m.peak for m in line]
                axes.plot([m.rows for m in line], numbers, marker=marks[name], color=SERIES[k], label=name)
        axes.set_xscale("log")
        axes.set(xlim=(min(sizes) / 1.5, max(sizes) * 1.5), xlabel="rows")
        axes.set_ylabel("seconds" if plain else "peak memory, MB")
        axes.grid(alpha=0.3)
    for axes in panels[:2]:
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize=8)
    panels[2].axhline(1000, color="0.6", linewidth=0.8)
    panels[2].set_ylim(0, None)
    return figure


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Number of rows; may be repeated.")] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of runs of each measurement; the minimum is shown.")
    ] = 1,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the generated records; existing ones are reused.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Output folder for page, picture and results.")] = Path(
        "engines"
    ),
) -> None:
    """Measure what is missing, and write page and picture; by default 10^5 and 10^6 rows, in two minutes."""
    sizes = rows or [100_000, 1_000_000]
    command = (
        f"python -m privopt.experiments.engines {' '.join(f'--rows {n}' for n in sizes)} --repeats {repeats}"
    )
    cells = [(n, subject) for n in sizes for subject in AGAINST if n <= _MOST.get(subject, n)]
    with tempfile.TemporaryDirectory() as temporary:
        study(folder or Path(temporary), repeats, command).run(output, cells, Console(soft_wrap=True))


def study(folder: Path, repeats: int, command: str) -> Study[Cell]:
    """Return the study, with its generated records in ``folder``; ``command`` is for the page."""

    def compute(cell: Cell) -> list[Measured]:
        rows, subject = cell
        return [measured(rows, subject, _records(subject, folder, rows), repeats)]

    return Study(
        "engines",
        Measured,
        ("rows", "subject"),
        compute,
        is_finished=lambda kept, cell: bool(kept.matching(rows=cell[0], subject=cell[1])),
        page=lambda lines: page(in_order(lines), command),
        figures={".png": lambda lines: picture(in_order(lines))},
    )


def in_order(lines: pd.DataFrame) -> list[Measured]:
    """Return the measurements, sorted by subject and rows."""
    found = [Measured(**{str(k): v for k, v in line.items()}) for line in lines.to_dict("records")]
    return sorted(found, key=lambda m: ([*AGAINST].index(m.subject), m.rows))


def _records(subject: str, folder: Path, rows: int) -> Path:
    """Return the path of a subject's records; they are generated if missing."""
    grouped = AGAINST[subject] in (GROUP_BY, LOGISTIC)
    place = folder / (str(rows) if grouped else f"numbers-{rows}")
    if not list(place.glob("*.parquet" if grouped else "X.npy")):
        (make if grouped else make_numbers)(place, rows)
    return place


if __name__ == "__main__":
    typer.run(main)

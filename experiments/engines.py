"""Fits on tables that an engine holds, against the engine's own GROUP BY of the same columns, in one run.

    python -m privopt.experiments.engines [--rows N] [--repeats K] [--folder DIR] [--output DIR]

DuckDB makes Parquet files of synthetic records and groups them; every measurement is a process of its own, so
that its peak memory is its own.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import pandas as pd
import typer
from matplotlib.figure import Figure

from privopt.experiments.workbench.pages import markdown_table, processor
from privopt.mechanisms.estimators.common import write_atomically
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
FITS = ("scorecard", "logistic regression", "dp-sgd")
IN_MEMORY = "scorecard, in memory"
GROUP_BY = "GROUP BY"
_MOST_IN_MEMORY = 1_000_000


@dataclass(frozen=True)
class Measured:
    """One subject on so many rows.

    Attributes:
        seconds: from opening the table to the result, after a fit of a thousand records.
        peak: the largest resident memory of the process, bytes, libraries included.
        ratio: seconds over those of the engine's own GROUP BY.
    """

    rows: int
    subject: str
    seconds: float
    peak: int
    ratio: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def make(folder: Path, rows: int) -> None:
    """A folder of Parquet files, by DuckDB: records whose label depends on their columns."""
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
    """The query that somebody would write by hand."""
    bins = [
        "CASE " + " ".join(f"WHEN {name} < {e} THEN {k}" for k, e in enumerate(edges[1:-1]))
        + f" ELSE {len(edges) - 2} END AS {name}"
        for name, edges in _EDGES.items()
    ]  # fmt: skip
    return f"SELECT {', '.join([*bins, *_LEVELS, 'income'])}, COUNT(*) FROM records GROUP BY ALL"


def run(subject: str, folder: Path) -> tuple[float, int]:
    """Seconds and peak memory of one subject in this process."""
    import resource

    import duckdb

    from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
    from privopt.problems.tables.engines import open_table

    options: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES}
    pattern = f"{folder}/*.parquet"
    model: Any = PrivateHalfspaceClassifier(1.0, **options)
    if subject in ("logistic regression", "dp-sgd"):
        mechanism = "dp-sgd" if subject == "dp-sgd" else "auto"
        model = PrivateLogisticRegression(1.0, mechanism=mechanism, **options)
    few = open_table(f"{folder}/0.parquet").limit(1000).to_pyarrow().to_pandas()
    model.fit(few.drop(columns="income"), few["income"])  # whatever is imported when it is asked for
    began = perf_counter()
    if subject == GROUP_BY:
        connection = duckdb.connect()
        connection.execute(f"CREATE VIEW records AS FROM '{pattern}'")
        connection.execute(group_by()).fetchall()
    elif subject == IN_MEMORY:
        table = pd.read_parquet(folder)
        model.fit(table.drop(columns="income"), table["income"])
    else:
        model.fit(open_table(pattern), "income")
    seconds = perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(rows: int, folder: Path, repeats: int) -> Iterator[Measured]:
    """Every subject on a folder of so many rows, the GROUP BY first."""
    subjects = [GROUP_BY, *FITS, *([IN_MEMORY] if rows <= _MOST_IN_MEMORY else [])]
    plain = 0.0
    for subject in subjects:
        runs = [_in_a_process(subject, folder) for _ in range(repeats)]
        seconds, peak = min(s for s, _ in runs), max(p for _, p in runs)
        plain = plain or seconds
        yield Measured(rows, subject, seconds, peak, seconds / plain)


def _in_a_process(subject: str, folder: Path) -> tuple[float, int]:
    command = [sys.executable, "-m", "privopt.experiments.engines", "--one", subject, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{subject}: {done.stderr[-2000:]}")
    seconds, peak = json.loads(done.stdout)
    return float(seconds), int(peak)


def table(results: Sequence[Measured]) -> pd.DataFrame:
    """For people."""
    return pd.DataFrame(
        {
            "rows": [f"{m.rows:,}" for m in results],
            "what": [m.subject for m in results],
            "seconds": [f"{m.seconds:.2f}" for m in results],
            "times the GROUP BY": [f"{m.ratio:.2f}" for m in results],
            "million rows a second": [f"{m.rate / 1e6:.1f}" for m in results],
            "peak memory, MB": [f"{m.peak / 1e6:.0f}" for m in results],
        }
    )


def page(results: Sequence[Measured]) -> str:
    """The page of the documentation."""
    most = max(m.rows for m in results)
    rates = {m.subject: m.rate for m in results if m.rows == most}
    hours = 1e10 / rates["scorecard"] / 3600
    distinct = math.prod(c.n_codes for c in SCHEMA.columns) * len(CLASSES)
    words = " ".join(f"--rows {n}" for n in sizes(results))
    return (
        "# Fits on tables that an engine holds\n\n"
        f"Made by `python -m privopt.experiments.engines {words} --output FOLDER` on {processor()}. Six "
        "columns (three numbers in 8, 6 and 5 bins, three of text with 7, 6 and 2 levels) and a label of two "
        "classes, in Parquet files that DuckDB made. Every line is a process of its own: seconds from "
        "opening the files to the model, once libraries are imported, and the largest resident memory with "
        "them. Ratios are within this run.\n\n"
        f"{markdown_table(table(results))}\n\n"
        "![rows against seconds](engines.png)\n\n"
        "A fit is the engine's GROUP BY, and a second or two for what comes back: at most "
        f"{distinct:,} distinct records here, however many rows there are. So the longer the table, the "
        "nearer the ratio is to that of the two queries; ours also looks for values that the schema "
        "refuses.\n\n"
        f"On paper: at {rates['scorecard'] / 1e6:.1f} million rows a second, 10^10 rows take {hours:.1f} "
        "hours on this machine. Counts of parts add up, so a cluster divides that by its number of such "
        "machines, and what it sends to the client is as small as here.\n"
    )


def sizes(results: Sequence[Measured]) -> list[int]:
    return sorted({m.rows for m in results})


def picture(results: Sequence[Measured]) -> Figure:
    """Seconds against rows, a line for each subject."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for k, subject in enumerate(dict.fromkeys(m.subject for m in results)):
        line = [m for m in results if m.subject == subject]
        axes.plot([m.rows for m in line], [m.seconds for m in line], marker="osD^v"[k % 5], label=subject)
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure


def main(
    rows: Annotated[list[int] | None, typer.Option(help="How many; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each, of which the least is shown.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the records here, and use those that are here already.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write page, picture and numbers here.")] = None,
    one: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure, print, and write where asked. 10^5 and 10^6 rows by default: about a minute."""
    if one is not None:
        assert folder is not None
        typer.echo(json.dumps(run(one, folder)))
        return
    results: list[Measured] = []
    with tempfile.TemporaryDirectory() as temporary:
        for n in rows or [100_000, 1_000_000]:
            records = (folder or Path(temporary)) / str(n)
            if not list(records.glob("*.parquet")):
                make(records, n)
            for found in measured(n, records, repeats):
                results.append(found)
                typer.echo(table([found]).to_string(index=False, header=len(results) == 1))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([asdict(m) for m in results]).to_csv(output / "engines.csv", index=False)
        picture(results).savefig(output / "engines.png", dpi=150)
        write_atomically(output / "engines.md", page(results))


if __name__ == "__main__":
    typer.run(main)

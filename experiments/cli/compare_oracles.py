"""``privopt compare-oracles``: benchmark of oracles on the same instances, and the instances as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privopt.experiments.comparison import report
from privopt.experiments.comparison.export import export as write_files
from privopt.experiments.comparison.race import DIED, TIMED_OUT, entrant, run
from privopt.experiments.comparison.workload import workload as instances_of
from privopt.oracles.errors import MissingSolverError
from privopt.problems.files import write_atomically

app = typer.Typer()

_MIP = ("highs", "pulp-highs", "cpsat", "scip", "pulp-cbc")
_ALL = ("native", *(f"{name}:{model}" for name in _MIP for model in ("cells", "rows")))


@app.command()
def compare_oracles(
    output: Annotated[Path, typer.Option(help="Folder for lines and report; goes on where it was stopped.")],
    workload: Annotated[
        str, typer.Option(help="tiny, ladder, synthetic, conjunctions, noise, hard, or all.")
    ] = "tiny",
    oracle: Annotated[
        list[str] | None,
        typer.Option(help="NAME, or NAME:rows and NAME:cells; repeat it. Default: all that are installed."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of noise.")] = 1,
    time_limit: Annotated[
        float, typer.Option(min=0.001, help="Processor seconds for each build and each solve.")
    ] = 60.0,
    jobs: Annotated[
        int, typer.Option(min=1, help="Oracles that run at a time, each on a core of its own.")
    ] = 1,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the instances to this folder as .mps and .lp, with their optima; no race."),
    ] = None,
) -> None:
    """Compare minimising oracles on reproducible instances: who proves what, how fast, whether all agree.

    Leaves solves.csv (a line per solve, appended as it is finished), solves.parquet, moments.csv, report.html
    and report.md with its pictures in the output folder. Exit code 1 if two proofs contradict each other.
    """
    console, instances = Console(soft_wrap=True, emoji=False), instances_of(workload, draws)
    if export is not None:
        lines = write_files(export, instances, time_limit)
        proved = sum(line.proved for line in lines)
        console.print(f"{len(lines)} models in {export}, {proved} with proved optima", markup=False)
        return
    names = [_checked(name) for name in oracle] if oracle else _installed()
    solves, moments = run(output, instances, names, limit=time_limit, jobs=jobs, console=console)
    solves.frame.to_parquet(output / "solves.parquet")
    sections = report.parts(solves.frame, moments.frame, time_limit)
    write_atomically(output / "report.html", report.html(sections))
    report.write_markdown(output, sections)
    console.print(report.certified(solves.frame, time_limit).to_string(index=False), markup=False)
    for line in (*solves.matching(status=DIED), *solves.matching(status=TIMED_OUT)):
        where = f"{line['oracle']} at {line['data']} n={line['n']} d={line['d']}"
        console.print(f"lost: {where}: {line['said']}", markup=False)
    wrong = report.disagreements(solves.frame)
    console.print(f"contradictions: {len(wrong)}; report: {output / 'report.html'}", markup=False)
    if len(wrong):
        raise typer.Exit(1)


def _checked(name: str) -> str:
    entrant(name)  # an unknown name is an error before anything runs
    return name


def _installed() -> list[str]:
    found = []
    for name in _ALL:
        try:
            found.append(_checked(name))
        except MissingSolverError:
            continue
    return found

"""``privopt compare-oracles``: benchmark of oracles on the same instances, and the instances as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privopt.experiments.comparison import programs, report
from privopt.experiments.comparison.export import export as write_files
from privopt.experiments.comparison.race import DIED, TIMED_OUT, entrant, run
from privopt.experiments.comparison.workload import Instance
from privopt.experiments.comparison.workload import workload as instances_of
from privopt.oracles.errors import MissingSolverError
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import write_atomically

app = typer.Typer()

_MIP = ("highs", "pulp-highs", "cpsat", "scip", "pulp-cbc")
_ALL = ("native", *(f"{name}:{model}" for name in _MIP for model in ("cells", "rows")))


@app.command()
def compare_oracles(
    output: Annotated[Path, typer.Option(help="Output folder; an interrupted run resumes there.")],
    workload: Annotated[
        str,
        typer.Option(
            help="For minimisers: tiny, ladder, synthetic, conjunctions, noise, hard, or all. For solvers of "
            "programs over noisy quantities: cards (the nearest under constraints) or subsets (the best)."
        ),
    ] = "tiny",
    oracle: Annotated[
        list[str] | None,
        typer.Option(
            help="Oracle: NAME, or NAME:rows and NAME:cells for its two models. Repeat for several. "
            "Default: all that are installed."
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of the noise.")] = 1,
    time_limit: Annotated[
        float,
        typer.Option(min=0.001, help="Limit on processor time in seconds, for each build and each solve."),
    ] = 60.0,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of oracles that run in parallel, each on a core of its own.")
    ] = 1,
    export: Annotated[
        Path | None,
        typer.Option(help="Only write the instances to this folder, as .mps and .lp, with their optima."),
    ] = None,
) -> None:
    """Benchmark minimising oracles on reproducible instances: running times, proofs, and whether all agree.

    The output folder receives solves.csv (a line per solve, appended as it is finished), solves.parquet,
    moments.csv, report.html and report.md with its pictures. Exit code 1 if two proofs contradict each other.
    """
    console = Console(soft_wrap=True, emoji=False)
    if workload in programs.WORKLOADS:
        if export is not None:
            raise InvalidInputError(f"--export writes instances of minimisers; {workload} has none")
        _race_programs(output, workload, oracle or [], draws, time_limit, console)
        return
    instances = instances_of(workload, draws)
    if export is not None:
        lines = write_files(export, instances, time_limit)
        proved = sum(line.proved for line in lines)
        console.print(f"{len(lines)} models in {export}, {proved} with proved optima", markup=False)
        return
    _race_minimizers(output, instances, oracle or [], time_limit, jobs, console)


def _race_minimizers(
    output: Path, instances: list[Instance], oracles: list[str], limit: float, jobs: int, console: Console
) -> None:
    """Race minimisers and write the report; exit code 1 if two proofs contradict each other."""
    names = [_checked(name) for name in oracles] if oracles else _installed()
    solves, moments = run(output, instances, names, limit=limit, jobs=jobs, console=console)
    solves.frame.to_parquet(output / "solves.parquet")
    sections = report.parts(solves.frame, moments.frame, limit)
    write_atomically(output / "report.html", report.html(sections))
    report.write_markdown(output, sections)
    console.print(report.certified(solves.frame, limit).to_string(index=False), markup=False)
    for line in (*solves.matching(status=DIED), *solves.matching(status=TIMED_OUT)):
        where = f"{line['oracle']} at {line['data']} n={line['n']} d={line['d']}"
        console.print(f"lost: {where}: {line['said']}", markup=False)
    wrong = report.disagreements(solves.frame)
    console.print(f"contradictions: {len(wrong)}; report: {output / 'report.html'}", markup=False)
    if len(wrong):
        raise typer.Exit(1)


def _race_programs(
    output: Path, workload: str, oracles: list[str], draws: int, limit: float, console: Console
) -> None:
    """Race solvers of programs; exit code 1 if one that finished has a worse value than another."""
    solves = programs.race(output, workload, oracles, draws, limit, console)
    console.print((output / "programs.md").read_text(), markup=False, highlight=False)
    wrong = programs.contradictions(solves)
    console.print(f"contradictions: {len(wrong)}; solves: {output / 'programs.csv'}", markup=False)
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

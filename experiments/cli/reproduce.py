"""``privopt reproduce``: reproduction of the figures and tables of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import joblib  # type: ignore[import-untyped]
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from privopt.experiments.cli.errors import InterruptedRunError
from privopt.experiments.reproduce.interface import Cell, Reproduction
from privopt.experiments.reproduce.pages import write
from privopt.experiments.reproduce.registry import FIGURES, reproduction
from privopt.experiments.reproduce.runner import measure
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
say = Console(stderr=True, emoji=False)
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help=", ".join(FIGURES), show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer runs and smaller samples: all figures in 15 minutes on two cores."
        ),
    ] = False,
    output: Annotated[Path, typer.Option(help="Output folder for results, pictures and report.")] = Path(
        "reproduced"
    ),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; by default one per core.")
    ] = None,
) -> None:
    """Reproduce figures and tables of the papers, and check their findings.

    The output folder receives every run (CSV), the picture (PNG, SVG) and a page for each figure, and one
    report of all complete figures in it. Finished cells are kept: the same command resumes. In an environment
    with the libraries for comparison (``make peers``) other libraries run too, on the same records.
    """
    if every == bool(names):
        raise InvalidInputError("name figures, or use --all")
    if output.exists() and not output.is_dir():
        raise InvalidInputError(f"--output {output}: that is a file; name a folder")
    figures = [reproduction(name) for name in (FIGURES if every else dict.fromkeys(names or []))]
    output.mkdir(parents=True, exist_ok=True)
    own = {f.source: reproduction(f.source) for f in figures}
    failures = _measured(list(own.values()), output, quick, workers or int(joblib.cpu_count()))
    every_figure = [reproduction(name) for name in FIGURES]
    whole = [f for f in every_figure if not f.study(quick).missing(output, f.cells(quick))]
    report, contents = write(whole, output, quick, failures)
    for where, why in failures.items():
        say.print(f"[red]not measured:[/] {escape(f'{where}: {why}')}")
    tell.print(f"Open {report}; pages in {contents}", markup=False, highlight=False)
    if failures:
        raise typer.Exit(2)


def _measured(figures: list[Reproduction], output: Path, quick: bool, workers: int) -> dict[str, str]:
    """Measure what is missing, under a progress bar; return the reason of each failure."""
    total = sum(len(f.cells(quick)) for f in figures)
    left = sum(len(f.study(quick).missing(output, f.cells(quick))) for f in figures)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=say) as bar:
        line = bar.add_task("measuring", total=total, completed=total - left)

        def done(name: str, cell: Cell) -> None:
            bar.update(line, advance=1, description=escape(f"{name}, {cell}"))

        try:
            return measure(figures, output, quick, workers, done)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"Interrupted: finished cells are kept in {output}; the same command resumes there"
            ) from None

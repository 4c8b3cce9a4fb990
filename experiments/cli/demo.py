"""``privopt demo``: private scorecards on the Adult data, from data to figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from privopt.experiments.cli.errors import InterruptedRunError
from privopt.experiments.demo import run_demo
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Output folder for table, picture and report.")] = Path(
        "demo-output"
    ),
    draws: Annotated[int, typer.Option(min=1, help="Number of draws per mechanism and epsilon.")] = 10,
) -> None:
    """Run the main experiment on the Adult data: a table and a picture of accuracy against epsilon."""
    if output.exists() and not output.is_dir():
        raise InvalidInputError(f"--output {output}: that is a file; name a folder")
    try:
        run_demo(output, draws, tell)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"Interrupted: finished draws are kept in {output / 'draws.csv'}; the same command resumes there"
        ) from None

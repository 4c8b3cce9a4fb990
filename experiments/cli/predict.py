"""``privopt predict``: a saved model and records in, a table of predictions out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from privopt.experiments.cli.fit import check_files
from privopt.experiments.cli.models import load_model, predictions
from privopt.mechanisms.estimators.common import write_atomically

app = typer.Typer()


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file written by `privopt fit --save`.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet with the schema's columns.")],
    output: Annotated[Path | None, typer.Option(help="Write a CSV here instead of printing it.")] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add a column per class: its probability, by the model.")
    ] = False,
) -> None:
    """Score records with a saved model: columns `score` and `prediction`."""
    check_files({"--output": output})
    scored = predictions(load_model(model), data, proba)
    if output is None:
        sys.stdout.write(scored.to_csv(index=False))
    else:
        write_atomically(output, scored.to_csv(index=False))

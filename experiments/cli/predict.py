"""``privopt predict``: predictions of a saved model for a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from privopt.experiments.cli.files import check_files
from privopt.experiments.cli.models import check_proba, load_model, predictions
from privopt.experiments.cli.options import TableOption
from privopt.experiments.cli.tables import read_parts
from privopt.problems.files import write_atomically

app = typer.Typer()


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model written by `privopt fit --save`.")],
    data: Annotated[
        str,
        typer.Argument(
            help="Records: a CSV or Parquet file with the columns of the schema; or, read in parts, a "
            "pattern or URL as in `privopt fit`."
        ),
    ],
    table: TableOption = None,
    output: Annotated[Path | None, typer.Option(help="Write a CSV file instead of printing.")] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add a column of predicted probabilities for each class.")
    ] = False,
) -> None:
    """Predict with a saved model: columns `score` and `prediction`, in the order of the records."""
    check_files({"--output": output})
    fitted = load_model(model)
    check_proba(fitted, proba)
    parts = enumerate(read_parts(data, fitted.schema_, table))
    lines = (predictions(fitted, part, proba).to_csv(index=False, header=k == 0) for k, part in parts)
    if output is None:
        sys.stdout.writelines(lines)
    else:
        write_atomically(output, lines)

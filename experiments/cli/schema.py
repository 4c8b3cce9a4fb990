"""``privopt schema``: skeleton of a schema, from names and types of a table's columns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from privopt.experiments.cli.files import say
from privopt.experiments.cli.options import TableOption
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import check_writable, write_atomically
from privopt.problems.tables.skeleton import column_types, skeleton

app = typer.Typer()


@app.command()
def schema(
    data: Annotated[
        str,
        typer.Argument(help="A CSV or Parquet file; or a pattern or URL, as in `privopt fit`."),
    ],
    target: Annotated[str, typer.Option(help="Name of the label column, which the schema leaves out.")],
    table: TableOption = None,
    output: Annotated[Path | None, typer.Option(help="New .toml file. Default: print the schema.")] = None,
) -> None:
    """Write the skeleton of a schema from the names and types of a table's columns; reads no value.

    Fill in bounds, bins and categories yourself: facts inferred from the records are a privacy leak, and a
    schema is as public as the model.
    """
    check_writable(output, "--output")
    if output is not None and (output.suffix != ".toml" or output.exists()):
        reason = (
            "that file exists, and may be filled in already" if output.exists() else "it must end in .toml"
        )
        raise InvalidInputError(f"--output {output}: {reason}")
    text = skeleton(column_types(data, table), target)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
        note = f"{output}: fill it in; until then `privopt plan --schema {output} ...` names what is missing"
        say.print(note, markup=False, highlight=False)

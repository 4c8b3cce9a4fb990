"""``privopt schema``: skeleton of a schema from names and types, or a schema learned privately."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import typer
from rich.console import Console
from typer.core import TyperGroup

from privopt.experiments.cli.files import json_text, paid_files, say, showing
from privopt.experiments.cli.options import DeltaOption, TableOption
from privopt.experiments.cli.parsing import parse_delta, parse_types, split_labels
from privopt.experiments.cli.plan import show
from privopt.experiments.cli.running import accounted, open_ledger
from privopt.experiments.cli.table_output import print_lines
from privopt.mechanisms.estimators.learn_schema import column_types as types_of_frame
from privopt.mechanisms.estimators.learn_schema import for_persons, persons_of, released_schema, size_of
from privopt.mechanisms.estimators.persons import AnyPersons
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.learning import DEFAULT_CUTS, LearnedSchema, SchemaPlan
from privopt.problems.arguments import check_some_records
from privopt.problems.datasets.adult import adult23_frame
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import check_writable, write_atomically
from privopt.problems.tables.check import check_rows
from privopt.problems.tables.columns import Binned, Column
from privopt.problems.tables.dates import Date
from privopt.problems.tables.dictionary import read_dictionary
from privopt.problems.tables.enumerations import enumerations
from privopt.problems.tables.made_up import synthetic_rows
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.reading import header_of, read_table
from privopt.problems.tables.schema import Schema, schema_file
from privopt.problems.tables.skeleton import Held, column_types, skeleton
from privopt.problems.tables.sources import is_engine_address, open_table

tell = Console(soft_wrap=True, emoji=False)
# The types of columns to learn, as declared by the header of a file.
_DECLARED = {Held.NUMBERS: "number", Held.TEXT: "text", Held.TRUTH: "boolean", Held.DATES: "date"}
_DECLARED |= {Held.OPEN: "vote"}


class _SkeletonByDefault(TyperGroup):
    """Group in which ``privopt schema TABLE`` is ``privopt schema skeleton TABLE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["skeleton", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_SkeletonByDefault,
    help="Write the skeleton of a schema, check one on public rows, put numbers in bins, or learn one.",
    no_args_is_help=True,
)


@app.command("skeleton")
def write_skeleton(
    data: Annotated[
        str,
        typer.Argument(help="A CSV or Parquet file; or a pattern or URL, as in `privopt fit`."),
    ],
    target: Annotated[str, typer.Option(help="Name of the label column, which the schema leaves out.")],
    table: TableOption = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="Data dictionary: a CSV file with a column `name`, and any of the columns type, label, "
            "unit, values (a|b|c), low, high and missing. It has to be public."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="New .toml file. Default: print the schema.")] = None,
) -> None:
    """Write the skeleton of a schema from the names and types of a table's columns; reads no value.

    Fill in bounds, bins and categories yourself: facts inferred from the records are a privacy leak, and a
    schema is as public as the model. `privopt schema learn` pays for them instead.
    """
    check_writable(output, "--output")
    if output is not None and (output.suffix != ".toml" or output.exists()):
        reason = (
            "that file exists, and may be filled in already" if output.exists() else "it must end in .toml"
        )
        raise InvalidInputError(f"--output {output}: {reason}")
    held = column_types(data, table)
    known = enumerations(data, table) | ({} if dictionary is None else read_dictionary(dictionary))
    text = skeleton(held, target, known)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
        note = f"{output}: fill it in; until then `privopt plan --schema {output} ...` names what is missing"
        say.print(note, markup=False, highlight=False)


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="Schema file, .toml or .json.")],
    data: Annotated[
        Path | None,
        typer.Argument(help="A .csv, .csv.gz or .parquet file. Default: synthetic rows of the schema."),
    ] = None,
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="The rows of the file are public or synthetic: what is printed about them has no noise.",
        ),
    ] = False,
) -> None:
    """Check a schema on public or synthetic rows.

    Counted are the cells that are missing, unreadable, outside the bounds or categories, or refused. Of the
    other cells the share of each category or bin is printed.

    For private rows these numbers would be a leak, which no budget covers.
    """
    declared = Schema.load(schema)
    if data is not None and not public:
        raise InvalidInputError(
            f"{data}: what is printed about its rows has no noise. To do: add --public if they are public "
            "or synthetic; for private records use `privopt schema learn`, which adds noise and costs epsilon"
        )
    rows = synthetic_rows(declared, 1000) if data is None else read_table(data, schema=declared)
    found = check_rows(declared, rows)
    size = f"{len(rows):,} rows, {declared.n_features} features"
    print_lines(tell, (size, *map(str, found.columns), found.verdict))


@app.command()
def bins(
    schema: Annotated[Path, typer.Argument(help="Schema file, .toml or .json.")],
    output: Annotated[Path | None, typer.Option(help="New .toml file. Default: print the schema.")] = None,
) -> None:
    """Write a copy of a schema with its numbers in bins, for outcomes that are not linear in a number.

    A scorecard or linear model then has a weight for each bin, instead of one weight for the number. The
    edges follow from the declared bounds, so that no record is read; change them as you like.
    """
    check_writable(output, "--output")
    if output is not None and output.suffix != ".toml":
        raise InvalidInputError(f"--output {output}: it must end in .toml")
    binned = Schema.load(schema).with_bins()
    if output is None:
        sys.stdout.write(binned.to_text())
    else:
        write_atomically(output, binned.to_text())


@app.command()
def learn(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            help="A .csv, .csv.gz or .parquet file with a header; or adult23, shipped; or a pattern or URL, "
            "as in `privopt fit`."
        ),
    ],
    epsilon: Annotated[
        float, typer.Option(help="Privacy budget of this release, > 0; neighbours differ by one record.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Name of the label column, which the schema leaves out.")
    ] = None,
    table: TableOption = None,
    types: Annotated[
        str | None,
        typer.Option(
            help="NAME=TYPE,...: number, whole, range (a number without bins, between learned bounds), "
            "date, text, boolean, or vote (whether number, whole, date or text is found privately). "
            "Default: the types of a Parquet file or a database; of a CSV file, vote."
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Schema file of known columns: they are kept as declared, at no cost.")
    ] = None,
    leave_out: Annotated[
        str | None, typer.Option(help="NAME,...: further columns that the schema leaves out.")
    ] = None,
    cuts: Annotated[
        int, typer.Option(help="Largest number of cuts of a column of numbers: 1, 3, 7 or 15.")
    ] = DEFAULT_CUTS,
    na_values: Annotated[
        str | None, typer.Option("--na-values", help="MARKER,...: further missing-value markers.")
    ] = None,
    delta: DeltaOption = "auto",
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be learned, and whether --ledger affords it.")
    ] = False,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="PRIVOPT_LEDGER",
            help="Ledger in which the spend is booked first: a path or URL. The release is refused if it "
            "overdraws the budget.",
        ),
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(
            help="Column that identifies the person of each record. The guarantee is then for replacing a "
            "person. Only the first record of each person is used; from an engine, one cell of each person "
            "in each column."
        ),
    ] = None,
    insecure_seed: Annotated[
        int | None, typer.Option(help="Seed for reproducible noise. Voids privacy.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the schema to this .toml or .json file. Default: print it.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the full report to this JSON file.")
    ] = None,
) -> None:
    """Learn a schema from a table: cuts of numbers into bins, and categories of text that many records share.

    One release, booked before a cell is read. What a column costs, and whether there are enough records for
    it, follows from public facts: `--plan` shows it. Neighbours differ in one record.
    """
    # Without --save the schema is kept in a temporary file until it is printed.
    suffix = ".json" if save is None else schema_file(save).suffix
    if plan:
        with accounted(None):
            planned = _planned(context.params)
        made = planned.plan if planned.persons is None else for_persons(planned.plan)
        show(made.to_dict(), str(made).split("\n"), made.spend, as_json=False, ledger=ledger)
        return
    with paid_files(save, json_file) as (kept, report):
        book = None if ledger is None else open_ledger(ledger)
        with accounted(book):
            planned = _planned(context.params)
            source = NoiseSource(insecure_seed)
            found = released_schema(planned.plan, planned.frame, book, source, planned.persons)
        # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
        kept.keep(found.schema.to_text(suffix))
        with showing("the schema was released, and is paid for", kept):
            if report is not None:
                report.keep(json_text(_report(planned.plan, found)))
            _show(found, save, planned.n, planned.known)


class _Planned(NamedTuple):
    """A planned schema, and the table from which it is learned, with its persons if they are declared."""

    plan: SchemaPlan
    frame: Any
    persons: AnyPersons | None
    n: int  # records, or persons
    known: Schema | None


def _planned(options: Mapping[str, Any]) -> _Planned:
    """Open the table and plan the release; no cell is interpreted."""
    known = None if options["schema"] is None else declared_schema(options["schema"])
    person = options["person"]
    left = [*_listed("--leave-out", options["leave_out"]), *filter(None, [options["target"], person])]
    given = read_unlearned(options["data"], options["types"], known, left, options["table"])
    persons = None if person is None else persons_of(given.frame, person, known)
    n = given.n_records if persons is None else persons.count
    made = SchemaPlan.plan(
        given.types,
        n,
        epsilon=options["epsilon"],
        delta=public_delta(parse_delta(options["delta"]), n),
        cuts=options["cuts"],
        declared=known,
        na_values=_listed("--na-values", options["na_values"]),
    )
    return _Planned(made, given.frame, persons, n, known)


@dataclass(frozen=True)
class Unlearned:
    """A table that has not been interpreted, and the declared types of its columns."""

    frame: Any
    types: dict[str, str]

    @property
    def n_records(self) -> int:
        return size_of(self.frame)


def read_unlearned(
    data: str, types: str | None, known: Schema | None, left: list[str], table: str | None = None
) -> Unlearned:
    """Open a table; no cell is interpreted.

    Raises:
        InvalidInputError, SchemaError: a table that cannot be read, or lacks a column.
    """
    declared = parse_types(types)
    if table is not None and not is_engine_address(data):
        raise InvalidInputError(
            "--table names a table of a database, and no URL of a database is given. To do: give the URL in "
            "place of the file, or leave out --table"
        )
    if data == "adult23":
        frame = adult23_frame()
        return Unlearned(frame, types_of_frame(frame, declared, known, left))
    if is_engine_address(data):
        opened = open_table(data, table)
        return Unlearned(opened, types_of_frame(opened, declared, known, left))
    held = _file_types(data)
    frame = read_table(Path(data), list(held))
    check_some_records(len(frame))
    free = [] if known is None else [column.name for column in known.columns]
    unclear = {name: kind for name, kind in held.items() if name not in (*declared, *left, *free)}
    if bad := [k for k, name in enumerate(held, 1) if unclear.get(name) == ""]:
        raise InvalidInputError(
            f"column {bad[0]} of the table holds lists or the like: make numbers or text of them, or leave "
            "it out with --leave-out"
        )
    return Unlearned(frame, types_of_frame(frame, unclear | declared, known, left))


def _file_types(data: str) -> dict[str, str]:
    """Return the types of columns that a file declares; "" where it declares no number or text."""
    header = header_of(data)
    found = {name: _DECLARED.get(held, "") for name, held in column_types(data).items()}
    if not isinstance(header, list):
        found |= {f.name: "whole" for f in header if f.name in found and pa.types.is_integer(f.type)}
    return found


def _listed(option: str, text: str | None) -> list[str]:
    return [] if text is None else split_labels(option, text)


def _report(made: SchemaPlan, found: LearnedSchema) -> dict[str, Any]:
    return {
        **made.to_dict(),
        **found.spend.to_dict(),
        "schema": found.schema.to_dict(),
        "left_out": list(found.left_out),
    }


def _show(found: LearnedSchema, save: Path | None, n: int, known: Schema | None) -> None:
    if save is None:
        print(found.schema.to_text(), end="")  # not sys.stdout.write: sys.stdout may be None
    for name in found.left_out:
        say.print(
            f"left out: {name}: no cut or category has enough records. To do: if it matters, declare it in a "
            "file for --schema",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    declared = [] if known is None else [column.name for column in known.columns]
    learned = [column for column in found.schema.columns if column.name not in declared]
    if doubtful := [column.name for column in learned if _far_apart(column)]:
        say.print(
            f"cuts that look like noise, a thousand times apart: {', '.join(doubtful)}. To do: declare these "
            "columns by hand, or leave columns out (--leave-out), or learn one cut of each (--cuts 1)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    say.print(f"learned from {n:,} {found.spend.unit}s", markup=False, highlight=False)
    say.print(f"spend: {found.spend}", markup=False, highlight=False, soft_wrap=True)


def _far_apart(column: Column) -> bool:
    """Return whether, of two cuts next to each other in magnitude, one is 1,000 times the other or more.

    Only pairs whose larger cut is at least a million count. Hardly any data have such cuts. They come from
    noise, if there are few records for the number of columns: the public prior of cuts has such numbers.
    """
    plain, _ = plain_column(column)
    if not isinstance(plain, Binned) or isinstance(plain, Date):
        return False
    sizes = sorted(abs(float(edge)) for edge in plain.edges if edge)
    return any(b >= 1e6 and b >= 1000 * a for a, b in pairwise(sizes))

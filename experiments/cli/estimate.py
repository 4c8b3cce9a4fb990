"""``privopt estimate``: private means, and estimates from subsets or from minima of perturbed objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli import options as opt
from privopt.experiments.cli.estimate_plans import ESTIMATES, check_loss, check_options, plan_of
from privopt.experiments.cli.files import json_text, paid_files, say, showing
from privopt.experiments.cli.parsing import parse_delta, split_classes, split_labels
from privopt.experiments.cli.running import accounted, open_ledger
from privopt.experiments.cli.table_output import print_lines
from privopt.experiments.cli.tables import read_labelled
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.estimators.booking import Unread, booked
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.labels import checked_labels, class_indices, real_labels
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.select import minimizer
from privopt.problems.arrays import as_reals
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.reading import read_table
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_address

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)

INTERCEPT = "(intercept)"
_ALWAYS = frozenset({"data", "schema", "ledger", "insecure_seed", "save", "json_file"})
EXAMPLES = """Examples:

privopt estimate robust-mean --data bills.csv --columns cost,days --moment 1e6 --epsilon 1

privopt estimate trimmed-mean --data bills.csv --columns cost --range 0:5000 --epsilon 1 --save means.json

privopt estimate subset-mean --data bills.csv --columns days,age --target cost --radius 10 --epsilon 1

privopt estimate opsamp --data adult23 --epsilon 10 --json report.json"""


@dataclass(frozen=True)
class Given:
    """Records that have not been read: names of the features, and what reads features and labels."""

    names: list[str]
    unread: Unread[tuple[NDArray[Any], NDArray[Any] | None]]


@app.command(epilog=EXAMPLES)
def estimate(
    context: typer.Context,
    mechanism: Annotated[str, typer.Argument(help=", ".join(ESTIMATES))],
    data: opt.DataOption,
    epsilon: opt.EpsilonOption,
    columns: Annotated[
        str | None,
        typer.Option(
            help="NAME,...: columns of numbers. Default: those of the schema, or all but the target."
        ),
    ] = None,
    target: opt.TargetOption = None,
    table: opt.TableOption = None,
    schema: opt.SchemaOption = None,
    classes: opt.ClassesOption = None,
    delta: opt.DeltaOption = "auto",
    moment: Annotated[
        float | None, typer.Option(help="robust-mean: public bound on the mean square of each column.")
    ] = None,
    mean_range: Annotated[
        str | None,
        typer.Option("--range", help="trimmed-mean: LOW:HIGH, public bounds on the mean of each column."),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="subset-mean, sample-aggregate: a bound on the norm of the weights.")
    ] = None,
    subsets: Annotated[
        int | None, typer.Option(help="Number of subsets. Default, for subset-mean: from n, d and epsilon.")
    ] = None,
    loss: Annotated[
        str, typer.Option(help="subset-mean, sample-aggregate: squared, or logistic for two --classes.")
    ] = "squared",
    lattice: opt.LatticeOption = None,
    oracle: opt.OracleOption = "auto",
    alpha: Annotated[
        float,
        typer.Option(
            help="opsamp: the largest gap of an accepted minimum, in number of errors; the noise "
            "accounts for it."
        ),
    ] = 0.0,
    draws: Annotated[
        int | None,
        typer.Option(help="opsamp: number of minima. Default: enough for little noise, at most 5,000."),
    ] = None,
    ledger: opt.LedgerOption = None,
    insecure_seed: opt.SeedOption = None,
    save: Annotated[Path | None, typer.Option(help="Write the estimate to this JSON file.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the full report to this JSON file.")
    ] = None,
) -> None:
    """Release a private mean of the records in a file, or an estimate from subsets of them or
    from minima of randomly perturbed objectives.
    """
    options = context.params
    check_options(context, _ALWAYS)
    check_loss(options)
    with paid_files(save, json_file) as (kept, report):
        book = None if ledger is None else open_ledger(ledger)
        with accounted(book):
            given = _given(mechanism, options)
            n = given.unread.n_records
            plan = plan_of(mechanism, n, len(given.names), public_delta(parse_delta(delta), n), options)
            measure = plan.noise_to_signal
            if measure.warning:  # before data are read, from public facts
                say.print(f"[yellow]warning:[/] {escape(measure.warning)}", highlight=False, soft_wrap=True)
            source = NoiseSource(insecure_seed)
            with booked(book, plan.spend, given.unread) as (X, y):
                release = _release(plan, X, y, source, options)
        found = dict(zip(given.names, release.point.tolist(), strict=True))
        answer = {"mechanism": mechanism, "estimate": found, **release.spend.to_dict()}
        # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
        kept.keep(json_text(answer))
        with showing("the estimate was released, and is paid for", kept):
            if report is not None:
                ratio = {"noise_to_signal": measure.ratio, "records": n}
                report.keep(json_text({**answer, **release.noise, **ratio}))
            _show(found, release, str(measure))


def _given(mechanism: str, options: Mapping[str, Any]) -> Given:
    """Open the table; no cell is interpreted.

    Raises:
        InvalidInputError: a table or a column that is not there, or facts that are missing.
    """
    schema = None if options["schema"] is None else declared_schema(options["schema"])
    if mechanism in ("robust-mean", "trimmed-mean"):
        data = options["data"]
        if data.startswith("adult23") or is_engine_address(data):
            raise InvalidInputError(f"{mechanism} reads a .csv, .csv.gz or .parquet file, got --data {data}")
        frame = read_table(Path(data), schema=schema)
        return _features(Unread(len(frame), lambda: (frame, None)), list(frame.columns), schema, options)
    records = read_labelled(
        options["data"], options["target"], schema, split_classes(options["classes"]), options["table"]
    )
    if mechanism == OPSamp.name:
        if records.schema is None or records.classes is None:
            raise InvalidInputError("opsamp needs --schema and --classes: nothing is inferred from records")
        read = partial(_integers, records.schema, records.classes)
        return Given(list(records.schema.feature_names), records.unread().then(read))
    label = partial(_labels, options["loss"], records.classes)
    given = _features(records.unread(), None, records.schema, options, records.target)

    if records.schema is not None and records.schema.intercept and options["columns"] is None:
        return Given(given.names, given.unread.then(lambda pair: (pair[0], label(pair[1]))))

    def with_intercept(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return np.column_stack([pair[0], np.ones(len(pair[0]))]), label(pair[1])

    return Given([*given.names, INTERCEPT], given.unread.then(with_intercept))


def _features(
    unread: Unread[Any],
    there: list[str] | None,
    schema: Schema | None,
    options: Mapping[str, Any],
    target: str | None = None,
) -> Given:
    """Select the features: columns of numbers, or those that a schema encodes."""
    if options["columns"] is not None:
        if schema is not None:
            raise InvalidInputError("--columns and --schema: the schema names the columns; leave one out")
        names = split_labels("--columns", options["columns"])
        if there is not None and (missing := [name for name in names if name not in there]):
            raise InvalidInputError(f"--columns: no {missing_columns(missing, there)}")
        if target in names:
            raise InvalidInputError(f"--columns: {target!r} is the target")
        return Given(names, unread.then(partial(_numbers, names)))
    if schema is not None:
        return Given(list(schema.feature_names), unread.then(lambda p: (encoded(schema, p[0]), p[1])))
    if there is None:
        raise InvalidInputError("--columns or --schema: declare the columns that are features")
    return Given(list(map(str, there)), unread.then(partial(_numbers, there)))


def _numbers(names: list[str], pair: tuple[Any, Any]) -> tuple[NDArray[Any], Any]:
    frame = pair[0]
    if missing := [name for name in names if name not in frame.columns]:
        raise InvalidInputError(f"--columns: no {missing_columns(missing, list(map(str, frame.columns)))}")
    numbers = as_reals(frame[names].to_numpy(), f"columns {', '.join(names)}")
    if not np.all(np.isfinite(numbers)):
        raise InvalidInputError(
            "missing or infinite values in the columns; declare a --schema, which says how to read them"
        )
    return numbers, pair[1]


def _integers(
    schema: Schema, classes: tuple[Any, ...], pair: tuple[Any, Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    frame, y = pair
    index = class_indices(checked_labels(y, len(frame)), np.asarray(classes))
    return schema.encode(frame).X, 2 * index - 1


def _labels(loss: str, classes: tuple[Any, ...] | None, y: Any) -> NDArray[Any]:
    if loss == "squared":
        return real_labels(y)
    assert classes is not None
    return 2.0 * class_indices(checked_labels(y, len(y)), np.asarray(classes)) - 1


def _release(plan: Any, X: NDArray[Any], y: Any, source: NoiseSource, options: Mapping[str, Any]) -> Any:
    """Run the mechanism once on the records."""
    if isinstance(plan, OPSamp):
        problem = ZeroOneHalfspace(X, y, plan.lattice)
        return plan.release(minimizer(options["oracle"]).prepare(problem, plan.question), source)
    if y is None:
        return plan.release(X, source)
    release: Callable[..., Any] = plan.release
    return release(X, y, PLAIN_SQUARES if options["loss"] == "squared" else LogisticLoss(), source)


def _show(found: Mapping[str, float], release: Any, measure: str) -> None:
    numbers = Table("", "estimate")
    for name, value in found.items():
        numbers.add_row(escape(name), f"{value:.6g}")
    tell.print(numbers)
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in release.noise.items())
    print_lines(tell, (f"noise: {noise}", f"noise / signal: {measure}", f"spend: {release.spend}"))

"""``privopt evaluate``: private evaluation of a saved model, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.files import PaidFile, json_text, showing
from privopt.experiments.cli.linear import checked_label_range
from privopt.experiments.cli.models import load_model
from privopt.experiments.cli.options import TableOption
from privopt.experiments.cli.risks import between
from privopt.experiments.cli.running import accounted, open_ledger
from privopt.experiments.cli.tables import Labelled, read_labelled
from privopt.mechanisms.estimators.compare import compare as compared
from privopt.mechanisms.estimators.evaluate import evaluate as evaluated
from privopt.mechanisms.evaluation.classes import ClassEvaluation
from privopt.mechanisms.evaluation.comparison import Comparison
from privopt.mechanisms.evaluation.metrics import NAMES, Evaluation
from privopt.mechanisms.evaluation.regression import NAMES as REGRESSION_NAMES
from privopt.mechanisms.evaluation.regression import RegressionEvaluation, number
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_address

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def evaluate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model written by `privopt fit --save`.")],
    data: Annotated[
        str,
        typer.Option(
            help="Test data, labelled records that `fit` did not read: .csv, .csv.gz, .parquet; adult23; or "
            "a pattern or URL, as in `privopt fit`."
        ),
    ],
    epsilon: Annotated[
        float,
        typer.Option(
            help="Privacy budget of this evaluation, > 0; neighbours differ by replacing one record."
        ),
    ],
    target: Annotated[str | None, typer.Option(help="Name of the label column. Required for files.")] = None,
    table: TableOption = None,
    label_range: Annotated[
        str | None,
        typer.Option(
            help="LOW:HIGH, to which labels and predictions of a regression are clipped. Default: that of "
            "the model."
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Another saved model, with the same classes, or a regression if MODEL is one. Instead of an "
            "evaluation, release the differences of both models' measures on these records: MODEL's minus "
            "those of this other model."
        ),
    ] = None,
    about: Annotated[
        str,
        typer.Option(help="Target of the confidence intervals: population, or table (the records at hand)."),
    ] = "population",
    confidence: Annotated[float, typer.Option(help="Confidence level of each interval.")] = 0.95,
    person: Annotated[
        str | None,
        typer.Option(
            help="Column that identifies the person of each record. The guarantee is then for replacing a "
            "person. Only the first record of each person is used."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="PRIVOPT_LEDGER",
            help="Ledger in which the spend is booked first: a path or URL. The evaluation is refused if it "
            "overdraws the budget.",
        ),
    ] = None,
    insecure_seed: Annotated[
        int | None, typer.Option(help="Seed for reproducible noise. Voids privacy.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the full report to this file.")
    ] = None,
) -> None:
    """Release the quality of a model on records that its fit did not read, with confidence intervals.

    For classifiers: accuracy, balanced accuracy, ROC, AUC, confusion matrix and calibration; for regressions:
    R^2, RMSE, MAE and bias. With --against: the differences between two models on the same records.
    """
    book = None if ledger is None else open_ledger(ledger)
    fitted, other = load_model(model), None if against is None else load_model(against)
    with PaidFile(json_file, "--json") as kept:
        with accounted(book):
            records = _opened(fitted, other, context.params)
            released = evaluated if other is None else partial(compared, second=other)
            found = released(
                fitted,
                X=records.unread(),
                epsilon=epsilon,
                label_range=checked_label_range(label_range, "squared"),
                target=about,  # type: ignore[arg-type]  # checked there
                confidence=confidence,
                person=person,
                ledger=book,
                insecure_seed=insecure_seed,
            )
        # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
        kept.keep(json_text(found.to_dict()))
        with showing("the evaluation was released, and is paid for", kept):
            _show(found)


def _opened(fitted: Any, other: Any | None, options: Mapping[str, Any]) -> Labelled:
    """Open the records; they have the columns of both models if two are compared.

    Raises:
        InvalidInputError, SchemaError: records that a model cannot take.
    """
    data, classes, schema = options["data"], written_classes(fitted, options["data"]), fitted.schema_
    read = partial(
        read_labelled,
        data,
        options["target"],
        classes=classes,
        table=options["table"],
        person=options["person"],
    )
    if other is not None and other.schema_ != schema:
        if is_engine_address(data) and (schema := _finest(schema, other.schema_)) is None:
            raise InvalidInputError(
                "--against: an engine counts records by one schema, and these models have two. To do: "
                "compare them on a file"
            )
        read(schema=other.schema_)
    return read(schema=schema)


def _show(found: Comparison | RegressionEvaluation | ClassEvaluation | Evaluation) -> None:
    if isinstance(found, Comparison):
        show_comparison(found, tell)
    elif isinstance(found, RegressionEvaluation):
        show_regression(found, tell)
    elif isinstance(found, ClassEvaluation):
        show_classes(found, tell)
    else:
        show_evaluation(found, tell)


def _finest(first: Schema | None, second: Schema | None) -> Schema | None:
    """Return the schema whose counts serve both models, if the other one only adds bins; or None."""
    if first is None or second is None:
        return None
    return first if first.refines(second) else second if second.refines(first) else None


def written_classes(model: Any, data: str) -> tuple[Any, ...] | None:
    """Return the classes of a model as a file or an engine writes labels; None if they are numbers there."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    texts = isinstance(classes[0], str) or is_engine_address(data)
    return tuple(classes.tolist()) if texts else None


def _estimates(
    found: Comparison | RegressionEvaluation | ClassEvaluation | Evaluation,
    names: Mapping[str, str] | None = None,
    number: Callable[[float], str] = "{:.3f}".format,
    more: str = "",
) -> Table:
    """Return a table of measures with intervals; ``names`` are the titles of measures."""
    subject = "the population" if found.target == "population" else "the records at hand"
    title = f"About {subject}{more}"
    numbers = Table("", "estimate", f"{found.confidence:.0%} interval", title=title, title_justify="left")
    for name, estimate in found.metrics.items():
        value = "open" if math.isnan(estimate.value) else number(estimate.value)
        shown = escape(name) if names is None else names[name]
        numbers.add_row(shown, value, f"{number(estimate.low)} to {number(estimate.high)}")
    return numbers


def show_comparison(found: Comparison, console: Console) -> None:
    """Print differences between two models with intervals."""
    console.print(_estimates(found, number=number, more=", first minus second"))
    console.print(f"spend: {found.spend}", markup=False)


def show_regression(found: RegressionEvaluation, console: Console) -> None:
    """Print measures of a regression with intervals."""
    console.print(_estimates(found, REGRESSION_NAMES, number))
    low, high = found.label_range
    console.print(
        f"labels and predictions clipped to {low:g} to {high:g}; spend: {found.spend}", markup=False
    )


def show_classes(found: ClassEvaluation, console: Console) -> None:
    """Print measures of several classes with intervals, and the confusion matrix."""
    predicted = (f"predicted {escape(str(label))}" for label in found.confusion.columns)
    matrix = Table("true class", *predicted, title="Records")
    for label, row in zip(found.confusion.index, found.confusion.to_numpy().tolist(), strict=True):
        matrix.add_row(escape(str(label)), *map(str, row))
    for shown in (_estimates(found), matrix):
        shown.title_justify = "left"
        console.print(shown)
    console.print(f"spend: {found.spend}", markup=False)


def show_evaluation(found: Evaluation, console: Console) -> None:
    """Print measures with intervals, the confusion matrix and calibration."""
    confusion, bounds = found.confusion, list(found.confusion_intervals.values())
    matrix = Table("true class", *(f"predicted {escape(str(c))}" for c in confusion.columns), title="Records")
    for i, (name, row) in enumerate(zip(confusion.index, confusion.to_numpy().tolist(), strict=True)):
        pairs = zip(row, bounds[2 * i : 2 * i + 2], strict=True)
        matrix.add_row(escape(str(name)), *(f"{n} ({e.low:.0f} to {e.high:.0f})" for n, e in pairs))
    risks = Table("score", "share", "predicted", "observed", "interval", title="Risk by score")
    for above, up_to, share, predicted, observed, low, high in found.calibration.to_numpy().tolist():
        risks.add_row(
            between(above, up_to),
            f"{share:.1%}",
            "" if math.isnan(predicted) else f"{predicted:.1%}",
            "open" if math.isnan(observed) else f"{observed:.1%}",
            f"{low:.1%} to {high:.1%}",
        )
    for shown in (_estimates(found, NAMES), matrix, risks):
        shown.title_justify = "left"
        console.print(shown)
    console.print(f"spend: {found.spend}", markup=False)

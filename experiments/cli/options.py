"""Options shared by several commands, and their parsers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from privopt.mechanisms.errors import UnknownMechanismError
from privopt.problems.convex.parsing import LOSSES
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.schema import Schema

# Panels of a command's help.
DATA, PRIVACY, PROBLEM, SOLVER, OUTPUT, LINEAR, LIMITS = (
    "Data (public facts are declared, not inferred)",
    "Privacy",
    "Problem: integer scorecards",
    "Solver: integer scorecards",
    "Output",
    "Problem: linear models",
    "Limits",
)

EpsilonOption = Annotated[
    float,
    typer.Option(
        "--epsilon",
        help="Privacy budget of this fit, > 0; neighbours differ by replacing one record.",
        rich_help_panel=PRIVACY,
    ),
]
LossOption = Annotated[str | None, typer.Option(help=f"{LOSSES}. Default: logistic.", rich_help_panel=LINEAR)]
SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        help="Constraint set of the weights: l1:SIZE, l2:SIZE, linf:SIZE or simplex. Default: that of the "
        "mechanism.",
        rich_help_panel=LINEAR,
    ),
]
PenaltyOption = Annotated[
    str | None,
    typer.Option(
        "--regularizer",
        help="Penalty: none, l1:STRENGTH, l2:STRENGTH, or both as in l1:STRENGTH+l2:STRENGTH. Default: none.",
        rich_help_panel=LINEAR,
    ),
]
NormOption = Annotated[
    float | None,
    typer.Option(
        "--data-norm",
        help="Norm to which rows are clipped, > 0. Linear models only: together with --loss, or the name of "
        "one of their mechanisms. Default: the bound implied by the schema; for calibrate 1.",
        rich_help_panel=LINEAR,
    ),
]
NormKindOption = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="Kind of the norm in --data-norm: l2 or linf. Default: l2; for dp-fw-l1 linf.",
        rich_help_panel=LINEAR,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="LOW:HIGH, the range to which labels are clipped in regression, in their own unit, as in "
        "--label-range=-1:1. Without it the range is inferred from the data, a privacy leak; for "
        "calibrate it is -1:1.",
        rich_help_panel=LINEAR,
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        help="Number of noisy steps, >= 1. Default: that of the theory, from n, d and epsilon.",
        rich_help_panel=LINEAR,
    ),
]
RobustOption = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="Robust regression for heavy-tailed records without declared bounds; units are found privately. "
        "--loss logistic or squared.",
        rich_help_panel=LINEAR,
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", help="Write the full report to this JSON file.", rich_help_panel=OUTPUT),
]


def parse_weights(text: str | None) -> dict[Any, float] | str | None:
    """Parse class weights: LABEL=WEIGHT pairs with commas, "balanced", or None."""
    if text is None or text == "balanced":
        return text
    try:
        pairs = [part.rpartition("=") for part in split_labels("--class-weight", text)]
        if not all(label and equals for label, equals, _ in pairs):
            raise ValueError("no label")
        return {label: float(weight) for label, _, weight in pairs}
    except ValueError as error:
        raise InvalidInputError(
            f"--class-weight must be balanced, or LABEL=WEIGHT pairs as in well=1,ill=5; got {text!r}"
        ) from error


def parse_prevalence(text: str | None) -> float | list[float] | None:
    """Parse a prevalence: a share, shares with commas, or None."""
    if text is None:
        return None
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidInputError(f"--prevalence must be a share such as 0.05, got {text!r}") from error
    return shares[0] if len(shares) == 1 else shares


def parse_lattice(text: str | None) -> tuple[int, int] | tuple[int, int, float] | None:
    """Parse a lattice, LOW:HIGH[:RADIUS]; None for the mechanism's own lattice."""
    if text is None:
        return None
    try:
        low, high, *radius = text.split(":")
        bounds = (int(low), int(high))
        lattice = (*bounds, float(radius[0])) if len(radius) == 1 else _no_more(bounds, radius)
    except ValueError as error:
        raise InvalidInputError(
            f"--lattice must be LOW:HIGH or LOW:HIGH:RADIUS, two integers and a number, as in "
            f"--lattice=-4:4:4.8; got {text!r}"
        ) from error
    if bounds[0] > bounds[1]:
        raise InvalidInputError(f"--lattice {text}: LOW = {bounds[0]} is above HIGH = {bounds[1]}")
    return lattice


def _no_more(bounds: tuple[int, int], rest: list[str]) -> tuple[int, int]:
    if rest:
        raise ValueError("too many parts")
    return bounds


def split_classes(text: str | None) -> tuple[str, ...] | None:
    """Split the labels of --classes like a line of a CSV file: a label with a comma needs double quotes.

    Raises:
        InvalidInputError: a quote that is not closed.
    """
    return None if text is None else tuple(split_labels("--classes", text))


def split_labels(option: str, text: str) -> list[str]:
    """Split a line of CSV into cells; blanks after a comma are ignored."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise InvalidInputError(
            f"{option}: a double quote opens or closes in the wrong place; put a label with a comma "
            f"""into double quotes, the whole list into single ones, as in {option} '"ill, in bed",well'"""
        ) from None


def marked_schema(file: Path | None, na_values: str | None) -> Schema | None:
    """Load a schema and add the missing-value markers of ``--na-values``.

    Raises:
        InvalidInputError: markers without a schema.
        SchemaError: as ``Schema.load``.
    """
    if file is None:
        if na_values is not None:
            raise InvalidInputError("--na-values changes the columns of a schema: --schema is needed")
        return None
    schema = Schema.load(file)
    return schema if na_values is None else schema.with_na_values(split_labels("--na-values", na_values))


def parse_delta(text: str) -> float | str:
    """Parse delta: a number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"--delta must be a number in (0, 1) or auto, got {text!r}") from error


def check_mechanism(name: str, known: tuple[str, ...]) -> None:
    """Raise UnknownMechanismError for a name that is not among ``known``."""
    if name not in known:
        raise UnknownMechanismError(
            f"unknown mechanism {name!r}{did_you_mean(name, known)}; here are {', '.join(known)}"
        )

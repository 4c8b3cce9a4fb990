"""Parsers of options whose values are lists, ranges or names."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privopt.mechanisms.privacy.groups import LEARN
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema


def class_costs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator for the costs of errors by class."""
    return {
        "class_weight": parse_weights(options["class_weight"]),
        "prevalence": parse_prevalence(options["prevalence"]),
    }


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
            f"--class-weight must be balanced, or LABEL=WEIGHT pairs, as in well=1,ill=5; got {text!r}"
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


def parse_types(text: str | None) -> dict[str, str]:
    """Parse types of columns: NAME=TYPE pairs with commas, or None for none."""
    pairs = [] if text is None else [part.rpartition("=") for part in split_labels("--types", text)]
    if not all(name and kind for name, _, kind in pairs):
        raise InvalidInputError("--types must be NAME=TYPE pairs, as in age=whole,income=number,state=text")
    return {name: kind for name, _, kind in pairs}


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


def parse_range(text: str, option: str) -> tuple[float, float]:
    """Read LOW:HIGH.

    Raises:
        InvalidInputError: other than two numbers.
    """
    try:
        low, high = (float(bound) for bound in text.split(":"))
    except ValueError as error:
        raise InvalidInputError(
            f"{option} must be LOW:HIGH, two numbers, as in {option}=-1:1; got {text!r}"
        ) from error
    return low, high


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


def of_persons(schema: Schema | None, person: str | None) -> tuple[Schema | None, str | None]:
    """Return the schema without its column of persons, and the column that ``--person`` or it names.

    Raises:
        InvalidInputError: they name two different columns.
    """
    if schema is None or schema.person is None:
        return schema, person
    if person not in (None, schema.person):
        raise InvalidInputError(f"--person {person}: the schema's column of persons is {schema.person!r}")
    return schema.for_records(), schema.person


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


def whole_bound(bound: float | None) -> int | None:
    """Return a bound on weights of a card, which are whole numbers.

    Raises:
        InvalidInputError: the bound is not a whole number >= 1.
    """
    if bound is not None and not (bound >= 1 and bound.is_integer()):
        raise InvalidInputError(f"--max-weight of a card is a whole number >= 1, got {bound:g}")
    return None if bound is None else int(bound)


def parse_records(text: str) -> int | str:
    """Parse a number of records per person: a whole number, or "learn"."""
    if text == LEARN:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError(
            f"--records-per-person must be a whole number or {LEARN}, got {text!r}"
        ) from error

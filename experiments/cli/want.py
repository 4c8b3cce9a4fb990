"""``privopt plan --want``: AUC and widths of intervals to expect, and the records or epsilon they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from privopt.experiments.cli.estimate_plans import given_options
from privopt.experiments.cli.linear import checked_label_range
from privopt.experiments.cli.parsing import parse_delta, split_classes
from privopt.experiments.cli.table_output import print_report
from privopt.mechanisms.estimators.expected_auc import AucCurve, Band, ExpectedAuc
from privopt.mechanisms.estimators.expected_intervals import ExpectedIntervals
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

tell = Console(soft_wrap=True, emoji=False)
_PANEL = "Planning backwards"

WantOption = Annotated[
    str | None,
    typer.Option(
        help="auc or auc=0.8, with --prevalence and --best-auc: the AUC to expect of a card (or --model "
        "linear), and the records or epsilon that 0.8 needs. interval or interval=0.05, or interval:age=0.05 "
        "for one coefficient, with --label-range and --residual-sd: the same for the widths of the "
        "confidence intervals of a linear regression. --records or --epsilon can be left out. No data are "
        "read.",
        rich_help_panel=_PANEL,
    ),
]
BestAucOption = Annotated[
    float | None,
    typer.Option(
        help="For --want auc: a guess of the AUC without privacy, as from a public table.",
        rich_help_panel=_PANEL,
    ),
]
ResidualOption = Annotated[
    float | None,
    typer.Option(
        help="For --want interval: the assumed standard deviation of labels around the linear model.",
        rich_help_panel=_PANEL,
    ),
]
_ALWAYS = frozenset({"schema", "records", "epsilon", "delta", "model", "as_json", "want"})
_TAKES = {
    "auc": _ALWAYS | {"prevalence", "best_auc", "classes"},
    "interval": _ALWAYS | {"loss", "label_range", "residual_sd"},
}
_NEEDS = {"auc": ("prevalence", "best_auc"), "interval": ("label_range", "residual_sd")}
_ONLY_WANTED = ("best_auc", "residual_sd")


class Want(NamedTuple):
    """The request of ``--want``: "auc" or "interval", for one coefficient or all, and the wanted value."""

    kind: str
    coefficient: str | None
    value: float | None

    @classmethod
    def parse(cls, text: str) -> Want:
        """Read auc, auc=VALUE, interval, interval=VALUE or interval:COEFFICIENT=VALUE.

        Raises:
            InvalidInputError: anything else.
        """
        left, given, right = text.rpartition("=")
        value = _number(right) if given else None
        if value is None and text.startswith("interval:"):  # names of levels have a "=", too
            left, given = text, ""
        kind, colon, name = (left if given else text).partition(":")
        misnamed = bool(colon) and (kind != "interval" or not name)
        if kind not in _TAKES or (given and value is None) or misnamed:
            raise InvalidInputError(
                "--want is auc, interval, auc=VALUE, interval=VALUE or interval:COEFFICIENT=VALUE; "
                f"got {text!r}"
            )
        return cls(kind, name or None, value)


def check_not_wanted(context: typer.Context) -> None:
    """Raise InvalidInputError if options of --want are given without it."""
    if wrong := [_flag(name) for name in given_options(context) if name in _ONLY_WANTED]:
        raise InvalidInputError(f"{', '.join(wrong)}: only with --want")


def show_wanted(context: typer.Context) -> None:
    """Print what to expect, and the records or epsilon that a wanted value needs.

    Raises:
        InvalidInputError: options that are missing, or of another quantity; a value out of reach.
    """
    want, options = Want.parse(context.params["want"]), context.params
    if wrong := [_flag(name) for name in given_options(context) if name not in _TAKES[want.kind]]:
        raise InvalidInputError(
            f"--want {want.kind} forecasts a fit with default options: leave out {', '.join(wrong)}"
        )
    if missing := [_flag(name) for name in _NEEDS[want.kind] if options[name] is None]:
        raise InvalidInputError(f"--want {want.kind} needs {' and '.join(missing)}: guesses, not data")
    lacking = [_flag(name) for name in ("records", "epsilon") if options[name] is None]
    if len(lacking) > (want.value is not None):
        words = "one of --records and --epsilon" if want.value is not None else " and ".join(lacking)
        raise InvalidInputError(f"--want {context.params['want']} needs {words}")
    report, lines = (_auc if want.kind == "auc" else _interval)(want, options)
    print_report(tell, report, lines, options["as_json"])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _flag(name: str) -> str:
    return "--json" if name == "as_json" else f"--{name.replace('_', '-')}"


def _auc(want: Want, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    expected = _expected_auc(options)
    n, epsilon, curve = options["records"], options["epsilon"], expected.curve
    bands: dict[str, Band] = {}
    lines: list[str] = []
    if n is not None and epsilon is not None:
        bands["auc"] = found = expected.at(n, epsilon)
        of = f"AUC of a {expected.model} model of {n:,} records at epsilon = {epsilon:g}"
        lines.append(f"{of}: {_band(found, '.3f')}")
    if want.value is not None and epsilon is not None:
        bands["records"] = found = expected.records(want.value, epsilon)
        lines.append(f"records for AUC {want.value:g} at epsilon = {epsilon:g}: {_band(found)}")
    if want.value is not None and n is not None:
        bands["epsilon"] = found = expected.epsilon(want.value, n)
        lines.append(f"epsilon for AUC {want.value:g} of {n:,} records: {_band(found)}")
    measured = {name: getattr(curve, name) for name in ("tables", "fits", "covered", "error", "large_error")}
    report = {"model": expected.model, **{name: _plain(band) for name, band in bands.items()}}
    return {**report, "measured": measured}, [*lines, *_caveats(curve, n, epsilon, bands)]


def _expected_auc(options: Mapping[str, Any]) -> ExpectedAuc:
    classes, positive = split_classes(options["classes"]), _number(options["prevalence"])
    if classes is not None and len(classes) != 2:
        raise InvalidInputError(f"--want auc is for two classes; got {len(classes)}")
    if positive is None:
        raise InvalidInputError("--prevalence must be one number in (0, 1) here")
    schema, delta = Schema.load(options["schema"]), parse_delta(options["delta"])
    model = options["model"] or "card"
    return ExpectedAuc(schema, positive, options["best_auc"], model=model, delta=delta)


def _caveats(curve: AucCurve, n: int | None, epsilon: float | None, bands: Mapping[str, Band]) -> list[str]:
    """Return how well bands held when measured, and which numbers lie beyond what was measured."""
    limits = (("records", n, curve.records), ("epsilon", epsilon, curve.epsilons))
    beyond = [
        f"{name} from {low:,g} to {high:,g}"
        for name, given, (low, high) in limits
        if any(not low <= x <= high for x in (given, *bands.get(name, ())) if x is not None)
    ]
    found = (
        f"a forecast, not a promise: such bands held {curve.covered:.0%} of {curve.fits} measured fits, each "
        f"of {curve.tables} tables left out in turn; their median was off by {curve.error:.2f} AUC on "
        f"average, by {curve.large_error:.2f} at the 90th percentile"
    )
    return [found, *([f"beyond what was measured: {' and '.join(beyond)}"] if beyond else [])]


def _band(band: Band, digits: str = "") -> str:
    """Format a band, by default in two digits: it has no more."""
    low, middle, high = (format(x, digits) if digits else _two_digits(x) for x in band)
    if math.isinf(band.low):
        return "more than can be planned"
    ends = f"{low} or more" if math.isinf(band.high) else f"{low} to {high}"
    return ends if math.isinf(band.middle) else f"{ends}, median {middle}"


def _two_digits(x: float) -> str:
    return f"{float(f'{x:.2g}'):,.12g}"


def _plain(band: Band) -> dict[str, float | None]:
    """Return numbers for JSON: None for infinite ones."""
    return {key: value if math.isfinite(value) else None for key, value in band._asdict().items()}


def _interval(want: Want, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if options["model"] not in (None, "linear") or options["loss"] not in (None, "squared"):
        raise InvalidInputError("--want interval is of linear regression: --model linear --loss squared")
    label_range = checked_label_range(options["label_range"], "squared")
    assert label_range is not None
    schema, delta = Schema.load(options["schema"]), parse_delta(options["delta"])
    expected = ExpectedIntervals(schema, label_range, options["residual_sd"], delta=delta)
    n, epsilon, name = options["records"], options["epsilon"], want.coefficient
    report, lines = _widths(expected, want, n, epsilon)
    if want.value is not None:
        of = f"a width of {want.value:g} of " + (f"{name}" if name is not None else "every coefficient")
        if epsilon is not None:
            least, why = _or_reason(expected.records, want.value, epsilon, name, alone=n is None)
            report["records"] = least
            lines.append(f"records for {of} at epsilon = {epsilon:g}: {why or format(least, ',')}")
        if n is not None:
            least, why = _or_reason(expected.epsilon, want.value, n, name, alone=epsilon is None)
            report["epsilon"] = least
            lines.append(f"epsilon for {of} of {n:,} records: {why or format(least, '.4g')}")
    lines.append(
        "assumed: independent columns whose levels, or numbers over their range, are equally frequent, and "
        f"labels of standard deviation {options['residual_sd']:g} that depend on none of them. Columns that "
        "are correlated or bunched have wider intervals"
    )
    return report, lines


def _widths(
    expected: ExpectedIntervals, want: Want, n: int | None, epsilon: float | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the widths to expect, if both numbers are given; a reason against them if a value is wanted."""
    if n is None or epsilon is None:
        return {}, []
    if want.coefficient is not None:
        expected.check_name(want.coefficient)
    widths, reason = _or_reason(expected.widths, n, epsilon, alone=want.value is None)
    if widths is None:
        return {"widths": None}, [reason]
    title = (
        f"widths of {expected.confidence:.0%} intervals, per unit, {n:,} records at epsilon = {epsilon:g}:"
    )
    lines = [
        f"  {name}: {one.width:.4g} (without privacy {one.not_private:.4g}; noise {one.noise_share:.0%})"
        for name, one in widths.items()
        if want.coefficient in (None, name)
    ]
    return {"widths": {name: one._asdict() for name, one in widths.items()}}, [title, *lines]


def _or_reason(compute: Callable[..., Any], *given: Any, alone: bool) -> tuple[Any, str]:
    """Return a number, or None and why there is none; with ``alone`` raise the error instead."""
    try:
        return compute(*given), ""
    except InvalidInputError as error:
        if alone:
            raise
        return None, str(error)

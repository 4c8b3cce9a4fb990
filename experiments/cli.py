"""The command line: ``privopt fit | calibrate | predict | solvers | audit | budget | demo``."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from privopt.experiments.audit_command import audit
from privopt.experiments.budget_command import app as budget
from privopt.experiments.first_order_command import (
    LOSSES,
    LinearOptions,
    calibrate_linear,
    fit_linear,
    is_linear,
    predict_linear,
    save_linear,
    show_linear,
)
from privopt.mechanisms.calibration import calibrate_opdisc, calibrate_rspm, calibrate_rspm_laplace
from privopt.mechanisms.classifier import (
    PrivateHalfspaceClassifier,
    check_writable,
    write_atomically,
)
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.mechanism import check_calibration
from privopt.mechanisms.registry import MECHANISMS
from privopt.mechanisms.risk_registry import RISK_MECHANISMS
from privopt.oracles.interface import Limits, Progress
from privopt.oracles.select import inventory
from privopt.problems.adult import ADULT23_CLASSES, ADULT_TARGET, adult23_frame, adult23_schema
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.schema import Schema, read_table

app = typer.Typer(
    help="Private optimization by reduction to solvers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals hold records
)
say = Console(stderr=True)
tell = Console(soft_wrap=True)

# What a report says about itself: everything else in it is covered by epsilon and delta.
NOT_PRIVATE = ["oracle", "train_accuracy", "certificate", "seconds"]

EpsilonOption = Annotated[float, typer.Option("--epsilon", help="Privacy budget, > 0.")]
LossOption = Annotated[str | None, typer.Option(help=f"Of a linear model: {LOSSES}.")]
SetOption = Annotated[
    str | None, typer.Option("--set", help="Of weights: l1:SIZE, l2:SIZE, linf:SIZE, simplex.")
]
PenaltyOption = Annotated[
    str | None, typer.Option("--regularizer", help="none, l1:STRENGTH, l2:STRENGTH, or both with a +.")
]
NormOption = Annotated[float | None, typer.Option("--data-norm", help="l2 bound that rows are clipped to.")]
LabelOption = Annotated[float | None, typer.Option(help="Bound that |label| is clipped to, in regression.")]
StepsOption = Annotated[int | None, typer.Option(help="Noisy steps; by default the theory's.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the full report here.")]


@app.command()
def fit(
    data: Annotated[str, typer.Option(help="adult23 or adult23:SEED (shipped), or a CSV or Parquet file.")],
    epsilon: EpsilonOption,
    target: Annotated[str | None, typer.Option(help="Label column.")] = None,
    schema: Annotated[Path | None, typer.Option(help="TOML or JSON schema with the public facts.")] = None,
    classes: Annotated[str | None, typer.Option(help="NEGATIVE,POSITIVE labels.")] = None,
    mechanism: Annotated[
        str, typer.Option(help="auto, " + ", ".join((*MECHANISMS, *RISK_MECHANISMS)))
    ] = "auto",
    oracle: Annotated[str, typer.Option(help="auto, or a name from `privopt solvers`.")] = "auto",
    delta: Annotated[str, typer.Option(help="A number in (0, 1), or auto for 1/n^2.")] = "auto",
    lattice: Annotated[str | None, typer.Option(help="LOW:HIGH or LOW:HIGH:RADIUS.")] = None,
    calibration: Annotated[str, typer.Option(help="sound, or printed (refuted).")] = "sound",
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the solve.")] = None,
    insecure_seed: Annotated[int | None, typer.Option(help="Reproducible noise. Voids privacy.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the model here, for `privopt predict`.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Book the spend here first; refuse to overdraw.")
    ] = None,
    json_file: JsonOption = None,
    loss: LossOption = None,
    convex_set: SetOption = None,
    regularizer: PenaltyOption = None,
    data_norm: NormOption = None,
    label_bound: LabelOption = None,
    steps: StepsOption = None,
) -> None:
    """Learn an integer scorecard or, with a first-order mechanism or a --loss, a linear model; print it."""
    check_writable(save, "--save")
    check_writable(json_file, "--json")
    options = LinearOptions(loss, convex_set, regularizer, data_norm, label_bound, steps)
    scorecard_only = {
        "--oracle": oracle != "auto",
        "--lattice": lattice is not None,
        "--calibration": calibration != "sound",
        "--time-limit": time_limit is not None,
    }
    linear = is_linear(mechanism, options, scorecard_only)
    table, target, facts, labels = _load(data, target, schema, classes)
    if linear:
        fitted, account, used = fit_linear(
            table,
            target,
            facts,
            labels,
            options,
            epsilon=epsilon,
            delta=_delta(delta),
            mechanism=mechanism,
            ledger=ledger,
            insecure_seed=insecure_seed,
        )
        show_linear(fitted, account, tell)
        if save is not None:
            save_linear(fitted, used, save)
        if json_file is not None:
            write_atomically(json_file, json.dumps(account, indent=2) + "\n")
        return
    began = time.monotonic()
    with _stoppable(time_limit) as limits:
        model = PrivateHalfspaceClassifier(
            epsilon,
            delta=_delta(delta),
            mechanism=mechanism,
            oracle=oracle,
            schema=facts,
            classes=labels,
            lattice=parse_lattice(lattice),
            calibration=calibration,
            limits=limits,
            ledger=ledger,
            insecure_seed=insecure_seed,
        ).fit(table.drop(columns=[target]), table[target])
    report = fit_report(model, table, target, time.monotonic() - began)
    _show_fit(model, report)  # first: what was paid for must not be lost to a full disk
    if save is not None:
        model.save(save)
    if json_file is not None:
        write_atomically(json_file, json.dumps(report, indent=2) + "\n")


@app.command(name="calibrate")
def calibrate_command(
    mechanism: Annotated[str, typer.Argument(help="opdisc, rspm, rspm-laplace, or a first-order one.")],
    epsilon: EpsilonOption,
    delta: Annotated[float, typer.Option(help="In (0, 1); not used by rspm-laplace.")] = 0.0,
    dimension: Annotated[int | None, typer.Option(help="Number of features d.")] = None,
    radius: Annotated[float | None, typer.Option(help="Bound D on |w|; default sqrt(d).")] = None,
    separation: Annotated[float | None, typer.Option(help="tau: distance of points; default 1.")] = None,
    separators: Annotated[int | None, typer.Option(help="Size m of the separator set; default 2d.")] = None,
    calibration: Annotated[str, typer.Option(help="sound, or printed (refuted).")] = "sound",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    records: Annotated[int | None, typer.Option(help="Number of records n.")] = None,
    loss: LossOption = None,
    convex_set: SetOption = None,
    regularizer: PenaltyOption = None,
    data_norm: NormOption = None,
    label_bound: LabelOption = None,
    steps: StepsOption = None,
) -> None:
    """Show the noise that a guarantee costs, before any data."""
    if mechanism in RISK_MECHANISMS:
        options = LinearOptions(loss, convex_set, regularizer, data_norm, label_bound, steps)
        report = calibrate_linear(mechanism, epsilon, delta, dimension, records, options)
    else:
        report = calibration_report(
            mechanism, epsilon, delta, dimension, radius, separation, separators, calibration
        )
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for key, value in report.items():
            tell.print(f"{key}: {value}", highlight=False)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file written by `privopt fit --save`.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet with the schema's columns.")],
    output: Annotated[Path | None, typer.Option(help="Write a CSV here instead of printing it.")] = None,
) -> None:
    """Score records with a saved model: columns `score` and `prediction`."""
    check_writable(output, "--output")
    table = read_table(data)
    scored = predict_linear(model, table)
    if scored is None:
        fitted = PrivateHalfspaceClassifier.load(model)
        scored = pd.DataFrame({"score": fitted.decision_function(table), "prediction": fitted.predict(table)})
    if output is None:
        sys.stdout.write(scored.to_csv(index=False))
    else:
        write_atomically(output, scored.to_csv(index=False))


@app.command()
def solvers() -> None:
    """List the oracles: what is installed, what each can do."""
    entries = inventory()
    table = Table("oracle", "kind", "installed", "can do")
    for entry in entries:
        installed = "yes" if entry.installed else "no"
        table.add_row(entry.name, entry.kind, installed, entry.summary.replace("``", ""))
    tell.print(table)
    for entry in entries:
        if not entry.installed:
            tell.print(f"{entry.name}: {entry.remedy}", highlight=False)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the table, the picture and the report.")] = Path(
        "demo-output"
    ),
    draws: Annotated[int, typer.Option(min=1, help="Draws per mechanism and epsilon.")] = 10,
) -> None:
    """The main job on the real Adult data: a table and a picture of accuracy against epsilon."""
    from privopt.experiments.demo import run_demo  # pictures need matplotlib, which is slow to import

    run_demo(output, draws, tell)


app.add_typer(budget, name="budget")
app.command()(audit)


def fit_report(
    model: PrivateHalfspaceClassifier, table: pd.DataFrame, target: str, seconds: float
) -> dict[str, Any]:
    """The machine-readable account of a fit. ``not_private`` names what the guarantee does not cover."""
    spend, proof = model.spend_, model.certificate_
    correct = model.predict(table.drop(columns=[target])) == table[target].to_numpy()
    certificate: dict[str, Any] = {"status": "EXACT_DRAW", "value": None, "bound": None, "gap": None}
    if proof is not None:
        certificate = {
            "status": proof.status.name,
            "value": proof.value,
            "bound": proof.bound,
            "gap": proof.gap,
        }
    return {
        **spend.to_dict(),
        **model.release_.noise,
        "mechanism": model.mechanism_,
        "mechanism_reason": model.mechanism_reason_,
        "oracle": model.release_.oracle,
        "features": model.schema_.feature_names,
        "weights": model.coef_[0].tolist(),
        "not_private": NOT_PRIVATE,
        "train_accuracy": float(np.mean(correct)),
        "certificate": certificate,
        "seconds": seconds,
    }


def calibration_report(
    mechanism: str,
    epsilon: float,
    delta: float,
    dimension: int | None,
    radius: float | None,
    separation: float | None,
    separators: int | None,
    calibration: str,
) -> dict[str, Any]:
    """Noise and spend from public facts alone. See ``privopt.mechanisms.calibration`` for the proofs."""
    given = {
        "--radius": radius,
        "--separation": separation,
        "--separators": separators,
        "--delta": delta or None,
    }
    unused = {
        "opdisc": {"--separators"},
        "rspm": {"--radius", "--separation"},
        "rspm-laplace": {"--radius", "--separation", "--delta"},
    }
    if ignored := [o for o in sorted(unused.get(mechanism, ())) if given[o] is not None]:
        raise InvalidInputError(
            f"calibrate {mechanism} does not depend on {', '.join(ignored)}; leave it out"
        )
    if dimension is not None and dimension < 1:
        raise InvalidInputError(f"--dimension must be >= 1, got {dimension}")
    if mechanism == "opdisc":
        if dimension is None:
            raise InvalidInputError("calibrate opdisc needs --dimension")
        squared_radius = float(dimension) if radius is None else radius**2
        noise = calibrate_opdisc(
            epsilon,
            delta,
            squared_radius=squared_radius,
            dof=dimension + 1,
            separation=1.0 if separation is None else separation,
            calibration=calibration,
        )
        return {"sigma": noise.scale, **noise.spend.to_dict()}
    if mechanism not in ("rspm", "rspm-laplace"):
        raise UnknownMechanismError(
            f"calibrate knows opdisc, rspm, rspm-laplace, {', '.join(RISK_MECHANISMS)}; not {mechanism!r}"
        )
    if dimension is None and separators is None:
        raise InvalidInputError(f"calibrate {mechanism} needs --dimension or --separators")
    # Without a separator count: the two separators per coordinate of halfspaces over {-1, 0, 1}^d.
    ternary = 0 if separators is not None or dimension is None else dimension
    binary = separators or 0
    if mechanism == "rspm":
        noise = calibrate_rspm(epsilon, delta, binary=binary, ternary=ternary, calibration=calibration)
        return {"sigma": noise.scale, **noise.spend.to_dict()}
    check_calibration(calibration, mechanism, ("sound",))
    noise = calibrate_rspm_laplace(epsilon, separators=binary + 2 * ternary)
    return {"scale": noise.scale, **noise.spend.to_dict()}


def parse_lattice(text: str | None) -> tuple[int, int] | tuple[int, int, float] | None:
    """LOW:HIGH[:RADIUS], or None for the mechanism's own lattice."""
    if text is None:
        return None
    try:
        low, high, *radius = text.split(":")
        bounds = (int(low), int(high))
        return (*bounds, float(radius[0])) if len(radius) == 1 else _no_more(bounds, radius)
    except ValueError as error:
        raise InvalidInputError(f"--lattice wants LOW:HIGH or LOW:HIGH:RADIUS, got {text!r}") from error


def _no_more(bounds: tuple[int, int], rest: list[str]) -> tuple[int, int]:
    if rest:
        raise ValueError("too many parts")
    return bounds


def _load(
    data: str, target: str | None, schema: Path | None, classes: str | None
) -> tuple[pd.DataFrame, str, Schema | None, tuple[str, ...] | None]:
    """The table, its label column, the public facts and the public labels, as declared."""
    facts = None if schema is None else Schema.load(schema)
    labels = None if classes is None else tuple(classes.split(","))
    if data == "adult23" or data.startswith("adult23:"):
        table = adult23_frame(_seed(data.partition(":")[2] or "0"))
        return table, target or ADULT_TARGET, facts or adult23_schema(), labels or ADULT23_CLASSES
    table = read_table(Path(data))
    if target is None:
        raise InvalidInputError("--target is needed: the name of the label column")
    if target not in table.columns:
        raise InvalidInputError(f"no column {target!r}; the file has {', '.join(map(str, table.columns))}")
    if labels is not None:
        # The command line holds strings: compare labels as they are written in the file.
        table[target] = table[target].astype(str)
    return table, target, facts, labels


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInputError(f"adult23:SEED wants a seed >= 0 of the public subsample, got {text!r}")
    return int(text)


def _delta(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"--delta wants a number in (0, 1) or auto, got {text!r}") from error


@contextmanager
def _stoppable(seconds: float | None) -> Iterator[Limits]:
    """Limits with a live progress line; the first Ctrl-C stops the solve, the second the program."""
    cancelled = threading.Event()
    told = threading.Event()

    def is_cancelled() -> bool:
        if not told.is_set():  # the first question comes when the solve starts
            told.set()
            say.print("solving; Ctrl-C stops the solve and releases nothing")
        return cancelled.is_set()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt
        cancelled.set()

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        with Bar(*columns, console=say, transient=True) as bar:
            line = bar.add_task("planning")

            def on_progress(now: Progress) -> None:
                known = f"best {now.incumbent:.6g}  bound {now.bound:.6g}  gap {now.gap:.3g}  "
                text = known if np.isfinite(now.gap) else ""
                bar.update(line, description=f"{text}{now.nodes} nodes")

            yield Limits(seconds=seconds, on_progress=on_progress, cancelled=is_cancelled)
    finally:
        signal.signal(signal.SIGINT, before)


def _show_fit(model: PrivateHalfspaceClassifier, report: dict[str, Any]) -> None:
    title = f"{model.classes_[1]} when the points sum to more than 0, else {model.classes_[0]}"
    card = Table(*model.scorecard_.columns, title=escape(title))
    for row in model.scorecard_.itertuples(index=False):
        card.add_row(*map(str, row))
    tell.print(card)
    tell.print(f"spend: {model.spend_}")
    tell.print(f"mechanism: {model.mechanism_} ({model.mechanism_reason_})")
    tell.print(f"noise: {dict(model.release_.noise)}")
    tell.print(f"certificate (not private): {model.certificate_ or 'an exact draw needs none'}")
    tell.print(f"training accuracy (not private): {report['train_accuracy']:.4f}")


def main() -> None:
    """Entry point: errors that privopt raises on purpose become one line and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: say.print(
        f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True
    )
    try:
        app()
    except PrivOptError as error:
        say.print(f"[red]{type(error).__name__}:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        say.print(f"[red]{escape(str(error.filename))}:[/] {error.strerror}", soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()

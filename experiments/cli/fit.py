"""``privopt fit``: a table and public facts in, a private scorecard or linear model out."""

from __future__ import annotations

import csv
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from privopt.experiments.cli.errors import InterruptedRunError
from privopt.experiments.cli.files import check_files
from privopt.experiments.cli.linear import LOSSES, LinearOptions, fit_linear, is_linear, show_linear
from privopt.experiments.cli.risks import risk_rows, risk_table
from privopt.experiments.cli.tables import Labelled, TableOption, read_labelled
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.registry import MECHANISMS
from privopt.mechanisms.discrete.rspm import LaplaceRSPM
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.heavy_tails.registry import ROBUST_FITS
from privopt.mechanisms.nonconvex.registry import RISK_MECHANISMS
from privopt.mechanisms.scorecards.effort import MOST_WORK
from privopt.mechanisms.scorecards.registry import card_mechanisms
from privopt.oracles.limits import Limits, Progress
from privopt.problems.errors import InvalidInputError, PrivOptError, did_you_mean
from privopt.problems.files import write_atomically
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

app = typer.Typer()
say = Console(stderr=True, emoji=False)
tell = Console(soft_wrap=True, emoji=False)

# What a report says about itself: everything else in it is covered by epsilon and delta.
NOT_PRIVATE = [
    "oracle", "train_accuracy", "larger_class", "said_to_be_positive", "certificate", "seconds",
]  # fmt: skip

_DATA, _PRIVACY, _PROBLEM, _SOLVER, _OUTPUT, _LINEAR, _LIMITS = (
    "Data (public facts are declared, not read off)",
    "Privacy",
    "Problem: integer scorecards",
    "Solver: integer scorecards",
    "Output",
    "Problem: linear models",
    "Limits",
)
_PURE = (ExponentialMechanism, LaplaceRSPM)  # the first one's subclass is permute-and-flip

EpsilonOption = Annotated[
    float,
    typer.Option("--epsilon", help="Privacy budget of this fit, > 0; replace-one.", rich_help_panel=_PRIVACY),
]
LossOption = Annotated[
    str | None, typer.Option(help=f"{LOSSES}. Default: logistic.", rich_help_panel=_LINEAR)
]
SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        help="Where weights lie: l1:SIZE, l2:SIZE, linf:SIZE or simplex. Default: what the mechanism needs.",
        rich_help_panel=_LINEAR,
    ),
]
PenaltyOption = Annotated[
    str | None,
    typer.Option(
        "--regularizer",
        help="none, l1:STRENGTH, l2:STRENGTH, or both with a +. Default: none.",
        rich_help_panel=_LINEAR,
    ),
]
NormOption = Annotated[
    float | None,
    typer.Option(
        "--data-norm",
        help="Norm that rows are clipped to, > 0. Linear models only: together with --loss, or the name of "
        "one of their mechanisms. Default: what the schema implies; calibrate: 1.",
        rich_help_panel=_LINEAR,
    ),
]
NormKindOption = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="l2 or linf: the norm that --data-norm bounds. Default: l2; of dp-fw-l1 linf.",
        rich_help_panel=_LINEAR,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="LOW:HIGH that labels are clipped to, in their unit, as in --label-range=-1:1: of regression "
        "losses. Without it: read off, a leak; calibrate: -1:1.",
        rich_help_panel=_LINEAR,
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        help="Noisy steps, >= 1. Default: the theory's, from n, d and epsilon.", rich_help_panel=_LINEAR
    ),
]
RobustOption = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="Records of unknown size, heavy tails: nothing about magnitudes is declared, units are found "
        "privately. --loss logistic or squared.",
        rich_help_panel=_LINEAR,
    ),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the full report here.", rich_help_panel=_OUTPUT)
]

FIT_EXAMPLES = """Examples:

privopt fit --data adult23 --epsilon 1

privopt fit --data patients.csv --target state --classes well,ill --schema s.toml --epsilon 1 --save m.json

privopt fit --data bills.csv --target cost --epsilon 1 --robust --loss squared --save m.json

privopt fit --data adult23 --epsilon 0.5 --mechanism exponential --lattice -4:4:4.8

privopt fit --data adult23 --epsilon 1 --mechanism dp-gd --loss logistic --json report.json"""


@app.command(epilog=FIT_EXAMPLES)
def fit(
    data: Annotated[
        str,
        typer.Option(
            help="A .csv, .csv.gz or .parquet file with a header; adult23, adult23:SEED (shipped); or what "
            "an engine counts: .parquet files by a pattern, FOLDER/*.parquet, or a database by its URL.",
            rich_help_panel=_DATA,
        ),
    ],
    epsilon: EpsilonOption,
    target: Annotated[
        str | None, typer.Option(help="Label column. Needed for files.", rich_help_panel=_DATA)
    ] = None,
    table: TableOption = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON file that declares columns. Without it they are read off the data, a leak.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="NEGATIVE,POSITIVE labels as the file writes them, one with a comma in double quotes; "
            "linear models take more than two. Without it: read off, a leak.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    delta: Annotated[
        str,
        typer.Option(
            help="A number in (0, 1), or auto for 1/n^2. Pure mechanisms have none.", rich_help_panel=_PRIVACY
        ),
    ] = "auto",
    mechanism: Annotated[
        str,
        typer.Option(
            help=f"Scorecards: auto, {', '.join(card_mechanisms())}. "
            f"Linear models: auto with a --loss, {', '.join(RISK_MECHANISMS)}. "
            f"With --robust: auto, {', '.join(ROBUST_FITS)}.",
            rich_help_panel=_PRIVACY,
        ),
    ] = "auto",
    calibration: Annotated[
        str,
        typer.Option(
            help="sound, or printed: the source paper's of opdisc and rspm, refuted.",
            rich_help_panel=_PRIVACY,
        ),
    ] = "sound",
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Book the spend in this ledger first, a path or URL, with #BUDGET if it holds several; "
            "refuse to overdraw.",
            rich_help_panel=_PRIVACY,
        ),
    ] = None,
    insecure_seed: Annotated[
        int | None, typer.Option(help="Reproducible noise. Voids privacy.", rich_help_panel=_PRIVACY)
    ] = None,
    lattice: Annotated[
        str | None,
        typer.Option(
            help="Weights: integers LOW:HIGH, or LOW:HIGH:RADIUS with norm at most RADIUS. "
            "Default: -1:1; opdisc: all of norm at most sqrt(features).",
            rich_help_panel=_PROBLEM,
        ),
    ] = None,
    max_columns: Annotated[
        int | None,
        typer.Option(
            help="At most so many columns get points: those that tell records apart most. Free; of seeded, "
            "which auto then is.",
            rich_help_panel=_PROBLEM,
        ),
    ] = None,
    max_work: Annotated[
        float,
        typer.Option(
            help="Of auto: the most steps of an exact draw, which follow from public facts; 4e8 take about a "
            "second.",
            rich_help_panel=_LIMITS,
        ),
    ] = MOST_WORK,
    risk_share: Annotated[
        float,
        typer.Option(
            help="Share of epsilon, in [0, 1), for a table from score to risk: `privopt predict --proba`. "
            "Try 0.2.",
            rich_help_panel=_PROBLEM,
        ),
    ] = 0.0,
    oracle: Annotated[
        str, typer.Option(help="auto, or a name from `privopt solvers`.", rich_help_panel=_SOLVER)
    ] = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the minimisation, draw or steps themselves; reading, encoding, compiling and "
            "laying out tables come before. At the limit nothing is released, and a ledger's booking stays. "
            "Default: none.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="What errors cost by class, as in well=1,ill=5; or balanced, by the inverse of the shares.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    prevalence: Annotated[
        str | None,
        typer.Option(
            help="For balanced: the share of the positive class, a public number; of more classes all, with "
            "commas. Without it: released first, at a twentieth of epsilon.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    loss: LossOption = None,
    convex_set: SetOption = None,
    regularizer: PenaltyOption = None,
    data_norm: NormOption = None,
    norm: NormKindOption = None,
    label_range: LabelOption = None,
    steps: StepsOption = None,
    robust: RobustOption = False,
    save: Annotated[
        Path | None,
        typer.Option(help="Write the model here, JSON for `privopt predict`.", rich_help_panel=_OUTPUT),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Learn an integer scorecard or, with a first-order mechanism or a --loss, a linear model; print it."""
    check_mechanism(mechanism, ("auto", *card_mechanisms(), *RISK_MECHANISMS, *ROBUST_FITS))
    check_files({"--save": save, "--json": json_file})
    options = LinearOptions(
        loss, convex_set, regularizer, data_norm, label_range, steps, norm, robust or None
    )
    scorecard_only = {
        "--oracle": oracle != "auto",
        "--lattice": lattice is not None,
        "--calibration": calibration != "sound",
        "--max-columns": max_columns is not None,
        "--max-work": max_work != MOST_WORK,
        "--risk-share": risk_share != 0,
    }
    linear = is_linear(mechanism, options, scorecard_only)
    if delta != "auto" and mechanism in MECHANISMS and issubclass(MECHANISMS[mechanism], _PURE):
        raise InvalidInputError(f"--delta: {mechanism} is pure, and has none; leave it out")
    weights, shares = parse_weights(class_weight), parse_prevalence(prevalence)
    with _accounted(ledger) as book:
        facts = None if schema is None else Schema.load(schema)
        records = read_labelled(data, target, facts, split_classes(classes), table)
        if linear:
            with _stoppable(time_limit) as limits:
                fitted, account = fit_linear(
                    records,
                    options,
                    epsilon=epsilon,
                    delta=parse_delta(delta),
                    mechanism=mechanism,
                    class_weight=weights,
                    prevalence=shares,
                    limits=limits,
                    ledger=book,
                    insecure_seed=insecure_seed,
                )
        else:
            began = time.monotonic()
            records = records.counted()
            with _stoppable(time_limit) as limits:
                model = PrivateHalfspaceClassifier(
                    epsilon,
                    delta=parse_delta(delta),
                    mechanism=mechanism,
                    oracle=oracle,
                    schema=records.schema,
                    classes=records.classes,
                    lattice=parse_lattice(lattice),
                    calibration=calibration,
                    class_weight=weights,
                    prevalence=shares,
                    max_columns=max_columns,
                    max_work=max_work,
                    risk_share=risk_share,
                    limits=limits,
                    ledger=book,
                    insecure_seed=insecure_seed,
                ).fit(records.X, records.y)
                model.target_ = model.target_ or target or ""  # an engine counts: no column of labels comes
    # Shown before files are written: what was paid for must not be lost to a full disk.
    if linear:
        show_linear(fitted, account, tell)
    else:
        account = fit_report(model, records, time.monotonic() - began)
        _show_fit(model, account)
    with _released():
        if save is not None:
            (fitted if linear else model).save(save)
        if json_file is not None:
            write_atomically(json_file, json.dumps(account, indent=2) + "\n")


def fit_report(model: PrivateHalfspaceClassifier, records: Labelled, seconds: float) -> dict[str, Any]:
    """The machine-readable account of a fit. ``not_private`` names what the guarantee does not cover."""
    spend, proof = model.spend_, model.certificate_
    said, truth = model.predict(records.X), records.labels
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
        "rule": model.rule_,
        "scorecard": model.scorecard_.to_dict("records"),
        "risks": None if model.risk_ is None else risk_rows(model.risk_),
        "not_private": NOT_PRIVATE,
        "train_accuracy": records.share(said == truth),
        "larger_class": max(records.share(truth == label) for label in model.classes_.tolist()),
        "said_to_be_positive": records.share(said == model.classes_[1]),
        "certificate": certificate,
        "seconds": seconds,
    }


def parse_weights(text: str | None) -> dict[Any, float] | str | None:
    """LABEL=WEIGHT with commas, or balanced, or None."""
    if text is None or text == "balanced":
        return text
    try:
        pairs = [part.rpartition("=") for part in split_labels("--class-weight", text)]
        if not all(label and equals for label, equals, _ in pairs):
            raise ValueError("no label")
        return {label: float(weight) for label, _, weight in pairs}
    except ValueError as error:
        raise InvalidInputError(
            f"--class-weight wants balanced, or LABEL=WEIGHT with commas, as in well=1,ill=5; got {text!r}"
        ) from error


def parse_prevalence(text: str | None) -> float | list[float] | None:
    """A share, or shares with commas, or None."""
    if text is None:
        return None
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidInputError(f"--prevalence wants a share such as 0.05, got {text!r}") from error
    return shares[0] if len(shares) == 1 else shares


def parse_lattice(text: str | None) -> tuple[int, int] | tuple[int, int, float] | None:
    """LOW:HIGH[:RADIUS], or None for the mechanism's own lattice."""
    if text is None:
        return None
    try:
        low, high, *radius = text.split(":")
        bounds = (int(low), int(high))
        lattice = (*bounds, float(radius[0])) if len(radius) == 1 else _no_more(bounds, radius)
    except ValueError as error:
        raise InvalidInputError(
            f"--lattice wants LOW:HIGH or LOW:HIGH:RADIUS, two integers and a number, as in "
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
    """The labels of --classes, read as a line of a CSV file: a label with a comma stands in double quotes.

    Raises:
        InvalidInputError: a quote that is not closed.
    """
    return None if text is None else tuple(split_labels("--classes", text))


def split_labels(option: str, text: str) -> list[str]:
    """The cells of a line of CSV; blanks after a comma belong to none."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise InvalidInputError(
            f"{option}: a double quote opens or closes in the wrong place; a label with a comma goes "
            f"""into double quotes, the whole into single ones, as in {option} '"ill, in bed",well'"""
        ) from None


def check_mechanism(name: str, known: tuple[str, ...]) -> None:
    """Raise UnknownMechanismError for a name that is not among ``known``."""
    if name not in known:
        raise UnknownMechanismError(
            f"unknown mechanism {name!r}{did_you_mean(name, known)}; here are {', '.join(known)}"
        )


def open_ledger(address: str) -> Ledger:
    """The ledger at an address; its library is loaded where there is one."""
    from privopt.mechanisms.privacy.ledger import Ledger

    return Ledger(address)


@contextmanager
def _accounted(address: str | None) -> Iterator[Ledger | None]:
    """The ledger, opened before data is read; whatever fails says what has been booked."""
    book = None if address is None else open_ledger(address)
    try:
        yield book
    except (PrivOptError, KeyboardInterrupt) as error:
        if book is not None and not getattr(error, "__notes__", ()):
            error.add_note(f"Nothing was booked in {book}")
        if isinstance(error, KeyboardInterrupt) or _interrupted.is_set():
            stopped = InterruptedRunError("Interrupted: nothing was released")
            for note in getattr(error, "__notes__", ()):
                stopped.add_note(note)
            raise stopped from error
        raise


@contextmanager
def _released() -> Iterator[None]:
    """Say of a file that could not be written that the rest is done."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"{error.filename}: {(error.strerror or 'cannot be written').lower()}. The model above was "
            f"released and is paid for: keep what is printed"
        ) from error


def parse_delta(text: str) -> float | str:
    """A number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"--delta wants a number in (0, 1) or auto, got {text!r}") from error


# Set by the first Ctrl-C during a solve: what fails after that was interrupted.
_interrupted = threading.Event()


class _Steps(BarColumn):
    """A bar where the amount of work is known."""

    def render(self, task: Task) -> Any:
        return "" if task.total is None else super().render(task)


@contextmanager
def _stoppable(seconds: float | None) -> Iterator[Limits]:
    """Limits with a live progress line; the first Ctrl-C stops the solve, the second the program."""
    told = threading.Event()
    _interrupted.clear()

    def is_cancelled() -> bool:
        if not told.is_set():  # the first question comes when the solve starts
            told.set()
            say.print("solving; Ctrl-C stops the solve and releases nothing")
        return _interrupted.is_set()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        _interrupted.set()

    columns = (SpinnerColumn(), _Steps(), TextColumn("{task.description}"), TimeElapsedColumn())
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        with Bar(*columns, console=say, transient=True, disable=not say.is_terminal) as bar:
            line = bar.add_task("planning", total=None)

            def on_progress(now: Progress) -> None:
                bar.update(line, description=_described(now), completed=now.nodes, total=now.total)

            yield Limits(seconds=seconds, on_progress=on_progress, cancelled=is_cancelled)
    finally:
        signal.signal(signal.SIGINT, before)


def _described(now: Progress) -> str:
    """What is shown while a solve runs. Only a number of steps that is fixed in advance tells nothing."""
    if now.total is not None:
        return f"{now.nodes} of {now.total} steps"
    known = f"best {now.incumbent:.6g}  bound {now.bound:.6g}  gap {now.gap:.3g}  "
    return f"{known if np.isfinite(now.gap) else ''}{now.nodes} nodes (progress is not private)"


def _show_fit(model: PrivateHalfspaceClassifier, report: dict[str, Any]) -> None:
    card = Table(*model.scorecard_.columns, title=escape(model.rule_))
    without = []  # a card has few columns, a table may have many
    for name, levels in model.scorecard_.groupby("feature", sort=False):
        if np.any(levels["points"]) or (name, len(levels)) == ("intercept", 1):
            for row in levels.itertuples(index=False):
                card.add_row(*(escape(str(cell)) for cell in row))
        else:
            without.append(str(name))
    tell.print(card)
    if without:
        tell.print(f"no points for {', '.join(without)}", markup=False, highlight=False)
    if model.risk_ is not None:
        tell.print(risk_table(model.risk_, model.card_.names[1]))
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in model.release_.noise.items())
    for line in (
        f"spend: {model.spend_}",
        *([f"budget: {model.spend_.note}"] if model.spend_.note else []),
        f"mechanism: {model.mechanism_} ({model.mechanism_reason_})",
        f"noise: {noise}",
        f"certificate (not private): {model.certificate_ or 'an exact draw needs none'}",
        f"training accuracy (not private): {report['train_accuracy']:.4f}; share of the larger class: "
        f"{report['larger_class']:.4f}",
        *_one_sided(model, report),
    ):
        tell.print(line, markup=False)


def _one_sided(model: PrivateHalfspaceClassifier, report: dict[str, Any]) -> list[str]:
    """What to say of a card that says the same of all records."""
    if 0 < report["said_to_be_positive"] < 1:
        return []
    only = model.classes_[int(report["said_to_be_positive"])]
    return [
        f"note (not private): this card says {only} of every record here. Its scores may still rank them; "
        "weighing the rarer class more (--class-weight balanced) tells them apart"
    ]

"""The command line: ``privopt fit | calibrate | predict | evaluate | solvers | audit | budget | demo``."""

from __future__ import annotations

import json
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.audit import audit
from privopt.experiments.cli.budget import app as budget
from privopt.experiments.cli.evaluate import evaluate
from privopt.experiments.cli.fit import (
    FIT_EXAMPLES,
    EpsilonOption,
    InterruptedRunError,
    LabelOption,
    LossOption,
    NormKindOption,
    NormOption,
    PenaltyOption,
    SetOption,
    StepsOption,
    check_files,
    check_mechanism,
    fit,
)
from privopt.experiments.cli.linear import (
    LinearOptions,
    calibrate_linear,
    calibration_lines,
    is_linear,
)
from privopt.experiments.cli.models import load_model, predictions
from privopt.mechanisms.convex.registry import RISK_MECHANISMS
from privopt.mechanisms.discrete.calibration import calibrate_opdisc, calibrate_rspm, calibrate_rspm_laplace
from privopt.mechanisms.discrete.mechanism import check_calibration
from privopt.mechanisms.discrete.registry import MECHANISMS
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.scorecard import write_atomically
from privopt.oracles.select import inventory
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError, PrivOptError

app = typer.Typer(
    help="Private optimization by reduction to solvers.",
    epilog="Exit codes: 0 done; 1 a claim fell or a budget does not suffice; 2 usage, refused input, or no "
    "certified answer in time; 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals hold records
)
say = Console(stderr=True, emoji=False)
tell = Console(soft_wrap=True, emoji=False)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"privopt {metadata.version('privopt')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """What stands before a command; the docstring of the application is its help."""


app.command(epilog=FIT_EXAMPLES)(fit)


@app.command(name="calibrate")
def calibrate_command(
    mechanism: Annotated[str, typer.Argument(help=", ".join((*MECHANISMS, *RISK_MECHANISMS)))],
    epsilon: EpsilonOption,
    delta: Annotated[
        float | None,
        typer.Option(
            help="In (0, 1): needed by opdisc and rspm; pure mechanisms have none; linear models: 1/n^2.",
            rich_help_panel="Privacy",
        ),
    ] = None,
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
    norm: NormKindOption = None,
    label_range: LabelOption = None,
    steps: StepsOption = None,
) -> None:
    """Show the noise that a guarantee costs, before any data."""
    check_mechanism(mechanism, (*MECHANISMS, *RISK_MECHANISMS))
    options = LinearOptions(loss, convex_set, regularizer, data_norm, label_range, steps, norm)
    scorecard = {
        "--radius": radius is not None,
        "--separation": separation is not None,
        "--separators": separators is not None,
        "--calibration": calibration != "sound",
    }
    if is_linear(mechanism, options, scorecard):
        report = calibrate_linear(mechanism, epsilon, delta or 0.0, dimension, records, options)
    elif records is not None:
        raise InvalidInputError(f"--records belongs to linear models; {mechanism!r} is none of them")
    else:
        report = calibration_report(
            mechanism, epsilon, delta or 0.0, dimension, radius, separation, separators, calibration
        )
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for line in calibration_lines(report):
            tell.print(line, highlight=False, markup=False)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file written by `privopt fit --save`.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet with the schema's columns.")],
    output: Annotated[Path | None, typer.Option(help="Write a CSV here instead of printing it.")] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add a column per class: its probability, by the model.")
    ] = False,
) -> None:
    """Score records with a saved model: columns `score` and `prediction`."""
    check_files({"--output": output})
    scored = predictions(load_model(model), data, proba)
    if output is None:
        sys.stdout.write(scored.to_csv(index=False))
    else:
        write_atomically(output, scored.to_csv(index=False))


_MINIMISERS = "Minimisers, for the mechanisms opdisc, rspm and rspm-laplace"
_SAMPLERS = (
    "Samplers, for the mechanisms exponential and permute-and-flip: the exact law, up to a stated relative "
    "error that is paid for"
)


@app.command()
def solvers() -> None:
    """List the oracles: what is installed, what each is for, what its answers rest on."""
    entries = inventory()
    minimise = Table("oracle", "for", "limits", "certificate", "installed", title=_MINIMISERS)
    draw = Table("oracle", "for", "limits", "installed", title=_SAMPLERS)
    for e in entries:
        installed = "yes" if e.installed else "no"
        if e.kind == "minimises":
            minimise.add_row(e.name, e.summary, e.limits, e.proof, installed)
        else:
            draw.add_row(e.name, e.summary, e.limits, installed)
    for table in (minimise, draw):
        table.columns[0].no_wrap, table.title_justify = True, "left"
        tell.print(table)
    tell.print(
        "A certificate in integers is a proof (exact=True); one in floating point holds up to the solver's "
        "tolerances, about 1e-6 (exact=False). The value of a point is recomputed in integers in every case."
    )
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

    if output.exists() and not output.is_dir():
        raise InvalidInputError(f"--output {output}: that is a file; name a folder")
    try:
        run_demo(output, draws, tell)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"Interrupted: finished draws are kept in {output / 'draws.csv'}; the same command goes on there"
        ) from None


app.command()(evaluate)
app.add_typer(budget, name="budget")
app.command()(audit)


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
    """Noise and spend from public facts alone. Proofs: ``privopt.mechanisms.discrete.calibration``."""
    given = {
        "--radius": radius,
        "--separation": separation,
        "--separators": separators,
        "--delta": delta or None,
    }
    unused = {
        **{key: set(given) for key in ("exponential", "permute-and-flip")},
        "opdisc": {"--separators"},
        "rspm": {"--radius", "--separation"},
        "rspm-laplace": {"--radius", "--separation", "--delta"},
    }
    if ignored := [o for o in sorted(unused.get(mechanism, ())) if given[o] is not None]:
        raise InvalidInputError(
            f"calibrate {mechanism} does not depend on {', '.join(ignored)}; leave it out"
        )
    for option, value in {"--dimension": dimension, "--separators": separators}.items():
        if value is not None and value < 1:
            raise InvalidInputError(f"{option} must be >= 1, got {value}")
    if mechanism in ("opdisc", "rspm") and delta == 0:
        raise InvalidInputError(f"calibrate {mechanism} needs --delta, in (0, 1)")
    if radius is not None and not radius > 0:
        raise InvalidInputError(f"--radius must be > 0, got {radius}")
    if mechanism in ("exponential", "permute-and-flip"):  # the same over every lattice
        kind, anywhere = MECHANISMS[mechanism], IntegerLattice(-1, 1, dimension=1)
        plan = kind.plan(ZeroOneHalfspace, anywhere, epsilon=epsilon, calibration=calibration)
        return {**plan.noise, **plan.spend.to_dict()}
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


# What typer raises for words it does not understand; where the class lives depends on typer's version.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Entry point: errors that privopt raises on purpose become one line and an exit code."""
    warnings.showwarning = lambda message, *_, **__: say.print(
        f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True
    )
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # what typer makes of Ctrl-C
            say.print("Interrupted")
        sys.exit(code)
    except InterruptedRunError as error:
        _fail("", error, 130)
    except PrivOptError as error:
        _fail(type(error).__name__, error, 1 if isinstance(error, BudgetExceededError) else 2)
    except OSError as error:
        say.print(f"[red]{escape(str(error.filename))}:[/] {error.strerror}", soft_wrap=True)
        sys.exit(2)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # some versions of click: the message is the help
            typer.echo(str(error))
            sys.exit(2)
        context = getattr(error, "ctx", None)
        command = "privopt" if context is None else context.command_path
        message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        _fail("UsageError", f"{message}; see {command} --help", 2)


def _fail(kind: str, error: PrivOptError | str, code: int) -> NoReturn:
    """One line on standard error, then the exit."""
    text = ". ".join([str(error).rstrip("."), *getattr(error, "__notes__", ())])
    name = f"[red]{kind}:[/] " if kind else ""
    say.print(f"{name}{escape(text)}", highlight=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

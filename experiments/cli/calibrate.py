"""``privopt calibrate``: the noise that a guarantee costs, from public facts."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.fit import (
    EpsilonOption,
    LabelOption,
    LossOption,
    NormKindOption,
    NormOption,
    PenaltyOption,
    SetOption,
    StepsOption,
    check_mechanism,
)
from privopt.experiments.cli.linear import LinearOptions, calibrate_linear, calibration_lines, is_linear
from privopt.mechanisms.discrete.calibration import calibrate_opdisc, calibrate_rspm, calibrate_rspm_laplace
from privopt.mechanisms.discrete.mechanism import check_calibration
from privopt.mechanisms.discrete.registry import MECHANISMS
from privopt.mechanisms.heavy_tails.registry import ROBUST_FITS
from privopt.mechanisms.nonconvex.registry import RISK_MECHANISMS
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def calibrate(
    mechanism: Annotated[str, typer.Argument(help=", ".join((*MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS)))],
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
    check_mechanism(mechanism, (*MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS))
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

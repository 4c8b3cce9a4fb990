"""``privopt calibrate``: the noise that a privacy guarantee requires, from public facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.families import CARD, ROBUST, requested_family
from privopt.experiments.cli.linear import checked_label_range, checked_norm, robust_loss
from privopt.experiments.cli.options import (
    EpsilonOption,
    LabelOption,
    LossOption,
    NormKindOption,
    NormOption,
    PenaltyOption,
    SetOption,
    StepsOption,
)
from privopt.mechanisms.discrete.calibration import (
    SeparatorCounts,
    calibrate_opdisc,
    calibrate_rspm,
    calibrate_rspm_laplace,
)
from privopt.mechanisms.discrete.mechanism import check_calibration
from privopt.mechanisms.estimators.robust import choose_robust
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.registry import MECHANISMS, RISK_MECHANISMS, ROBUST_FITS
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.parsing import parse_loss, parse_regularizer, parse_set
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def calibrate(
    context: typer.Context,
    mechanism: Annotated[str, typer.Argument(help=", ".join((*MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS)))],
    epsilon: EpsilonOption,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Privacy parameter, in (0, 1): required for opdisc and rspm, none for pure mechanisms. "
            "Default for linear models: 1/n^2.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    dimension: Annotated[int | None, typer.Option(help="Number of features d.")] = None,
    radius: Annotated[
        float | None, typer.Option(help="Bound D on the norm of the weights. Default: sqrt(d).")
    ] = None,
    separation: Annotated[
        float | None, typer.Option(help="Least distance tau of lattice points. Default: 1.")
    ] = None,
    separators: Annotated[int | None, typer.Option(help="Size m of the separator set. Default: 2d.")] = None,
    calibration: Annotated[
        str, typer.Option(help="sound, or printed: that of the paper, which is refuted.")
    ] = "sound",
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
    """Show the noise that a privacy guarantee requires, before any data are read."""
    family = requested_family(context)
    if family is CARD and records is not None:
        raise InvalidInputError(f"--records belongs to linear models; {mechanism!r} is not one of them")
    if family is CARD:
        report = calibration_report(
            mechanism, epsilon, delta or 0.0, dimension, radius, separation, separators, calibration
        )
    else:
        report = _robust_report(context.params) if family is ROBUST else _risk_report(context.params)
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
    """Return noise and spend from public facts alone. Proofs: ``privopt.mechanisms.discrete.calibration``."""
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
    if mechanism in ("exponential", "permute-and-flip"):  # the same for every lattice
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
    counts = SeparatorCounts(separators or 0, ternary)
    if mechanism == "rspm":
        noise = calibrate_rspm(epsilon, delta, counts, calibration=calibration)
        return {"sigma": noise.scale, **noise.spend.to_dict()}
    check_calibration(calibration, mechanism, ("sound",))
    noise = calibrate_rspm_laplace(epsilon, counts)
    return {"scale": noise.scale, **noise.spend.to_dict()}


def _robust_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend of a mechanism for robust linear models, from public facts alone."""
    dimension, records, delta = _sizes(options)
    plan, _ = choose_robust(
        options["mechanism"],
        records,
        dimension,
        PLAIN_SQUARES if robust_loss(options) == "squared" else LogisticLoss(),
        epsilon=options["epsilon"],
        delta=delta,
        steps=options["steps"],
    )
    return {"noise_on": plan.noised, **plan.noise, "steps": plan.steps, **plan.spend.to_dict()}


def _risk_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend of a mechanism for linear models, from public facts alone."""
    dimension, records, delta = _sizes(options)
    mechanism, epsilon, name = options["mechanism"], options["epsilon"], options["loss"] or "logistic"
    low, high = checked_label_range(options["label_range"], name) or (-1.0, 1.0)
    norm = checked_norm(options["norm"], mechanism)
    row_norm = 1.0 if options["data_norm"] is None else options["data_norm"]
    facts = RiskFacts(records, dimension, parse_loss(name, high / 2 - low / 2), row_norm, norm)
    space = None if options["convex_set"] is None else parse_set(options["convex_set"], dimension)
    penalty = parse_regularizer(options["regularizer"] or "none")
    choice = choose_risk_mechanism(mechanism, facts, space, penalty, mu=gaussian_mu(epsilon, delta))
    plan = choice.plan(facts, epsilon=epsilon, delta=delta, steps=options["steps"])
    return {
        "noise_on": plan.noised,
        **plan.noise,
        **plan.schedule,
        "set": options["convex_set"] or set_text(plan.convex_set),
        "l1": plan.regularizer.l1,
        "l2": plan.regularizer.l2,
        "data_norm": facts.row_norm,
        "norm": norm,
        **plan.spend.to_dict(),
    }


def _sizes(options: Mapping[str, Any]) -> tuple[int, int, float]:
    """Return the numbers of features and of records, and delta, by default 1/n^2."""
    sizes = {f"--{name}": options[name] for name in ("dimension", "records")}
    if missing := [option for option, value in sizes.items() if value is None]:
        raise InvalidInputError(
            f"calibrate {options['mechanism']} needs {' and '.join(missing)}: the "
            "numbers of features (with the constant one, if there is an intercept) and of records"
        )
    if wrong := [f"{option} {value}" for option, value in sizes.items() if value < 1]:
        raise InvalidInputError(f"{' and '.join(wrong)}: at least 1 is needed")
    delta = options["delta"]
    return options["dimension"], options["records"], 1 / options["records"] ** 2 if delta is None else delta


def set_text(convex_set: ConvexSet) -> str:
    """Write a default set as an argument of ``--set``; "none" for the whole space."""
    kinds = {L1Ball: "l1", L2Ball: "l2"}
    kind = kinds.get(type(convex_set))  # type: ignore[arg-type]
    return "none" if kind is None else f"{kind}:{convex_set.radius:.6g}"


def calibration_lines(report: dict[str, Any]) -> list[str]:
    """Return the lines that ``privopt calibrate`` prints: no empty values, privacy levels by name."""
    names = {"level": {"gdp": "mu (GDP)", "zcdp": "rho (zCDP)"}.get(report["notion"], "level")}
    lines = []
    for key, value in report.items():
        if value is None or value == "":
            continue
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        if isinstance(value, tuple):
            first, last = (f"{v:.6g}" for v in value)
            text = first if first == last else f"{first} to {last}"
        lines.append(f"{names.get(key, key.replace('_', ' '))}: {text}")
    return lines

"""``privopt calibrate``: the noise that a privacy guarantee requires, from public facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.estimate_plans import ESTIMATES, check_options, given_options, plan_of
from privopt.experiments.cli.families import CARD, LINEAR, ROBUST, requested_family
from privopt.experiments.cli.linear import checked_label_range, checked_norm, robust_loss
from privopt.experiments.cli.options import (
    EpsilonOption,
    FeaturesOption,
    LabelOption,
    LossOption,
    NormKindOption,
    NormOption,
    PenaltyOption,
    SetOption,
    StepsOption,
)
from privopt.experiments.cli.subset import subset_report
from privopt.mechanisms.discrete.calibration import (
    SeparatorCounts,
    calibrate_opdisc,
    calibrate_rspm,
    calibrate_rspm_laplace,
)
from privopt.mechanisms.discrete.mechanism import check_calibration
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import UnknownMechanismError
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
from privopt.problems.errors import InvalidInputError, did_you_mean

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)
KNOWN = (*MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS, *ESTIMATES, SubsetPlan.name)
# Options of one mechanism, or of those of `privopt estimate`, and their flags.
_PARTICULAR = {"moment": "--moment", "mean_range": "--range", "subsets": "--subsets"}
_SUBSET = {"max_features": "--max-features", "snr": "--snr"}


@app.command()
def calibrate(
    context: typer.Context,
    mechanism: Annotated[str, typer.Argument(help=", ".join(KNOWN))],
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
    moment: Annotated[float | None, typer.Option(help="robust-mean: bound on mean squares.")] = None,
    mean_range: Annotated[
        str | None, typer.Option("--range", help="trimmed-mean: LOW:HIGH, which holds the means.")
    ] = None,
    subsets: Annotated[
        int | None, typer.Option(help="subset-mean, sample-aggregate: number of subsets.")
    ] = None,
    max_features: FeaturesOption = None,
    snr: Annotated[
        float | None,
        typer.Option(
            help="best-subset: show the share of 20 synthetic tables in which the informative columns are "
            "drawn. Columns are normal, the informative ones have equal weights, and this is the variance "
            "that they explain over that of the noise; numbers are clipped to [-1, 1]."
        ),
    ] = None,
) -> None:
    """Show the noise that a privacy guarantee requires, before any data are read."""
    if mechanism not in KNOWN:
        raise UnknownMechanismError(
            f"unknown mechanism {mechanism!r}{did_you_mean(mechanism, KNOWN)}; here are {', '.join(KNOWN)}"
        )
    if mechanism == SubsetPlan.name:
        _print(subset_report(context), as_json)
        return
    given = given_options(context)
    if wrong := [flag for name, flag in _SUBSET.items() if name in given]:
        raise InvalidInputError(f"{', '.join(wrong)}: belongs to {SubsetPlan.name}")
    if mechanism in ESTIMATES:
        _print(_estimate_report(context), as_json)
        return
    if wrong := [flag for name, flag in _PARTICULAR.items() if name in given]:
        raise InvalidInputError(f"{', '.join(wrong)}: belongs to {', '.join(ESTIMATES)}")
    family = requested_family(context)
    if family is CARD and records is not None:
        raise InvalidInputError(f"--records belongs to linear models; {mechanism!r} is not one of them")
    reports = {CARD.name: _card_report, LINEAR.name: _risk_report, ROBUST.name: _robust_report}
    _print(reports[family.name](context.params), as_json)


def _print(report: dict[str, Any], as_json: bool) -> None:
    """Print a report as lines or as JSON."""
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for line in calibration_lines(report):
            tell.print(line, highlight=False, markup=False)


# The options that each mechanism's noise does not depend on.
_IGNORED = {
    "exponential": ("delta", "radius", "separation", "separators"),
    "permute-and-flip": ("delta", "radius", "separation", "separators"),
    "opdisc": ("separators",),
    "rspm": ("radius", "separation"),
    "rspm-laplace": ("delta", "radius", "separation"),
}


def _card_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend from public facts alone. Proofs: ``privopt.mechanisms.discrete.calibration``."""
    mechanism, calibration = options["mechanism"], options["calibration"]
    given = {**options, "delta": options["delta"] or None}
    if ignored := [f"--{name}" for name in _IGNORED.get(mechanism, ()) if given[name] is not None]:
        raise InvalidInputError(
            f"calibrate {mechanism} does not depend on {', '.join(ignored)}; leave it out"
        )
    for name in ("dimension", "separators"):
        if options[name] is not None and options[name] < 1:
            raise InvalidInputError(f"--{name} must be >= 1, got {options[name]}")
    if mechanism in ("opdisc", "rspm") and not options["delta"]:
        raise InvalidInputError(f"calibrate {mechanism} needs --delta, in (0, 1)")
    if mechanism == "opdisc":
        return _opdisc_report(options)
    if mechanism.startswith("rspm"):
        return _rspm_report(options)
    plan = MECHANISMS[mechanism].plan(  # the same for every lattice
        ZeroOneHalfspace,
        IntegerLattice(-1, 1, dimension=1),
        epsilon=options["epsilon"],
        calibration=calibration,
    )
    return {**plan.noise, **plan.spend.to_dict()}


def _opdisc_report(options: Mapping[str, Any]) -> dict[str, Any]:
    radius, dimension, separation = (options[name] for name in ("radius", "dimension", "separation"))
    if radius is not None and not radius > 0:
        raise InvalidInputError(f"--radius must be > 0, got {radius}")
    if dimension is None:
        raise InvalidInputError("calibrate opdisc needs --dimension")
    noise = calibrate_opdisc(
        options["epsilon"],
        options["delta"],
        squared_radius=float(dimension) if radius is None else radius**2,
        dof=dimension + 1,
        separation=1.0 if separation is None else separation,
        calibration=options["calibration"],
    )
    return {"sigma": noise.scale, **noise.spend.to_dict()}


def _rspm_report(options: Mapping[str, Any]) -> dict[str, Any]:
    mechanism, dimension, separators = (options[k] for k in ("mechanism", "dimension", "separators"))
    if dimension is None and separators is None:
        raise InvalidInputError(f"calibrate {mechanism} needs --dimension or --separators")
    # Without a separator count: the two separators per coordinate of halfspaces over {-1, 0, 1}^d.
    counts = SeparatorCounts(0, dimension) if separators is None else SeparatorCounts(separators, 0)
    if mechanism == "rspm":
        noise = calibrate_rspm(
            options["epsilon"], options["delta"], counts, calibration=options["calibration"]
        )
        return {"sigma": noise.scale, **noise.spend.to_dict()}
    check_calibration(options["calibration"], mechanism, ("sound",))
    noise = calibrate_rspm_laplace(options["epsilon"], counts)
    return {"scale": noise.scale, **noise.spend.to_dict()}


def _estimate_report(context: typer.Context) -> dict[str, Any]:
    """Return noise, spend and use of a mechanism of ``privopt estimate``, from public facts alone."""
    check_options(context, frozenset({"records", "dimension", "as_json"}))
    options = context.params
    dimension, records, delta = _sizes(options)
    plan = plan_of(options["mechanism"], records, dimension, delta, options)
    measure = plan.noise_to_signal
    return {
        **plan.noise,
        "noise_to_signal": measure.ratio,
        "warning": measure.warning,
        **plan.spend.to_dict(),
    }


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
        "noise_to_signal": plan.noise_to_signal.ratio,
        "warning": plan.noise_to_signal.warning,
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
    level = {"gdp": "mu (GDP)", "zcdp": "rho (zCDP)"}.get(report["notion"], "level")
    names = {"level": level, "noise_to_signal": "noise / signal"}
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

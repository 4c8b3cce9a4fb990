"""``privopt calibrate``: the noise that a privacy guarantee requires, from public facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli import options as opt
from privopt.experiments.cli.calibration import ASKED, calibration_lines, common_report
from privopt.experiments.cli.estimate_plans import (
    ESTIMATES,
    check_options,
    flag,
    given_options,
    plan_of,
)
from privopt.experiments.cli.families import CARD, LINEAR, ROBUST, requested_family
from privopt.experiments.cli.linear import checked_label_range, checked_norm, robust_loss
from privopt.experiments.cli.parsing import parse_range
from privopt.experiments.cli.release_plans import RELEASES, owners, release_report
from privopt.experiments.cli.subset import subset_report
from privopt.experiments.cli.table_output import print_report
from privopt.mechanisms.discrete.calibration import (
    Calibration,
    SeparatorCounts,
    calibrate_opdisc,
    calibrate_rspm,
    calibrate_rspm_laplace,
)
from privopt.mechanisms.discrete.mechanism import check_calibration
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.estimators.public_facts import public_delta
from privopt.mechanisms.estimators.robust import choose_robust
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import (
    MECHANISMS,
    RISK_MECHANISMS,
    ROBUST_FITS,
    ROBUST_MECHANISMS,
    SCORECARD_MECHANISMS,
)
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.mechanisms.scorecards.card_plan import plan_card
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.parsing import parse_loss, parse_regularizer, parse_set
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES, unclipped_facts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.schema import Schema

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)
KNOWN = (
    *("auto", *SCORECARD_MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS),
    *(*ESTIMATES, SubsetPlan.name, *RELEASES),
)
# Options that only some mechanisms take, the ones of `privopt estimate` included, and their flags.
_PARTICULAR = {"moment": "--moment", "mean_range": "--range", "subsets": "--subsets"}
# With this bound on gradients, a name means the mechanism of ``ROBUST_MECHANISMS`` itself.
_KNOWN_MOMENTS = {"robust-gd": "moment", "robust-sgd": "moment", "trimmed-gd": "mean_range"}
# Options of some mechanisms that all others refuse.
_OWNERS = {"max_features": (SubsetPlan.name,), "snr": (SubsetPlan.name,), **owners()}


@app.command()
def calibrate(
    context: typer.Context,
    mechanism: Annotated[str, typer.Argument(help=", ".join(KNOWN))],
    epsilon: opt.EpsilonOption,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Privacy parameter, in (0, 1); none for pure mechanisms. Default: 1/n^2.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    dimension: Annotated[int | None, typer.Option(help="Number of features d.")] = None,
    radius: Annotated[
        float | None, typer.Option(help="Bound D on the norm of the weights. Default: sqrt(d).")
    ] = None,
    separation: Annotated[
        float | None, typer.Option(help="Least distance tau between two lattice points. Default: 1.")
    ] = None,
    separators: Annotated[int | None, typer.Option(help="Size m of the separator set. Default: 2d.")] = None,
    calibration: Annotated[
        str, typer.Option(help="sound, or printed: as the paper printed it, which is refuted.")
    ] = "sound",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    records: Annotated[int | None, typer.Option(help="Number of records n.")] = None,
    loss: opt.LossOption = None,
    convex_set: opt.SetOption = None,
    regularizer: opt.PenaltyOption = None,
    data_norm: opt.NormOption = None,
    norm: opt.NormKindOption = None,
    label_range: opt.LabelOption = None,
    steps: opt.StepsOption = None,
    moment: Annotated[
        float | None,
        typer.Option(
            help="robust-mean: bound on the mean square of each column; robust-gd, robust-sgd: bound on the "
            "mean squares of gradients, if known."
        ),
    ] = None,
    mean_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            help="trimmed-mean, trimmed-gd: LOW:HIGH, bounds on the means (trimmed-gd: of gradients).",
        ),
    ] = None,
    subsets: Annotated[
        int | None, typer.Option(help="subset-mean, sample-aggregate: number of subsets.")
    ] = None,
    max_features: opt.FeaturesOption = None,
    snr: Annotated[
        float | None,
        typer.Option(
            help="best-subset: signal-to-noise ratio of 20 synthetic tables, to show the share of them in "
            "which exactly the informative columns are drawn. It is the variance that these columns explain "
            "divided by that of the noise. Columns are normal, the informative ones have equal weights, and "
            "numbers are clipped to [-1, 1]."
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Trees: TOML or JSON file that declares columns.")
    ] = None,
    max_depth: Annotated[
        str | None, typer.Option(help="Trees: largest number of questions, or of rules. Default: auto.")
    ] = None,
    candidates: Annotated[int | None, typer.Option(help="private-selection: number of candidates.")] = None,
    types: Annotated[
        str | None, typer.Option(help="learn-schema: NAME=TYPE,..., as for `privopt schema learn`.")
    ] = None,
    cuts: Annotated[
        int | None, typer.Option(help="learn-schema: largest number of cuts of a column. Default: 7.")
    ] = None,
) -> None:
    """Show the noise that a privacy guarantee requires, before any data are read."""
    if mechanism not in KNOWN:
        raise UnknownMechanismError(
            f"unknown mechanism {mechanism!r}{did_you_mean(mechanism, KNOWN)}; here are {', '.join(KNOWN)}"
        )
    if mechanism in RELEASES:
        _print(release_report(context), as_json)
        return
    if mechanism == SubsetPlan.name:
        _print(subset_report(context), as_json)
        return
    given = given_options(context)
    for name in _OWNERS:
        if name in given:
            raise InvalidInputError(f"{flag(name)}: belongs to {', '.join(_OWNERS[name])}")
    if mechanism in ESTIMATES:
        _print(_estimate_report(context), as_json)
        return
    own = _KNOWN_MOMENTS.get(mechanism)
    if wrong := [option for name, option in _PARTICULAR.items() if name in given and name != own]:
        raise InvalidInputError(f"{', '.join(wrong)}: belongs to {', '.join((*ESTIMATES, *_KNOWN_MOMENTS))}")
    family = requested_family(context, LINEAR if mechanism == "auto" else CARD)
    reports = {CARD.name: _card_report, LINEAR.name: _risk_report, ROBUST.name: _robust_report}
    _print(reports[family.name](context.params), as_json)


def _print(report: dict[str, Any], as_json: bool) -> None:
    """Print a report as lines or as JSON."""
    print_report(tell, report, calibration_lines(report), as_json)


# The options that each mechanism's noise does not depend on.
_IGNORED = {
    "exponential": ("delta", "radius", "separation", "separators"),
    "permute-and-flip": ("delta", "radius", "separation", "separators"),
    "opdisc": ("separators",),
    "rspm": ("radius", "separation"),
    "rspm-laplace": ("delta", "radius", "separation"),
    "seeded": ("radius", "separation", "separators"),
}


def _card_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend from public facts alone. Proofs: ``privopt.mechanisms.discrete.calibration``."""
    mechanism, n = options["mechanism"], options["records"]
    given = {**options, "delta": options["delta"] or None}
    if ignored := [f"--{name}" for name in _IGNORED.get(mechanism, ()) if given[name] is not None]:
        raise InvalidInputError(
            f"calibrate {mechanism} does not depend on {', '.join(ignored)}; leave it out"
        )
    for name in ("dimension", "separators", "records"):
        if options[name] is not None and options[name] < 1:
            raise InvalidInputError(f"--{name} must be >= 1, got {options[name]}")
    if mechanism == SeededScorecard.name:
        return _seeded_report(options)
    if mechanism in ("opdisc", "rspm") and not options["delta"]:
        if options["delta"] is not None or n is None:
            raise InvalidInputError(f"calibrate {mechanism} needs --delta, in (0, 1), or --records for 1/n^2")
        options = {**options, "delta": public_delta("auto", n)}
    kind = MECHANISMS[mechanism]
    if mechanism == "opdisc":
        noise, name = _opdisc_noise(options), "sigma"
    elif mechanism.startswith("rspm"):
        noise, name = _rspm_noise(options), "sigma" if mechanism == "rspm" else "scale"
    else:
        plan = _lattice_plan(options, 1)  # the same for every lattice
        return common_report(kind.name, kind.noised, plan.noise, _lattice_measure(options), plan.spend)
    return common_report(kind.name, kind.noised, {name: noise.scale}, _lattice_measure(options), noise.spend)


def _lattice_plan(options: Mapping[str, Any], dimension: int) -> Any:
    return MECHANISMS[options["mechanism"]].plan(
        ZeroOneHalfspace,
        IntegerLattice(-1, 1, dimension=dimension),
        epsilon=options["epsilon"],
        delta=options["delta"] or 0.0,
        calibration=options["calibration"],
    )


def _lattice_measure(options: Mapping[str, Any]) -> NoiseToSignal | None:
    """Return the ratio of noise to signal for weights of -1, 0 and 1.

    None without --records or --dimension, or if an option describes another lattice.
    """
    n, d = options["records"], options["dimension"]
    others = [name for name in ("radius", "separation", "separators") if options[name] is not None]
    if n is None or d is None or others:
        return None
    measure: NoiseToSignal | None = _lattice_plan(options, d).noise_to_signal(n)
    return measure


def _seeded_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend of a card of d - 1 numbers between 0 and 1 and the constant feature."""
    dimension, records, delta = _sizes(options)
    if dimension < 2:
        raise InvalidInputError("calibrate seeded counts the constant feature: --dimension 2 or more")
    columns = [Numeric(f"x{j}", 0, 1, step="1/100") for j in range(1, dimension)]
    made = plan_card(
        SeededScorecard.name,
        Schema(columns, intercept=True),
        records,
        epsilon=options["epsilon"],
        delta=delta,
        calibration=options["calibration"],
    )
    plan = made.plan
    assert isinstance(plan, SeededScorecard)
    return common_report(plan.name, plan.noised, plan.noise, made.noise_to_signal(records), plan.spend)


def _opdisc_noise(options: Mapping[str, Any]) -> Calibration:
    radius, dimension, separation = (options[name] for name in ("radius", "dimension", "separation"))
    if radius is not None and not radius > 0:
        raise InvalidInputError(f"--radius must be > 0, got {radius}")
    if dimension is None:
        raise InvalidInputError("calibrate opdisc needs --dimension")
    return calibrate_opdisc(
        options["epsilon"],
        options["delta"],
        squared_radius=float(dimension) if radius is None else radius**2,
        dof=dimension + 1,
        separation=1.0 if separation is None else separation,
        calibration=options["calibration"],
    )


def _rspm_noise(options: Mapping[str, Any]) -> Calibration:
    mechanism, dimension, separators = (options[k] for k in ("mechanism", "dimension", "separators"))
    if dimension is None and separators is None:
        raise InvalidInputError(f"calibrate {mechanism} needs --dimension or --separators")
    # Without --separators: halfspaces over {-1, 0, 1}^d have two separators per coordinate.
    counts = SeparatorCounts(0, dimension) if separators is None else SeparatorCounts(separators, 0)
    if mechanism == "rspm":
        return calibrate_rspm(
            options["epsilon"], options["delta"], counts, calibration=options["calibration"]
        )
    check_calibration(options["calibration"], mechanism, ("sound",))
    return calibrate_rspm_laplace(options["epsilon"], counts)


def _estimate_report(context: typer.Context) -> dict[str, Any]:
    """Return noise, spend and use of a mechanism of ``privopt estimate``, from public facts alone."""
    check_options(context, frozenset({"records", "dimension", "as_json"}))
    options = context.params
    dimension, records, delta = _sizes(options)
    plan = plan_of(options["mechanism"], records, dimension, delta, options)
    return common_report(plan.name, plan.noised, plan.noise, plan.noise_to_signal, plan.spend)


def _robust_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend of a mechanism for robust linear models, from public facts alone."""
    dimension, records, delta = _sizes(options)
    loss = PLAIN_SQUARES if robust_loss(options) == "squared" else LogisticLoss()
    name, epsilon, steps = options["mechanism"], options["epsilon"], options["steps"]
    fact = _KNOWN_MOMENTS.get(name)
    if fact is not None and options[fact] is not None:  # a bound on gradients is known
        known: dict[str, Any] = {
            fact: options[fact] if fact == "moment" else parse_range(options[fact], "--range")
        }
        known |= {} if steps is None else {"steps": steps}
        facts = unclipped_facts(records, dimension, loss)
        made = ROBUST_MECHANISMS[name].plan(facts, epsilon=epsilon, delta=delta, **known)
        more = {**made.schedule, "set": set_text(made.convex_set)}
        return common_report(made.name, made.noised, made.noise, None, made.spend, more=more)
    plan, _ = choose_robust(name, records, dimension, loss, epsilon=epsilon, delta=delta, steps=steps)
    more = {"steps": plan.steps}
    return common_report(plan.name, plan.noised, plan.noise, plan.noise_to_signal, plan.spend, more=more)


def _risk_report(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return noise and spend of a mechanism for linear models, from public facts alone."""
    dimension, records, delta = _sizes(options)
    mechanism, epsilon, name = options["mechanism"], options["epsilon"], options["loss"] or "logistic"
    low, high = checked_label_range(options["label_range"], name) or (-1.0, 1.0)
    norm, steps = checked_norm(options["norm"], mechanism), options["steps"]
    row_norm = 1.0 if options["data_norm"] is None else options["data_norm"]
    facts = RiskFacts(records, dimension, parse_loss(name, high / 2 - low / 2), row_norm, norm)
    space = None if options["convex_set"] is None else parse_set(options["convex_set"], dimension)
    penalty, mu = parse_regularizer(options["regularizer"] or "none"), gaussian_mu(epsilon, delta)
    choice = choose_risk_mechanism(mechanism, facts, space, penalty, mu=mu, steps=steps)
    plan = choice.plan(facts, epsilon=epsilon, delta=delta, steps=steps)
    more = {
        **plan.schedule,
        "set": options["convex_set"] or set_text(plan.convex_set),
        "l1": plan.regularizer.l1,
        "l2": plan.regularizer.l2,
        "data_norm": facts.row_norm,
        "norm": norm,
    }
    reason = choice.reason if mechanism == "auto" else ASKED
    return common_report(
        plan.name, plan.noised, plan.noise, plan.noise_to_signal, plan.spend, more=more, reason=reason
    )


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

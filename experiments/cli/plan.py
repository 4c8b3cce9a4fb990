"""``privopt plan``: mechanism, spend, noise and time of a fit, from public facts alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.linear import LinearOptions, is_linear, is_robust
from privopt.experiments.cli.options import (
    EpsilonOption,
    LossOption,
    RobustOption,
    StepsOption,
    check_mechanism,
    parse_delta,
    parse_lattice,
    parse_prevalence,
    parse_weights,
    split_classes,
)
from privopt.experiments.cli.running import open_ledger
from privopt.experiments.cli.scorecard import CardOptions
from privopt.experiments.cli.tree import DepthOption, ModelOption, is_tree, made_tree
from privopt.experiments.cli.tree import plan_lines as tree_plan_lines
from privopt.experiments.cli.tree import plan_report as tree_plan_report
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.model_choice import choose_model
from privopt.mechanisms.estimators.prepared import schema_norm
from privopt.mechanisms.estimators.public_facts import public_delta
from privopt.mechanisms.estimators.robust import choose_robust
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS, SCORECARD_MECHANISMS
from privopt.mechanisms.scorecards.card_plan import CardPlan
from privopt.mechanisms.scorecards.effort import MOST_WORK
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def plan(
    schema: Annotated[Path, typer.Option(help="TOML or JSON file that declares columns.")],
    records: Annotated[int, typer.Option(help="Number of records n, which is public.", min=1)],
    epsilon: EpsilonOption,
    delta: Annotated[str, typer.Option(help="A number in (0, 1), or auto for 1/n^2.")] = "auto",
    mechanism: Annotated[str, typer.Option(help=f"auto, {', '.join(SCORECARD_MECHANISMS)}.")] = "auto",
    lattice: Annotated[str | None, typer.Option(help="As in `privopt fit`.")] = None,
    oracle: Annotated[str, typer.Option(help="As in `privopt fit`.")] = "auto",
    ledger: Annotated[
        str | None, typer.Option(help="Say whether this budget affords it; nothing is booked.")
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="As in `privopt fit`; needs --classes.")] = None,
    prevalence: Annotated[str | None, typer.Option(help="As in `privopt fit`.")] = None,
    classes: Annotated[str | None, typer.Option(help="NEGATIVE,POSITIVE labels.")] = None,
    max_columns: Annotated[int | None, typer.Option(help="As in `privopt fit`.")] = None,
    max_work: Annotated[float, typer.Option(help="As in `privopt fit`.")] = MOST_WORK,
    risk_share: Annotated[float, typer.Option(help="As in `privopt fit`.")] = 0.0,
    robust: RobustOption = False,
    loss: LossOption = None,
    steps: StepsOption = None,
    model: ModelOption = None,
    max_depth: DepthOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say, before any data, what fitting a scorecard, tree, rule list or robust model will do, and why."""
    if mechanism in RISK_MECHANISMS and not robust:
        raise InvalidInputError(_calibrated(mechanism, Schema.load(schema), records))
    check_mechanism(mechanism, ("auto", *SCORECARD_MECHANISMS, *ROBUST_FITS))
    options = LinearOptions(loss=loss, steps=steps, robust=robust or None)
    card = CardOptions(oracle, lattice, max_columns=max_columns, max_work=max_work, risk_share=risk_share)
    weighing = {
        "--class-weight": class_weight is not None,
        "--prevalence": prevalence is not None,
        "--classes": classes is not None,
    }
    others = dict.fromkeys(options.names, True) | card.given
    others |= {"--mechanism": mechanism != "auto", "--delta": delta != "auto", "--risk-share": False}
    chosen = None
    if is_tree(model, max_depth, others) and model == "auto":
        labels = split_classes(classes)
        chosen = choose_model(records, epsilon, classes=2 if labels is None else len(labels))
        model = chosen.model
    if is_tree(model, max_depth, others):
        made = made_tree(
            model,
            max_depth,
            epsilon,
            schema=Schema.load(schema),
            classes=split_classes(classes),
            class_weight=parse_weights(class_weight),
            prevalence=parse_prevalence(prevalence),
            risk_share=risk_share,
        ).plan(records)
        told = tree_plan_report(made, chosen), tree_plan_lines(made, chosen)
        show(*told, made.spend, as_json=as_json, ledger=ledger)
        return
    if is_robust(mechanism, options):
        is_linear(mechanism, options, {**card.given, **weighing})
        fitted = robust_plan(Schema.load(schema), records, epsilon, delta, mechanism, options)
        show(*fitted, as_json=as_json, ledger=ledger)
        return
    if loss is not None or steps is not None:
        raise InvalidInputError("--loss and --steps: with --robust; other linear models: privopt calibrate")
    planned = PrivateHalfspaceClassifier(
        epsilon,
        delta=parse_delta(delta),
        mechanism=mechanism,
        oracle=oracle,
        schema=Schema.load(schema),
        lattice=parse_lattice(lattice),
        max_columns=max_columns,
        max_work=max_work,
        risk_share=risk_share,
        classes=split_classes(classes),
        class_weight=parse_weights(class_weight),
        prevalence=parse_prevalence(prevalence),
    ).plan(records)
    report, lines = plan_report(planned), _lines(planned)
    if chosen is not None:
        report = {"model": chosen.model, "model_reason": chosen.reason, **report}
        lines = [f"model: {chosen.model} ({chosen.reason})", *lines]
    show(report, lines, planned.spend, as_json=as_json, ledger=ledger)


def show(
    report: dict[str, Any], lines: list[str], spend: PrivacySpend, *, as_json: bool, ledger: str | None
) -> None:
    """Print a plan, and whether a budget affords it."""
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for line in lines:
            tell.print(line, highlight=False, markup=False)
    if ledger is not None:
        book = open_ledger(ledger)
        if not book.affords(spend):
            raise BudgetExceededError(f"{book} does not afford this: see `privopt budget show {book}`")
        tell.print(f"{book} affords it; nothing was booked", highlight=False, markup=False)


def robust_plan(
    schema: Schema, records: int, epsilon: float, delta: str, mechanism: str, options: LinearOptions
) -> tuple[dict[str, Any], list[str], PrivacySpend]:
    """Return report, lines and spend of a linear model for records without public bounds."""
    numbers = options.loss == "squared"
    made, reason = choose_robust(
        *(mechanism, records, schema.n_features, PLAIN_SQUARES if numbers else LogisticLoss()),
        epsilon=epsilon,
        delta=public_delta(parse_delta(delta), records),
        steps=options.steps,
        flags=schema.flags,
    )
    report = {
        **made.spend.to_dict(),
        **made.noise,
        "steps": made.steps,
        "mechanism": made.name,
        "mechanism_reason": reason,
    }
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in made.noise.items())
    units = (
        "found privately"
        if made.search is not None
        else (
            "none: there are too few records at this epsilon to find them, and columns are taken as they are"
        )
    )
    lines = [
        f"mechanism: {made.name} ({reason})",
        f"spend: {made.spend}",
        f"units of {schema.n_features} features: {units}",
        f"noise on {made.noised}: {noise}",
        f"steps: {made.steps}, each reads the table once",
    ]
    return report, lines, made.spend


def _calibrated(mechanism: str, schema: Schema, records: int) -> str:
    """Return the hint to plan a linear model by ``privopt calibrate``, with the facts of the schema."""
    dimension = len(schema.feature_names) + (not schema.intercept)
    return (
        f"{mechanism} fits linear models, whose noise and steps `privopt calibrate {mechanism} --records "
        f"{records} --dimension {dimension} --data-norm {schema_norm(schema):.6g}` tells before any data"
    )


def plan_report(planned: CardPlan) -> dict[str, Any]:
    """Return the plan as plain numbers and strings; ``seconds`` is None if time depends on the records."""
    made = planned.plan
    return {
        **planned.spend.to_dict(),
        **made.noise,
        "mechanism": made.name,
        "mechanism_reason": planned.reason,
        "lattice": str(made.lattice),
        "seconds": planned.seconds,
    }


def _lines(planned: CardPlan) -> list[str]:
    made = planned.plan
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in made.noise.items())
    if planned.seconds is None:
        time = (
            "not bounded by public facts: a search, whose time depends on the records. Give a --time-limit; "
            "a search that it stops releases nothing, and what a ledger booked stays spent"
        )
    else:
        seconds = max(planned.seconds, 0.1)
        time = f"about {seconds:.1g} s on one idle core, once the table is read; it is sure to end"
    return [
        f"mechanism: {made.name} ({planned.reason})",
        f"spend: {planned.spend}",
        f"weights: {_weights(made.lattice)}",
        f"noise: {noise}",
        f"time: {time}",
    ]


def _weights(lattice: IntegerLattice) -> str:
    """Describe the bounds of the weights: by groups of features if at most three differ, else the lattice."""
    pairs = list(zip(lattice.low.tolist(), lattice.high.tolist(), strict=True))
    kinds = Counter(pairs[:-1])
    if len(set(pairs)) == 1 or len(kinds) > 3:
        return str(lattice)
    features = [f"{low} to {high} for each of {count} features" for (low, high), count in kinds.items()]
    return ", ".join([*features, f"{pairs[-1][0]} to {pairs[-1][1]} for the intercept"])

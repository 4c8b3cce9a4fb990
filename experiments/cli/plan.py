"""``privopt plan``: mechanism, spend, noise and time of a fit, from public facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli import options as opt
from privopt.experiments.cli.families import AUTO, CARD, LINEAR, ROBUST, requested_family
from privopt.experiments.cli.linear import linear_constructor, robust_constructor
from privopt.experiments.cli.parsing import parse_delta, parse_records, split_classes
from privopt.experiments.cli.running import open_ledger
from privopt.experiments.cli.scorecard import card_constructor
from privopt.experiments.cli.table_output import print_report
from privopt.experiments.cli.tree import choice_line, chosen_model, tree_constructor
from privopt.experiments.cli.tree import plan_report as tree_plan_report
from privopt.experiments.cli.want import (
    BestAucOption,
    ResidualOption,
    WantOption,
    check_not_wanted,
    show_wanted,
)
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.column_choice import by_moments
from privopt.mechanisms.estimators.public_facts import public_delta
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.schemas.records import CHOICES
from privopt.mechanisms.scorecards.card_plan import CardPlan
from privopt.oracles.limits import MOST_WORK
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import text_of
from privopt.problems.tables.schema import Schema

# Options of a fit that a plan does not have: they follow from the schema, or have their defaults.
_NOT_PLANNED = dict.fromkeys(("data_norm", "norm", "convex_set", "regularizer", "errors"))

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def plan(
    context: typer.Context,
    schema: Annotated[Path, typer.Option(help="TOML or JSON file that declares columns.")],
    records: Annotated[
        int | None,
        typer.Option(
            help="Public number of records n; with --person, number of persons. Needed without --want.",
            min=1,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy parameter, > 0. Needed without --want.", rich_help_panel="Privacy"),
    ] = None,
    classes: opt.ClassesOption = None,
    model: opt.ModelOption = None,
    ranking: opt.RankingOption = False,
    mechanism: opt.MechanismOption = "auto",
    robust: opt.RobustOption = False,
    delta: opt.DeltaOption = "auto",
    person: opt.PersonOption = None,
    records_per_person: opt.RecordsOption = "1",
    max_weight: opt.MaxWeightOption = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="PRIVOPT_LEDGER",
            help="Ledger, a path or URL: show whether its budget affords the fit; nothing is booked.",
        ),
    ] = None,
    class_weight: opt.WeightOption = None,
    prevalence: opt.PrevalenceOption = None,
    numbers: opt.NumbersOption = "auto",
    lattice: opt.LatticeOption = None,
    max_columns: opt.ColumnsOption = None,
    constraint: opt.ConstraintOption = None,
    card_solver: opt.CardSolverOption = "auto",
    oracle: opt.OracleOption = "auto",
    max_work: opt.WorkOption = MOST_WORK,
    risk_share: opt.RiskOption = 0.0,
    max_depth: opt.DepthOption = "auto",
    loss: opt.LossOption = None,
    steps: opt.StepsOption = None,
    max_features: opt.FeaturesOption = None,
    want: WantOption = None,
    best_auc: BestAucOption = None,
    label_range: opt.LabelOption = None,
    residual_sd: ResidualOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the mechanism, noise and cost of a fit before any data are read. With --want, forecast
    the quality of a model, or the records or epsilon that it needs.
    """
    if want is not None:
        show_wanted(context)
        return
    check_not_wanted(context)
    if records is None or epsilon is None:
        lacking = "--records" if records is None else "--epsilon"
        raise InvalidInputError(f"plan needs {lacking}; with --want it can be left out")
    family, options = requested_family(context), context.params
    columns, labels = Schema.load(schema), split_classes(classes)
    options["person"] = columns.person if person is None else person
    model_name, choice = family.name, None
    if family is AUTO:
        choice = chosen_model(records, 2 if labels is None else len(labels), options)
        model_name = choice.model
    report, lines, spend = _planned(model_name, columns, labels, {**options, "model": model_name})
    if choice is not None:
        report = {"model": choice.model, "model_reason": choice.reason, **report}
        lines = [choice_line(choice), *lines]
    show(report, lines, spend, as_json=as_json, ledger=ledger)


def _planned(
    model: str, schema: Schema, classes: tuple[str, ...] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str], PrivacySpend]:
    """Return the plan of a fit as a report and as lines, and its spend.

    Raises:
        PrivOptError: a fit that is refused, or that plans do not show.
    """
    n, person = options["records"], options["person"]
    k = 1 if person is None else parse_records(options["records_per_person"])
    declared: dict[str, Any] = {"schema": schema, "classes": classes, "person": person}
    declared["records_per_person"] = k
    if model == LINEAR.name and options["max_features"] is not None:
        delta = parse_delta(options["delta"])
        raise InvalidInputError(
            _subset_calibrated(schema, n, options["epsilon"], options["max_features"], delta)
        )
    if model in (LINEAR.name, ROBUST.name):
        made = linear_constructor if model == LINEAR.name else robust_constructor
        linear = made({**_NOT_PLANNED, **options})(**declared).plan(n)
        return linear.to_dict(), str(linear).split("\n"), linear.spend
    if model == CARD.name:
        card = card_constructor(options)(**declared).plan(n)
        counted = n * (CHOICES[-1] if isinstance(k, str) else k)
        return plan_report(card, counted), _lines(card, counted), card.spend
    tree = tree_constructor(options)(**declared).plan(n)
    return tree_plan_report(tree), str(tree).split("\n"), tree.spend


def show(
    report: dict[str, Any], lines: list[str], spend: PrivacySpend, *, as_json: bool, ledger: str | None
) -> None:
    """Print a plan, and whether a budget affords it."""
    print_report(tell, report, lines, as_json)
    if ledger is not None:
        book = open_ledger(ledger)
        if not book.affords(spend):
            raise BudgetExceededError(f"{book} does not afford this: see `privopt budget show {book}`")
        tell.print(f"{book} affords it; nothing was booked", highlight=False, markup=False)


def _subset_calibrated(schema: Schema, records: int, epsilon: float, size: int, delta: float | str) -> str:
    """Return how "auto" chooses features, and the command that plans drawing them with half of epsilon."""
    mu = gaussian_mu(epsilon, public_delta(delta, records))
    moments, reason = by_moments(schema.n_features, size, epsilon, mu)
    if len(schema.columns) < schema.n_features:
        moments, reason = False, "each level of a category is a feature by itself"
    way = "takes noisy moments (sufficient-statistics)" if moments else "draws (best-subset)"
    return (
        f"--max-features: auto {way}: {reason}. A plan shows no fit on chosen features. To do: for a draw of "
        f"{size} features run `privopt calibrate {SubsetPlan.name} --dimension "
        f"{schema.n_features} --max-features {size} --records {records} --epsilon {epsilon / 2:g}`; add "
        "--snr for the share of synthetic tables in which the draw finds the informative features"
    )


def plan_report(planned: CardPlan, records: int) -> dict[str, Any]:
    """Return the plan as plain numbers and strings; ``seconds`` is None if time depends on the records."""
    made, measure = planned.plan, planned.noise_to_signal(records)
    return {
        **planned.spend.to_dict(),
        **made.noise,
        "mechanism": made.name,
        "mechanism_reason": planned.reason,
        "lattice": str(made.lattice),
        **({"constraints": list(map(str, planned.constraints))} if planned.constraints else {}),
        "noise_to_signal": None if measure is None else measure.ratio,
        "seconds": planned.seconds,
    }


def _lines(planned: CardPlan, records: int) -> list[str]:
    *first, time = text_of(planned.facts).split("\n")
    return [*first, *_measure_lines(planned.noise_to_signal(records)), time]


def _measure_lines(measure: NoiseToSignal | None) -> list[str]:
    """Return the line with the ratio of noise to signal, and its warning, if there is one."""
    if measure is None:
        return []
    return [f"noise / signal: {measure}", *([f"warning: {measure.warning}"] if measure.warning else [])]

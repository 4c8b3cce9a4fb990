"""``privopt fit``: private scorecards and linear models from a table and public facts."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.files import PaidFile, showing
from privopt.experiments.cli.linear import LinearOptions, fit_linear, is_linear, linear_report, show_linear
from privopt.experiments.cli.options import (
    DATA,
    LIMITS,
    OUTPUT,
    PRIVACY,
    PROBLEM,
    SOLVER,
    EpsilonOption,
    JsonOption,
    LabelOption,
    LossOption,
    NormKindOption,
    NormOption,
    PenaltyOption,
    RobustOption,
    SetOption,
    StepsOption,
    check_mechanism,
    marked_schema,
    parse_delta,
    parse_prevalence,
    parse_weights,
    split_classes,
)
from privopt.experiments.cli.running import accounted, open_ledger, stoppable
from privopt.experiments.cli.scorecard import (
    CardOptions,
    card_report,
    check_delta_option,
    fit_card,
    show_card,
)
from privopt.experiments.cli.tables import TableOption, read_labelled
from privopt.experiments.cli.tree import (
    DepthOption,
    ModelOption,
    fit_tree,
    is_tree,
    show_tree,
    tree_report,
)
from privopt.mechanisms.estimators.model_choice import choose_model
from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS, SCORECARD_MECHANISMS
from privopt.mechanisms.scorecards.effort import MOST_WORK

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)

FIT_EXAMPLES = """Examples:

privopt fit --data adult23 --epsilon 1

privopt fit --data patients.csv --target state --classes well,ill --schema s.toml --epsilon 1 --save m.json

privopt fit --data bills.csv --target cost --epsilon 1 --robust --loss squared --save m.json

privopt fit --data patients.csv --target state --schema s.toml --classes well,ill --epsilon 1 --model tree

privopt fit --data adult23 --epsilon 0.5 --mechanism exponential --lattice -4:4:4.8

privopt fit --data adult23 --epsilon 1 --mechanism dp-gd --loss logistic --json report.json"""


@app.command(epilog=FIT_EXAMPLES)
def fit(
    data: Annotated[
        str,
        typer.Option(
            help="A .csv, .csv.gz or .parquet file with a header; adult23, adult23:SEED (shipped); or what "
            "an engine counts: .parquet files by a pattern, FOLDER/*.parquet, or a database by its URL.",
            rich_help_panel=DATA,
        ),
    ],
    epsilon: EpsilonOption,
    target: Annotated[
        str | None, typer.Option(help="Label column. Needed for files.", rich_help_panel=DATA)
    ] = None,
    table: TableOption = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON file that declares columns. Without it they are read off the data, a leak.",
            rich_help_panel=DATA,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="NEGATIVE,POSITIVE labels as the file writes them, one with a comma in double quotes; "
            "linear models take more than two. Without it: read off, a leak.",
            rich_help_panel=DATA,
        ),
    ] = None,
    na_values: Annotated[
        str | None,
        typer.Option(
            "--na-values",
            help="MARKER,...: further missing-value markers, in every column of the schema. Those of "
            "numbers have the usual ones (NA, ?, ...); a declared category is none.",
            rich_help_panel=DATA,
        ),
    ] = None,
    delta: Annotated[
        str,
        typer.Option(
            help="A number in (0, 1), or auto for 1/n^2. Pure mechanisms have none.", rich_help_panel=PRIVACY
        ),
    ] = "auto",
    mechanism: Annotated[
        str,
        typer.Option(
            help=f"Scorecards: auto, {', '.join(SCORECARD_MECHANISMS)}. "
            f"Linear models: auto with a --loss, {', '.join(RISK_MECHANISMS)}. "
            f"With --robust: auto, {', '.join(ROBUST_FITS)}.",
            rich_help_panel=PRIVACY,
        ),
    ] = "auto",
    calibration: Annotated[
        str,
        typer.Option(
            help="sound, or printed: the source paper's of opdisc and rspm, refuted.",
            rich_help_panel=PRIVACY,
        ),
    ] = "sound",
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Book the spend in this ledger first, a path or URL, with #BUDGET if it holds several; "
            "refuse to overdraw.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    insecure_seed: Annotated[
        int | None, typer.Option(help="Reproducible noise. Voids privacy.", rich_help_panel=PRIVACY)
    ] = None,
    lattice: Annotated[
        str | None,
        typer.Option(
            help="Weights: integers LOW:HIGH, or LOW:HIGH:RADIUS with norm at most RADIUS. "
            "Default: -1:1; opdisc: all of norm at most sqrt(features).",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    model: ModelOption = None,
    max_depth: DepthOption = "auto",
    max_columns: Annotated[
        int | None,
        typer.Option(
            help="At most so many columns get points: those that tell records apart most. Free; of seeded, "
            "which auto then is.",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    max_work: Annotated[
        float,
        typer.Option(
            help="Of auto: the most steps of an exact draw, which follow from public facts; 4e8 take about a "
            "second.",
            rich_help_panel=LIMITS,
        ),
    ] = MOST_WORK,
    risk_share: Annotated[
        float,
        typer.Option(
            help="Share of epsilon, in [0, 1), for a table from score to risk, of trees from leaf to risk: "
            "`privopt predict --proba`. Try 0.2, for trees 0.1.",
            rich_help_panel=PROBLEM,
        ),
    ] = 0.0,
    oracle: Annotated[
        str, typer.Option(help="auto, or a name from `privopt solvers`.", rich_help_panel=SOLVER)
    ] = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the minimisation, draw or steps themselves; reading, encoding, compiling and "
            "laying out tables come before. At the limit nothing is released, and a ledger's booking stays. "
            "Default: none.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="What errors cost by class, as in well=1,ill=5; or balanced, by the inverse of the shares.",
            rich_help_panel=DATA,
        ),
    ] = None,
    prevalence: Annotated[
        str | None,
        typer.Option(
            help="For balanced: the share of the positive class, a public number; of more classes all, with "
            "commas. Without it: released first, at a twentieth of epsilon.",
            rich_help_panel=DATA,
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
        typer.Option(help="Write the model here, JSON for `privopt predict`.", rich_help_panel=OUTPUT),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Learn an integer scorecard, with a --loss a linear model, with --model a tree or rules; print it."""
    check_mechanism(mechanism, ("auto", *SCORECARD_MECHANISMS, *RISK_MECHANISMS, *ROBUST_FITS))
    options = LinearOptions(
        loss, convex_set, regularizer, data_norm, label_range, steps, norm, robust or None
    )
    card = CardOptions(oracle, lattice, calibration, max_columns, max_work, risk_share)
    others = dict.fromkeys(options.names, True) | card.given
    others |= {"--mechanism": mechanism != "auto", "--delta": delta != "auto", "--risk-share": False}
    tree = is_tree(model, max_depth, others)
    linear = not tree and is_linear(mechanism, options, card.given)
    check_delta_option(delta, mechanism)
    weights, shares = parse_weights(class_weight), parse_prevalence(prevalence)
    with ExitStack() as files:
        kept = files.enter_context(PaidFile(save, "--save"))
        report = None if json_file is None else files.enter_context(PaidFile(json_file, "--json"))
        book = None if ledger is None else open_ledger(ledger)
        with accounted(book):
            facts = marked_schema(schema, na_values)
            records = read_labelled(data, target, facts, split_classes(classes), table)
        if model == "auto":
            held = 2 if records.classes is None else len(records.classes)
            choice = choose_model(records.unread().n_records, epsilon, classes=held)
            model, tree = choice.model, choice.model != "card"
        with stoppable(time_limit) as limits:
            budget: dict[str, Any] = {
                "epsilon": epsilon,
                "delta": parse_delta(delta),
                "mechanism": mechanism,
                "class_weight": weights,
                "prevalence": shares,
                "limits": limits,
                "ledger": book,
                "insecure_seed": insecure_seed,
            }
            began = time.monotonic()
            fitted: Any
            with accounted(book):
                if tree:
                    pure = {k: value for k, value in budget.items() if k not in ("delta", "mechanism")}
                    fitted = fit_tree(records, model, max_depth, risk_share=risk_share, **pure)
                elif linear:
                    fitted = fit_linear(records, options, **budget)
                else:
                    fitted = fit_card(records, card, **budget)
            # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
            kept.keep(json.dumps(fitted.to_dict(), indent=2) + "\n")
        told, shown = (tree_report, show_tree) if tree else _account(linear)
        with showing("the model was released, and is paid for", kept):
            account = told(fitted, records, time.monotonic() - began)
            if report is not None:
                report.keep(json.dumps(account, indent=2) + "\n")
            shown(fitted, account, tell)


def _account(linear: bool) -> tuple[Any, Any]:
    """Return the functions that report a model and print it."""
    return (linear_report, show_linear) if linear else (card_report, show_card)

"""``privopt fit``: private models of every family from a table and public facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import typer
from rich.console import Console

from privopt.experiments.cli import options as opt
from privopt.experiments.cli.families import (
    ADDITIVE,
    AUTO,
    CARD,
    LINEAR,
    ROBUST,
    RULES,
    TREE,
    requested_family,
)
from privopt.experiments.cli.files import json_text, paid_files, showing
from privopt.experiments.cli.learned import LearnedFit, read_for_learning
from privopt.experiments.cli.linear import (
    linear_constructor,
    linear_report,
    robust_constructor,
    show_linear,
)
from privopt.experiments.cli.parsing import marked_schema, of_persons, parse_records, split_classes
from privopt.experiments.cli.running import accounted, open_ledger, stoppable
from privopt.experiments.cli.scorecard import card_constructor, card_report, show_card
from privopt.experiments.cli.tables import Labelled, read_labelled
from privopt.experiments.cli.tree import choice_line, chosen_model, show_tree, tree_constructor, tree_report
from privopt.oracles.limits import MOST_WORK
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@dataclass(frozen=True)
class Steps:
    """The parts of a fit that depend on the family: estimator from options, report, printing."""

    constructor: Callable[..., Callable[..., Any]]
    report: Callable[..., dict[str, Any]]
    show: Callable[..., None]
    counted: bool = False  # whether a long table may be reduced to counts of equal records


STEPS = {
    CARD.name: Steps(card_constructor, card_report, show_card, counted=True),
    LINEAR.name: Steps(linear_constructor, linear_report, show_linear, counted=True),
    ROBUST.name: Steps(robust_constructor, linear_report, show_linear),
    TREE.name: Steps(tree_constructor, tree_report, show_tree),
    RULES.name: Steps(tree_constructor, tree_report, show_tree),
    ADDITIVE.name: Steps(tree_constructor, tree_report, show_tree),
}

FIT_EXAMPLES = """Examples:

privopt fit --data adult23 --epsilon 1

privopt fit --data patients.csv --target state --classes well,ill --schema s.toml --epsilon 1 --save m.json

privopt fit --data bills.csv --target cost --epsilon 1 --model robust --loss squared --save m.json

privopt fit --data patients.csv --target state --schema s.toml --classes well,ill --epsilon 1 --model tree

privopt fit --data adult23 --epsilon 0.5 --mechanism exponential --lattice -4:4:4.8

privopt fit --data adult23 --epsilon 1 --model linear --mechanism dp-gd --json report.json

privopt fit --data bills.csv --target cost --epsilon 1 --loss squared --label-range 0:9 --max-features 5"""


@app.command(epilog=FIT_EXAMPLES)
def fit(
    context: typer.Context,
    data: opt.DataOption,
    epsilon: opt.EpsilonOption,
    target: opt.TargetOption = None,
    table: opt.TableOption = None,
    schema: opt.SchemaOption = None,
    learn_schema: opt.LearnOption = None,
    types: opt.TypesOption = None,
    classes: opt.ClassesOption = None,
    na_values: opt.MarkersOption = None,
    model: opt.ModelOption = None,
    ranking: opt.RankingOption = False,
    mechanism: opt.MechanismOption = "auto",
    robust: opt.RobustOption = False,
    delta: opt.DeltaOption = "auto",
    person: opt.PersonOption = None,
    records_per_person: opt.RecordsOption = "1",
    sample_weight: opt.SampleWeightOption = None,
    max_weight: opt.MaxWeightOption = None,
    ledger: opt.LedgerOption = None,
    insecure_seed: opt.SeedOption = None,
    class_weight: opt.WeightOption = None,
    prevalence: opt.PrevalenceOption = None,
    numbers: opt.NumbersOption = "auto",
    lattice: opt.LatticeOption = None,
    max_columns: opt.ColumnsOption = None,
    constraint: opt.ConstraintOption = None,
    card_solver: opt.CardSolverOption = "auto",
    oracle: opt.OracleOption = "auto",
    max_work: opt.WorkOption = MOST_WORK,
    calibration: opt.CalibrationOption = "sound",
    risk_share: opt.RiskOption = 0.0,
    max_depth: opt.DepthOption = "auto",
    loss: opt.LossOption = None,
    steps: opt.StepsOption = None,
    convex_set: opt.SetOption = None,
    regularizer: opt.PenaltyOption = None,
    data_norm: opt.NormOption = None,
    norm: opt.NormKindOption = None,
    label_range: opt.LabelOption = None,
    max_features: opt.FeaturesOption = None,
    errors: opt.ErrorsOption = None,
    time_limit: opt.TimeOption = None,
    save: opt.SaveOption = None,
    json_file: opt.JsonOption = None,
) -> None:
    """Fit a private model and print it: a scorecard, linear or robust model, tree or rule list."""
    family = requested_family(context)
    steps_of = STEPS[CARD.name if family is AUTO else family.name]
    construct = steps_of.constructor(context.params)  # reads the options of the family
    with paid_files(save, json_file) as (kept, report):
        book = None if ledger is None else open_ledger(ledger)
        with accounted(book):
            records, learning, person = _opened(context.params)
        if family is AUTO:
            steps_of, construct = _chosen(records, person, context.params)
        with stoppable(time_limit) as limits:
            began = time.monotonic()
            with accounted(book):
                made = partial(
                    construct,
                    classes=records.classes,
                    person=person,
                    records_per_person=parse_records(records_per_person),
                    limits=limits,
                    ledger=book,
                    insecure_seed=insecure_seed,
                )
                if learning is not None:
                    fitted = learning.fit(made(schema=None))
                else:
                    facts = records.inferred(book) if family is LINEAR else records.schema
                    fitted = _fitted(made(schema=facts), records, counted=steps_of.counted and person is None)
                fitted.target_ = records.target
            # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
            kept.keep(json_text(fitted.to_dict()))
        with showing("the model was released, and is paid for", kept):
            account = steps_of.report(fitted, records, time.monotonic() - began)
            if report is not None:
                report.keep(json_text(account))
            steps_of.show(fitted, account, tell)


def _chosen(
    records: Labelled, person: str | None, options: Mapping[str, Any]
) -> tuple[Steps, Callable[..., Any]]:
    """Choose the model of --model auto and print the choice; return its steps and its constructor."""
    classes = 2 if records.classes is None else len(records.classes)
    chosen = chosen_model(records.units(person), classes, options)
    tell.print(choice_line(chosen), markup=False, highlight=False)
    steps = STEPS[chosen.model]
    return steps, steps.constructor({**options, "model": chosen.model})


def _fitted(made: Any, records: Labelled, *, counted: bool) -> Any:
    """Fit an estimator; with ``counted``, a long table without weights is reduced to its counts."""
    if records.weights is not None:
        return made.fit(records.unread(counted=False), sample_weight=records.weights)
    return made.fit(records.unread(counted=counted))


def _opened(options: Mapping[str, Any]) -> tuple[Labelled, LearnedFit | None, str | None]:
    """Open the records of --data, and find their column of persons; no cell is interpreted.

    Returns:
        The records, the fit that learns a schema from them (None without --learn-schema), and the column of
        persons (None if every record counts as a person).
    """
    data, target, schema, table = (options[name] for name in ("data", "target", "schema", "table"))
    share, types, na_values, person = (
        options[name] for name in ("learn_schema", "types", "na_values", "person")
    )
    labels, weight = split_classes(options["classes"]), options["sample_weight"]
    if options["max_weight"] is not None and weight is None:
        raise InvalidInputError("--max-weight belongs to --sample-weight, the column of weights")
    if share is not None:
        if weight is not None:
            raise InvalidInputError(
                "--sample-weight and --learn-schema: a learned schema counts every record once. To do: learn "
                "the schema first, by `privopt schema learn`"
            )
        learning = read_for_learning(data, target, schema, labels, table, na_values, share, types, person)
        return learning.records, learning, person
    if types is not None:
        raise InvalidInputError("--types belongs to --learn-schema")
    facts, person = of_persons(marked_schema(schema, na_values), person)
    return read_labelled(data, target, facts, labels, table, person, weight), None, person

"""``privopt search``: the best of several private models, within one budget."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli import fit as fitting
from privopt.experiments.cli import options as opt
from privopt.experiments.cli.families import AUTO, FAMILIES, requested_family
from privopt.experiments.cli.files import json_text, paid_files, say, showing
from privopt.experiments.cli.parsing import (
    marked_schema,
    of_persons,
    parse_delta,
    parse_records,
    split_classes,
)
from privopt.experiments.cli.plan import show
from privopt.experiments.cli.running import accounted, open_ledger, stoppable
from privopt.experiments.cli.table_output import print_lines
from privopt.experiments.cli.tables import Labelled, read_labelled
from privopt.mechanisms.estimators.search import PrivateSearchCV, SearchPlan
from privopt.mechanisms.tuning.record_scores import CLASS_SCORES, REGRESSION_SCORES
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_address

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)

# Options of `privopt fit` that a candidate may have.
_OPTIONS = frozenset({"--model"}).union(*(family.options for family in FAMILIES.values())) - {"--delta"}

SEARCH_EXAMPLES = """Examples:

privopt search --data adult23 --epsilon 1 --candidate "--model tree" --candidate "--model card"

privopt search --data patients.csv --target state --schema s.toml --classes well,ill --epsilon 1
--candidate "--model tree --max-depth 2" --candidate "--model tree --max-depth 3" --save best.json

privopt search --data adult23 --epsilon 1 --candidate "--model card" --candidate "--model linear" --plan"""


@dataclass(frozen=True)
class _Candidate:
    """A candidate: its options as given, and the steps and constructor of its family."""

    text: str
    steps: fitting.Steps
    construct: Callable[..., Any]


@app.command(epilog=SEARCH_EXAMPLES)
def search(
    data: opt.DataOption,
    epsilon: opt.EpsilonOption,
    candidate: Annotated[
        list[str],
        typer.Option(
            "--candidate",
            metavar='"OPTIONS"',
            help='Options of `privopt fit` for one model, in quotes: "--model tree --max-depth 2". At least '
            "two candidates: repeat the option.",
        ),
    ],
    target: opt.TargetOption = None,
    schema: opt.SchemaOption = None,
    classes: opt.ClassesOption = None,
    na_values: opt.MarkersOption = None,
    scoring: Annotated[
        str | None,
        typer.Option(
            help=f"Score of a record: {', '.join([*CLASS_SCORES, *REGRESSION_SCORES])}. Default: accuracy, "
            "or squared_error in regression."
        ),
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the records, drawn at random, that models are scored on.")
    ] = 0.2,
    delta: opt.DeltaOption = "auto",
    ledger: opt.LedgerOption = None,
    insecure_seed: opt.SeedOption = None,
    person: opt.PersonOption = None,
    records_per_person: opt.RecordsOption = "1",
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Show what to expect, and whether --ledger affords it; run nothing."),
    ] = False,
    time_limit: opt.TimeOption = None,
    save: opt.SaveOption = None,
    json_file: opt.JsonOption = None,
) -> None:
    """Search for the best of several private models, within one budget for all of them together."""
    candidates = [_parsed(text) for text in candidate]
    with paid_files(save, json_file) as (kept, report):
        book = None if ledger is None else open_ledger(ledger)
        with accounted(book):
            records, person = _read(data, target, marked_schema(schema, na_values), classes, person)
            made = PrivateSearchCV(
                [_model(one, records) for one in candidates],
                epsilon=epsilon,
                delta=parse_delta(delta),
                scoring=scoring,
                held_out=held_out,
                ledger=book,
                insecure_seed=insecure_seed,
                person=person,
                records_per_person=parse_records(records_per_person),
            )
            planned = made.plan(records.units(person), records.unread().n_columns)
        if plan:
            show({}, str(planned).splitlines(), planned.spend, as_json=False, ledger=ledger)
            return
        print_lines(say, planned.expected)  # before anything is spent: standard output may be broken
        with stoppable(time_limit) as limits:
            began = time.monotonic()
            with accounted(book):
                made.set_params(limits=limits).fit(*records.in_memory())
            best = made.best_estimator_
            best.target_ = records.target
            # Saved before it is printed, so that a broken terminal, pipe or full disk cannot lose it.
            kept.keep(json_text(best.to_dict()))
        with showing("the model was released, and is paid for", kept):
            chosen = candidates[made.best_index_]
            account = chosen.steps.report(best, records, time.monotonic() - began)
            if report is not None:
                whole = account | _search_report(made, planned, candidate)
                report.keep(json_text(whole))
            _show_choice(made, chosen)
            chosen.steps.show(best, account, tell)


def _read(
    data: str, target: str | None, schema: Schema | None, classes: str | None, person: str | None
) -> tuple[Labelled, str | None]:
    """Read the records of a file, and find their column of persons."""
    if is_engine_address(data):
        raise InvalidInputError(
            "--data: a search splits records at random, so it takes a file, not a table in an engine"
        )
    facts, person = of_persons(schema, person)
    return read_labelled(data, target, facts, split_classes(classes), person=person), person


def _parsed(text: str) -> _Candidate:
    """Parse the options of a candidate as `privopt fit` parses its own.

    Raises:
        InvalidInputError: options that belong to the search, or to no fit; a model that is not named.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInputError(f"--candidate {text!r}: {error}") from None
    named = [word.partition("=")[0] for word in words if word.startswith("-") and not _is_number(word)]
    if wrong := [name for name in named if name not in _OPTIONS]:
        raise InvalidInputError(
            f"--candidate {text!r}: {', '.join(wrong)} is no option of a candidate, which has the options of "
            "one model; data, budget and limits are those of the search"
        )
    command = typer.main.get_command(fitting.app)
    context: Any = command.make_context("--candidate", ["--data", "", "--epsilon", "1", *words])
    family = requested_family(context)
    if family is AUTO:
        raise InvalidInputError(
            f"--candidate {text!r}: name a model; auto already chooses by public facts, without a search"
        )
    steps = fitting.STEPS[family.name]
    return _Candidate(text, steps, steps.constructor(context.params))


def _is_number(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."


def _model(candidate: _Candidate, records: Labelled) -> Any:
    return candidate.construct(
        schema=records.schema, classes=records.classes, limits=None, ledger=None, insecure_seed=None
    )


def _search_report(made: PrivateSearchCV, planned: SearchPlan, texts: list[str]) -> dict[str, Any]:
    """Return the part of the report about the search; all of it is covered by the spend."""
    return {
        "candidates": texts,
        "best_candidate": texts[made.best_index_],
        "best_score": made.best_score_,
        "scoring": made.scorer_,
        "expected": list(planned.expected),
    }


def _show_choice(made: PrivateSearchCV, chosen: _Candidate) -> None:
    lines = (
        f"best candidate: {chosen.text}",
        f"score: {made.best_score_:.4f} ({made.scorer_}, noisy, and optimistic as the best of several)",
    )
    print_lines(tell, lines)

"""``privopt card``: a saved scorecard as a printable page, Markdown, JSON or SQL."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from privopt.experiments.cli.files import check_files
from privopt.experiments.cli.linear import load_linear
from privopt.experiments.cli.tree import TreeModel, load_tree
from privopt.mechanisms.estimators.additive import PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.additive_card import additive_page
from privopt.mechanisms.estimators.card_choice import choice_page
from privopt.mechanisms.estimators.class_card import ClassCard
from privopt.mechanisms.estimators.class_page import class_page
from privopt.mechanisms.estimators.page import card_page
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.tree_page import tree_page
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import write_atomically

app = typer.Typer()
_KINDS = {".html": "html", ".md": "markdown", ".json": "json", ".sql": "sql", ".svg": "svg"}


@app.command()
def card(
    model: Annotated[
        Path, typer.Argument(help="Scorecard, tree or rule list written by `privopt fit --save`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Output file: .html (a page to print), .md, .json or .sql; for trees also .svg (a picture). "
            "Default: print Markdown."
        ),
    ] = None,
    no_negative_points: Annotated[
        bool,
        typer.Option("--no-negative-points", help="Shift the points of every column so that the least is 0."),
    ] = False,
    evaluation: Annotated[
        Path | None, typer.Option(help="For .html: evaluation written by `privopt evaluate --json`.")
    ] = None,
    title: Annotated[str, typer.Option(help="For .html: title of the page.")] = "",
    table: Annotated[str, typer.Option(help="For .sql: name of the table.")] = "records",
    several: Annotated[
        int | None,
        typer.Option(
            help="Show this many cards near the private model behind a card side by side, to choose one by "
            "the meaning of its points; costs no privacy. For cards of the mechanism seeded, as .html, .md "
            "or .json."
        ),
    ] = None,
    gap: Annotated[
        float, typer.Option(help="With --several: largest distance to the model beyond the released card's.")
    ] = 0.1,
) -> None:
    """Print a saved scorecard, tree or rule list with its risks, as a page, Markdown, JSON or SQL; costs
    no privacy.
    """
    kind = "markdown" if output is None else _KINDS.get(output.suffix.lower(), "")
    if not kind:
        raise InvalidInputError(f"--output {output}: its name must end in {', '.join(_KINDS)}")
    _check_options(kind, evaluation, title, table, several, gap, no_negative_points)
    check_files({"--output": output})
    loaded = _load(model)
    if not isinstance(loaded, PrivateHalfspaceClassifier):
        if no_negative_points or several is not None:
            option = "--no-negative-points" if no_negative_points else "--several"
            raise InvalidInputError(f"{option} is for scorecards: trees have no points")
        text = _tree_text(loaded, kind, evaluation, title, table)
    elif kind == "svg":
        raise InvalidInputError("a picture (.svg) is of a tree or rule list: for a scorecard write .html")
    elif several is None:
        text = _text(loaded, kind, no_negative_points, evaluation, title, table)
    else:
        text = _several_text(loaded, kind, several, gap, title)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)


def _load(model: Path) -> PrivateHalfspaceClassifier | TreeModel:
    """Load a saved scorecard, tree or rule list; a linear model is refused."""
    if (linear := load_linear(model)) is not None:
        raise InvalidInputError(
            f"{model} holds a linear model ({type(linear).__name__}): cards are of scorecards, which are "
            "fitted without --loss, --robust and the names of linear mechanisms"
        )
    return load_tree(model) or PrivateHalfspaceClassifier.load(model)


def _check_options(
    kind: str,
    evaluation: Path | None,
    title: str,
    table: str,
    several: int | None,
    gap: float,
    no_negative_points: bool,
) -> None:
    """Raise InvalidInputError for options that do not go with the kind of output, or with each other."""
    for option, given, where in (
        ("--evaluation", evaluation is not None, "html"),
        ("--title", bool(title), "html"),
        ("--table", table != "records", "sql"),
    ):
        if given and kind != where:
            raise InvalidInputError(f"{option} belongs to an --output that ends in .{where}")
    if several is None and gap != 0.1:
        raise InvalidInputError("--gap belongs to --several")
    if several is not None and (kind == "sql" or evaluation is not None or no_negative_points):
        raise InvalidInputError(
            "--several goes with --title, and an --output that ends in .html, .md or .json"
        )
    if kind == "sql" and no_negative_points:
        raise InvalidInputError(
            "--no-negative-points does not apply to .sql, which contains the points of the model"
        )


def _text(
    model: PrivateHalfspaceClassifier,
    kind: str,
    shifted: bool,
    evaluation: Path | None,
    title: str,
    table: str,
) -> str:
    if kind == "sql":
        return model.to_sql(table)
    shown = model.card_.without_negative_points() if shifted else model.card_
    if isinstance(shown, ClassCard):
        return _class_text(shown, kind, evaluation, title)
    if kind == "markdown":
        return shown.to_markdown()
    if kind == "json":
        return json.dumps(shown.to_dict(), indent=2) + "\n"
    if evaluation is not None:
        return card_page(shown, _evaluation(evaluation), title=title)
    if model.histogram_ is None:
        return card_page(shown, title=title)
    own = Evaluation(model.histogram_, (model.classes_[0], model.classes_[1]))
    return card_page(shown, own, seen=True, title=title)


def _several_text(model: PrivateHalfspaceClassifier, kind: str, several: int, gap: float, title: str) -> str:
    choice = model.near_cards(several, gap=gap)
    if kind == "markdown":
        return choice.to_markdown()
    if kind == "json":
        return json.dumps(choice.to_dict(), indent=2) + "\n"
    return choice_page(choice, title=title)


def _class_text(card: ClassCard, kind: str, evaluation: Path | None, title: str) -> str:
    if kind == "markdown":
        return card.to_markdown()
    if kind == "json":
        return json.dumps(card.to_dict(), indent=2) + "\n"
    if evaluation is not None:
        raise InvalidInputError(
            "--evaluation is for cards of two classes; `privopt evaluate` prints that of several"
        )
    return class_page(card, title=title)


def _tree_text(model: TreeModel, kind: str, evaluation: Path | None, title: str, table: str) -> str:
    if isinstance(model, PrivateAdditiveTreeClassifier):
        return _additive_text(model, kind, evaluation, title, table)
    if kind == "sql":
        return model.to_sql(table)
    if kind == "svg":
        return model.card_.to_svg() + "\n"
    if kind == "markdown":
        return model.card_.to_markdown()
    if kind == "json":
        return json.dumps(model.card_.to_dict(), indent=2) + "\n"
    return tree_page(model.card_, None if evaluation is None else _evaluation(evaluation), title=title)


def _additive_text(
    model: PrivateAdditiveTreeClassifier, kind: str, evaluation: Path | None, title: str, table: str
) -> str:
    if kind == "sql":
        return model.to_sql(table)
    if kind == "markdown":
        return model.card_.to_markdown()
    if kind == "json":
        return json.dumps(model.card_.to_dict(), indent=2) + "\n"
    if kind == "html":
        measured = None if evaluation is None else _evaluation(evaluation)
        return additive_page(model.card_, measured, title=title)
    raise InvalidInputError(
        "an additive model is written as .html, .md, .json or .sql: a picture (.svg) of its tree would "
        "leave out the points of its card"
    )


def _evaluation(path: Path) -> Evaluation:
    """Read an evaluation that ``privopt evaluate --json`` wrote.

    Raises:
        InvalidInputError: another kind of file.
    """
    try:
        return Evaluation.from_dict(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"--evaluation {path}: `privopt evaluate --json` did not write that ({type(error).__name__})"
        ) from error

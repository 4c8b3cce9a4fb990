"""``privopt card``: a saved scorecard as a printable page, Markdown, JSON or SQL."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from privopt.experiments.cli.files import check_files, json_text
from privopt.experiments.cli.linear import load_linear
from privopt.experiments.cli.tree import TreeModel, load_tree
from privopt.mechanisms.estimators.additive_card import AdditiveCard, additive_page
from privopt.mechanisms.estimators.card import Card
from privopt.mechanisms.estimators.card_choice import CardChoice, choice_page
from privopt.mechanisms.estimators.class_card import ClassCard
from privopt.mechanisms.estimators.class_page import class_page
from privopt.mechanisms.estimators.page import card_page
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.estimators.tree_page import tree_page
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import write_atomically

app = typer.Typer()
AnyCard = Card | ClassCard | CardChoice | TreeCard | AdditiveCard
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
            help="Show this many cards side by side, all near the private linear model behind the card, to "
            "choose one by the meaning of its points; costs no privacy. For cards of the mechanism seeded, "
            "as .html, .md or .json."
        ),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(
            help="With --several: how much farther from that model a card may be than the released one, as a "
            "share, in (0, 1], of the distance of a card without points."
        ),
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
    shown = _card_of(loaded, no_negative_points, several, gap)
    if kind == "sql":
        text = loaded.to_sql(table)
    elif kind == "markdown":
        text = shown.to_markdown()
    elif kind == "json":
        text = json_text(shown.to_dict())
    elif kind == "svg":
        text = _picture(shown)
    else:
        text = _page(loaded, shown, evaluation, title)
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
    if several is not None and (kind in ("sql", "svg") or evaluation is not None or no_negative_points):
        raise InvalidInputError(
            "--several goes with --title, and an --output that ends in .html, .md or .json"
        )
    if kind == "sql" and no_negative_points:
        raise InvalidInputError(
            "--no-negative-points does not apply to .sql, which contains the points of the model"
        )


def _card_of(
    model: PrivateHalfspaceClassifier | TreeModel, shifted: bool, several: int | None, gap: float
) -> AnyCard:
    """Return the card of a model: without negative points if ``shifted``, otherwise cards side by side if
    ``several``.
    """
    if isinstance(model, PrivateHalfspaceClassifier):
        if several is not None:
            return model.near_cards(several, gap=gap)
        return model.card_.without_negative_points() if shifted else model.card_
    if shifted or several is not None:
        option = "--no-negative-points" if shifted else "--several"
        raise InvalidInputError(f"{option} is for scorecards: trees have no points")
    return model.card_


def _picture(card: AnyCard) -> str:
    """Return a card of a tree or rule list as SVG."""
    if isinstance(card, TreeCard):
        return card.to_svg() + "\n"
    if isinstance(card, AdditiveCard):
        raise InvalidInputError(
            "an additive model is written as .html, .md, .json or .sql: a picture (.svg) of its tree would "
            "leave out the points of its card"
        )
    raise InvalidInputError("a picture (.svg) is of a tree or rule list: for a scorecard write .html")


def _page(model: Any, card: AnyCard, evaluation: Path | None, title: str) -> str:
    """Return a card as an HTML page, with an evaluation or what the fit counted privately."""
    if isinstance(card, CardChoice):
        return choice_page(card, title=title)
    if isinstance(card, ClassCard):
        if evaluation is not None:
            raise InvalidInputError(
                "--evaluation is for cards of two classes; `privopt evaluate` prints that of several"
            )
        return class_page(card, title=title)
    measured = None if evaluation is None else _evaluation(evaluation)
    if isinstance(card, AdditiveCard):
        return additive_page(card, measured, title=title)
    if isinstance(card, TreeCard):
        return tree_page(card, measured, title=title)
    if measured is not None or model.histogram_ is None:
        return card_page(card, measured, title=title)
    own = Evaluation(model.histogram_, (model.classes_[0], model.classes_[1]))
    return card_page(card, own, seen=True, title=title)


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

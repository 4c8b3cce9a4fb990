"""Decision trees and rule lists on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier, PrivateTreeClassifier, TreePlan
from privopt.problems.errors import InvalidInputError, did_you_mean

TreeModel = PrivateTreeClassifier | PrivateRuleListClassifier
MODELS = ("card", "tree", "rules")
# Keys of a report that are not private; epsilon covers all others.
NOT_PRIVATE = ["train_accuracy", "larger_class", "seconds"]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Kind of model: card (scorecard, the default), tree (decision tree) or rules (rule list).",
        rich_help_panel="Problem: decision trees and rule lists",
    ),
]
DepthOption = Annotated[
    str,
    typer.Option(
        "--max-depth",
        help="For trees and rule lists: the largest number of questions in a prediction, or of rules, 1 to "
        "4. auto: 4 for schemas with few predicates, otherwise 3.",
        rich_help_panel="Problem: decision trees and rule lists",
    ),
]


def is_tree(model: str | None, depth: str, others: dict[str, bool]) -> bool:
    """Return whether a tree or a rule list is requested.

    Args:
        model: the value of ``--model``.
        depth: the value of ``--max-depth``.
        others: options that trees and rule lists do not have, and whether they were given.

    Raises:
        InvalidInputError: an unknown model, or options of another.
    """
    if model is not None and model not in MODELS:
        raise InvalidInputError(
            f"--model {model!r}{did_you_mean(model, MODELS)}: there are {', '.join(MODELS)}"
        )
    if model in (None, "card"):
        if depth != "auto":
            raise InvalidInputError("--max-depth belongs to --model tree and --model rules")
        return False
    if wrong := [name for name, given in others.items() if given]:
        raise InvalidInputError(f"{', '.join(wrong)}: trees and rule lists (--model {model}) have none")
    return True


def made_tree(model: str | None, depth: str, epsilon: float, **options: Any) -> TreeModel:
    """Return an unfitted estimator of the requested kind."""
    levels: int | str = int(depth) if depth.isascii() and depth.isdigit() else depth
    if model == "rules":
        return PrivateRuleListClassifier(epsilon, max_rules=levels, **options)
    return PrivateTreeClassifier(epsilon, max_depth=levels, **options)


def fit_tree(records: Labelled, model: str | None, depth: str, epsilon: float, **options: Any) -> TreeModel:
    """Fit a tree or rule list. Privacy: as the estimator's."""
    fitted = made_tree(model, depth, epsilon, schema=records.schema, classes=records.classes, **options)
    fitted.fit(records.unread())
    fitted.target_ = records.target
    return fitted


def load_tree(path: Path) -> TreeModel | None:
    """Load a saved tree or rule list; None for other files."""
    try:
        beginning = path.read_text("utf-8-sig")[:200]
    except (OSError, ValueError):
        return None
    for kind in (PrivateTreeClassifier, PrivateRuleListClassifier):
        if f'"{kind.file_format}"' in beginning:
            return kind.load(path)
    return None


def tree_report(model: TreeModel, records: Labelled, seconds: float) -> dict[str, Any]:
    """Return a JSON-ready report of a fit; ``not_private`` names the entries outside the guarantee."""
    said, truth = model.predict(records.X), records.labels
    return {
        **model.spend_.to_dict(),
        **model.release_.noise,
        **model.card_.to_dict(),
        "levels": model.levels_,
        "predicates": len(model.predicates_),
        "not_private": NOT_PRIVATE,
        "train_accuracy": records.share(said == truth),
        "larger_class": max(records.share(truth == label) for label in model.classes_.tolist()),
        "seconds": seconds,
    }


def show_tree(model: TreeModel, report: dict[str, Any], console: Console) -> None:
    """Print the model and its spend."""
    card = model.card_
    lines = card.to_markdown().rstrip("\n").split("\n")[:-2] if card.risks is not None else card.lines()
    for line in (
        *lines,
        "",
        f"spend: {model.spend_}",
        *([f"in detail: {model.spend_.note}"] if model.spend_.note else []),
        f"up to {model.levels_} levels over {len(model.predicates_)} predicates",
        f"training accuracy (not private): {report['train_accuracy']:.4f}; share of the larger class: "
        f"{report['larger_class']:.4f}",
    ):
        console.print(line, markup=False, highlight=False)


def plan_lines(planned: TreePlan) -> list[str]:
    """Return the lines that describe a plan."""
    choice, levels = planned.plan.choice, planned.plan.levels
    return [
        f"spend: {planned.spend}",
        *([f"in detail: {planned.spend.note}"] if planned.spend.note else []),
        f"levels: {levels} ({planned.plan.reason})",
        f"predicates: {planned.predicates}; models: {float(choice.lattice.box_size):.3g}",
        f"noise: beta = {choice.beta:.6g}",
        f"about {max(planned.seconds, 0.01):.2g} s of processor time and {planned.memory / 1e6:.3g} MB, "
        "whatever the labels are; compiling takes some 7 s more once",
    ]


def plan_report(planned: TreePlan) -> dict[str, Any]:
    """Return the plan as plain numbers and strings."""
    return {
        **planned.spend.to_dict(),
        **planned.plan.choice.noise,
        "levels": planned.plan.levels,
        "levels_reason": planned.plan.reason,
        "predicates": planned.predicates,
        "seconds": planned.seconds,
        "memory": planned.memory,
    }

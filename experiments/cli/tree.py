"""The part of the command line that is about decision trees and rule lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.estimators.additive import AdditivePlan, PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.additive_card import AdditiveCard
from privopt.mechanisms.estimators.model_choice import ModelChoice
from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier, PrivateTreeClassifier, TreePlan
from privopt.problems.errors import InvalidInputError, did_you_mean

TreeModel = PrivateTreeClassifier | PrivateRuleListClassifier
AnyTreeModel = TreeModel | PrivateAdditiveTreeClassifier
MODELS = ("card", "tree", "rules", "additive", "auto")
# What a report says about itself: everything else in it is covered by epsilon.
NOT_PRIVATE = ["train_accuracy", "larger_class", "seconds"]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="card, tree or rules: a scorecard (the default), a decision tree, or a list of rules; additive: "
        "a card and a tree whose scores are added, for ranking; auto: card or tree, by public facts, which "
        "`privopt plan` tells.",
        rich_help_panel="Problem: decision trees and rule lists",
    ),
]
DepthOption = Annotated[
    str,
    typer.Option(
        "--max-depth",
        help="Of trees and rule lists: the most questions of a prediction, or rules, 1 to 4. auto: 4 for "
        "schemas with few predicates, otherwise 3.",
        rich_help_panel="Problem: decision trees and rule lists",
    ),
]


def is_tree(model: str | None, depth: str, others: dict[str, bool]) -> bool:
    """Return whether a tree or a rule list is requested.

    Args:
        model: what ``--model`` says.
        depth: what ``--max-depth`` says.
        others: options that trees and rule lists do not have, and whether they were given.

    Raises:
        InvalidInputError: another model, or options of another.
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


def made_tree(model: str | None, depth: str, epsilon: float, **options: Any) -> AnyTreeModel:
    """An estimator of the kind that was asked for."""
    levels: int | str = int(depth) if depth.isascii() and depth.isdigit() else depth
    if model == "additive":
        if options.pop("risk_share", 0.0):
            raise InvalidInputError("--risk-share: a card and a tree that are added have no risks")
        if options.get("class_weight") is None:
            options.pop("class_weight", None)  # balanced
        return PrivateAdditiveTreeClassifier(epsilon, max_depth=levels, **options)
    if model == "rules":
        return PrivateRuleListClassifier(epsilon, max_rules=levels, **options)
    return PrivateTreeClassifier(epsilon, max_depth=levels, **options)


def fit_tree(
    records: Labelled, model: str | None, depth: str, epsilon: float, **options: Any
) -> AnyTreeModel:
    """A fitted tree or rule list, or card and tree. Privacy: as the estimator's."""
    fitted = made_tree(model, depth, epsilon, schema=records.schema, classes=records.classes, **options)
    fitted.fit(records.unread())
    if isinstance(fitted, PrivateAdditiveTreeClassifier):
        fitted.name_target(records.target)
    else:
        fitted.target_ = records.target
    return fitted


def load_tree(path: Path) -> AnyTreeModel | None:
    """A saved tree or rule list, or card and tree; None where the file holds something else."""
    try:
        beginning = path.read_text("utf-8-sig")[:200]
    except (OSError, ValueError):
        return None
    for kind in (PrivateTreeClassifier, PrivateRuleListClassifier, PrivateAdditiveTreeClassifier):
        if f'"{kind.file_format}"' in beginning:
            return kind.load(path)  # type: ignore[attr-defined,no-any-return]
    return None


def tree_report(model: AnyTreeModel, records: Labelled, seconds: float) -> dict[str, Any]:
    """The machine-readable account of a fit. ``not_private`` names what the guarantee does not cover."""
    said, truth = model.predict(records.X), records.labels
    tree = model.tree_model_ if isinstance(model, PrivateAdditiveTreeClassifier) else model
    return {
        **model.spend_.to_dict(),
        **tree.release_.noise,
        **model.card_.to_dict(),
        "levels": tree.levels_,
        "predicates": len(tree.predicates_),
        "not_private": NOT_PRIVATE,
        "train_accuracy": records.share(said == truth),
        "larger_class": max(records.share(truth == label) for label in model.classes_.tolist()),
        "seconds": seconds,
    }


def show_tree(model: AnyTreeModel, report: dict[str, Any], console: Console) -> None:
    """The model and its account, for people."""
    card = model.card_
    if isinstance(card, AdditiveCard) or card.risks is not None:
        lines = card.to_markdown().rstrip("\n").split("\n")[:-2]
    else:
        lines = card.lines()
    for line in (
        *lines,
        "",
        f"spend: {model.spend_}",
        *([f"in detail: {model.spend_.note}"] if model.spend_.note else []),
        f"up to {report['levels']} levels over {report['predicates']} predicates",
        f"training accuracy (not private): {report['train_accuracy']:.4f}; share of the larger class: "
        f"{report['larger_class']:.4f}",
    ):
        console.print(line, markup=False, highlight=False)


def plan_lines(planned: TreePlan | AdditivePlan, chosen: ModelChoice | None = None) -> list[str]:
    """A plan, for people."""
    first = [] if chosen is None else [f"model: {chosen.model} ({chosen.reason})"]
    if isinstance(planned, AdditivePlan):
        card = f"card: {planned.card.plan.name}, {planned.card.reason}"
        lines = [f"spend: {planned.spend}", card, *(f"tree: {line}" for line in plan_lines(planned.tree)[1:])]
        return [*first, *lines]
    choice, levels = planned.plan.choice, planned.plan.levels
    return [
        *first,
        f"spend: {planned.spend}",
        *([f"in detail: {planned.spend.note}"] if planned.spend.note else []),
        f"levels: {levels} ({planned.plan.reason})",
        f"predicates: {planned.predicates}; models: {float(choice.lattice.box_size):.3g}",
        f"noise: beta = {choice.beta:.6g}",
        f"about {max(planned.seconds, 0.01):.2g} s of processor time and {planned.memory / 1e6:.3g} MB, "
        "whatever the labels are; compiling takes some 7 s more once",
    ]


def plan_report(planned: TreePlan | AdditivePlan, chosen: ModelChoice | None = None) -> dict[str, Any]:
    """The same, for programs."""
    kind = {} if chosen is None else {"model": chosen.model, "model_reason": chosen.reason}
    if isinstance(planned, AdditivePlan):
        tree = plan_report(planned.tree)
        return {**kind, **tree, **planned.spend.to_dict(), "card": planned.card.plan.name}
    return {
        **kind,
        **planned.spend.to_dict(),
        **planned.plan.choice.noise,
        "levels": planned.plan.levels,
        "levels_reason": planned.plan.reason,
        "predicates": planned.predicates,
        "seconds": planned.seconds,
        "memory": planned.memory,
    }

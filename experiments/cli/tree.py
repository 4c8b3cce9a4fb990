"""Decision trees, rule lists, and sums of a card and a tree, on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from privopt.experiments.cli.parsing import class_costs, parse_delta
from privopt.experiments.cli.table_output import print_lines
from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.estimators.additive import AdditivePlan, PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.additive_card import AdditiveCard
from privopt.mechanisms.estimators.model_choice import ModelChoice, choose_model
from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier, PrivateTreeClassifier, TreePlan
from privopt.problems.errors import InvalidInputError

TreeModel = PrivateTreeClassifier | PrivateRuleListClassifier | PrivateAdditiveTreeClassifier
# Keys of a report that are not private; epsilon covers all others.
NOT_PRIVATE = ["train_accuracy", "larger_class", "seconds"]


def tree_constructor(options: Mapping[str, Any]) -> Callable[..., TreeModel]:
    """Return a constructor of trees, rule lists or sums of card and tree, with the options of a command."""
    depth = options["max_depth"]
    levels = int(depth) if depth.isascii() and depth.isdigit() else depth
    if options["model"] == "additive":
        costs = {name: given for name, given in class_costs(options).items() if given is not None}
        delta = parse_delta(options["delta"])
        return partial(
            PrivateAdditiveTreeClassifier, options["epsilon"], delta=delta, max_depth=levels, **costs
        )
    common = {"epsilon": options["epsilon"], "risk_share": options["risk_share"], **class_costs(options)}
    if options["model"] == "rules":
        return partial(PrivateRuleListClassifier, max_rules=levels, **common)
    return partial(PrivateTreeClassifier, max_depth=levels, **common)


def load_tree(path: Path) -> TreeModel | None:
    """Load a saved tree, rule list, or sum of card and tree; None for other files."""
    try:
        beginning = path.read_text("utf-8-sig")[:200]
    except (OSError, ValueError):
        return None
    kinds: tuple[type[TreeModel], ...] = (
        PrivateTreeClassifier,
        PrivateRuleListClassifier,
        PrivateAdditiveTreeClassifier,
    )
    for kind in kinds:
        if f'"{kind.file_format}"' in beginning:
            return kind.load(path)
    return None


def tree_report(model: TreeModel, records: Labelled, seconds: float) -> dict[str, Any]:
    """Return a JSON-ready report of a fit; ``not_private`` names the entries outside the guarantee."""
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


def show_tree(model: TreeModel, report: dict[str, Any], console: Console) -> None:
    """Print the model and its spend."""
    card = model.card_
    if isinstance(card, AdditiveCard) or card.risks is not None:
        lines = card.to_markdown().rstrip("\n").split("\n")[:-2]
    else:
        lines = card.lines()
    whole = (
        *lines,
        "",
        f"spend: {model.spend_}",
        *([f"in detail: {model.spend_.note}"] if model.spend_.note else []),
        f"up to {report['levels']} levels over {report['predicates']} predicates",
        f"training accuracy (not private): {report['train_accuracy']:.4f}; share of the largest class: "
        f"{report['larger_class']:.4f}",
    )
    print_lines(console, whole)


def chosen_model(records: int, classes: int, options: Mapping[str, Any]) -> ModelChoice:
    """Return the model that --model auto stands for.

    Raises:
        InvalidInputError: --risk-share for a model that predicts no probabilities.
    """
    chosen = choose_model(records, options["epsilon"], classes=classes, ranking=options["ranking"])
    if chosen.model == "additive" and options["risk_share"]:
        raise InvalidInputError(
            f"--risk-share: {choice_line(chosen)}, which predicts scores and no probabilities. To do: "
            "leave out --risk-share, or --ranking"
        )
    return chosen


def choice_line(chosen: ModelChoice) -> str:
    """Return the line that names the model that was chosen, and why."""
    return f"model: {chosen.model} ({chosen.reason})"


def plan_report(planned: TreePlan | AdditivePlan) -> dict[str, Any]:
    """Return the plan as plain numbers and strings."""
    if isinstance(planned, AdditivePlan):
        parts = {"card_mechanism": planned.card.plan.name, **plan_report(planned.tree)}
        return {**parts, **planned.spend.to_dict()}
    return {
        **planned.spend.to_dict(),
        **planned.plan.choice.noise,
        "levels": planned.plan.levels,
        "levels_reason": planned.plan.reason,
        "predicates": planned.predicates,
        "noise_to_signal": planned.noise_to_signal.ratio,
        "seconds": planned.seconds,
        "memory": planned.memory,
    }

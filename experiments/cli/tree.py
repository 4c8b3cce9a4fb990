"""Decision trees and rule lists on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from privopt.experiments.cli.parsing import class_costs
from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier, PrivateTreeClassifier, TreePlan

TreeModel = PrivateTreeClassifier | PrivateRuleListClassifier
# Keys of a report that are not private; epsilon covers all others.
NOT_PRIVATE = ["train_accuracy", "larger_class", "seconds"]


def tree_constructor(options: Mapping[str, Any]) -> Callable[..., TreeModel]:
    """Return the estimator of a decision tree or a rule list, with the options of a command."""
    depth = options["max_depth"]
    levels = int(depth) if depth.isascii() and depth.isdigit() else depth
    common = {"epsilon": options["epsilon"], "risk_share": options["risk_share"], **class_costs(options)}
    if options["model"] == "rules":
        return partial(PrivateRuleListClassifier, max_rules=levels, **common)
    return partial(PrivateTreeClassifier, max_depth=levels, **common)


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

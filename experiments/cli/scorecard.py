"""Scorecards for ``privopt fit``: integer points, a decision rule, risks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.parsing import class_costs, parse_delta, parse_lattice, whole_bound
from privopt.experiments.cli.risks import risk_rows, risk_table
from privopt.experiments.cli.table_output import print_table
from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.rspm import LaplaceRSPM
from privopt.mechanisms.estimators.card import level_words
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.registry import MECHANISMS
from privopt.problems.errors import InvalidInputError

# Keys of a report that are not private; epsilon and delta cover all others.
NOT_PRIVATE = [
    "oracle", "train_accuracy", "larger_class", "said_to_be_positive", "certificate", "seconds",
]  # fmt: skip
NOT_PRIVATE_OF_CLASSES = ["train_accuracy", "larger_class", "seconds"]
_PURE = (ExponentialMechanism, LaplaceRSPM)  # the mechanism permute-and-flip is a subclass of the first


def card_constructor(options: Mapping[str, Any]) -> Callable[..., PrivateHalfspaceClassifier]:
    """Return a constructor of scorecards, with the options of a command.

    Raises:
        InvalidInputError: a malformed option, or a delta for a pure mechanism.
    """
    mechanism, delta = options["mechanism"], parse_delta(options["delta"])
    if delta != "auto" and mechanism in MECHANISMS and issubclass(MECHANISMS[mechanism], _PURE):
        raise InvalidInputError(f"--delta: {mechanism} is pure, and has none; leave it out")
    return partial(
        PrivateHalfspaceClassifier,
        options["epsilon"],
        delta=delta,
        mechanism=mechanism,
        oracle=options["oracle"],
        lattice=parse_lattice(options["lattice"]),
        calibration=options.get("calibration", "sound"),
        max_columns=options["max_columns"],
        constraints=options["constraint"],
        card_solver=options["card_solver"],
        max_work=options["max_work"],
        risk_share=options["risk_share"],
        max_weight=whole_bound(options.get("max_weight")),
        numbers=options.get("numbers", "auto"),
        **class_costs(options),
    )


def card_report(model: PrivateHalfspaceClassifier, records: Labelled, seconds: float) -> dict[str, Any]:
    """Return a JSON-ready report of a fit; ``not_private`` names the entries outside the guarantee."""
    spend, proof = model.spend_, model.certificate_
    said, truth, two = model.predict(records.X), records.labels, len(model.classes_) == 2
    certificate: dict[str, Any] = {"status": "EXACT_DRAW", "value": None, "bound": None, "gap": None}
    if proof is not None:
        certificate = {
            "status": proof.status.name,
            "value": proof.value,
            "bound": proof.bound,
            "gap": proof.gap,
        }
    return {
        **spend.to_dict(),
        **model.release_.noise,
        "mechanism": model.mechanism_,
        "mechanism_reason": model.mechanism_reason_,
        "oracle": model.release_.oracle,
        "features": model.schema_.feature_names,
        "weights": model.release_.point.tolist(),
        "rule": model.rule_,
        "scorecard": model.scorecard_.to_dict("records"),
        **({"constraints": list(map(str, model.constraints_))} if model.constraints_ else {}),
        "risks": None if model.risk_ is None else risk_rows(model.risk_),
        "not_private": NOT_PRIVATE if two else NOT_PRIVATE_OF_CLASSES,
        "train_accuracy": records.share(said == truth),
        "larger_class": max(records.share(truth == label) for label in model.classes_.tolist()),
        **({"said_to_be_positive": records.share(said == model.classes_[1])} if two else {}),
        **({"certificate": certificate} if two else {}),
        "seconds": seconds,
    }


def show_card(model: PrivateHalfspaceClassifier, report: dict[str, Any], console: Console) -> None:
    """Print points, constraints, risks and spend; numbers that are not private are marked as such."""
    card, without = _points_table(model)
    print_table(console, card)
    if without:
        console.print(f"no points for {', '.join(without)}", markup=False, highlight=False)
    if model.constraints_:
        said = "; ".join(map(str, model.constraints_))
        console.print(f"constraints: {said}", markup=False, highlight=False)
    if model.risk_ is not None:
        print_table(console, risk_table(model.risk_, model.card_.names[1]))
    drawn = f"certificate (not private): {model.certificate_ or 'an exact draw needs none'}"
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in model.release_.noise.items())
    for line in (
        f"spend: {model.spend_}",
        *([f"in detail: {model.spend_.note}"] if model.spend_.note else []),
        f"mechanism: {model.mechanism_} ({model.mechanism_reason_})",
        f"noise: {noise}",
        *([drawn] if "certificate" in report else []),
        f"training accuracy (not private): {report['train_accuracy']:.4f}; share of the largest class: "
        f"{report['larger_class']:.4f}",
        *_one_sided(model, report),
    ):
        console.print(line, markup=False)


def _points_table(model: PrivateHalfspaceClassifier) -> tuple[Table, list[str]]:
    """Return a table of the points, and the titles of the columns without points, which it leaves out."""
    schema = model.schema_
    words = [level for column in schema.columns for level in level_words(column)]
    points = model.scorecard_.assign(level=[*words, *["always"] * schema.intercept])
    card = Table(*points.columns, title=escape(model.rule_))
    titles = schema.titles
    without = []  # a card has few columns, a table may have many
    for name, levels in points.groupby("feature", sort=False):
        shown = titles.get(str(name), str(name))
        if np.any(levels.iloc[:, 2:]) or (name, len(levels)) == ("intercept", 1):
            for _, *row in levels.itertuples(index=False):
                card.add_row(escape(shown), *(escape(str(cell)) for cell in row))
        else:
            without.append(shown)
    return card, without


def _one_sided(model: PrivateHalfspaceClassifier, report: dict[str, Any]) -> list[str]:
    """Return a note if the card predicts one class for all records."""
    if 0 < report.get("said_to_be_positive", 0.5) < 1:
        return []
    only = model.classes_[int(report["said_to_be_positive"])]
    return [
        f"note (not private): this card predicts {only} for every record here. Its scores may still "
        "rank them; a larger weight of the rarer class (--class-weight balanced) may help"
    ]

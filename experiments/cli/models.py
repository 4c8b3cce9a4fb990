"""Loading of saved models of any kind, and their predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from privopt.experiments.cli.linear import load_linear
from privopt.experiments.cli.tree import load_tree
from privopt.mechanisms.estimators.additive import PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.frames import missing_columns


def load_model(path: Path) -> Any:
    """Load a fitted scorecard, linear model, tree or rule list.

    Raises:
        InvalidInputError: the file holds no such model.
    """
    return load_tree(path) or load_linear(path) or PrivateHalfspaceClassifier.load(path)


def check_proba(model: Any, proba: bool) -> None:
    """Raise InvalidInputError if probabilities are requested of a model without them."""
    if proba and not hasattr(model, "predict_proba"):
        raise InvalidInputError(f"--proba: {_without_probabilities(model)}")


def predictions(model: Any, table: pd.DataFrame, proba: bool = False) -> pd.DataFrame:
    """Return predictions, scores of models with two classes, and on request class probabilities.

    Raises:
        InvalidInputError: an unusable table.
    """
    if model.schema_ is None and hasattr(model, "feature_names_in_"):
        names = list(model.feature_names_in_)
        if missing := [name for name in names if name not in table.columns]:
            found = missing_columns(missing, list(table.columns))
            raise InvalidInputError(f"missing from the table: {found}")
        table = table[names]
    scored = pd.DataFrame({"prediction": model.predict(table)})
    classes = getattr(model, "classes_", ())
    if len(classes) == 2:
        scored.insert(0, "score", model.decision_function(table))
    if proba:
        probabilities = model.predict_proba(table)
        for k, name in enumerate(classes):
            scored[f"probability of {name}"] = probabilities[:, k]
    return scored


def _without_probabilities(model: Any) -> str:
    if isinstance(model, PrivateAdditiveTreeClassifier):
        return "the sum of a card and a tree predicts scores; use --model card or tree with --risk-share"
    if hasattr(model, "branches_"):
        return "this model was fitted without risks; `privopt fit --risk-share` pays for them"
    if isinstance(model, PrivateHalfspaceClassifier):
        return "this scorecard was fitted without risks; `privopt fit --risk-share` pays for them"
    if hasattr(model, "classes_"):
        return "the sigmoid loss gives no probabilities; use --loss logistic"
    return "regression predicts numbers, not classes"

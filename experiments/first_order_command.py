"""The first-order part of ``privopt fit``, ``calibrate`` and ``predict``: linear models with real weights."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from privopt.mechanisms.classifier import write_atomically
from privopt.mechanisms.estimators import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.perturbation import ObjectivePerturbation, OutputPerturbation
from privopt.mechanisms.risk_registry import (
    RISK_MECHANISMS,
    choose_risk_mechanism,
    parse_regularizer,
    parse_set,
)
from privopt.problems.errors import InvalidInputError
from privopt.problems.losses import BiweightLoss, HuberLoss, LogisticLoss, Loss, SigmoidLoss, SquaredLoss
from privopt.problems.risk import RiskFacts
from privopt.problems.schema import Schema

LOSSES = "logistic, sigmoid, squared, huber:THRESHOLD or biweight:C"
NOT_PRIVATE = ["train_accuracy", "train_r2", "seconds"]
_NEWTON = (OutputPerturbation.name, ObjectivePerturbation.name)

LinearModel = PrivateLogisticRegression | PrivateSigmoidClassifier | PrivateLinearRegression
_ESTIMATORS: dict[str, type[Any]] = {
    e.__name__: e for e in (PrivateLogisticRegression, PrivateSigmoidClassifier, PrivateLinearRegression)
}


@dataclass(frozen=True)
class LinearOptions:
    """What the command line says about a linear model beside mechanism and budget; None: nothing."""

    loss: str | None = None
    convex_set: str | None = None
    regularizer: str | None = None
    data_norm: float | None = None
    label_bound: float | None = None
    steps: int | None = None

    @property
    def given(self) -> bool:
        return self != LinearOptions()


def is_linear(mechanism: str, options: LinearOptions, scorecard: dict[str, bool]) -> bool:
    """Whether a linear model is asked for: by the mechanism's name, or, under "auto", by its options.

    Args:
        mechanism: a name.
        options: what only linear models have.
        scorecard: what only scorecards have: option names, and whether they were given.

    Raises:
        InvalidInputError: options of one with a mechanism of the other.
    """
    linear = mechanism in RISK_MECHANISMS or (mechanism == "auto" and options.given)
    wrong = [name for name, used in scorecard.items() if used]
    if linear and wrong:
        raise InvalidInputError(
            f"{', '.join(wrong)} belong to scorecards, not to linear models ({mechanism})"
        )
    if not linear and options.given:
        raise InvalidInputError(
            "--loss, --set, --regularizer, --data-norm, --label-bound and --steps belong to linear models; "
            f"{mechanism!r} is none of their mechanisms: {', '.join(RISK_MECHANISMS)}"
        )
    return linear


def fit_linear(
    table: pd.DataFrame,
    target: str,
    schema: Schema | None,
    classes: tuple[str, ...] | None,
    options: LinearOptions,
    **budget: Any,
) -> tuple[LinearModel, dict[str, Any], Schema]:
    """A fitted model, its report, and the schema in use.

    Privacy: as the estimator's. Encoding costs nothing, and the bound on row norms is the schema's own unless
    another is declared. Without a schema, one is read off the data with a PrivacyLeakWarning.
    """
    features = table.drop(columns=[target])
    if schema is None:
        schema = Schema.infer(features)
    X, began = encoded(schema, features), time.monotonic()
    common = {
        **budget,
        "data_norm": options.data_norm or schema_norm(schema),
        "convex_set": options.convex_set,
        "regularizer": options.regularizer or "none",
        "fit_intercept": not schema.intercept,
        "steps": options.steps,
    }
    loss = options.loss or "logistic"
    model: LinearModel
    if loss == "logistic":
        model = PrivateLogisticRegression(classes=classes, **common)
    elif loss == "sigmoid":
        model = PrivateSigmoidClassifier(classes=classes, **common)
    else:
        robust = None if loss == "squared" else parse_loss(loss)
        model = PrivateLinearRegression(label_bound=options.label_bound, loss=robust, **common)
    model.fit(X, table[target])
    score = float(model.score(X, table[target]))
    measure = "train_r2" if isinstance(model, PrivateLinearRegression) else "train_accuracy"
    report = {
        **model.spend_.to_dict(),
        **model.noise_,
        "mechanism": model.mechanism_,
        "mechanism_reason": model.mechanism_reason_,
        "oracle": "newton" if model.mechanism_ in _NEWTON else "closed-form",
        "features": schema.feature_names,
        "weights": np.squeeze(model.coef_).tolist(),
        "intercept": np.squeeze(model.intercept_).tolist(),
        "not_private": NOT_PRIVATE,
        measure: score,
        "certificate": {"status": "NO_CERTIFICATE", "value": None, "bound": None, "gap": None},
        "seconds": time.monotonic() - began,
    }
    return model, report, schema


def encoded(schema: Schema, table: pd.DataFrame) -> Any:
    """The features as floats, shape (n, d)."""
    features = schema.encode(table)
    return features.X / features.denominator


def schema_norm(schema: Schema) -> float:
    """A bound on the l2 norm of every row that a schema can encode. Public."""
    squares = sum(float(column.reach) ** 2 for column in schema.columns)  # one-hots: one level at a time
    return math.sqrt(squares + schema.intercept)


def save_linear(model: LinearModel, schema: Schema, path: Path) -> None:
    """The model with the schema that its features need, as JSON. Nothing that is not private."""
    write_atomically(path, json.dumps({**model.to_dict(), "schema": schema.to_dict()}, indent=2) + "\n")


def predict_linear(path: Path, table: pd.DataFrame) -> pd.DataFrame | None:
    """Predictions, with scores of two classes, of a model saved by ``save_linear``; None for other files."""
    try:
        saved = json.loads(path.read_text())
        kind = _ESTIMATORS[saved["estimator"]]
    except (ValueError, KeyError, TypeError):
        return None
    try:
        model, schema = kind.from_dict(saved), Schema.from_dict(saved["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is not a saved linear model: {error}") from error
    X = encoded(schema, table)
    scored = pd.DataFrame({"prediction": model.predict(X)})
    if hasattr(model, "decision_function") and len(model.classes_) == 2:
        scored.insert(0, "score", model.decision_function(X))
    return scored


def calibrate_linear(
    mechanism: str,
    epsilon: float,
    delta: float,
    dimension: int | None,
    records: int | None,
    options: LinearOptions,
) -> dict[str, Any]:
    """Noise and spend of a first-order mechanism, from public facts alone."""
    if dimension is None or records is None:
        raise InvalidInputError(f"calibrate {mechanism} needs --dimension and --records")
    loss = parse_loss(options.loss or "logistic", options.label_bound or 1.0)
    facts = RiskFacts(records, dimension, loss, options.data_norm or 1.0)
    space = None if options.convex_set is None else parse_set(options.convex_set, dimension)
    choice = choose_risk_mechanism(mechanism, facts, space, parse_regularizer(options.regularizer or "none"))
    plan = choice.plan(facts, epsilon=epsilon, delta=delta, steps=options.steps)
    return {
        **plan.noise,
        "steps": plan.steps,
        "set": type(plan.convex_set).__name__,
        "l1": plan.regularizer.l1,
        "l2": plan.regularizer.l2,
        **plan.spend.to_dict(),
    }


def parse_loss(text: str, label_bound: float = 1.0) -> Loss:
    """A loss by name; squared is exact for residuals up to twice the label bound."""
    name, _, number = text.partition(":")
    makers: dict[str, Any] = {"logistic": LogisticLoss, "sigmoid": SigmoidLoss, "biweight": BiweightLoss}
    try:
        if name == "squared" and not number:
            return SquaredLoss(2 * label_bound)
        if name == "huber":
            return HuberLoss(float(number))
        made: Loss = makers[name](*([float(number)] if number else []))
        return made
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"a loss is {LOSSES}, got {text!r}") from error


def show_linear(model: LinearModel, report: dict[str, Any], console: Console) -> None:
    """Weights, spend and noise for people; the numbers that are not private say so."""
    if isinstance(report["intercept"], float):
        for feature, weight in zip(report["features"], np.atleast_1d(report["weights"]), strict=True):
            console.print(f"{weight: .5f}  {feature}", highlight=False)
        console.print(f"{report['intercept']: .5f}  intercept", highlight=False)
    console.print(
        f"spend: epsilon = {report['epsilon']:.6g}, delta = {report['delta']:.3g}; {report['note']}"
    )
    console.print(f"mechanism: {report['mechanism']} ({report['mechanism_reason']})")
    console.print(f"noise: {model.noise_}")
    for measure in ("train_accuracy", "train_r2"):
        if measure in report:
            console.print(f"{measure} (not private): {report[measure]:.4f}")

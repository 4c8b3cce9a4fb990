"""Linear models, with real weights, for ``privopt fit`` and ``privopt predict``."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.table_output import print_table
from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.estimators.labels import check_label_range
from privopt.mechanisms.estimators.linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.estimators.robust import PrivateRobustClassifier, PrivateRobustRegression
from privopt.mechanisms.nonconvex.second_order import LocalMinimumRelease
from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS
from privopt.mechanisms.risk.choice import natural_norm
from privopt.problems.convex.parsing import parse_loss
from privopt.problems.convex.risk import RowNorm
from privopt.problems.errors import InvalidInputError

NOT_PRIVATE = ["train_accuracy", "train_r2", "certificate", "seconds"]
# For mechanisms whose guarantee needs no proof of a minimum.
NO_CERTIFICATE = {"status": "NO_CERTIFICATE", "value": None, "bound": None, "gap": None}
_NEWTON = (OutputPerturbation.name, ObjectivePerturbation.name)
_CLASSIFYING = ("logistic", "sigmoid")  # losses for classification; the first is the default

LinearModel = (
    PrivateLogisticRegression
    | PrivateSigmoidClassifier
    | PrivateLinearRegression
    | PrivateRobustClassifier
    | PrivateRobustRegression
)
_ESTIMATORS: dict[str, type[Any]] = {e.__name__: e for e in get_args(LinearModel)}


@dataclass(frozen=True)
class LinearOptions:
    """Command-line options of linear models other than mechanism and budget; None: not given."""

    loss: str | None = None
    convex_set: str | None = None
    regularizer: str | None = None
    data_norm: float | None = None
    label_range: str | None = None
    steps: int | None = None
    norm: str | None = None
    robust: bool | None = None

    @property
    def given(self) -> bool:
        return self != LinearOptions()

    @property
    def names(self) -> list[str]:
        """The names of the given options, as on the command line."""
        given = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        return [f"--{'set' if name == 'convex_set' else name.replace('_', '-')}" for name in given]


def is_linear(mechanism: str, options: LinearOptions, scorecard: dict[str, bool]) -> bool:
    """Return whether a linear model is requested, by the mechanism's name or, under "auto", by its options.

    Args:
        mechanism: a name.
        options: the options that only linear models have.
        scorecard: the names of options that only scorecards have, and whether they were given.

    Raises:
        InvalidInputError: options of one kind of model with a mechanism of the other.
    """
    linear = is_robust(mechanism, options) or mechanism in RISK_MECHANISMS
    linear = linear or (mechanism == "auto" and options.loss is not None)
    wrong = [name for name, used in scorecard.items() if used]
    if linear and wrong:
        raise InvalidInputError(
            f"{', '.join(wrong)} belong to scorecards, not to linear models ({mechanism})"
        )
    if not linear and options.given:
        if mechanism == "auto":
            raise InvalidInputError(
                f"{', '.join(options.names)}: only linear models have that; add --loss logistic, or "
                "leave it out for a scorecard"
            )
        raise InvalidInputError(
            "--loss, --set, --regularizer, --data-norm, --norm, --label-range and --steps belong to linear "
            f"models; {mechanism!r} is none of their mechanisms: {', '.join(RISK_MECHANISMS)}"
        )
    if linear and is_robust(mechanism, options):
        _check_robust(mechanism, options)
    if linear and options.label_range is not None and (options.loss or "logistic") in _CLASSIFYING:
        raise InvalidInputError("--label-range belongs to regression: --loss squared, huber or biweight")
    return linear


def is_robust(mechanism: str, options: LinearOptions) -> bool:
    """Return whether a robust model is requested: for records without public bounds."""
    return bool(options.robust) or mechanism in ROBUST_FITS


def _check_robust(mechanism: str, options: LinearOptions) -> None:
    if mechanism in RISK_MECHANISMS:
        raise InvalidInputError(
            f"--robust goes with auto, {', '.join(ROBUST_FITS)}; {mechanism} needs bounds on records"
        )
    if wrong := [name for name in options.names if name not in ("--loss", "--steps", "--robust")]:
        raise InvalidInputError(f"{', '.join(wrong)}: records of unknown size have none; leave it out")
    if (options.loss or "logistic") not in ("logistic", "squared"):
        raise InvalidInputError(f"--robust takes --loss logistic or squared, got {options.loss!r}")


def fit_linear(records: Labelled, options: LinearOptions, **budget: Any) -> LinearModel:
    """Fit a linear model.

    Privacy: as the estimator's. Encoding costs no budget. The bound on row norms is that of the schema unless
    another is declared. Without a schema, one is inferred from the data with a PrivacyLeakWarning. The norm
    is l2; for dp-fw-l1 it is linf, which determines its noise.
    """
    loss = options.loss or _CLASSIFYING[0]
    parse_loss(loss)  # the name is known here
    if records.classes is not None and loss not in _CLASSIFYING:
        raise InvalidInputError(f"--classes belongs to classification, --loss {loss} to regression")
    robust = is_robust(budget["mechanism"], options)
    weighted = {key: budget.pop(key) for key in ("class_weight", "prevalence")}
    if any(value is not None for value in weighted.values()):
        if robust:
            raise InvalidInputError("--class-weight and --prevalence: not with --robust")
        if loss not in _CLASSIFYING:
            raise InvalidInputError("--class-weight and --prevalence belong to classification")
    budget["steps"] = options.steps
    if robust:
        robust_model: LinearModel = _robust(records, loss, budget).fit(records.unread())
        return robust_model
    schema = records.inferred(budget["ledger"])
    made = _bounded(loss, options, records.classes, weighted, {**budget, "schema": schema})
    model: LinearModel = made.fit(records.unread(counted=True))
    return model


def _robust(records: Labelled, loss: str, common: dict[str, Any]) -> Any:
    """Build an unfitted estimator for records without public bounds."""
    if loss == "squared":
        return PrivateRobustRegression(schema=records.schema, **common)
    return PrivateRobustClassifier(schema=records.schema, classes=records.classes, **common)


def _bounded(
    loss: str,
    options: LinearOptions,
    classes: tuple[Any, ...] | None,
    weighted: dict[str, Any],
    common: dict[str, Any],
) -> Any:
    """Build an unfitted estimator for records within public bounds."""
    common |= {
        "norm": checked_norm(options.norm, common["mechanism"]),
        "data_norm": options.data_norm,
        "convex_set": options.convex_set,
        "regularizer": options.regularizer or "none",
    }
    if loss in _CLASSIFYING:
        kind = PrivateLogisticRegression if loss == "logistic" else PrivateSigmoidClassifier
        return kind(classes=classes, **weighted, **common)
    other = None if loss == "squared" else parse_loss(loss)
    label_range = None if options.label_range is None else parse_label_range(options.label_range)
    return PrivateLinearRegression(label_range=label_range, loss=other, **common)


def linear_report(model: LinearModel, records: Labelled, seconds: float) -> dict[str, Any]:
    """Return a JSON-ready report of a fit; ``not_private`` names the entries outside the guarantee."""
    regression = isinstance(model, PrivateLinearRegression | PrivateRobustRegression)
    if regression:
        score = float(model.score(records.frame, records.labels))
    else:
        score = records.share(model.predict(records.X) == records.labels)
    schema = model.schema_
    return {
        **model.spend_.to_dict(),
        **model.noise_,
        "mechanism": model.mechanism_,
        "mechanism_reason": model.mechanism_reason_,
        **_searched(model),
        "oracle": "newton" if model.mechanism_ in _NEWTON else "closed-form",
        "features": [str(c) for c in records.frame] if schema is None else schema.feature_names,
        "weights": _plain(model.coef_),
        "intercept": _plain(model.intercept_),
        "not_private": NOT_PRIVATE,
        "train_accuracy": None if regression else score,
        **({"train_r2": score} if regression else {}),
        "certificate": certificate(model),
        "seconds": seconds,
    }


def _searched(model: LinearModel) -> dict[str, Any]:
    """Return, for searches of a local minimum, whether the weights of each class passed the final test."""
    releases = [r for r in model.releases_ if isinstance(r, LocalMinimumRelease)]
    return {"found": [r.found for r in releases]} if releases else {}


def _plain(values: Any) -> Any:
    """Convert weights to a list, or to a list per class if there are several."""
    array = np.asarray(values)
    return (array[0] if array.ndim and len(array) == 1 else array).tolist()


def certificate(model: LinearModel) -> dict[str, Any]:
    """Return the certificate of a perturbed minimum, over classes that with the largest gap. NOT private.

    value and bound are of the noisy, penalised objective; the privacy proof needs gradient_norm.
    """
    proofs = [r.certificate for r in model.releases_ if r.certificate is not None]
    if not proofs:
        return NO_CERTIFICATE
    proof = max(proofs, key=lambda p: p.gap)
    return {
        "status": proof.status.name,
        "value": proof.value,
        "bound": proof.bound,
        "gap": proof.gap,
        "gradient_norm": proof.gradient_norm,
    }


def checked_norm(norm: str | None, mechanism: str) -> RowNorm:
    """Return the norm for clipping rows: the given one, or that on which the mechanism's noise depends."""
    if norm is None:
        return natural_norm(mechanism)
    if norm not in ("l2", "linf"):
        raise InvalidInputError(f"--norm is l2 or linf, got {norm!r}")
    return "l2" if norm == "l2" else "linf"


def load_linear(path: Path) -> LinearModel | None:
    """Load a saved linear model; None for other files.

    Raises:
        InvalidInputError: a damaged file of a linear model.
    """
    try:
        name = json.loads(path.read_text("utf-8-sig"))["estimator"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(name, str) or name not in _ESTIMATORS:
        return None
    model: LinearModel = _ESTIMATORS[name].load(path)
    return model


def parse_label_range(text: str) -> tuple[float, float]:
    """Parse LOW:HIGH, two finite increasing numbers."""
    try:
        low, high = (float(bound) for bound in text.split(":"))
    except ValueError as error:
        raise InvalidInputError(
            f"--label-range must be LOW:HIGH, two numbers, as in --label-range=-1:1; got {text!r}"
        ) from error
    return check_label_range((low, high))


def show_linear(model: LinearModel, report: dict[str, Any], console: Console) -> None:
    """Print weights, spend and noise; numbers that are not private are marked as such."""
    rows = list(zip(report["features"], np.atleast_2d(report["weights"]).T, strict=True))
    if "intercept" not in report["features"]:
        rows.append(("intercept", np.atleast_1d(report["intercept"])))
    elif np.any(report["intercept"]):  # the schema's constant is the intercept, for centred labels
        rows.append(("offset added to predictions", np.atleast_1d(report["intercept"])))
    card = Table("feature", *_weight_columns(model))
    for name, weights in rows:
        card.add_row(escape(str(name)), *(f"{w:.5g}" for w in weights))
    print_table(console, card)
    proof = report["certificate"]
    noise = ", ".join(f"{key} = {value:.6g}" for key, value in model.noise_.items())
    for line in (
        f"spend: {model.spend_}",
        f"in detail: {report['note']}" if report["note"] else "",
        f"mechanism: {report['mechanism']} ({report['mechanism_reason']})",
        *(
            "a local minimum within alpha and gamma: " + ("yes" if found else "not found")
            for found in report.get("found", ())
        ),
        f"noise: {noise}",
        f"certificate (not private): gradient norm {proof['gradient_norm']:.3g}, gap {proof['gap']:.3g}"
        if "gradient_norm" in proof
        else "",
        *(
            f"{text} (not private): {report[key]:.4f}"
            for key, text in (("train_accuracy", "training accuracy"), ("train_r2", "training R^2"))
            if report.get(key) is not None
        ),
    ):
        if line:
            console.print(line, markup=False)


def _weight_columns(model: LinearModel) -> list[str]:
    """Return one column of weights, or one per class."""
    classes = getattr(model, "classes_", ())
    return [escape(str(c)) for c in classes] if len(classes) > 2 else ["weight"]

"""Linear models, with real weights, for ``privopt fit`` and ``privopt predict``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.parsing import class_costs, parse_delta, parse_range
from privopt.experiments.cli.table_output import print_table
from privopt.experiments.cli.tables import Labelled
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.perturbation_with_hessian import PerturbationWithHessian
from privopt.mechanisms.estimators.bounded_linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.estimators.labels import check_label_range
from privopt.mechanisms.estimators.robust import PrivateRobustClassifier, PrivateRobustRegression
from privopt.mechanisms.nonconvex.second_order import LocalMinimumRelease
from privopt.mechanisms.risk.choice import natural_norm
from privopt.problems.convex.parsing import parse_loss
from privopt.problems.convex.risk import RowNorm
from privopt.problems.errors import InvalidInputError

NOT_PRIVATE = ["train_accuracy", "train_r2", "certificate", "seconds"]
# For first-order mechanisms: their guarantee needs no proof of a minimum.
NO_CERTIFICATE = {"status": "NO_CERTIFICATE", "value": None, "bound": None, "gap": None}
_NEWTON = (OutputPerturbation.name, ObjectivePerturbation.name, PerturbationWithHessian.name)
_CLASSIFYING = ("logistic", "sigmoid")  # losses for classes

LinearModel = (
    PrivateLogisticRegression
    | PrivateSigmoidClassifier
    | PrivateLinearRegression
    | PrivateRobustClassifier
    | PrivateRobustRegression
)
_ESTIMATORS: dict[str, type[Any]] = {e.__name__: e for e in get_args(LinearModel)}


def robust_constructor(options: Mapping[str, Any]) -> Callable[..., LinearModel]:
    """Return a constructor of robust linear models with the options of a command.

    Raises:
        InvalidInputError: a malformed option, or a loss that robust models do not have.
    """
    loss = robust_loss(options)
    kind = PrivateRobustRegression if loss == "squared" else PrivateRobustClassifier
    return partial(_with_classes, kind, loss, _first_order(options))


def robust_loss(options: Mapping[str, Any]) -> str:
    """Return the name of the loss of a robust linear model."""
    loss: str = options["loss"] or "logistic"
    if loss not in ("logistic", "squared"):
        raise InvalidInputError(f"robust linear models take --loss logistic or squared, got {loss!r}")
    return loss


def linear_constructor(options: Mapping[str, Any]) -> Callable[..., LinearModel]:
    """Return a constructor of linear models of bounded records, with the options of a command.

    The bound on row norms is the schema's unless another bound is declared. The norm is l2; for dp-fw-l1
    and screened-statistics it is linf, which determines their noise.

    Raises:
        InvalidInputError: a malformed option, or options of classification for a loss of regression or the
            other way round.
    """
    loss = options["loss"] or "logistic"
    parse_loss(loss)
    arguments = {
        **_first_order(options),
        "norm": options["norm"],
        "data_norm": options["data_norm"],
        "convex_set": options["convex_set"],
        "regularizer": options["regularizer"] or "none",
        "max_weight": options.get("max_weight"),
    }
    if options["max_features"] is None and options["norm"] is not None:
        arguments["norm"] = checked_norm(options["norm"], options["mechanism"])
    if loss in _CLASSIFYING:
        classifier = PrivateLogisticRegression if loss == "logistic" else PrivateSigmoidClassifier
        return partial(_with_classes, classifier, loss, {**arguments, **_of_classes(options, loss)})
    return partial(_with_classes, PrivateLinearRegression, loss, {**arguments, **_of_numbers(options, loss)})


def _of_classes(options: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """Return the arguments of classification."""
    checked_label_range(options["label_range"], loss)
    if options["max_features"] is not None:
        raise InvalidInputError("--max-features belongs to regression: --loss squared, huber or biweight")
    if options["errors"] is not None:
        raise InvalidInputError("--errors belongs to regression: --loss squared")
    return {"numbers": options.get("numbers", "auto"), **class_costs(options)}


def _of_numbers(options: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """Return the arguments of regression."""
    label_range = checked_label_range(options["label_range"], loss)
    if options.get("numbers", "auto") != "auto":
        raise InvalidInputError("--numbers belongs to classification: regression has a weight per unit")
    if any(value is not None for value in class_costs(options).values()):
        raise InvalidInputError("--class-weight and --prevalence belong to classification")
    particular = {name: options[name] for name in ("max_features", "errors") if options[name] is not None}
    return {"label_range": label_range, "loss": None if loss == "squared" else parse_loss(loss), **particular}


def _first_order(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that all linear models take."""
    return {
        "epsilon": options["epsilon"],
        "delta": parse_delta(options["delta"]),
        "mechanism": options["mechanism"],
        "steps": options["steps"],
    }


def _with_classes(
    kind: type[Any], loss: str, arguments: Mapping[str, Any], *, classes: tuple[Any, ...] | None, **data: Any
) -> Any:
    """Build an estimator; only classifiers take classes."""
    if loss in _CLASSIFYING:
        return kind(**arguments, **data, classes=classes)
    if classes is not None:
        raise InvalidInputError(
            f"--classes belongs to classification, --loss {loss} to regression: leave one of them out"
        )
    return kind(**arguments, **data)


def linear_report(model: LinearModel, records: Labelled, seconds: float) -> dict[str, Any]:
    """Return a JSON-ready report of a fit; ``not_private`` names the entries outside the guarantee."""
    regression = isinstance(model, PrivateLinearRegression | PrivateRobustRegression)
    if regression:
        score = float(model.score(records.frame, records.labels))
    else:
        score = records.share(model.predict(records.X) == records.labels)
    schema, chosen = model.schema_, getattr(model, "support_", None)
    names = [str(c) for c in records.frame] if schema is None else schema.feature_names
    return {
        **model.spend_.to_dict(),
        **model.noise_,
        "mechanism": model.mechanism_,
        "mechanism_reason": model.mechanism_reason_,
        **_searched(model),
        "oracle": "newton" if model.mechanism_ in _NEWTON else "closed-form",
        "features": names,
        **({} if chosen is None else {"chosen": [n for n, kept in zip(names, chosen, strict=True) if kept]}),
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
    """Return the certificate of a perturbed minimum; of several classes, of the largest gap. NOT private.

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


def checked_label_range(text: str | None, loss: str) -> tuple[float, float] | None:
    """Parse LOW:HIGH, two finite increasing numbers, for a loss of regression."""
    if text is None:
        return None
    if loss in _CLASSIFYING:
        raise InvalidInputError("--label-range belongs to regression: --loss squared, huber or biweight")
    return check_label_range(parse_range(text, "--label-range"))


def show_linear(model: LinearModel, report: dict[str, Any], console: Console) -> None:
    """Print weights, spend and noise; numbers that are not private are marked as such."""
    print_table(console, _weights_table(model, report))
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


def _weights_table(model: LinearModel, report: dict[str, Any]) -> Table:
    """Return a table of the weights, of chosen features alone if features were chosen."""
    rows = list(zip(report["features"], np.atleast_2d(report["weights"]).T, strict=True))
    if "chosen" in report:
        rows = [(name, weights) for name, weights in rows if name in report["chosen"]]
    if "intercept" not in report["features"]:
        rows.append(("intercept", np.atleast_1d(report["intercept"])))
    elif np.any(report["intercept"]):  # the schema's constant is the intercept, for centred labels
        rows.append(("offset added to predictions", np.atleast_1d(report["intercept"])))
    table = Table("feature", *_weight_columns(model))
    titles = {} if model.schema_ is None else model.schema_.feature_titles
    for name, weights in rows:
        table.add_row(escape(titles.get(name, str(name))), *(f"{w:.5g}" for w in weights))
    return table


def _weight_columns(model: LinearModel) -> list[str]:
    """Return one column of weights, or one per class."""
    classes = getattr(model, "classes_", ())
    return [escape(str(c)) for c in classes] if len(classes) > 2 else ["weight"]

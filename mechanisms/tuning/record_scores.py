"""Scores of single records in [0, 1], whose mean measures the quality of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


def _one_a_record(found: Any, *shape: int) -> NDArray[Any]:
    """Return predictions as an array of the given shape.

    Raises:
        InvalidInputError: they have another shape. Broadcasting it could let one record change all scores.
    """
    values = np.asarray(found)
    if values.shape != shape:
        raise InvalidInputError(f"predictions have the shape {values.shape}, and should have {shape}")
    return values


def accuracy(model: Any, X: Any, label: NDArray[np.int64], classes: NDArray[Any]) -> Floats:
    """Return 1 for records whose class is predicted, and 0 for others."""
    return np.asarray(_one_a_record(model.predict(X), len(label)) == classes[label], dtype=np.float64)


def brier(model: Any, X: Any, label: NDArray[np.int64], classes: NDArray[Any]) -> Floats:
    """Return 1 minus half the squared distance between the predicted probabilities and the class indicator.

    For two classes this is 1 minus the squared error of the risk.
    """
    risks = _one_a_record(model.predict_proba(X), len(label), len(classes)).astype(np.float64)
    truth = np.eye(len(classes))[label]
    return np.asarray(1 - np.sum((risks - truth) ** 2, axis=1) / 2, dtype=np.float64)


def squared_error(model: Any, X: Any, label: Floats, label_range: tuple[float, float]) -> Floats:
    """Return 1 minus the squared error, in units of the width of the label range.

    Labels and predictions are clipped to the range first.
    """
    low, high = label_range
    predicted = np.clip(_one_a_record(model.predict(X), len(label)).astype(np.float64), low, high)
    error = (predicted / 2 - np.clip(label, low, high) / 2) / (high / 2 - low / 2)
    return np.asarray(1 - error**2, dtype=np.float64)


# Scores by the value of the argument ``scoring``; for regressions there is only one.
CLASS_SCORES: Mapping[str, Callable[..., Floats]] = {"accuracy": accuracy, "brier": brier}
REGRESSION_SCORES: Mapping[str, Callable[..., Floats]] = {"squared_error": squared_error}

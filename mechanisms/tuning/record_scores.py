"""Scores of single records in [0, 1], whose mean says how good a model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


def _one_a_record(found: Any, *shape: int) -> NDArray[Any]:
    """Return predictions of records.

    Raises:
        InvalidInputError: another shape. If it were broadcast, one record could change the scores of all.
    """
    values = np.asarray(found)
    if values.shape != shape:
        raise InvalidInputError(f"predictions have the shape {values.shape}, and should have {shape}")
    return values


def accuracy(model: Any, X: Any, label: NDArray[np.int64], classes: NDArray[Any]) -> Floats:
    """Return 1 for the records whose class is predicted, otherwise 0."""
    return np.asarray(_one_a_record(model.predict(X), len(label)) == classes[label], dtype=np.float64)


def brier(model: Any, X: Any, label: NDArray[np.int64], classes: NDArray[Any]) -> Floats:
    """Return 1 minus half the squared distance of the probabilities from the class; for two classes the
    squared error of the risk.
    """
    risks = _one_a_record(model.predict_proba(X), len(label), len(classes)).astype(np.float64)
    truth = np.eye(len(classes))[label]
    return np.asarray(1 - np.sum((risks - truth) ** 2, axis=1) / 2, dtype=np.float64)


def squared_error(model: Any, X: Any, label: Floats, label_range: tuple[float, float]) -> Floats:
    """Return 1 minus the squared error in units of the width of the label range, both clipped to it."""
    low, high = label_range
    predicted = np.clip(_one_a_record(model.predict(X), len(label)).astype(np.float64), low, high)
    error = (predicted / 2 - np.clip(label, low, high) / 2) / (high / 2 - low / 2)
    return np.asarray(1 - error**2, dtype=np.float64)


# Scores of classifiers by the name that an argument ``scoring`` takes; regression has one.
CLASS_SCORES: Mapping[str, Callable[..., Floats]] = {"accuracy": accuracy, "brier": brier}
REGRESSION_SCORES: Mapping[str, Callable[..., Floats]] = {"squared_error": squared_error}

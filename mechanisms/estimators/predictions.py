"""Predictions for partitioned tables, and a ``score`` of classifiers whose errors quote no labels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.labels import checked_labels
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Blocks
from privopt.problems.tables.partitions import computed, is_dask, lazily

Method = TypeVar("Method", bound=Callable[..., Any])


def by_parts(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make a prediction method accept partitioned tables.

    For a Dask collection it returns a lazy Dask array. A memory-mapped file is read in blocks, and its
    predictions are returned in memory.
    """

    @wraps(method)
    def predicted(model: Any, X: Any) -> Any:
        if is_dask(X):
            check_is_fitted(model)
            dtype, columns = _predicted(model, method.__name__)
            return lazily(X, partial(method, for_workers(model)), dtype, columns)
        if isinstance(X, np.memmap) and X.ndim == 2 and len(X):
            return np.concatenate(Blocks.of(X).each(lambda part: method(model, np.asarray(part[0]))))
        return method(model, X)

    return predicted


def with_risks(method: Method) -> Method:
    """Make a method available only to cards and trees that have risks, or will have risks once fitted."""
    decorate: Callable[[Method], Method] = available_if(
        lambda model: vars(model).get("risk_", model.risk_share or None) is not None
    )
    return decorate(method)


def once_released(method: Method) -> Method:
    """Make a method available only to cards and trees that have risks."""
    decorate: Callable[[Method], Method] = available_if(lambda model: vars(model).get("risk_") is not None)
    return decorate(method)


class RisksOnRequest:
    """Base of cards and trees; if no risks were released, errors say how to get them."""

    _noun: ClassVar[str]
    _usual_share: ClassVar[float]

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for risks that were not released, say how to get them."""
        if name in ("predict_proba", "risks_at"):
            share = self._usual_share
            raise AttributeError(
                f"this {self._noun} has no {name}: the fit spent no epsilon on probabilities. To do: fit "
                f"with risk_share={share} (--risk-share {share}); predict works without them"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _predicted(model: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype of the predictions of a method, and the shape of the prediction for one record."""
    classes = getattr(model, "classes_", None)
    if name == "predict":
        return np.dtype(np.float64) if classes is None else classes.dtype, ()
    one = name == "decision_function" and len(classes) == 2  # type: ignore[arg-type]
    return np.dtype(np.float64), () if one else (len(classes),)  # type: ignore[arg-type]


def for_workers(model: Any) -> Any:
    """Return a copy of the model for worker processes, without ledger, limits, oracle and releases.

    The copy has ``alike`` set, so that the score of a record does not depend on its partition.
    """
    light = copy.copy(model)
    vars(light).update(
        dict.fromkeys({"ledger", "limits", "oracle", "release_", "releases_"} & set(vars(light)))
    )
    vars(light)["alike"] = True
    return light


class ScoredClassifier(ClassifierMixin):  # type: ignore[misc]
    """scikit-learn's ``ClassifierMixin`` with a ``score`` whose errors quote no labels."""

    classes_: NDArray[Any]

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy. Not private.

        Raises:
            InvalidInputError: invalid labels, or text labels for numeric classes, or the reverse.
        """
        predicted, y = computed(self.predict(X), y)
        labels = checked_labels(y, len(predicted))
        if (labels.dtype.kind in "OU") != (self.classes_.dtype.kind in "OU"):
            raise InvalidInputError("y and the classes must both be text, or both numbers")
        from sklearn.metrics import accuracy_score  # lazy: a slow import

        return float(accuracy_score(labels, predicted, sample_weight=sample_weight))

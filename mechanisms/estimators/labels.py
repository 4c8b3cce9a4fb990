"""Labels: classes and numbers, as they come and as they are declared."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from privopt.mechanisms.estimators.public_facts import leak
from privopt.mechanisms.estimators.validation import without_values
from privopt.problems.arguments import check_unmasked, told
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import check_exact, positions

# What pandas calls arrays that hold text alone, or whole numbers alone: neither has missing entries.
_ONE_KIND = ("string", "integer", "boolean")


def check_given(y: ArrayLike | None) -> None:
    """Raise InvalidInputError without labels, in scikit-learn's words."""
    if y is None:
        raise InvalidInputError("this estimator requires y to be passed, but the target y is None")


def checked_labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Class labels, shape (n_rows,), n_rows >= 1, none missing.

    Raises:
        InvalidInputError, ValueError: labels that are not; no value is quoted.
    """
    check_given(y)
    check_unmasked(y, "y")
    if np.ndim(y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)) == 0:
        raise InvalidInputError(f"y must hold one label per record, shape ({n_rows},); got {told(y)}")
    given = np.ravel(np.asarray(y, dtype=None if hasattr(y, "dtype") else object))
    if pd.api.types.infer_dtype(given, skipna=False) not in _ONE_KIND:
        if np.any(pd.isna(np.asarray(y, dtype=object))):
            raise InvalidInputError("y holds missing labels: give them a class of their own")
        texts = [isinstance(label, str) for label in np.ravel(np.asarray(y, dtype=object))]
        if any(texts) and not all(texts):
            raise InvalidInputError("y mixes text with other labels; make them one type")
    try:
        if np.asarray(y).dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        # It compares labels with themselves as integers; and how many different ones there are is not told.
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    if len(labels) != n_rows:
        raise InvalidInputError(f"X has {n_rows} rows and y has {len(labels)}")
    if len(labels) == 0:
        raise InvalidInputError("no records: at least one row is needed")
    return np.asarray(labels)


def public_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> NDArray[Any]:
    """The declared classes; or those in the labels, with a PrivacyLeakWarning.

    Raises:
        InvalidInputError: not a list of texts, or of whole numbers or booleans that floats can tell apart.
    """
    if declared is None:
        leak("classes were read off the labels, which is not private; pass classes=(negative, positive)")
        classes = np.unique(labels)
    else:
        if isinstance(declared, str | bytes) or not isinstance(declared, Sequence | np.ndarray | pd.Series):
            raise InvalidInputError('classes must be a list of labels, such as ("well", "ill")')
        kinds = {"text" if isinstance(c, str) else "whole" if _is_whole(c) else "other" for c in declared}
        if len(kinds) > 1 or "other" in kinds:
            raise InvalidInputError("classes must be all text, or all integers or booleans")
        classes = np.asarray(declared)
    check_exact("classes", classes.tolist())
    return classes


def _is_whole(value: object) -> bool:
    if isinstance(value, float | np.floating):
        return float(value).is_integer()
    return isinstance(value, int | np.integer | np.bool_)


def class_indices(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each label's class, shape (n,): compared as the categories of a schema are.

    Raises:
        InvalidInputError: a label outside the classes.
    """
    known = classes.tolist()
    found = positions("y", labels, {c: i for i, c in enumerate(known)})
    if bool(np.any(found < 0)):
        raise InvalidInputError(
            f"y holds labels outside the declared classes {', '.join(map(repr, known))}; "
            f"declare them, or correct the declaration"
        )
    return found

"""Validation of labels: classes of classifiers, real labels of regressions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from privopt.mechanisms.estimators.public_facts import leak
from privopt.mechanisms.estimators.validation import check_no_text, without_values
from privopt.problems.arguments import check_same_length, check_some_records, told
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.frames import array_of, objects_of, texts_in_arrow
from privopt.problems.tables.values import check_exact, positions

# Names that pandas gives to arrays of a single type without missing entries.
_ONE_KIND = ("string", "integer", "boolean")
# Messages of scikit-learn about labels of an unknown type begin with one of these, depending on the version.
_UNKNOWN = ("Unknown label type: unknown", "You appear to be using a legacy multi-label")
_NO_LABELS = "y holds labels that are no text, integers or booleans; convert them"


def check_given(y: ArrayLike | None) -> None:
    """Raise InvalidInputError with scikit-learn's message if y is None."""
    if y is None:
        raise InvalidInputError("this estimator requires y to be passed, but the target y is None")


def checked_labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Validate class labels: shape (n_rows,), n_rows >= 1, none missing.

    Raises:
        InvalidInputError, ValueError: invalid labels; the message quotes no label.
    """
    check_given(y)
    check_unmasked(y, "y")
    # Converted only once, as converting text in Arrow makes an object for every label.
    try:
        array = array_of(y)
    except Exception:  # of any type; its message may quote labels, for example text that is not UTF-8
        raise InvalidInputError(_NO_LABELS) from None
    if array.ndim == 0:
        raise InvalidInputError(f"y must hold one label per record, shape ({n_rows},); got {told(y)}")
    given = np.ravel(array)
    kind = pd.api.types.infer_dtype(given, skipna=False)
    if kind not in _ONE_KIND:
        _check_mixture(given.astype(object))
    if hasattr(y, "dtype") or hasattr(y, "type"):
        y = array
    try:
        if np.asarray(y).dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        # Warnings of the check are suppressed: casting floats to integers may overflow, and one warning would
        # disclose the number of distinct labels. Columns of text or integers, including Python integers in an
        # array of objects, always pass and skip the check, which sorts labels.
        if array.ndim != 1 or (kind not in _ONE_KIND and array.dtype.kind not in "iub"):
            with np.errstate(invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
    except ValueError as error:
        known = not str(error).startswith(_UNKNOWN)
        raise InvalidInputError(without_values(error) if known else _NO_LABELS) from None
    except TypeError:  # bytes, and objects that cannot be compared
        raise InvalidInputError(_NO_LABELS) from None
    check_same_length(n_rows, len(labels))
    check_some_records(n_rows)
    return np.asarray(labels)


def _check_mixture(labels: NDArray[Any]) -> None:
    """Refuse missing labels, and a mixture of text and other labels."""
    if _any_missing(labels):
        raise InvalidInputError("y holds missing labels: give them a class of their own")
    texts = [isinstance(label, str) for label in labels]
    if any(texts) and not all(texts):
        raise InvalidInputError("y mixes text with other labels; make them one type")


def _any_missing(labels: NDArray[Any]) -> bool:
    try:
        return bool(np.any(pd.isna(labels)))
    except ArithmeticError:  # comparing a signalling NaN raises an error
        return True


def label_name(y: Any) -> str:
    """Return the name of the label column of a data frame, or of a table in an engine; "" if it has none."""
    name = y if isinstance(y, str) else getattr(y, "name", None)
    return name if isinstance(name, str) else ""


def public_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the declared classes, or infer them from the labels with a PrivacyLeakWarning.

    Raises:
        InvalidInputError: not a list of texts, or of booleans or integers that doubles hold exactly.
    """
    if declared is None:
        leak("classes were inferred from the labels, which is not private; pass classes=(negative, positive)")
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
    """Return the class index of each label, shape (n,); labels equal classes as cells equal categories.

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


def label_indices(y: Any, n_rows: int, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``class_indices`` of ``checked_labels``; for text in Arrow, check each distinct label once."""
    texts = None
    with suppress(Exception):  # of any type: such labels are refused below
        texts = texts_in_arrow(y)
    if not isinstance(texts, pa.Array) or texts.null_count or len(texts) != n_rows:
        return class_indices(checked_labels(y, n_rows), classes)
    encoded = texts.dictionary_encode()
    distinct = objects_of(encoded.dictionary.to_pylist())
    rows: NDArray[np.int64] = class_indices(checked_labels(distinct, len(distinct)), classes)
    return np.asarray(rows[np.asarray(encoded.indices)])


def distinct_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the classes, declared or inferred as in ``public_classes``, if two or more and distinct.

    Raises:
        InvalidInputError: fewer than two classes, or duplicates.
    """
    classes = public_classes(declared, labels)
    if len(classes) < 2:
        raise InvalidInputError(f"at least 2 classes are needed, got {classes.size} class(es)")
    if len(np.unique(classes)) != len(classes):
        raise InvalidInputError(f"classes must differ; of {len(classes)} some are equal")
    return classes


def check_real_kind(values: Any, name: str) -> None:
    """Raise InvalidInputError for an array whose type is not one of real numbers; no value is read.

    Lists and arrays of objects pass, as the types of their entries are known only after reading them.
    """
    kind = getattr(values, "dtype", None)
    if kind is not None and not (
        pd.api.types.is_object_dtype(kind)
        or (pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind))
    ):
        raise InvalidInputError(f"{name} is of type {kind}, and real numbers are needed: convert it")


def real_labels(y: ArrayLike) -> NDArray[np.float64]:
    check_given(y)
    check_unmasked(y, "y")
    try:
        check_no_text(y, "y")
        checked = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return np.asarray(column_or_1d(checked, warn=True))
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(error, ValueError) or "text where numbers" in str(error):
            raise InvalidInputError(
                "y holds labels that are not numbers: regression needs numbers; for classes use the logistic "
                "or the sigmoid loss"
            ) from None
        raise InvalidInputError(without_values(error)) from None


def check_label_range(label_range: object) -> tuple[float, float]:
    """Return (low, high) as floats.

    Raises:
        InvalidInputError: not two finite numbers, or low is not below high.
    """
    try:
        if isinstance(label_range, str):
            raise TypeError("text")
        low, high = (float(bound) for bound in label_range)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"label_range is two numbers (low, high) that labels are clipped to, got {told(label_range)}"
        ) from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise InvalidInputError(
            f"label_range needs finite low < high and a finite width, got low = {low:g} and high = {high:g}"
        )
    return low, high

"""Validation of tables by scikit-learn, with error messages that quote no values of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from privopt.problems.arguments import check_some_records
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError, InvalidTypeError
from privopt.problems.tables.frames import as_pandas, objects_of
from privopt.problems.tables.sources import is_engine_table

_NOT_NUMBERS = "{} holds text where numbers are needed; declare a schema, or convert the column"


def keep_arguments(estimator: BaseEstimator, arguments: Mapping[str, Any]) -> None:
    """Store the arguments of ``__init__`` as attributes without validation, as scikit-learn requires."""
    for name, value in arguments.items():
        if name != "self":
            setattr(estimator, name, value)


def validated(estimator: BaseEstimator, X: Any, *y: ArrayLike, **options: Any) -> Any:
    """Run scikit-learn's ``validate_data``, with errors that quote no cells; ``dtype=None`` accepts text.

    Raises:
        InvalidInputError: not a table of finite real numbers with the columns of ``fit``.
        InvalidTypeError: objects that are not numbers.
    """
    for values, name in zip((X, *y), "Xy", strict=False):
        check_unmasked(values, name)
    numeric = options.get("dtype", "numeric") is not None
    if numeric and not options.get("skip_check_array"):
        check_no_text(X, "X")
    try:
        return validate_data(estimator, X, *y, **options)
    except (TypeError, IndexError, OverflowError):
        raise InvalidTypeError(
            "X holds other things than numbers: an argument must be neither text (a string) nor an object "
            "but a number; declare a schema, or convert the column"
        ) from None
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None


def check_no_text(values: Any, name: str) -> None:
    """Raise InvalidInputError for text, which scikit-learn would convert to numbers if possible."""
    parts = [values[column] for column in values] if isinstance(values, pd.DataFrame) else [values]
    for part in parts:
        try:
            array = None if sp.issparse(part) else np.asarray(part)
        except ValueError:  # rows of different lengths
            return
        if array is not None and (
            array.dtype.kind in "SU"
            or (array.dtype == object and any(isinstance(v, str) for v in array.flat))
        ):
            raise InvalidInputError(_NOT_NUMBERS.format(name))


def as_table(X: Any) -> Any:
    """Convert a dict of columns or another library's data frame to pandas; return anything else unchanged.

    Raises:
        InvalidInputError: a dict whose values are not columns of one length; or columns with the same name,
            which older versions of scikit-learn would accept.
        SchemaError: a data frame that cannot be converted to pandas.
    """
    if not is_engine_table(X):
        X = as_pandas(X)
    if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
        raise InvalidInputError("X: columns need distinct names; rename those that share one")
    if not isinstance(X, Mapping) or sp.issparse(X):
        return X
    for values in X.values():
        check_unmasked(values, "a column")
    index = next((values.index for values in X.values() if isinstance(values, pd.Series)), None)
    try:
        return pd.DataFrame({name: _uninferred(values, index) for name, values in X.items()})
    except (TypeError, ValueError):
        raise InvalidInputError(
            "a dict of columns needs one list or array for each name, all of one length"
        ) from None


def _uninferred(values: Any, index: pd.Index[Any] | None) -> Any:
    """Return a list or an array of objects as a column of objects; anything else unchanged.

    Otherwise pandas would infer one type from all cells, so that one cell could change how others are read.
    """
    if isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        return pd.Series(values, index, dtype=object)
    if isinstance(values, list | tuple):
        return pd.Series(objects_of(values), index, dtype=object)
    return values


def without_values(error: ValueError) -> str:
    """Return the message of an error of scikit-learn, without the values that it quotes and its advice."""
    text = str(error)
    first = text.split("\n")[0]
    if first.startswith("Expected 2D array"):
        return (
            f"{first.split(':')[0]}: one row per record. Reshape your data, with X.reshape(1, -1) if it is a "
            "single record"
        )
    if "Complex data not supported" in text:
        return "Complex data not supported: real numbers are needed"
    if "could not convert" in text or isinstance(error, UnicodeError):
        return _NOT_NUMBERS.format("X")
    if first.startswith("Unknown label type: continuous"):
        return "Unknown label type: continuous. For numbers use PrivateLinearRegression, or --loss squared"
    if first.startswith("Expected unique column names"):  # followed by names, which may be cells
        return "X: columns need distinct names; rename those that share one"
    if first.startswith(("Input ", "The feature names")):  # about NaN or infinity, or about column names
        return first
    return text


def check_enough(n_records: int) -> None:
    """Raise InvalidInputError for fewer records than a private fit needs."""
    check_some_records(n_records)
    if n_records < 2:
        raise InvalidInputError("n_samples = 1: a private fit needs at least 2 records")

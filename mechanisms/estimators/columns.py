"""Tables that are read by columns: scorecards, trees and rule lists, whose schema may be inferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.estimators.labels import checked_labels
from privopt.mechanisms.estimators.validation import as_table, validated
from privopt.problems.tables.frames import unread_columns


def refuse_columns(estimator: Any, X: Any) -> None:
    """Raise InvalidInputError for an X that has no columns, whatever the records are."""
    if estimator.schema is None:
        validated(estimator, X)
    unread_columns(X)


def labelled_columns(estimator: Any, X: Any, y: ArrayLike) -> tuple[Any, NDArray[Any]]:
    """Validate a table and its labels; without a schema an array must hold numbers.

    Raises:
        InvalidInputError: other things than a table with a label per row.
    """
    X = as_table(X)
    if estimator.schema is None and not isinstance(X, pd.DataFrame):
        X, y = validated(estimator, X, y, dtype=np.float64)
    else:
        validated(estimator, X, skip_check_array=True)
    return X, checked_labels(y, len(unread_columns(X)[0][1]))

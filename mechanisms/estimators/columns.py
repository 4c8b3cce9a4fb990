"""Tables as input of scorecards, trees and rule lists, whose schema may be inferred from the columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.estimators.booking import Unread, unread_table
from privopt.mechanisms.estimators.labels import checked_labels
from privopt.mechanisms.estimators.validation import as_table, validated
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical
from privopt.problems.tables.frames import unread_columns
from privopt.problems.tables.schema import Schema


def refuse_columns(estimator: Any, X: Any) -> None:
    """Raise InvalidInputError if X is not two-dimensional; its cells are not used."""
    if estimator.schema is None:
        validated(estimator, X)
    unread_columns(X)


def labelled_columns(estimator: Any, X: Any, y: ArrayLike) -> tuple[Any, NDArray[Any]]:
    """Validate a table and its labels; without a schema, an array must hold numbers.

    Raises:
        InvalidInputError: not a table with a label for each row.
    """
    X = as_table(X)
    if estimator.schema is None and not isinstance(X, pd.DataFrame):
        X, y = validated(estimator, X, y, dtype=np.float64)
    else:
        validated(estimator, X, skip_check_array=True)
    return X, checked_labels(y, len(unread_columns(X)[0][1]))


def columns_as_fitted(estimator: Any, X: Any) -> Any:
    """Check that a table has the columns of the fit; with a declared schema, the schema finds its columns."""
    if estimator.schema is not None:
        return X
    if not isinstance(X, pd.DataFrame):
        return validated(estimator, X, reset=False, dtype=np.float64)
    if hasattr(estimator, "n_features_in_"):
        validated(estimator, X, reset=False, skip_check_array=True)
    return X


def zeros_and_ones(columns: int) -> Schema:
    """Return the schema of a sparse matrix: columns x0, x1, ... with the levels 0 and 1. It is public."""
    return Schema([Categorical(f"x{k}", [0, 1]) for k in range(columns)], intercept=True)


def unread_sparse(estimator: Any, X: Any, y: Any, schema: Schema) -> Unread[tuple[Any, Any]]:
    """Wrap a sparse matrix as an unread table; its columns are those of the schema, in the same order.

    Raises:
        SchemaError: the numbers of columns differ.
    """
    schema.codes(np.zeros((0, X.shape[1])))
    given = unread_table(X, y, None, partial(refuse_columns, estimator))
    return given.then(lambda pair: (dense_columns(pair[0]), pair[1]))


def dense_columns(X: Any) -> Any:
    """Return a sparse matrix as an array of whole numbers, and anything else unchanged.

    Raises:
        InvalidInputError: a sparse matrix has entries other than 0 and 1.
    """
    if not sp.issparse(X):
        return X
    rows: Any = X.tocsr(copy=True)  # type: ignore[attr-defined]
    rows.sum_duplicates()
    if not np.all(np.isin(rows.data, (0, 1))):
        raise InvalidInputError("X is sparse, which is for columns of 0 and 1: X.toarray() for other numbers")
    return rows.astype(np.int8).toarray()

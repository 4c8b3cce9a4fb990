"""Transformer of scikit-learn that encodes tables by a schema, for estimators of other libraries."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.mechanisms.estimators.validation import as_table, keep_arguments, validated
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.problems.tables.columns import Column

Encoding = Literal["features", "codes"]
_ENCODINGS = ("features", "codes")


class SchemaTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode tables by a schema, in front of private estimators of any library.

    The features are those that privopt's estimators compute from the same schema, before centring: one-hot
    categories and bins, bounded numbers on their grid, indicators of missing values, and the intercept if
    the schema has one.

    Privacy: costs nothing. ``fit`` reads names and number of the columns, but no cell. ``transform`` encodes
    each record by the declaration only, whatever the other records are, so tables that differ in one record
    are transformed to tables that differ in one row. Names and number of the features, ``bounds`` and
    ``data_norm`` follow from the schema alone and are public; the rows are private. If a record is refused,
    this reveals that it violates the declaration: declare "clip", "ignore" and missing levels if this must
    not be revealed.

    Args:
        schema: the declared columns: a ``Schema``, a dictionary, or the path of a TOML or JSON file.
        encoding: "features": floats, shape (n, schema.n_features). "codes": for each declared column an
            integer from 0, the index of the category, bin or grid point.

    Attributes:
        schema_: the schema.
        n_features_in_, feature_names_in_: the columns of the table given to ``fit``.
    """

    schema_: Schema

    def __init__(
        self, schema: Schema | dict[str, Any] | str | Path, *, encoding: Encoding = "features"
    ) -> None:
        keep_arguments(self, locals())

    @property
    def data_norm(self) -> float:
        """A public bound on the l2 norm of every row, for the argument ``data_norm`` of linear models.

        It needs no ``fit``. Its square is the sum, over columns, of the square of the largest value of a
        feature of the column, which is 1 for categories and bins; with encoding="codes", of the square of the
        largest code.
        """
        schema = declared_schema(self.schema)
        if self._checked_encoding() == "features":
            return schema.norm() * (1 + 1e-12)  # rounded up, against rounding errors
        return math.sqrt(sum((column.n_codes - 1) ** 2 for column in schema.columns)) * (1 + 1e-12)

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Public bounds (lowest, highest) on each output column, which need no ``fit``."""
        schema = declared_schema(self.schema)
        if self._checked_encoding() == "codes":
            highest = np.array([column.n_codes - 1.0 for column in schema.columns])
            return np.zeros(len(highest)), highest
        pairs = [pair for column in schema.columns for pair in _feature_bounds(column)]
        low, high = np.array(pairs + [(1.0, 1.0)] * schema.intercept).T
        return low, high

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Check the schema and keep the names of the table's columns; no cell is read.

        Raises:
            SchemaError: an invalid declaration.
            InvalidInputError: not a table in memory, or an unknown encoding.
        """
        self._checked_encoding()
        self.schema_ = declared_schema(self.schema)
        _validated(self, X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Encode a table, shape (n, features): an array, or what ``set_output`` asks for.

        Args:
            X: a data frame or a dict, whose columns are found by name, others ignored; or an array of the
                declared columns in their order.

        Raises:
            SchemaError: the table lacks a column, or the schema refuses a cell; the message quotes no cell.
            InvalidInputError: not a table in memory.
        """
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        if self._checked_encoding() == "features":
            return encoded(self.schema_, X)
        return np.stack(self.schema_.codes(X), axis=1)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Return the names of the output columns, which the schema determines; ignore ``input_features``."""
        check_is_fitted(self)
        codes = self._checked_encoding() == "codes"
        names = [column.name for column in self.schema_.columns] if codes else self.schema_.feature_names
        return np.array(names, dtype=object)

    def _checked_encoding(self) -> str:
        if not isinstance(self.encoding, str) or self.encoding not in _ENCODINGS:
            raise InvalidInputError(
                f'encoding must be "features" or "codes", got {told(self.encoding)}'
                f"{did_you_mean(self.encoding, _ENCODINGS)}"
            )
        return self.encoding

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # for schemas that declare what a missing value means
        if self.encoding == "codes":
            tags.transformer_tags.preserves_dtype = []
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _validated(estimator: SchemaTransformer, X: Any, reset: bool) -> Any:
    """Return a table as a data frame or an array, after checks of its shape, column names and type."""
    if sp.issparse(X):
        raise InvalidInputError("sparse data: a schema encodes dense tables; use X.toarray()")
    X = as_table(X)
    if isinstance(X, pd.DataFrame):
        if reset:  # in transform, the schema finds columns by name
            validated(estimator, X, skip_check_array=True)
        return X
    if isinstance(X, list):
        X = np.asarray(X, dtype=object)  # otherwise numbers next to text would become text
    return validated(estimator, X, reset=reset, dtype=None, ensure_all_finite=False)


def _feature_bounds(column: Column) -> list[tuple[float, float]]:
    """Return the lowest and the highest value of each feature of a column."""
    plain, has_level = plain_column(column)
    ends = getattr(plain, "ends", None)
    if ends is None:
        return [(0.0, 1.0)] * len(column.feature_names)
    reached = [*map(float, ends), *[0.0] * has_level]  # the number is 0 where the value is missing
    return [(min(reached), max(reached)), *[(0.0, 1.0)] * has_level]

"""Schemas as transformers: scikit-learn's contract, the features of our estimators, public bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression, SchemaTransformer
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema

SCHEMA = Schema(
    [
        MissingLevel(Numeric("age", 20, 80, step=20, zero=40, one=60)),
        Binned("hours", [0, 20, 40, 60]),
        Categorical("sex", ["F", "M"], outside="ignore"),
    ],
    intercept=True,
)
TABLE = pd.DataFrame({"sex": ["M", "?", "F"], "age": ["31", "NA", "200"], "hours": [0, 39.5, 99]})
# By hand: 31 is rounded to 40, which is 0; 200 is clipped to 80, which is 2; 99 is in the last bin.
FEATURES = [
    [0, 0, 1, 0, 0, 0, 1, 1],
    [0, 1, 0, 1, 0, 0, 0, 1],
    [2, 0, 0, 0, 1, 1, 0, 1],
]


class OfAnyWidth(SchemaTransformer):
    """A schema of numbers, as many as the table has columns: scikit-learn's checks vary their number."""

    def fit(self, X: Any, y: Any = None) -> OfAnyWidth:
        super().fit(X, y)
        self.schema_ = Schema(
            [MissingLevel(Numeric(f"x{j}", -100, 100, step=0.125)) for j in range(self.n_features_in_)]
        )
        return self

    def transform(self, X: Any) -> Any:
        if isinstance(X, pd.DataFrame):  # whose columns have other names
            X = pd.DataFrame(X.to_numpy(), X.index, [f"x{j}" for j in range(X.shape[1])])
        return super().transform(X)


ONE = {"columns": [{"kind": "numeric", "name": "x0", "low": 0, "high": 1}]}


# Cells that are missing have a level of their own, as the checks put NaN into the tables of what allows it.
@parametrize_with_checks([OfAnyWidth(ONE), OfAnyWidth(ONE, encoding="codes")])
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def test_features_are_those_of_our_estimators() -> None:
    found = SchemaTransformer(SCHEMA).fit(TABLE).transform(TABLE)
    np.testing.assert_array_equal(found, FEATURES)
    card = PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=("no", "yes"), insecure_seed=0)
    card.fit(pd.concat([TABLE] * 20), ["no", "yes", "yes"] * 20)
    np.testing.assert_array_equal(found @ card.coef_[0] * SCHEMA.denominator, card.decision_function(TABLE))


def test_codes_are_levels_and_grid_points() -> None:
    codes = SchemaTransformer(SCHEMA, encoding="codes").fit_transform(TABLE)
    np.testing.assert_array_equal(codes, [[1, 0, 1], [4, 1, 2], [3, 2, 0]])
    assert codes.dtype == np.int64


def test_bounds_are_public_and_attained() -> None:
    low, high = SchemaTransformer(SCHEMA).bounds
    assert low.tolist() == [-1, 0, 0, 0, 0, 0, 0, 1]
    assert high.tolist() == [2, 1, 1, 1, 1, 1, 1, 1]
    low, high = SchemaTransformer(SCHEMA, encoding="codes").bounds
    assert low.tolist() == [0, 0, 0]
    assert high.tolist() == [4, 2, 2]  # grid points 0 to 3 and "missing"; bins; categories and "other"
    far = Schema([MissingLevel(Numeric("x", 20, 50, step=10, zero=0, one=10))])  # a missing number is 0
    assert [ends.tolist() for ends in SchemaTransformer(far).bounds] == [[0, 0], [5, 1]]


def test_the_norm_bound_is_the_largest_norm_of_a_row() -> None:
    features, codes = SchemaTransformer(SCHEMA), SchemaTransformer(SCHEMA, encoding="codes")
    assert features.data_norm == pytest.approx(math.sqrt(2**2 + 1 + 1 + 1), rel=1e-9)
    assert codes.data_norm == pytest.approx(math.sqrt(4**2 + 2**2 + 2**2), rel=1e-9)
    every = pd.DataFrame([(a, h, s) for a in (20, 40, 80, None) for h in (0, 20, 40) for s in "FM?"])
    every.columns = pd.Index(["age", "hours", "sex"])
    for transformer in (features, codes):
        norms = np.linalg.norm(transformer.fit(every).transform(every), axis=1)
        assert norms.max() <= transformer.data_norm <= norms.max() * (1 + 1e-9)


def test_fit_reads_no_cell() -> None:
    class Unreadable:
        def refuse(self, *_: Any) -> Any:
            raise AssertionError("a cell was read")

        __str__ = __repr__ = __float__ = __bool__ = __eq__ = __hash__ = refuse

    cells = np.empty(3, dtype=object)
    for k in range(3):
        cells[k] = Unreadable()
    secret = pd.DataFrame({"age": cells, "hours": cells, "sex": cells})
    transformer = SchemaTransformer(SCHEMA).fit(secret)
    assert transformer.feature_names_in_.tolist() == ["age", "hours", "sex"]
    np.testing.assert_array_equal(transformer.transform(TABLE), FEATURES)


def test_output_of_pandas_has_the_names_of_the_features() -> None:
    transformer = SchemaTransformer(SCHEMA).set_output(transform="pandas")
    table = TABLE.set_index(pd.Index([7, 8, 9]))
    found = clone(transformer).fit_transform(table)
    assert found.columns.tolist() == SCHEMA.feature_names
    assert found.index.tolist() == [7, 8, 9]
    codes = SchemaTransformer(SCHEMA, encoding="codes").set_output(transform="pandas")
    assert codes.fit_transform(table).columns.tolist() == ["age", "hours", "sex"]


def test_columns_and_steps_of_other_transformers() -> None:
    text = Schema([Categorical("sex", ["F", "M"], outside="ignore")])
    columns = ColumnTransformer(
        [
            ("text", SchemaTransformer(text), ["sex"]),
            ("halved", FunctionTransformer(lambda c: c / 100, feature_names_out="one-to-one"), ["hours"]),
        ]
    )
    np.testing.assert_array_equal(columns.fit_transform(TABLE), [[0, 1, 0], [0, 0, 0.395], [1, 0, 0.99]])
    assert columns.get_feature_names_out().tolist() == ["text__sex=F", "text__sex=M", "halved__hours"]


def test_private_and_other_estimators_follow_it_in_a_pipeline() -> None:
    table, labels = pd.concat([TABLE] * 100), ["no", "yes", "yes"] * 100
    encode = SchemaTransformer(SCHEMA)
    private = PrivateLogisticRegression(5.0, data_norm=encode.data_norm, classes=("no", "yes"))
    for last in (private, LogisticRegression()):
        assert make_pipeline(encode, last).fit(table, labels).score(table, labels) == 1


@pytest.mark.parametrize(
    ("encoding", "X", "message"),
    [
        ("feature", TABLE, "did you mean"),
        ("features", csr_array(np.eye(3)), "sparse"),
        ("features", np.zeros(3), "Expected 2D"),
    ],
)
def test_refusals(encoding: Any, X: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SchemaTransformer(SCHEMA, encoding=encoding).fit(X)


def test_refused_cells_are_not_quoted() -> None:
    strict = SchemaTransformer(Schema([Categorical("sex", ["F", "M"])]))
    with pytest.raises(InvalidInputError, match="not declared") as caught:
        strict.fit(TABLE).transform(pd.DataFrame({"sex": ["secret"]}))
    assert "secret" not in str(caught.value)

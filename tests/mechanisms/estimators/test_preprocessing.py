"""Fitted scalers and imputers before a private estimator are told of by ``evaluate``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler

from privopt.mechanisms import PrivateLogisticRegression, SchemaTransformer, evaluate
from privopt.problems import Numeric, PrivacyLeakWarning, Schema

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"a": RNG.uniform(0, 1, 300), "b": RNG.uniform(0, 1, 300)})
LABELS = np.where(TABLE["a"] > TABLE["b"], "yes", "no")
ENCODE = SchemaTransformer(Schema([Numeric("a", 0, 1, step=0.1), Numeric("b", 0, 1, step=0.1)]))


def private() -> PrivateLogisticRegression:
    return PrivateLogisticRegression(5.0, data_norm=2.0, classes=("no", "yes"), insecure_seed=0)


LEAKING: dict[str, list[Any]] = {
    "StandardScaler": [StandardScaler()],
    "SimpleImputer, MinMaxScaler": [SimpleImputer(), MinMaxScaler()],
    "MinMaxScaler": [ColumnTransformer([("s", MinMaxScaler(), ["a"])], remainder="passthrough")],
    "StandardScaler, MinMaxScaler": [make_pipeline(StandardScaler(), FeatureUnion([("m", MinMaxScaler())]))],
    "OneHotEncoder": [OneHotEncoder(handle_unknown="ignore")],
}
HARMLESS: dict[str, list[Any]] = {
    "schema": [ENCODE],
    "stateless": [FunctionTransformer(), Normalizer()],
    "declared categories": [OneHotEncoder(categories=[[0, 1], [0, 1]], handle_unknown="ignore")],
    "columns": [ColumnTransformer([("n", Normalizer(), ["a"])], remainder="passthrough")],
}


@pytest.mark.parametrize("names", LEAKING)
def test_transformers_that_learned_from_records_are_named(names: str) -> None:
    model = make_pipeline(*LEAKING[names], private()).fit(TABLE, LABELS)
    with pytest.warns(PrivacyLeakWarning, match=f"^{names} before PrivateLogisticRegression"):
        evaluate(model, TABLE, LABELS, epsilon=1.0, schema=ENCODE.schema)


@pytest.mark.parametrize("name", HARMLESS)
def test_transformers_that_learn_nothing_are_not(name: str) -> None:
    check([*HARMLESS[name], private()])


def test_a_public_pipeline_is_not() -> None:
    check([StandardScaler(), LogisticRegression()])


def check(steps: list[Any]) -> None:
    model = make_pipeline(*steps).fit(TABLE, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        evaluate(model, TABLE, LABELS, epsilon=1.0, schema=ENCODE.schema)

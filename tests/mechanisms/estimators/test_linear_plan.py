"""Plans of linear models: without data the mechanism, noise and spend of the fit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateRobustRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.errors import InvalidInputError

SCHEMA = Schema([Numeric("age", 0, 100), Categorical("smoker", ["yes", "no"])], intercept=True)
N = 600


def table(kind: type[Any], classes: int) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(0, 100, N), "smoker": rng.choice(["yes", "no"], N)})
    real = kind in (PrivateLinearRegression, PrivateRobustRegression)
    y = rng.uniform(0, 1, N) if real else rng.integers(0, classes, N)
    return X, y


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (PrivateLogisticRegression, {}),
        (PrivateLogisticRegression, {"epsilon": 0.1, "class_weight": "balanced"}),
        (PrivateLogisticRegression, {"classes": (0, 1, 2), "class_weight": {2: 3.0}}),
        (PrivateLogisticRegression, {"mechanism": "dp-sgd", "steps": 3}),
        (PrivateLogisticRegression, {"schema": None, "data_norm": 2.0, "columns": 1}),
        (PrivateSigmoidClassifier, {}),
        (PrivateLinearRegression, {"errors": "robust"}),
        (PrivateLinearRegression, {"epsilon": 0.3, "mechanism": "dp-fw-l1"}),
        (PrivateRobustRegression, {"steps": 2}),
        (PrivateRobustClassifier, {"classes": (0, 1, 2), "mechanism": "robust-gd"}),
        (PrivateRobustClassifier, {"schema": None, "columns": 1}),
    ],
    ids=str,
)
def test_a_plan_is_that_of_the_fit(kind: type[Any], given: dict[str, Any]) -> None:
    declared: dict[str, Any] = {"schema": SCHEMA, "insecure_seed": 1, **given}
    if kind is not PrivateRobustRegression:
        declared.setdefault("label_range" if kind is PrivateLinearRegression else "classes", (0, 1))
    d = declared.pop("columns", None)
    X, y = table(kind, len(declared.get("classes", ())))
    model = kind(**declared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = kind(**declared).fit(X if d is None else X[["age"]].to_numpy(), y)
    plan = model.plan(N, d)
    assert plan.spend == fitted.spend_
    assert plan.reason == fitted.mechanism_reason_
    made = plan.to_dict()
    assert made["mechanism"] == fitted.mechanism_
    if given.get("class_weight") != "balanced":  # its noise follows from the released prevalence
        assert {name: made[name] for name in fitted.noise_} == fitted.noise_
    assert str(plan).splitlines()[0] == f"mechanism: {fitted.mechanism_} ({fitted.mechanism_reason_})"


def test_records_with_weights_and_persons_have_plans_of_their_own() -> None:
    weighted = PrivateLogisticRegression(1.0, schema=SCHEMA, max_weight=2.0).plan(N)
    assert weighted.mechanism.facts.weighted
    persons = PrivateLogisticRegression(1.0, schema=SCHEMA, person="id", records_per_person=3).plan(N)
    assert persons.mechanism.facts.n_records == 3 * N
    assert persons.spend.neighbours == "replace-one person"


@pytest.mark.parametrize(
    ("model", "lacking"),
    [
        (PrivateLogisticRegression(1.0), "schema or data_norm and n_columns"),
        (PrivateLogisticRegression(1.0, data_norm=1.0), "n_columns"),
        (PrivateLinearRegression(1.0, schema=SCHEMA), "label_range"),
        (PrivateLinearRegression(1.0, schema=SCHEMA, max_features=1), "max_features"),
        (PrivateRobustClassifier(1.0), "schema or n_columns"),
    ],
)
def test_a_plan_names_what_it_lacks(model: Any, lacking: str) -> None:
    with pytest.raises(InvalidInputError, match=lacking):
        model.plan(N)


def test_a_plan_refuses_what_its_fit_refuses_before_data() -> None:
    with pytest.raises(PrivacyParameterError):
        PrivateLogisticRegression(0.0, schema=SCHEMA).plan(N)
    with pytest.raises(PrivacyParameterError):
        PrivateLogisticRegression(1.0, schema=SCHEMA, mechanism="objective-perturbation", steps=4).plan(N)
    with pytest.raises(InvalidInputError):
        PrivateLogisticRegression(1.0, schema=SCHEMA).plan(1)

"""Public facts of features in a schema, and linear models that are read by them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.likely_columns import _spread
from privopt.mechanisms.convex.likely_weights import Block
from privopt.problems import Categorical, MissingLevel, Numeric, Schema

SCHEMA = Schema(
    [
        Categorical("sex", ["f", "m"]),
        MissingLevel(Numeric("age", 0, 4, zero=0, one=2)),
        Categorical("site", ["a", "b", "c"]),
    ],
    intercept=True,
)


def test_a_number_stands_apart_from_its_missing_level_and_the_constant_from_all() -> None:
    known = Columns.of(SCHEMA)
    assert known.parts == ((0, 2), (2, 3), (3, 4), (4, 7))
    assert [line[0] for line in known.lines] == [2]
    assert known.features.tolist() == list(range(7))
    assert len(known.middle) == 8
    assert Columns((), known.middle, known.lines).features.tolist() == []


def test_levels_vary_as_their_shares_say_and_numbers_as_was_seen_or_is_typical() -> None:
    known = Columns.of(SCHEMA)
    shares = np.array([0.2, 0.8, 0, 0.1, 0.5, 0.3, 0.2])
    means = shares - np.array(known.middle)[:7]
    sex, age, missing, site = known.blocks(np.full(7, 0.7), means, 1e-9)
    assert sex.covariances == pytest.approx(np.array([[0.16, -0.16], [-0.16, 0.16]]))
    assert missing.covariances == pytest.approx(np.array([[0.09]]))
    p = shares[4:]
    assert site.covariances == pytest.approx(np.diag(p) - np.outer(p, p))
    low, high = known.lines[0][1:]
    assert float(age.covariances[0, 0]) == pytest.approx(min(0.7, (high - low) ** 2 / 4))
    hidden = known.blocks(np.full(7, -900.0), means, 1e6)[1]
    assert float(hidden.covariances[0, 0]) == pytest.approx((high - low) ** 2 / 16, rel=0.01)
    wild = known.blocks(np.full(7, 0.7), means - 9, 0.1)  # noise made shares negative
    assert all(np.linalg.eigvalsh(block.covariances).min() > -1e-12 for block in wild)
    for noise in (-9, 9):  # a level that all records seem to have, or none, varies all the same
        assert all(np.trace(block.covariances) > 1e-4 for block in known.blocks(np.ones(7), means + noise, 1))


def test_a_model_of_one_level_ends_whatever_noise_says_of_it() -> None:
    schema = Schema([Categorical("only", ["a"], outside="ignore")], intercept=True)
    frame = pd.DataFrame({"only": ["a", "b"]})
    for seed in range(10):
        model = PrivateLogisticRegression(
            0.5, delta=1e-9, schema=schema, classes=(0, 1), mechanism="sufficient-statistics",
            insecure_seed=seed,
        )  # fmt: skip
        assert np.isfinite(model.fit(frame, [0, 1]).coef_).all()


@pytest.mark.parametrize("intercept", [False, True])
def test_linear_models_of_a_schema_are_read_column_by_column(
    intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    blocks = Columns.blocks

    def spy(known: Columns, variances: NDArray[np.float64], *others: object) -> list[Block]:
        seen.append(len(variances))
        return blocks(known, variances, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Columns, "blocks", spy)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 400), "site": rng.choice(["a", "b", "c"], 400)})
    label = np.where(frame["sex"] == "f", "ill", "well")
    schema = Schema([c for c in SCHEMA.columns if c.name != "age"], intercept=intercept)
    options = {"mechanism": "sufficient-statistics", "classes": ("well", "ill"), "insecure_seed": 1}
    model = PrivateLogisticRegression(3.0, schema=schema, **options).fit(frame, label)
    assert seen == [5]
    assert model.score(frame, label) == 1
    encoded = pd.get_dummies(frame).astype(float)
    PrivateLogisticRegression(3.0, data_norm=math.sqrt(2), **options).fit(encoded, label)
    assert seen == [5]  # nothing is known of these


def test_a_number_in_a_narrow_part_of_its_range_is_not_lost_to_the_noise_of_its_variance() -> None:
    """Its variance is small beside noise; its covariance with labels, which says that it varies, is not."""
    rng = np.random.default_rng(0)
    schema = Schema([Numeric("x", -6, 6, step=0.01), Categorical("few", [0, 1, 2])], intercept=True)
    frame = pd.DataFrame({"x": np.round(rng.normal(0, 0.5, 200), 2), "few": rng.integers(0, 3, 200)})
    label = frame["x"] > 0
    for seed in range(30):
        model = PrivateLogisticRegression(
            20, delta=1e-5, schema=schema, classes=(False, True), mechanism="sufficient-statistics",
            insecure_seed=seed,
        )  # fmt: skip
        assert roc_auc_score(label, model.fit(frame, label).decision_function(frame)) > 0.93


def test_the_prior_of_a_number_does_not_depend_on_where_its_zero_lies() -> None:
    """Its least variance is a share of its squared range, which a record near one end of it does not see."""
    found = []
    for zero in (0, 2):
        columns = Columns.of(Schema([Numeric("age", 0, 4, zero=zero, one=zero + 2)], intercept=False))
        blocks, noise = [Block(np.array([[1e-6]]))], [np.array([[1e-4]])]
        found.append(float(_spread(np.array([0.01]), blocks, noise, 0.25, columns)[0, 0]))
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] > 0

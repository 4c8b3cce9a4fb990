"""Wishes of a schema for points: kept by every card, whatever the private weights are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.rounding import candidate_cards
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, PointRule, Schema

SCHEMA = Schema(
    [
        MissingLevel(Binned("late", [0, 1, 2, 3, 4])),
        Binned("income", [0, 1, 2, 3]),
        Categorical("job", ["a", "b", "c"]),
        MissingLevel(Numeric("age", 0, 100, step=10, zero=100, one=0)),
    ],
    intercept=True,
    rules={
        "late": PointRule("rising"),
        "income": PointRule("falling", (0, 3)),
        "job": PointRule(None, (-2, 0)),
        "age": PointRule("rising"),
    },
)


def test_every_candidate_keeps_the_wishes() -> None:
    lattice = SeededScorecard.default_lattice(SCHEMA.n_features, True, len(SCHEMA.columns))
    facts = CardFacts.of(SCHEMA, 1000, lattice)
    rng = np.random.default_rng(0)
    spread = 0
    for _ in range(200):
        cards, _ = candidate_cards(rng.normal(size=SCHEMA.n_features) * 3, facts)
        for card in cards:
            assert (np.diff(card[:4]) >= 0).all()
            assert (np.diff(card[5:8]) <= 0).all()
            assert card[5:8].min() >= 0
            assert card[5:8].max() <= 3
            assert card[8:11].max() <= 0
            assert card[8:11].min() >= -2
            assert card[11] <= 0  # the feature falls where age rises
            spread += len(set(card[:4].tolist())) > 1
    assert spread > 50


def test_a_number_and_its_missing_level_are_not_shifted_together() -> None:
    plain = Schema(SCHEMA.columns, intercept=True)
    lattice = SeededScorecard.default_lattice(plain.n_features, True, len(plain.columns))
    cards, _ = candidate_cards(np.array([0.0] * 11 + [2.0, -1.0, 0.0]), CardFacts.of(plain, 1000, lattice))
    assert cards[0][11] == 10
    assert cards[0][12] == -5


def test_fit_keeps_them_and_other_mechanisms_refuse() -> None:
    rng, n = np.random.default_rng(1), 2000
    frame = pd.DataFrame({"late": rng.integers(0, 4, n), "income": rng.uniform(0, 3, n),
                          "job": rng.choice(["a", "b", "c"], n), "age": rng.integers(0, 100, n)})  # fmt: skip
    y = np.where(frame["late"] - frame["income"] + rng.normal(size=n) > 0, 1, 0)
    model = PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=(0, 1), insecure_seed=0).fit(frame, y)
    assert model.mechanism_ == "seeded"
    points = model.coef_[0]
    assert (np.diff(points[:4]) >= 0).all()
    assert (np.diff(points[5:8]) <= 0).all()
    assert model.score(frame, y) > 0.7
    with pytest.raises(InvalidInputError, match="belong to the mechanism 'seeded'") as refused:
        PrivateHalfspaceClassifier(1.0, mechanism="exponential", schema=SCHEMA, classes=(0, 1)).fit(frame, y)
    assert "\n" not in str(refused.value)

"""Cards at costs that are released after the booking: the plan for them is the one that was booked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.estimators.scorecard import _covered
from privopt.problems import Categorical, Schema
from privopt.problems.tables.counted import CountedRecords

SCHEMA = Schema([Categorical(name, ["x", "y"]) for name in "abc"], intercept=True)


def card(seed: int = 0) -> PrivateHalfspaceClassifier:
    return PrivateHalfspaceClassifier(
        1e-4,
        schema=SCHEMA,
        classes=(0, 1),
        delta=1e-6,
        lattice=(-5, 5),
        class_weight="balanced",
        insecure_seed=seed,
    )


def test_released_costs_choose_no_other_mechanism_than_was_booked() -> None:
    """For costs of an even class an exact draw would do, for those of a rare one it would not."""
    n, codes = 10**6, (np.array([0, 1]),) * 3
    records = CountedRecords(SCHEMA, codes, (0, 1), np.array([0, 1]), np.array([n - 200, 200]))
    for seed in range(4):
        fitted = card(seed).fit(records)
        planned = card(seed).plan(n)
        assert fitted.mechanism_ == planned.plan.name == fitted.spend_.mechanism
        assert (fitted.spend_.notion, fitted.spend_.delta) == (planned.spend.notion, planned.spend.delta)


def test_a_plan_that_costs_more_than_was_booked_is_refused() -> None:
    booked = card().plan(10**6)
    for more in ({"epsilon": 2e-4}, {"delta": 1e-5}, {"notion": "pure", "delta": 0.0}):
        with pytest.raises(PlanMismatchError, match="more than is booked"):
            _covered(booked, replace(booked, spend=replace(booked.spend, **more)))
    assert _covered(booked, booked) is booked

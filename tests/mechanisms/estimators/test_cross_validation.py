"""Cross-validations and searches of scikit-learn are refused as a whole, before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  # before the import of the class
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from privopt.mechanisms import PrivateSearchCV, PrivateTreeClassifier, budget
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.repeats import RepeatedReleaseWarning
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.problems import Schema
from privopt.problems.tables.columns import Categorical

DECLARED: dict[str, Any] = {
    "schema": Schema([Categorical("smoker", ["no", "yes"]), Categorical("town", ["a", "b", "c"])]),
    "classes": ("ill", "well"),
}


def records() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"smoker": rng.choice(["no", "yes"], 60), "town": rng.choice(["a", "b", "c"], 60)})
    return frame, pd.Series(rng.choice(["ill", "well"], 60))


def tree(epsilon: float = 0.5, **more: Any) -> PrivateTreeClassifier:
    """A pure mechanism, so that epsilons add up and delta stays 0."""
    return PrivateTreeClassifier(epsilon, max_depth=1, **DECLARED, **more)


def tuned(model: PrivateTreeClassifier) -> None:
    """Choose a threshold; there is none after the fits if noise made all of them constant."""
    with suppress(ValueError):
        TunedThresholdClassifierCV(model, cv=3).fit(*records())


GRID = {"max_depth": [1, 2]}
EACH = 0.25
WHOLE: dict[str, tuple[int, Callable[[], object]]] = {
    "cross_val_score": (3, lambda: cross_val_score(tree(EACH), *records(), cv=3)),
    "cross_validate of a pipeline": (
        3,
        lambda: cross_validate(make_pipeline(tree(EACH)), *records(), cv=3),
    ),
    "cross_val_predict": (3, lambda: cross_val_predict(tree(EACH), *records(), cv=3)),
    "GridSearchCV": (5, lambda: GridSearchCV(tree(EACH), GRID, cv=2).fit(*records())),
    "GridSearchCV without a refit": (
        4,
        lambda: GridSearchCV(tree(EACH), GRID, cv=2, refit=False).fit(*records()),
    ),
    "GridSearchCV over epsilon": (
        3,
        lambda: GridSearchCV(tree(), {"epsilon": [EACH, 2 * EACH]}, cv=[_fold()], refit=False).fit(
            *records()
        ),
    ),
    "GridSearchCV of a pipeline": (
        5,
        lambda: GridSearchCV(
            make_pipeline(tree(EACH)), {"privatetreeclassifier__max_depth": [1, 2]}, cv=2
        ).fit(*records()),
    ),
    "CalibratedClassifierCV": (3, lambda: CalibratedClassifierCV(tree(EACH), cv=3).fit(*records())),
    "TunedThresholdClassifierCV": (4, lambda: tuned(tree(EACH))),
    "RandomizedSearchCV": (5, lambda: RandomizedSearchCV(tree(EACH), GRID, n_iter=2, cv=2).fit(*records())),
}


def _fold() -> tuple[list[int], list[int]]:
    return list(range(30)), list(range(30, 60))


@pytest.mark.parametrize("what", WHOLE)
def test_what_cannot_be_afforded_as_a_whole_is_refused_before_it_runs(what: str) -> None:
    units, run = WHOLE[what]
    with budget(epsilon=units * EACH - 0.01) as book:
        with pytest.raises(BudgetExceededError, match="fits, which would overdraw") as error:
            run()
        assert "Nothing was run" in str(error.value)
        assert book.entries() == []


@pytest.mark.parametrize("what", WHOLE)
def test_what_can_be_afforded_to_the_last_fit_runs(what: str) -> None:
    units, run = WHOLE[what]
    with budget(epsilon=units * EACH) as book:
        run()
        assert book.total().epsilon == units * EACH


def test_searches_of_which_the_number_of_fits_is_not_known_are_booked_fit_by_fit() -> None:
    epsilons = {"epsilon": [EACH, 2 * EACH]}
    with budget(epsilon=5 * EACH) as book:
        RandomizedSearchCV(tree(), epsilons, n_iter=2, cv=[_fold()], refit=True).fit(*records())
        # Each epsilon once, and that of the best once more.
        assert len(book.entries()) == 3
    with budget(epsilon=10 * EACH) as book:
        HalvingGridSearchCV(tree(EACH), GRID, cv=2, min_resources=20, factor=2).fit(*records())
        assert len(book.entries()) >= 5


def test_worker_processes_start_nothing() -> None:
    with budget(epsilon=0.4) as book:
        with pytest.raises(BudgetExceededError):
            GridSearchCV(tree(EACH), GRID, cv=2, n_jobs=2).fit(*records())
        assert book.entries() == []


def test_search_within_a_cross_validation_is_counted_by_its_own_budget() -> None:
    inner = PrivateSearchCV(PrivateTreeClassifier(100.0, **DECLARED), GRID, epsilon=EACH)
    with budget(epsilon=2 * EACH) as book:
        GridSearchCV(inner, {"held_out": [0.2]}, cv=2, refit=False).fit(*records())
        assert book.total().epsilon == pytest.approx(2 * EACH, rel=1e-6)


def test_estimator_within_another_is_counted_once_per_fold() -> None:
    inner = tree(EACH).set_params(classes=(0, 1))
    with budget(epsilon=EACH) as book:
        with pytest.raises(BudgetExceededError, match="2 fits"):
            cross_val_score(OneVsRestClassifier(inner), *records(), cv=2)
        assert book.entries() == []


@pytest.mark.parametrize("what", ["cross_val_score", "CalibratedClassifierCV"])
def test_without_a_budget_the_sum_is_told_once(what: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        WHOLE[what][1]()
    (warning,) = [w for w in told if w.category is RepeatedReleaseWarning]
    assert "3 fits" in str(warning.message)
    assert "epsilon = 0.75" in str(warning.message)
    assert "calibrators are not private" in str(warning.message)
    # Each fit says that it drowns in noise, and the plans that are made of them beforehand do not.
    assert len([w for w in told if w.category is NoiseWarning]) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedReleaseWarning)
        cross_val_score(tree(insecure_seed=0), *records(), cv=3)

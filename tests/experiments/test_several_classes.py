"""The comparison of models of several classes runs, on a table that is easy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privopt.experiments.several_classes import MODELS, OneVsRestMoments, Task, measures
from privopt.problems.tables.columns import Categorical
from privopt.problems.tables.schema import Schema


def test_every_model_is_measured_on_held_out_records() -> None:
    """The class is the level of the column: at a large epsilon every model finds it."""
    levels = np.random.default_rng(0).choice(["a", "b", "c"], 900)
    schema = Schema([Categorical("level", ["a", "b", "c"])], intercept=True)
    labels = np.searchsorted(["a", "b", "c"], levels).astype(np.int64)
    task = Task("levels", pd.DataFrame({"level": levels}), labels, schema, 600)
    found = list(measures(task, 0, 20.0))
    assert [line.model for line in found] == list(MODELS)
    assert [line.accuracy for line in found] == [1.0] * len(MODELS)


def test_a_release_for_each_class_has_the_noise_of_its_share() -> None:
    """Together they are the mu of the budget: sqrt(K) times that of each."""
    X = pd.DataFrame({"level": ["a", "b", "c"] * 100})
    schema = Schema([Categorical("level", ["a", "b", "c"])], intercept=True)
    model = OneVsRestMoments(1.0, schema=schema, classes=(0, 1, 2)).fit(X, np.arange(300) % 3)
    from privopt.mechanisms.privacy.accounting import gaussian_mu

    levels = [one.spend_.level for one in model.models]
    assert np.sqrt(np.sum(np.square(levels))) <= gaussian_mu(1.0, 1 / 300**2)
    assert np.sqrt(np.sum(np.square(levels))) > 0.999 * gaussian_mu(1.0, 1 / 300**2)

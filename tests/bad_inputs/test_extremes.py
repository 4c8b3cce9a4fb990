"""Extreme public parameters are refused in the plan, before anything is booked, or the release works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.bounded_linear import PrivateLinearRegression
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu, mu_beside_range
from privopt.mechanisms.privacy.gradient_noise import noise_at_level
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning
from privopt.problems.tables.columns import Categorical
from privopt.problems.tables.schema import Schema

X = np.random.default_rng(0).normal(size=(12, 3))
CLASSES = np.where(X[:, 0] > 0, 1, -1)
SCHEMA = Schema([Categorical(f"x{i}", ["no", "yes"]) for i in range(3)])
TABLE = pd.DataFrame({f"x{i}": np.where(X[:, i] > 0, "yes", "no") for i in range(3)})


def test_an_epsilon_that_leaves_no_noise_on_the_grid_is_refused_in_the_plan() -> None:
    for n in (1, 10, 10**15):
        with pytest.raises(PrivacyParameterError, match=r"64-bit grid .* a smaller epsilon"):
            ClippedNewton.plan(n, 2, LogisticLoss(), epsilon=1e300, delta=1e-6)
    for kind in ("dp-gd", "sufficient-statistics", "dp-gld"):
        with pytest.raises(PrivacyParameterError, match="64-bit grid"):
            RISK_MECHANISMS[kind].plan(RiskFacts(10, 2, LogisticLoss()), epsilon=1e300, delta=1e-6)


@pytest.mark.parametrize("n", [1, 12, 1000])
def test_what_the_plan_lets_pass_fits_on_the_grid(n: int) -> None:
    """At the largest level every mean that n records can make is released: sensitivity times n at most."""
    sensitivity, source = 0.25, NoiseSource(1)
    noise = noise_at_level(2.0**30 / n, 1, sensitivity, 2, n)
    released = noise.add(np.array([n * sensitivity / 2, -n * sensitivity / 2]), source)
    assert np.allclose(np.abs(released), n * sensitivity / 2, rtol=1e-3)
    with pytest.raises(PrivacyParameterError, match="64-bit grid"):
        noise_at_level(2.0**30 / n * (1 + 1e-9), 1, sensitivity, 2, n)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-12, 1e-9])
@pytest.mark.parametrize("kind", [ExponentialMechanism, PermuteAndFlip])
def test_an_epsilon_below_the_arithmetic_of_draws_is_refused_in_the_plan(kind: Any, epsilon: float) -> None:
    with pytest.raises(PrivacyParameterError, match="too coarse for epsilon"):
        kind.plan(ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=2), epsilon=epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e300, 1e-6), (1e-9, 1e-6), (1.0, 1e-300)])
def test_a_card_is_refused_before_it_is_booked(epsilon: float, delta: float, tmp_path: Path) -> None:
    book = Ledger.create(str(tmp_path / "book"), 1e301, 0.5)
    card = PrivateHalfspaceClassifier(
        epsilon, delta=delta, mechanism="seeded", schema=SCHEMA, classes=(-1, 1), ledger=book
    )
    with pytest.raises(PrivacyParameterError, match=r"epsilon|delta = 1e-300"):
        card.fit(TABLE, CLASSES)
    assert book.entries() == []


@pytest.mark.parametrize("delta", [1e-300, 5e-324, 1e-291])
def test_a_delta_that_underflows_is_refused_in_words(delta: float) -> None:
    for computed in (
        lambda: gaussian_mu(1.0, delta),
        lambda: gaussian_epsilon(1.0, delta),
        lambda: mu_beside_range(1.0, delta, 0.1),
    ):
        with pytest.raises(PrivacyParameterError, match=r"delta = .* is too small for Gaussian noise"):
            computed()


@pytest.mark.parametrize("label", [1e300, -1e300, 1e155, 1e61])
def test_labels_whose_squares_are_no_numbers_are_refused_without_being_quoted(label: float) -> None:
    y = np.append(X[1:, 0], label)
    with (
        pytest.warns(PrivacyLeakWarning, match="label_range"),
        pytest.raises(InvalidInputError, match="the range of the labels") as caught,
    ):
        PrivateLinearRegression(1.0, delta=1e-6, data_norm=3.0).fit(X, y)
    assert f"{label:g}" not in str(caught.value)
    assert str(label) not in str(caught.value)
    PrivateLinearRegression(1.0, delta=1e-6, data_norm=3.0, label_range=(-3, 3)).fit(X, y)


@pytest.mark.parametrize("bounds", [(-1e300, 1e300), (0, 1e-300), (1e61, 2e61)])
def test_a_label_range_beyond_squares_is_refused_before_it_is_booked(
    bounds: tuple[float, float], tmp_path: Path
) -> None:
    book = Ledger.create(str(tmp_path / "book"), 9.0, 0.5)
    model = PrivateLinearRegression(1.0, delta=1e-6, data_norm=3.0, label_range=bounds, ledger=book)
    with pytest.raises(InvalidInputError, match="label_range must be wider"):
        model.fit(X, X[:, 0])
    assert book.entries() == []

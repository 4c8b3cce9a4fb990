"""Intervals of logistic coefficients: those of maximum likelihood without noise, their variance, coverage."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.errors import NoIntervalError, PrivacyParameterError
from privopt.mechanisms.inference.logistic import LogisticMinimum
from privopt.mechanisms.privacy.noisy_minimum import NoisyMinimum
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
Z = -float(ndtri(0.025))
NAME = "objective-perturbation-hessian"
TRUE = np.array([1.5, -1.0, -0.5])
SCHEMA = Schema([Numeric("age", 20, 80), Categorical("region", ("north", "east", "south"))], intercept=False)


def drawn(n: int, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, (rng.random(n) < expit(X @ TRUE[:2] + TRUE[2])).astype(int)


def fitted(epsilon: float, n: int = 5_000, seed: int = 0, **more: Any) -> PrivateLogisticRegression:
    arguments: dict[str, Any] = {"mechanism": NAME, "data_norm": math.sqrt(2), "classes": (0, 1), **more}
    return PrivateLogisticRegression(epsilon, insecure_seed=seed, **arguments).fit(*drawn(n, seed))


def maximum_likelihood(W: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Newton's method; coefficients and their standard errors."""
    theta = np.zeros(W.shape[1])
    for _ in range(30):
        p = expit(W @ theta)
        information = (W * (p * (1 - p))[:, None]).T @ W
        theta = theta + np.linalg.solve(information, W.T @ (y - p))
    return theta, np.sqrt(np.diag(np.linalg.inv(information)))


def test_without_noise_to_speak_of_they_are_those_of_maximum_likelihood() -> None:
    X, y = drawn(5_000, 0)
    summary = fitted(1e5).summary()
    theta, deviations = maximum_likelihood(np.column_stack([X, np.ones(len(X))]), y)
    assert [one.name for one in summary] == ["x0", "x1", "intercept"]
    for one, value, deviation in zip(summary, theta, deviations, strict=True):
        assert one.estimate == pytest.approx(value, abs=0.05 * deviation)
        assert one.high - one.low == pytest.approx(2 * Z * deviation, rel=0.01)
        assert one.noise_share < 0.05


def table(n: int) -> tuple[pd.DataFrame, Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    age, region = rng.integers(20, 81, n), rng.integers(0, 3, n)
    frame = pd.DataFrame({"age": age, "region": np.array(["north", "east", "south"])[region]})
    W = np.column_stack([age, region == 1, region == 2, np.ones(n)]).astype(float)
    return frame, W, (rng.random(n) < expit(W @ [0.03, 0.5, -0.4, -1.5])).astype(int)


def test_a_category_has_a_reference_although_the_fit_weighs_all_of_its_levels() -> None:
    """Levels, constant and penalty together determine a minimum; its contrasts are those without a level."""
    frame, W, y = table(4_000)
    model = PrivateLogisticRegression(
        1e5, mechanism=NAME, schema=SCHEMA, classes=(0, 1), insecure_seed=0
    ).fit(frame, y)
    summary = model.summary()
    assert [one.name for one in summary] == ["age", "region=east", "region=south", "intercept"]
    assert summary.references == ("region=north",)
    theta, deviations = maximum_likelihood(W, y)
    for one, value, deviation in zip(summary, theta, deviations, strict=True):
        assert one.noise_share < 0.02
        # Within five standard deviations of what noise there is.
        assert one.estimate == pytest.approx(value, abs=5 * math.sqrt(one.noise_share) * deviation)
        assert one.high - one.low == pytest.approx(2 * Z * deviation, rel=0.02)
    low, high = model.mean_intervals(frame[:1])[0]
    assert low < expit(W[0] @ theta) < high
    ten = model.combination({"age": 10})
    assert ten.estimate == pytest.approx(10 * summary["age"].estimate)


def test_the_variance_is_that_of_simulated_noise() -> None:
    """Of a quadratic risk F = (w - t)' H (w - t) / 2, whose perturbed minimum is known; no sampling noise."""
    rng, runs = np.random.default_rng(2), 4_000
    half = rng.normal(size=(3, 30))
    H, t, l2 = half @ half.T / 30, np.array([1.0, -2.0, 0.5]), 0.2
    tilt, blur, sigma = 0.05, 0.03, 0.02
    C = np.vstack([np.eye(3), [1.0, 1.0, 0.0]])
    estimates = []
    for _ in range(runs):
        w = np.linalg.solve(H + l2 * np.eye(3), H @ t - tilt * rng.normal(size=3)) + blur * rng.normal(size=3)
        noise = sigma * rng.normal(size=(3, 3))
        one = NoisyMinimum(w, H + (noise + noise.T) / 2, l2, tilt, blur, sigma, 0.0, 10**12)
        estimates.append(LogisticMinimum.of(one).bounds(C, 1.0).estimate)
    # (N + N') / 2 has variance sigma^2 on the diagonal and half of it beside; n is too large for sampling.
    exact = NoisyMinimum(np.linalg.solve(H + l2 * np.eye(3), H @ t), H, l2, tilt, blur, sigma, 0.0, 10**12)
    bounds = LogisticMinimum.of(exact).bounds(C, 1.0)
    assert bounds.estimate == pytest.approx(C @ t)  # the penalty is taken out
    deviations = np.std(np.array(estimates), axis=0)
    assert (bounds.high - bounds.low) / 2 == pytest.approx(deviations, rel=5 / math.sqrt(2 * runs) + 0.02)
    assert bounds.noise_share == pytest.approx(1.0, abs=1e-6)


def test_intervals_cover_coefficients_of_the_population() -> None:
    """Of 60 draws 57 cover on average, with a standard deviation of 1.7; 49 or fewer have probability 2e-4.

    If half of the variance were left out 83% would cover: one of the three fails with probability .8.
    """
    covered = np.zeros(3)
    for run in range(60):
        bounds = fitted(1.0, n=4_000, seed=run).intervals()
        covered += (bounds[:, 0] <= TRUE) & (bounds[:, 1] >= TRUE)
    assert np.min(covered) >= 50


def test_noise_that_hides_the_curvature_is_refused() -> None:
    with pytest.raises(NoIntervalError, match=r"smallest eigenvalue .* need 0.5"):
        fitted(0.01, n=300).summary()


def test_models_without_a_hessian_say_how_to_get_one() -> None:
    for model in (
        fitted(1.0, n=300, mechanism="objective-perturbation"),
        fitted(1.0, n=300, mechanism="auto"),
    ):
        with pytest.raises(InvalidInputError, match=r"no intervals: .*objective-perturbation-hessian"):
            model.summary()
    X, _ = drawn(300, 0)
    three = PrivateLogisticRegression(3.0, mechanism=NAME, data_norm=2.0, classes=(0, 1, 2), insecure_seed=0)
    with pytest.raises(PrivacyParameterError, match="there are 3 classes"):
        three.fit(X, np.arange(300) % 3)
    three.set_params(mechanism="auto")
    with pytest.raises(InvalidInputError, match="two classes"):
        three.fit(X, np.arange(300) % 3).summary()
    with pytest.raises(PrivacyParameterError, match="without class weights"):
        fitted(1.0, n=300, class_weight={1: 2.0})


def test_saved_models_keep_their_intervals_and_wrong_files_are_refused(tmp_path: Path) -> None:
    frame, _, y = table(2_000)
    model = PrivateLogisticRegression(
        3.0, mechanism=NAME, schema=SCHEMA, classes=(0, 1), insecure_seed=0
    ).fit(frame, y)
    model.save(tmp_path / "model.json")
    again = PrivateLogisticRegression.load(tmp_path / "model.json")
    assert again.summary() == model.summary()
    assert "log odds of 1 against 0" in repr(again.summary())
    for path, wrong in (
        (("minimum", "sigma"), -1.0),
        (("minimum", "l2"), 0.0),
        (("minimum", "weights"), [0.0]),
        (("minimum", "hessian"), "much"),
        (("minimum", "n_records"), 0),
        (("basis",), [[1.0]]),
        (("coefficients", "names"), ["age"]),
    ):
        saved = json.loads((tmp_path / "model.json").read_text())
        place = saved["inference"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = wrong
        with pytest.raises(InvalidInputError, match="is not a saved"):
            PrivateLogisticRegression.from_dict(saved)

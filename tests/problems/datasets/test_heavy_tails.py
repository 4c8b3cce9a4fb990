"""Synthetic heavy tails: centred noise, labels of the model, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.problems import InvalidInputError
from privopt.problems.datasets.heavy_tails import make_loglogistic_signs, make_lognormal_line


def test_the_line_has_centred_skewed_noise() -> None:
    X, y, w = make_lognormal_line(50_000, 4, seed=0)
    noise = y - X @ w
    assert abs(np.mean(noise)) < 0.06  # five standard errors: the variance is (e - 1) e = 4.67
    assert np.min(noise) >= -np.exp(0.5)
    assert np.max(noise) > 20
    assert np.linalg.norm(w) == pytest.approx(1.0)


def test_signs_follow_the_model_up_to_noise() -> None:
    X, y, w = make_loglogistic_signs(20_000, 3, seed=1)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert 0.6 < np.mean(np.sign(X @ w) == y) < 0.95


def test_refusals() -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        make_lognormal_line(0, 3, seed=0)
    with pytest.raises(InvalidInputError, match="spread"):
        make_loglogistic_signs(10, 3, spread=1.0, seed=0)

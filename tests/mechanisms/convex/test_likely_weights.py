"""Likely weights given noisy moments: against quadrature, exact moments and no model at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from privopt.mechanisms.convex.columns import smooth_prior
from privopt.mechanisms.convex.likely_weights import (
    Block,
    _kept_by_pairs,
    least_squares,
    likely_blocks,
    likely_covariances,
    likely_weights,
    logistic_scale,
    towards_mean,
)

Floats = NDArray[np.float64]


def test_numbers_move_to_their_mean_as_far_as_noise_explains_their_spread() -> None:
    numbers = np.array([1.0, 3.0, 5.0, 7.0])  # mean 4, variance 5
    moved, kept = towards_mean(numbers, 2.0)
    assert kept == pytest.approx(1 / 5)
    assert moved == pytest.approx([3.4, 3.8, 4.2, 4.6])
    assert towards_mean(numbers, 3.0)[1] == 0  # noise explains all of it
    assert np.array_equal(towards_mean(numbers, 0.0)[0], numbers)
    assert towards_mean(np.full(3, 0.2), 0.0)[1] == 1


def test_a_variance_is_what_was_seen_or_typical_as_noise_has_it_and_two_deviations_more() -> None:
    seen = np.array([0.02, 0.06, 0.04])
    for block, variance in zip(likely_blocks(seen, 1e-9, 1.0), seen, strict=True):
        assert block.covariances == pytest.approx(np.array([[variance]]), rel=1e-6)
    hidden = likely_blocks(np.array([-9.0, 8.0, 1.0]), 1e6, 1.0)
    assert [float(block.covariances[0, 0]) for block in hidden] == pytest.approx([0.25] * 3)
    some = likely_blocks(np.array([0.1, 0.9]), 0.2, 1.0)  # spread .16, of which noise explains .04
    assert [block.hidden for block in some] == pytest.approx([0.03, 0.03])
    known = 0.0625 / (0.0625 + 0.02)
    mean = known * 0.5 + (1 - known) * 0.25
    assert float(some[1].covariances[0, 0]) == pytest.approx(mean + 0.75 * (0.9 - mean) + 2 * math.sqrt(0.03))
    assert float(likely_blocks(np.array([-5.0, 9.0]), 0.01, 1.0)[0].covariances[0, 0]) > 0


def test_covariances_beside_the_blocks_shrink_as_noise_hides_them() -> None:
    rng, sigma, d = np.random.default_rng(0), 0.3, 30
    Z = rng.normal(size=(40_000, 3)) @ rng.normal(size=(3, d)) / 2 + rng.normal(size=(40_000, d))
    true = np.cov(Z.T)
    noise = np.triu(rng.normal(size=(d, d)), 1) * sigma / math.sqrt(2)
    noise = noise + noise.T + sigma * np.diag(rng.normal(size=d))
    blocks = [Block(np.array([[v]])) for v in np.diag(true)]
    found, left = likely_covariances(true + noise, blocks, sigma)
    assert np.linalg.eigvalsh(found).min() > -1e-9
    beside = ~np.eye(d, dtype=bool)
    error = float(np.mean((found - true)[beside] ** 2))
    assert error < 0.9 * sigma**2 / 2
    assert np.mean(left[beside]) == pytest.approx(error, rel=0.25)  # it says what it does not know
    alone, unknown = likely_covariances(np.diag(np.diag(true)) + noise, blocks, sigma)
    assert np.mean((alone - np.diag(np.diag(true)))[beside] ** 2) < 0.02 * sigma**2
    assert np.array_equal(np.diag(unknown), np.zeros(d))


@pytest.mark.parametrize(("sigma", "tau"), [(0.01, 0.25), (100.0, 0.1)])
def test_the_covariance_of_two_numbers_is_believed_as_noise_allows(sigma: float, tau: float) -> None:
    """Their squared correlation is that which is seen, .25, and a usual one of .1 where noise hides it."""
    seen, blocks = np.array([[1.0, 0.5], [0.5, 1.0]]), [Block(np.eye(1)), Block(np.eye(1))]
    _, left = likely_covariances(seen, blocks, sigma, np.array([True, True]))
    kept = left[0, 1] / (sigma**2 / 2)
    assert kept == pytest.approx(tau / (tau + sigma**2 / 2), rel=1e-3)
    assert 1 - kept == pytest.approx(sigma**2 / 2 / (tau + sigma**2 / 2), rel=1e-3)


def test_correlations_of_numbers_are_of_a_size_of_their_own() -> None:
    rng, d = np.random.default_rng(1), 20
    seen = np.eye(2 * d)
    seen[:d, :d] += (found := np.triu(rng.normal(size=(d, d)), 1)) + found.T
    _, left = likely_covariances(seen, [Block(np.eye(1))] * 2 * d, 0.3, np.arange(2 * d) < d)
    assert left[0, 1] > 0.8 * 0.3**2 / 2
    assert left[0, d] < 0.1 * 0.3**2 / 2


def test_of_ordered_levels_smooth_covariances_are_believed_first() -> None:
    """Two numbers in bins whose covariances are those of a common factor; noise hides single ones."""
    rng, k, records = np.random.default_rng(2), 10, 40_000
    factor = rng.normal(size=records)
    u = factor[:, None] + rng.normal(size=(records, 2))
    bins = np.argsort(np.argsort(u, axis=0), axis=0) * k // records
    levels = np.concatenate([bins[:, [c]] == np.arange(k) for c in (0, 1)], axis=1)
    true, sigma = np.cov(levels.T.astype(float)), 0.02
    noise = np.triu(rng.normal(size=true.shape), 1) * sigma / math.sqrt(2)
    errors = []
    for kernel in (None, smooth_prior(k, k)):
        blocks = [Block(true[s, s], kernel=kernel) for s in (slice(0, k), slice(k, 2 * k))]
        found, left = likely_covariances(true + noise + noise.T, blocks, sigma)
        errors.append(float(np.sum((found - true)[:k, k:] ** 2)))
    assert errors[1] < 0.8 * errors[0]
    assert errors[1] == pytest.approx(float(np.sum(left[:k, k:])), rel=0.7)
    assert errors[1] < 0.15 * k * k * sigma**2 / 2


@pytest.mark.parametrize("ordered", [True, False])
def test_each_pair_of_ordered_columns_is_as_correlated_as_its_covariances_say(ordered: bool) -> None:
    """Two columns of six levels that are nearly equal, among ten that are independent, under noise."""
    rng, k, columns, sigma = np.random.default_rng(3), 6, 12, 0.02
    z = rng.normal(size=(40_000, columns))
    z[:, 1] = z[:, 0] + 0.5 * z[:, 1]
    levels = np.argsort(np.argsort(z, axis=0), axis=0) * k // 40_000
    X = np.concatenate([levels[:, [c]] == np.arange(k) for c in range(columns)], axis=1).astype(float)
    true, shape = np.cov(X.T), (k * columns, k * columns)
    noise = np.triu(rng.normal(size=shape), 1) * sigma / math.sqrt(2)
    kernel = smooth_prior(k, k) if ordered else np.eye(k)
    blocks = [Block(true[s, s], kernel=kernel) for s in (slice(k * c, k * c + k) for c in range(columns))]
    found, left = likely_covariances(true + noise + noise.T, blocks, sigma)
    kept, squares = left / (sigma**2 / 2), (found - true) ** 2 / (sigma**2 / 2)
    equal, beside = np.s_[:k, k : 2 * k], np.s_[2 * k : 3 * k, 3 * k :]
    if ordered:
        assert np.mean(kept[beside]) < 0.03
        assert np.mean(squares[beside]) < 0.03
        assert np.mean(kept[equal]) > 0.25
        assert np.mean(squares[equal]) < 1.1 * np.mean(kept[equal]) + 0.1
    else:  # one correlation for all pairs
        assert np.allclose(kept[equal], kept[beside][:, :k], rtol=0.2)


@pytest.mark.parametrize("signal", [0.0, 0.5, 3.0, 30.0])
def test_the_factor_of_one_pair_is_the_mean_over_its_correlations(signal: float) -> None:
    """Two blocks of two features, whose entries all have the same scale."""
    seen = np.full((4, 4), signal)
    taus = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
    kept = _kept_by_pairs(seen, np.full((4, 4), 8.0), [2, 2], 0.1)
    prior = np.exp(-0.5 * (np.log(np.maximum(taus, 1e-3) / 0.1) / 0.8) ** 2)
    prior /= np.sum(prior)
    likely = np.prod(norm.pdf(np.full((4, 8), signal), 0, np.sqrt(1 + 8 * taus)), axis=0)
    chances = prior
    for _ in range(20):
        chances = likely * chances / np.sum(likely * chances) + 3 * prior
        chances /= np.sum(chances)
    posterior = likely * chances / np.sum(likely * chances)
    assert kept[:2, 2:] == pytest.approx(np.full((2, 2), posterior @ (8 * taus / (1 + 8 * taus))))


def test_covariances_without_noise_are_those_that_are_seen() -> None:
    seen, blocks = np.array([[1.0, 0.5], [0.5, 1.0]]), [Block(np.eye(1)), Block(np.eye(1))]
    for sigma in (0.0, 1e-8):
        found, left = likely_covariances(seen, blocks, sigma)
        assert found == pytest.approx(seen)
        assert left == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("b", [0.01, 0.3, -0.8, 2.0])
@pytest.mark.parametrize("noise", [0.01, 0.2])
def test_of_one_feature_it_is_the_posterior_mean_by_quadrature(b: float, noise: float) -> None:
    """Half a chance that there is no model; otherwise all pairs of explained part and share are as likely."""
    v, variance = 0.4, 1.5
    explained, shares = np.geomspace(1e-4, 1, 25), (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    evidence = 25 * 7 * norm.pdf(b, 0, math.sqrt(noise))
    moment = 0.0
    for part in explained:
        for share in shares:
            prior = math.sqrt(part * variance / (share * v))
            # The product of both is a Gaussian bell around here.
            width = 1 / math.sqrt(1 / prior**2 + v**2 / noise)
            w = width**2 * v * b / noise + width * np.linspace(-9, 9, 601)
            joint = norm.pdf(w, 0, prior) * norm.pdf(b, v * w, math.sqrt(noise))
            evidence += (1 - share) * norm.pdf(b, 0, math.sqrt(noise)) + share * np.trapezoid(joint, w)
            moment += share * np.trapezoid(w * joint, w)
    found = likely_weights(np.zeros((1, 1)), np.array([b]), [Block(np.array([[v]]))], [noise], 1.0, variance)
    assert found.weights == pytest.approx([moment / evidence], rel=1e-6)


def test_weights_are_kept_where_they_stand_out_and_given_up_where_noise_hides_them() -> None:
    A, w = np.array([[1.0, 0.3], [0.3, 0.5]]), np.array([1.0, -1.0])
    blocks = [Block(A)]
    assert likely_weights(A, A @ w, blocks, [1e-12], 1e-6, 1.0).weights == pytest.approx(w, rel=1e-3)
    assert least_squares(A, A @ w).weights == pytest.approx(w)
    assert np.abs(likely_weights(A, A @ w, blocks, [100.0], 10.0, 1.0).weights).max() < 0.01
    two = likely_weights(np.eye(2), np.array([1.0, 0.01]), [Block(np.eye(1))] * 2, [0.01, 0.01], 1e-6, 1.0)
    assert two.weights[0] > 0.9
    assert abs(two.weights[1]) < 0.005
    assert two.explained == pytest.approx(two.weights @ two.weights, rel=1e-6)
    assert two.at_most >= two.explained


@pytest.mark.parametrize("level", [0.01, 0.03, 0.1, 0.3, 1.0])
def test_on_average_a_model_is_hardly_ever_worse_than_none(level: float) -> None:
    """Excess risk w'Aw - 2 w'c over that of w = 0, for correlated features of unlike sizes; least is -.5."""
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(5_000, 12)) @ (np.eye(12) + rng.normal(size=(12, 12)) / 3) * rng.uniform(0.2, 1, 12)
    A = np.cov(Z.T) / 8
    truth = rng.normal(size=12) * (rng.random(12) < 0.5)
    truth *= math.sqrt(0.5 / (truth @ A @ truth))
    b, losses = A @ truth, []
    for _ in range(60):
        E = np.triu(rng.normal(size=A.shape), 1) * level / math.sqrt(2)
        noisy = A + E + E.T + level * np.diag(rng.normal(size=12))
        blocks = likely_blocks(np.diag(noisy), level, float(np.trace(A)) * 2 / 12)
        seen = b + level * rng.normal(size=12)
        w = likely_weights(noisy, seen, blocks, [level**2] * 12, level, 1.0).weights
        losses.append(float(w @ A @ w - 2 * w @ b))
    assert np.mean(losses) < {0.01: -0.45, 0.03: -0.35, 0.1: -0.15}.get(level, 0.03)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("explained", [1e-8, 0.004, 0.03])
def test_scores_have_the_share_and_the_covariance_that_were_seen(share: float, explained: float) -> None:
    """By integration on a grid; and where little is explained, one Newton step from the best constant."""
    middle, scale = logistic_scale(share, explained, explained)
    spread = scale * math.sqrt(explained)
    z = np.linspace(-9, 9, 20_001)
    p, weight = expit(middle + spread * z), norm.pdf(z)
    assert np.trapezoid(p * weight, z) == pytest.approx(share, rel=1e-6)
    if spread < 1.499:
        assert np.trapezoid(z * p * weight, z) == pytest.approx(math.sqrt(explained), rel=1e-4)
    if explained == 1e-8:
        assert scale == pytest.approx(1 / (share * (1 - share)), rel=1e-3)
        assert middle == pytest.approx(math.log(share / (1 - share)), abs=1e-4)


def test_what_may_be_explained_bounds_how_far_scores_spread() -> None:
    assert logistic_scale(0.5, 0.24, 0.24)[1] * math.sqrt(0.24) == pytest.approx(1.5)
    assert logistic_scale(0.5, 0.06, 0.24)[1] * math.sqrt(0.24) == pytest.approx(1.5)
    assert logistic_scale(0.3, 0.0, 0.0) == (pytest.approx(math.log(3 / 7)), pytest.approx(1 / 0.21))

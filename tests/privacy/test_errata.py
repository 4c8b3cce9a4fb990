"""The errata page shows what its script computes, and its parts agree with independent computations."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, stats

from privopt.experiments import errata
from privopt.mechanisms.audit.claims import audit_claim
from privopt.mechanisms.audit.heavy_tails import printed_scale
from privopt.mechanisms.heavy_tails.arsinh_noise import ArsinhNoise
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.trimming import Trimming, smooth_sensitivity

PAGE = Path(errata.__file__).parent / "docs" / "errata.md"


# Table 6 searches over convolutions of loss distributions, which takes a minute.
@pytest.mark.parametrize(
    "number", [1, 2, 3, 4, 5, pytest.param(6, marks=pytest.mark.slow), 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
)
def test_page_shows_the_computed_table(number: int) -> None:
    shown = errata.DEMONSTRATIONS[number - 1]()
    assert shown.number == number
    text = PAGE.read_text()
    section = text[text.index(f"## {number}. ") : text.index("## References")].split("\n## ")[0]
    assert shown.title.lower() in section.lower()
    assert shown.markdown() in section


def test_least_noise_of_the_printed_trimmed_mean_is_that_of_its_law() -> None:
    """Quadrature of sinh over the normal law, and the m that the table says is enough and no larger."""
    y, weights = np.polynomial.hermite_e.hermegauss(60)
    deviation = math.sqrt(float(np.sum(weights * np.sinh(y) ** 2)) / math.sqrt(2 * math.pi))
    for epsilon, m in ((0.5, 0), (0.5, 40), (1.0, 10)):
        printed = math.exp(-m * epsilon**2 / 16) / (epsilon / 4) * deviation
        assert errata.least_trimming_noise(epsilon, m) == pytest.approx(printed, rel=1e-9)
    enough = int(errata.a_trim_that_does_not_grow().rows[-1][-1].replace(",", ""))
    assert errata.least_trimming_noise(1.0, enough) <= 1e-3 < errata.least_trimming_noise(1.0, enough - 1)


def test_a_scale_that_is_0_on_one_data_set_is_not_smooth() -> None:
    """Walk from equal answers to spread ones, one at a time: the scale grows by e^beta at most."""
    plan = SampleAggregate.plan(10_000, 1, subsets=400, radius=1.0, epsilon=4.0, delta=0.05)
    growth = (plan.averaged + 1) / (plan.averaged - 1) * math.exp(plan.decay)
    answers = np.zeros((400, 1))
    scale = plan.centre(answers)[1]
    assert scale > 0
    for k in range(400):
        answers[k] = 2 * k / 399 - 1
        moved = plan.centre(answers)[1]
        assert moved <= growth * scale * (1 + 1e-8)
        scale = moved
    assert scale > 1  # from a trace to the width of the ball, in steps of e^beta


def test_accelerated_recursion_is_that_of_the_listing() -> None:
    # The listing run on numbers: a constant gradient g, noises b, L' = 1, no constraint.
    rng = np.random.default_rng(0)
    steps, g, b = 6, 1.7, rng.standard_normal(6)
    for noisy_y in (False, True):
        y = z = 0.0
        for k in range(steps):
            r, alpha = 2 / (k + 2), (k + 2) / 4
            x = r * z + (1 - r) * y
            y = x - (g + b[k] if noisy_y else g)
            z = z - alpha * (g + b[k])
        shift, noise = errata._accelerated(steps, noisy_y)
        assert y == pytest.approx(shift * g + noise @ b)


def brute_trimmed(x: np.ndarray, m: int) -> float:
    return float(np.mean(np.sort(x)[m : x.size - m]))


def test_smooth_sensitivity_bounds_every_change_and_is_smooth() -> None:
    rng = np.random.default_rng(1)
    m, t, width = 2, 0.3, 1.0
    for _ in range(300):
        x = np.sort(rng.uniform(0, 1, 9) ** 3)
        y = x.copy()
        y[rng.integers(9)] = rng.choice([-50.0, 0.0, 0.5, 1.0, 50.0])
        here = smooth_sensitivity(x, m, t, width)
        there = smooth_sensitivity(np.sort(y), m, t, width)
        clamp = [float(np.clip(brute_trimmed(v, m), 0, 1)) for v in (x, y)]
        assert abs(clamp[0] - clamp[1]) <= min(here, there) + 1e-12
        assert abs(math.log(here / there)) <= t + 1e-12


def test_printed_scale_is_not_smooth() -> None:
    printed = printed_scale(Trimming(50, 0.0, 1.0, 5, ArsinhNoise(0.1, 0.1)))
    zeros, outlier = np.zeros(50), np.append(np.zeros(49), 1e6)
    moved = printed.sensitivity(printed.ordered(outlier)) / printed.sensitivity(printed.ordered(zeros))
    assert math.log(moved) > 100 * 0.1


def test_classes_of_subsets_are_those_of_the_code() -> None:
    """Losses 0, 1, ..., 5: the optimum is the first pair, four have one mistake, the last has two."""
    law = errata.drawn_by_class(np.arange(6.0))
    bound = (1 + 1.1 * math.sqrt(2)) ** 2
    weights = np.array([1.0, 4 * math.exp(-1 / (2 * bound)), math.exp(-5 / (2 * bound))])
    assert law[[0, 1, 5]] == pytest.approx(weights / weights.sum(), rel=1e-12)
    assert law[2:5].tolist() == [0, 0, 0]
    assert errata.class_scores(np.arange(6.0)).tolist() == [0, 1, 1, 1, 1, 5]


def test_tables_of_subsets_are_neighbours_within_the_bounds() -> None:
    for first, second in (errata.tables_whose_optimum_moves(8), errata.tables_whose_runner_up_moves(8)):
        differ = np.any(first[0] != second[0], axis=1) | (first[1] != second[1])
        assert np.flatnonzero(differ).tolist() == [0]
        assert max(np.abs(part).max() for table in (first, second) for part in table) <= 1


def test_probabilities_among_orthogonal_signs_are_those_of_enumeration() -> None:
    """Every pair of seven columns of a Hadamard matrix of order 8, each loss by least squares."""
    signs = linalg.hadamard(8).astype(float)[:, 1:]
    y = 0.2 * (signs[:, 0] + signs[:, 1])
    losses = [
        np.sum((y - signs[:, pair] @ np.linalg.lstsq(signs[:, pair], y, rcond=None)[0]) ** 2)
        for pair in itertools.combinations(range(7), 2)
    ]
    weights = np.sort(np.exp(-np.array(losses) / (2 * (1 + 1.1 * math.sqrt(2)) ** 2)))[::-1]
    for most in (1, 5, 12, 21):
        rest = weights[:most].sum() + (21 - most) * weights[most - 1]
        exact, best = errata.found_among_signs(7, 2, 8, most)
        assert exact == pytest.approx(weights[0] / weights.sum(), rel=1e-12)
        assert best == pytest.approx(weights[0] / rest, rel=1e-12)
        assert best <= exact * (1 + 1e-12)


def test_the_audit_kit_rejects_the_printed_scale_and_lets_the_smooth_sensitivity_stand() -> None:
    """An outlier of 10^6 moves the printed scale 1,906-fold and the smooth sensitivity by e^t."""
    audited = errata.trimmed_mean_claim(1e6)
    lines = audit_claim(audited, runs=2000, insecure_seed=1)
    assert [line.verdict for line in lines] == ["stands", "rejected"]
    for line in lines:
        assert line.exact_epsilon is not None
        assert line.result.lower_bound <= line.exact_epsilon
    # Without an outlier there is nothing to find: the same scale on both sides.
    quiet = errata.trimmed_mean_claim(0.0)
    assert [s.exact_epsilon for s in (quiet.claim, *quiet.mutants)] == [0.0, 0.0]


@pytest.mark.parametrize("ratio", [1.5, 8.0])
def test_scale_epsilon_is_a_bound_from_real_events(ratio: float) -> None:
    # The best event by brute force over thresholds, through the distribution of sinh(Y) in scipy.
    delta, best = 1e-3, 0.0
    for c in np.geomspace(1e-3, 1e4, 4000):
        narrow = 2 * stats.norm.sf(math.asinh(c))
        wide = 2 * stats.norm.sf(math.asinh(c / ratio))
        for p, q in ((wide, narrow), (1 - narrow, 1 - wide)):
            if p > delta and q > 0:
                best = max(best, math.log((p - delta) / q))
    assert errata._scale_epsilon(ratio, delta) == pytest.approx(best, rel=1e-2)


def test_together_loss_is_that_of_permute_and_flip_over_all_orders() -> None:
    # Each order of four splits, run as the code does: one with score 0, three with score 1/2.
    epsilon, chances, total = 0.4, 0.0, 0.0
    for noise in range(-400, 401):
        weight = math.exp(-epsilon / 2 * abs(noise))
        n = max(1, 2 + noise)
        accepted = math.exp(-epsilon / 2 * 0.5 / (2 * 2 * n / (n + 1) ** 2))
        orders = list(itertools.permutations(range(4)))
        # The first split is accepted by chance; any other has the highest score and is accepted at once.
        chances += weight * sum(accepted for order in orders if order[0] == 0) / len(orders)
        total += weight
    assert errata.together_loss(epsilon) == pytest.approx(math.log(1 / 4 / (chances / total)), rel=1e-9)

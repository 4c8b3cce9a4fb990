"""Worst-case rounding: what floating point adds to sensitivities, attained or bounded.

A computed sum of n terms of size at most C is off by up to (n - 1) 2^-53 n C, in whatever order (Higham 2002,
section 4.2), so two of them on neighbours by twice that more than one term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.penalties import gradient_tolerance
from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.convex.svrg import DPSVRG, difference_bound
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.risk.sampling import record_bound
from privopt.oracles.convex.smooth import minimize_ridge
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts

Vector = NDArray[np.float64]
U = 2.0**-53
SIZES = (1_000, 100_000, 3_000_000, 100_000_000)
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def change(risk: EmpiricalRisk, x: Vector, anchor: Vector) -> float:
    """Influence of the only record of a risk on a computed sum of differences."""
    return float(np.linalg.norm(risk.difference_sum(x, anchor, np.array([0]))))


# --- DP-SVRG's bound on a difference -----------------------------------------------------------------------


def test_slopes_of_points_next_to_each_other_differ_by_a_unit_in_the_last_place() -> None:
    """Bisection for two adjacent doubles whose computed slopes differ: L |x - anchor| is far smaller."""
    risk = EmpiricalRisk(np.ones((1, 1)), np.ones(1), LogisticLoss())
    low, high = np.array([1e-16]), np.array([1e-15])
    assert change(risk, low, high) > 0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if change(risk, low, middle) == 0 else (low, middle)
    assert high[0] == np.nextafter(low[0], 1)
    moved = change(risk, high, low)
    assert risk.facts.smoothness * abs(high - low)[0] < 1e-10 * moved
    assert moved <= difference_bound(risk.facts, high, low)


def test_predictions_far_from_the_origin_are_rounded_in_units_of_their_length() -> None:
    """One coordinate moves by a unit in its last place; the partial sums after it are all rounded anew."""
    d, rng, exceeded = 50, np.random.default_rng(0), 0
    for _ in range(300):
        row = rng.standard_normal(d)
        risk = EmpiricalRisk(row[None, :], np.ones(1), LogisticLoss())
        anchor = rng.standard_normal(d)
        anchor = 1e6 * (anchor - row * (anchor @ row) / (row @ row))  # slopes are steep near 0
        x = anchor.copy()
        x[0] = np.nextafter(x[0], np.inf)
        moved = change(risk, x, anchor)
        exceeded += moved > risk.facts.smoothness * float(np.linalg.norm(x - anchor)) + 2.0**-46
        assert moved <= difference_bound(risk.facts, x, anchor)
    assert exceeded  # the distance alone, with the rounding of slopes, is not a bound


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("distance", [1e-9, 1.0, 1e3])
def test_the_bound_covers_sums_over_any_batch(n: int, distance: float) -> None:
    facts = RiskFacts(n, 5, LogisticLoss())
    x, anchor = np.full(5, 10.0), np.full(5, 10.0)
    x[0] += distance
    own = min(facts.smoothness * distance, 2 * facts.gradient_bound)
    bound = difference_bound(facts, x, anchor)
    assert bound >= own * (1 + 2 * (n - 1) * U * n)
    # Other rows, whose slopes are rounded otherwise in another place: two each, by a unit in the last place.
    assert bound >= own + min(1.0, own) * 2 * n * 2.0**-53
    assert bound <= (own + 1e-10 * n) * 1.001 + own * n * n * 2.0**-51


def test_noise_of_a_difference_is_the_multiplier_times_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    risk = EmpiricalRisk(np.eye(4, 300), np.ones(4), LogisticLoss())
    plan = DPSVRG.plan(risk.facts, regularizer=ridge(0.1), **BUDGET, rounds=(3,), batch=2)
    anchor, x = np.zeros(300), np.full(300, 0.01)
    source = NoiseSource(insecure_seed=2)
    drawn = NoiseSource(insecure_seed=3).discrete_gaussian(MAX_EXPONENT, (1, 300))
    noisy = plan._difference(risk, anchor, source, iter(drawn))(x)
    clean = plan._difference(risk, anchor, NoiseSource(insecure_seed=2), None)(x)
    added = (noisy - clean) * plan.sampling * 4
    sigma = float(added @ drawn[0]) / float(drawn[0] @ drawn[0].astype(float)) * 2.0**MAX_EXPONENT
    assert sigma >= plan.multiplier * difference_bound(risk.facts, x, anchor)
    assert sigma == pytest.approx(plan.multiplier * 0.25 * 0.01 * math.sqrt(300), rel=1e-4)


# --- sums over batches and over all records ----------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_one_record_moves_a_computed_sum_by_its_bound_and_the_rounding_of_two_sums(n: int) -> None:
    facts = RiskFacts(n, 5, LogisticLoss(), row_norm=3.0)
    bound = facts.gradient_bound
    # n - 1 additions, up to 3 roundings of a term, and slopes of other rows that are rounded otherwise.
    assert record_bound(facts) >= bound * (1 + 2 * (n + 2) * U * n + n * 2.0**-50)
    plan = DPStochasticGradient.plan(facts, **BUDGET, steps=2, batch=n)
    assert plan.vector_noise.sensitivity >= bound * (1 + 2 * (n - 1) * U * n)
    for found, exact in ((facts.sensitivity, bound), (facts.sensitivity_linf, facts.gradient_bound_linf)):
        assert found >= 2 * exact * (1 / n + (n - 1) * U)
        assert found <= 2 * exact * (1 / n + (n + 9) * U)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("d", [1, 2, 9])
def test_bounds_on_a_gradient_are_attained_by_the_longest_row(norm: Any, d: int) -> None:
    """A row at the bound in every coordinate has l2 norm sqrt(d) times it; clipping shortens to the bound."""
    loss = HuberLoss(0.5)
    risk = EmpiricalRisk(np.full((1, d), 100.0), np.array([1e9]), loss, row_norm=3.0, norm=norm)
    gradient, facts = risk.gradient(np.zeros(d)), risk.facts
    for size, bound in (
        (float(np.linalg.norm(gradient)), facts.gradient_bound),
        (float(np.abs(gradient).max()), facts.gradient_bound_linf if norm == "linf" else math.inf),
    ):
        assert size <= bound
        assert size >= 0.999 * bound or bound == math.inf
    # phi'' = 1 within the threshold: the gradient moves by L |w - v| along the row.
    near = EmpiricalRisk(np.full((1, d), 100.0), np.zeros(1), loss, row_norm=3.0, norm=norm)
    w = np.full(d, 1e-3)
    moved = float(np.linalg.norm(near.gradient(w) - near.gradient(np.zeros(d))))
    assert 0.999 * facts.smoothness <= moved / float(np.linalg.norm(w)) <= facts.smoothness


@dataclass(frozen=True)
class Listening(LogisticLoss):
    """A loss that remembers what predictions it was asked about."""

    heard: tuple[list[Vector], ...] = ([],)

    def slope(self, z: Vector, y: Vector) -> Vector:
        self.heard[0].append(z.copy())
        return super().slope(z, y)


def test_a_prediction_does_not_depend_on_who_else_is_in_the_batch() -> None:
    """To the last bit: BLAS products of a whole batch add in an order that depends on a row's place."""
    n, d, rng = 40, 117, np.random.default_rng(0)
    loss = Listening()
    risk = EmpiricalRisk(rng.standard_normal((n, d)), rng.choice([-1.0, 1.0], n), loss)
    w, anchor = rng.standard_normal((2, d))

    def predictions(records: list[int]) -> list[Vector]:
        loss.heard[0].clear()
        risk.gradient_sum(w, np.array(records))
        risk.difference_sum(w, anchor, np.array(records))
        assert len(loss.heard[0]) == 3
        return [z.copy() for z in loss.heard[0]]

    alone = [predictions([i]) for i in range(n)]
    for first in range(6):
        batch = list(range(first, n, 1 + first))
        for kind, together in enumerate(predictions(batch)):
            np.testing.assert_array_equal(together, [alone[i][kind][0] for i in batch])


# --- certified minima --------------------------------------------------------------------------------------


def test_a_certificate_adds_the_rounding_of_the_sum_to_the_computed_gradient() -> None:
    n = 20_000
    rng = np.random.default_rng(1)
    risk = EmpiricalRisk(rng.uniform(-1, 1, (n, 3)), rng.choice([-1.0, 1.0], n), LogisticLoss())
    answer = minimize_ridge(risk, 0.1, 1e-9)
    computed = float(np.linalg.norm(risk.gradient(answer.point) + 0.1 * answer.point))
    assert answer.certificate.gradient_norm >= computed + risk.facts.gradient_bound * (n - 1) * U


@pytest.mark.parametrize("n", SIZES)
def test_the_tolerance_can_be_proved_in_float64(n: int) -> None:
    """A share of G / n alone falls below what a sum of n gradients is off by."""
    facts = RiskFacts(n, 5, LogisticLoss())
    assert gradient_tolerance(facts, 1e-5) >= 2 * facts.gradient_bound * (n - 1) * U
    assert gradient_tolerance(facts, 1e-5) >= 1e-5 * facts.gradient_bound / n


@pytest.mark.parametrize("mechanism", [OutputPerturbation, ObjectivePerturbation])
def test_two_minima_as_bad_as_is_allowed_are_covered(mechanism: Any) -> None:
    """Each may be tolerance / l2 from the exact one, on either side: attained by a linear gradient."""
    facts = RiskFacts(4, 1, HuberLoss(1.0))
    plan = mechanism.plan(facts, regularizer=ridge(0.5), **BUDGET)
    l2 = plan.regularizer.l2
    apart = 2 * facts.gradient_bound / 4 / l2 if mechanism is OutputPerturbation else 0.0
    assert plan.tolerance > 0
    assert plan.vector_noise.sensitivity >= apart + 2 * plan.tolerance / l2
    assert plan.vector_noise.sensitivity <= (apart + 2 * plan.tolerance / l2) * (1 + 1e-9)

"""Risks over rows that stand for several records: values, sensitivities, samples, mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from privopt.experiments.workbench.measures import accuracy
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.poisson import poisson_batch
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.errors import InvalidInputError

Arrays = tuple[Any, Any, Any]


def table(seed: int, rows: int = 37, columns: int = 3) -> Arrays:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(rows, columns)) * 0.6,
        rng.choice([-1.0, 1.0], rows),
        rng.integers(1, 40, rows),
    )


def pair(seed: int, loss: Any = None, norm: Any = "l2") -> tuple[EmpiricalRisk, EmpiricalRisk]:
    """With counts, and over the records."""
    X, y, counts = table(seed)
    made = loss or LogisticLoss()
    return (
        EmpiricalRisk(X, y, made, norm=norm, counts=counts),
        EmpiricalRisk(np.repeat(X, counts, axis=0), np.repeat(y, counts), made, norm=norm),
    )


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("loss", [LogisticLoss(), HuberLoss(0.5)])
def test_everything_computed_is_that_of_the_records(loss: Any, norm: Any) -> None:
    counted, records = pair(0, loss, norm)
    w, v = np.random.default_rng(1).normal(size=(2, 3))
    assert counted.facts == records.facts
    n = records.facts.n_records
    close = {"rtol": 0, "atol": 4 * records.facts.rounding * (records.facts.gradient_bound + n)}
    assert counted.value(w) == pytest.approx(records.value(w), rel=1e-12)
    for name, at in (("gradient", (w,)), ("hessian", (w,)), ("hessian_vector", (w, v))):
        np.testing.assert_allclose(getattr(counted, name)(*at), getattr(records, name)(*at), **close)
    assert counted.value_and_gradient(w)[1].tolist() == counted.gradient(w).tolist()


def test_a_gradient_moves_by_the_sensitivity_of_one_record_whatever_its_count() -> None:
    """The longest rows there are, of which one record changes its label: attained, and never exceeded."""
    X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0])
    before = EmpiricalRisk(X, y, HuberLoss(1.0), counts=[1000, 7])
    after = EmpiricalRisk(np.vstack([X, X[:1]]), [1.0, 1.0, -1e9], HuberLoss(1.0), counts=[999, 7, 1])
    w = np.array([1e9, 0.0])
    far = EmpiricalRisk(np.vstack([X, X[:1]]), [1.0, 1.0, 2e9], HuberLoss(1.0), counts=[999, 7, 1])
    assert after.facts == before.facts == far.facts
    for other in (after, far):
        moved = float(np.linalg.norm(other.gradient(w) - before.gradient(w)))
        assert moved <= before.facts.sensitivity
    assert moved >= 0.999 * before.facts.sensitivity


def test_what_is_computed_for_a_row_does_not_depend_on_its_place() -> None:
    """To the last bit, scales and predictions: a row may come or go with the record that changes."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(23, 117)) * rng.choice([1e-3, 1.0, 10.0], (23, 1))
    w, counts = rng.normal(size=117) * 1e6, rng.integers(1, 9, 23)
    for norm in ("l2", "linf"):
        whole = EmpiricalRisk(X, np.ones(23), LogisticLoss(), norm=norm, counts=counts)
        expected = dict(enumerate(whole.predictions(w).tolist()))
        for _ in range(20):
            kept = rng.permutation(23)[: rng.integers(1, 23)]
            part = EmpiricalRisk(X[kept], np.ones(len(kept)), LogisticLoss(), norm=norm, counts=counts[kept])
            assert part.predictions(w).tolist() == [expected[k] for k in kept.tolist()]


def test_a_batch_is_of_records_not_of_rows() -> None:
    counted, records = pair(2)
    w, anchor = np.random.default_rng(0).normal(size=(2, 3))
    for seed in range(5):
        batch = poisson_batch(records.facts.n_records, 0.1, NoiseSource(insecure_seed=seed))
        for name, points in (("gradient_sum", (w,)), ("difference_sum", (w, anchor))):
            found, expected = (getattr(risk, name)(*points, batch) for risk in (counted, records))
            np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_records_of_a_row_enter_a_batch_one_by_one() -> None:
    """How many of a row's 50 do is binomial: the variance of 50 coins, not of one that stands for 50."""
    risk = EmpiricalRisk(np.eye(2), np.ones(2), HuberLoss(1.0), counts=[50, 50])
    source, runs = NoiseSource(insecure_seed=5), 2000
    drawn = np.array(
        [-risk.gradient_sum(np.zeros(2), poisson_batch(100, 0.3, source))[0] for _ in range(runs)]
    )
    spread = 50 * 0.3 * 0.7
    assert abs(drawn.mean() - 15) < 5 * np.sqrt(spread / runs)
    assert (
        0.8 * spread < drawn.var() < 1.2 * spread
    )  # 6 standard errors; all or nothing would have 50 times it


# The sets that mechanisms take, where it is not a ball.
SETS = {
    **dict.fromkeys(("dp-gd", "dp-gld", "dp-newton", "dp-sosp", "dp-spider", "sufficient-statistics")),
    "objective-perturbation-hessian": None,
    "screened-statistics": None,
    "dp-fw-l1": L1Ball(3, 1.0),
}


@pytest.mark.parametrize("name", sorted(RISK_MECHANISMS))
def test_mechanisms_release_what_they_would_for_the_records(name: str) -> None:
    counted, records = pair(4)
    space = SETS.get(name, L2Ball(3, 1.0))
    choice = choose_risk_mechanism(name, counted.facts, space, NO_REGULARIZER, mu=0.5)
    plan = choice.plan(counted.facts, epsilon=1.0, delta=1e-5, steps=None)
    points = [plan.release(risk, NoiseSource(insecure_seed=3)).point for risk in (counted, records)]
    np.testing.assert_allclose(points[0], points[1], rtol=1e-6, atol=1e-9)


def test_accuracy_is_a_share_of_records() -> None:
    counted, records = pair(6)
    w = np.array([1.0, -2.0, 0.5])
    assert accuracy(counted, w) == accuracy(records, w)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_sparse_rows_have_counts_too(norm: Any) -> None:
    X, y, counts = table(0)
    X[np.abs(X) < 0.4] = 0
    dense, thin = (
        EmpiricalRisk(rows, y, LogisticLoss(), norm=norm, counts=counts) for rows in (X, sparse.csr_array(X))
    )
    w, v = np.random.default_rng(1).normal(size=(2, 3))
    assert thin.facts == dense.facts
    for name, at in (("value", (w,)), ("gradient", (w,)), ("hessian", (w,)), ("hessian_vector", (w, v))):
        np.testing.assert_allclose(getattr(thin, name)(*at), getattr(dense, name)(*at), rtol=1e-12)
    batch = np.array([0, 5, 400])
    np.testing.assert_allclose(thin.gradient_sum(w, batch), dense.gradient_sum(w, batch), rtol=1e-12)


def test_counts_of_no_records_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="counts"):
        EmpiricalRisk(np.eye(2), np.ones(2), LogisticLoss(), counts=[0, 2])

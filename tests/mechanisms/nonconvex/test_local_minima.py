"""Approximate local minima: what passes is one, saddles are left, budgets add up."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.mechanisms.nonconvex.second_order import CurvatureTest, SecondOrderMechanism
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.matrix_noise import MatrixNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Run
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.nonconvex.planted import (
    Planted,
    low_rank,
    phase_retrieval,
    sigmoid_saddle,
    strict_saddle,
)

Vector = NDArray[np.float64]
KINDS = (DPStationaryPoint, DPConstrainedStationaryPoint, DPCubicNewton)


def many(risk: Any, n: int) -> RiskFacts:
    """The facts of the same risk with every record repeated: plans for it are run on the small one."""
    return dataclasses.replace(risk.facts, n_records=n)


def released(plan: SecondOrderMechanism, problem: Planted, seed: int) -> Any:
    small = dataclasses.replace(plan, facts=problem.risk.facts)  # the noise is that of the large one
    return small.release(problem.risk, NoiseSource(insecure_seed=seed), start=problem.saddle)


def test_noise_on_a_matrix_is_an_orthogonal_ensemble() -> None:
    noise = MatrixNoise(VectorNoise(1.0, 2.0, 10), 4)
    source, matrix = NoiseSource(insecure_seed=0), np.diag([1.0, 2.0, 3.0, 4.0])
    drawn = np.stack([noise.add(matrix, source) - matrix for _ in range(1000)])
    assert np.array_equal(drawn, np.swapaxes(drawn, 1, 2))
    assert drawn[:, 0, 0].std() == pytest.approx(2.0, rel=0.1)
    assert drawn[:, 0, 1].std() == pytest.approx(2.0 / math.sqrt(2), rel=0.1)
    top = np.linalg.eigvalsh(drawn)[:, -1]
    for failure in (0.3, 0.05):
        assert np.mean(top > noise.spectral_tail(failure)) <= failure
    assert np.mean(top > noise.spectral_tail(0.05) / 2) > 0.05  # and no more than twice too careful


@pytest.mark.parametrize("failure", [0.1, 1e-3, 1e-9])
def test_bounds_of_rare_noise_hold_for_one_number(failure: float) -> None:
    """A matrix of one number has Gaussian noise, whose quantiles are known however rare."""
    noise = MatrixNoise(VectorNoise(1.0, 2.0, 10), 1)
    assert stats.norm.isf(failure) * 2.0 <= noise.spectral_tail(failure) <= stats.norm.isf(failure) * 2.0 + 6


def test_what_is_noised_is_as_long_as_a_matrix_and_comes_back_as_it() -> None:
    """The vector that noise is added to has the Frobenius norm, which is what sensitivity is stated in."""
    seen: list[np.ndarray] = []

    class Quiet(VectorNoise):
        def add(self, vector: np.ndarray, source: NoiseSource) -> np.ndarray:
            seen.append(vector)
            return vector

    A = np.random.default_rng(0).normal(size=(4, 4))
    A = A + A.T
    assert MatrixNoise(Quiet(1.0, 1.0, 10), 4).add(A, NoiseSource()) == pytest.approx(A)
    assert np.linalg.norm(seen[0]) == pytest.approx(np.linalg.norm(A))


def test_sums_of_many_hessians_pay_for_their_rounding() -> None:
    """n matrices of norm M add up to an error of n^2 M 2^-53 at most, in each of two data sets."""
    facts = RiskFacts(10**8, 4, SigmoidLoss(), 2.0)
    assert facts.hessian_sensitivity >= 2 * facts.hessian_bound * (1e-8 + 1e8 * 2.0**-53)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.6])
@pytest.mark.parametrize("releases", [1, 3])
def test_both_noises_together_spend_the_claim(
    kind: type[SecondOrderMechanism], share: float, releases: int
) -> None:
    facts = RiskFacts(50_000, 4, SigmoidLoss(), 2.0)
    tests = 60 if kind is DPCubicNewton else 7
    plan = kind.plan(
        facts, L2Ball(4, 3.0) if kind is KINDS[1] else None, epsilon=1.0, delta=1e-6, steps=60, tests=tests,
        hessian_share=share, releases=releases,
    )  # fmt: skip
    gradients = 60 * releases * (2 * 0.25 * 2.0 / 50_000 / plan.gradient_noise.sigma) ** 2
    hessians = tests * releases * (2 * facts.smoothness / 50_000 / plan.hessian_noise.vector.sigma) ** 2
    assert 0.999 <= gaussian_epsilon(math.sqrt(gradients + hessians), 1e-6) <= 1.0
    assert hessians / (gradients + hessians) == pytest.approx(share, rel=1e-6)
    assert plan.spend.level is not None
    assert plan.spend.level <= gaussian_mu(1.0, 1e-6)


@pytest.mark.parametrize("kind", [DPStationaryPoint, DPCubicNewton])
def test_by_default_saddles_are_left_and_what_passes_is_a_local_minimum(
    kind: type[SecondOrderMechanism],
) -> None:
    """From the saddle, on four problems; exact gradients and Hessians are the judge."""
    cases = [strict_saddle(400, 2), phase_retrieval(400, 3), low_rank(400, 3, 2), sigmoid_saddle(400, 3)]
    for problem in cases:
        risk = problem.risk
        plan = kind.plan(many(risk, 20_000), epsilon=1.0, delta=1e-6)
        assert plan.gamma <= math.sqrt(risk.facts.hessian_lipschitz * plan.alpha)
        for seed in range(2):
            one = released(plan, problem, seed)
            assert one.found, problem.name
            assert np.linalg.norm(risk.gradient(one.point)) <= plan.alpha
            assert np.linalg.eigvalsh(risk.hessian(one.point))[0] >= -plan.gamma
            assert risk.value(one.point) < risk.value(problem.saddle) * 0.6
            if problem.distance is not None:
                assert problem.distance(one.point) < 0.5


def test_without_noise_gradient_descent_stays_at_a_saddle_and_newton_leaves_it() -> None:
    problem = strict_saddle(400, 2)
    for kind, moved in ((DPStationaryPoint, False), (DPCubicNewton, True)):
        plan = kind.plan(many(problem.risk, 20_000), epsilon=1.0, delta=1e-6)
        quiet = dataclasses.replace(plan, facts=problem.risk.facts)
        point = quiet.without_noise(problem.risk, problem.saddle)
        assert (np.linalg.norm(point - problem.saddle) > 0.5) == moved


def test_newton_looks_at_every_hessian_it_paid_for_and_no_more() -> None:
    facts = many(strict_saddle(400, 2).risk, 20_000)
    with pytest.raises(PrivacyParameterError, match="a Hessian every step: tests is 20"):
        DPCubicNewton.plan(facts, epsilon=1.0, delta=1e-6, steps=20, tests=5)
    plan = DPCubicNewton.plan(facts, epsilon=1.0, delta=1e-6, steps=20)
    assert plan.tests == 20
    problem = strict_saddle(400, 2)
    assert len(released(dataclasses.replace(plan, tests=7), problem, 0).gradients) == 7
    assert len(released(plan, problem, 0).tests) == 20


@pytest.mark.parametrize("space", [L2Ball(2, 1.2), Box([-1.2, -1.2], [1.2, 1.2])])
def test_within_a_set_the_quadratic_oracle_leads_out_of_a_saddle(space: Any) -> None:
    problem = strict_saddle(400, 2)
    facts = many(problem.risk, 2_000_000)
    plan = DPConstrainedStationaryPoint.plan(
        facts, space, epsilon=8.0, delta=1e-6, steps=150, tests=9, gamma=0.6, hessian_share=0.3, alpha=0.05
    )
    one = released(plan, problem, 0)
    assert one.found
    assert space.contains(one.point)
    assert problem.distance is not None
    assert problem.distance(one.point) < 0.5
    first, last = one.tests[0], one.tests[-1]
    assert first.step == 0
    assert not first.passed
    assert first.curvature < -0.6 / 2
    assert 0.99 < first.phi <= 1
    assert last.passed
    # The definition, by the vertices or the boundary of the set.
    g, H = problem.risk.gradient(one.point), problem.risk.hessian(one.point)
    angles = np.linspace(0, 2 * math.pi, 200)
    edge = 1.2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    moves = (edge if isinstance(space, L2Ball) else space.vertices()) - one.point
    assert np.min(moves @ g) >= -plan.alpha
    assert np.min(np.einsum("ij,jk,ik->i", moves, H, moves)) >= -plan.gamma


def test_a_step_along_negative_curvature_is_as_long_as_the_cubic_bound_allows() -> None:
    """-c / (rho |u - w|^3) of the way to u, away from 0: so the step alone tells where u is, on the edge."""
    problem, start = strict_saddle(400, 2), np.array([0.0, 0.25])
    facts = many(problem.risk, 2_000_000)
    plan = DPConstrainedStationaryPoint.plan(
        facts, L2Ball(2, 1.2), epsilon=8.0, delta=1e-6, steps=3, tests=1, alpha=2.0, gamma=0.6
    )
    small = dataclasses.replace(plan, facts=problem.risk.facts)
    one = small.release(problem.risk, NoiseSource(insecure_seed=0), start=start)
    step, curvature = one.trajectory[1] - start, one.tests[0].curvature
    length = math.sqrt(-curvature / (facts.hessian_lipschitz * float(np.linalg.norm(step))))
    across = step / np.linalg.norm(step) * length
    assert np.linalg.norm(start + across) == pytest.approx(1.2, rel=1e-6)
    assert across @ problem.risk.hessian(start) @ across == pytest.approx(curvature, rel=1e-3)


def test_no_more_hessians_are_seen_than_were_paid_for() -> None:
    problem = strict_saddle(400, 2)
    facts = many(problem.risk, 10_000_000)
    plan = DPStationaryPoint.plan(facts, epsilon=8.0, delta=1e-6, steps=31, tests=4, alpha=0.3, gamma=0.01)
    one = released(plan, problem, 1)
    assert not one.found
    assert len(one.tests) <= 4
    assert all(a.step - b.step >= 8 for a, b in zip(one.tests, one.tests[1:], strict=False))
    inside = DPConstrainedStationaryPoint.plan(
        facts, L2Ball(2, 1.2), epsilon=8.0, delta=1e-6, steps=20, tests=1, gamma=1.2, alpha=3.0
    )
    assert len(released(inside, problem, 1).tests) == 1


@pytest.mark.parametrize("kind", [DPStationaryPoint, DPCubicNewton])
def test_where_nothing_passes_the_last_iterate_is_returned_and_marked(
    kind: type[SecondOrderMechanism],
) -> None:
    """At an alpha that leaves no room beside the tail of the noise no gradient is short enough."""
    problem = strict_saddle(400, 2)
    facts, options = many(problem.risk, 20_000), {"epsilon": 1.0, "delta": 1e-6, "steps": 12}
    least = kind.plan(facts, **options).gradient_tail * (1 + 1e-9)
    one = released(kind.plan(facts, alpha=least, **options), problem, 0)
    assert not one.found
    assert one.trajectory.shape == (13, 2)
    assert np.array_equal(one.point, one.trajectory[-1])
    assert not any(np.array_equal(one.point, w) for w in one.trajectory[:-1])


def test_a_false_claim_is_as_rare_as_stated() -> None:
    """At a saddle whose curvature is just beyond gamma, so that noise alone could let it pass."""
    problem = strict_saddle(400, 2)
    facts = many(problem.risk, 100_000)
    plan = DPStationaryPoint.plan(
        facts, epsilon=2.0, delta=1e-6, steps=1, tests=1, alpha=0.1, gamma=0.4999, failure=0.2
    )
    wrong = sum(released(plan, problem, seed).found for seed in range(200))
    assert stats.binomtest(wrong, 200, 0.2, alternative="greater").pvalue > 1e-3
    bold = dataclasses.replace(plan, gamma=0.4999 + 2 * plan.hessian_tail)
    assert sum(released(bold, problem, seed).found for seed in range(50)) > 25


def test_drowned_targets_are_refused_with_what_would_do() -> None:
    facts = RiskFacts(1000, 3, SigmoidLoss())
    with pytest.raises(PrivacyParameterError, match=r"alpha = 1e-06 is lost in the noise") as refused:
        DPStationaryPoint.plan(facts, epsilon=1.0, delta=1e-5, steps=50, alpha=1e-6)
    usual = float(str(refused.value).split("take ")[1].split()[0])
    DPStationaryPoint.plan(facts, epsilon=1.0, delta=1e-5, steps=50, alpha=usual * 1.01)
    with pytest.raises(PrivacyParameterError, match=r"gamma = 1e-06 is lost"):
        DPStationaryPoint.plan(facts, epsilon=1.0, delta=1e-5, steps=50, gamma=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_taken_is_refused(kind: type[SecondOrderMechanism]) -> None:
    facts, budget = RiskFacts(100, 2, SigmoidLoss()), {"epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(PrivacyParameterError, match="HuberLoss declares none"):
        kind.plan(RiskFacts(100, 2, HuberLoss(1.0)), **budget)
    with pytest.raises(PrivacyParameterError, match="l1 penalty"):
        kind.plan(facts, regularizer=lasso(0.1), **budget)
    for name in ("hessian_share", "failure"):
        with pytest.raises(PrivacyParameterError, match=rf"{name} must lie in \(0, 1\)"):
            kind.plan(facts, **budget, **{name: 1.0})
    with pytest.raises(PrivacyParameterError, match="use dp-gd-so for sets"):
        DPStationaryPoint.plan(facts, L2Ball(2, 1.0), **budget)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_is_cancelled_ends_before_its_next_step(kind: type[SecondOrderMechanism]) -> None:
    risk = EmpiricalRisk(np.eye(4)[:, :2], np.array([1, -1, 1, -1]), SigmoidLoss())
    plan = kind.plan(risk.facts, epsilon=1.0, delta=1e-5, steps=5)
    with pytest.raises(UnfinishedDrawError, match="0 of 5 steps"):
        plan._search(risk, Run(np.zeros(2), None, Limits(cancelled=lambda: True).start()))


def test_a_ridge_joins_gradients_and_hessians() -> None:
    rng = np.random.default_rng(0)
    risk = EmpiricalRisk(rng.standard_normal((300, 3)) / 2, np.sign(rng.standard_normal(300)), LogisticLoss())
    plan = DPStationaryPoint.plan(
        many(risk, 10_000_000), regularizer=ridge(0.2), epsilon=8.0, delta=1e-6, steps=200
    )
    one = dataclasses.replace(plan, facts=risk.facts).release(risk, NoiseSource(insecure_seed=0))
    assert one.found
    assert np.linalg.norm(risk.gradient(one.point) + 0.2 * one.point) <= plan.alpha
    assert one.tests[-1].curvature > 0.19
    assert one.trajectory.shape == (len(one.gradients) + 1, 3)
    assert one.noise["alpha"] == plan.alpha


def test_phi_is_a_proved_factor() -> None:
    assert CurvatureTest(0, -1.0, -2.0, False).phi == 0.5
    assert CurvatureTest(0, -1.0, -math.inf, False).phi == 0.0
    assert CurvatureTest(0, 0.0, 0.0, True).phi == 1.0

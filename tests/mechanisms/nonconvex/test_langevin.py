"""DP-GLD: its noise is the diffusion, its law where it is known, its trace."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.nonconvex.langevin import DPLangevin, default_beta
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.problems.convex.losses import HuberLoss, SigmoidLoss
from privopt.problems.convex.regularizers import ElasticNet, lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball

Vector = NDArray[np.float64]
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def sigmoid_risk(n: int = 500, d: int = 3, seed: int = 0) -> EmpiricalRisk:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) / math.sqrt(d)
    return EmpiricalRisk(X, np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, 1, -1), SigmoidLoss())


@pytest.mark.parametrize("options", [{}, {"steps": 7}, {"beta": 400.0}, {"steps": 3000, "beta": 50.0}])
def test_noise_on_the_gradient_is_the_diffusion(options: dict[str, float]) -> None:
    facts = sigmoid_risk().facts
    plan = DPLangevin.plan(facts, regularizer=ridge(0.1), **BUDGET, **options)  # type: ignore[arg-type]
    sigma, eta = plan.vector_noise.sigma, plan.step_size
    assert eta * sigma == pytest.approx(math.sqrt(2 * eta / plan.beta))
    # Exact accounting: T Gaussian releases of sensitivity 2 G / n are one.
    exact = math.sqrt(plan.steps) * 2 * facts.gradient_bound / facts.n_records / gaussian_mu(1.0, 1e-5)
    assert exact <= sigma <= exact * (1 + 1e-6)
    assert eta < 2 / (facts.smoothness + 0.1)
    for name, value in options.items():
        assert plan.noise.get(name, plan.steps) == value


def test_time_is_fixed_by_the_budget_and_steps_refine_it() -> None:
    facts = sigmoid_risk().facts
    coarse, fine = (DPLangevin.plan(facts, **BUDGET, steps=t, beta=300.0) for t in (400, 4000))
    assert fine.steps * fine.step_size == pytest.approx(coarse.steps * coarse.step_size)


def test_defaults_are_the_theory_s_and_stable() -> None:
    for n in (100, 10_000, 1_000_000):
        facts = RiskFacts(n, 5, SigmoidLoss())
        plan = DPLangevin.plan(facts, **BUDGET)
        assert plan.beta * facts.loss.lipschitz**2 / facts.loss.smoothness >= 5
        assert plan.step_size <= 1 / (2 * facts.smoothness) * (1 + 1e-9)
    assert DPLangevin.plan(RiskFacts(10_000, 5, SigmoidLoss()), **BUDGET).beta < plan.beta
    few = RiskFacts(100, 5, SigmoidLoss())  # as many steps as the temperature of the theory takes
    plan = DPLangevin.plan(few, **BUDGET)
    assert plan.beta == pytest.approx(default_beta(few, gaussian_mu(**BUDGET)), rel=2 / plan.steps)
    assert plan.step_size == pytest.approx(1 / (2 * few.smoothness), rel=2 / plan.steps)


def test_the_default_step_is_a_quarter_of_what_diverges_and_coldness_grows_as_the_theorem_says() -> None:
    """Descent along a curvature of L contracts below 2 / L; (n mu)^(2/3) is 4 times as much for 8 times n."""
    facts = RiskFacts(1_000_000, 5, SigmoidLoss())
    plan = DPLangevin.plan(facts, regularizer=ridge(0.1), **BUDGET)
    edge = 2 / (facts.smoothness + 0.1)
    assert plan.step_size == pytest.approx(edge / 4, rel=0.02)
    shortest = plan.steps * plan.step_size / edge
    DPLangevin.plan(facts, regularizer=ridge(0.1), **BUDGET, beta=plan.beta, steps=math.floor(shortest) + 1)
    with pytest.raises(PrivacyParameterError, match="diverge"):
        DPLangevin.plan(facts, regularizer=ridge(0.1), **BUDGET, beta=plan.beta, steps=math.floor(shortest))
    assert default_beta(dataclasses.replace(facts, n_records=8_000_000), 0.5) == pytest.approx(
        4 * default_beta(facts, 0.5)
    )


def test_a_step_size_that_diverges_is_refused_with_the_steps_it_takes() -> None:
    facts = RiskFacts(10_000, 5, SigmoidLoss())
    with pytest.raises(PrivacyParameterError, match=r"at least (\d+) steps") as refused:
        DPLangevin.plan(facts, **BUDGET, steps=2, beta=100.0)
    steps = int(str(refused.value).split("at least ")[1].split()[0])
    DPLangevin.plan(facts, **BUDGET, steps=steps + 1, beta=100.0)


@pytest.mark.parametrize(("space", "penalty"), [(L2Ball(3, 1.0), ElasticNet()), (None, lasso(0.1))])
def test_sets_and_l1_penalties_are_refused(space: L2Ball | None, penalty: ElasticNet) -> None:
    with pytest.raises(PrivacyParameterError, match=r"takes no (constraint|l1 penalty)"):
        DPLangevin.plan(sigmoid_risk().facts, space, penalty, **BUDGET)


def test_without_noise_it_is_gradient_descent_on_the_regularised_risk() -> None:
    risk = sigmoid_risk()
    plan = DPLangevin.plan(risk.facts, regularizer=ridge(0.3), **BUDGET, steps=50)
    w = np.zeros(3)
    for _ in range(50):
        w = w - plan.step_size * (risk.gradient(w) + 0.3 * w)
    assert plan.without_noise(risk) == pytest.approx(w)


@pytest.mark.parametrize(("steps", "off"), [(5, 0.8), pytest.param(20, 0.85, marks=pytest.mark.slow)])
def test_the_law_on_a_quadratic_is_that_of_its_recursion(steps: int, off: float) -> None:
    """w+ = (1 - eta k) w + eta k m + sqrt(2 eta / beta) xi: Gaussian, of known mean and variance at T."""
    X, y = np.ones((50, 1)), np.full(50, 0.4)
    risk = EmpiricalRisk(X, y, HuberLoss(10.0))  # no residual comes near 10
    plan = DPLangevin.plan(
        risk.facts, regularizer=ridge(0.5), epsilon=20.0, delta=1e-2, steps=steps, beta=40.0
    )
    eta, curvature = plan.step_size, 1.5
    shrink = 1 - eta * curvature
    mean = 0.4 / 1.5 * (1 - shrink**steps)
    deviation = math.sqrt(2 * eta / 40 * (1 - shrink ** (2 * steps)) / (1 - shrink**2))
    source = NoiseSource(insecure_seed=1)
    found = np.array([plan.release(risk, source).point[0] for _ in range(1500)])
    assert stats.kstest(found, stats.norm(mean, deviation).cdf).pvalue > 1e-3
    assert stats.kstest(found, stats.norm(mean, off * deviation).cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    ("steps", "off"), [(8_000, 0.07), pytest.param(40_000, 0.03, marks=pytest.mark.slow)]
)
def test_the_stationary_law_is_the_gibbs_law_of_two_wells(steps: int, off: float) -> None:
    """A path over a double well against exp(-beta F) by quadrature; a fifth of it errs sqrt(5) times more."""
    from privopt.problems.nonconvex.planted import strict_saddle

    risk = strict_saddle(40, 1).risk
    assert isinstance(risk, EmpiricalRisk)
    plan = DPLangevin.plan(risk.facts, epsilon=100.0, delta=0.5, steps=40_000, beta=8.0)
    assert plan.step_size * risk.facts.smoothness < 0.8
    plan = dataclasses.replace(plan, steps=steps)  # the first steps of the same path

    def density(w: float) -> float:
        return math.exp(-8.0 * risk.value(np.array([w])))

    norms = plan.release(risk, NoiseSource(insecure_seed=3)).trace
    assert norms is not None
    edges = np.array([0, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5, 3.0])
    masses = np.array([integrate.quad(density, a, b)[0] for a, b in itertools.pairwise(edges)])
    found = np.histogram(norms.norms[1000:], edges)[0] / len(norms.norms[1000:])
    assert found == pytest.approx(masses / masses.sum(), abs=off)


def test_the_trace_follows_the_energy() -> None:
    risk = sigmoid_risk(20_000)
    plan = DPLangevin.plan(risk.facts, regularizer=ridge(0.01), epsilon=5.0, delta=1e-5, steps=200)
    start = np.array([-8.0, 0.0, 0.0])
    source = NoiseSource(insecure_seed=0)
    released = [plan.release(risk, source, start=start) for _ in range(20)]
    for release in released:
        assert release.trace is not None
        assert release.trace.norms[0] == 8.0
        assert release.trace.norms[-1] == pytest.approx(float(np.linalg.norm(release.point)))
        assert len(release.trace.energy) == 201

    def energy(w: Vector) -> float:
        return risk.value(w) + 0.005 * float(w @ w)

    fall = np.array([energy(release.point) - energy(start) for release in released])
    claimed = np.array([release.trace.energy[-1] for release in released if release.trace])
    off = claimed - fall
    spread = float(np.mean([release.trace.deviation[-1] for release in released if release.trace]))
    assert np.all(fall < -0.1)
    assert abs(float(off.mean())) < 4 * spread / math.sqrt(20) + 0.02 * abs(float(fall.mean()))
    assert 0.3 * spread < float(off.std()) < 2 * spread


def test_a_random_iterate_ends_where_it_was_drawn() -> None:
    risk = sigmoid_risk()
    plan = DPLangevin.plan(risk.facts, **BUDGET, steps=30, output=Output.RANDOM)
    lengths = set()
    for seed in range(12):
        release = plan.release(risk, NoiseSource(insecure_seed=seed))
        assert release.trace is not None
        lengths.add(len(release.trace.norms))
    assert min(lengths) >= 1
    assert max(lengths) <= 30
    assert len(lengths) > 4


def test_averages_are_of_the_path() -> None:
    risk = sigmoid_risk()
    for output in (Output.AVERAGE, Output.WEIGHTED):
        plan = DPLangevin.plan(risk.facts, **BUDGET, steps=5, output=output)
        quiet = dataclasses.replace(plan, vector_noise=dataclasses.replace(plan.vector_noise, sigma=1e-9))
        fixed = dataclasses.replace(quiet, beta=2 / (plan.step_size * 1e-18))
        assert fixed.release(risk).point == pytest.approx(fixed.without_noise(risk), abs=1e-6)


def test_a_plan_for_other_facts_releases_nothing() -> None:
    with pytest.raises(PlanMismatchError):
        DPLangevin.plan(sigmoid_risk().facts, **BUDGET).release(sigmoid_risk(600))


def test_three_runs_are_noised_as_one_of_three_times_the_steps() -> None:
    facts, budget = sigmoid_risk().facts, {"epsilon": 1.0, "delta": 1e-5, "beta": 1e4}
    runs = DPLangevin.plan(facts, steps=4, releases=3, **budget)
    assert runs.vector_noise == DPLangevin.plan(facts, steps=12, **budget).vector_noise
    assert runs.spend.level == pytest.approx(math.sqrt(12) * facts.sensitivity / runs.vector_noise.sigma)

"""Plans of private selection: the budget adds up, what a run may spend, and ties."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.events import SelectedGaussian
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.run_counts import RunClaim, selection_delta, selection_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.tuning.record_scores import brier, squared_error
from privopt.mechanisms.tuning.scores import NoisyMean
from privopt.mechanisms.tuning.selection import BestRun, Notion, Run, SelectionPlan


def test_brier_scores_lie_between_zero_and_one() -> None:
    """A record's scores differ by 1 at most, as the noise assumes: right, undecided, wrong."""
    told = SimpleNamespace(predict_proba=lambda X: X)
    risks = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    assert brier(told, risks, np.zeros(3, dtype=np.int64), np.array(["a", "b"])).tolist() == [1.0, 0.75, 0.0]


def test_squared_errors_lie_between_zero_and_one() -> None:
    """Whatever is predicted: of a range from -1 to 3 an error of 4 scores 0, one of 2 scores 3/4."""
    told = SimpleNamespace(predict=lambda X: X)
    predicted, truth = np.array([3.0, -1.0, 1.0, 1e9, -1e300]), np.array([-1.0, -1.0, 3.0, 3.0, 5.0])
    assert squared_error(told, predicted, truth, (-1.0, 3.0)).tolist() == [0.0, 1.0, 0.75, 1.0, 0.0]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
@pytest.mark.parametrize("candidates", [4, 30])
def test_random_number_of_runs_is_within_the_budget(candidates: int, epsilon: float, delta: float) -> None:
    for notion in ("gdp", "approximate"):
        plan = SelectionPlan.plan(candidates, epsilon=epsilon, delta=delta, notion=notion)
        assert plan.law is not None
        # What a fit makes of the pair it is given, and the score.
        mu = gaussian_mu(plan.run_epsilon, plan.run_delta)
        claim = RunClaim(plan.run_epsilon, plan.run_delta, None if plan.run_mu is None else mu)
        assert plan.score.gaussian
        assert plan.score.level <= mu
        assert plan.covers(PrivacySpend.gdp(mu, plan.run_delta, "a fit"))
        assert 0.99 * epsilon < selection_epsilon(claim, plan.law) <= epsilon
        assert selection_delta(claim, plan.law) <= delta
        assert (plan.spend.epsilon, plan.spend.delta) == (epsilon, delta)


def test_largest_level_that_a_plan_accepts_is_within_the_budget() -> None:
    plan = SelectionPlan.plan(9, epsilon=1.0, delta=1e-8, notion="gdp")
    assert plan.law is not None
    assert plan.run_mu is not None
    least = gaussian_delta(plan.run_mu, plan.run_epsilon)
    claim = RunClaim(plan.run_epsilon, least, plan.run_mu)
    assert selection_epsilon(claim, plan.law) <= 1.0
    assert selection_delta(claim, plan.law) <= 1e-8
    # A level that composes to another total is refused.
    assert not plan.covers(PrivacySpend.gdp(1.001 * plan.run_mu, plan.run_delta, "a fit"))


@pytest.mark.parametrize("candidates", [2, 3])
def test_all_runs_compose_to_the_budget(candidates: int) -> None:
    plan = SelectionPlan.plan(candidates, epsilon=1.0, delta=1e-6, notion="gdp")
    assert plan.law is None
    assert plan.run_mu is not None
    assert gaussian_epsilon(math.sqrt(candidates) * plan.run_mu, 1e-6) <= 1.0
    assert plan.run_mu == pytest.approx(gaussian_mu(1.0, 1e-6) / math.sqrt(candidates), rel=1e-6)
    assert plan.spend.notion == "gdp"
    assert plan.spend.epsilon <= 1.0
    assert plan.score.level <= plan.run_mu
    mu = gaussian_mu(plan.run_epsilon, plan.run_delta)
    assert plan.covers(PrivacySpend.gdp(mu, plan.run_delta, "a fit"))
    mixed = SelectionPlan.plan(candidates, epsilon=1.0, delta=1e-6, notion="approximate")
    assert candidates * mixed.run_epsilon * (1 + 1e-9) <= 1.0
    assert candidates * mixed.run_delta <= 1e-6
    pure = SelectionPlan.plan(candidates, epsilon=1.0, delta=1e-6, notion="pure")
    assert candidates * pure.run_epsilon * (1 + 1e-9) <= 1.0
    assert pure.spend.delta == 0
    assert list(plan.runs(NoiseSource())) == list(range(candidates))


def test_pure_runs_need_no_delta() -> None:
    plan = SelectionPlan.plan(6, epsilon=1.0, delta=0.0, notion="pure")
    assert plan.law is not None
    assert not plan.score.gaussian
    assert selection_epsilon(RunClaim(plan.run_epsilon, 0.0), plan.law) <= 1.0
    assert plan.spend.notion == "pure"
    with pytest.raises(PrivacyParameterError, match="delta = 0"):
        SelectionPlan.plan(6, epsilon=1.0, delta=0.0, notion="gdp")


@pytest.mark.parametrize("notion", ["pure", "gdp", "approximate"])
def test_plans_refuse_what_the_notion_does_not_cover(notion: Notion) -> None:
    plan = SelectionPlan.plan(5, epsilon=1.0, delta=1e-6, notion=notion)
    e, d = plan.run_epsilon, plan.run_delta or 1e-9
    assert plan.covers(PrivacySpend.approximate(e, d, "x")) == (notion == "approximate")
    assert plan.covers(PrivacySpend.pure(e, "x")) == (notion != "gdp")
    assert not plan.covers(PrivacySpend.approximate(1.01 * e, d, "x"))
    assert not plan.covers(PrivacySpend.approximate(e, 1.01 * d, "x"))
    refuted = replace(PrivacySpend.pure(e / 2, "x"), claim="printed: refuted", note="of a paper")
    assert not plan.covers(refuted)


def test_fewer_than_two_candidates_are_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="no search"):
        SelectionPlan.plan(1, epsilon=1.0, delta=0.0, notion="pure")


def test_candidates_are_drawn_evenly_and_anew() -> None:
    plan, source = SelectionPlan.plan(5, epsilon=1.0, delta=0.0, notion="pure"), NoiseSource(insecure_seed=1)
    drawn = [list(plan.runs(source)) for _ in range(400)]
    counts = np.bincount([k for runs in drawn for k in runs], minlength=5)
    assert len(counts) == 5
    assert counts.min() > 0.8 * counts.mean()
    assert any(len(set(runs)) < len(runs) for runs in drawn)  # the same candidate may be run again
    assert min(map(len, drawn)) == 1


def test_ties_are_broken_evenly() -> None:
    # A rule such as "the first" or "the last" would depend on the number of runs.
    source, wins = NoiseSource(insecure_seed=2), np.zeros(3)
    for _ in range(600):
        best = BestRun[int](source)
        for made, score in [(9, 0.5), (0, 1.0), (8, 0.0), (1, 1.0), (2, 1.0)]:
            best.take(Run(made, score))
        assert best.best is not None
        assert best.best.made is not None
        wins[best.best.made] += 1
    assert wins.min() > 150


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("level", [0.01, 1.0, 30.0])
def test_scores_have_noise_of_their_level(gaussian: bool, level: float) -> None:
    noisy, n = NoisyMean(level, gaussian), 10
    means = noisy.releases(np.full((4000, n), 0.5), NoiseSource(insecure_seed=5))
    # One record moves the sum by 1: standard deviation 1 / mu, or sqrt 2 / epsilon.
    expected = (1 if gaussian else math.sqrt(2)) / level / n
    assert np.std(means) == pytest.approx(expected, rel=0.06)
    assert np.mean(means) == pytest.approx(0.5, abs=5 * expected / math.sqrt(4000))


def test_scores_are_clipped_and_what_is_no_number_is_the_worst() -> None:
    noisy, source = NoisyMean(1e6, True), NoiseSource(insecure_seed=6)
    assert noisy.release([7.0, -3.0, math.nan, math.inf], source) == pytest.approx(0.5, abs=1e-4)


def test_score_of_noise_alone_is_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="nothing but noise"):
        NoisyMean(1e-9, True)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("level", [1e9, 1e18, 1e300])
def test_a_score_has_noise_that_its_grid_takes_at_any_level(gaussian: bool, level: float) -> None:
    """It was refused on the grid, and every run of a search failed, after the booking."""
    found = NoisyMean(level, gaussian).release(np.ones(60), NoiseSource(insecure_seed=7))
    assert found == pytest.approx(1.0, abs=1e-6)


def test_thousands_of_candidates_are_refused_before_a_booking() -> None:
    """The law of the number of runs would be refused when it is drawn from, after the booking."""
    with pytest.raises(PrivacyParameterError, match="too large"):
        SelectionPlan.plan(10_000, epsilon=1.0, delta=0.0, notion="pure")


def test_few_runs_on_average_make_an_event_and_one_run_is_none() -> None:
    told = {"epsilon": 1.0, "delta": 1e-6, "run_mu": 0.1, "shape": 0.0}
    assert SelectedGaussian(mean=1.2, **told).mean == 1.2
    for mean, shape in ((1.0, 0.0), (1.2, -0.5)):
        with pytest.raises(PrivacyParameterError, match="a mean > 1 and a shape >= 0"):
            SelectedGaussian(mean=mean, **{**told, "shape": shape})

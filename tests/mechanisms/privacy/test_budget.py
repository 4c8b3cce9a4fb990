"""Sums of spends under each rule: never under-counted, in any order, and the same from running sums."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    pure_to_gdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privopt.mechanisms.privacy.budget import Budget, Spent, Total, compose
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball

TENTH = PrivacySpend.pure(0.1, "test")


def test_budgets_allow_exactly_what_was_calibrated_to_them() -> None:
    epsilon, delta = 1.3, 1e-6
    gdp = PrivacySpend.gdp(gaussian_mu(epsilon, delta), delta, "one")
    assert Budget(epsilon, delta, "gdp").affords([gdp])
    part = PrivacySpend.gdp(gaussian_mu(epsilon, delta) / math.sqrt(7), delta, "one of seven")
    assert Budget(epsilon, delta, "gdp").affords([part] * 7)
    assert not Budget(epsilon, delta, "gdp").affords([part] * 8)
    rho = PrivacySpend.zcdp(zcdp_rho(epsilon, delta / 2) / 7, delta / 2, "one of seven")
    assert Budget(epsilon, delta, "zcdp").affords([rho] * 7)
    assert not Budget(epsilon, delta, "zcdp").affords([rho] * 8)
    own = PrivacySpend.approximate(0.01, delta / 4, "own delta")
    assert Budget(epsilon, delta, "zcdp").affords([own] * 2)
    assert not Budget(epsilon, delta, "zcdp").affords([own] * 3)


def test_totals_stay_within_what_is_affordable() -> None:
    pure, zcdp = PrivacySpend.pure(0.1, "a"), PrivacySpend.zcdp(0.003, 1e-6, "b")
    for rule in ("basic", "zcdp"):
        budget, spends = Budget(1.5, 1e-5, rule), []
        while budget.affords([*spends, pure]):
            spends += [pure]
            if budget.affords([*spends, zcdp]):
                spends += [zcdp]
            assert budget.total(spends).epsilon <= 1.5 * (1 + 1e-9)
            assert budget.total(spends).delta <= 1e-5
        assert len(spends) > 5


def test_compose_takes_the_best_rule() -> None:
    delta = 1e-5
    few, many = [PrivacySpend.pure(0.5, "a")] * 2, [PrivacySpend.pure(0.05, "a")] * 400
    assert compose(few, delta) == compose(few, 0.0) == Total(1.0, 0.0, "basic")
    assert compose(many, delta).rule == "zcdp"
    assert compose(many, delta).epsilon == pytest.approx(zcdp_epsilon(400 * 0.05**2 / 2, delta))
    gaussians = [PrivacySpend.gdp(0.1, delta, "g")] * 25
    assert compose(gaussians, delta).rule == "gdp"
    assert compose(gaussians, delta).epsilon == pytest.approx(gaussian_epsilon(0.5, delta))
    mixed = [*many, PrivacySpend.approximate(0.5, delta / 2, "own delta")]
    whole = compose(mixed, delta)
    assert whole.rule == "zcdp"
    assert whole.epsilon == pytest.approx(zcdp_epsilon(400 * 0.05**2 / 2 + 0.125, delta / 2))
    assert whole.delta == pytest.approx(delta)
    with pytest.raises(PrivacyParameterError, match="add up"):
        compose([PrivacySpend.approximate(0.5, 2 * delta, "own delta")], delta)


def exact_epsilon(mu: float, pure: list[float], delta: float) -> float:
    """The exact epsilon of a Gaussian release of level mu beside randomized responses, by bisection.

    A response loses +e with chance s = 1 / (1 + exp(-e)) and -e otherwise; given all of those losses, l in
    sum, delta is that of the Gaussian at epsilon - l, which for negative arguments follows by symmetry.
    """

    def gaussian(e: float) -> float:
        return gaussian_delta(mu, e) if e >= 0 else 1 - math.exp(e) * (1 - gaussian_delta(mu, -e))

    def total(epsilon: float) -> float:
        found = 0.0
        for signs in itertools.product((1, -1), repeat=len(pure)):
            chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, pure, strict=True))
            found += chance * gaussian(epsilon - sum(s * e for s, e in zip(signs, pure, strict=True)))
        return found

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("mu", "pure"), [(0.5, [0.3, 0.3]), (0.2, [0.1] * 6), (1.5, [2.0]), (0.01, [1.0])])
def test_gaussian_releases_beside_others_are_never_under_counted(mu: float, pure: list[float]) -> None:
    """Against the exact law; and a rule that took pure releases for mu = epsilon / 2 would be caught."""
    delta = 1e-5
    spends = [PrivacySpend.gdp(mu, delta, "g"), *(PrivacySpend.pure(e, "p") for e in pure)]
    exact = exact_epsilon(mu, pure, delta)
    assert exact <= compose(spends, delta).epsilon <= 1.5 * exact
    assert exact <= Budget(9.0, delta, "gdp").total(spends).epsilon
    if len(pure) == 6:
        assert gaussian_epsilon(math.sqrt(mu**2 + sum((e / 2) ** 2 for e in pure)), delta) < exact
    # An (epsilon, delta) release tells all with chance delta, and is randomized response otherwise.
    own = [PrivacySpend.approximate(s.epsilon, delta / 20, "a") for s in spends[1:]]
    left = delta - len(own) * delta / 20
    assert exact_epsilon(mu, pure, left) <= compose([spends[0], *own], delta).epsilon


def test_two_gradient_fits_compose_as_one_gaussian() -> None:
    facts = RiskFacts(10_000, 20, LogisticLoss())
    delta = 1e-6
    fits = [
        DPGradientDescent.plan(facts, epsilon=1.0, delta=delta, steps=30).spend,
        DPFrankWolfeL2.plan(facts, L2Ball(20, 3.0), epsilon=2.0, delta=delta, steps=50).spend,
        OutputPerturbation.plan(facts, epsilon=0.5, delta=delta).spend,
    ]
    assert [s.notion for s in fits] == ["gdp"] * 3
    assert [s.epsilon for s in fits] == [1.0, 2.0, 0.5]
    mu = math.sqrt(sum(gaussian_mu(s.epsilon, delta) ** 2 for s in fits))
    together = compose(fits, delta)
    assert together.epsilon == pytest.approx(gaussian_epsilon(mu, delta), rel=1e-6)
    assert together.epsilon < 0.75 * 3.5
    assert together.delta == delta  # three fits, one delta
    budget = Budget(together.epsilon * (1 + 1e-9), delta, "gdp")
    assert budget.affords(fits)
    assert not budget.affords([*fits, OutputPerturbation.plan(facts, epsilon=0.1, delta=delta).spend])
    # A fit calibrated to the whole budget is affordable, and in a zCDP ledger it costs its mu^2 / 2.
    assert Budget(1.0, delta, "gdp").affords(fits[:1])
    assert Budget(9.0, 2 * delta, "zcdp").total(fits).epsilon == pytest.approx(zcdp_epsilon(mu**2 / 2, delta))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                TENTH,
                PrivacySpend.approximate(0.3, 1e-8, "a"),
                PrivacySpend.zcdp(0.01, 1e-7, "z"),
                PrivacySpend.gdp(0.1, 1e-7, "g"),
            ]
        ),
        min_size=1,
        max_size=8,
    ),
    st.randoms(),
)
def test_order_does_not_matter(spends: list[PrivacySpend], shuffler: random.Random) -> None:
    other = list(spends)
    shuffler.shuffle(other)
    assert compose(other, 1e-5) == compose(spends, 1e-5)
    for rule in ("basic", "zcdp"):
        assert Budget(1.0, 1e-5, rule).total(other) == Budget(1.0, 1e-5, rule).total(spends)
        assert Budget(1.0, 1e-5, rule).affords(other) == Budget(1.0, 1e-5, rule).affords(spends)


def verdict_of_old(budget: Budget, spends: list[PrivacySpend]) -> bool:
    """Sum of the whole history as file ledgers computed it: ``math.fsum`` over all spends."""
    slack = 1 + 1e-15
    if budget.rule == "basic":
        epsilon, delta = (math.fsum(getattr(s, name) for s in spends) for name in ("epsilon", "delta"))
        return epsilon <= budget.epsilon * slack and delta <= budget.delta * slack
    if budget.rule == "zcdp":
        own = math.fsum(s.delta for s in spends if s.notion == "approximate")
        levels = [s.level or 0.0 if s.notion == "zcdp" else (s.level or s.epsilon) ** 2 / 2 for s in spends]
        limit = zcdp_rho(budget.epsilon, budget.delta / 2)
        return own <= budget.delta / 2 * slack and math.fsum(levels) <= limit * slack
    squares = [(pure_to_gdp(s.epsilon) if s.level is None else s.level) ** 2 for s in spends]
    return math.fsum(squares) <= gaussian_mu(budget.epsilon, budget.delta) ** 2 * slack


SIZES = st.floats(1e-9, 0.5).flatmap(lambda x: st.sampled_from([x, 0.1, 0.3, 1 / 3, 0.125]))
DRAWN = st.lists(st.tuples(st.sampled_from("pagz"), SIZES), min_size=1, max_size=40)


def spend_of(kind: str, size: float, rule: str) -> PrivacySpend:
    if kind == "z" and rule != "gdp":
        return PrivacySpend.zcdp(size / 10, 1e-6, "z")
    if kind == "a" and rule != "gdp":
        return PrivacySpend.approximate(size, size * 1e-6, "a")
    return PrivacySpend.gdp(size, 1e-6, "g") if kind == "g" else PrivacySpend.pure(size, "p")


@settings(max_examples=60, deadline=None)
@given(drawn=DRAWN, rule=st.sampled_from(["basic", "zcdp", "gdp"]), cancelled=st.sets(st.integers(0, 39)))
def test_running_sums_say_what_the_whole_history_says(
    drawn: list[tuple[str, float]], rule: str, cancelled: set[int]
) -> None:
    """To the last bit, with cancellations in between; and sums are what exact fractions say."""
    budget, spent, kept = Budget(1.0, 1e-5, rule), Spent(), list[PrivacySpend]()
    for k, (kind, size) in enumerate(drawn):
        spend = spend_of(kind, size, rule)
        assert budget.within(spent + budget.cost(spend)) == verdict_of_old(budget, [*kept, spend])
        spent += budget.cost(spend)
        if k in cancelled:
            spent -= budget.cost(spend)
        else:
            kept.append(spend)
    assert spent == budget.cost(*kept)
    if rule == "basic":
        assert spent.strength == sum(Fraction(s.epsilon) for s in kept)
        assert budget.stated(spent).epsilon == math.fsum(s.epsilon for s in kept)


@pytest.mark.parametrize("rule", ["basic", "zcdp", "gdp"])
def test_spends_of_any_size_are_counted(rule: str) -> None:
    """Squares leave the range of doubles: the tiny still count, the huge never fit."""
    budget = Budget(1.0, 1e-5, rule)
    tiny, huge = PrivacySpend.pure(1e-200, "t"), PrivacySpend.pure(1e200, "h")
    assert budget.affords([tiny])
    assert budget.cost(tiny).strength > 0
    assert budget.total([tiny]).epsilon <= 1e-9
    assert not budget.affords([huge])
    assert not budget.affords([huge, huge])
    assert "with it, epsilon = " in budget.shortfall(Spent(), huge)

"""Group privacy: conversions against exact laws, and budgets of records against that of a person."""

import math

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.spend import PrivacySpend

WIDE = 40.0, 0.999  # a budget that any of the spends below fits


def grouped(spend, k, budget=WIDE):
    return PersonBudget(*budget, k).of_person(spend)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_pure_privacy_of_k_records_is_that_of_a_geometric_law_moved_by_k(k):
    """Discrete Laplace noise for a count: moved by k it has the largest log ratio k epsilon, attained."""
    epsilon = 0.4
    x = np.arange(-200, 201)
    p, q = (np.exp(-epsilon * np.abs(x - c)) for c in (0, k))
    exact = float(np.max(np.log(p / q)))
    found = grouped(PrivacySpend.pure(epsilon, "counts"), k)
    assert found.notion == "pure"
    assert found.epsilon == pytest.approx(exact, rel=1e-12)
    assert found.epsilon >= exact * (1 - 1e-12)
    assert found.unit == "person"


@pytest.mark.parametrize("k", [2, 3, 4])
def test_delta_of_k_records_covers_the_worst_chain(k):
    """The trade-off function of (epsilon, delta), applied k times: the worst chain of k steps.

    Its delta at k epsilon is max over a of 1 - f_k(a) - e^(k epsilon) a with 1 - f_k = (1 - f) composed k
    times, 1 - f(a) = min(1, delta + e^epsilon a) for small a: at a = 0 it is delta times the sum.
    """
    epsilon, delta = 0.3, 1e-5
    power = 0.0
    for _ in range(k):
        power = min(1.0, delta + math.exp(epsilon) * power)
    found = grouped(PrivacySpend.approximate(epsilon, delta, "m"), k)
    assert found.epsilon == pytest.approx(k * epsilon)
    assert found.delta == pytest.approx(power, rel=1e-9)
    assert found.delta >= power
    assert found.delta > k * delta * math.exp(epsilon / 2)


@pytest.mark.parametrize("k", [2, 6])
def test_gaussian_noise_of_k_records_is_a_gaussian_moved_by_k(k):
    mu, delta = 0.2, 1e-4
    found = grouped(PrivacySpend.gdp(mu, delta, "dp-gd"), k, (40.0, delta))
    assert found.level == pytest.approx(k * mu)
    assert found.level >= k * mu
    # N(k mu, 1) against N(0, 1), at the stated epsilon.
    e = found.epsilon
    exact = stats.norm.cdf(k * mu / 2 - e / (k * mu)) - math.exp(e) * stats.norm.cdf(
        -k * mu / 2 - e / (k * mu)
    )
    assert exact <= delta * (1 + 1e-9)
    assert exact > 0.999 * delta


def test_zcdp_of_k_records_grows_with_the_square():
    """The Renyi divergence of N(k s, 1) and N(0, 1) is alpha (k s)^2 / 2, rho = s^2 / 2."""
    found = grouped(PrivacySpend.zcdp(0.02, 1e-6, "dp-fw-l1"), 3, (40.0, 1e-6))
    assert found.level == pytest.approx((3 * math.sqrt(2 * 0.02)) ** 2 / 2)
    assert found.level >= 0.18


@pytest.mark.parametrize("k", [1, 2, 3, 10, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (1.0, 1e-6), (8.0, 1e-3)])
@pytest.mark.parametrize("notion", ["pure", "approximate", "gdp", "zcdp"])
def test_the_budget_of_a_record_is_the_largest_that_a_person_affords(k, epsilon, delta, notion):
    from privopt.mechanisms.privacy.accounting import gaussian_mu, zcdp_rho

    budget = PersonBudget(epsilon, delta, k)
    e, d = budget.of_record(notion)
    spend = {
        "pure": lambda: PrivacySpend.pure(e, "m"),
        "approximate": lambda: PrivacySpend.approximate(e, d, "m"),
        "gdp": lambda: PrivacySpend.gdp(gaussian_mu(e, d), d, "m"),
        "zcdp": lambda: PrivacySpend.zcdp(zcdp_rho(e, d), d, "m"),
    }[notion]()
    found = budget.of_person(spend)
    assert found.epsilon <= epsilon * (1 + 1e-12)
    assert found.delta <= delta * (1 + 1e-12)
    assert found.epsilon >= epsilon * (1 - 1e-6)
    assert found.delta == 0 if notion == "pure" else found.delta >= delta * (1 - 1e-6)


def test_a_spend_beyond_the_budget_or_of_a_person_is_refused():
    budget = PersonBudget(1.0, 1e-6, 3)
    with pytest.raises(PlanMismatchError, match="3 records of a person cost epsilon = 3"):
        budget.of_person(PrivacySpend.pure(1.0, "m"))  # the noise of one record
    person = budget.of_person(PrivacySpend.pure(0.3, "m"))
    assert "at most 3 records, each protected at epsilon = 0.3" in person.note
    with pytest.raises(PlanMismatchError, match="private for a person already"):
        budget.of_person(person)
    for wrong in (0, 1.5, -1):
        with pytest.raises(PrivacyParameterError, match="records_per_person must be a whole number"):
            PersonBudget(1.0, 0.0, wrong)


def test_delta_beyond_doubles_leaves_none():
    epsilon, delta = PersonBudget(2000.0, 0.5, 2).of_record("approximate")
    assert 0 <= delta < 1e-300
    assert epsilon < 1000


def test_so_many_records_that_nothing_is_left_for_one_are_refused():
    with pytest.raises(PrivacyParameterError, match=r"records_per_person = 1,000,000 .*To do: a smaller"):
        PersonBudget(1.0, 1e-6, 10**6).of_record("gdp")

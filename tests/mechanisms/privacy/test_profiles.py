"""Composition of sampled releases by their losses: against independent accounts, never above other rules."""

import functools
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.audit.audit import exact_delta
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.estimators.booked_estimator import never_read, spend_of_fit
from privopt.mechanisms.estimators.booking import Unread
from privopt.mechanisms.privacy import profiles
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu, pure_to_gdp
from privopt.mechanisms.privacy.budget import Budget, compose
from privopt.mechanisms.privacy.events import SampledGaussian
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.profiles import with_gaussian
from privopt.mechanisms.privacy.run_counts import RunCounts
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.tuning.selection import SelectionPlan
from privopt.problems.errors import InvalidInputError
from tests.mechanisms.privacy.composition import (
    GaussianSteps,
    PureSteps,
    _loss_distribution,
    composed_epsilon,
)

Z, Q, STEPS, DELTA = 4.0, 0.05, 100, 1e-6


@functools.cache
def sampled(**more):
    epsilon = composed_epsilon([steps(1)], DELTA)
    event = SampledGaussian(epsilon, DELTA, Z, Q, STEPS, **more)
    return PrivacySpend.approximate(epsilon, DELTA, "dp-sgd", event=event)


def steps(runs):
    """In the terms of the independent account: sigma is in units of 2 C."""
    return GaussianSteps(Z / 2, Q, runs * STEPS)


def test_pure_gaussian_and_sampled_releases_compose_together():
    """A mu-GDP release has sigma = 1 / mu in units of its sensitivity."""
    spends = [sampled(), sampled(), PrivacySpend.gdp(0.3, DELTA, "dp-gd"), *[PrivacySpend.pure(0.1, "m")] * 3]
    found = compose(spends, 1e-5)
    exact = composed_epsilon([steps(2), GaussianSteps(1 / 0.3), PureSteps(0.1, 3)], 1e-5)
    assert found.rule == "pld"
    assert exact * (1 - 1e-3) <= found.epsilon <= exact * (1 + 3e-3)


def test_a_release_of_which_only_a_pair_is_known_discloses_with_its_delta():
    pair = PrivacySpend.approximate(0.2, 1e-6, "opdisc")
    found = compose([sampled(), sampled(), pair], 5e-6)
    less = composed_epsilon([steps(2), PureSteps(0.2)], 4e-6)
    assert found.rule == "pld"
    assert less * (1 - 1e-3) <= found.epsilon <= less * (1 + 5e-3)
    with pytest.raises(PrivacyParameterError, match="add up to more than"):
        compose([sampled(), pair], 1e-6)


def test_compositions_are_never_above_those_without_events():
    """A pure release of large epsilon beside a sampled one: adding up is all that there is."""
    with_event = [sampled(), PrivacySpend.pure(2.0, "m")]
    without = [replace(s, event=None) for s in with_event]
    found = compose(without, 2.5 * DELTA)
    assert found.rule != "pld"
    assert compose(with_event, 2.5 * DELTA).epsilon <= found.epsilon


def test_noise_on_a_grid_is_paid_out_of_delta():
    """(1 + e^epsilon) times the distance of both, at the epsilon that is stated."""
    distance = 1e-7
    found = compose([sampled(distance=distance)] * 2, 3e-6).epsilon
    left = 3e-6 - 2 * distance * (1 + math.exp(found))
    assert 1e-6 < left < 2.5e-6
    assert found == pytest.approx(composed_epsilon([steps(2)], left), rel=2e-3)


def test_full_releases_of_an_event_are_one_gaussian():
    event = SampledGaussian(3.0, DELTA, 50.0, 0.001, 1, full_z=10.0, full_steps=4)
    found = compose([PrivacySpend.approximate(3.0, DELTA, "dp-svrg", event=event)], DELTA)
    # The sampled one is nothing beside them: 4 releases of contributions that differ by 2, sigma = 10.
    assert found.epsilon == pytest.approx(gaussian_epsilon(2 * 2 / 10.0, DELTA), rel=2e-3)


def test_an_event_belongs_to_its_pair():
    """What adds a release to a spend replaces epsilon, and with it the event."""
    spend = sampled()
    assert replace(spend, note="n", mechanism="m").event == spend.event
    assert replace(spend, epsilon=spend.epsilon + 0.1).event is None
    assert replace(spend, delta=2 * DELTA).event is None


def test_events_are_written_and_read_back_and_checked():
    spend = sampled(full_z=9.0, full_steps=2)
    record = json.loads(json.dumps(spend.to_dict()))
    assert PrivacySpend.from_dict(record) == spend
    assert "event" not in replace(spend, event=None).to_dict()  # as older versions wrote it
    wrong = [{"kind": "other/1"}, {"q": 0.0}, {"q": 1.5}, {"z": -1.0}, {"steps": 0}, {"full_z": None}]
    for change in (*wrong, {"epsilon": 9.0}, {"more": 1}):
        with pytest.raises(PrivacyParameterError):
            PrivacySpend.from_dict({**record, "event": {**record["event"], **change}})
    for event in (None, "text", {}):
        with pytest.raises(PrivacyParameterError):
            PrivacySpend.from_dict({**record, "event": event})


def test_a_ledger_keeps_what_ran_and_composes_it_again(tmp_path):
    book = Ledger.create(tmp_path / "l.db", 10.0, 1e-5)
    for _ in range(3):
        book.commit(book.reserve(sampled()))
    book.cancel(book.reserve(sampled()), "nothing was read")
    again = Ledger(tmp_path / "l.db")
    assert [entry.spend for entry in again.entries()] == [sampled()] * 4
    found = again.composed(3e-6)
    assert (found.delta, found.rule) == (3e-6, "pld")
    assert found.epsilon == pytest.approx(composed_epsilon([steps(3)], 3e-6), rel=1e-3)
    assert again.total().epsilon == pytest.approx(3 * sampled().epsilon)
    assert found.epsilon < 0.7 * again.total().epsilon
    assert verify(again) == []


@pytest.mark.parametrize("mechanism", ["dp-sgd", pytest.param("dp-svrg", marks=pytest.mark.slow)])
def test_fits_on_sampled_batches_keep_what_ran(mechanism):
    """The event of a plan spends what the plan states, within the tolerance of its calibration."""
    model = PrivateLogisticRegression(
        1.0,
        delta=1e-5,
        mechanism=mechanism,
        data_norm=1.0,
        classes=(0, 1),
        steps=20 if mechanism == "dp-sgd" else None,
    )
    spend = spend_of_fit(model, Unread(1000, never_read, 3))
    assert spend.event is not None
    assert 0.98 < compose([spend], 1e-5).epsilon <= 1.0


# Few steps on small samples have a loss with heavier tails than a Gaussian's.
HEAVY = SampledGaussian(0.1157, 1e-5, 1.5, 0.01, 5)
PLANS = [SampledGaussian(1.0, 1e-6, 3.784, 0.02, 500, distance=1e-16), HEAVY]


@pytest.mark.parametrize("event", PLANS, ids=["many steps", "few steps"])
def test_the_gaussian_of_a_sampled_release_is_above_its_profile(event):
    """Against an independent account at many epsilons, beyond that of the plan too."""
    found = with_gaussian(PrivacySpend.approximate(event.epsilon, event.delta, "dp-sgd", event=event)).event
    once = _loss_distribution(GaussianSteps(event.z / 2, event.q), 12 * event.epsilon, event.epsilon / 2000)
    with np.errstate(over="ignore"):
        law = once.self_compose(event.steps)
    assert 0 < found.disclosed < event.delta / 100
    for epsilon in np.linspace(0.01, 5.0, 60) * event.epsilon:
        above = found.disclosed + (1 - found.disclosed) * gaussian_delta(found.mu, epsilon)
        assert law.get_delta_for_epsilon(epsilon) <= above * (1 + 1e-6) + 1e-13
    at_the_pair = gaussian_mu(event.epsilon, event.delta)
    assert at_the_pair <= found.mu < (1.5 if event is HEAVY else 1.01) * at_the_pair


@pytest.mark.parametrize("event", [replace(HEAVY, distance=1e-6), SampledGaussian(30.0, 1e-6, 0.4, 0.5, 20)])
def test_where_no_gaussian_is_known_the_pair_is_all_that_counts(event):
    """The grid's noise is too far from Gaussian, or epsilon is too large to compute the profile."""
    found = with_gaussian(PrivacySpend.approximate(event.epsilon, event.delta, "dp-sgd", event=event)).event
    assert (found.mu, found.disclosed) == (pure_to_gdp(event.epsilon), event.delta)


def test_a_budget_by_profile_is_above_the_losses_composed_and_far_below_their_sum():
    budget, runs = Budget(3.0, 1e-5, "profile"), 5
    spends = [sampled()] * runs + [PrivacySpend.gdp(0.2, 1e-6, "dp-gd"), PrivacySpend.pure(0.05, "m")]
    found = budget.total(spends)
    exact = composed_epsilon([steps(runs), GaussianSteps(1 / 0.2), PureSteps(0.05)], found.delta)
    assert exact <= found.epsilon <= 1.1 * exact
    assert found.epsilon < 0.6 * sum(s.epsilon for s in spends)
    cost = [budget.cost(*spends[:k]) for k in range(len(spends) + 1)]
    for before, after in itertools.pairwise(cost):  # no release makes room for another
        assert after.strength > before.strength
        assert after.delta >= before.delta
    assert float(cost[runs].delta) == pytest.approx(runs * DELTA / 1024)
    pair = PrivacySpend.approximate(0.2, 2e-6, "opdisc")
    assert budget.affords([pair] * 2)
    assert not budget.affords([pair] * 3)  # half of delta is for the conversion


def test_what_a_budget_by_profile_books_is_read_back_to_the_same_sum(tmp_path):
    place = tmp_path / "ledger.db"
    ledger, by_sum = (
        Ledger.create(f"{place}#{rule}", 3 * sampled().epsilon, 3e-6, rule=rule)
        for rule in ("profile", "basic")
    )
    for book in (ledger, by_sum):
        while book.affords(sampled()):
            book.commit(book.reserve(sampled()))
    booked = [entry.spend for entry in ledger.entries()]
    assert len(booked) > 2 * len(by_sum.entries()) == 6
    assert booked[0].event.mu == with_gaussian(sampled()).event.mu
    assert by_sum.entries()[0].spend == sampled()
    profiles._gaussian_above.cache_clear()
    with pytest.MonkeyPatch.context() as patched:  # another version may find another Gaussian
        patched.setattr(profiles, "_gaussian_above", None)
        assert verify(f"{place}") == []
        assert ledger.total() == ledger.budget.total(booked)
    assert ledger.total().epsilon <= 3 * sampled().epsilon
    with pytest.raises(BudgetExceededError):
        ledger.reserve(sampled())
    assert len(ledger.entries()) == len(booked)


@pytest.mark.parametrize("rule", ["profile", "basic"])
def test_a_ledger_takes_no_gaussian_that_a_caller_quotes(tmp_path, rule):
    book = Ledger.create(tmp_path / "ledger.db", 3 * sampled().epsilon, 3e-6, rule=rule)
    book.commit(book.reserve(sampled(mu=1e-6, disclosed=1e-300)))
    (entry,) = book.entries()
    assert entry.spend == (with_gaussian(sampled()) if rule == "profile" else sampled())


CHOICE = SelectionPlan.plan(4, epsilon=1.0, delta=DELTA, notion="gdp").spend


def test_a_choice_among_runs_keeps_its_law_and_composes_by_it(tmp_path):
    assert PrivacySpend.from_dict(json.loads(json.dumps(CHOICE.to_dict()))) == CHOICE
    book, by_pair = (
        Ledger.create(f"{tmp_path / 'ledger.db'}#{name}", 10.0, 1e-4, rule="profile")
        for name in ("law", "pair")
    )
    book.commit(book.reserve(CHOICE))
    by_pair.commit(by_pair.reserve(replace(CHOICE, event=None)))
    assert book.total().epsilon < 0.5 * by_pair.total().epsilon
    assert verify(book) == []
    three = compose([CHOICE] * 3, 4 * DELTA)
    assert three.rule == "pld"
    # Three choices are no more private than three single runs, which are sqrt(3) mu-GDP.
    assert gaussian_epsilon(3**0.5 * CHOICE.event.run_mu, 4 * DELTA) < three.epsilon < 3


@pytest.mark.parametrize("candidates", [4, 30])
def test_the_gaussian_of_a_choice_is_above_its_profile(candidates):
    event = with_gaussian(SelectionPlan.plan(candidates, epsilon=1.0, delta=DELTA, notion="gdp").spend).event
    law = RunCounts(event.mean, event.shape)
    cells = np.concatenate([[-np.inf], np.linspace(-9, 10, 2001), [np.inf]])
    best = [np.diff([law.generating(x) for x in special.ndtr(cells - m)]) for m in (0.0, event.run_mu)]
    for epsilon in np.linspace(0, 2, 9).tolist():
        above = event.disclosed + (1 - event.disclosed) * gaussian_delta(event.mu, epsilon)
        assert exact_delta(*best, epsilon) <= above + 1e-10
    assert event.disclosed < DELTA
    # A pair alone is the Gaussian of epsilon. No choice is more private than a run.
    assert event.run_mu < event.mu < 0.7 * pure_to_gdp(1.0)


@pytest.mark.parametrize(
    "change", [{"run_mu": 0.0}, {"mean": 1.0}, {"shape": -1.0}, {"shape": None}, {"mu": 1.0}]
)
def test_events_of_choices_are_checked(change):
    record = CHOICE.to_dict()
    with pytest.raises((PrivacyParameterError, InvalidInputError)):
        PrivacySpend.from_dict({**record, "event": {**record["event"], **change}})

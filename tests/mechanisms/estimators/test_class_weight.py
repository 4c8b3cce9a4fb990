"""Class weights: scorecards and linear models, prevalences declared and released, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privopt.mechanisms import (
    NoiseSource,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
    PrivateTreeClassifier,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.weights import ClassWeights, costs_of, prevalence_share
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.mechanisms.scorecards.prevalence import PrevalencePlan
from privopt.oracles import UnsupportedProblemError
from privopt.problems import Binned, Categorical, Costs, InvalidInputError, Schema
from privopt.problems.convex.loss_check import check_loss
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, WeightedLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.tables.counted import CountedRecords

SCHEMA = Schema([Categorical(name, ["a", "b", "c"]) for name in "uv"], intercept=True)
CLASSES = ("no", "yes")


def rare(n: int = 6000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """5% positives; 26% of the rarest combination."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({name: rng.choice(["a", "b", "c"], n) for name in "uv"})
    chance = 0.01 + 0.1 * (X["u"] == "b") + 0.05 * (X["v"] == "c")
    return X, np.where(rng.random(n) < chance / chance.mean() * 0.05, "yes", "no")


def card(**options: Any) -> PrivateHalfspaceClassifier:
    return PrivateHalfspaceClassifier(
        options.pop("epsilon", 3.0), schema=SCHEMA, classes=CLASSES, insecure_seed=1, **options
    )


def model(**options: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        options.pop("epsilon", 3.0), schema=SCHEMA, classes=CLASSES, insecure_seed=1, **options
    )


@pytest.mark.parametrize("make", [card, model])
@pytest.mark.parametrize(
    "weights",
    [
        {"class_weight": "balanced"},
        {"class_weight": "balanced", "prevalence": 0.05},
        {"class_weight": {"yes": 19.0}},
        {"class_weight": {"no": 0.5, "yes": 9.5}},
    ],
)
def test_weights_find_the_rare_class(make: Any, weights: dict[str, Any]) -> None:
    X, y = rare()
    assert np.mean(make().fit(X, y).predict(X) == "yes") < 0.02
    fitted = make(**weights).fit(X, y)
    said = fitted.predict(X) == "yes"
    assert 0.2 < np.mean(said) < 0.75
    assert np.mean(said[y == "yes"]) > np.mean(said[y == "no"]) + 0.2
    assert fitted.spend_.epsilon == 3.0
    assert ("prevalence" in fitted.spend_.note) == (weights == {"class_weight": "balanced"})


@pytest.mark.parametrize("mechanism", ["exponential", "rspm", "seeded"])
def test_cards_by_any_mechanism_take_costs(mechanism: str) -> None:
    X, y = rare(2000)
    fitted = card(mechanism=mechanism, class_weight={"yes": 20}, epsilon=50.0).fit(X, y)
    said = fitted.predict(X) == "yes"
    assert np.mean(said[y == "yes"]) > 0.5


def test_noise_follows_the_larger_weight() -> None:
    plain, dear = card(mechanism="exponential"), card(mechanism="exponential", class_weight={"no": 7})
    beta = plain.plan(500).plan.noise["beta"]
    assert dear.plan(500).plan.noise["beta"] == pytest.approx(beta / 7)
    X, y = rare(500)
    assert dear.fit(X, y).release_.noise["beta"] == pytest.approx(beta / 7)
    options: dict[str, Any] = {"mechanism": "objective-perturbation", "regularizer": "l2:1"}
    light, heavy = model(**options).fit(X, y), model(class_weight={"yes": 7}, **options).fit(X, y)
    # Gradients grow by 7; so would noise, but for what the Hessian term leaves of epsilon.
    assert heavy.noise_["sigma"] / light.noise_["sigma"] == pytest.approx(7, rel=0.05)


def test_weights_of_several_classes() -> None:
    rng = np.random.default_rng(2)
    X = pd.DataFrame({name: rng.choice(["a", "b", "c"], 6000) for name in "uv"})
    y = np.where(X["u"] == "a", "p", np.where(rng.random(6000) < 0.1, "q", "r"))
    common: dict[str, Any] = {"schema": SCHEMA, "classes": ("p", "q", "r"), "insecure_seed": 0}
    for weights in ({"class_weight": {"q": 20}}, {"class_weight": "balanced"}):
        fitted = PrivateLogisticRegression(20.0, **weights, **common).fit(X, y)
        assert np.mean(fitted.predict(X) == "q") > 0.1
    shares = {"class_weight": "balanced", "prevalence": [0.33, 0.07, 0.6]}
    PrivateLogisticRegression(20.0, **shares, **common).fit(X, y)
    assert np.mean(PrivateLogisticRegression(20.0, **common).fit(X, y).predict(X) == "q") < 0.05


def test_the_whole_is_booked_first(tmp_path: Path) -> None:
    X, y = rare(500)
    for number, make in enumerate((card, model)):
        ledger = Ledger.create(tmp_path / str(number), 3.0, 0.1)
        options: dict[str, Any] = {"ledger": ledger, "class_weight": "balanced"}
        fitted = make(**options)
        fitted.set_params(insecure_seed=None).fit(X, y)
        assert [e.spend.epsilon for e in ledger.entries()] == [3.0]
        assert fitted.spend_.epsilon == 3.0


def test_what_is_booked_is_what_runs(tmp_path: Path) -> None:
    """Weights that are yet to be released make another loss, which not every mechanism takes."""
    X, y = rare(600)
    fitted = model(class_weight="balanced", epsilon=0.5).fit(X, y)
    assert (
        fitted.spend_.mechanism == fitted.mechanism_ == model(class_weight={"yes": 19.0}).fit(X, y).mechanism_
    )
    ledger = Ledger.create(tmp_path / "ledger", 10.0, 0.1)
    refused = PrivateLogisticRegression(
        1.0, schema=SCHEMA, classes=(*CLASSES, "maybe"), mechanism="screened-statistics",
        class_weight="balanced", ledger=ledger,
    )  # fmt: skip
    with pytest.raises(PrivacyParameterError, match="WeightedLoss"):
        refused.fit(X, y)
    assert not ledger.entries()


def test_prevalences_are_counted_with_the_noise_that_they_claim() -> None:
    index = np.resize([0, 0, 0, 1], 1000)
    plan = PrevalencePlan.plan(0.5, 2)
    source = NoiseSource(insecure_seed=3)
    noise = np.array([1000 * plan.release(np.bincount(index), source)[1] - 250 for _ in range(3000)])
    ratio = np.exp(-0.5)  # variance 2 q / (1 - q)^2 of a discrete Laplace with q = exp(-epsilon)
    assert np.var(noise) == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=0.15)
    several = PrevalencePlan.plan(0.5, 3)
    assert several.steps * 2 <= plan.steps + 1  # two counts move
    assert np.sum(several.release(np.full(3, 300), source)) == pytest.approx(1)
    with pytest.raises(ValueError, match="epsilon"):
        PrevalencePlan.plan(0, 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_steps_of_the_noise_of_a_prevalence_stay_within_epsilon_exactly(classes: int) -> None:
    """Replacing a record moves one count of two classes by 1, more by 2 in all; the rate is steps / 2^30."""
    for epsilon in (math.nextafter(0.5, 0), 0.1, 1 / 3, 1.0):
        spent = Fraction(PrevalencePlan.plan(epsilon, classes).steps * (1 if classes == 2 else 2), 2**30)
        assert Fraction(epsilon) * (1 - Fraction(1, 10**6)) < spent <= Fraction(epsilon)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_epsilon_below_the_grid_of_rates_is_refused_and_not_exceeded(classes: int) -> None:
    moved = 1 if classes == 2 else 2
    for epsilon in (1e-300, 1e-12, 9e-10 * moved, 2.0**-30 * moved):
        with pytest.raises(PrivacyParameterError, match="too small"):
            PrevalencePlan.plan(epsilon, classes)
    for epsilon in (1e-9 * moved, 1e-6, 1.0):
        assert 0 < moved * PrevalencePlan.plan(epsilon, classes).steps / 2.0**30 <= epsilon


@pytest.mark.parametrize("held", [[10, 0], [4, 6], [3, 0, 7]])
def test_shares_are_shares_however_much_noise_there_is(held: list[int]) -> None:
    """Noise of a thousand on ten records: every share has to stay positive, and they have to sum to 1."""
    plan, source = PrevalencePlan.plan(2e-3, len(held)), NoiseSource(insecure_seed=2)
    for _ in range(100):
        shares = plan.release(np.array(held), source)
        assert np.all(shares > 0)
        assert np.sum(shares) == pytest.approx(1, abs=1e-12)


def test_released_weights_are_those_of_the_released_prevalence() -> None:
    """Noise on 900 and 100 records is 0 with probability 1 - 2 exp(-50): weights are n / (2 n_k)."""
    weights = ClassWeights.of("balanced", None, np.array(CLASSES), 1000.0)
    assert weights.known is None
    released = weights.release(np.array([900, 100]), NoiseSource(insecure_seed=0))
    assert released == pytest.approx([1000 / 1800, 1000 / 200])
    fixed = ClassWeights.of({"yes": 3.0}, None, np.array(CLASSES), 1.0)
    assert fixed.release(np.array([900, 100]), NoiseSource(insecure_seed=0)).tolist() == [1.0, 3.0]


def test_the_whole_costs_the_budget_and_no_less_than_its_parts_together() -> None:
    """By basic composition of what ran; and never less than what was asked for and booked."""
    weights = ClassWeights.of("balanced", None, np.array(CLASSES), 1.0)
    assert weights.plan is not None
    for rest in (0.3, 0.95, 2.0):
        whole = weights.whole(PrivacySpend.pure(rest, "a mechanism"))
        assert whole.epsilon == max(1.0, rest + weights.plan.epsilon)
        assert whole.notion == "pure"


def test_budgets_split_to_no_more_than_the_whole_exactly() -> None:
    """Of a thousand budgets; a sum of doubles would hide what rounding does to it."""
    for epsilon in np.random.default_rng(5).uniform(0.01, 20, 1000):
        split = ClassWeights.of("balanced", None, np.array(CLASSES), float(epsilon))
        assert split.plan is not None
        together = Fraction(split.rest) + Fraction(split.plan.epsilon)
        assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < together <= Fraction(epsilon)


def test_a_twentieth_of_the_budget_is_for_the_prevalence() -> None:
    for epsilon in (0.1, 1.0, 7.3):
        split = ClassWeights.of("balanced", None, np.array(CLASSES), epsilon)
        assert split.plan is not None
        assert split.rest + split.plan.epsilon <= epsilon
        assert split.plan.epsilon == pytest.approx(0.05 * epsilon)
    assert costs_of(np.array([0.5, 9.5])) == Costs(19, 1)


@pytest.mark.parametrize(
    ("n", "epsilon", "share"), [(100, 0.1, 0.2), (1000, 0.25, 0.2), (1000, 0.5, 0.1), (10**6, 1.0, 0.05)]
)
def test_trees_buy_a_prevalence_whose_noise_is_a_fiftieth_of_the_records(
    n: int, epsilon: float, share: float
) -> None:
    """From a twentieth to a fifth of the budget of the tree, by public facts; the plan says so."""
    assert prevalence_share(n, epsilon) == pytest.approx(share)
    schema = Schema([Categorical("c", ["a", "b"])])
    tree = PrivateTreeClassifier(epsilon, schema=schema, classes=(0, 1), class_weight="balanced")
    planned = tree.plan(n)
    assert f"the prevalence at epsilon = {share * epsilon:.4g}" in planned.facts["in detail"]
    assert planned.plan.choice.spend.epsilon == pytest.approx((1 - share) * epsilon)
    assert planned.spend.epsilon == epsilon


@pytest.mark.parametrize("weight", [0.2, 1.0, 30.0])
def test_weighted_losses_keep_their_constants(weight: float) -> None:
    loss = WeightedLoss(LogisticLoss(), 30.0)
    z = np.linspace(-20, 20, 401)
    for sign in (-1.0, 1.0):
        y = np.full_like(z, sign * weight)
        assert np.allclose(loss.value(z, y), weight * LogisticLoss().value(z, np.sign(y)))
        assert np.max(np.abs(loss.slope(z, y))) <= loss.lipschitz
        assert np.max(loss.curvature(z, y)) <= loss.smoothness
        numeric = np.gradient(loss.value(z, y), z)
        assert np.allclose(numeric[1:-1], loss.slope(z, y)[1:-1], atol=weight * 1e-3)
    with pytest.raises(InvalidInputError):
        EmpiricalRisk(np.ones((2, 1)), [31.0, 1.0], loss)
    with pytest.raises(InvalidInputError):
        EmpiricalRisk(np.ones((2, 1)), [0.0, 1.0], loss)
    with pytest.raises(InvalidInputError):
        WeightedLoss(HuberLoss(1.0), 2.0)
    check_loss(LogisticLoss())


@pytest.mark.parametrize("make", [card, model])
@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": "even"},
        {"class_weight": {"maybe": 2}},
        {"class_weight": {"yes": 0}},
        {"class_weight": {"yes": "2"}},
        {"class_weight": {"yes": float("nan")}},
        {"class_weight": [1, 2]},
        {"prevalence": 0.1},
        {"class_weight": "balanced", "prevalence": 1.5},
        {"class_weight": "balanced", "prevalence": "rare"},
        {"class_weight": "balanced", "prevalence": [0.5, 0.6]},
    ],
)
def test_weights_that_are_none_are_refused(make: Any, options: dict[str, Any]) -> None:
    X, y = rare(50)
    with pytest.raises(InvalidInputError):
        make(**options).fit(X, y)


def test_weights_beyond_a_factor_of_a_thousand_count_as_a_thousand() -> None:
    classes = np.array(["no", "yes"])
    weights = ClassWeights.of({"no": 1e-4, "yes": 1000.0}, None, classes, 1.0).known
    assert weights is not None
    assert weights.tolist() == [1.0, 1000.0]
    assert costs_of(weights) == Costs(1000, 1)


def test_balanced_weights_count_records_and_not_distinct_rows() -> None:
    """One row that stands for 900 negatives and one for 100 positives: positives weigh 9 times as much."""
    schema = Schema([Categorical("sign", ["absent", "present"])], intercept=True)
    frame = pd.DataFrame({"sign": ["absent"] * 900 + ["present"] * 100})
    label = (frame["sign"] == "present").to_numpy().astype(np.int64)
    counted = CountedRecords.of(schema, schema.codes(frame), ("no", "yes"), label)
    assert len(counted.counts) == 2
    options: dict[str, Any] = {"schema": schema, "classes": ("no", "yes"), "class_weight": "balanced"}
    fitted = [
        PrivateLogisticRegression(10.0, delta=1e-6, insecure_seed=3, mechanism="dp-gd", **options).fit(*table)
        for table in ((counted, None), (frame, np.where(label, "yes", "no")))
    ]
    assert fitted[0].intercept_ == pytest.approx(fitted[1].intercept_, abs=1e-9)
    assert fitted[0].coef_ == pytest.approx(fitted[1].coef_, abs=1e-9)


def test_costs_of_a_prevalence_that_is_released_are_planned_for_the_rarest_class() -> None:
    """300,000 records of a cost of up to 9,990 each are too many for 32-bit tables; of cost 1 not."""
    schema = Schema([Binned("x", [0, 1, 2])], intercept=True)
    options: dict[str, Any] = {"mechanism": "exponential", "oracle": "elimination", "schema": schema}
    given = PrivateHalfspaceClassifier(1.0, **options, class_weight="balanced", prevalence=0.5)
    assert given.plan(300_000).plan.loss_bound == 1
    with pytest.raises(UnsupportedProblemError, match="32-bit tables"):
        PrivateHalfspaceClassifier(1.0, **options, class_weight="balanced").plan(300_000)
    assert PrivateHalfspaceClassifier(1.0, **options, class_weight="balanced").plan(300).spend.epsilon == 1.0


@pytest.mark.parametrize("intercept", [True, False])
def test_at_small_budgets_class_weights_move_the_threshold_of_an_unweighted_model(intercept: bool) -> None:
    """The odds of weighted records are those of the records times the ratio of the weights."""
    rng, n = np.random.default_rng(0), 3000
    X = pd.DataFrame({"level": rng.choice(["a", "b", "c"], n)})
    y = (rng.random(n) < X["level"].map({"a": 0.05, "b": 0.1, "c": 0.3})).astype(int)
    schema = Schema([Categorical("level", ["a", "b", "c"])], intercept=intercept)
    facts: dict[str, Any] = {"schema": schema, "classes": (0, 1), "insecure_seed": 3}
    plain = PrivateLogisticRegression(0.5, **facts).fit(X, y)
    weighted = PrivateLogisticRegression(0.5, class_weight={0: 1.0, 1: 8.0}, **facts).fit(X, y)
    assert weighted.mechanism_ == plain.mechanism_ == "sufficient-statistics"
    assert (weighted.noise_, weighted.spend_) == (plain.noise_, plain.spend_)
    moved = weighted.decision_function(X) - plain.decision_function(X)
    assert moved == pytest.approx(np.log(8.0))
    balanced = PrivateLogisticRegression(0.5, class_weight="balanced", **facts).fit(X, y)
    assert balanced.mechanism_ == "sufficient-statistics"
    assert balanced.spend_.epsilon == 0.5
    assert 0.2 < np.mean(balanced.predict(X)) < 0.8
    assert np.mean(plain.predict(X)) == 0


def test_at_small_budgets_weights_of_several_classes_move_the_scores_of_an_unweighted_model(
    tmp_path: Path,
) -> None:
    """The odds of two classes of weighted records are those of the records times the ratio of the weights."""
    rng, n = np.random.default_rng(0), 3000
    X = pd.DataFrame({"level": rng.choice(["a", "b", "c"], n)})
    likely = X["level"].map({"a": "p", "b": "q", "c": "r"})
    y = np.where(rng.random(n) < 0.3, likely, "p")
    schema = Schema([Categorical("level", ["a", "b", "c"])], intercept=True)
    facts: dict[str, Any] = {"schema": schema, "classes": ("p", "q", "r"), "insecure_seed": 3}
    plain = PrivateLogisticRegression(0.5, **facts).fit(X, y)
    weighted = PrivateLogisticRegression(0.5, class_weight={"q": 8.0, "r": 2.0}, **facts).fit(X, y)
    assert weighted.mechanism_ == plain.mechanism_ == "sufficient-statistics"
    assert (weighted.noise_, weighted.spend_) == (plain.noise_, plain.spend_)
    odds = plain.predict_proba(X) * [1.0, 8.0, 2.0]
    assert weighted.predict_proba(X) == pytest.approx(odds / np.sum(odds, axis=1, keepdims=True))
    assert weighted.plan(n).spend == weighted.spend_
    assert set(plain.predict(X)) == {"p"}
    ledger = Ledger.create(tmp_path / "ledger", 1.0, 1e-5)
    facts["insecure_seed"] = None
    balanced = PrivateLogisticRegression(1.0, class_weight="balanced", ledger=ledger, **facts).fit(X, y)
    assert balanced.mechanism_ == "sufficient-statistics"
    assert [entry.spend for entry in ledger.entries()] == [balanced.spend_]
    assert balanced.spend_.epsilon == 1.0
    assert set(balanced.predict(X)) == {"p", "q", "r"}


MULTIPLY = "class weights multiply the losses"


@pytest.mark.parametrize("ratio", [19.0, 1 / 19])
def test_unless_the_budget_is_large_weights_of_two_classes_move_the_threshold_by_the_log_of_their_ratio(
    ratio: float,
) -> None:
    """Above the budgets of moments: one release without the weights, at its noise and spend."""
    X, y = rare(3000)
    plain, weighted = model(epsilon=6.0), model(epsilon=6.0, class_weight={"yes": ratio})
    assert plain.fit(X, y).mechanism_ == weighted.fit(X, y).mechanism_ == "objective-perturbation"
    assert (weighted.noise_, weighted.spend_) == (plain.noise_, plain.spend_)
    assert weighted.coef_ == pytest.approx(plain.coef_)
    moved = weighted.decision_function(X) - plain.decision_function(X)
    assert moved == pytest.approx(np.log(ratio))
    for fitted in (plain, weighted):
        assert fitted.plan(3000).spend == fitted.spend_
        assert fitted.plan(3000).reason == fitted.mechanism_reason_
    assert "class weights move the threshold" in weighted.mechanism_reason_
    assert "weights" not in plain.mechanism_reason_


def level(epsilon: float, delta: float) -> float:
    """Return mu of a Gaussian mechanism that is (epsilon, delta)-private (Balle and Wang 2018)."""

    def excess(mu: float) -> float:
        first, second = norm.cdf(np.array([mu / 2, -mu / 2]) - epsilon / mu)
        return float(first - np.exp(epsilon) * second - delta)

    return float(brentq(excess, 1e-3, 10))


def test_the_larger_the_budget_the_larger_the_ratio_that_moves_a_threshold() -> None:
    """n mu per feature of up to 60 times the ratio."""
    common: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES}
    for n, epsilon in ((100_000, 0.5), (10_000, 6.0)):
        ratio = n * level(epsilon, 1 / n**2) / (60 * SCHEMA.n_features)
        for factor in (0.98, 1.02):
            weights = {"yes": factor * ratio}
            said = PrivateLogisticRegression(epsilon, class_weight=weights, **common).plan(n).reason
            assert ("move the threshold" in said) == (factor > 1)
            assert (MULTIPLY in said) == (factor < 1)


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "objective-perturbation"},
        {"regularizer": "l2:0.01"},
        {"convex_set": "l2:3"},
        {"max_weight": 2.0},
        {"schema": Schema(SCHEMA.columns), "fit_intercept": False},
        {"classes": (*CLASSES, "maybe")},
    ],
    ids=str,
)
def test_other_fits_have_weighted_losses(options: dict[str, Any]) -> None:
    """What is named keeps its loss; a set, a penalty or a missing constant would make another model of it."""
    given: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES, "class_weight": {"yes": 50.0}, **options}
    plan = PrivateLogisticRegression(20.0, **given).plan(10_000)
    assert MULTIPLY in plan.reason
    assert isinstance(plan.mechanism, RiskMechanism)
    assert plan.mechanism.facts.loss == WeightedLoss(LogisticLoss(), 50.0)


def test_the_sigmoid_loss_which_has_no_odds_is_weighted() -> None:
    given: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES, "class_weight": {"yes": 50.0}}
    assert MULTIPLY in PrivateSigmoidClassifier(3.0, **given).plan(3000).reason


def test_a_released_prevalence_decides_whether_weights_move_the_threshold(tmp_path: Path) -> None:
    """Either fit has the rest of the budget, so that the same spend is booked before the release."""
    X, y = rare(3000)
    even = np.where(np.arange(3000) % 2, "yes", "no")
    balanced = model(epsilon=10.0, class_weight="balanced")
    said = balanced.plan(3000).reason
    assert "released class weights move the threshold of an unweighted fit if" in said
    rest = ClassWeights.of("balanced", None, np.array(CLASSES), 10.0).rest
    moved = balanced.fit(X, y)
    assert moved.noise_ == model(epsilon=rest).fit(X, y).noise_
    weights = 1 / np.array([np.mean(y == label) for label in CLASSES])
    assert 15 < weights[1] / weights[0] < 25
    weighted = model(epsilon=10.0, class_weight="balanced").fit(X, even)
    assert weighted.noise_["sigma"] != moved.noise_["sigma"]
    assert weighted.mechanism_reason_ == moved.mechanism_reason_ == said
    for labels in (y, even):
        ledger = Ledger.create(tmp_path / str(labels is y), 10.0, 1e-3)
        fitted = PrivateLogisticRegression(
            10.0, schema=SCHEMA, classes=CLASSES, class_weight="balanced", ledger=ledger
        ).fit(X, labels)
        assert [entry.spend for entry in ledger.entries()] == [fitted.spend_]
        assert fitted.mechanism_ == "objective-perturbation"


def test_wide_tables_with_weights_of_two_classes_select_features_without_them() -> None:
    options: dict[str, Any] = {"data_norm": 1.0, "norm": "linf", "classes": CLASSES}
    weighted = PrivateLogisticRegression(3.0, class_weight={"yes": 9.0}, **options).plan(4000, 2000)
    assert weighted.mechanism.name == "screened-statistics"
    assert weighted.spend == PrivateLogisticRegression(3.0, **options).plan(4000, 2000).spend


def test_persons_with_class_weights_have_the_noise_of_those_without() -> None:
    options: dict[str, Any] = {"schema": SCHEMA, "classes": CLASSES, "person": "id", "records_per_person": 2}
    plain = PrivateLogisticRegression(20.0, **options).plan(3000)
    weighted = PrivateLogisticRegression(20.0, class_weight={"yes": 50.0}, **options).plan(3000)
    assert weighted.mechanism == plain.mechanism
    assert weighted.spend == plain.spend
    assert weighted.reason.startswith(plain.reason)
    assert "class weights move the threshold" in weighted.reason

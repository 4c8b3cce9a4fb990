"""Risks of scorecards: monotone, covered by their intervals, paid for together with the card."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import NoiseSource, PrivateHalfspaceClassifier, evaluate
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.estimators.card_budget import CardBudget
from privopt.mechanisms.evaluation.bins import ScoreBins, card_bins, risk_bins
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.evaluation.risk import RiskTable
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noisy_share import NoisyShare
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema

SCHEMA = Schema([Numeric("age", 0, 100, step=10), Categorical("smoker", ["no", "yes"])], intercept=True)


def patients(n: int = 3000, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(0, 101, n), "smoker": rng.choice(["no", "yes"], n)})
    risk = 1 / (1 + np.exp(-(frame["age"] / 20 - 4 + 2 * (frame["smoker"] == "yes"))))
    return frame, np.where(rng.uniform(size=n) < risk, "ill", "well")


def fitted(**options: Any) -> PrivateHalfspaceClassifier:
    defaults = {"schema": SCHEMA, "classes": ("well", "ill"), "insecure_seed": 0, "risk_share": 0.2}
    return PrivateHalfspaceClassifier(options.pop("epsilon", 1.0), **{**defaults, **options}).fit(*patients())


def test_a_share_too_small_for_counts_is_refused_before_the_card_is_paid_for(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "book", 1.0, 0.1)
    with pytest.raises(PrivacyParameterError, match="too small"):
        PrivateHalfspaceClassifier(
            1e-4, schema=SCHEMA, classes=("well", "ill"), risk_share=1e-6, ledger=ledger
        ).fit(*patients())
    assert ledger.total().epsilon == 0


def test_a_card_with_risks_predicts_them_by_score() -> None:
    model = fitted()
    X, y = patients(seed=1)
    risk = model.predict_proba(X)
    assert risk.shape == (3000, 2)
    assert np.allclose(risk.sum(axis=1), 1)
    assert ((risk > 0) & (risk < 1)).all()
    order = np.argsort(model.decision_function(X), kind="stable")
    assert (np.diff(risk[order, 1]) >= 0).all()
    # What it says is near what is seen, on other records: in the mean over them.
    values, row, held = np.unique(risk[:, 1], return_inverse=True, return_counts=True)
    seen = np.bincount(row, y == "ill") / held
    assert held @ np.abs(seen - values) / held.sum() < 0.07
    assert "calibration" in evaluate(model, X, y, epsilon=1.0, insecure_seed=0).metrics


def test_what_is_said_of_risks_is_what_the_model_predicts() -> None:
    """Without noise, to the last record: bins of the evaluation never straddle an edge of the risks."""
    model, (X, y) = fitted(epsilon=20.0), patients(40, seed=1)
    low, high = np.quantile(model.decision_function(X), [0.3, 0.8])
    model.risk_ = RiskTable(
        (low - 1e-6, high - 1e-6), (0.1, 0.5, 0.9), (0,) * 3, (1,) * 3, (0.3, 0.5, 0.2), 0.95
    )
    risk = model.predict_proba(X)[:, 1]
    found = evaluate(model, X, y, epsilon=60.0, insecure_seed=0, target="table")
    assert found.metrics["calibration"].value == pytest.approx(np.mean(risk - (y == "ill")), abs=1e-9)
    assert found.metrics["brier"].value == pytest.approx(np.mean((risk - (y == "ill")) ** 2), abs=1e-9)
    assert np.dot(found.calibration["share"], found.calibration["predicted"]) == pytest.approx(risk.mean())


def test_intervals_of_many_records_are_narrow_and_hold_the_risk_of_their_row() -> None:
    bins = ScoreBins((0.0,))
    scores = np.repeat(bins.centres[[0, -1]], 20_000)
    positive = np.arange(40_000) % 20 < np.repeat([1, 10], 20_000)
    table = RiskTable.of(HistogramPlan.plan(bins, epsilon=5.0).release(scores, positive, NoiseSource()))
    assert table.risks == pytest.approx((0.05, 0.5), abs=0.01)
    assert np.subtract(table.highs, table.lows) == pytest.approx([0.006, 0.014], rel=0.2)


@pytest.mark.parametrize("draws", [120, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0, 100.0])
def test_risks_rise_and_their_intervals_cover(epsilon: float, draws: int) -> None:
    """Draws of 2,000 records whose risk rises by bin; rows are put together after the noise."""
    rng, truth = np.random.default_rng(1), np.array([0.01, 0.02, 0.05, 0.05, 0.2, 0.4, 0.41, 0.9])
    weight = np.array([10, 30, 25, 15, 10, 6, 3, 1]) / 100
    law = np.column_stack([weight * (1 - truth), weight * truth])
    bins = ScoreBins(tuple(float(k) for k in range(-3, 4)))
    plan, source = HistogramPlan.plan(bins, epsilon=epsilon), NoiseSource(insecure_seed=2)
    rows = covered = 0
    for _ in range(draws):
        cells = np.repeat(np.arange(16), rng.multinomial(2000, law.ravel()))
        table = RiskTable.of(plan.release(bins.centres[cells // 2], cells % 2 == 1, source))
        rises = np.diff(table.risks)  # two rows of the same risk only where the decision changes
        assert all(
            rise > 0 or (rise == 0 and edge == 0) for rise, edge in zip(rises, table.up_to, strict=True)
        )
        assert sum(table.shares) == pytest.approx(1)
        for row in table.frame.itertuples():
            inside = (bins.centres > np.nan_to_num(row.above, nan=-9)) & (
                bins.centres < np.nan_to_num(row.up_to, nan=9)
            )
            risk = law[inside, 1].sum() / law[inside].sum()
            assert row.low <= row.risk <= row.high
            rows, covered = rows + 1, covered + (row.low <= risk <= row.high)
    assert rows > 2 * draws
    assert covered >= 0.93 * rows  # of 95%: rows of one table are not independent


@pytest.mark.parametrize(("positive", "most"), [(100, 0.8), (500, 0.7), (1000, 0.8)])
def test_the_share_of_all_is_what_is_likely_given_its_noise(positive: int, most: float) -> None:
    """Of 2,000 records, where noise has a third of them: nearer than what is seen, by the mean square."""
    bins = ScoreBins(tuple(float(k) for k in range(-4, 4)))
    plan, source = HistogramPlan.plan(bins, epsilon=0.01), NoiseSource(insecure_seed=1)
    labels, errors = np.arange(2000) < positive, []
    for _ in range(300):
        histogram = plan.release(np.zeros(2000), labels, source)
        seen = np.clip(histogram.fitted[:, 1].sum() / 2000, 0, 1)
        risk, same = RiskTable.of(histogram).risks
        assert risk == same
        errors.append([risk - positive / 2000, seen - positive / 2000])
    told, raw = np.mean(np.square(errors), axis=0)
    assert told < most * raw
    exact = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=100.0).release(np.zeros(10), labels[:10], source)
    assert RiskTable.of(exact).risks == pytest.approx([(10 + 0.5) / 11] * 2)


@pytest.mark.parametrize("epsilon", [0.001, 0.02, 0.05, 1.0])
def test_no_more_bins_are_counted_for_risks_than_can_be_rows_of_their_own(epsilon: float) -> None:
    """A row needs four deviations of the noise of its two counts, each of variance 2 / rate^2, or more."""
    points = np.array([10, -4, 3, -6])
    counted, usual = (bins(SCHEMA, points, 2000, epsilon).size for bins in (risk_bins, card_bins))
    needed = 4 * math.sqrt(2 * 2) / (epsilon / 2)  # records; the rate is epsilon / 2
    assert 2 <= counted <= max(2, round(2000 / needed)) + 2  # 0 is an edge, and the outer bins hold the rest
    assert counted == usual if epsilon == 1 else counted < usual


def test_the_share_that_the_model_released_counts_by_its_precision() -> None:
    """Two normal observations of one share: the mean weighted by precision, before the prior."""
    share = NoisyShare(0.1, 0.02)
    seen, deviation = share.with_another(0.5, 0.04)
    assert seen == pytest.approx((0.1 / 0.02**2 + 0.5 / 0.04**2) / (1 / 0.02**2 + 1 / 0.04**2))
    assert deviation == pytest.approx((1 / 0.02**2 + 1 / 0.04**2) ** -0.5)
    assert share.with_another(0.5, 0.0) == (0.5, 0.0)
    plan, labels = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=0.001), np.arange(2000) < 200
    for seed in range(10):  # noise of the counts is larger than all records
        histogram = plan.release(np.zeros(2000), labels, NoiseSource(insecure_seed=seed))
        table = RiskTable.of(histogram, share=NoisyShare(0.1, 1e-4))
        assert table.risks == pytest.approx([0.1] * 2, abs=2e-3)
    exact = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=100.0).release(
        np.zeros(10), labels[:10], NoiseSource(insecure_seed=0)
    )
    assert RiskTable.of(exact, share=share).risks == pytest.approx([(10 + 0.5) / 11] * 2)


def test_risks_of_a_small_budget_survive_a_file_with_the_share_and_without(tmp_path: Path) -> None:
    model = fitted(epsilon=0.05, mechanism="seeded")
    assert model.risk_ is not None
    assert model.histogram_ is not None
    assert len(set(model.risk_.risks)) == 1
    assert model.risk_ != RiskTable.of(model.histogram_)
    model.save(tmp_path / "card.json")
    assert PrivateHalfspaceClassifier.load(tmp_path / "card.json").risk_ == model.risk_
    bare = {key: value for key, value in model.to_dict().items() if key != "share"}  # of earlier versions
    assert PrivateHalfspaceClassifier.from_dict(bare).risk_ == RiskTable.of(model.histogram_)
    for wrong in ({"value": math.nan, "deviation": 1.0}, {"value": 0.1, "deviation": 0.0}, {}, [], 3):
        with pytest.raises(InvalidInputError, match="is not a saved PrivateHalfspaceClassifier"):
            PrivateHalfspaceClassifier.from_dict({**bare, "share": wrong})


def test_without_noise_and_support_the_risk_is_the_share_of_all() -> None:
    """With half a record added to each class: (2 + 1/2) / (5 + 1)."""
    plan = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=4096.0)
    found = RiskTable.of(plan.release_counts(np.array([[2, 1], [1, 1]]), NoiseSource(insecure_seed=0)))
    assert found.risks == pytest.approx((2.5 / 6, 2.5 / 6))


def test_without_support_there_is_one_risk_for_all() -> None:
    plan = HistogramPlan.plan(ScoreBins((-1.0, 0.0, 1.0)), epsilon=0.001)
    for seed in range(20):
        table = RiskTable.of(plan.release(np.array([0.5]), np.array([True]), NoiseSource(insecure_seed=seed)))
        assert 0 < table.at([0.0])[0] < 1
        assert table.up_to == (0.0,)
        assert table.risks[0] == table.risks[1]
        assert len(table.risks) == len(table.up_to) + 1
        assert table.highs[0] - table.lows[0] > 0.5


def test_parts_of_a_budget_are_no_more_than_it_exactly() -> None:
    """Of a thousand budgets and shares; a sum of doubles would hide what rounding does to it."""
    rng = np.random.default_rng(5)
    for epsilon, share in zip(
        rng.uniform(0.01, 20, 1000).tolist(), rng.uniform(0.01, 0.99, 1000), strict=True
    ):
        budget = CardBudget.of(epsilon, float(share))
        together = Fraction(budget.card) + Fraction(budget.risks)
        assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < together <= Fraction(epsilon)


def test_the_whole_costs_the_budget_and_no_less_than_its_parts_together() -> None:
    """By basic composition of what ran; and never less than what was asked for and booked."""
    budget = CardBudget.of(1.0, 0.2)
    for card in (0.3, 0.8, 2.0):
        assert budget.whole(PrivacySpend.pure(card, "rspm")).epsilon == max(1.0, card + budget.risks)


def test_both_parts_are_paid_for_together(tmp_path: Path) -> None:
    budget = CardBudget.of(1.0, 0.2)
    assert budget.card + budget.risks <= 1.0
    assert budget.risks == pytest.approx(0.2)
    assert CardBudget.of(1.0, 0.0).risks == 0
    model = fitted(insecure_seed=None, mechanism="exponential")
    assert (model.spend_.epsilon, model.spend_.delta, model.spend_.notion) == (1.0, 0.0, "pure")
    assert model.histogram_ is not None
    assert model.histogram_.spend.epsilon == pytest.approx(0.2)
    assert model.release_.noise["beta"] == pytest.approx(0.8 / 2, rel=1e-3)  # the card had the rest
    assert model.release_.spend == model.spend_
    assert "the risks at 0.2" in model.spend_.note
    gaussian = PrivacySpend.gdp(0.1, 1e-6, "rspm")
    whole = CardBudget.of(2 * gaussian.epsilon, 0.5).whole(gaussian)
    assert (whole.notion, whole.delta, whole.level) == ("approximate", 1e-6, None)
    assert whole.epsilon == pytest.approx(2 * gaussian.epsilon)
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=1.5)
    fitted(insecure_seed=None, mechanism="exponential", ledger=ledger)
    assert ledger.total().epsilon == 1.0
    with pytest.raises(BudgetExceededError):
        fitted(insecure_seed=None, mechanism="exponential", ledger=ledger)


def test_risks_survive_a_file(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "card.json")
    again = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    X, _ = patients(seed=1)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.spend_ == model.spend_
    assert again.risk_ == model.risk_


def test_without_a_share_there_are_no_probabilities(tmp_path: Path) -> None:
    model = fitted(risk_share=0.0)
    assert model.risk_ is None
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="fit with risk_share"):
        _ = model.predict_proba
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = model.nonsense
    assert not hasattr(PrivateHalfspaceClassifier(), "predict_proba")
    assert hasattr(PrivateHalfspaceClassifier(risk_share=0.1), "predict_proba")
    model.save(tmp_path / "card.json")
    assert not hasattr(PrivateHalfspaceClassifier.load(tmp_path / "card.json"), "predict_proba")


@pytest.mark.parametrize("share", [1.0, -0.1, "half", True, float("nan")])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(InvalidInputError, match="risk_share"):
        fitted(risk_share=share)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_has_scores_of_both_decisions(seed: int) -> None:
    rng, source = np.random.default_rng(seed), NoiseSource(insecure_seed=seed)
    bins = ScoreBins(tuple(float(edge) for edge in range(-12, 13)))
    scores = rng.integers(-12, 13, 3000) - 6.0  # few above the threshold
    positive = rng.random(3000) < 1 / (1 + np.exp(-scores / 3))
    table = RiskTable.of(HistogramPlan.plan(bins, epsilon=0.05).release(scores, positive, source))
    assert 0.0 in table.up_to
    assert list(table.risks) == sorted(table.risks)
    assert sum(table.shares) == pytest.approx(1)
    assert (
        len(table.risks) == len(table.lows) == len(table.highs) == len(table.shares) == len(table.up_to) + 1
    )

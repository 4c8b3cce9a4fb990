"""Evaluation: one histogram, its noise, its bins, and intervals that hold what they say."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, confusion_matrix, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from privopt.mechanisms import (
    NoiseSource,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    evaluate,
)
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.estimators.rowwise import Check, check_rowwise_scores
from privopt.mechanisms.evaluation.bins import ScoreBins, bins_of, score_law
from privopt.mechanisms.evaluation.histogram import HistogramPlan, ScoreHistogram
from privopt.mechanisms.evaluation.intervals import Estimate, Intervals, mean_of
from privopt.mechanisms.evaluation.leaves import LeafHistogram, LeafPlan, LeafRisks
from privopt.mechanisms.evaluation.metrics import Evaluation, supported, whole_counts
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema
from privopt.problems.tables.counted import CountedRecords

SCHEMA = Schema(
    [
        Numeric("age", 0, 100, step=10),
        Binned("pulse", [40, 60, 80, 120]),
        Categorical("smoker", ["no", "yes"]),
    ],
    intercept=True,
)


def patients(n: int, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 101, n),
            "pulse": rng.integers(40, 120, n),
            "smoker": rng.choice(["no", "yes"], n),
        }
    )
    risk = 1 / (1 + np.exp(-(frame["age"] / 20 - 4 + 2 * (frame["smoker"] == "yes"))))
    return frame, np.where(rng.uniform(size=n) < risk, "ill", "well")


def linear(n: int = 2000) -> PrivateLogisticRegression:
    model = PrivateLogisticRegression(5.0, schema=SCHEMA, classes=("well", "ill"), insecure_seed=0)
    return model.fit(*patients(n))


def card(weights: list[int]) -> PrivateHalfspaceClassifier:
    """A scorecard as if it had been released."""
    model = PrivateHalfspaceClassifier(schema=SCHEMA)
    model.coef_, model.schema_ = np.array([weights]), SCHEMA
    model.classes_, model.intercept_ = np.array(["well", "ill"]), np.array([weights[-1]])
    return model


# ---------------------------------------------------------------- the release


def test_rates_are_epsilon_over_two_rounded_down_to_the_grid_and_never_to_nothing() -> None:
    """One moved record changes two counts by one each, so exp(2 rate) has to be at most exp(epsilon)."""
    bins = ScoreBins((0.0,))
    for epsilon in (2.0**-29, 1e-6, 0.1, 1.0, 7.3):
        plan = HistogramPlan.plan(bins, epsilon=epsilon)
        rate = plan.steps / 2**30
        assert 2 * rate <= epsilon < 2 * (rate + 2.0**-30)
        assert plan.spend.epsilon == epsilon
    assert HistogramPlan.plan(bins, epsilon=2.0**-29).steps == 1
    with pytest.raises(PrivacyParameterError, match="too small"):
        HistogramPlan.plan(bins, epsilon=math.nextafter(2.0**-29, 0))


def test_cumulants_of_the_noise_are_those_of_its_law() -> None:
    reach = np.arange(-3000, 3001).astype(float)
    for epsilon in (0.1, 1.0, 5.0):
        plan = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=epsilon)
        histogram = ScoreHistogram(plan.bins, np.zeros((2, 2), dtype=np.int64), 9, plan.steps, plan.spend)
        law = np.exp(-epsilon / 2 * np.abs(reach))
        law /= law.sum()
        variance, fourth = float(law @ reach**2), float(law @ reach**4)
        assert histogram.variance == pytest.approx(variance, rel=1e-5)
        assert histogram.fourth_cumulant == pytest.approx(fourth - 3 * variance**2, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-8, 35.0, 400.0, 1480.0, 1e5])
@pytest.mark.parametrize("target", ["table", "population"])
def test_every_epsilon_has_intervals_and_without_noise_they_are_exact(epsilon: float, target: Any) -> None:
    held = np.array([[30, 0], [11, 4], [0, 9]])
    plan = HistogramPlan.plan(ScoreBins((-1.0, 0.0)), epsilon=epsilon)
    found = Evaluation(plan.release_counts(held, NoiseSource(insecure_seed=1)), (0, 1), None, target)
    assert all(e.low <= e.high for e in found.metrics.values())
    assert found.confusion.to_numpy().sum() == 54
    if epsilon > 30:  # noise in any count has a probability below 6 * 2 exp(-17.5) = 3e-7
        exact = {"sensitivity": 9 / 13, "specificity": 1.0, "accuracy": 50 / 54}
        assert {k: found.metrics[k].value for k in exact} == pytest.approx(exact)
        count = found.confusion_intervals["true_positives"]
        assert (count.low, count.high) == (9, 9)
        if target == "table":
            assert [found.metrics[k].high - found.metrics[k].low for k in exact] == pytest.approx(
                [0] * 3, abs=1e-6
            )


def histogram(held: np.ndarray, epsilon: float) -> ScoreHistogram:
    """Counts as if they had been released, and noise had been 0."""
    edges = tuple(float(k) for k in range(len(held) - 1))
    plan = HistogramPlan.plan(ScoreBins(edges), epsilon=epsilon)
    return ScoreHistogram(plan.bins, held, int(held.sum()), plan.steps, plan.spend)


@pytest.mark.parametrize(("confidence", "corrected"), [(0.95, True), (0.99, True), (0.8, False)])
def test_an_interval_of_one_count_is_a_normal_one_corrected_for_heavy_tails(
    confidence: float, corrected: bool
) -> None:
    """Cornish and Fisher: z + (z^3 - 3 z) / 24 times the excess, from the law of the noise itself.

    One cell of 128: what the other cells do to its law is below a percent. A correction inwards, where
    z^2 < 3, is not made.
    """
    epsilon, held = 0.004, np.full((64, 2), 10**6)
    values = np.arange(-50_000, 50_001).astype(float)
    law = np.exp(-epsilon / 2 * np.abs(values))
    law /= law.sum()
    variance = float(law @ values**2)
    excess = float(law @ values**4) / variance**2 - 3
    z = float(stats.norm.isf((1 - confidence) / 2))
    wanted = math.sqrt(variance) * (z + corrected * (z**3 - 3 * z) / 24 * excess)
    cell = np.zeros(held.shape, dtype=bool)
    cell[5, 1] = True
    found = Intervals(histogram(held, epsilon), "table", confidence).count(cell)
    assert found.value == 10**6
    assert [found.high - 10**6, 10**6 - found.low] == pytest.approx([wanted] * 2, rel=0.01)
    if corrected:
        assert float(law[np.abs(values) <= found.high - 10**6].sum()) > confidence - 0.001


def test_an_interval_of_three_times_a_number_is_three_times_as_wide() -> None:
    held, values = np.full((64, 2), 10**6), np.zeros((64, 2))
    values[5, 1], values[7, 0] = 1.0, 2.0
    about = Intervals(histogram(held, 0.004), "table")
    once, thrice = about.mean(values), about.mean(3 * values)
    assert (thrice.high - thrice.value) == pytest.approx(3 * (once.high - once.value), rel=1e-9)


@pytest.mark.parametrize("bins", [2, 10])
def test_all_cells_but_one_are_known_as_well_as_that_one(bins: int) -> None:
    """Counts sum to the public n: what is wrong with one cell is wrong with the others together."""
    one = np.zeros((bins, 2), dtype=bool)
    one[0, 1] = True
    about = Intervals(histogram(np.full((bins, 2), 10**6), 0.004), "table")
    rest, cell = about.count(~one), about.count(one)
    assert rest.low + cell.high == rest.high + cell.low == 2 * bins * 10**6


def test_a_public_number_added_to_every_cell_moves_a_mean_and_its_interval_alike() -> None:
    values = np.array([[0.0, 1.0], [0.0, 0.0]])
    about = Intervals(histogram(np.full((2, 2), 1000), 0.05), "table")
    found, moved = about.mean(values), about.mean(values + 5)
    assert np.array([moved.low, moved.high]) - 5 == pytest.approx([found.low, found.high], rel=1e-9)


def test_intervals_of_all_cells_but_one_cover_as_often_as_they_say() -> None:
    """95% within four standard errors of 1,000 tables, by noise alone: neither less nor more."""
    bins, runs, source = 3, 1000, NoiseSource(insecure_seed=5)
    plan = HistogramPlan.plan(ScoreBins(tuple(map(float, range(bins - 1)))), epsilon=0.1)
    cells = np.ones((bins, 2), dtype=bool)
    cells[0, 0] = False
    held = np.full((bins, 2), 300)
    about = (Intervals(plan.release_counts(held, source), "table") for _ in range(runs))
    found = [(intervals.count(cells), intervals.mean(cells.astype(float))) for intervals in about]
    for truth, estimates in zip((held[cells].sum(), cells.mean()), zip(*found, strict=True), strict=True):
        covered = sum(e.low <= truth <= e.high for e in estimates)
        assert abs(covered / runs - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)


def test_half_of_a_sum_with_an_open_part_is_open_between_the_halves_of_the_ends() -> None:
    found = mean_of([Estimate(math.nan, 0.0, 1.0), Estimate(0.5, 0.4, 0.6)])
    assert math.isnan(found.value)
    assert (found.low, found.high) == pytest.approx((0.2, 0.8))


def test_what_is_public_has_no_interval() -> None:
    """Counts are moved to the sum that is public: of all records and of none nothing is open."""
    held = np.array([[30, 2], [11, 4], [1, 9]])
    about = Intervals(histogram(held, 0.1))
    whole, nothing = np.ones(held.shape, dtype=bool), np.zeros(held.shape, dtype=bool)
    assert [about.count(cells) for cells in (whole, nothing)] == [Estimate(57, 57, 57), Estimate(0, 0, 0)]


@pytest.mark.parametrize("held", [[[90, 5], [3, 2]], [[2, 3], [5, 90]]])
def test_the_majority_is_the_larger_class_with_its_interval(held: list[list[int]]) -> None:
    found = Evaluation(histogram(np.array(held), 2.0), (0, 1)).metrics
    positive, larger = found["positive_share"], found["majority"]
    assert larger.value == pytest.approx(0.93)
    assert larger.low < larger.value < larger.high
    wanted = (positive.low, positive.high) if held[0][0] < 50 else (1 - positive.high, 1 - positive.low)
    assert (larger.low, larger.high) == pytest.approx(wanted)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 7.0])
def test_counts_carry_the_noise_that_the_plan_states(epsilon: float) -> None:
    plan = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=epsilon)
    source, scores = NoiseSource(insecure_seed=1), np.array([-1.0, 2.0, 2.0])
    truth = np.array([[0, 1], [2, 0]])
    drawn = [plan.release(scores, np.array([True, False, False]), source) for _ in range(3000)]
    noise = np.concatenate([(h.counts - truth).ravel() for h in drawn])
    reach = np.arange(-200, 201)
    law = np.exp(-epsilon / 2 * np.abs(reach))  # discrete Laplace at the rate epsilon / 2, by its definition
    law /= law.sum()
    seen = np.bincount(np.clip(noise, -200, 200) + 200, minlength=401)
    inner = law * len(noise) >= 5
    counts = [*seen[inner], seen[~inner].sum()]
    expected = np.array([*law[inner], law[~inner].sum()]) * len(noise)
    assert stats.chisquare(counts, expected * len(noise) / expected.sum()).pvalue > 1e-3
    assert drawn[0].variance == pytest.approx(np.sum(law * reach**2), rel=1e-3)
    fourth = np.sum(law * reach**4) - 3 * drawn[0].variance ** 2
    assert drawn[0].fourth_cumulant == pytest.approx(fourth, rel=0.02)


def test_the_rate_is_never_above_half_of_epsilon() -> None:
    for epsilon in (1e-8, 0.1, 1 / 3, 1.0, 50.0, 1e300):
        plan = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=epsilon)
        assert 0 < plan.steps / 2**30 <= epsilon / 2
        assert plan.spend.epsilon == epsilon
        assert (plan.spend.delta, plan.spend.notion) == (0.0, "pure")
    with pytest.raises(PrivacyParameterError, match="too small"):
        HistogramPlan.plan(ScoreBins((0.0,)), epsilon=1e-10)


def test_one_record_moves_two_counts_at_most() -> None:
    plan, rng = HistogramPlan.plan(ScoreBins((-1.0, 0.0, 1.0)), epsilon=1e300), np.random.default_rng(0)
    for _ in range(50):
        scores, labels = rng.normal(size=6), rng.uniform(size=6) < 0.5
        other, flipped = scores.copy(), labels.copy()
        other[0], flipped[0] = rng.normal(), not labels[0]
        tables = [plan.release(s, y, NoiseSource(insecure_seed=0)).counts
                  for s, y in ((scores, labels), (other, flipped), (other, labels))]  # fmt: skip
        assert np.abs(tables[0] - tables[1]).sum() <= 2
        assert np.abs(tables[0] - tables[2]).sum() <= 2


def test_bins_are_closed_on_the_right_so_that_the_rule_of_the_model_is_an_edge() -> None:
    bins = ScoreBins((-1.0, 0.0, 2.5))
    assert bins.of([-1.0, -0.5, 0.0, 1e-300, 2.5, 9.0]).tolist() == [0, 1, 1, 2, 2, 3]
    assert bins.first_positive == 2
    assert bins.of(bins.centres).tolist() == [0, 1, 2, 3]
    # The middle of each bin, and of the outer ones as far beyond the edge as that of their neighbour.
    assert ScoreBins((-1.0, 0.0, 3.0, 4.0)).centres.tolist() == [-1.5, -0.5, 1.5, 3.5, 4.5]
    for edges in ((1.0,), (0.0, 0.0), (0.0, math.inf), (1.0, 0.0)):
        with pytest.raises(InvalidInputError):
            ScoreBins(edges)


def test_bins_come_from_the_schema_and_the_weights_alone() -> None:
    # age up to 5 points, pulse 0, 2 or -1, smoker 0 or 3, constant -4: scores from -5 to 6.
    law = score_law(SCHEMA, [5, 0, 2, -1, 0, 3, -4])
    assert (law.low, law.high) == (-5, 6)
    assert law.mean == pytest.approx(2.5 + 1 / 3 + 1.5 - 4)
    assert law.deviation**2 == pytest.approx(25 / 12 + np.var([0, 2, -1]) + 2.25)
    # Without numbers, integer scores: a bin each.
    levels = Schema(SCHEMA.columns[1:], intercept=True)
    small = card([0])
    small.schema_, small.coef_ = levels, np.array([[0, 2, -1, 0, 3, -1]])
    assert bins_of(small, 1000, 1.0).edges == (-2, -1, 0, 1, 2, 3)
    assert bins_of(card([0] * 7), 1000, 1.0).edges == (0.0,)
    # Without a schema: log-odds from -8 to 8, in 2 cbrt(n epsilon) = 20 bins or, of a round width, 16.
    unknown = PrivateLogisticRegression(1.0)
    assert bins_of(unknown, 1000, 1.0).edges == tuple(range(-8, 8))
    # One level of thirty with 6 points: 6 is 5 deviations from the mean, and yet has a bin of its own.
    rare = card([0])
    rare.schema_ = Schema([Categorical("town", [str(k) for k in range(30)])], intercept=True)
    rare.coef_ = np.array([[6, *[0] * 30]])
    assert bins_of(rare, 1000, 1.0).edges == (0, 1, 2, 3, 4, 5)
    assert bins_of(linear(), 10**6, 1.0).size > bins_of(linear(), 1000, 1.0).size


# ---------------------------------------------------------------- what follows


def test_without_noise_the_numbers_are_scikit_learns() -> None:
    X, y = patients(4000, seed=1)
    model = linear()
    found = evaluate(model, X, y, epsilon=2000.0, insecure_seed=0)
    ill, said = y == "ill", model.predict(X)
    assert found.confusion.to_numpy().tolist() == confusion_matrix(y, said, labels=["well", "ill"]).tolist()
    metrics = found.metrics
    assert metrics["accuracy"].value == pytest.approx(np.mean(said == y))
    assert metrics["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(y, said))
    assert metrics["positive_share"].value == pytest.approx(ill.mean())
    # Bins cost a little.
    assert metrics["auc"].value == pytest.approx(roc_auc_score(ill, model.decision_function(X)), abs=3e-3)
    risk = model.predict_proba(X)[:, 1]
    assert metrics["brier"].value == pytest.approx(brier_score_loss(ill, risk), abs=3e-3)
    assert metrics["calibration"].value == pytest.approx(risk.mean() - ill.mean(), abs=5e-3)
    table = evaluate(model, X, y, epsilon=2000.0, target="table", insecure_seed=0).metrics["accuracy"]
    assert table.low == pytest.approx(table.high, abs=1e-6)
    # Without noise an interval for a share is Wilson's.
    wilson = stats.binomtest(int(np.sum(said == y)), len(y)).proportion_ci(0.95, method="wilson")
    assert (metrics["accuracy"].low, metrics["accuracy"].high) == pytest.approx((wilson.low, wilson.high))


def test_calibration_counts_each_record_once() -> None:
    X, y = patients(4000, seed=1)
    rows = evaluate(linear(), X, y, epsilon=2000.0, insecure_seed=0).calibration
    assert rows["share"].sum() == pytest.approx(1)
    assert (rows["share"] * rows["observed"]).sum() == pytest.approx(np.mean(y == "ill"))
    assert math.isnan(rows["above"].iloc[0])
    assert math.isnan(rows["up_to"].iloc[-1])
    assert rows["up_to"].iloc[:-1].tolist() == rows["above"].iloc[1:].tolist()


LAW = np.array([[30, 0.2], [25, 0.3], [18, 0.5], [10, 0.8], [6, 1.2], [3, 1.5], [1.5, 1.2], [0.5, 0.8]])
BINS = ScoreBins((-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0))


def quantities(table: Any) -> dict[str, float]:
    """By their definitions, from counts or probabilities per bin and class."""
    negatives, positives = np.asarray(table, dtype=float).T
    pairs = np.subtract.outer(np.arange(8), np.arange(8))  # bin of the positive minus that of the negative
    wins = positives @ ((pairs > 0) + 0.5 * (pairs == 0)) @ negatives
    tp, tn = positives[4:].sum(), negatives[:4].sum()
    sensitivity, specificity = tp / positives.sum(), tn / negatives.sum()
    return {
        "positive_share": positives.sum() / np.sum(table),
        "accuracy": (tp + tn) / np.sum(table),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "balanced_accuracy": (sensitivity + specificity) / 2,
        "precision": tp / (tp + negatives[4:].sum()),
        "auc": wins / positives.sum() / negatives.sum(),
    }


@pytest.mark.parametrize("runs", [60, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("n", "epsilon"), [(3000, 0.2), (1500, 2.0), (1500, 50.0)])
def test_intervals_cover_the_table_and_the_population(n: int, epsilon: float, runs: int) -> None:
    """About 6% of the records are positive. Three standard errors of 95% of 150 tables are 5.3%."""
    rng, law = np.random.default_rng(1), LAW / LAW.sum()
    plan, source = HistogramPlan.plan(BINS, epsilon=epsilon), NoiseSource(insecure_seed=1)
    risks = law[:, 1] / law.sum(axis=1)
    held: dict[str, int] = {}
    rows = within = 0
    for _ in range(runs):
        table = rng.multinomial(n, law.ravel()).reshape(law.shape)
        cells = np.repeat(np.arange(16), table.ravel())
        released = plan.release(BINS.centres[cells // 2], cells % 2 == 1, source)
        for target, truth in (("population", law), ("table", table)):
            found = Evaluation(released, (0, 1), tuple(risks), target)  # type: ignore[arg-type]
            for name, value in quantities(truth).items():
                interval = found.metrics[name]
                held.setdefault(f"{target} {name}", 0)
                held[f"{target} {name}"] += interval.low - 1e-9 <= value <= interval.high + 1e-9
        intervals = found.confusion_intervals["true_positives"]
        held["count"] = held.get("count", 0) + (intervals.low <= table[4:, 1].sum() <= intervals.high)
        observed = Evaluation(released, (0, 1)).calibration
        for (first, last), low, high in zip(
            supported(released), observed["low"], observed["high"], strict=True
        ):
            risk = law[first:last, 1].sum() / law[first:last].sum()
            rows, within = rows + 1, within + (low <= risk <= high)
    assert min(held.values()) >= (0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)) * runs, held
    assert within >= 0.925 * rows


def test_intervals_are_not_wider_than_needed() -> None:
    """At n = 1500 and epsilon = 2 sampling dominates: widths stay within a third of those without noise."""
    law, widths = LAW / LAW.sum(), []
    table = np.round(1500 * law).astype(int)
    cells = np.repeat(np.arange(16), table.ravel())
    for epsilon in (2.0, 1000.0):
        plan = HistogramPlan.plan(BINS, epsilon=epsilon)
        released = plan.release(BINS.centres[cells // 2], cells % 2 == 1, NoiseSource(insecure_seed=3))
        found = Evaluation(released, (0, 1)).metrics
        widths.append([found[name].high - found[name].low for name in ("accuracy", "auc", "sensitivity")])
    assert np.all(np.array(widths[0]) < 1.34 * np.array(widths[1]))


def test_where_noise_drowns_everything_intervals_say_so() -> None:
    X, y = patients(30)
    found = evaluate(linear(), X, y, epsilon=0.01, insecure_seed=4)
    for interval in found.metrics.values():
        assert math.isnan(interval.value) or interval.low <= interval.value <= interval.high
    for name in ("accuracy", "auc", "sensitivity", "precision"):
        assert found.metrics[name].high - found.metrics[name].low > 0.6, name
    assert found.confusion.to_numpy().sum() == 30
    assert (found.confusion.to_numpy() >= 0).all()
    assert len(found.calibration) >= 1


def test_whole_counts_have_the_public_sum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        noisy = rng.normal(10, 30, 4)
        noisy += (40 - noisy.sum()) / 4
        whole = whole_counts(noisy, 40)
        assert whole.sum() == 40
        assert whole.min() >= 0
    assert whole_counts(np.array([3.2, -1.0, 7.8, 0.0]), 10).tolist() == [
        3,
        0,
        7,
        0,
    ]  # 2.7, 7.3 after the shift


def test_the_curve_rises_and_its_area_is_the_auc() -> None:
    X, y = patients(500)
    found = evaluate(linear(), X, y, epsilon=0.5, insecure_seed=0)
    curve = found.roc
    assert (np.diff(curve["tpr"]) >= 0).all()
    assert (np.diff(curve["fpr"]) >= 0).all()
    area = np.trapezoid([0, *curve["tpr"], 1], [0, *curve["fpr"], 1])
    assert found.metrics["auc"].value == pytest.approx(area)


def test_a_histogram_survives_a_file() -> None:
    X, y = patients(300)
    released = evaluate(linear(), X, y, epsilon=0.5, insecure_seed=0).histogram
    again = ScoreHistogram.from_dict(released.to_dict())
    assert again.to_dict() == released.to_dict()
    for damage in ({"counts": [[1, 2]]}, {"edges": [1.0]}, {"steps": 0}, {"counts": [[0.5, 1.0]] * 2}):
        with pytest.raises(InvalidInputError):
            ScoreHistogram.from_dict({**released.to_dict(), **damage})


def test_an_evaluation_survives_a_file() -> None:
    X, y = patients(300)
    found = evaluate(linear(), X, y, epsilon=0.5, target="table", insecure_seed=0)
    assert Evaluation.from_dict(found.to_dict()).to_dict() == found.to_dict()
    for damage in ({"target": "everybody"}, {"confidence": 1.5}, {"confidence": "high"}):
        with pytest.raises(InvalidInputError):
            Evaluation.from_dict({**found.to_dict(), **damage})


def test_the_interval_of_an_auc_is_that_of_hanley_and_mcneil_for_exponential_scores() -> None:
    """For them it is exact, and noise is nothing among ten thousand records."""
    edges = np.arange(-19, 60) / 20
    shares = [np.diff(-np.exp(-rate * np.array([0, *(edges + 1), np.inf]))) for rate in (2.0, 1.0)]
    held = np.rint(np.column_stack([5_000 * shares[0], 5_000 * shares[1]])).astype(np.int64)
    plan = HistogramPlan.plan(ScoreBins(tuple(edges.tolist())), epsilon=5.0)
    counts = ScoreHistogram(plan.bins, held, int(held.sum()), plan.steps, plan.spend)
    found = Evaluation(counts, (0, 1)).metrics["auc"]
    t, n = 2 / 3, 5_000
    variance = t * (1 - t) + n * (t / (2 - t) - t**2) + n * (2 * t**2 / (1 + t) - t**2)
    assert found.value == pytest.approx(t, abs=1e-3)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * math.sqrt(variance) / n, rel=0.1)


def test_the_mean_of_estimates_is_known_better_than_each() -> None:
    """Squared half-widths of independent estimates add."""
    found = mean_of([Estimate(0.5, 0.44, 0.53), Estimate(0.7, 0.62, 0.74)])
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.55, 0.625))


def test_intervals_of_the_risks_of_leaves_are_those_of_shares() -> None:
    plan = LeafPlan.plan(10.0)
    held = np.array([[9000, 1000], [3000, 7000]])
    risks = LeafRisks.of(LeafHistogram(held, 20_000, plan.steps, plan.spend))
    reach = 1.96 * np.sqrt(np.array([[0.9 * 0.1] * 2, [0.3 * 0.7] * 2]) / 10_000)
    assert risks.shares == pytest.approx(held / 10_000, abs=1e-3)
    assert (risks.highs - risks.lows) / 2 == pytest.approx(reach, rel=0.05)
    assert np.all(risks.lows < risks.shares)


# ---------------------------------------------------------------- the function


def test_the_spend_is_booked_before_the_release(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=1.0)
    X, y = patients(300)
    found = evaluate(linear(), X, y, epsilon=0.75, ledger=ledger)
    assert found.spend.guaranteed
    assert ledger.total().epsilon == 0.75
    with pytest.raises(BudgetExceededError):
        evaluate(linear(), X, y, epsilon=0.75, ledger=ledger)


def test_a_seed_voids_the_guarantee() -> None:
    X, y = patients(300)
    one, two = (evaluate(linear(), X, y, epsilon=1.0, insecure_seed=5) for _ in range(2))
    assert one.to_dict() == two.to_dict()
    assert not one.spend.guaranteed


def test_any_public_classifier_with_scores_is_evaluated() -> None:
    X, y = patients(300)
    features = SCHEMA.encode(X).X
    model = LogisticRegression(max_iter=1000).fit(features, y == "ill")
    found = evaluate(model, features, y == "ill", epsilon=2000.0, insecure_seed=0)
    assert found.metrics["accuracy"].value == pytest.approx(model.score(features, y == "ill"))


def test_what_cannot_be_evaluated_is_refused() -> None:
    X, y = patients(300)
    model = linear()
    features = SCHEMA.encode(X).X
    three = LogisticRegression(max_iter=1000).fit(features, np.resize(["a", "b", "c"], 300))
    with pytest.raises(InvalidInputError, match="outside the declared classes"):
        evaluate(three, features, y)
    two = LogisticRegression(max_iter=1000).fit(features, y)
    with pytest.raises(InvalidInputError, match=f"has {features.shape[1] - 1} features, .* fitted to"):
        evaluate(two, features[:, 1:], y)
    numbers = PrivateLinearRegression(5.0, schema=SCHEMA, label_range=(0, 1), insecure_seed=0)
    with pytest.raises(InvalidInputError, match="real numbers are needed"):
        evaluate(numbers.fit(X, np.zeros(300)), X, y)
    with pytest.raises(InvalidInputError, match="label_range is for regressions"):
        evaluate(model, X, y, label_range=(0, 1))
    with pytest.raises(InvalidInputError, match="has no classes"):
        evaluate(StandardScaler().fit(features), features, y)
    with pytest.raises(InvalidInputError, match="outside the declared classes"):
        evaluate(model, X, np.where(y == "ill", "sick", "well"))
    with pytest.raises(InvalidInputError, match="missing labels"):
        evaluate(model, X, [None, *y[1:]])
    with pytest.raises(InvalidInputError, match="target is"):
        evaluate(model, X, y, target="everybody")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="confidence"):
        evaluate(model, X, y, confidence=95)
    with pytest.raises(PrivacyParameterError, match="epsilon"):
        evaluate(model, X, y, epsilon=0)


@pytest.mark.parametrize("data_norm", [None, 1.0])
def test_a_counted_record_scores_alike_whoever_else_is_counted(data_norm: float | None) -> None:
    """Replacing a record may add a row before those of others, which stand for many and near an edge."""
    rng = np.random.default_rng(0)
    schema = Schema([Numeric(f"x{j}", 0, 1000) for j in range(13)])
    table = rng.integers(1, 1000, (37, 13))
    labels = np.resize([0, 1], 37)
    model = PrivateLogisticRegression(
        schema=schema, classes=(0, 1), mechanism="dp-gd", steps=1, insecure_seed=0, data_norm=data_norm
    )
    model.fit(table, labels)
    for n in range(3, 37):
        label, kept = np.zeros(n, dtype=np.int64), table[:n]
        before = CountedRecords.of(schema, schema.codes(kept), (0, 1), label)
        first = np.vstack([np.zeros((1, 13), dtype=np.int64), kept])  # of the least codes
        after = CountedRecords.of(schema, schema.codes(first), (0, 1), np.append(label, 0))
        assert np.array_equal(model.decision_function(after)[1:], model.decision_function(before))


# ---------------------------------------------------------------- scores of each row by itself


def numbers(frame: pd.DataFrame) -> Any:
    return np.column_stack([frame["age"], frame["pulse"], frame["smoker"].str.len()]).astype(float)


def by_the_largest(x: Any) -> Any:
    return x / np.max(np.abs(x))


def from_the_mean(x: Any) -> Any:
    return x - np.mean(x, axis=0)


class RemembersTheLargest:
    """Scales by the largest number that it has ever seen."""

    def __init__(self) -> None:
        self.largest = 0.0

    def __call__(self, x: Any) -> Any:
        self.largest = max(self.largest, float(np.max(np.abs(x))))
        return x / self.largest


def flips(x: Any) -> Any:
    return x * np.random.choice([-1.0, 1.0], len(x))[:, None]  # noqa: NPY002


def fitted(transform: Any, schema: bool = True) -> Any:
    """A public pipeline of scikit-learn with one more step."""
    steps = [FunctionTransformer(numbers)] if schema else []
    model = make_pipeline(*steps, FunctionTransformer(transform), LogisticRegression())
    X, y = patients(400, seed=1)
    return model.fit(X if schema else numbers(X), y)


class NoRecords:
    """Refuses to be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"records were asked for {name} first")

    __len__ = __array__ = __iter__ = lambda self, *_: (_ for _ in ()).throw(
        AssertionError("records were read")
    )


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["schema", "no schema"])
@pytest.mark.parametrize("transform", [by_the_largest, from_the_mean, RemembersTheLargest(), flips])
def test_scores_that_depend_on_other_rows_are_refused_before_records_are_read(
    transform: Any, schema: Schema | None
) -> None:
    model = fitted(transform, schema is not None)
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        evaluate(model, NoRecords(), NoRecords(), schema=schema)


class Turns:
    """A model that turns all scores over if ``when`` is true of the rows of a batch."""

    def __init__(self, when: Any) -> None:
        self.when = when

    def decision_function(self, rows: Any) -> Any:
        scores = np.tanh(rows["a"].to_numpy(float, na_value=0.0)) + 0.1
        return -scores if len(rows) > 1 and self.when(rows) else scores


class Knows(Turns):
    """A model that knows the declared texts alone."""

    def decision_function(self, rows: Any) -> Any:
        if not rows["c"].isin(["u", "v"]).all():
            raise ValueError("an unknown text")
        return super().decision_function(rows)


OPEN_SCHEMA = Schema([MissingLevel(Binned("a", [0, 1, 5])), Categorical("c", ["u", "v"], "ignore")])


@pytest.mark.parametrize(
    "when",
    [
        lambda rows: not rows["c"].isin(["u", "v"]).all(),
        lambda rows: (rows["a"] > 5).any(),
        lambda rows: (rows["a"] < 0).any(),
        lambda rows: np.isinf(rows["a"]).any(),
        lambda rows: rows["a"].isna().any(),
        lambda rows: len(rows) > 110,
        lambda rows: len(rows) > 4000,
    ],
)
def test_scores_that_depend_on_undeclared_cells_of_other_rows_or_on_their_number_are_refused(
    when: Any,
) -> None:
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        check_rowwise_scores(Turns(when), OPEN_SCHEMA)


def test_rows_that_a_model_refuses_by_themselves_are_left_out_of_its_test() -> None:
    every, fewer = (check_rowwise_scores(kind(lambda _: False), OPEN_SCHEMA) for kind in (Turns, Knows))
    assert (every.made, fewer.made) == (True, True)
    assert "64 synthetic rows of the schema, and of 4 with an undeclared cell," in every.words
    assert "64 synthetic rows of the schema, and of 3 with an undeclared cell," in fewer.words


def test_a_model_that_writes_to_a_row_by_itself_changes_no_other_row() -> None:
    class Writes(Turns):
        def decision_function(self, rows: Any) -> Any:
            scores = super().decision_function(rows)
            rows.loc[:, "a"] = 7.0
            return scores

    assert check_rowwise_scores(Writes(lambda _: False), OPEN_SCHEMA).made


def test_a_row_by_itself_is_not_looked_up_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,000 columns of text this took half of the time of the test."""
    looked_up, take = [], pd.DataFrame.take

    def noted(self: Any, indices: Any, *others: Any, **more: Any) -> Any:
        looked_up.append(len(indices))
        return take(self, indices, *others, **more)

    monkeypatch.setattr(pd.DataFrame, "take", noted)
    check_rowwise_scores(Turns(lambda _: False), OPEN_SCHEMA)
    assert looked_up
    assert min(looked_up) > 1


def test_scores_near_zero_are_compared_on_their_own_scale() -> None:
    class Shrinks:
        n_features_in_ = 2

        def decision_function(self, x: Any) -> Any:
            return 1e-9 * from_the_mean(x)[:, 0]

    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        check_rowwise_scores(Shrinks(), None)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["schema", "no schema"])
def test_scores_of_rows_by_themselves_are_told_on_the_spend(schema: Schema | None) -> None:
    model, (X, y) = fitted(np.tanh, schema is not None), patients(300)
    found = evaluate(model, X if schema else numbers(X), y, schema=schema)
    assert found.spend.claim == "proved"
    assert "64 synthetic rows" in found.spend.note
    assert Evaluation.from_dict(found.to_dict()).spend == found.spend


def test_scores_that_could_not_be_tried_are_not_called_proved(tmp_path: Path) -> None:
    """A pipeline of text columns, and nobody says which texts there are."""
    model, (X, y) = fitted(np.tanh), patients(300)
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=1.0)
    found = evaluate(model, X, y, ledger=ledger)
    assert found.spend.claim == "not checked"
    assert "not checked" in str(found.spend)
    assert not found.spend.guaranteed
    assert ledger.total().epsilon == 1.0
    unknown = check_rowwise_scores(object(), None)
    assert unknown == Check(False, "not checked, as no schema describes the rows")


def test_models_of_this_package_are_tried_when_their_scores_are_replaced() -> None:
    model, (X, y) = linear(), patients(300)
    assert evaluate(model, X, y).spend.note == ""
    scores = model.decision_function
    model.decision_function = lambda rows: by_the_largest(scores(rows))
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        evaluate(model, X, y)


class KeepsWhatItSaw(BaseEstimator):  # type: ignore[misc]
    """A model that a record beyond 1e6 turns over for all later calls; synthetic rows are smaller."""

    classes_, n_features_in_ = np.array(["no", "yes"]), 2

    def __init__(self) -> None:
        self.seen = 0

    def fit(self) -> None:
        """Do nothing, as it is fitted."""

    def decision_function(self, X: Any) -> Any:
        X = np.asarray(X)
        turned, self.seen = self.seen, self.seen + int(np.sum(X > 1e6))
        return -X[:, 0] if turned else X[:, 0]

    def risks_at(self, scores: Any) -> Any:
        return np.full(len(scores), self.seen / 100)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def test_a_model_that_keeps_state_carries_none_from_one_table_to_another() -> None:
    model, rng = KeepsWhatItSaw(), np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.choice(model.classes_, 300)
    first = evaluate(model, X, y, insecure_seed=0)
    large = X.copy()
    large[0, 1] = 1e9
    seen = evaluate(model, large, y, insecure_seed=0)
    assert seen.to_dict() == first.to_dict()  # its risks are not private: they were asked after the records
    assert evaluate(model, X, y, insecure_seed=0).to_dict() == first.to_dict()
    assert model.seen == 0


def test_a_model_that_keeps_state_carries_none_from_one_part_to_another() -> None:
    array = pytest.importorskip("dask.array")
    model, rng = KeepsWhatItSaw(), np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.choice(model.classes_, 300)
    large = X.copy()
    large[0, 1] = 1e9
    found = [
        evaluate(model, array.from_array(table, (50, 2)), array.from_array(y, 50), insecure_seed=0).to_dict()
        for table in (X, large)
    ]
    assert found[0] == found[1]


def test_a_model_that_cannot_be_copied_is_refused_before_anything_is_booked(tmp_path: Path) -> None:
    model, ledger = KeepsWhatItSaw(), Ledger.create(tmp_path / "ledger.json", epsilon=1.0)
    model.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="KeepsWhatItSaw cannot be pickled"):
        evaluate(model, np.zeros((30, 2)), ["no", "yes"] * 15, ledger=ledger)
    assert ledger.entries() == []


@pytest.mark.parametrize("name", ["predict", "_scores"])
def test_a_model_of_several_classes_with_a_replaced_method_is_not_this_packages(name: str) -> None:
    """One record could choose what all others are predicted to be, and move every count."""
    X = np.eye(3)[np.arange(30) % 3]
    classes = ("a", "b", "c")
    model = PrivateLogisticRegression(5.0, data_norm=1.0, classes=classes, insecure_seed=0)
    model.fit(X, np.array(classes)[np.arange(30) % 3])
    assert evaluate(model, X, np.array(classes)[np.arange(30) % 3]).spend.epsilon == 1.0
    chosen = {
        "predict": lambda rows: np.full(len(rows), classes[int(abs(rows[0, 0])) % 3]),
        "_scores": lambda rows: np.tile(np.eye(3)[int(abs(rows[0, 0])) % 3], (len(rows), 1)),
    }
    setattr(model, name, chosen[name])
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        evaluate(model, X, np.array(classes)[np.arange(30) % 3])


def test_a_decision_function_gives_one_score_a_row() -> None:
    model = linear()
    model.decision_function = lambda rows: np.zeros((len(rows), 2))
    with pytest.raises(InvalidInputError, match="scores of shape"):
        evaluate(model, *patients(30))

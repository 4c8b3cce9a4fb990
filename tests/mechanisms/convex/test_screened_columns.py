"""Columns drawn before a fit: scores by definition, their sensitivity by brute force, budgets, models."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.convex.column_statistics import ColumnStatistics
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.screened_columns import (
    ScreenedColumns,
    column_scores,
    drawn_columns,
    score_sensitivity,
)
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics
from privopt.mechanisms.convex.sufficient_statistics import MOST_FEATURES
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_to_zcdp, zcdp_rho
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.problems import Categorical, MissingLevel, Numeric, PointRule, Schema
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.some_columns import SomeColumns
from privopt.problems.errors import InvalidInputError

MIXED = Schema(
    [
        Categorical("site", ["a", "b", "c"], outside="ignore"),
        MissingLevel(Numeric("age", 0, 4)),
        Numeric("far", 0, 2),
        MissingLevel(Categorical("sex", ["f", "m"])),
    ],
    intercept=True,
)
FLAGS = Schema([Categorical(f"c{k}", [0, 1]) for k in range(40)], intercept=True)


def risk_of(X: Any, y: Any) -> EmpiricalRisk:
    """Return the risk of rows of encoded features, measured from the middle, without the constant."""
    rows = np.column_stack([X - MIXED.middle[:-1], np.ones(len(X))])
    return EmpiricalRisk(rows, y, LogisticLoss(), row_norm=9.0, constant=1.0)


def every_record() -> Any:
    """Return the rows of all records of the schema, numbers at their ends and between."""
    sites, ages, fars, sexes = ["a", "b", "c", "other"], [0, 1, 4, None], [0, 1.5, 2], ["f", "m", None]
    table = pd.DataFrame(
        itertools.product(sites, ages, fars, sexes), columns=["site", "age", "far", "sex"], dtype=object
    )
    return MIXED.encode(table).X[:, :-1] / MIXED.denominator


def scores_by_definition(X: Any, y: Any) -> list[float]:
    """Return scores from the cells of each column, one record after the other."""
    y, found = (np.asarray(y) + 1) / 2, []
    variance = max(y.mean() * (1 - y.mean()), 0.02)
    for start, stop in MIXED.spans:
        cells = X[:, start:stop].copy()
        if start in MIXED.numbers and stop > start + 1:
            cells[:, 0] *= 1 - cells[:, 1]
        cells = np.column_stack([cells, 1 - cells.sum(axis=1)])
        by_chance = 0.4 * math.sqrt((stop - start - 1) * len(y) * variance)
        found.append(float(np.abs(cells.T @ (y - y.mean())).sum() / 2 - by_chance))
    return found


def test_scores_are_half_the_l1_norm_of_label_differences() -> None:
    rng = np.random.default_rng(0)
    rows = every_record()
    X, y = rows[rng.integers(0, len(rows), 50)], rng.choice([-1.0, 1.0], 50)
    found = column_scores(risk_of(X, y), Columns.of(MIXED), MIXED.spans)
    assert found == pytest.approx(scores_by_definition(X, y), abs=1e-12)


@pytest.mark.parametrize("positive", [0, 1, 2, 4])
def test_no_record_moves_a_score_by_more_than_its_sensitivity(positive: int) -> None:
    """All pairs of records of a schema beside four others, and rows that no schema encodes."""
    rng, rows, columns = np.random.default_rng(positive), every_record(), Columns.of(MIXED)
    others = rows[rng.integers(0, len(rows), 4)]
    labels = np.where(np.arange(4) < positive, 1.0, -1.0)
    odd = rng.normal(size=(20, rows.shape[1])) * 3
    scores = np.array(
        [
            column_scores(risk_of(np.vstack([others, row]), [*labels, y]), columns, MIXED.spans)
            for row in (*rows, *odd)
            for y in (-1.0, 1.0)
        ]
    )
    moved = np.max(scores, axis=0) - np.min(scores, axis=0)
    for most, (start, stop) in zip(moved.tolist(), MIXED.spans, strict=True):
        assert most <= score_sensitivity(5, stop - start, rows.shape[1])


def test_the_sensitivity_of_a_number_is_attained() -> None:
    """Beside records of one label at one end a record of the other label counts nearly 1 at the other end."""
    n, at = 1001, MIXED.feature_names.index("far")
    X, y = np.zeros((n, 9)), np.resize([1.0, -1.0], n)
    X[:, at] = y > 0
    found = []
    for end in (0.0, 1.0):
        X[0, at], y[0] = end, 1.0
        found.append(column_scores(risk_of(X, y), Columns.of(MIXED), MIXED.spans)[2])
    # Here 1 - b = 1/2 of the bound: beside records of the label 0 alone it is all of it.
    assert found[1] - found[0] == pytest.approx(0.5, abs=1e-3)
    X[:, at], y[:] = 0.5, -1.0
    X[0, at] = 0.0
    lonely = []
    for label in (1.0, -1.0):
        y[0] = label
        lonely.append(column_scores(risk_of(X, y), Columns.of(MIXED), MIXED.spans)[2])
    X[1:, at] = 1.0
    y[0] = 1.0
    apart = column_scores(risk_of(X, y), Columns.of(MIXED), MIXED.spans)[2]
    assert lonely[0] - lonely[1] == pytest.approx(0.5, abs=1e-3)
    assert apart == pytest.approx(1.0, abs=2e-3)
    assert apart <= score_sensitivity(n, 1, 9)


def test_rounding_of_sums_over_many_records_is_paid_for() -> None:
    n = 2**26
    assert score_sensitivity(n, 1, 10) >= (n - 1) / n + 8 * n * n * 2.0**-53
    assert score_sensitivity(400, 5, 10) == pytest.approx(399 / 400 + 1.36 * math.sqrt(4 / 400), rel=1e-6)


def flags(n: int, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Draw 40 rare flags, of which the first four decide a rare label."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, 40)) < 0.2).astype(np.int64)
    y = (rng.random(n) < expit(2.5 * X[:, :4].sum(axis=1) - 4)).astype(np.int64)
    return pd.DataFrame(X, columns=[f"c{k}" for k in range(40)]), y


def test_without_noise_the_model_is_that_of_the_best_columns_alone() -> None:
    frame, y = flags(3000)
    X = FLAGS.encode(frame).X - FLAGS.middle
    X[:, -1] = 1.0
    facts = RiskFacts(3000, 81, LogisticLoss(), FLAGS.spread, "l2", 1.0)
    plan = ScreenedColumns.at_level(facts, Columns.of(FLAGS), FLAGS.spans, 4, 1.0, 1e-6, units=False)
    found = plan.without_noise(EmpiricalRisk(X, 2 * y - 1, facts.loss, row_norm=facts.row_norm, constant=1.0))
    assert np.flatnonzero(found).tolist() == [*range(8), 80]
    few = np.column_stack([X[:, :8], X[:, -1]])
    moments = plan.moments(FLAGS.spans[:4])
    assert isinstance(moments, ColumnStatistics)
    alone = EmpiricalRisk(few, 2 * y - 1, facts.loss, row_norm=moments.facts.row_norm, constant=1.0)
    assert found[[*range(8), 80]] == pytest.approx(moments.without_noise(alone), rel=1e-9)


def test_draws_and_moments_spend_the_claim() -> None:
    facts = RiskFacts(3000, 81, LogisticLoss(), FLAGS.spread, "l2", 1.0)
    plan = ScreenedColumns.plan(facts, epsilon=1.0, delta=1e-6, columns=Columns.of(FLAGS), spans=FLAGS.spans)
    spent = plan.selection.rho + plan.level**2 / 2
    assert spent == pytest.approx(zcdp_rho(1.0, 1e-6), rel=1e-6)
    assert spent <= plan.spend.level <= zcdp_rho(1.0, 1e-6)
    assert plan.moments(FLAGS.spans[:4]).spend.level <= plan.level * (1 + 1e-12)
    for mu in (0.1, 0.3, 1.0, 3.0):
        part = ScreenedColumns.at_level(facts, plan.columns, plan.spans, 4, mu, 1e-6)
        assert mu**2 / 2 * (1 - 1e-9) < part.spend.level <= mu**2 / 2
    with pytest.raises(PrivacyParameterError, match="neither a set nor a penalty"):
        ScreenedColumns.plan(
            facts, None, ElasticNet(l2=1.0), epsilon=1.0, delta=1e-6, columns=plan.columns, spans=plan.spans
        )


@pytest.mark.parametrize(("epsilon", "n"), [(0.1, 100_000), (1.0, 20_000), (10.0, 5_000)])
def test_means_draws_moments_and_choice_of_a_card_spend_the_claim(epsilon: float, n: int) -> None:
    schema = Schema([*FLAGS.columns, *(Numeric(f"x{k}", 0, 9) for k in range(3))], intercept=True)
    lattice = SeededScorecard.default_lattice(schema)
    plan = SeededScorecard.plan(CardFacts.of(schema, n, lattice, max_columns=8), epsilon=epsilon, delta=1e-6)
    assert isinstance(plan.seed, ScreenedColumns)
    assert plan.seed.selection.count == 8
    assert plan.means is not None
    parts = plan.seed.selection.rho, plan.seed.level**2 / 2, plan.means.level**2 / 2
    spent = sum(parts) + bounded_range_to_zcdp(plan.choice.width)
    assert 0.999 * zcdp_rho(epsilon, 1e-6) <= spent <= zcdp_rho(epsilon, 1e-6)


def test_columns_are_drawn_only_where_they_are_many() -> None:
    def plan(**more: Any) -> Any:
        return PrivateHalfspaceClassifier(1.0, classes=(0, 1), **{"schema": FLAGS, **more}).plan(3000)

    assert isinstance(plan(max_columns=8).plan.seed, ScreenedColumns)
    assert "8 columns are drawn first" in plan(max_columns=8).reason
    forced = Schema(FLAGS.columns, intercept=True, rules={"c0": PointRule(points=(1, 3))})
    for other in (
        {},
        {"max_columns": 9},
        {"max_columns": 2, "schema": forced},
        {"max_columns": 2, "constraints": ["at most 2 of c0, c1, c2"]},
    ):
        assert not isinstance(plan(**other).plan.seed, ScreenedColumns)


def test_a_card_has_points_for_the_columns_that_decide() -> None:
    frame, y = flags(2000)
    model = PrivateHalfspaceClassifier(5.0, schema=FLAGS, classes=(0, 1), max_columns=4, insecure_seed=2)
    used = {span for span in FLAGS.spans if np.any(model.fit(frame, y).coef_[0, slice(*span)])}
    assert len(used & set(FLAGS.spans[:4])) >= 3
    assert len(used) <= 4
    source = model.source_
    assert source is not None
    assert source.deviations is not None
    assert np.array_equal(source.deviations[:-1] > 0, source.weights[:-1] != 0)


def test_the_widest_columns_fit_if_any_do() -> None:
    ends = np.cumsum([0, *[2] * 300, *[MOST_FEATURES // 2 - 1] * 3]).tolist()
    few = drawn_columns(list(itertools.pairwise(ends)), 10**9, 1.0)
    assert few == 2
    narrow = drawn_columns(list(itertools.pairwise(ends[:301])), 10**9, 1.0)
    assert narrow == min(300, MOST_FEATURES // 2)


def test_models_of_more_features_than_moments_can_take_are_of_drawn_columns() -> None:
    rng, n = np.random.default_rng(0), 2000
    schema = Schema([Categorical(f"c{k}", [0, 1]) for k in range(510)], intercept=True)
    X = (rng.random((n, 510)) < 0.3).astype(np.int64)
    y = (rng.random(n) < expit(4 * X[:, 0] - 2)).astype(np.int64)
    card = PrivateHalfspaceClassifier(3.0, schema=schema, classes=(0, 1), insecure_seed=0).fit(X, y)
    linear = PrivateLogisticRegression(3.0, schema=schema, classes=(0, 1), insecure_seed=0).fit(X, y)
    assert linear.mechanism_ == ScreenedStatistics.name
    for weights in (card.coef_[0, :-1], linear.coef_[0, :-1]):
        assert np.any(weights[:2])
        assert np.count_nonzero(weights) <= 2 * drawn_columns(schema.spans, n, 0.6)
    rates = np.mean(linear.predict_proba(X)[:, 1]), np.mean(y)
    assert rates[0] == pytest.approx(rates[1], abs=0.1)


def test_a_card_of_a_sparse_matrix_is_that_of_its_columns_of_zeros_and_ones(tmp_path: Path) -> None:
    frame, y = flags(500)
    thin = sp.csr_array(frame.to_numpy(dtype=np.float64))
    options: dict[str, Any] = {"classes": (0, 1), "max_columns": 3, "insecure_seed": 1}
    found = PrivateHalfspaceClassifier(2.0, **options).fit(thin, y)
    assert [column.name for column in found.schema_.columns[:2]] == ["x0", "x1"]
    same = PrivateHalfspaceClassifier(2.0, schema=found.schema_, **options).fit(frame.to_numpy(), y)
    assert found.coef_.tolist() == same.coef_.tolist()
    assert found.predict(thin).tolist() == same.predict(frame.to_numpy()).tolist()
    found.save(tmp_path / "card.json")
    again = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    assert again.predict(sp.coo_matrix(thin)).tolist() == found.predict(thin).tolist()


def test_other_entries_of_a_sparse_matrix_are_refused_after_the_booking(tmp_path: Path) -> None:
    frame, y = flags(100)
    thin = sp.csr_array(frame.to_numpy(dtype=np.float64))
    ledger = Ledger.create(tmp_path / "books.json", epsilon=5.0, delta=1e-3)
    model = PrivateHalfspaceClassifier(1.0, classes=(0, 1), ledger=ledger)
    with pytest.raises(InvalidInputError, match="X is sparse, which is for columns of 0 and 1"):
        model.fit(thin * 0.5, y)
    assert len(ledger.entries()) == 1
    with pytest.raises(InvalidInputError, match="one column for each of the 40"):
        PrivateHalfspaceClassifier(1.0, classes=(0, 1), schema=FLAGS, ledger=ledger).fit(thin[:, :30], y)
    assert len(ledger.entries()) == 1


def test_a_view_of_some_columns_has_what_a_risk_has_and_no_more() -> None:
    risk = EmpiricalRisk(np.eye(3), np.array([1, -1, 1]), LogisticLoss())
    view = SomeColumns(risk, np.array([0, 2]), RiskFacts(3, 2, LogisticLoss()))
    assert view.y is risk.y
    with pytest.raises(AttributeError, match="weights_of_nothing"):
        _ = view.weights_of_nothing

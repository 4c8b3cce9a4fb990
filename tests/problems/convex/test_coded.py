"""Rows by their codes are the same risk as the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.problems import Binned, Categorical, MissingLevel, Numeric, Schema
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk, RowNorm
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.counted import CountedRecords

COLUMNS = (
    Numeric("a", 0, 20, 1, zero=0, one=10),
    MissingLevel(Numeric("b", -1, 1, "1/4")),
    Categorical("c", ["x", "y", "z"], outside="ignore"),
    MissingLevel(Binned("d", [0, 1, 2, 3])),
)


def counted(schema: Schema, n: int = 2000) -> CountedRecords:
    rng = np.random.default_rng(0)
    codes = [rng.integers(column.n_codes, size=n) for column in schema.columns]
    return CountedRecords.of(schema, codes, ("n", "p"), rng.integers(2, size=n))


def rows_of(records: CountedRecords) -> tuple[NDArray[np.float64], CodedRows]:
    """Measured from their middle, with a constant: dense, and by codes."""
    schema, coded = records.schema, records.coded
    assert coded is not None
    dense = records.features.X / records.features.denominator - schema.middle
    found = coded.mapped(lambda table: table - schema.middle)
    if not schema.intercept:
        dense, found = np.column_stack([dense, np.full(len(dense), 0.7)]), found.with_constant(0.7)
    return dense, found


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_are_the_features_to_the_last_bit(intercept: bool) -> None:
    dense, coded = rows_of(counted(Schema(COLUMNS, intercept)))
    assert coded.shape == dense.shape
    np.testing.assert_array_equal(coded[:], dense)
    some = np.array([5, 3, 3])
    np.testing.assert_array_equal(coded[some, :4], dense[some, :4])
    np.testing.assert_array_equal(coded[7], dense[7])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("norm", "bound"), [("l2", 0.9), ("l2", 9.0), ("linf", 0.5)])
def test_passes_are_those_of_dense_rows(intercept: bool, norm: RowNorm, bound: float) -> None:
    records = counted(Schema(COLUMNS, intercept))
    y = 2.0 * records.label - 1
    dense, coded = (
        EmpiricalRisk(rows, y, LogisticLoss(), counts=records.counts, row_norm=bound, norm=norm)
        for rows in rows_of(records)
    )
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=(2, dense.facts.dimension))
    some = rng.integers(dense.facts.n_records, size=50)
    assert coded.facts == dense.facts
    for ask in (
        lambda risk: risk.value_and_gradient(w)[0],
        lambda risk: risk.gradient(w),
        lambda risk: risk.predictions(w),
        lambda risk: risk.hessian(w),
        lambda risk: risk.hessian_vector(w, v),
        lambda risk: risk.clipped_rows(),
        lambda risk: risk.gradient_sum(w, some),
    ):
        np.testing.assert_allclose(ask(coded), ask(dense), rtol=1e-12, atol=1e-14)


def test_what_is_predicted_for_a_row_depends_on_its_codes_alone() -> None:
    records = counted(Schema(COLUMNS))
    rows = rows_of(records)[1]
    some = np.arange(0, len(rows.codes), 3)
    part = CodedRows(np.ascontiguousarray(rows.codes[some]), rows.table, rows.own)
    w = np.random.default_rng(2).normal(size=rows.shape[1])
    whole, own = (
        EmpiricalRisk(X, np.ones(len(counts)), LogisticLoss(), counts=counts, row_norm=5.0).predictions(w)
        for X, counts in ((rows, records.counts), (part, records.counts[some]))
    )
    np.testing.assert_array_equal(whole[some], own)


def test_sums_beyond_one_block_are_whole() -> None:
    schema = Schema([Numeric(name, 0, 39, 1) for name in "abc"])
    records = counted(schema, 60_000)
    dense, coded = (
        EmpiricalRisk(X, np.ones(len(records.counts)), LogisticLoss(), counts=records.counts)
        for X in rows_of(records)
    )
    assert len(records.counts) > coded._rows.block
    np.testing.assert_allclose(coded.gradient(np.ones(4)), dense.gradient(np.ones(4)), rtol=1e-12)


def test_many_levels_stay_dense_and_counts_are_needed() -> None:
    fine = Schema([Numeric(name, 0, 600, 1) for name in "ab"])
    assert counted(fine).coded is None
    rows = rows_of(counted(Schema(COLUMNS)))[1]
    with pytest.raises(InvalidInputError, match="counts are needed"):
        EmpiricalRisk(rows, np.ones(rows.shape[0]), LogisticLoss())


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_codes_of_other_columns_are_refused(norm: str) -> None:
    """Whoever counts says what codes are. Two for one level make a row twice as long, not 1.4 times."""
    schema = Schema((Categorical("a", ["x", "y"]), Categorical("b", ["x", "y"])), False)
    for a, b in ((2, 0), (3, 1), (0, -1), (-1, 0), (4, 0), (1 << 32, 4)):
        codes = (np.array([0, a]), np.array([0, b]))
        lying = CountedRecords(schema, codes, ("n", "p"), np.array([0, 1]), np.array([5, 1]))
        rows, y = lying.coded, np.array([-1.0, 1.0])
        assert rows is not None
        with pytest.raises(InvalidInputError, match="level"):
            EmpiricalRisk(rows, y, LogisticLoss(), counts=lying.counts, norm=norm)  # type: ignore[arg-type]
    honest = schema.coded([np.array([0, 1]), np.array([0, 1])])
    assert honest is not None
    one = honest.table + 0.1 * (np.arange(honest.own.size).reshape(honest.own.shape) == np.argmin(honest.own))
    for table in (honest.table + 0.1, one):
        spilled = CodedRows(honest.codes, table, honest.own)
        with pytest.raises(InvalidInputError, match="level"):
            EmpiricalRisk(spilled, y, LogisticLoss(), counts=np.array([5, 1]), norm=norm)  # type: ignore[arg-type]

"""Risks of records that lie in parts: the sums of the whole table, sensitivities, what may not be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from scipy import sparse

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.estimators.prepared import outline_of_part, risk_facts, risk_of
from privopt.mechanisms.nonconvex.spider import difference_sensitivity
from privopt.problems.convex import passes
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Blocks


def partitioned(X: Any, y: Any, loss: Any, rows: int, n: int | None = None) -> PartitionedRisk:
    def risk(part: tuple[Any, Any]) -> EmpiricalRisk:
        return EmpiricalRisk(*part, loss, counts=np.ones(len(part[1]), dtype=np.int64))

    facts = RiskFacts(len(y) if n is None else n, X.shape[1], loss)
    return PartitionedRisk(Blocks((X, y), rows).made(risk), facts)


def records(n: int = 101, d: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * 0.6, rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("rows", [1, 17, 1000])
@pytest.mark.parametrize("loss", [LogisticLoss(), HuberLoss(0.5)])
def test_sums_over_parts_are_those_of_the_whole(rows: int, loss: Any) -> None:
    X, y = records()
    parts, whole = partitioned(X, y, loss, rows), EmpiricalRisk(X, y, loss)
    w, v = np.random.default_rng(1).normal(size=(2, 5))
    assert parts.facts == whole.facts
    assert parts.in_float64() is parts
    assert parts.value(w) == pytest.approx(whole.value(w), rel=1e-13)
    assert parts.value_and_gradient(w)[0] == parts.value(w)
    assert parts.value_and_gradient(w)[1].tolist() == parts.gradient(w).tolist()
    close = {"rtol": 0, "atol": 4 * whole.facts.rounding * whole.facts.gradient_bound * len(y)}
    for name, at in (("gradient", (w,)), ("hessian", (w,)), ("hessian_vector", (w, v))):
        np.testing.assert_allclose(getattr(parts, name)(*at), getattr(whole, name)(*at), **close)


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_kernels_of_dense_parts_are_compiled_before_the_first_pass(
    constant: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the very types that a pass over a mapped file has: it compiles none of them itself."""
    asked: set[tuple[Any, ...]] = set()
    for name in ("_predict_each", "_add_dense"):
        kernel = getattr(passes, name)

        def noted(*given: Any, kernel: Any = kernel) -> Any:
            asked.add((kernel, *map(numba.typeof, given)))
            return kernel(*given)

        monkeypatch.setattr(passes, name, noted)
    X, y = records(d=3)
    np.save(tmp_path / "rows.npy", X[:, 1:] if constant else X)
    facts = RiskFacts(len(y), 3, LogisticLoss(), constant=constant)
    blocks = Blocks((np.load(tmp_path / "rows.npy", mmap_mode="r"), y), 40)
    risk = PartitionedRisk(blocks.made(lambda part: PartRisk(*part, facts, 1.0)), facts)
    risk.compile()
    compiled = set(asked)
    asked.clear()
    risk.gradient(np.zeros(3))
    assert len(asked) == 2
    assert asked <= compiled


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_gradient_moves_by_the_sensitivity_of_one_record(rows: int) -> None:
    """The longest rows there are, of which one changes its label, far out: attained, never exceeded."""
    X, y = np.tile([1.0, 0.0], (50, 1)), np.ones(50)
    moved = y.copy()
    moved[23] = 2e9
    w = np.array([1e9, 0.0])
    before, after = (partitioned(X, labels, HuberLoss(1.0), rows) for labels in (y, moved))
    distance = float(np.linalg.norm(after.gradient(w) - before.gradient(w)))
    assert 0.999 * before.facts.sensitivity <= distance <= before.facts.sensitivity


def test_what_is_computed_for_a_row_does_not_depend_on_the_part_that_it_lies_in() -> None:
    """To the last bit: a record that is replaced may move others from one part to the next."""
    X, y = records(60, 117)
    model = PrivateLogisticRegression(1.0, data_norm=2.0, classes=(-1, 1))
    w = np.random.default_rng(2).normal(size=118) * 1e6
    facts = RiskFacts(60, 118, LogisticLoss(), 3.0)
    found = []
    for rows in (1, 3, 7, 60):
        table = Blocks((X, y), rows).made(lambda pair: model._prepared(*pair, None, part=True))
        risk = risk_of(table, 0, None, facts)
        assert isinstance(risk, PartitionedRisk)
        assert all(risk.parts.each(lambda part: part._row_by_row))  # rows go through the kernel for one row
        found.append(np.concatenate(risk.parts.each(lambda part: part.predictions(w))).tolist())
    assert found == [found[0]] * 4


def test_nor_of_sparse_rows() -> None:
    X, y = records(60, 117)
    X[np.abs(X) < 0.5] = 0
    w, facts = (
        np.random.default_rng(2).normal(size=118) * 1e6,
        RiskFacts(60, 118, LogisticLoss(), 3.0, "l2", 1.0),
    )
    found = []
    for rows in (1, 7, 60):
        parts = [slice(k, k + rows) for k in range(0, 60, rows)]
        risks = [PartRisk(sparse.csr_array(X[b]), y[b], facts, 2.0) for b in parts]
        found.append(np.concatenate([risk.predictions(w) for risk in risks]).tolist())
    assert found == [found[0]] * 3


def told(X: Any, y: Any, norm: Any, longest: float, rows: int = 7) -> PartitionedRisk:
    """The risk of a file with a constant feature that it does not hold, as estimators make it."""
    model = PrivateLogisticRegression(1.0, data_norm=longest, norm=norm, classes=(-1, 1))
    table = Blocks((X, y), rows).made(lambda pair: model._prepared(*pair, None, part=True))
    risk = risk_of(table, 0, None, risk_facts(len(y), X.shape[1], LogisticLoss(), longest, norm, True))
    assert isinstance(risk, PartitionedRisk)
    return risk


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_constant_feature_need_not_be_stored(norm: Any) -> None:
    """Rows are shortened alone, as in memory, where the constant is a column beside them."""
    X, y = records()
    parts = told(X, y, norm, 0.7)
    model = PrivateLogisticRegression(1.0, data_norm=0.7, norm=norm, classes=(-1, 1))
    stored = model._prepared(X, y, None)
    assert stored.features.shape[1] == parts.facts.dimension == 6
    whole = EmpiricalRisk(
        stored.features, y, LogisticLoss(), row_norm=parts.facts.row_norm, norm=norm, constant=0.5
    )
    w, v = np.random.default_rng(1).normal(size=(2, 6))
    for name, at in (("value", (w,)), ("gradient", (w,)), ("hessian", (w,)), ("hessian_vector", (w, v))):
        np.testing.assert_allclose(getattr(parts, name)(*at), getattr(whole, name)(*at), rtol=1e-12)
    for rows in parts.parts.each(lambda part: part.clipped_rows()):
        lengths = np.linalg.norm(rows, 2 if norm == "l2" else np.inf, axis=1)
        assert np.all(lengths < parts.facts.row_norm)


def on_disk(folder: Path, X: Any) -> Any:
    """A file of rows that may be written to while it is read."""
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r+")


def test_a_file_that_changes_between_passes_is_refused(tmp_path: Path) -> None:
    """Differences of gradients, and minima, are as sensitive as is said only if all passes saw one table."""
    X, y = records()
    for change in (-X, X * 1e6, X + 1e-12, np.vstack([X[1:], X[:1] * -1])):
        file = on_disk(tmp_path, X)
        parts, w = told(file, y, "l2", 0.7), np.full(6, 0.1)
        first = parts.gradient(w)
        assert parts.gradient(w).tolist() == first.tolist()
        file[:] = change
        with pytest.raises(InvalidInputError, match="have changed"):
            parts.gradient(w)
        file[:] = X[::-1]
        y[:] = y[::-1].copy()  # other places, the same records
        np.testing.assert_allclose(parts.gradient(w), first, rtol=1e-12)
    y[3] *= -1
    with pytest.raises(InvalidInputError, match="have changed"):
        parts.gradient(w)


def test_a_difference_of_gradients_is_that_of_one_table() -> None:
    """A changed label moves a difference by far more than the 2 L |w - v| / n that dp-spider books."""
    X, y, w = np.tile([1.0, 0.0], (10, 1)), np.ones(10), np.zeros(2)
    parts, near = partitioned(X, y, LogisticLoss(), 5), np.array([1e-6, 0.0])
    before = parts.gradient(w)
    moved = partitioned(X, np.append(-1.0, y[1:]), LogisticLoss(), 5)
    change = (moved.gradient(near) - moved.gradient(w)) - (parts.gradient(near) - before)
    assert np.linalg.norm(change) <= difference_sensitivity(parts.facts, near, w) < 1e-7
    y[0] = -1
    with pytest.raises(InvalidInputError, match="have changed"):
        parts.gradient(near)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_rows_of_a_file_are_measured_as_they_are_added_up(tmp_path: Path, norm: Any) -> None:
    """Others may write to the file between the two: no row becomes longer than the bound by that."""
    X, y = records()
    file = on_disk(tmp_path, X)
    parts = told(file, y, norm, 0.7)
    part, w = next(iter(parts.parts._all())), np.full(6, 0.1)  # type: ignore[attr-defined]
    before = part.gradient(w)
    file *= 1e6
    assert part.gradient(w).tolist() == before.tolist()
    for bad in (np.nan, np.inf, 1e200):
        file[50, 3] = bad
        with pytest.raises(InvalidInputError, match=r"finite|too long"):
            parts.gradient(w)


@pytest.mark.parametrize("zeros", [False, True])
def test_a_file_that_is_fitted_in_memory_is_read_once(tmp_path: Path, zeros: bool) -> None:
    """Rows are measured when the risk is made: what is written afterwards would be summed unmeasured."""
    X, y = records()
    whole: Any = sparse.csr_array(X)
    file = on_disk(tmp_path, whole.data if zeros else X)
    given: Any = sparse.csr_array((file, whole.indices, whole.indptr), shape=X.shape) if zeros else file[:]
    risk, w = EmpiricalRisk(given, y, LogisticLoss(), row_norm=0.7), np.zeros(5)
    before = risk.gradient(w)
    file *= 1e6
    assert risk.gradient(w).tolist() == before.tolist()
    assert np.linalg.norm(risk.gradient(w)) <= risk.facts.gradient_bound


def test_what_is_told_of_a_part_keeps_nothing_of_its_length() -> None:
    """A view of the labels would: of a long table in many parts, more than fits in memory."""
    model = PrivateLogisticRegression(1.0, data_norm=1.0, classes=(-1, 1))
    seen = outline_of_part(model._prepared(*records(), None, part=True))
    assert seen.targets.number is not None
    assert seen.targets.number.base is None
    assert (seen.targets.number.size, len(seen.targets.labels)) == (0, 0)


def test_parts_that_hold_other_numbers_of_records_than_they_did_are_refused() -> None:
    X, y = records()
    for n in (100, 102):
        with pytest.raises(InvalidInputError, match="has changed"):
            partitioned(X, y, LogisticLoss(), 20, n).gradient(np.zeros(5))


def test_records_are_not_brought_together() -> None:
    risk, some = partitioned(*records(), LogisticLoss(), 20), np.array([0, 1])
    for ask in (
        lambda: risk.predictions(np.zeros(5)),
        lambda: risk.gradient_sum(np.zeros(5), some),
        lambda: risk.difference_sum(np.zeros(5), np.zeros(5), some),
    ):
        with pytest.raises(InvalidInputError, match="not available for partitioned data"):
            ask()

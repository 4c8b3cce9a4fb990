"""Full passes over a matrix: the same bits on any number of threads, no copies, custom losses as they are."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from privopt.problems.convex import passes as _passes
from privopt.problems.convex.loss_check import check_loss
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, RealArray
from privopt.problems.convex.passes import mark_of, norms_each, predict_each
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError, PrivOptError

N, D = 4_001, 13
KINDS = ("float64", "float32", "sparse64", "sparse32")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts of several blocks each, even for small data."""
    monkeypatch.setattr(_passes, "_LEAST_STORED", 1_000)
    monkeypatch.setattr(_passes, "BLOCK_BYTES", 3_000)
    monkeypatch.setattr(_passes, "_SPARSE_BLOCK", 50)


def data(kind: str, n: int = N) -> tuple[NDArray[np.float64], EmpiricalRisk]:
    """A matrix and a risk on it; row_norm is so large that nothing is clipped."""
    rng = np.random.default_rng(0)
    dtype = np.float32 if kind.endswith("32") else np.float64
    X = (rng.standard_normal((n, D)) * (rng.uniform(size=(n, D)) < 0.5)).astype(dtype)
    y = rng.choice([-1.0, 1.0], n)
    given = sp.csr_array(X) if kind.startswith("sparse") else X
    return X.astype(np.float64), EmpiricalRisk(given, y, LogisticLoss(), row_norm=100.0)


def results(risk: EmpiricalRisk) -> list[NDArray[np.float64]]:
    w, v = np.random.default_rng(1).standard_normal((2, D))
    value, gradient = risk.value_and_gradient(w)
    return [
        np.array([value, risk.value(w)]),
        gradient,
        risk.gradient(w),
        risk.hessian_vector(w, v),
        risk.predictions(w),
    ]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_changes_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, risk = data(kind)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(_passes, "threads_available", lambda threads=threads: threads)
        found.append(results(risk))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_many_parts_against_one_numpy_expression(kind: str) -> None:
    X, risk = data(kind)
    w = np.random.default_rng(1).standard_normal((2, D))[0]
    y = risk.y.astype(np.float64)
    expected = X.T @ (-y / (1 + np.exp(y * (X @ w)))) / len(y)
    tolerance = 1e-6 if kind.endswith("32") else 1e-14
    np.testing.assert_allclose(risk.gradient(w), expected, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("small_parts")
def test_several_threads_do_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two visits wait for each other: on one thread that would never end (the barrier gives up)."""
    monkeypatch.setattr(_passes, "threads_available", lambda: 2)  # whatever the machine has
    barrier = threading.Barrier(2, timeout=20)
    names = set()

    def visit(_block: slice, _total: NDArray[np.float64]) -> float:
        if len(names) < 2:
            names.add(threading.get_ident())
            barrier.wait()
        return 1.0

    # Two parts of one block each.
    number, total = _passes.full_pass(visit, n=20, d=2, stored=2_000, block=10)
    assert number == 2.0
    assert len(names) == 2
    assert not total.any()


def test_cuts_cover_every_row_once_and_bound_the_accumulators() -> None:
    for n, d, stored, block in (
        (1, 5, 5, 7),
        (7, 3, 21, 7),
        (581_012, 54, 581_012 * 54, 2_427),
        (2_000, 10**6, 10**6, 1_024),
        (10**7, 4, 4 * 10**7, 5),
    ):
        cut = _passes.parts(n, d, stored, block)
        assert (cut[0].start, cut[-1].stop) == (0, n)
        assert all(a.stop == b.start for a, b in itertools.pairwise(cut))
        assert all(part.stop > part.start and part.start % block == 0 for part in cut)
        assert len(cut) == 1 or len(cut) * d <= stored / 4


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_other_rows_do_not_move_a_row_s_block(kind: str) -> None:
    """Replacing a record changes how much a sparse matrix stores, and must not move the other rows."""
    rng = np.random.default_rng(3)
    seen = []
    for density in (0.01, 0.9):
        X = sp.random_array((N, D), density=density, format="csr", rng=rng)
        dtype = np.float32 if kind.endswith("32") else np.float64
        given = (X if kind.startswith("sparse") else X.toarray()).astype(dtype)
        rows = _passes.rows_of(given)
        blocks: list[int] = []

        def visit(b: slice, _total: NDArray[np.float64], blocks: list[int] = blocks) -> float:
            blocks.append(b.start)
            return 0.0

        _passes.full_pass(visit, N, D, rows.stored, rows.block)
        seen.append(sorted(blocks))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gradient_takes_less_memory_than_a_column(dtype: type) -> None:
    n, d = 300_000, 40
    X = np.random.default_rng(0).standard_normal((n, d), dtype=dtype)
    risk = EmpiricalRisk(X, np.ones(n), LogisticLoss())
    w = np.ones(d)
    risk.gradient(w)  # compiled
    tracemalloc.start()
    risk.gradient(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * X.itemsize


@dataclass(frozen=True)
class Softplus(Loss):
    """A custom loss as the docstring of ``Loss`` asks for it: NumPy expressions and two constants."""

    labels = Labels.SIGN
    convex = True
    lipschitz = 1.0
    smoothness = 0.25

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.logaddexp(0, -y * z)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return -y * np.exp(-np.logaddexp(0, y * z))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        return np.exp(-np.logaddexp(0, z) - np.logaddexp(0, -z))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", KINDS)
def test_a_custom_loss_needs_nothing_but_numpy(kind: str) -> None:
    check_loss(Softplus())
    _, shipped = data(kind)
    custom = EmpiricalRisk(shipped.X, shipped.y, Softplus(), row_norm=100.0)
    tolerance = 2e-6 if kind.endswith("32") else 1e-13
    for a, b in zip(results(custom), results(shipped), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * 10)


class Awkward(LogisticLoss):
    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        raise PrivOptError("no slope today")


@pytest.mark.usefixtures("small_parts")
def test_an_error_in_a_loss_arrives() -> None:
    _, risk = data("float64")
    awkward = EmpiricalRisk(risk.X, risk.y, Awkward())
    with pytest.raises(PrivOptError, match="no slope today"):
        awkward.gradient(np.zeros(D))


class Short(LogisticLoss):
    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return super().slope(z, y)[:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_returns_too_little_is_refused(kind: str) -> None:
    """The kernels check no bounds."""
    _, risk = data(kind)
    with pytest.raises(InvalidInputError, match="one number per prediction"):
        EmpiricalRisk(risk.X, risk.y, Short()).gradient(np.zeros(D))


class Overflowing(LogisticLoss):
    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return -y / (1 + np.exp(y * z))


@pytest.mark.usefixtures("small_parts")
def test_threads_see_the_error_state_of_the_caller() -> None:
    _, risk = data("float64")
    loud = EmpiricalRisk(risk.X, risk.y, Overflowing(), row_norm=100.0)
    far = np.full(D, 1e4)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        loud.gradient(far)
    with np.errstate(over="ignore"):
        assert np.all(np.isfinite(loud.gradient(far)))


def test_importing_the_package_compiles_nothing_and_leaves_numba_alone() -> None:
    code = "import sys, privopt.problems.convex.risk, privopt.mechanisms; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_picked_row_is_predicted_alike_wherever_it_stands(sparse: bool) -> None:
    """A matrix product is not: its last rows take another path."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(37, 53)), rng.normal(size=53)
    scale = rng.uniform(0.5, 1.0, 37)
    alone = np.concatenate(
        [predict_each(_picked(X[i : i + 1], sparse), scale[i : i + 1], w) for i in range(37)]
    )
    for _ in range(20):
        order = rng.permutation(37)[: rng.integers(1, 38)]
        assert np.array_equal(predict_each(_picked(X[order], sparse), scale[order], w), alone[order])
    np.testing.assert_allclose(alone, scale * (X @ w), rtol=1e-12, atol=1e-12)


def _picked(rows: np.ndarray, sparse: bool) -> Any:
    return sp.csr_array(rows) if sparse else np.ascontiguousarray(rows)


@pytest.mark.parametrize("d", [1, 5, 17])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_norms_of_rows_show_what_is_not_finite(d: int, bad: float) -> None:
    """Sums that compilers may reorder can lose it."""
    X = np.random.default_rng(0).normal(size=(3 * d, d))
    np.testing.assert_allclose(norms_each(X, False), np.linalg.norm(X, axis=1), rtol=1e-14)
    assert norms_each(X, True).tolist() == np.abs(X).max(axis=1).tolist()
    X[np.arange(d), np.arange(d)] = bad
    for largest in (False, True):
        assert np.isfinite(norms_each(X, largest)).tolist() == [False] * d + [True] * (2 * d)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_is_that_of_the_records_in_any_order_and_of_no_others(kind: str) -> None:
    dtype = np.float32 if kind.endswith("32") else np.float64
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (60, D)).astype(dtype)
    y = rng.choice([-1.0, 1.0], 60).astype(dtype)

    def mark(rows: NDArray[Any], labels: NDArray[Any]) -> int:
        given: Any = sp.csr_array(rows) if kind.startswith("sparse") else np.ascontiguousarray(rows)
        return mark_of(given, np.ascontiguousarray(labels))

    first, order = mark(X, y), rng.permutation(60)
    assert mark(X[order], y[order]) == first
    assert (mark(X[:23], y[:23]) + mark(X[23:], y[23:])) % 2**64 == first
    swapped, mirrored, single = X.copy(), y.copy(), X.copy()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    mirrored[[3, 5]] *= -1
    single[7, 2] = np.nextafter(single[7, 2], dtype(9))
    others = [
        (-X, y),
        (X, -y),
        (X, mirrored),
        (swapped, y),
        (single, y),
        (X[order], y),
        (X[:-1], y[:-1]),
        (2 * X, y),
    ]
    assert len({first, *(mark(*other) for other in others)}) == 1 + len(others)


def test_blocks_hold_many_short_rows_and_one_that_is_longer_than_a_block() -> None:
    for columns, rows in ((8, _passes.BLOCK_BYTES // 64), (_passes.BLOCK_BYTES // 4, 1)):
        assert _passes.DenseRows(np.zeros((2, columns))).block == rows


def test_whole_numbers_in_a_sparse_matrix_are_rows_as_others_are() -> None:
    rng = np.random.default_rng(0)
    X, y, w = rng.integers(0, 3, (50, 4)), rng.choice([-1, 1], 50), rng.normal(size=4)
    dense, sparse = (EmpiricalRisk(M, y, LogisticLoss(), row_norm=2.0) for M in (X / 1.0, sp.csr_matrix(X)))
    assert sparse.value(w) == pytest.approx(dense.value(w))
    assert sparse.gradient(w) == pytest.approx(dense.gradient(w))

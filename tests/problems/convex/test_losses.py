"""Losses, regularisers and empirical risk against independent computations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from privopt.problems.convex.loss_check import LossCheckError, check_loss
from privopt.problems.convex.losses import (
    BiweightLoss,
    HuberLoss,
    Labels,
    LogisticLoss,
    Loss,
    ProbitSquaredLoss,
    RealArray,
    SigmoidLoss,
    SigmoidSquaredLoss,
    SquaredLoss,
)
from privopt.problems.convex.regularizers import ElasticNet, lasso
from privopt.problems.convex.risk import EmpiricalRisk, RowNorm
from privopt.problems.errors import InvalidInputError
from privopt.problems.nonconvex.quartic import QuarticLoss

LOSSES: list[Loss] = [
    LogisticLoss(),
    SigmoidLoss(),
    HuberLoss(1.3),
    SquaredLoss(2.5),
    SigmoidSquaredLoss(),
    ProbitSquaredLoss(),
    BiweightLoss(),
    BiweightLoss(0.5),
]


def definition(loss: Loss, z: float, y: float) -> float:
    """The losses as their papers define them, in plain scalar arithmetic."""
    match loss:
        case LogisticLoss():
            return math.log(1 + math.exp(-y * z))
        case SigmoidLoss():
            return 1 / (1 + math.exp(y * z))
        case HuberLoss(threshold=t):
            r = abs(z - y)
            return r * r / 2 if r <= t else t * r - t * t / 2
        case SigmoidSquaredLoss():
            return (1 / (1 + math.exp(-z)) - y) ** 2
        case ProbitSquaredLoss():
            return float(norm.cdf(z) - y) ** 2
        case BiweightLoss(c=c):
            u = min(1.0, abs((z - y) / c))
            return c * c / 6 * (1 - (1 - u * u) ** 3)
    raise AssertionError(loss)


def labels_of(loss: Loss, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    match loss.labels:
        case Labels.SIGN:
            return rng.choice([-1.0, 1.0], n)
        case Labels.UNIT:
            return rng.uniform(0, 1, n)
    return rng.standard_normal(n) * 2


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_values_match_the_definitions(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal(200) * 3
    y = labels_of(loss, 200, rng)
    expected = [definition(loss, a, b) for a, b in zip(z.tolist(), y.tolist(), strict=True)]
    np.testing.assert_allclose(loss.value(z, y), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_shipped_losses_pass_the_check(loss: Loss) -> None:
    check_loss(loss)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_constants_are_tight(loss: Loss) -> None:
    """A general optimiser reaches the declared suprema (to 1e-6), so no constant is needlessly large."""
    labels = {Labels.SIGN: (1.0,), Labels.UNIT: (0.0, 1.0), Labels.REAL: (0.0,)}[loss.labels]
    for f, declared in ((loss.slope, loss.lipschitz), (loss.curvature, loss.smoothness)):
        reached = 0.0
        for label in labels:
            for low, high in ((-40, -3), (-3, -0.5), (-0.5, 0.5), (0.5, 3)):
                best = minimize_scalar(
                    lambda z, f=f, label=label: -abs(float(f(np.array([z]), np.array([label]))[0])),
                    bounds=(low, high),
                    method="bounded",
                    options={"xatol": 1e-12},
                )
                reached = max(reached, -best.fun)
        assert reached == pytest.approx(declared, rel=1e-6)


@dataclass(frozen=True)
class _Wrong(LogisticLoss):
    """A logistic loss with one lie in it."""

    lie: str

    @property
    def lipschitz(self) -> float:
        return 0.99999 if self.lie == "lipschitz" else 1.0

    @property
    def smoothness(self) -> float:
        return 0.2499 if self.lie == "smoothness" else 0.25

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        bump = np.sin(z) if self.lie == "convex" else 0.0
        return super().value(z, y) + 0.01 * bump * (self.lie == "convex")

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        factor = 0.995 if self.lie == "slope" else 1.0
        bump = 0.01 * np.cos(z) if self.lie == "convex" else 0.0
        return super().slope(z, y) * factor + bump

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        factor = 0.9 if self.lie == "curvature" else 1.0
        bump = -0.01 * np.sin(z) if self.lie == "convex" else 0.0
        return super().curvature(z, y) * factor + bump


@pytest.mark.parametrize("lie", ["lipschitz", "smoothness", "slope", "curvature", "convex"])
def test_a_wrong_loss_fails_the_check(lie: str) -> None:
    message = {"slope": "slope is not", "curvature": "curvature is not"}.get(lie, lie)
    with pytest.raises(LossCheckError, match=message):
        check_loss(_Wrong(lie))
    check_loss(_Wrong("none"))


def test_a_loss_that_is_not_finite_fails_the_check() -> None:
    class Overflowing(LogisticLoss):
        def value(self, z: RealArray, y: RealArray) -> RealArray:
            with np.errstate(over="ignore"):
                return np.log1p(np.exp(-y * z))

    with pytest.raises(LossCheckError, match="finite"):
        check_loss(Overflowing())


def test_labels_are_checked() -> None:
    with pytest.raises(InvalidInputError, match=r"LogisticLoss must be -1 or \+1"):
        LogisticLoss().check_labels([0, 1])
    with pytest.raises(InvalidInputError, match=r"in \[0, 1\]"):
        ProbitSquaredLoss().check_labels([0.5, 1.5])
    with pytest.raises(InvalidInputError, match="finite"):
        HuberLoss(1.0).check_labels([math.nan])
    with pytest.raises(InvalidInputError, match="threshold"):
        HuberLoss(0.0)


def test_squared_loss_is_exact_squares_within_its_public_bound() -> None:
    loss = SquaredLoss.within(set_radius=2.0, row_norm=0.5, label_bound=3.0)
    z, y = np.array([1.0, -1.0]), np.array([-3.0, 3.0])  # the extremes: residuals of 4
    np.testing.assert_allclose(loss.value(z, y), 8.0)
    np.testing.assert_allclose(loss.slope(z, y), [4.0, -4.0])
    assert loss.lipschitz == 4.0


def test_a_penalty_has_the_value_of_its_definition() -> None:
    w = np.array([3.0, -1.0, 0.5])
    assert ElasticNet(l1=0.2, l2=0.4).value(w) == pytest.approx(0.2 * 4.5 + 0.2 * 10.25)


def test_a_negative_penalty_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        lasso(-1.0)


def problem(kind: str, loss: Loss, norm_kind: str = "l2", n: int = 301, d: int = 7) -> EmpiricalRisk:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, d)) * (rng.uniform(size=(n, d)) < 0.6)
    y = labels_of(loss, n, rng)
    X = {
        "dense": X,
        "sparse": sp.csr_array(X),
        "float32": X.astype(np.float32),
        "fortran": np.asfortranarray(X),
    }[kind]
    return EmpiricalRisk(X, y, loss, row_norm=1.5, norm=norm_kind)


def plain_rows(risk: EmpiricalRisk) -> NDArray[np.float64]:
    """The clipped rows, one by one."""
    dense = risk.X.toarray() if sp.issparse(risk.X) else risk.X
    order = 2 if risk.facts.norm == "l2" else math.inf
    return np.array(
        [
            row * min(1.0, risk.facts.row_norm / max(float(np.linalg.norm(row, order)), 1e-300))
            for row in dense
        ],
        dtype=np.float64,
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32", "fortran"])
@pytest.mark.parametrize("norm_kind", ["l2", "linf"])
@pytest.mark.parametrize("loss", [LogisticLoss(), BiweightLoss()], ids=str)
def test_risk_gradient_and_hessian_row_by_row(kind: str, norm_kind: str, loss: Loss) -> None:
    risk = problem(kind, loss, norm_kind)
    rng = np.random.default_rng(3)
    w, v = rng.standard_normal((2, 7))
    rows, y = plain_rows(risk), risk.y.astype(np.float64)
    z = rows @ w
    tolerance = {"rtol": 3e-5, "atol": 1e-6} if kind == "float32" else {"rtol": 1e-12, "atol": 1e-14}
    value = np.mean([definition(loss, a, b) for a, b in zip(z.tolist(), y.tolist(), strict=True)])
    np.testing.assert_allclose(risk.value(w), value, **tolerance)
    gradient = sum(s * row for s, row in zip(loss.slope(z, y), rows, strict=True)) / len(rows)
    np.testing.assert_allclose(risk.gradient(w), gradient, **tolerance)
    hessian = (rows.T * loss.curvature(z, y)) @ rows / len(rows)
    np.testing.assert_allclose(risk.hessian_vector(w, v), hessian @ v, **tolerance)
    np.testing.assert_allclose(risk.hessian(w), hessian, **tolerance)
    some = np.array([3, 3, 250, 0])
    expected = sum(loss.slope(z, y)[i] * rows[i] for i in some)
    np.testing.assert_allclose(risk.gradient_sum(w, some), expected, **tolerance)
    moved = sum((loss.slope(z, y)[i] - loss.slope(rows @ v, y)[i]) * rows[i] for i in some)
    np.testing.assert_allclose(risk.difference_sum(w, v, some), moved, **tolerance)
    np.testing.assert_allclose(risk.predictions(w), z, **tolerance)


def test_blocks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = problem("dense", LogisticLoss())
    w = np.linspace(-1, 1, 7)
    expected = whole.gradient(w)
    monkeypatch.setattr("privopt.problems.convex.passes.BLOCK_BYTES", 7 * 8 * 10)  # ten rows at a time
    blocked = problem("dense", LogisticLoss())
    np.testing.assert_allclose(blocked.gradient(w), expected, rtol=1e-13)


@pytest.mark.parametrize("norm_kind", ["l2", "linf"])
def test_public_constants_bound_every_record(norm_kind: str) -> None:
    """Replacing a record by an enormous one moves the gradient sum by at most 2 G: clipping holds."""
    rng = np.random.default_rng(4)
    for loss in LOSSES:
        risk = problem("dense", loss, norm_kind)
        X = risk.X.copy()
        X[5] = rng.standard_normal(7) * 1e6
        y = risk.y.copy()
        other = EmpiricalRisk(X, y, loss, row_norm=1.5, norm=norm_kind)
        for _ in range(20):
            w, u = rng.standard_normal((2, 7)) * 5
            moved = (risk.gradient(w) - other.gradient(w)) * risk.facts.n_records
            assert np.linalg.norm(moved) <= 2 * risk.facts.gradient_bound
            assert np.max(np.abs(moved)) <= 2 * risk.facts.gradient_bound_linf
            change = np.linalg.norm(risk.gradient(w) - risk.gradient(u))
            assert change <= risk.facts.smoothness * np.linalg.norm(w - u) * (1 + 1e-9)
            record = other.gradient_sum(w, np.array([5]))
            assert np.linalg.norm(record, 2 if norm_kind == "l2" else math.inf) <= loss.lipschitz * 1.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_given_twice_that_cancel_hide_no_other_record(dtype: type) -> None:
    """A CSR row of +c, -c in one place is a row of 0. Added as stored, c would wipe out the sum before it."""
    n = 100
    plain = sp.csr_array(np.ones((n, 1), dtype=dtype))
    values = np.append(np.ones(n - 1), [1e18, -1e18]).astype(dtype)
    hidden = sp.csr_array((values, np.zeros(n + 1, dtype=int), np.append(np.arange(n), n + 1)), shape=(n, 1))
    one, other = (EmpiricalRisk(X, np.ones(n), LogisticLoss()) for X in (plain, hidden))
    assert not hidden.has_canonical_format  # the caller's matrix is left alone
    everyone = np.arange(n)
    for w in (np.zeros(1), np.ones(1)):
        assert np.linalg.norm(one.gradient(w) - other.gradient(w)) <= one.facts.sensitivity
        sums = [risk.gradient_sum(w, everyone) for risk in (one, other)]
        assert np.linalg.norm(sums[0] - sums[1]) <= n * one.facts.sensitivity


@pytest.mark.parametrize(("dtype", "size", "norm"), [(np.float32, 1e38, "l2"), (np.float64, 1e308, "linf")])
def test_rows_too_long_to_be_scaled_are_refused(dtype: type, size: float, norm: RowNorm) -> None:
    """row_norm / norm would be a subnormal number: with its few digits, a row 12% too long was let in."""
    X = np.zeros((2, 4), dtype=dtype)
    X[0] = size
    with pytest.raises(InvalidInputError, match="too long"):
        EmpiricalRisk(X, np.ones(2), LogisticLoss(), row_norm=1e-6, norm=norm)
    X[0] = size**0.3
    risk = EmpiricalRisk(X, np.ones(2), LogisticLoss(), row_norm=1e-6, norm=norm)
    record = risk.gradient_sum(np.zeros(4), np.array([0]))
    assert 0.5e-6 * (1 - 1e-5) <= np.linalg.norm(record, 2 if norm == "l2" else math.inf) <= 0.5e-6


def test_a_wide_sparse_matrix_is_never_densified() -> None:
    """10^6 columns and 2,000 rows would be 16 GB if densified."""
    rng = np.random.default_rng(5)
    X = sp.random_array((2_000, 10**6), density=1e-5, format="csr", rng=rng)
    risk = EmpiricalRisk(X, rng.choice([-1.0, 1.0], 2_000), LogisticLoss(), norm="linf")
    gradient = risk.gradient(np.zeros(10**6))
    assert 0 < np.count_nonzero(gradient) <= X.nnz


def test_bad_inputs_are_refused() -> None:
    X, y = np.eye(3), np.ones(3)
    with pytest.raises(InvalidInputError, match="finite"):
        EmpiricalRisk(np.where(np.eye(3) == 1, np.nan, 0.0), y, LogisticLoss())
    with pytest.raises(InvalidInputError, match=r"labels of shape \(3,\)"):
        EmpiricalRisk(X, np.ones(4), LogisticLoss())
    with pytest.raises(InvalidInputError, match="row_norm"):
        EmpiricalRisk(X, y, LogisticLoss(), row_norm=0.0)
    with pytest.raises(InvalidInputError, match="row_norm"):  # squares of such rows are 0
        EmpiricalRisk(X, y, LogisticLoss(), row_norm=1e-170)
    with pytest.raises(InvalidInputError, match="n >= 1"):
        EmpiricalRisk(np.zeros((0, 3)), np.ones(0), LogisticLoss())
    with pytest.raises(InvalidInputError, match=r"shape \(3,\)"):
        EmpiricalRisk(X, y, LogisticLoss()).gradient(np.zeros(4))


@pytest.mark.parametrize(
    "loss", [LogisticLoss(), SigmoidLoss(), SigmoidSquaredLoss(), ProbitSquaredLoss(), QuarticLoss()]
)
def test_no_mean_slope_of_the_curvature_exceeds_its_constant(loss: Loss) -> None:
    """A difference of curvatures over 1e-4 is off by 1e-12 at most, and constants are rounded up at 1e-8."""
    z = np.arange(-80_000, 80_001) * 1e-4
    steepest = 0.0
    for y in (-1.0, 1.0) if loss.labels is Labels.SIGN else np.linspace(0, 1, 5):
        steepest = max(steepest, float(np.max(np.abs(np.diff(loss.curvature(z, np.full_like(z, y)))))) / 1e-4)
    assert 0.999 * loss.curvature_lipschitz <= steepest <= loss.curvature_lipschitz * (1 + 1e-10)


class FromTheMean(LogisticLoss):
    def slope(self, z: Any, y: Any) -> Any:
        return super().slope(z - np.mean(z) if len(z) > 1 else z, y)


class Momentum(LogisticLoss):
    """Half of the last slope is added to the next."""

    def slope(self, z: Any, y: Any) -> Any:
        found = super().slope(z, y) + 0.5 * float(np.mean(getattr(self, "last", 0.0)))
        object.__setattr__(self, "last", found)
        return found


@pytest.mark.parametrize("loss", [FromTheMean(), Momentum()])
def test_a_loss_of_a_record_depends_on_that_record_alone(loss: Loss) -> None:
    with pytest.raises(LossCheckError, match="slope depends on other predictions than its own"):
        check_loss(loss)

"""Public facts of a risk: each bound is attained by a record that the definition admits, and by no more."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InvalidInputError

BOX = Box(np.full(4, -1.5), np.full(4, 1.5))


@pytest.mark.parametrize("convex_set", [L1Ball(4, 3.0), Simplex(4, 3.0), L2Ball(4, 3.0), BOX])
def test_smoothness_in_a_set_is_the_largest_second_derivative_along_its_points(convex_set: Any) -> None:
    """u' (phi'' a a') u over rows a of the norm and points u of the set; a curvature of 1 is Huber's at 0."""
    rng = np.random.default_rng(0)
    corners = 0.7 * np.array(np.meshgrid(*[[-1, 1]] * 4)).reshape(4, -1).T
    for norm, rows in (("linf", corners), ("l2", 0.7 * _directions(rng))):
        points = 3.0 * np.vstack([np.eye(4), -np.eye(4)])  # of |.|_1 = 3; those of a simplex are among them
        if isinstance(convex_set, L2Ball | Box):
            points = np.vstack([3.0 * _directions(rng), 1.5 * corners / 0.7])  # all within radius 3 = 1.5 * 2
        facts = RiskFacts(10, 4, HuberLoss(1.0), row_norm=0.7, norm=norm)
        largest = float(np.max((points @ rows.T) ** 2))
        claimed = facts.smoothness_in(convex_set)
        assert largest <= claimed * (1 + 1e-12)
        assert claimed <= largest * (1 + 1e-9)


def _directions(rng: np.random.Generator) -> Any:
    """Unit vectors: random ones, the axes and the corners' directions."""
    random = rng.standard_normal((200, 4))
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    every = np.vstack([random, np.eye(4), corners])
    return every / np.linalg.norm(every, axis=1, keepdims=True)


def test_rows_are_bounded_by_one_in_l2_unless_something_else_is_said() -> None:
    """The defaults that the docstrings state: a record of length 1 stays, a longer one is shortened to it."""
    assert RiskFacts(3, 2, LogisticLoss()) == RiskFacts(3, 2, LogisticLoss(), 1.0, "l2", 0.0)
    risk = EmpiricalRisk([[0.6, 0.8], [6.0, 8.0], [0.3, 0.4]], [1, 1, 1], LogisticLoss())
    np.testing.assert_allclose(risk.predictions([0.6, 0.8]), [1.0, 1.0, 0.5], rtol=1e-12)
    assert risk.facts == RiskFacts(3, 2, LogisticLoss())


def test_the_ends_of_the_range_of_row_norms_are_in_it() -> None:
    for end in (1e-100, 1e100):
        assert RiskFacts(3, 2, LogisticLoss(), row_norm=end).row_norm == end
    for beyond in (math.nextafter(1e-100, 0), math.nextafter(1e100, math.inf), -1.0, math.nan):
        with pytest.raises(InvalidInputError, match="row_norm"):
            RiskFacts(3, 2, LogisticLoss(), row_norm=beyond)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"norm": "l1"}, "'l2' or 'linf'"),
        ({"norm": 2}, "'l2' or 'linf'"),
        ({"constant": -0.1}, "from 0 to row_norm"),
        ({"constant": 1.1}, "from 0 to row_norm"),
        ({"n_records": 0}, r"shape \(n, d\)"),
        ({"dimension": 0}, r"shape \(n, d\)"),
        ({"n_records": 2.5}, r"shape \(n, d\)"),
        ({"loss": "logistic"}, "must be a Loss"),
    ],
)
def test_facts_that_no_risk_has_are_refused(change: dict[str, Any], match: str) -> None:
    facts = {"n_records": 3, "dimension": 2, "loss": LogisticLoss()} | change
    with pytest.raises(InvalidInputError, match=match):
        RiskFacts(**facts)


@pytest.mark.parametrize(
    "X", [np.zeros(3), np.zeros((3, 0)), np.zeros((1, 3, 2)), 5.0, sp.csr_array((3, 0)), [["a"]], [[1j]]]
)
def test_arrays_that_are_no_records_are_refused(X: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"shape \(n, d\)"):
        EmpiricalRisk(X, np.ones(3), LogisticLoss())


def test_a_copy_in_float64_is_made_of_float32_data_alone() -> None:
    X = np.random.default_rng(1).standard_normal((20, 3))
    narrow = EmpiricalRisk(X.astype(np.float32), X[:, 0], HuberLoss(100.0), row_norm=2.0, norm="linf")
    wide = narrow.in_float64()
    assert wide.X.dtype == np.float64
    assert wide.facts == narrow.facts
    assert wide.in_float64() is wide
    w = np.array([0.3, -0.2, 0.1])
    rows = wide.X * np.minimum(1, 2.0 / np.abs(wide.X).max(axis=1))[:, None]
    assert wide.value(w) == pytest.approx(np.mean((rows @ w - wide.y) ** 2) / 2, rel=1e-9)


@pytest.mark.parametrize("n", [1, 1000, 10**7])
def test_rounding_pays_for_sums_of_n_and_for_slopes_that_move_with_their_row(n: int) -> None:
    """In units of the bound: n + 2 roundings of a sum, a product with a count, half of 2^-50 a side."""
    facts = RiskFacts(n, 3, LogisticLoss(), 1.0, "l2")
    owed = Fraction(n + 3, 2**53) + Fraction(1, 2**51)
    assert owed <= Fraction(facts.rounding)
    assert facts.sensitivity >= 2 * facts.gradient_bound * (1 / n + float(owed)) * (1 - 1e-15)

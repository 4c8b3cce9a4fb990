"""The kit for oracles of tilted risks: ours pass it, deliberately wrong ones fail it; losses with a kink."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.oracles.convex.tilted import TiltedAnswer, TiltedProposal
from privopt.oracles.convex.tilted_conformance import check_tilted_oracle, tilted_instances
from privopt.oracles.convex.tilted_highs import LinearTilted, QuadraticTilted
from privopt.oracles.convex.tilted_lbfgs import SmoothTilted
from privopt.oracles.convex.tilted_select import tilted_minimizer
from privopt.oracles.errors import ConformanceError
from privopt.oracles.limits import Limits, Watch
from privopt.problems.convex.kinked_losses import AbsoluteLoss, HingeLoss
from privopt.problems.convex.loss_check import check_loss
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box


def test_ours_pass() -> None:
    assert not check_tilted_oracle(tilted_minimizer).skipped
    scipy = check_tilted_oracle(SmoothTilted)
    assert "LogisticLoss over a box: gaps" in scipy.passed
    assert any("HingeLoss" in skipped for skipped in scipy.skipped)
    assert "SquaredLoss over a fixed coordinate: limits" in check_tilted_oracle(QuadraticTilted).passed


@dataclass(frozen=True, eq=False)
class Wrong(LinearTilted):
    """The linear program, and something wrong with it."""

    kind: ClassVar[str] = ""
    asked: ClassVar[itertools.count[int]] = itertools.count()

    def propose(self, tilt: Vector, watch: Watch) -> TiltedProposal:
        found = super().propose(tilt, watch)
        match self.kind:
            case "gives up":
                return TiltedProposal(np.zeros(3))
            case "remembers":
                return TiltedProposal(found.point + 1e-9 * next(self.asked), found.multipliers)
            case "draws":
                np.random.rand()  # noqa: NPY002
            case "no point":
                return TiltedProposal(np.full(3, np.nan))
        return found

    def solve(self, tilt: Vector, limits: Limits | None = None) -> TiltedAnswer:
        if self.kind == "takes NaN":
            return super().solve(np.nan_to_num(tilt)[:3], limits)
        found = super().solve(tilt, limits)
        if self.kind == "its own word":
            return TiltedAnswer(np.array(self.box.low), 0.0, found.status, self.name, 0.0)
        return found


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("gives up", "OPTIMAL with a gap"),
        ("remembers", "asked again"),
        ("draws", "random state of numpy"),
        ("no point", "not a point"),
        ("takes NaN", "NaN was accepted"),
        ("its own word", "better"),
    ],
)
def test_wrong_ones_fail(kind: str, check: str) -> None:
    hinge = [i for i in tilted_instances() if "HingeLoss over a box" in i.name]
    wrong: Any = type("Wrong", (Wrong,), {"kind": kind})
    with pytest.raises(ConformanceError, match=check):
        check_tilted_oracle(wrong, instances=hinge)


@pytest.mark.parametrize("loss", [HingeLoss(), AbsoluteLoss()], ids=str)
def test_losses_with_a_kink_are_what_they_say(loss: HingeLoss | AbsoluteLoss) -> None:
    check_loss(loss)
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=500), rng.choice([-1.0, 1.0], 500)
    expected = np.maximum(0, 1 - y * z) if isinstance(loss, HingeLoss) else np.abs(z - y)
    np.testing.assert_allclose(loss.value(z, y), expected, rtol=1e-15, atol=1e-15)
    for v in rng.normal(size=(20, 500)):  # a subgradient, kinks included
        assert np.all(loss.value(v, y) >= loss.value(z, y) + loss.slope(z, y) * (v - z) - 1e-12)
        assert np.all(loss.value(v, y) >= loss.value(y, y) + loss.slope(y, y) * (v - y) - 1e-12)
    with pytest.raises(PrivacyParameterError, match="kink"):
        DPGradientDescent.plan(RiskFacts(100, 3, loss), epsilon=1.0, delta=1e-3)


@pytest.mark.parametrize("loss", [HingeLoss(), AbsoluteLoss()], ids=str)
def test_bad_multipliers_cost_a_gap(loss: HingeLoss | AbsoluteLoss) -> None:
    """Whatever the solver says of s, the gap covers by how much any point is better."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (40, 2)), rng.choice([-1.0, 1.0], 40)
    oracle = LinearTilted(EmpiricalRisk(X, y, loss, norm="linf"), Box([-2, -2], [2, 2]))
    spread = rng.uniform(-2, 2, (400, 2))

    def objective(w: Vector, tilt: Vector) -> float:
        return float(np.sum(loss.value(X @ w, y)) - tilt @ w)

    for size in (0.3, 1.0, 30.0):
        for w in rng.uniform(-2, 2, (20, 2)):
            tilt, s = rng.exponential(5.0, 2), size * rng.normal(size=40)
            gap = oracle._gap(w, tilt, s)
            assert gap >= objective(w, tilt) - min(objective(v, tilt) for v in spread) - 1e-9
            # It is the value less that of the dual at the s that are kept.
            kept = np.clip(s, *loss.slopes(y))
            slope = X.T @ kept - tilt
            dual = -kept @ y - 2 * np.sum(np.abs(slope))
            assert gap == pytest.approx(objective(w, tilt) - dual, abs=1e-6)


def test_squares_beyond_their_bound_cost_a_gap() -> None:
    """|residual| up to 3 where squares stop at 1: what the quadratic program does not know is in the gap."""
    risk = EmpiricalRisk(np.ones((2, 1)), [3.0, 0.0], SquaredLoss(1.0), norm="linf")
    answer = QuadraticTilted(risk, Box([0.0], [2.0])).solve(np.zeros(1))
    assert answer.point == pytest.approx([1.5])
    # |z - 3| - 1/2 and z - 1/2: 2 and anything else beyond 1 are as good as 1.5; at 1.5 slopes cancel.
    assert answer.gap < 1e-6
    skewed = EmpiricalRisk(np.ones((3, 1)), [9.0, 0.0, 0.0], SquaredLoss(1.0), norm="linf")
    answer = QuadraticTilted(skewed, Box([0.0], [5.0])).solve(np.zeros(1))
    assert answer.point == pytest.approx([3.0])
    # The slope there is 1 + 1 - 1: to 0 and back, 3; the true minimum is at 1/2, better by 2.25 + 1/4.
    assert answer.gap == pytest.approx(3.0, abs=1e-6)

"""Time limits of fits: what a preparation takes, compiling included, is taken off the time of the search."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators import tree
from privopt.mechanisms.nonconvex import net
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.oracles import limits as limits_module
from privopt.oracles.errors import CertificateError, UnfinishedDrawError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import Proposal, Query, Solver
from privopt.problems import Numeric, Schema
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L2Ball

X, Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0]]), np.array([1, -1, 1, -1])
FACTS: dict[str, Any] = {"schema": Schema([Numeric("x0", 0, 1), Numeric("x1", 0, 1)]), "classes": (-1, 1)}
PREPARING = 7.0


class Clock:
    """A clock that is moved by hand, and by a microsecond whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def slow(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which takes seven seconds."""

        def slowly(*args: Any, **options: Any) -> Any:
            self.now += PREPARING
            return prepare(*args, **options)

        return slowly


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(limits_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def test_a_card_is_searched_in_the_time_that_preparing_leaves(clock: Clock) -> None:
    left: list[float | None] = []

    class Slow(EnumerationOracle):
        def build(self, problem: Any, task: Any) -> Solver:
            solve = clock.slow(super().build)(problem, task)

            def watched(query: Query) -> Proposal:
                left.append(query.watch.remaining)
                return solve(query)

            return watched

    def fit(seconds: float) -> None:
        PrivateHalfspaceClassifier(
            mechanism="opdisc", oracle=Slow(), delta=1e-3, limits=Limits(seconds=seconds), **FACTS
        ).fit(X, Y)

    fit(10.0)
    assert left[0] == pytest.approx(10.0 - PREPARING, abs=1e-3)
    with pytest.raises(CertificateError, match="TIME_LIMIT"):
        fit(5.0)


def test_a_tree_is_drawn_in_the_time_that_preparing_leaves(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "prepare_oracle", clock.slow(tree.prepare_oracle))
    tree.PrivateTreeClassifier(limits=Limits(seconds=10.0), **FACTS).fit(X, Y)
    with pytest.raises(UnfinishedDrawError):
        tree.PrivateTreeClassifier(limits=Limits(seconds=5.0), **FACTS).fit(X, Y)


def test_a_net_is_drawn_from_in_the_time_that_preparing_leaves(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = net.gibbs_oracle

    def slow(name: str) -> Any:
        oracle = found(name)
        return SimpleNamespace(prepare=clock.slow(oracle.prepare))

    monkeypatch.setattr(net, "gibbs_oracle", slow)
    risk = EmpiricalRisk(X.astype(float), Y, LogisticLoss(), row_norm=2.0)
    plan = NetMechanism.plan(risk.facts, epsilon=1.0)
    plan.release(risk, limits=Limits(seconds=10.0))
    with pytest.raises(UnfinishedDrawError):
        plan.release(risk, limits=Limits(seconds=5.0))


def test_a_late_look_at_curvature_is_a_test_that_did_not_pass() -> None:
    """It was an InvalidInputError: no time at all is no time limit."""
    risk = EmpiricalRisk(X.astype(float), Y, LogisticLoss(), row_norm=2.0)
    plan = DPConstrainedStationaryPoint.plan(risk.facts, L2Ball(2, 1.0), epsilon=1.0, delta=1e-3)
    late = Watch(Limits(seconds=1e-9))
    assert late.remaining == 0
    w = np.array([0.1, 0.2])
    found, _ = plan._least_curvature(0, w, -w, np.diag([-1.0, 2.0]), 0.1, late)
    assert found.bound <= found.curvature

"""Time limits of fits: what a preparation takes, compiling included, is taken off the time of the search."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
)
from privopt.mechanisms.convex import sufficient_statistics
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.estimators import tree
from privopt.mechanisms.nonconvex import net
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.oracles import limits as limits_module
from privopt.oracles.certificate import Status
from privopt.oracles.errors import CertificateError, UnfinishedBuildError, UnfinishedDrawError
from privopt.oracles.limits import Limits, Watch, within
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import Proposal, Query, Solver
from privopt.oracles.minimize.native import worker as native_worker
from privopt.problems import Numeric, Schema
from privopt.problems.convex import passes
from privopt.problems.convex import risk as risk_module
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.parts import Blocks
from privopt.problems.tables.partitions import DaskParts

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
        return SimpleNamespace(prepare=clock.slow(oracle.prepare), all_planned_refusals=lambda facts: [])

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


class Patience:
    """A ``cancelled`` that says stop from its k-th call on."""

    def __init__(self, k: int) -> None:
        self.left = k

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


@pytest.fixture
def endless() -> Iterator[Callable[..., Any]]:
    """A function that ends with the test."""
    over = threading.Event()
    yield lambda *args, **options: over.wait()
    over.set()


@pytest.mark.parametrize("limits", [Limits(seconds=1e-3), Limits(cancelled=Patience(3))])
def test_work_that_asks_nobody_is_left_behind_at_a_limit(limits: Limits, endless: Callable[..., Any]) -> None:
    with pytest.raises(UnfinishedBuildError, match=r"stopped by (TIME_LIMIT|INTERRUPTED) .* before"):
        within(limits.start(), endless)


@pytest.mark.parametrize("limits", [Limits(), Limits(seconds=1e6), Limits(cancelled=lambda: False)])
def test_work_that_ends_gives_its_result_or_its_error(limits: Limits) -> None:
    assert within(limits.start(), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(limits.start(), lambda: 1 // 0)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        within(limits.start(), lambda: np.ones(1) / np.zeros(1))


@pytest.mark.parametrize("mechanism", ["opdisc", "rspm"])
def test_a_fit_whose_problem_is_never_built_ends_and_stays_paid(
    mechanism: str, endless: Callable[..., Any], tmp_path: Path
) -> None:
    class Endless(EnumerationOracle):
        build = endless

    book = Ledger.create(tmp_path / "ledger", 1.0, 0.5)
    limits = Limits(cancelled=Patience(3))
    model = PrivateHalfspaceClassifier(
        mechanism=mechanism, oracle=Endless(), delta=1e-3, limits=limits, ledger=book, **FACTS
    )
    with pytest.raises(UnfinishedBuildError) as caught:
        model.fit(X, Y)
    assert any("counts as spent" in note for note in caught.value.__notes__)
    assert [e.state for e in book.entries()] == ["reserved"]


def test_a_tree_whose_sampler_is_never_built_ends(
    endless: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "prepare_oracle", endless)
    with pytest.raises(UnfinishedBuildError):
        tree.PrivateTreeClassifier(limits=Limits(cancelled=Patience(3)), **FACTS).fit(X, Y)


_PASSES = "privopt.problems.convex.passes"


@pytest.mark.parametrize(
    ("mechanism", "kernel"),
    [
        ("dp-pgd", f"{_PASSES}._predict_dense"),
        ("objective-perturbation", f"{_PASSES}._add_dense"),
        ("dp-sgd", f"{_PASSES}._predict_each"),
        ("dp-svrg", f"{_PASSES}._predict_each"),
        ("robust-gd", "privopt.problems.convex.soft_truncation.add_soft_dense"),
        ("robust-sgd", "privopt.problems.convex.soft_truncation.add_soft_dense"),
        ("trimmed-gd", "privopt.problems.convex.windows.best_window"),
    ],
)
def test_a_linear_fit_does_not_wait_for_its_compiler(
    mechanism: str, kernel: str, endless: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, endless)
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
    bounded = kernel.startswith(_PASSES)
    model = PrivateLogisticRegression(data_norm=1.0) if bounded else PrivateRobustClassifier()
    model.set_params(classes=(0, 1), mechanism=mechanism, limits=Limits(cancelled=Patience(9)))
    with pytest.raises(UnfinishedBuildError):
        model.fit(rows, labels)


def test_a_search_does_not_wait_for_its_compiler(
    endless: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of tries are compiled in the search, once: at a limit a region goes back with its bound."""
    worker = native_worker._on_a_tiny_region()
    monkeypatch.setattr(native_worker, "compile_tries", endless)
    worker.run.watch, worker.leader = Watch(Limits(cancelled=Patience(3))), True
    worker.run._queue.clear()
    assert worker._nested(5, 0)
    assert worker.run.outcome() is Status.INTERRUPTED
    assert worker.run.bound() == 5


@pytest.mark.parametrize("kind", ["file", "dask"])
def test_a_pass_over_the_parts_of_a_table_ends_at_a_limit(kind: str) -> None:
    """Of fifty parts in a pass those are read that were begun when the limit was reached."""
    read: list[int] = []
    rows, labels = np.tile(X, (50, 1)) / 2, np.tile(Y, 50)
    facts = EmpiricalRisk(rows, labels, LogisticLoss(), row_norm=1.0).facts

    def made(pair: Any) -> PartRisk:
        read.append(1)
        return PartRisk(*map(np.asarray, pair), facts, 1.0)  # type: ignore[misc]

    parts: Any = Blocks((rows, labels), rows=4)
    if kind == "dask":
        arrays = pytest.importorskip("dask.array")
        parts = DaskParts.of(arrays.from_array(rows, (4, 2)), arrays.from_array(labels, 4))
    risk = PartitionedRisk(parts.made(made), facts)
    plan = DPGradientDescent.plan(facts, epsilon=1.0, delta=1e-3, steps=3)
    with pytest.raises(UnfinishedDrawError, match="within a pass over the records: nothing was released"):
        plan.release(risk, limits=Limits(cancelled=lambda: len(read) >= 10))
    assert 10 <= len(read) < 30


@pytest.mark.parametrize("mechanism", ["sufficient-statistics", "screened-statistics", "dp-newton"])
def test_products_of_wide_rows_end_at_a_limit(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments and Hessians are sums over blocks of rows, which asked for no limit until all were added up."""
    read: list[int] = []

    class Read(EmpiricalRisk):
        def bare_rows(self, b: slice) -> Any:
            read.append(1)
            return super().bare_rows(b)

        def _doubles(self, b: slice) -> Any:
            read.append(1)
            return super()._doubles(b)

    monkeypatch.setattr(sufficient_statistics, "_BLOCK", 8)
    monkeypatch.setattr(risk_module, "_COPIED_BYTES", 64)
    risk = Read(np.tile(X, (50, 1)) / 2, np.tile(Y, 50), LogisticLoss(), row_norm=1.0)
    plan = RISK_MECHANISMS[mechanism].plan(risk.facts, epsilon=1.0, delta=1e-3)
    with pytest.raises(UnfinishedDrawError, match="within a pass over the records: nothing was released"):
        plan.release(risk, limits=Limits(cancelled=lambda: len(read) >= 10))
    assert len(read) == 10


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pass_over_records_in_memory_ends_at_a_limit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a gradient method asked for no limit before all records were read."""
    read: list[int] = []

    class Read(EmpiricalRisk):
        def _predict(self, b: slice, w: Any) -> Any:
            read.append(1)
            return super()._predict(b, w)

    for name, value in {"_LEAST_STORED": 1, "BLOCK_BYTES": 64, "_MOST_PARTS": 40}.items():
        monkeypatch.setattr(passes, name, value)
    monkeypatch.setattr(passes, "threads_available", lambda: threads)
    risk = Read(np.tile(X, (50, 1)) / 2, np.tile(Y, 50), LogisticLoss(), row_norm=1.0)
    plan = DPGradientDescent.plan(risk.facts, epsilon=1.0, delta=1e-3, steps=1)
    plan.release(risk)
    blocks, read[:] = len(read), []
    with pytest.raises(UnfinishedDrawError, match="within a pass over the records: nothing was released"):
        plan.release(risk, limits=Limits(cancelled=lambda: len(read) > 2))
    assert len(read) <= blocks / 2


def test_a_copy_in_float64_ends_at_a_limit_and_is_compiled_for_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minima of float32 records: the copy asked for no limit, and its code was compiled by the first step."""
    kinds: list[str] = []
    add = EmpiricalRisk._add

    def noted(self: EmpiricalRisk, *given: Any) -> None:
        kinds.append(f"{self.X.dtype} of {len(self.y)}")
        add(self, *given)

    monkeypatch.setattr(EmpiricalRisk, "_add", noted)
    monkeypatch.setattr(risk_module, "_COPIED_BYTES", 64)
    rows = (np.tile(X, (50, 1)) / 2).astype(np.float32)
    risk = EmpiricalRisk(rows, np.tile(Y, 50), LogisticLoss(), row_norm=1.0)
    plan = ObjectivePerturbation.plan(risk.facts, epsilon=1.0, delta=1e-3)
    asked: list[int] = []
    with pytest.raises(UnfinishedDrawError, match="within a pass over the records: nothing was released"):
        plan.release(risk, limits=Limits(cancelled=lambda: bool(asked.append(1)) or len(asked) > 5))
    assert kinds == ["float64 of 1"]
    assert len(asked) == 6

"""Compiled code on problems at its edges. `make test-bounds` runs this, and all other tests of compiled code,
with every access to an array checked: without the check a wrong index gives wrong numbers, or none."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.oracles.draw.conformance import draw_instances
from privopt.oracles.draw.elimination import GibbsElimination
from privopt.oracles.draw.interface import GibbsOracle, Law
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.minimize.interval import IntervalOracle
from privopt.oracles.minimize.native import worker
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.select import gibbs_oracle
from privopt.oracles.task import Task
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation

ROOT = Path(__file__).resolve().parents[2]
MEANS = "tests/mechanisms/heavy_tails/test_means.py"
# What is compiled, and the tests of it that run with every index checked.
KERNELS = {
    "oracles/cells/regions.py": "tests/oracles/cells",
    "oracles/cells/structure.py": "tests/oracles/cells",
    "oracles/draw/branching_masses.py": "tests/oracles/draw/test_branching.py",
    "oracles/draw/mass_bounds.py": "tests/oracles/test_compiled.py",
    "oracles/draw/subset_proposals.py": "tests/oracles/draw/test_supports.py",
    "oracles/draw/sum_product.py": "tests/oracles/test_compiled.py",
    "oracles/minimize/interval.py": "tests/oracles/test_compiled.py",
    "oracles/minimize/native/bounds.py": "tests/oracles/test_compiled.py",
    "oracles/minimize/native/descent.py": "tests/oracles/test_compiled.py",
    "oracles/minimize/native/nested.py": "tests/oracles/minimize/test_nested.py",
    "oracles/minimize/native/search.py": "tests/oracles/test_compiled.py",
    "oracles/minimize/order.py": "tests/oracles/test_compiled.py",
    "problems/convex/passes.py": "tests/problems/convex/test_passes.py",
    "problems/convex/soft_truncation.py": "tests/problems/convex/test_soft_truncation.py",
    "problems/convex/sparse_columns.py": "tests/mechanisms/convex/test_sparse_frank_wolfe.py",
    "problems/convex/windows.py": f"{MEANS}::test_halving_finds_what_all_pairs_find",
    "problems/discrete/conjunction_counts.py": "tests/problems/discrete/test_branching.py",
    "problems/discrete/restricted_loss.py": "tests/problems/discrete/test_supports.py",
}


def test_all_that_is_compiled_runs_with_every_index_checked() -> None:
    """A module with kernels that is not named here has tests to be named in the Makefile."""
    found = {
        path.relative_to(ROOT).as_posix()
        for wing in ("problems", "oracles", "mechanisms")
        for path in (ROOT / wing).rglob("*.py")
        if re.search(r"@(numba\.)?(n?jit|inner|vectorize|guvectorize|cfunc)\b", path.read_text("utf-8"))
    }
    assert found == set(KERNELS)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    checked = re.search(r"^COMPILED := (.*)$", makefile, re.MULTILINE)
    assert checked is not None
    assert set(KERNELS.values()) <= set(checked.group(1).split())


class Bits:
    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, n, dtype=np.uint64)


def one_hot(n: int, blocks: tuple[int, ...], scale: int = 1, seed: int = 0) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return np.hstack([scale * np.eye(size, dtype=np.int64)[rng.integers(0, size, n)] for size in blocks])


def labels(n: int, seed: int = 1) -> NDArray[np.int64]:
    return np.random.default_rng(seed).choice([-1, 1], n)


def edges() -> dict[str, ZeroOneHalfspace]:
    """Small problems at the edges of what is taken."""
    numeric = np.random.default_rng(2).integers(-9, 10, (40, 2))
    mixed = np.hstack([one_hot(40, (3, 2), scale=5), numeric])
    signs = IntegerLattice(-1, 1, dimension=7)
    planted = np.where(one_hot(900, (3, 3)) @ np.array([1, 0, -1, 1, -1, 0]) > 0, 1, -1)
    return {
        "one record": ZeroOneHalfspace([[1, 0, 1]], [1], IntegerLattice(-1, 1, dimension=3)),
        "two records that contradict": ZeroOneHalfspace(
            [[1, 0, 1], [1, 0, 1]], [1, -1], IntegerLattice(-1, 1, dimension=3)
        ),
        "columns of zeros": ZeroOneHalfspace(
            np.hstack([one_hot(9, (2,)), np.zeros((9, 2), dtype=np.int64)]),
            labels(9),
            IntegerLattice(-1, 1, dimension=4),
        ),
        "one point": ZeroOneHalfspace(one_hot(9, (3,)), labels(9), IntegerLattice([1, -1, 0], [1, -1, 0])),
        "weights that cannot move": ZeroOneHalfspace(
            one_hot(30, (2, 3)), labels(30), IntegerLattice([0, -1, 1, -2, 0], [0, 1, 1, 2, 0])
        ),
        "a ball with little room": ZeroOneHalfspace(
            mixed, labels(40), IntegerLattice([-2, 1, -1, -1, 0, -3, 1], [2, 2, 1, 1, 1, 3, 2], radius=2.0)
        ),
        "a ball around one point": ZeroOneHalfspace(
            mixed, labels(40), IntegerLattice([0, 1, 0, 0, 0, 0, 2], [2, 3, 1, 1, 1, 3, 4], radius=5**0.5)
        ),
        "negative indicators": ZeroOneHalfspace(
            np.hstack([one_hot(40, (3, 2), scale=-4), numeric]), labels(40), signs
        ),
        "rows without a level": ZeroOneHalfspace(
            np.vstack([mixed, np.zeros((5, 7), dtype=np.int64)]), labels(45), signs
        ),
        "many levels": ZeroOneHalfspace(
            one_hot(50, (2,)), labels(50), IntegerLattice([-60, -3], [60, 70], radius=64.0)
        ),
        "loud": ZeroOneHalfspace(one_hot(900, (3, 3)), planted, IntegerLattice(-1, 1, dimension=6)),
        "scores beyond 32 bits": ZeroOneHalfspace(
            np.hstack([one_hot(20, (2,), scale=2**33), np.arange(-10, 10)[:, None] * 2**34]),
            labels(20),
            IntegerLattice(-2, 2, dimension=3),
        ),
    }


EDGES = edges()


def perturbations(problem: ZeroOneHalfspace, task: Task) -> list[Perturbation]:
    """None, noise, and costs as large as solvers take."""
    lattice, rng = problem.lattice, np.random.default_rng(3)
    size = lattice.dimension + (task is Task.NORMALIZED)
    make = Perturbation.linear if task is Task.LINEAR else Perturbation.normalized
    most = float(np.max(np.abs([lattice.low, lattice.high])))
    largest = 2.0**29 / max(1.0, most) / size
    return [make(lattice, scale * rng.normal(size=size)) for scale in (0.0, 3.0)] + [
        make(lattice, largest * rng.uniform(-1, 1, size))
    ]


@pytest.mark.parametrize("oracle", [NativeOracle(threads=1), IntervalOracle()], ids=lambda o: o.name)
@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("name", EDGES)
def test_minimisers_at_the_edges(name: str, task: Task, oracle: DiscreteOracle) -> None:
    problem = EDGES[name]
    if oracle.refusals(problem, task):
        pytest.skip("refused")
    ours, reference = oracle.prepare(problem, task), EnumerationOracle().prepare(problem, task)
    for p in perturbations(problem, task):
        found, best = ours.minimize(p, break_ties=True), reference.minimize(p)
        assert found.certificate.fixed_value == best.certificate.fixed_value == found.certificate.fixed_bound
        assert found.require(lexicographic=True).tolist() == best.require().tolist()
        for stop_after in (0, 2):
            asked = itertools.count()
            limits = Limits(cancelled=lambda a=asked, s=stop_after: next(a) >= s)  # type: ignore[misc]
            c = ours.minimize(p, limits).certificate
            assert best.certificate.fixed_value is not None
            assert c.fixed_bound <= best.certificate.fixed_value


def test_what_a_stopped_search_leaves_bounds_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are left after every node, or hold everything that was not searched."""
    bounds: list[int] = []

    def observed(tree: Any, inner: Callable[[Any], int] = worker.trees.open_bound) -> int:
        bounds.append(inner(tree))
        return bounds[-1]

    monkeypatch.setattr(worker, "_SLICE", 1)
    monkeypatch.setattr(worker, "_next_slice", lambda nodes, took: 1)
    monkeypatch.setattr(worker.trees, "open_bound", observed)
    X = one_hot(200, (2, 2, 2, 2), scale=4, seed=1)
    problem = ZeroOneHalfspace(X, labels(200), IntegerLattice(-1, 1, dimension=8, radius=2.0))
    ours, reference = (
        o.prepare(problem, Task.LINEAR) for o in (NativeOracle(threads=1), EnumerationOracle())
    )
    for p in perturbations(problem, Task.LINEAR)[:2]:
        best = reference.minimize(p).certificate.fixed_value
        for stop_after in range(0, 60, 3):
            asked = itertools.count()
            limits = Limits(cancelled=lambda a=asked, s=stop_after: next(a) >= s)  # type: ignore[misc]
            found = ours.minimize(p, limits).certificate
            assert best is not None
            assert found.fixed_bound <= best
    assert len(bounds) > 10


def elimination() -> GibbsOracle:
    return GibbsElimination(threads=1)


def branch() -> GibbsOracle:
    return gibbs_oracle("branch")


@pytest.mark.parametrize("make", [elimination, branch])
@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("name", [*EDGES, *(i.name for i in draw_instances(0))])
def test_samplers_at_the_edges(name: str, law: Law, make: Callable[[], GibbsOracle]) -> None:
    """Any beta, from nothing to where all but the minimum is impossible, and after interruptions."""
    problem = EDGES.get(name) or next(i.problem for i in draw_instances(0) if i.name == name)
    if make().all_refusals(problem, law):
        pytest.skip("refused")
    prepared, source = make().prepare(problem, law), Bits(4)
    least = int(min(problem.losses(points).min() for points in problem.lattice.batches()))
    for beta in (0.0, 1e-300, 1e-6, 0.3, 40.0, 1e4, 2.0**40 / problem.largest_loss):
        for _ in range(3):
            draw = prepared.draw(beta, source)
            assert problem.lattice.contains(draw.point)
            assert beta < 40 or draw.loss == least
        asked = itertools.count()
        limits = Limits(cancelled=lambda a=asked: next(a) >= 3)  # type: ignore[misc]
        try:
            prepared.draw(beta, source, limits)
        except UnfinishedDrawError:
            continue


@pytest.mark.parametrize("make", [elimination, branch])
@pytest.mark.parametrize(("dimension", "width", "radius"), [(4, 32, 64.0), (12, 1, 3.0)])
def test_samplers_at_the_largest_norms_and_many_columns(
    dimension: int, width: int, radius: float, make: Callable[[], GibbsOracle]
) -> None:
    X, y = make_cells(3000, blocks=(dimension // 2, dimension - dimension // 2 - 1), numeric=1, seed=5)
    lattice = IntegerLattice(-width, width, dimension=dimension, radius=radius)
    prepared, source = make().prepare(ZeroOneHalfspace(X, y, lattice)), Bits(6)
    for beta in (0.01, 1.0):
        try:
            draw = prepared.draw(beta, source, Limits(seconds=2.0))
        except UnfinishedDrawError:
            continue
        assert lattice.contains(draw.point)


@pytest.mark.slow
def test_as_many_patterns_as_are_taken() -> None:
    """50,000 cells, the limit: whatever comes first, an answer or the end of time, inside the arrays."""
    patterns = np.random.default_rng(7).permutation(1 << 16)[:50_000]
    X = (patterns[:, None] >> np.arange(16)) & 1
    problem = ZeroOneHalfspace(X, labels(50_000), IntegerLattice(-1, 1, dimension=16))
    for task in Task:
        oracle = NativeOracle(threads=1)
        assert oracle.refusals(problem, task) == []
        c = oracle.prepare(problem, task).minimize(Perturbation.zero(problem.lattice), Limits(seconds=5))
        assert c.certificate.gap >= 0
    prepared = branch().prepare(problem)
    for beta in (1e-4, 0.5):
        try:
            assert prepared.draw(beta, Bits(8), Limits(seconds=5)).loss <= 50_000
        except UnfinishedDrawError:
            continue
    assert math.isfinite(prepared.draw(0.0, Bits(9)).exactness.log_error)

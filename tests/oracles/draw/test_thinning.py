"""Thinning gives exact laws whatever the bounds are, on trees whose masses and bounds are chosen by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privopt.oracles.draw import thinning
from privopt.oracles.draw.arrivals import permute_and_flip
from privopt.oracles.draw.evidence import flip_law, gibbs_law
from privopt.oracles.draw.interface import DrawRequest
from privopt.oracles.draw.mass_bounds import DRAWN, FAILED, OUT_OF_BITS, Words
from privopt.oracles.draw.thinning import Node, ThinnedArrivals, holding_tables
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.discrete.lattice import IntArray


@pytest.fixture(autouse=True)
def _few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tuning and splitting come early."""
    monkeypatch.setattr(thinning, "TRIES", 3)


class Bits:
    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, n, dtype=np.uint64)


@dataclass
class Loose:
    """By how many nats a bound exceeds the log mass of its region: while it is closed, open, and tuned.

    A child is bounded no worse than its tuned parent, so the bounds of children add up to no more.
    """

    closed: float
    open: float
    tuned: float


class Tree:
    """Eight points, three levels of two branches. The left half is bounded worse than the right one."""

    depth, words, most = 3, 64, 100

    def __init__(self, losses: IntArray, beta: float, loose: dict[int, list[Loose]]) -> None:
        self.losses, self.beta, self.loose = losses, beta, loose
        self.opened = self.split = 0
        self.known: dict[tuple[int, ...], tuple[float, IntArray, NDArray[np.float64]]] = {}

    def roots(self, watch: object = None) -> list[Node[str]]:
        return [Node(half, (half,), self.bound(half, (half,), "closed"), None) for half in (0, 1)]

    def below(self, levels: tuple[int, ...]) -> IntArray:
        free = self.depth - len(levels)
        first = sum(v << (self.depth - 1 - i) for i, v in enumerate(levels))
        return np.arange(first, first + (1 << free))

    def law(self, levels: tuple[int, ...]) -> tuple[float, IntArray, NDArray[np.float64]]:
        """The log mass below a node, its points, and their cumulated shares."""
        if levels not in self.known:
            points = self.below(levels)
            mass = float(np.logaddexp.reduce(-self.beta * self.losses[points]))
            self.known[levels] = mass, points, np.cumsum(gibbs_law(self.losses[points], self.beta))
        return self.known[levels]

    def bound(self, half: int, levels: tuple[int, ...], state: str) -> float:
        return self.law(levels)[0] + float(getattr(self.loose[half][len(levels) - 1], state))

    def open(self, node: Node[str]) -> float:
        node.region = "open"
        self.opened += 1
        return self.bound(node.numeric, node.levels, "open")

    def tune(self, node: Node[str], enough: float) -> float:
        node.region, node.tuned, node.tries = "tuned", True, 0
        return self.bound(node.numeric, node.levels, "tuned")

    def children(self, node: Node[str]) -> list[Node[str]]:
        assert len(node.levels) < self.depth, "a point has no children"
        assert node.region == "tuned"
        self.split += 1
        children = [(*node.levels, v) for v in (0, 1)]
        return [Node(node.numeric, c, self.bound(node.numeric, c, "closed"), None) for c in children]

    def propose(
        self,
        node: Node[str],
        words: Words,
        cursor: int,
        elapsed: float,
        horizon: float,
        tries: int,
        levels: IntArray,
    ) -> tuple[int, int, float, int]:
        assert node.region is not None
        mass, points, shares = self.law(node.levels)
        accepted = math.exp(mass - self.bound(node.numeric, node.levels, node.region))
        for made in range(tries):
            if elapsed > horizon:
                return FAILED, cursor, elapsed, made
            if len(words) - cursor < 3:
                return OUT_OF_BITS, cursor, elapsed, made
            accept, place, wait = ((words[cursor : cursor + 3] + 0.5) / 2.0**64).tolist()
            cursor += 3
            if accept < accepted:
                chosen = int(points[min(np.searchsorted(shares, place), len(points) - 1)])
                levels[:] = [(chosen >> (self.depth - 1 - i)) & 1 for i in range(self.depth)]
                return DRAWN, cursor, elapsed, made + 1
            elapsed += -math.log(wait)
        return FAILED, cursor, elapsed, tries

    def point(self, node: Node[str], levels: IntArray) -> IntArray:
        return levels


LOSSES = np.array([3, 1, 0, 2, 1, 4, 0, 2])
TIGHT = [Loose(0.2, 0.1, 0.1), Loose(0.1, 0.1, 0.1), Loose(0.1, 0.0, 0.0)]
SHAPES = {
    "opening gains": {0: [Loose(3.0, 0.2, 0.2), Loose(0.2, 0.2, 0.2), Loose(0.2, 0, 0)], 1: TIGHT},
    "tuning gains": {0: [Loose(9.0, 9.0, 0.5), Loose(0.5, 0.5, 0.5), Loose(0.5, 0, 0)], 1: TIGHT},
    "splitting gains": {0: [Loose(8.0, 8.0, 8.0), Loose(1.0, 1.0, 1.0), Loose(0.5, 0, 0)], 1: TIGHT},
    "leaves gain": {0: [Loose(8.0, 8.0, 8.0), Loose(8.0, 8.0, 8.0), Loose(3.0, 0, 0)], 1: TIGHT},
}


def drawn(tree: Tree, draws: int, seed: int, *, flip: bool = False) -> IntArray:
    """Numbers of the drawn points, each from a fresh frontier."""
    counts = np.zeros(len(tree.losses), dtype=np.int64)
    source, least = Bits(seed), int(tree.losses.min())
    for _ in range(draws):
        request = DrawRequest(tree.beta, source, Limits().start())
        arrivals = ThinnedArrivals(tree, request, tree.roots(), -tree.beta * least if flip else 0.0)

        def excess(levels: IntArray) -> int:
            return int(tree.losses[tree.below(tuple(levels.tolist()))[0]]) - least

        point = permute_and_flip(arrivals, tree.beta, excess) if flip else arrivals.first()
        counts[tree.below(tuple(point.tolist()))[0]] += 1
    return counts


@pytest.mark.parametrize("flip", [False, True], ids=["gibbs", "permute-and-flip"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_law_does_not_depend_on_the_bounds(shape: str, flip: bool) -> None:
    tree, draws = Tree(LOSSES, 0.7, SHAPES[shape]), 800
    counts = drawn(tree, draws, seed=1, flip=flip)
    law = (flip_law if flip else gibbs_law)(LOSSES, 0.7)
    assert stats.chisquare(counts, draws * law).pvalue > 1e-3
    assert tree.opened > 1.5 * draws
    if shape in ("splitting gains", "leaves gain"):
        assert tree.split > 0.5 * draws


@pytest.mark.parametrize("flip", [False, True], ids=["gibbs", "permute-and-flip"])
@pytest.mark.parametrize(("scale", "offset"), [(5000, 0), (0, 10**6), (3, 10**5)])
def test_rates_may_be_of_any_size(scale: int, offset: int, flip: bool) -> None:
    """Masses of exp(-7e5), and bounds that exceed them by thousands of nats: no double holds such rates."""
    loose = [Loose(4000.0, 3000.0, 2000.0), Loose(1500.0, 1000.0, 500.0), Loose(400.0, 0.0, 0.0)]
    losses = scale * LOSSES + offset
    tree, draws = Tree(losses, 0.7, {0: loose, 1: TIGHT}), 250
    counts = drawn(tree, draws, seed=2, flip=flip)
    law = (flip_law if flip else gibbs_law)(losses, 0.7)
    likely = law > 1e-3
    assert counts[~likely].sum() == 0
    assert stats.chisquare(counts[likely], draws * law[likely] / law[likely].sum()).pvalue > 1e-3


def test_a_later_draw_from_a_refined_frontier_follows_the_law() -> None:
    tree, source = Tree(LOSSES, 0.7, SHAPES["leaves gain"]), Bits(3)
    frontier, counts = tree.roots(), np.zeros(8, dtype=np.int64)
    for _ in range(2500):
        arrivals = ThinnedArrivals(tree, DrawRequest(0.7, source, Limits().start()), frontier, 0.0)
        counts[tree.below(tuple(arrivals.first().tolist()))[0]] += 1
        frontier = arrivals.frontier()
    assert tree.split >= 3
    assert stats.chisquare(counts, 2500 * gibbs_law(LOSSES, 0.7)).pvalue > 1e-3


def test_rings_of_a_horizon_come_as_often_as_their_rates_say() -> None:
    """Up to time 2 a point of relative rate r arrivals a Poisson number of times with mean 2r."""
    tree, source, counts, runs = Tree(LOSSES, 0.7, SHAPES["tuning gains"]), Bits(4), np.zeros(8), 300
    for _ in range(runs):
        arrivals = ThinnedArrivals(tree, DrawRequest(0.7, source, Limits().start()), tree.roots(), 0.0)
        while (arrival := arrivals.next(2.0)) is not None:
            assert arrival[0] <= 2.0
            counts[tree.below(tuple(arrival[1].tolist()))[0]] += 1
    mean = runs * 2 * np.exp(-0.7 * LOSSES)
    assert stats.chi2.sf(np.sum((counts - mean) ** 2 / mean), df=8) > 1e-3


def test_an_interrupted_draw_raises() -> None:
    tree = Tree(LOSSES, 0.7, SHAPES["tuning gains"])
    request = DrawRequest(0.7, Bits(5), Limits(cancelled=lambda: True).start())
    with pytest.raises(UnfinishedDrawError, match="INTERRUPTED"):
        ThinnedArrivals(tree, request, tree.roots(), 0.0).first()


def test_a_frontier_that_outgrows_its_room_ends_the_draw_and_a_larger_room_does_not() -> None:
    needed = []
    for seed in range(20):
        tree = Tree(LOSSES, 0.7, SHAPES["leaves gain"])
        arrivals = ThinnedArrivals(tree, DrawRequest(0.7, Bits(seed), Limits().start()), tree.roots(), 0.0)
        held = [0]
        original = arrivals._reserve

        def watched(more: int, arrivals: Any = arrivals, held: list[int] = held, go: Any = original) -> None:
            go(more)
            held.append(arrivals._holding)
            # In these trees a region holds tables from its opening to its split, the one at hand as well.
            assert arrivals._holding >= holding_tables(arrivals.frontier())

        arrivals._reserve = watched  # type: ignore[method-assign]
        point = arrivals.first()
        needed.append((max(held), point))
    assert len({most for most, _ in needed}) > 2
    for seed, (most, point) in enumerate(needed):
        tree = Tree(LOSSES, 0.7, SHAPES["leaves gain"])
        tree.most = most
        arrivals = ThinnedArrivals(tree, DrawRequest(0.7, Bits(seed), Limits().start()), tree.roots(), 0.0)
        assert np.array_equal(arrivals.first(), point)  # the limit changes no draw that it admits
        tree = Tree(LOSSES, 0.7, SHAPES["leaves gain"])
        tree.most = most - 1
        arrivals = ThinnedArrivals(tree, DrawRequest(0.7, Bits(seed), Limits().start()), tree.roots(), 0.0)
        with pytest.raises(UnfinishedDrawError, match=f"more than {most - 1} regions .* To do: a smaller"):
            arrivals.first()


def test_the_bounds_of_the_trees_are_bounds() -> None:
    for halves in SHAPES.values():
        for levels in halves.values():
            flat = [x for loose in levels for x in (loose.closed, loose.open, loose.tuned)]
            assert flat == sorted(flat, reverse=True)
            assert flat[-1] == 0

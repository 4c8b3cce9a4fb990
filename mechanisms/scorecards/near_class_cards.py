"""Cards of several classes near one private linear model, for people to choose from: post-processing.

No constraints join the columns of such cards, so the nearest card with a given set of columns is found by
rounding each column by itself, and sets of columns are enumerated in the order of their distance without a
solver.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privopt.mechanisms.scorecards.facts import CardFacts, card_program
from privopt.mechanisms.scorecards.near_cards import COARSER, CardSource, NearCard, check_choice
from privopt.mechanisms.scorecards.point_constraints import forced_columns
from privopt.mechanisms.scorecards.rounding import (
    Floats,
    centred_classes,
    class_scale,
    rounded,
)
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.programs.columns import PointColumn
from privopt.problems.tables.schema import Schema


def near_class_cards(
    source: CardSource, released: IntArray, schema: Schema, *, most: int = 4, gap: float = 0.1
) -> tuple[NearCard, ...]:
    """Return cards near a private model of several classes: the released one first, then others by distance.

    No two cards have the same set of columns, and the search takes four scales in turn, as in ``near_cards``.
    If a number is left out, its points at the middle of its range are added to the intercepts of the classes.

    Args:
        source: the model, with weights of shape (K, d).
        released: the released card, shape (K, d).
        schema: public facts.
        most: the largest number of cards, >= 2.
        gap: by how much a card's distance may exceed the distance of the released card, in (0, 1].

    Raises:
        InvalidInputError: numbers out of range.
    """
    check_choice(most, gap)
    facts = CardFacts.of(schema, 1, IntegerLattice(source.low, source.high))
    real = centred_classes(source.weights, facts)
    program = card_program(facts.lattice, schema, ())
    scale = class_scale(real, facts)
    finest = _Search(facts, program.columns, program.costs, real, scale)
    first = NearCard(released, finest.distance(released))
    seen, others = {finest.used(released), frozenset[int]()}, list[NearCard]()
    scales = deque(replace(finest, scale=factor * scale).by_distance() for factor in COARSER)
    while scales and len(others) < most - 1:
        cards = scales.popleft()
        card = next((c for c in cards if finest.used(c.points) not in seen), None)
        if card is not None and card.distance <= first.distance + gap:  # others at this scale are no nearer
            seen.add(finest.used(card.points))
            others.append(card)
            scales.append(cards)
    return (first, *sorted(others, key=lambda card: card.distance))


@dataclass(frozen=True)
class _Search:
    """The cards near a model at one scale; ``costs`` weigh features as in ``CardProgram``."""

    facts: CardFacts
    columns: tuple[PointColumn, ...]
    costs: IntArray
    real: Floats
    scale: float

    def used(self, points: IntArray) -> frozenset[int]:
        """Return the columns with points of any class."""
        return frozenset(k for k, column in enumerate(self.columns) if np.any(column.used(points)))

    def distance(self, points: IntArray) -> float:
        """Return the weighted l1 distance to the model, as a share of the distance without points."""
        nothing = self._away(np.zeros_like(points))
        return float(np.sum(self._away(points)) / max(np.sum(nothing), 1e-300))

    def _away(self, points: IntArray) -> Floats:
        """Return the weighted distance of each point to the model, shape (K, d) without the intercept."""
        d = len(self.costs)
        return np.asarray(self.costs * np.abs(self.scale * self.real[:, :d] - points[:, :d]))

    @cached_property
    def _full(self) -> IntArray:
        """The nearest card of which every column has points, if its bounds allow any."""
        points = rounded(self.real, self.scale, self.facts)
        nothing = self._away(np.zeros_like(points))
        for column in self.columns:
            own = slice(column.start, column.stop)
            if not np.any(points[:, own]):
                one = np.clip(np.sign(self.real), self.facts.lattice.low, self.facts.lattice.high).astype(int)
                more = np.where(one[:, own] == 0, np.inf, (self._away(one) - nothing)[:, own])
                k, j = np.unravel_index(np.argmin(more), more.shape)
                points[k, column.start + j] = one[k, column.start + j]
        return points

    def by_distance(self) -> Iterator[NearCard]:
        """Yield the nearest card of each set of columns, by distance."""
        full = self._full
        starts = [column.start for column in self.columns]
        gain = np.add.reduceat((self._away(np.zeros_like(full)) - self._away(full)).sum(axis=0), starts)
        spans = tuple((column.start, column.stop) for column in self.columns)
        forced = set(forced_columns(self.facts.lattice, spans))
        able = sorted(self.used(full) - forced)
        nearest = frozenset(forced | {k for k in able if gain[k] > 0})
        for flips in subsets_by_sum([abs(float(gain[k])) for k in able]):
            points = self._only(nearest ^ {able[i] for i in flips})
            yield NearCard(points, self.distance(points))

    def _only(self, kept: frozenset[int]) -> IntArray:
        """Return the card with the points of these columns alone."""
        points, real = self._full.copy(), self.real.copy()
        for k, column in enumerate(self.columns):
            if k not in kept:
                points[:, column.start : column.stop] = 0
                if column.ends is not None:
                    real[:, -1] += real[:, column.start] * self.facts.middle[column.start]
                    real[:, column.start] = 0
        points[:, -1] = rounded(real, self.scale, self.facts)[:, -1]
        return points


def subsets_by_sum(sizes: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of the indices of ``sizes``, each >= 0, in the order of their sums, the empty one
    first.
    """
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    yield ()
    heap: list[tuple[float, tuple[int, ...]]] = [(sizes[order[0]], (0,))] if order else []
    while heap:
        total, places = heapq.heappop(heap)
        yield tuple(order[i] for i in places)
        last = places[-1]
        if last + 1 < len(order):
            step = sizes[order[last + 1]]
            heapq.heappush(heap, (total + step, (*places, last + 1)))
            heapq.heappush(heap, (total + step - sizes[order[last]], (*places[:-1], last + 1)))

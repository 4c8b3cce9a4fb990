"""Several cards near one private linear model, so that a person can choose: post-processing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from privopt.mechanisms.scorecards.domain import all_constraints
from privopt.mechanisms.scorecards.facts import CardFacts, card_program
from privopt.mechanisms.scorecards.nearest import Floats, NearestCards
from privopt.oracles.errors import OracleError
from privopt.oracles.limits import Limits
from privopt.oracles.programs.interface import ProgramOracle
from privopt.problems.arguments import check_whole
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import Constraint, OtherColumns
from privopt.problems.programs.program import CardProgram
from privopt.problems.tables.schema import Schema

# Scales of the other cards, relative to the released card's scale: the same scale, and coarser ones, with
# smaller points.
COARSER = (1.0, 0.5, 0.25, 0.125)
# The scale of the released card is looked for among these, relative to the largest scale at which the points
# are within their bounds.
_GRID_OF_SCALES = np.geomspace(0.1, 4.0, 60)
# Seconds divided by the number of other cards: the limit of a solve, which returns the best card found by
# then.
_SECONDS = 4.0


@dataclass(frozen=True)
class CardSource:
    """The private linear model behind a card, with the public bounds of its points.

    Privacy: the model's weights are a release that the spend of the card covers (``SeededScorecard``).

    Attributes:
        weights: weights of the features, then of the intercept, if any, shape (d,) or (K, d) for K classes.
        low, high: bounds of the points, shape (d,).
        max_columns: the largest number of columns with points, or None.
        deviations: posterior standard deviations of the weights, shape (d,); for the weight of a level, that
            of its difference from the mean weight of the column. None where they do not follow from what is
            released, and in files of earlier versions.
    """

    weights: Floats
    low: IntArray
    high: IntArray
    max_columns: int | None = None
    deviations: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "weights": self.weights.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "max_columns": self.max_columns,
            **({} if self.deviations is None else {"deviations": self.deviations.tolist()}),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], shape: tuple[int, ...]) -> Self:
        """Read what ``to_dict`` wrote, for a card with points of this shape.

        Raises:
            InvalidInputError: weights or deviations that are not one finite number for each point.
        """
        weights = np.array(given["weights"], dtype=np.float64)
        low, high = (np.array(given[end], dtype=np.int64) for end in ("low", "high"))
        fits = weights.shape == shape and low.shape == high.shape == shape[-1:]
        if not fits or not np.all(np.isfinite(weights)):
            raise InvalidInputError("its linear model has no finite weight for each of its points")
        if "deviations" not in given:
            return cls(weights, low, high, given["max_columns"])
        deviations = np.array(given["deviations"], dtype=np.float64)
        if deviations.shape != weights.shape or not np.all((deviations >= 0) & np.isfinite(deviations)):
            raise InvalidInputError("its linear model has no deviation >= 0 for each of its weights")
        return cls(weights, low, high, given["max_columns"], deviations)


class NearCard(NamedTuple):
    """A card near a private linear model.

    Attributes:
        points: points of the features, with the intercept, if any, last.
        distance: the card's weighted l1 distance to the model, as a share of the distance of a card without
            points: 0 for the model itself, 1 for no points.
    """

    points: IntArray
    distance: float


def near_cards(
    source: CardSource,
    released: IntArray,
    schema: Schema,
    constraints: tuple[Constraint, ...],
    solver: ProgramOracle,
    *,
    most: int = 4,
    gap: float = 0.1,
) -> tuple[NearCard, ...]:
    """Return cards near a private model: the released one first, then others by distance.

    No two cards have the same set of columns: each further card is the nearest one that satisfies a no-good
    cut against every card before it. The search takes four scales in turn: the scale of the released card,
    and three coarser scales, whose cards have fewer points to add up. The released card was chosen privately,
    so that its intercept may differ from that of the model. The intercepts of the other cards are moved by as
    much, in proportion to their scales.

    Args:
        source: the model.
        released: the released card, shape (d,).
        schema, constraints: public facts; every card satisfies the constraints.
        solver: the solver of nearest cards.
        most: the largest number of cards, >= 2.
        gap: by how much a card's distance may exceed the distance of the released card, in (0, 1].

    Raises:
        InvalidInputError: numbers out of range.
    """
    check_choice(most, gap)
    search = _Search.of(source, released, schema, constraints, solver)
    first = NearCard(released, search.distance(search.points(released), search.scale))
    others = search.others(most - 1, first.distance + gap)
    return (first, *sorted(others, key=lambda card: card.distance))


def check_choice(most: int, gap: float) -> None:
    """Raise InvalidInputError unless ``most`` is at least 2 and ``gap`` lies in (0, 1]."""
    check_whole(most, "the number of cards (--several)")
    if most < 2 or not 0 < gap <= 1:
        raise InvalidInputError(
            f"several cards are 2 or more, within a gap in (0, 1]; got {most} cards and a gap of {gap}"
        )


@dataclass(frozen=True)
class _Search:
    """Search for cards near a model; ``scale`` is the scale of the released card."""

    nearest: NearestCards
    real: Floats
    released: IntArray
    scale: float

    @classmethod
    def of(
        cls,
        source: CardSource,
        released: IntArray,
        schema: Schema,
        constraints: tuple[Constraint, ...],
        solver: ProgramOracle,
    ) -> Self:
        lattice = IntegerLattice(source.low, source.high)
        asked = all_constraints(schema, constraints, source.max_columns)
        program = card_program(lattice, schema, asked)
        facts = replace(CardFacts.of(schema, 1, lattice), program=program)
        nearest = NearestCards(facts, program, solver, released[: len(program.low)])
        real = nearest.centred(source.weights)
        bare = cls(nearest, real, released, 1.0)
        largest = nearest.largest_scale(real)
        scales = (largest * _GRID_OF_SCALES).tolist()
        return replace(bare, scale=min(scales, key=lambda t: bare.distance(bare.points(released), t)))

    def points(self, card: IntArray) -> IntArray:
        return card[: len(self.nearest.program.low)]

    def other_than(self, card: IntArray) -> OtherColumns:
        """Return the no-good cut against a card."""
        columns, points = self.nearest.program.columns, self.points(card)
        return OtherColumns(tuple(column.name for column in columns if column.used(points)))

    def near(self, scale: float) -> CardProgram:
        return self.nearest.program.near(scale * self.real[: len(self.nearest.program.low)])

    def distance(self, points: IntArray, scale: float) -> float:
        program = self.near(scale)
        return program.value(points) / max(1, program.value(np.zeros_like(points)))

    def others(self, most: int, farthest: float) -> Iterator[NearCard]:
        """Yield the nearest card with a new set of columns at each scale in turn, while there is one."""
        scales, cuts = deque(COARSER), [self.other_than(self.released)]
        while scales and len(cuts) <= most:
            scale = (coarser := scales.popleft()) * self.scale
            program = self.near(scale)
            program = replace(program, constraints=(*program.constraints, *cuts))
            with suppress(OracleError):
                point = self.nearest.oracle.solve(program, Limits(seconds=_SECONDS / most)).point
                if point is None or not point.any():
                    continue
                card = self._card(_centred(point, program), scale)
                if card.distance <= farthest:  # otherwise further cards of this scale are no nearer
                    cuts.append(self.other_than(card.points))
                    scales.append(coarser)
                    yield card

    def _card(self, points: IntArray, scale: float) -> NearCard:
        """Return a card of these points, its intercept moved from the model's as in the released card."""
        moved = 0.0
        if self.nearest.facts.intercept:
            moved = (int(self.released[-1]) - self._base(self.points(self.released), self.scale)) / self.scale
        card = self.nearest.card(points, self._base(points, scale) + moved * scale)
        return NearCard(card, self.distance(points, scale))

    def _base(self, points: IntArray, scale: float) -> float:
        """Return the model's intercept at a scale, corrected for what the rounding of the points lost."""
        return self.nearest.base(scale * self.real, points, self.near(scale))


def _centred(points: IntArray, program: CardProgram) -> IntArray:
    """Return an equivalent card in which the points of each column have a mean near 0, where constraints
    allow it.
    """
    for column in program.columns:
        if not program.shifts_column(column):
            continue
        moved, own = points.copy(), slice(column.start, column.stop)
        moved[own] -= int(np.rint(np.mean(points[own])))
        points = points if program.violations(moved) else moved
    return points

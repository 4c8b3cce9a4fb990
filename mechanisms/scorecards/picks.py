"""Few columns where the budget is small: which, and in what units their numbers are, chosen privately."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.privacy.accounting import bounded_range_at_gdp, bounded_range_to_gdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.limits import Watch
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.questions import Asked, ColumnQuestions

Floats = NDArray[np.float64]

# As many columns as a seventh of the square root of n mu, and half of mu^2 for choosing them, unless noise of
# n / 500 records is had for less: what was best on synthetic tables of 500 to 30,000 records, 5 to 40
# columns, 1% to 50% positives, at epsilon from 0.1 to 10.
_RECORDS, _SHARE, _ENOUGH = 7.0, 0.5, 1000.0
# Draws of columns gained on synthetic tables where more than a fifth of them are numbers, whose units they
# find; on Adult, where less than half are, they cost more than they found.
_NUMBERS = 0.5
# Where a number may be cut, as shares of its range.
CUTS = (*(2.0**-i for i in range(6, 1, -1)), 0.5, *(1 - 2.0**-i for i in range(2, 7)))
# The unit of a number in terms of the distance of the cut to the nearer end of its range.
_UNIT = 4.0


class Pick(NamedTuple):
    """A column that was chosen: its number in ``facts.spans``, and where it was cut, an index of ``CUTS``.

    None: it was not; a number keeps the unit of its range.
    """

    column: int
    cut: int | None


@dataclass(frozen=True)
class ColumnPicks:
    """Draws columns one after the other by the exponential mechanism, each by what its pieces tell.

    Privacy: mu-GDP, ``level``, neighbours by replacing one record, n and the facts public. Each draw is an
    exponential mechanism on ``ColumnQuestions``, whose losses move by at most 1, over the columns that the
    draws before left: of bounded range, hence GDP (``bounded_range_to_gdp``); and adaptive releases of
    mu_i-GDP are together sqrt(sum mu_i^2)-GDP (Dong, Roth and Su 2022, corollary 3.3).

    An instance is a plan: how many columns, and the noise of each draw, follow from public facts.

    Attributes:
        facts: what is public.
        draws: the plan of each draw.
    """

    name: ClassVar[str] = "column-picks"

    facts: CardFacts
    draws: tuple[ExponentialMechanism, ...]

    @classmethod
    def plan(cls, facts: CardFacts, mu: float) -> Self | None:
        """Draws for a part of mu; None where most columns can be used, or few are numbers.

        Of levels nothing is to be found but which columns tell most, and a model that may give a column no
        weight was as good at that, with all of mu.
        """
        columns = len(facts.spans)
        most = max(1, round(math.sqrt(facts.n_records * mu) / _RECORDS))
        if not facts.middle or len(facts.lines) < _NUMBERS * columns or 2 * most > columns:
            return None
        most = min(most, facts.max_columns or columns)
        width = min(bounded_range_at_gdp(mu * math.sqrt(_SHARE / most)), _ENOUGH / facts.n_records)
        return cls(facts, tuple(column_draw(len(CUTS) * (columns - k), width) for k in range(most)))

    @property
    def row_norm(self) -> float:
        """How far a record can be from ``middle`` in the columns that are drawn, whichever they are; l2."""
        widest = sorted(self.facts.spreads)[-len(self.draws) :]
        return math.sqrt(math.fsum(widest) + 1) * (1 + 1e-12)  # and the constant

    @property
    def level(self) -> float:
        """mu of all draws together, up."""
        squares = math.fsum(bounded_range_to_gdp(draw.width) ** 2 for draw in self.draws)
        return math.sqrt(squares) * (1 + 1e-12)

    def prepare(self, table: ZeroOneHalfspace, oracle: GibbsOracle) -> None:
        """Refuse what a draw would be refused for.

        Raises:
            UnsupportedProblemError: the oracle does not draw from so many columns.
        """
        told = [np.zeros(1, dtype=np.int64)] * len(self.facts.spans)
        unread = ColumnQuestions(table, tuple(Asked(a, b) for a, b in self.facts.spans), len(CUTS), told)
        self.draws[0].check_problem(unread)
        oracle.prepare(unread, self.draws[0].question)

    def release(
        self, table: ZeroOneHalfspace, oracle: GibbsOracle, source: NoiseSource, clock: Watch
    ) -> tuple[Pick, ...]:
        """Draw. Costs ``level``, whatever happens.

        Raises:
            UnfinishedDrawError: a limit was reached; nothing is released.
        """
        asked = tuple(self._asked(a, b) for a, b in self.facts.spans)
        whole = ColumnQuestions(table, asked, len(CUTS))
        left, picks = list(range(len(asked))), []
        for draw in self.draws:
            columns, known = tuple(asked[j] for j in left), [whole.told[j] for j in left]
            questions = ColumnQuestions(table, columns, len(CUTS), known)
            prepared = oracle.prepare(questions, draw.question)
            place, cut = questions.place(draw.release(prepared, source, clock.limits).point)
            picks.append(Pick(left.pop(place), cut))
        return tuple(picks)

    def _asked(self, start: int, stop: int) -> Asked:
        for feature, low, high in self.facts.lines:
            if feature == start:
                cuts = np.floor((low + np.array(CUTS) * (high - low)) * self.facts.denominator)
                return Asked(start, stop, tuple(cuts.astype(np.int64).tolist()))
        return Asked(start, stop)


def column_draw(candidates: int, width: float) -> ExponentialMechanism:
    """An exponential mechanism of at most that range over a list."""
    domain = IntegerLattice([0], [candidates - 1])
    made = ExponentialMechanism.plan(ColumnQuestions, domain, epsilon=width)
    return ExponentialMechanism.plan(ColumnQuestions, domain, epsilon=width * (width / made.width))


@dataclass(frozen=True)
class Units:
    """Features of the columns that were chosen, 0 for others; numbers in the units that their cuts speak for.

    A number whose best cut is near one end of its range lies there mostly, and the rest of the range would
    make it small beside noise. Its unit is a multiple of the cut's distance from that end; what lies beyond
    is cut off for the model, while a card counts on: the distance from ``middle`` stays within its bound.

    Attributes:
        facts: what is public.
        picks: what was drawn.
    """

    facts: CardFacts
    picks: tuple[Pick, ...]

    @property
    def active(self) -> tuple[int, ...]:
        """The columns."""
        return tuple(sorted(pick.column for pick in self.picks))

    def features(self, X: Floats) -> Floats:
        """From features, shape (rows, d), those that the model is made of, as distances from ``middle``."""
        found = np.zeros_like(X)
        found[:, -1] = X[:, -1]  # the constant
        middle = np.array(self.facts.middle)
        for pick in self.picks:
            own = slice(*self.facts.spans[pick.column])
            found[:, own] = X[:, own]
            line = self._line(pick)
            if line is not None:
                found[:, own.start] = _within(X[:, own.start], *line)
            found[:, own] -= middle[own]
        return found

    def weights(self, modelled: Floats) -> Floats:
        """Of the features as they are measured from 0, from those of the model, the last the constant's."""
        middle = np.array(self.facts.middle)
        found = np.zeros_like(modelled)
        found[-1] = modelled[-1]
        for pick in self.picks:
            start, stop = self.facts.spans[pick.column]
            found[start:stop] = modelled[start:stop]
            found[-1] -= modelled[start:stop] @ middle[start:stop]
            line = self._line(pick)
            if line is None:
                continue
            unit, end = line[2:]
            weight, shift = modelled[start], end * (1 - 1 / unit)
            found[start], found[-1] = weight / unit, found[-1] + weight * shift
            # Records without the number have 0 there, which was brought into its range.
            found[start + 1 : stop] += weight * (float(_within(np.zeros(1), *line)[0]) - shift)
        return found

    def _line(self, pick: Pick) -> tuple[float, float, float, float] | None:
        """(low, high, unit, end) of a number: x becomes end + (x - end) / unit, within its bounds."""
        start = self.facts.spans[pick.column][0]
        for feature, low, high in self.facts.lines:
            if feature == start:
                cut = 0.5 if pick.cut is None else CUTS[pick.cut]
                unit = min(1.0, _UNIT * min(cut, 1 - cut))
                return low, high, unit, low if cut <= 0.5 else high
        return None


def _within(x: Floats, low: float, high: float, unit: float, end: float) -> Floats:
    return np.asarray(np.clip(end + (x - end) / unit, low, high))

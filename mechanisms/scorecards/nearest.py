"""Nearest cards under public constraints: post-processing of a private linear model, at no privacy cost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.point_constraints import few_columns
from privopt.mechanisms.scorecards.rounding import FEW_POINTS, SCALES, intercepts, lost_by_rounding
from privopt.oracles.errors import OracleError, UnfinishedBuildError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.programs.interface import ProgramOracle
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import Constraint, PointBounds, PointList, Total, UsedColumns
from privopt.problems.programs.program import GRID, CardProgram

Floats = NDArray[np.float64]

# Time limits in seconds: for the first feasible card, in ``plan``; and for all nearest cards of a release,
# which then uses the best cards found.
_FIRST, _SECONDS = 60.0, 30.0
# Estimated seconds per feature and scale, on one idle core.
_PER_FEATURE = 0.01
# First feasible cards by program: a second plan for the same program finds the same card without a search.
_REMEMBERED = 64
_known: dict[Hashable, IntArray] = {}


@dataclass(frozen=True)
class NearestCards:
    """Plan of the feasible cards that are nearest to a linear model, one for each of a few scales.

    Privacy: none is spent. Cards are computed from the weights of a private model and public facts alone.
    When a time limit is reached, the best card found so far is used. A first feasible card is found by the
    plan, before data, so no release fails for lack of a card.

    Attributes:
        facts: public facts of the card; their ``program`` has the constraints.
        program: the program of the nearest card, with all real points 0.
        oracle: the solver.
        first: a feasible card, without its intercept.
    """

    facts: CardFacts
    program: CardProgram
    oracle: ProgramOracle
    first: IntArray

    @classmethod
    def plan(cls, facts: CardFacts, oracle: ProgramOracle) -> Self:
        """Find a first feasible card, without data.

        Raises:
            InfeasibleDomainError: no card satisfies the constraints; the message has those in conflict.
            InvalidInputError: no card was found in time.
        """
        program = facts.program
        assert program is not None
        solver = type(oracle), oracle.name
        key = solver, program.columns, program.constraints, program.low.tobytes(), program.high.tobytes()
        if key not in _known:
            if len(_known) >= _REMEMBERED:
                _known.clear()
            _known[key] = first_card(program, oracle)
        return cls(facts, program, oracle, _known[key])

    @property
    def scales(self) -> tuple[float, ...]:
        """Scales of the weights, in units of the largest scale that fits bounds and totals; public."""
        low, high = self.program.low, self.program.high
        few = int(np.max(np.maximum(high, -low), initial=0)) <= FEW_POINTS
        return SCALES if few or any(isinstance(c, Total) for c in self.program.constraints) else (1.0,)

    @property
    def seconds(self) -> float:
        """Estimated seconds of all solves on one idle core, at most their time limit."""
        return min(_SECONDS, _PER_FEATURE * len(self.program.low) * len(self.scales))

    def blank(self) -> tuple[IntArray, IntArray]:
        """Return cards and intercepts of the shapes that ``cards`` returns, without a model."""
        return self._with_intercepts([self.card(self.first, 0.0)] * len(self.scales))

    def cards(self, weights: Floats, watch: Watch) -> tuple[IntArray, IntArray]:
        """Return the nearest feasible cards of a model's weights, and a grid of intercepts for each.

        Args:
            weights: weights of the features, shape (d,), with the intercept, if any, last.
            watch: the clock of the release. The clock ran while records were read, so it may only stop the
                release: if cards depended on the time that is left, they would depend on the records through
                more than the model.

        Returns:
            cards of shape (k, d), and increasing intercepts of shape (k, t), as from ``candidate_cards``.

        Raises:
            UnfinishedBuildError: the clock stopped.
        """
        d = len(self.program.low)
        real = self.centred(weights)
        largest = self.largest_scale(real)
        own, found = Limits(seconds=_SECONDS).start(), []
        for k, factor in enumerate(self.scales):
            scaled = factor * largest * real
            program = self.program.near(scaled[:d])
            points = self._solve(program, watch, own, len(self.scales) - k)
            found.append(self.card(points, self.base(scaled, points, program)))
        return self._with_intercepts(found)

    def base(self, real: Floats, points: IntArray, program: CardProgram) -> float:
        """Return the intercept, not yet rounded, of integer points near ``real``, whose last entry is the
        intercept of the real weights.
        """
        if not self.facts.intercept:
            return 0.0
        shift = float(np.sum(program.shifts(points))) / GRID
        left = lost_by_rounding(real[:-1], points, self.facts)
        return float(real[-1]) - shift + float(left)

    def centred(self, weights: Floats) -> Floats:
        """Return the weights after shifting the levels' weights in each column to a mean of 0; the intercept
        takes the shift.
        """
        real = np.array(weights, dtype=np.float64)
        if self.facts.intercept:
            for column in self.program.columns:
                if self.program.shifts_column(column):
                    own = slice(column.start, column.stop)
                    centre = float(np.mean(real[own]))
                    real[own] -= centre
                    real[-1] += centre
            costs = self.facts.costs
            real[-1] += math.log(costs.false_negative / costs.false_positive)
        return real

    def _solve(self, program: CardProgram, watch: Watch, own: Watch, solves: int) -> IntArray:
        """Return the best card found in this solve's share of the time, or the first feasible card of the
        plan.
        """
        share = (own.remaining or 0.01) / solves
        limits = Limits(seconds=share, cancelled=lambda: watch.stop() is not None)
        reason = "no card was found in time"
        try:
            point = self.oracle.solve(program, limits).point
        except OracleError as error:
            point, reason = None, str(error)
        if (stopped := watch.stop()) is not None:
            raise UnfinishedBuildError(f"stopped by {stopped.name}, before the nearest cards were found")
        if point is None:
            warnings.warn(
                f"the nearest card was not found ({reason}): a feasible card that is not near the model "
                "takes its place. To do: another solver (card_solver, --card-solver)",
                stacklevel=2,
            )
        if point is None or program.value(point) > program.value(self.first):
            return self.first
        return point

    def card(self, points: IntArray, base: float) -> IntArray:
        """Return a card with its intercept, rounded and within its bounds."""
        if not self.facts.intercept:
            return points
        low, high = int(self.facts.lattice.low[-1]), int(self.facts.lattice.high[-1])
        return np.append(points, int(np.clip(np.rint(np.clip(base, -(2.0**50), 2.0**50)), low, high)))

    def _with_intercepts(self, cards: list[IntArray]) -> tuple[IntArray, IntArray]:
        found = np.array(cards, dtype=np.int64)
        if not self.facts.intercept:
            return found, found[:, -1:]
        return found, np.stack([intercepts(card, self.facts) for card in found])

    def largest_scale(self, weights: Floats) -> float:
        """Return the largest scale at which each column is within its bounds, and all together are within the
        totals.

        Columns whose own points are declared are clipped to them; they do not change the scale of others.
        """
        program, real = self.program, np.asarray(weights, dtype=np.float64)
        most = [c.most for c in program.constraints if isinstance(c, UsedColumns) and not c.columns]
        kept = min((m for m in most if m is not None), default=None)
        if kept is not None:
            real = few_columns(real, tuple((c.start, c.stop) for c in program.columns), kept)
        own = {n for c in program.constraints if isinstance(c, PointBounds | PointList) for n in c.names}
        free = [c for c in program.columns if c.name not in own] or program.columns
        scales = [scale for column in free for scale in _scales(program, column, real)]
        for total in program.constraints:
            if isinstance(total, Total):
                wide = sum(_width(column, real) for column in total.about(program.columns))
                scales += [(total.high - total.low) / wide] if wide > 0 and total.high > total.low else []
        return min(scales, default=1.0)


def _scales(program: CardProgram, column: PointColumn, real: Floats) -> list[float]:
    """Return the scales at which a column's real points meet its bounds."""
    own = slice(column.start, column.stop)
    low, high, points = program.low[own], program.high[own], real[own]
    if program.shifts_column(column):
        room, wide = int(np.min(high)) - int(np.max(low)), float(np.ptp(points))
        return [room / wide] if room > 0 and wide > 0 else []
    bounds = np.where(points > 0, high, -low)
    return [float(b / abs(p)) for b, p in zip(bounds, points, strict=True) if b > 0 and p]


def _width(column: PointColumn, real: Floats) -> float:
    """Return the range of the real points that records can get from a column."""
    got = [0.0 if j < 0 else float(c) * float(real[j]) for j, c in column.terms()]
    return max(got) - min(got)


def first_card(program: CardProgram, oracle: ProgramOracle) -> IntArray:
    """Return a feasible card, without its intercept.

    Raises:
        InfeasibleDomainError: there is no such card; the message lists the constraints in conflict.
        InvalidInputError: no card was found in time.
    """
    limits = Limits(seconds=_FIRST)
    answer = oracle.solve(program, limits)
    if answer.infeasible:
        listed = "; ".join(f"'{c}'" for c in _conflict(program, oracle))
        raise InfeasibleDomainError(
            f"no card satisfies all of these constraints, within the bounds of its points: {listed}. To do: "
            "drop or loosen one of them, or give wider bounds (lattice, --lattice)"
        )
    if answer.point is None:
        raise InvalidInputError(
            f"no card that satisfies the constraints was found in {_FIRST:.0f} s ({answer.oracle}: "
            f"{answer.raw_status}). To do: fewer constraints, or another solver (card_solver, --card-solver)"
        )
    return answer.point


def _conflict(program: CardProgram, oracle: ProgramOracle) -> list[Constraint]:
    """Return a minimal set of constraints that no card satisfies together (deletion filter)."""
    # Declared points are bounds of the box, too. A wider box lets them be dropped like other constraints.
    most = np.max(np.maximum(np.abs(program.low), np.abs(program.high)), initial=0)
    program = replace(program, low=np.minimum(program.low, -most), high=np.maximum(program.high, most))
    kept = list(program.constraints)
    for constraint in program.constraints:
        rest = [c for c in kept if c != constraint]
        if oracle.solve(replace(program, constraints=tuple(rest)), Limits(seconds=_FIRST)).infeasible:
            kept = rest
    return kept

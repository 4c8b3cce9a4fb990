"""From what a floating-point MIP solver says to a certificate about integers.

A solver's objective is not the objective: points are decoded to integers and valued in exact arithmetic.
What remains of the solver's word is its proof that nothing else is better, and that rests on its tolerances:
``tolerance`` below, in units of loss, or none for a solver that counts in integers. Optimality is asked with
a cutoff, "is there another point of at most this cost", which also settles ties: every point within the tie
margin of the optimum is listed, compared exactly, and forbidden, until there is none left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.minimize.interface import Proposal, Query, refuse_large, trivial_bound
from privopt.oracles.minimize.mip.model import News, Outcome, Question, Session
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.objective import UNIT, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem

# A solver's bound within this many units of loss of a value is taken for that value. Solvers run with a gap
# of zero, and round to integers before they state an objective.
_TOLERANCE = 1e-5
# When ties have to be broken, points up to this many tolerances above the optimum are compared exactly.
_TIE_MARGIN = 10
_MAX_TIES = 20


@dataclass(frozen=True)
class Region:
    """A part of the lattice as columns of a MIP.

    Attributes:
        costs: computes the cost of each column, shape (columns,), units of loss.
        constant: cost of every point, fixed point.
        bound: a lower bound over the region, fixed point, known before the solver is asked.
        decode: from column values to the point they stand for.
        encode: from a point of the region to the columns that are 1 exactly there (enough of them to tell it
            from the others).
        contains: whether a point lies in the region.
        allowed: columns that may be nonzero, or None for all.
    """

    costs: Callable[[], FloatArray]
    constant: int
    bound: int
    decode: Callable[[FloatArray], IntArray]
    encode: Callable[[IntArray], NDArray[np.int64]]
    contains: Callable[[IntArray], bool]
    allowed: NDArray[np.bool_] | None = None


@dataclass
class Search:
    """The state of one solve over one or several regions."""

    problem: DiscreteProblem
    query: Query
    session: Session
    best: tuple[int, tuple[int, ...]] | None = None
    nodes: int = 0
    solves: int = 0
    unresolved_ties: bool = False
    raw: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        refuse_large(self.query.perturbation, "MIP models take", "enumerate")

    @property
    def tolerance(self) -> float:
        """What the solver's arithmetic may be off by, in units of loss."""
        if self.session.exact:
            return 0.0
        return max(_TOLERANCE, 1e-9 * from_fixed(self.query.perturbation.magnitude))

    def offer(self, point: IntArray) -> int:
        """Value a point exactly; keep it if it is better, or equal and lexicographically smaller."""
        value = self.problem.value(point, self.query.perturbation)
        candidate = (value, tuple(int(v) for v in point))
        if self.best is None or candidate < self.best:
            self.best = candidate
        return value

    @property
    def cutoff(self) -> float:
        """Only points up to here matter, in units of loss. Values lie on a grid, so without ties to break
        half a grid step below the incumbent loses nothing."""
        if self.best is None:
            return math.inf
        value = from_fixed(self.best[0])
        if self.query.break_ties:
            return value + _TIE_MARGIN * self.tolerance
        return value - 0.5 * from_fixed(self._grid)

    @property
    def _grid(self) -> int:
        """All objectives differ by multiples of this, fixed point."""
        p = self.query.perturbation
        tables = [*p.unary, *([] if p.radial is None else [p.radial])]
        return math.gcd(UNIT, *(int(g) for t in tables for g in np.unique(t - t[0])))

    @property
    def dominated(self) -> int:
        """Values from here on cannot matter, fixed point; while ties are broken, an equal value can."""
        return self.upper + (1 if self.query.break_ties else 0)

    def can_prune(self, bound: int) -> bool:
        """Whether a region with this exact lower bound (fixed point) cannot matter any more."""
        return bound >= self.dominated

    @property
    def upper(self) -> int:
        """The best value, or one that no point exceeds while there is none; fixed point."""
        if self.best is not None:
            return self.best[0]
        return self.problem.largest_loss * UNIT + self.query.perturbation.magnitude

    def report(self, bound: int, nodes: int = 0) -> None:
        """Tell the watch about a lower bound over everything that is not settled, fixed point."""
        value = from_fixed(self.upper)
        self.query.watch.report(value, min(value, from_fixed(bound)), self.nodes + nodes)

    def run(self, regions: Sequence[Region]) -> Proposal:
        """Search regions in the given order (best bounds first). They must cover the lattice, except for what
        ``can_prune`` has ruled out."""
        for number, region in enumerate(regions):
            if self.can_prune(region.bound):
                continue
            others = min((r.bound for r in regions[number + 1 :]), default=None)
            stopped = self._solve(region, others)
            if stopped is not None:
                reason, bound = stopped
                return self._proposal(bound if others is None else min(bound, others), reason)
        if self.best is None:
            raise SolverFailedError("the solver found no point of a lattice that has points")
        return self._proposal(self.best[0], Status.OPTIMAL)

    def _proposal(self, bound: int, status: Status) -> Proposal:
        """Without a solve, everything was settled in integers."""
        return Proposal(
            None if self.best is None else np.array(self.best[1], dtype=np.int64),
            min(bound, self.upper),
            status,
            lexicographic=status is Status.OPTIMAL and self.query.break_ties and not self.unresolved_ties,
            exact=self.solves == 0 or self.session.exact,
            nodes=self.nodes,
            raw_status="; ".join([f"{self.solves} MIP solves", *self.raw]),
        )

    def _solve(self, region: Region, others: int | None) -> tuple[Status, int] | None:
        """Settle one region; or say why not, with a bound over the region."""
        forbidden: list[NDArray[np.int64]] = []
        if self.query.break_ties and self.best is not None:
            incumbent = np.array(self.best[1], dtype=np.int64)
            if region.contains(incumbent):
                forbidden.append(region.encode(incumbent))
        constant, costs = from_fixed(region.constant), region.costs()

        def tell(news: News) -> None:
            if news.values is not None:
                self._offer_found(region.decode(news.values))
            proved = max(self._floor(news.bound + constant), region.bound)
            self.report(proved if others is None else min(proved, others), news.nodes)

        for _ in range(_MAX_TIES + 1):
            cutoff, start = self.cutoff - constant, self._start(region)
            question = Question(costs, region.allowed, forbidden, cutoff, start)
            answer = self.session.solve(question, self.query.watch, tell)
            self.nodes += answer.nodes
            self.solves += 1
            self._note(answer.raw)
            if answer.outcome is Outcome.NOTHING:
                return None
            point = None if answer.values is None else region.decode(answer.values)
            if answer.outcome is Outcome.STOPPED:
                assert answer.reason is not None
                if point is not None:
                    self._offer_found(point)
                return answer.reason, max(region.bound, self._floor(answer.bound + constant))
            assert point is not None
            if self._is_last(point, answer.bound + constant):
                return None
            forbidden.append(region.encode(point))
        self.unresolved_ties = True
        return None

    def _start(self, region: Region) -> NDArray[np.int64] | None:
        """The best point, if it lies in the region and was not forbidden, as the ones of ties are."""
        if self.best is None or self.query.break_ties:
            return None
        point = np.array(self.best[1], dtype=np.int64)
        return region.encode(point) if region.contains(point) else None

    def _offer_found(self, point: IntArray) -> None:
        """A point that the solver met on its way: what it is worth is seen in integers."""
        if self.problem.lattice.contains(point):
            self.offer(point)

    def _is_last(self, point: IntArray, bound: float) -> bool:
        """Offer the solver's optimum of what is left; True if nothing that is left can matter."""
        if not self.problem.lattice.contains(point):
            raise SolverFailedError("the solver's optimum does not decode to a point of the lattice")
        value = self.offer(point)
        assert self.best is not None
        if abs(from_fixed(value) - bound) > self.tolerance:
            raise SolverFailedError(
                f"the solver's optimum is {abs(from_fixed(value) - bound):.3g} away from exact arithmetic at "
                f"its own point: its tolerances do not hold for this problem. Use another oracle"
            )
        # The solver minimised, so what is left costs at least ``value`` up to the tolerance.
        return not self.query.break_ties or from_fixed(value - self.best[0]) > 2 * self.tolerance

    def _floor(self, bound: float) -> int:
        """A solver's bound in fixed point, with its tolerance taken off."""
        lowest = trivial_bound(self.query.perturbation)
        if not math.isfinite(bound):
            return lowest if bound < 0 else self.upper
        return max(lowest, math.floor((bound - self.tolerance) * UNIT))

    def _note(self, raw: str) -> None:
        if not self.raw or self.raw[-1] != raw:
            self.raw = [*self.raw, raw][-3:]

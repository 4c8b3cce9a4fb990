"""Turn answers of a floating-point MIP solver into a certificate about an integer objective.

Points are decoded to integers, and their objectives computed in exact arithmetic; the solver's objective
value is not used. We trust only the solver's proof that no other point is better, up to ``tolerance`` in
units of loss, which is 0 for a solver that works in integers. Each question has a cutoff: "is there another
point of at most this cost?". Ties are broken in the same way: no-good cuts enumerate the points within the
tie margin of the optimum, which are compared exactly.
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
from privopt.oracles.minimize.mip.model import Outcome, Question, Session, SolverProgress
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.objective import UNIT, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem

# A solver's bound and a value that differ by at most this, in units of loss, count as equal. Solvers run with
# a gap of zero.
_TOLERANCE = 1e-5
# To break ties, points within this many tolerances of the optimum are compared exactly.
_TIE_MARGIN = 10
_MAX_TIES = 20


@dataclass(frozen=True)
class Region:
    """A part of the lattice, as a restriction of the MIP.

    Attributes:
        costs: a function that returns the cost of each column, shape (columns,), in units of loss.
        constant: the cost that is added for every point, in fixed point.
        bound: a lower bound over the region, in fixed point, known before the solver is called.
        decode: maps column values to a point of the lattice.
        encode: maps a point of the region to a set of columns that are all 1 at this point only.
        contains: returns whether a point is in the region.
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
    """The state of one solve over one or several regions.

    ``row_error`` bounds the error of losses due to the tolerance of constraints, in units of loss.
    """

    problem: DiscreteProblem
    query: Query
    session: Session
    row_error: float = 0.0
    best: tuple[int, tuple[int, ...]] | None = None
    nodes: int = 0
    solves: int = 0
    unresolved_ties: bool = False
    raw: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        refuse_large(self.query.perturbation, "MIP models take", "enumerate")

    @property
    def tolerance(self) -> float:
        """A bound on the error of the solver's arithmetic, in units of loss."""
        if self.session.exact:
            return 0.0
        return max(_TOLERANCE, self.row_error, 1e-9 * from_fixed(self.query.perturbation.magnitude))

    def offer(self, point: IntArray) -> int:
        """Return the exact value of a point, which becomes the incumbent if it is better.

        If the values are equal, the lexicographically first point is the incumbent.
        """
        value = self.problem.value(point, self.query.perturbation)
        candidate = (value, tuple(int(v) for v in point))
        if self.best is None or candidate < self.best:
            self.best = candidate
        return value

    @property
    def cutoff(self) -> float:
        """The largest cost of a wanted point, in units of loss.

        If ties need not be broken, it is half a grid step below the value of the incumbent, because values
        are on a grid.
        """
        if self.best is None:
            return math.inf
        value = from_fixed(self.best[0])
        if self.query.break_ties:
            return value + _TIE_MARGIN * self.tolerance
        return value - 0.5 * from_fixed(self._grid)

    @property
    def _grid(self) -> int:
        """The grid step: a common divisor of all differences of objectives, in fixed point."""
        p = self.query.perturbation
        tables = [*p.unary, *([] if p.radial is None else [p.radial])]
        return math.gcd(UNIT, *(int(g) for t in tables for g in np.unique(t - t[0])))

    @property
    def dominated(self) -> int:
        """The smallest bound at which a region is pruned, in fixed point.

        It is the value of the incumbent, or one step more if ties are broken.
        """
        return self.upper + (1 if self.query.break_ties else 0)

    def can_prune(self, bound: int) -> bool:
        """Return whether a region with this exact lower bound, in fixed point, can be pruned."""
        return bound >= self.dominated

    @property
    def upper(self) -> int:
        """The value of the incumbent, or an upper bound on all values if there is none, in fixed point."""
        if self.best is not None:
            return self.best[0]
        return self.problem.largest_loss * UNIT + self.query.perturbation.magnitude

    def report(self, bound: int, nodes: int = 0) -> None:
        """Report progress, given a lower bound over all unfinished regions, in fixed point."""
        value = from_fixed(self.upper)
        self.query.watch.report(value, min(value, from_fixed(bound)), self.nodes + nodes)

    def run(self, regions: Sequence[Region]) -> Proposal:
        """Search the regions in the given order, which should be by bound.

        Together with the regions that ``can_prune`` has excluded, the regions must cover the lattice.
        """
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
        """Return the result; it is exact if no MIP was solved, because all bounds were then in integers."""
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
        """Solve one region; return None if it is finished, else the reason and a bound over the region."""
        forbidden: list[NDArray[np.int64]] = []
        if self.query.break_ties and self.best is not None:
            incumbent = np.array(self.best[1], dtype=np.int64)
            if region.contains(incumbent):
                forbidden.append(region.encode(incumbent))
        constant, costs = from_fixed(region.constant), region.costs()

        def on_progress(progress: SolverProgress) -> None:
            if progress.values is not None:
                self.offer_found(region.decode(progress.values))
            proved = max(self._floor(progress.bound + constant), region.bound)
            self.report(proved if others is None else min(proved, others), progress.nodes)

        for _ in range(_MAX_TIES + 1):
            cutoff, start = self.cutoff - constant, self._start(region)
            question = Question(costs, region.allowed, forbidden, cutoff, start)
            answer = self.session.solve(question, self.query.watch, on_progress)
            self.nodes += answer.nodes
            self.solves += 1
            self._note(answer.raw)
            if answer.outcome is Outcome.NOTHING:
                return None
            point = None if answer.values is None else region.decode(answer.values)
            if answer.outcome is Outcome.STOPPED:
                assert answer.reason is not None
                if point is not None:
                    self.offer_found(point)
                return answer.reason, max(region.bound, self._floor(answer.bound + constant))
            assert point is not None
            if self._is_last(point, answer.bound + constant):
                return None
            forbidden.append(region.encode(point))
        self.unresolved_ties = True
        return None

    def _start(self, region: Region) -> NDArray[np.int64] | None:
        """Return the incumbent as a start, if it is in the region and not excluded by a no-good cut."""
        if self.best is None or self.query.break_ties:
            return None
        point = np.array(self.best[1], dtype=np.int64)
        return region.encode(point) if region.contains(point) else None

    def offer_found(self, point: IntArray) -> None:
        """Offer a point that was found during a solve, if it is in the lattice."""
        if self.problem.lattice.contains(point):
            self.offer(point)

    def _is_last(self, point: IntArray, bound: float) -> bool:
        """Offer the solver's optimum over the remaining points; return whether these are now irrelevant."""
        if not self.problem.lattice.contains(point):
            raise SolverFailedError("the solver's optimum does not decode to a point of the lattice")
        value = self.offer(point)
        assert self.best is not None
        if abs(from_fixed(value) - bound) > self.tolerance:
            raise SolverFailedError(
                f"the solver's optimum is {abs(from_fixed(value) - bound):.3g} away from exact arithmetic at "
                f"its own point: its tolerances do not hold for this problem. Use another oracle"
            )
        # The solver minimised: all remaining points cost at least ``value``, up to the tolerance.
        return not self.query.break_ties or from_fixed(value - self.best[0]) > 2 * self.tolerance

    def _floor(self, bound: float) -> int:
        """Return a solver's bound minus the tolerance, rounded down to fixed point."""
        lowest = trivial_bound(self.query.perturbation)
        if not math.isfinite(bound):
            return lowest if bound < 0 else self.upper
        return max(lowest, math.floor((bound - self.tolerance) * UNIT))

    def _note(self, raw: str) -> None:
        if not self.raw or self.raw[-1] != raw:
            self.raw = [*self.raw, raw][-3:]

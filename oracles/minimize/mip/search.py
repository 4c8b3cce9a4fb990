"""Turn answers of a floating-point MIP solver into a certificate about an integer objective.

Points are decoded to integers and valued in exact arithmetic; the solver's own objective value is not used.
Only its proof that no other point is better is relied on, up to ``tolerance`` in units of loss (0 for a
solver that works in integers). Optimality is queried with a cutoff: "is there another point of at most this
cost?". This also settles ties: points within the tie margin of the optimum are enumerated by no-good cuts and
compared exactly, until none is left.
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

# A solver's bound within this many units of loss of a value is taken to equal it. Solvers run with a gap of
# zero.
_TOLERANCE = 1e-5
# To break ties, points up to this many tolerances above the optimum are compared exactly.
_TIE_MARGIN = 10
_MAX_TIES = 20


@dataclass(frozen=True)
class Region:
    """A part of the lattice, as a restriction of the MIP.

    Attributes:
        costs: computes the cost of each column, shape (columns,), units of loss.
        constant: cost added to every point, fixed point.
        bound: a lower bound over the region, fixed point, known before the solver is called.
        decode: maps column values to a lattice point.
        encode: maps a point of the region to a set of columns that are all 1 at this point only.
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
    """The state of one solve over one or several regions.

    ``row_error`` bounds the error of the losses from the tolerance of constraints, in units of loss.
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
        """Evaluate a point exactly; keep it as incumbent if better, or equal and lexicographically first."""
        value = self.problem.value(point, self.query.perturbation)
        candidate = (value, tuple(int(v) for v in point))
        if self.best is None or candidate < self.best:
            self.best = candidate
        return value

    @property
    def cutoff(self) -> float:
        """The largest cost of interest, in units of loss.

        If ties need not be broken, it is half a grid step below the incumbent, as values lie on a grid.
        """
        if self.best is None:
            return math.inf
        value = from_fixed(self.best[0])
        if self.query.break_ties:
            return value + _TIE_MARGIN * self.tolerance
        return value - 0.5 * from_fixed(self._grid)

    @property
    def _grid(self) -> int:
        """A common divisor of all differences of objectives, fixed point."""
        p = self.query.perturbation
        tables = [*p.unary, *([] if p.radial is None else [p.radial])]
        return math.gcd(UNIT, *(int(g) for t in tables for g in np.unique(t - t[0])))

    @property
    def dominated(self) -> int:
        """The smallest value that can be pruned, fixed point; above the incumbent's if ties are broken."""
        return self.upper + (1 if self.query.break_ties else 0)

    def can_prune(self, bound: int) -> bool:
        """Return whether a region with this exact lower bound (fixed point) can be pruned."""
        return bound >= self.dominated

    @property
    def upper(self) -> int:
        """The value of the incumbent, or an upper bound on all values if there is none; fixed point."""
        if self.best is not None:
            return self.best[0]
        return self.problem.largest_loss * UNIT + self.query.perturbation.magnitude

    def report(self, bound: int, nodes: int = 0) -> None:
        """Report progress: a lower bound over all unsettled regions, fixed point."""
        value = from_fixed(self.upper)
        self.query.watch.report(value, min(value, from_fixed(bound)), self.nodes + nodes)

    def run(self, regions: Sequence[Region]) -> Proposal:
        """Search the regions in order (best bounds first).

        Together with the regions that ``can_prune`` has excluded, they must cover the lattice.
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
        """Return the result; it is exact if no MIP was solved, as everything was settled in integers then."""
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
        """Solve one region; None if it is settled, else the reason and a bound over the region."""
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
        """Return the incumbent as a start, if it lies in the region and is not excluded by a no-good cut."""
        if self.best is None or self.query.break_ties:
            return None
        point = np.array(self.best[1], dtype=np.int64)
        return region.encode(point) if region.contains(point) else None

    def offer_found(self, point: IntArray) -> None:
        """Offer a point that was found during a solve, if it is in the lattice."""
        if self.problem.lattice.contains(point):
            self.offer(point)

    def _is_last(self, point: IntArray, bound: float) -> bool:
        """Offer the solver's optimum over the remaining points; return whether no other point can matter."""
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
        """Return a solver's bound in fixed point, less the tolerance, rounded down."""
        lowest = trivial_bound(self.query.perturbation)
        if not math.isfinite(bound):
            return lowest if bound < 0 else self.upper
        return max(lowest, math.floor((bound - self.tolerance) * UNIT))

    def _note(self, raw: str) -> None:
        if not self.raw or self.raw[-1] != raw:
            self.raw = [*self.raw, raw][-3:]

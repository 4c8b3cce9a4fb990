"""Interface of oracles for indefinite quadratics: global minimisers with proved lower bounds.

The problem is to minimise <w, H w>/2 + <g, w> over w in C, and in a half-space if one is given, with H
symmetric. H, C and the half-space are fixed when an oracle is prepared, and g is given with each question, as
for ``privopt.oracles.convex.quadratic``. privopt computes value and violation. It cannot check the lower
bound in less time than the solve takes, so the oracle must prove it. The bound of an ``exact`` oracle follows
from formulas, up to the rounding of float64 sums; the bounds of other oracles depend on the tolerances of a
solver. ``privopt.oracles.indefinite.conformance`` compares oracles with minima that are known by
construction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from privopt.oracles.certificate import Status
from privopt.oracles.convex.quadratic import Prepared, refuse, symmetric
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError


@dataclass(frozen=True, eq=False)
class HalfSpace:
    """Half-space {<normal, w> <= offset}; normal of shape (p,), finite and not 0."""

    normal: Vector
    offset: float

    def __post_init__(self) -> None:
        normal = np.array(self.normal, dtype=np.float64)
        finite = np.all(np.isfinite(normal)) and np.isfinite(self.offset)
        if normal.ndim != 1 or not finite or not np.any(normal):
            raise InvalidInputError("a half-space needs a finite offset and a finite normal that is not 0")
        normal.flags.writeable = False
        object.__setattr__(self, "normal", normal)


@dataclass(frozen=True, eq=False)
class IndefiniteProposal:
    """The result that a solver claims.

    Attributes:
        point: shape (p,).
        bound: a proved lower bound on the minimum over C and the half-space; -inf if nothing is proved.
        status: why the solver stopped.
        steps: number of iterations.
        raw_status: the solver's status text.
    """

    point: Vector
    bound: float
    status: Status = Status.OPTIMAL
    steps: int = 0
    raw_status: str = ""


IndefiniteSolver = Callable[[Vector, Watch], IndefiniteProposal]


class IndefiniteOracle(ABC):
    """An oracle that minimises quadratics globally.

    To add one, implement ``refusals`` and ``build`` in one file and run
    ``privopt.oracles.indefinite.conformance.check_indefinite_oracle`` on it.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]

    @abstractmethod
    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        """List every reason, beyond ``prepare``'s checks, why the oracle cannot take the problem. Cheap."""

    @abstractmethod
    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        """Do all work that does not depend on g. Called only if there are no refusals; H is read-only."""

    def prepare(
        self, convex_set: ConvexSet, H: ArrayLike, cut: HalfSpace | None = None
    ) -> PreparedIndefinite:
        """Validate, then build the solver.

        Args:
            convex_set: C, bounded.
            H: symmetric, shape (p, p).
            cut: a half-space that the point must lie in as well.

        Raises:
            InvalidInputError: H has another shape, is not symmetric or not finite, or the cut has another
                dimension than C.
            UnsupportedProblemError: the oracle refuses, or C is unbounded; the message lists every reason.
            InfeasibleDomainError: no point of C lies in the half-space.
        """
        matrix = symmetric(H, convex_set.dimension)
        if cut is not None and cut.normal.shape != (convex_set.dimension,):
            raise InvalidInputError(
                f"a half-space in {cut.normal.size} dimensions for a set in {convex_set.dimension}"
            )
        reasons = self.refusals(convex_set, matrix, cut)
        refuse(self.name, convex_set, reasons)
        if cut is not None and linear_minimizer(convex_set)(cut.normal).bound > cut.offset:
            raise InfeasibleDomainError(
                f"no point of the {type(convex_set).__name__} lies in the half-space of offset {cut.offset:g}"
            )
        return PreparedIndefinite(self.name, convex_set, matrix, self.build(convex_set, matrix, cut), cut)


@dataclass(frozen=True, eq=False)
class PreparedIndefinite(Prepared[IndefiniteProposal]):
    """A solver for indefinite quadratics over a set, with or without a half-space."""

    kind: ClassVar[type[Any]] = IndefiniteProposal

    cut: HalfSpace | None

    def _bound(self, proposal: IndefiniteProposal, point: Vector, curved: Vector, slope: Vector) -> float:
        if np.isnan(proposal.bound):
            raise SolverFailedError(f"oracle {self.name!r} returned no bound")
        return float(proposal.bound)

    def _beyond(self, point: Vector) -> float:
        if self.cut is None:
            return 0.0
        normal = self.cut.normal
        return float(normal @ point - self.cut.offset) / float(np.linalg.norm(normal))


def scale_of(H: Vector, g: Vector, radius: float) -> float:
    """Return the scale of the objective over a set of this radius, in which tolerances are measured."""
    return float(np.linalg.norm(H, 2)) * radius**2 + float(np.linalg.norm(g)) * radius

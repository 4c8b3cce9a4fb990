"""Choice of an oracle for an indefinite quadratic."""

from __future__ import annotations

import contextlib

from numpy.typing import ArrayLike

from privopt.oracles.errors import MissingSolverError, UnsupportedProblemError
from privopt.oracles.indefinite.ball import BallOracle
from privopt.oracles.indefinite.chords import ChordOracle
from privopt.oracles.indefinite.interface import HalfSpace, IndefiniteOracle, PreparedIndefinite
from privopt.oracles.indefinite.scip import ScipOracle
from privopt.oracles.indefinite.vertices import VertexOracle
from privopt.problems.convex.sets.interface import ConvexSet


def indefinite_oracles() -> list[IndefiniteOracle]:
    """Return all available oracles, those with exact bounds first."""
    found: list[IndefiniteOracle] = [BallOracle(), VertexOracle(), ChordOracle()]
    with contextlib.suppress(MissingSolverError):
        found.append(ScipOracle())
    return found


def indefinite_minimizer(
    convex_set: ConvexSet, H: ArrayLike, cut: HalfSpace | None = None
) -> PreparedIndefinite:
    """Return the first oracle that takes the problem: ball, vertices, chords, SCIP where it is installed.

    Raises:
        UnsupportedProblemError: no oracle takes the problem; the message lists the reasons of each.
        InvalidInputError, InfeasibleDomainError: see ``IndefiniteOracle.prepare``.
    """
    refused = []
    for oracle in indefinite_oracles():
        try:
            return oracle.prepare(convex_set, H, cut)
        except UnsupportedProblemError as refusal:
            refused.append(str(refusal))
    raise UnsupportedProblemError("; ".join(refused))

"""Answers of minimising oracles, and their certificates; ``minimize.interface.PreparedOracle`` makes both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from privopt.oracles.errors import CertificateError
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import from_fixed
from privopt.problems.notebooks import html_facts


class Status(Enum):
    """The reason why a solve stopped; the value of the member says what to do about it."""

    OPTIMAL = "nothing: the search is complete"
    TIME_LIMIT = "raise the time limit, or use an oracle that fits the problem better"
    INTERRUPTED = "run again without interrupting"
    HEURISTIC = "this oracle never proves optimality: use it for incumbents and non-private baselines only"


@dataclass(frozen=True)
class Certificate:
    """The certificate of an answer: value, proved lower bound, and status.

    Values and bounds are in units of loss. They are stored as fixed-point integers
    (``privopt.problems.discrete.objective.UNIT`` per unit of loss), so comparisons are exact.

    Attributes:
        status: why the solver stopped.
        fixed_value: the objective at the point, recomputed by privopt in integer arithmetic.
        fixed_bound: the proved lower bound on the objective over the whole lattice.
        lexicographic: whether the point is proved to be the lexicographically first of all minimisers.
        exact: whether the bound was proved in integer arithmetic; if not, it depends on a floating-point
            solver and its tolerances.
        oracle: name of the oracle.
        raw_status: the solver's status text.
        nodes: search nodes (or candidates) visited.
        seconds: wall-clock time of the solve.
    """

    status: Status
    fixed_value: int | None
    fixed_bound: int
    lexicographic: bool
    exact: bool
    oracle: str
    raw_status: str
    nodes: int
    seconds: float

    @property
    def value(self) -> float:
        return float("inf") if self.fixed_value is None else from_fixed(self.fixed_value)

    @property
    def bound(self) -> float:
        return from_fixed(self.fixed_bound)

    @property
    def gap(self) -> float:
        """Value minus bound, >= 0; infinite if there is no point."""
        return float("inf") if self.fixed_value is None else from_fixed(self.fixed_value - self.fixed_bound)

    def __str__(self) -> str:
        proof = "integer arithmetic" if self.exact else "floating-point solver"
        return (
            f"{self.status.name} value={self.value:.6g} bound={self.bound:.6g} gap={self.gap:.3g} "
            f"({proof}, {self.oracle}, {self.nodes} nodes, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        """Return a table for notebooks; it says that its content is not private."""
        facts = {
            "status": self.status.name,
            "value": f"{self.value:.6g}",
            "proved bound": f"{self.bound:.6g}",
            "gap": f"{self.gap:.3g}",
            "first of all minimisers": "proved" if self.lexicographic else "not proved",
            "proof in": "integer arithmetic" if self.exact else "floating point",
            "oracle": self.oracle,
            "nodes": self.nodes,
            "seconds": f"{self.seconds:.3g}",
        }
        return html_facts("Certificate (not private: it depends on the records)", facts)


@dataclass(frozen=True)
class Answer:
    """A feasible point of the lattice with its certificate; None if none was found before a limit."""

    point: IntArray | None
    certificate: Certificate

    def require(self, *, gap: float = 0.0, lexicographic: bool = False) -> IntArray:
        """Return the point if it is proved to be within ``gap`` of the minimum.

        Args:
            gap: the largest tolerated value - bound, in units of loss.
            lexicographic: also require a proof that it is the lexicographically first minimiser.

        Raises:
            CertificateError: the proof is missing; the message gives gap, bound, time and a remedy.
        """
        c = self.certificate
        if self.point is None or c.gap > gap:
            raise CertificateError(
                f"{c.oracle} proved a gap of {c.gap:.6g} where {gap:g} is needed (bound {c.bound:.6g}, "
                f"stopped by {c.status.name} after {c.seconds:.1f} s; solver says {c.raw_status!r}). "
                f"To do: {c.status.value}"
            )
        if lexicographic and not c.lexicographic:
            raise CertificateError(
                f"{c.oracle} did not prove that its minimiser is the lexicographically first of all "
                f"minimisers (after {c.seconds:.1f} s), which the privacy proof needs. "
                f"To do: use an oracle that breaks ties, or raise its time limit"
            )
        return self.point

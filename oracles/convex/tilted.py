"""Minimisers of tilted convex risks over a box: what OPSamp asks of a convex solver, and the proof of a gap.

min over w in the box of n F(w) - <tilt, w>, n F the sum of convex losses phi(<a_i, w>, y_i). The point is the
solver's; the gap is not its word. For any numbers s_i in the domain of the conjugate of phi,

    n F(v) >= n F(w) - sum_i (phi(z_i) + phi*(s_i) - s_i z_i) + <A's, v - w>,  z = A w,

so w is at most sum_i (phi(z_i) + phi*(s_i) - s_i z_i) + max over v in the box of <A's - tilt, w - v> above
the minimum. With the derivatives s_i = phi'(z_i) the first part is 0, the second the gap of Frank and Wolfe.
Where a loss has a kink, s are the multipliers of a linear program; any values are safe. Room for rounding is
added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.errors import CertificateError, SolverFailedError, UnsupportedProblemError
from privopt.oracles.limits import Limits, Watch, started
from privopt.problems.convex.kinked_losses import KinkedLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.box import Box
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class TiltedProposal:
    """What a solver claims.

    Attributes:
        point: shape (d,); brought into the box.
        multipliers: for a ``KinkedLoss`` the s_i, shape (rows,): brought between its slopes.
        status: why the solver stopped.
    """

    point: Vector
    multipliers: Vector | None = None
    status: Status = Status.OPTIMAL


@dataclass(frozen=True, eq=False)
class TiltedAnswer:
    """A point of the box, and how far above the minimum it is at most, in units of the sum of the losses."""

    point: Vector
    gap: float
    status: Status
    oracle: str
    seconds: float

    def require(self, *, gap: float) -> Vector:
        """The point, if it is proved to be that good.

        Raises:
            CertificateError: the gap is larger.
        """
        if not self.gap <= gap:
            raise CertificateError(
                f"{self.oracle} proved a gap of {self.gap:.6g} where {gap:g} is needed; stopped "
                f"by {self.status.name} after {self.seconds:.1f} s. To do: plan for a larger alpha, or allow "
                "the solver more time"
            )
        return self.point


@dataclass(frozen=True, eq=False)
class TiltedOracle(ABC):
    """A solver for one risk over one box. Answers are a function of the tilt alone, from any thread.

    To add one, implement ``reasons`` and ``propose`` in one file and run
    ``privopt.oracles.convex.tilted_conformance.check_tilted_oracle`` on it.

    Attributes:
        risk: float64 data, a convex loss.
        box: the domain.

    Raises:
        UnsupportedProblemError: listing every reason why the solver cannot take them.
    """

    name: ClassVar[str]

    risk: EmpiricalRisk
    box: Box

    def __post_init__(self) -> None:
        loss, d = self.risk.facts.loss, self.risk.facts.dimension
        reasons = self.reasons(self.risk)
        if not loss.convex:
            reasons.append(f"{type(loss).__name__} is not convex")
        if self.risk.X.dtype != np.float64:
            reasons.append(f"data must be in float64, not {self.risk.X.dtype}")
        if self.box.dimension != d:
            reasons.append(f"a box of dimension {self.box.dimension} for {d} features")
        if reasons:
            raise UnsupportedProblemError(f"oracle {self.name!r} cannot minimise this: {'; '.join(reasons)}")

    @staticmethod
    @abstractmethod
    def reasons(risk: EmpiricalRisk) -> list[str]:
        """Every reason, beyond those that hold for all, why this solver cannot take the risk."""

    @abstractmethod
    def propose(self, tilt: Vector, watch: Watch) -> TiltedProposal:
        """Poll ``watch.stop()``; on a limit return what there is."""

    def solve(self, tilt: Vector, limits: Limits | None = None) -> TiltedAnswer:
        """argmin over the box of n F(w) - <tilt, w>, with the evidence; see ``TiltedAnswer.require``.

        Args:
            tilt: shape (d,), finite.
            limits: time limit and cancellation; a solver that stops early returns what it has.

        Raises:
            InvalidInputError: a tilt of another shape, or not finite.
            SolverFailedError: the solver broke down, or returned something that is not a point.
        """
        tilt, watch = np.array(tilt, dtype=np.float64), started(limits)
        if tilt.shape != (self.box.dimension,) or not np.all(np.isfinite(tilt)):
            raise InvalidInputError(
                f"expected a finite tilt of shape ({self.box.dimension},), got {tilt.shape}"
            )
        found = self.propose(tilt.copy(), watch)
        point = np.array(found.point, dtype=np.float64)
        if point.shape != tilt.shape or not np.all(np.isfinite(point)):
            raise SolverFailedError(f"oracle {self.name!r} returned something that is not a point")
        point = self.box.clip(point)
        gap = self._gap(point, tilt, found.multipliers)
        return TiltedAnswer(point, gap, found.status, self.name, watch.seconds)

    def require(self, tilt: Vector, gap: float, limits: Limits | None = None) -> tuple[Vector, float]:
        """A point whose gap is at most ``gap``, and its gap.

        Raises:
            CertificateError: the gap that was proved is larger.
        """
        answer = self.solve(tilt, limits)
        return answer.require(gap=gap), answer.gap

    def _gap(self, w: Vector, tilt: Vector, multipliers: Vector | None) -> float:
        facts, low, high = self.risk.facts, self.box.low, self.box.high
        missing, gradient = 0.0, None
        if isinstance(facts.loss, KinkedLoss) and multipliers is not None:
            missing, gradient = self._kinked(facts.loss, w, multipliers)
        if gradient is None:
            gradient = facts.n_records * self.risk.value_and_gradient(w)[1]
        slope = gradient - tilt
        summed = facts.n_records * facts.gradient_bound_linf * (facts.rounding + 2.0**-50)
        error = summed + 2.0**-50 * np.abs(tilt)
        away = np.maximum(slope * (w - low), slope * (w - high))
        return missing + float(np.sum(np.maximum(away, 0) + error * (high - low)))

    def _kinked(self, loss: KinkedLoss, w: Vector, multipliers: Vector) -> tuple[float, Vector]:
        """sum_i (phi(z_i) - s_i (z_i - y_i)), with room for rounding, and A's."""
        risk, n = self.risk, self.risk.facts.n_records
        y = risk.y.astype(np.float64)
        below, above = loss.slopes(y)
        s = np.clip(np.asarray(multipliers, dtype=np.float64), below, above)
        away = risk.predictions(w) - y
        each = risk.counts * np.where(away >= 0, (above - s) * away, (s - below) * -away)
        reach = risk.facts.row_norm * float(np.sum(np.maximum(np.abs(self.box.low), np.abs(self.box.high))))
        size = reach + float(np.max(np.abs(y)))
        room = (2 * loss.lipschitz * n * size * (len(w) + 8) + float(np.sum(each)) * (n + 8)) * 2.0**-52
        return float(np.sum(each)) + room, np.asarray(risk.clipped_rows().T @ (risk.counts * s))

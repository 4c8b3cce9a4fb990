"""OPSamp on convex Lipschitz losses over a box, through a convex solver."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.perturbed_leader import AveragedRelease, TiltedMean
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import Limits
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box


class TiltedOracle(Protocol):
    """Minimiser of n F(w) - <tilt, w> over a box, up to a proved gap."""

    @property
    def risk(self) -> EmpiricalRisk: ...

    @property
    def box(self) -> Box: ...

    def require(self, tilt: Vector, gap: float, limits: Limits | None = None) -> tuple[Vector, float]:
        """A point and its proved gap, at most ``gap``; raises CertificateError otherwise."""


@dataclass(frozen=True)
class ConvexOPSamp:
    """The mean over m draws of argmin n F(w) - <sigma, w> over a box, plus Laplace noise, brought into the
    box.

    Privacy: as ``mechanisms.discrete.opsamp``; neither smoothness nor strong convexity is needed for it. The
    loss of one record is G-Lipschitz in l1, G the l-infinity bound on its gradient.

    Source: Neel, Roth, Vietri and Wu (ICML 2020), Algorithm 2, with constants derived anew.

    Attributes:
        facts: the public facts of the data.
        box: the domain.
        mean: tilts, answers and noise.
        spend: the claim.
    """

    name: ClassVar[str] = "opsamp-convex"

    facts: RiskFacts
    box: Box
    mean: TiltedMean
    spend: PrivacySpend

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        box: Box,
        *,
        epsilon: float,
        delta: float,
        alpha: float = 1e-3,
        rate: float | None = None,
        draws: int | None = None,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            facts: of the risk.
            box: the domain.
            epsilon, delta: the target.
            alpha: the gap up to which answers are taken, in units of the sum of the losses.
            rate, draws: as for ``TiltedMean.plan``.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        mean = TiltedMean.plan(
            np.asarray(box.high - box.low),
            lipschitz=facts.gradient_bound_linf,
            n_records=facts.n_records,
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            rate=rate,
            draws=draws,
        )
        return cls(facts, box, mean, PrivacySpend.approximate(epsilon, delta, cls.name))

    @property
    def noise(self) -> dict[str, float]:
        return self.mean.noise

    def release(
        self,
        oracle: TiltedOracle,
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
        workers: int = 1,
    ) -> AveragedRelease:
        """Call the oracle m times, require the gap, average, and add noise.

        Args:
            oracle: for the data, such as ``oracles.convex.tilted_select.tilted_minimizer(risk, box)``.
            limits: limits of each call.
            workers: the number of threads.

        Raises:
            PlanMismatchError: the oracle has other facts, or another box.
            CertificateError: a gap above ``alpha``; nothing is released.
        """
        same = np.array_equal(oracle.box.low, self.box.low) and np.array_equal(oracle.box.high, self.box.high)
        if oracle.risk.facts != self.facts or not same:
            raise PlanMismatchError(
                f"this plan was made for {self.facts}, the oracle has {oracle.risk.facts}, or another box"
            )
        source = checked_source(noise)
        point, gap = self.mean.ask(
            lambda tilt: oracle.require(tilt, self.mean.alpha, limits), source, workers
        )
        spend = dataclasses.replace(self.spend, insecure_seed=source.insecure_seed)
        return AveragedRelease(self.box.clip(point), spend, self.noise, gap)

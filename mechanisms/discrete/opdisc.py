"""OPDisc: objective perturbation over a discrete domain, through a normalized linear oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from privopt.mechanisms.discrete.calibration import Calibration, calibrate_opdisc, normalized_dof
from privopt.mechanisms.discrete.mechanism import LatticeMechanism, Release, Target
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import PreparedOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation, rounding_slack


@dataclass(frozen=True)
class OPDisc(LatticeMechanism[PreparedOracle]):
    """argmin over w of L(D, w) - <eta, pi(w)>, eta ~ N(0, sigma^2 I), pi(w) = (w/D, sqrt(1 - |w|^2/D^2)).

    Privacy, with calibration="sound": (epsilon, delta)-differential privacy, neighbours by replacing one
    record, n and the lattice public; the answer must be the certified, lexicographically first argmin.
    With calibration="printed" the noise is the source paper's, and its claim is refuted: the bad set of
    the proof's density-ratio lemma depends on the winner.

    Source: Neel, Roth, Vietri and Wu (ICML 2020), Algorithm 1; calibration in
    ``mechanisms.discrete.calibration``.
    """

    name: ClassVar[str] = "opdisc"
    question: ClassVar[Task] = Task.NORMALIZED

    sigma: float

    @classmethod
    def default_lattice(cls, dimension: int) -> IntegerLattice:
        """The source paper's: |w_j| <= floor(sqrt d), |w| <= sqrt d."""
        b = math.isqrt(dimension)
        return IntegerLattice(-b, b, dimension=dimension, radius=math.sqrt(dimension))

    @classmethod
    def _calibrated(cls, target: Target) -> Calibration:
        lattice = target.lattice
        return calibrate_opdisc(
            target.epsilon,
            target.delta,
            squared_radius=lattice.max_squared_norm,
            dof=normalized_dof(lattice),
            separation=lattice.separation,
            loss_difference=2.0 * target.loss_bound,
            slack=rounding_slack(lattice.dimension + 1),
            calibration=target.calibration,
        )

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.sigma}

    def release(
        self, oracle: PreparedOracle, noise: NoiseSource | None = None, limits: Limits | None = None
    ) -> Release:
        """Draw eta, call the oracle once, and require a certified argmin.

        Raises:
            PlanMismatchError: the oracle was prepared for another problem or task.
            CertificateError: no certified argmin; nothing is released.
        """
        self.check_oracle(oracle)
        source = checked_source(noise)
        eta = source.gaussian(self.sigma, self.lattice.dimension + 1)
        return self.certified_argmin(oracle, Perturbation.normalized(self.lattice, eta), source, limits)

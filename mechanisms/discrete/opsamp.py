"""OPSamp over a lattice: the mean of approximate answers of a linear oracle, plus Laplace noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.discrete.calibration import EXPONENTIAL_REACH, within_terms
from privopt.mechanisms.discrete.mechanism import answering, check_planned, largest_loss
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.perturbed_leader import AveragedRelease, TiltedMean, Vector
from privopt.mechanisms.privacy.reliance import relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import PreparedOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation, rounding_slack
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class OPSamp:
    """The mean over m draws of argmin L(D, w) - <sigma, w>, sigma_j exponential, plus Laplace noise.

    The mean of a tilt, a public constant, is subtracted from each tilt. The release is a real vector, in
    general not a point of the lattice.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n and the lattice
    public. The oracle's gap may be up to ``alpha``, for which the noise accounts
    (``mechanisms.privacy.perturbed_leader``, with the proof); an answer whose certificate leaves a larger
    gap is refused, and nothing is released. Floating-point certificates are trusted.

    Source: Neel, Roth, Vietri and Wu (ICML 2020), Algorithm 2, with constants derived anew:
    integer points need a factor of 4 d less noise than the Lipschitz bound.

    Attributes:
        problem_type, lattice, loss_bound: the public facts of the plan.
        mean: the plan of tilts, answers and noise.
        spend: the privacy cost.
        n_records: n.
    """

    name: ClassVar[str] = "opsamp"
    noised: ClassVar[str] = "the mean of the sampled minimisers, each coordinate"
    question: ClassVar[Task] = Task.LINEAR

    problem_type: type[DiscreteProblem]
    lattice: IntegerLattice
    loss_bound: int
    mean: TiltedMean
    spend: PrivacySpend
    n_records: int

    @classmethod
    def plan(
        cls,
        problem_type: type[DiscreteProblem],
        lattice: IntegerLattice,
        *,
        n_records: int,
        epsilon: float,
        delta: float,
        alpha: float = 0.0,
        rate: float | None = None,
        draws: int | None = None,
        loss_bound: int | None = None,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            problem_type, lattice: the objective and its domain.
            n_records: n.
            epsilon, delta: the target.
            alpha: the gap, in numbers of errors, up to which answers are accepted; >= 0.
            rate, draws: as for ``TiltedMean.plan``.
            loss_bound: the largest loss of one record; by default the largest of the type.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        bound = largest_loss(problem_type, loss_bound)
        if lattice.constrained:
            raise InvalidInputError(f"{cls.name} takes no constraints on points: {lattice}")
        widths = (lattice.high - lattice.low).astype(np.float64)
        # Two points are at least 1 apart in l1, and losses at most ``bound``.
        mean = TiltedMean.plan(
            widths,
            lipschitz=float(bound),
            n_records=n_records,
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            slack=rounding_slack(lattice.dimension),
            loss_bound=float(bound),
            rate=rate,
            draws=draws,
        )
        farthest = int(np.max(np.maximum(np.abs(lattice.low), np.abs(lattice.high))))
        within_terms(farthest / mean.rate, EXPONENTIAL_REACH)
        return cls(
            problem_type, lattice, bound, mean, PrivacySpend.approximate(epsilon, delta, cls.name), n_records
        )

    @property
    def noise(self) -> dict[str, float]:
        return self.mean.noise

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The worse ratio: noise on a weight to half its range, or tilts to the losses of a constant.

        A constant loses half of the largest possible loss; tilts are compared between opposite corners.
        """
        widths = (self.lattice.high - self.lattice.low).astype(np.float64)
        weight = NoiseToSignal(
            math.sqrt(2) * self.mean.laplace.scale, float(np.mean(widths)) / 2, "noise on a weight"
        )
        tilt = float(np.linalg.norm(widths)) / self.mean.rate
        loss = NoiseToSignal(tilt, self.n_records * self.loss_bound / 2, "random tilts of the total loss")
        return max(weight, loss, key=lambda found: found.ratio)

    def release(
        self,
        oracle: PreparedOracle,
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
        workers: int = 1,
    ) -> AveragedRelease:
        """Call the oracle m times, require the gap, average, and add noise.

        Args:
            oracle: prepared for ``Task.LINEAR`` on the data.
            limits: limits of each call.
            workers: the number of threads.

        Raises:
            PlanMismatchError: the oracle was prepared for another problem or task.
            CertificateError: a gap above ``alpha``; nothing is released.
        """
        check_planned(self.problem_type, self.lattice, self.loss_bound, oracle.problem)
        if oracle.task is not self.question:
            raise PlanMismatchError(
                f"{self.name} needs an oracle prepared for {self.question}, got one for {oracle.task}"
            )

        def answer(tilt: Vector) -> tuple[Vector, float]:
            found = oracle.minimize(Perturbation.linear(self.lattice, -tilt), limits)
            point = found.require(gap=self.mean.alpha)
            return point.astype(np.float64), found.certificate.gap

        source = checked_source(noise)
        point, gap = self.mean.ask(answer, source, workers)
        spend = relying_on(spent(self, source), self, answering(oracle))
        return AveragedRelease(point, spend, self.noise, gap)

"""RSPM: report separator-perturbed noisy max, through a linear oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.discrete.calibration import (
    Calibration,
    calibrate_rspm,
    calibrate_rspm_laplace,
    separator_counts,
)
from privopt.mechanisms.discrete.mechanism import PerturbedMinimizer, Target, check_calibration
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.task import Task
from privopt.problems.discrete.objective import Perturbation


@dataclass(frozen=True)
class GaussianRSPM(PerturbedMinimizer):
    """Minimiser of the loss plus the loss of public records with random weights.

    argmin over w of L(D, w) + sum_k eta_k loss(w, e_k), eta ~ N(0, sigma^2 I), e_1..e_m a separator set.

    Privacy, with calibration="sound": (epsilon, delta)-differential privacy, neighbours by replacing one
    record, n and the lattice public; the answer must be the certified, lexicographically first argmin.
    With calibration="printed" the noise is the source paper's, and its claim is refuted.

    Constraints: separators of a lattice also tell apart any two points of a part of it, and a shift that
    makes w win against every other point also makes w win against fewer points. So noise calibrated to the
    lattice is enough for any part of it that public constraints leave.

    Source: Neel, Roth and Wu (2018), Algorithm 2; Neel, Roth, Vietri and Wu (ICML 2020), Theorem 6.
    """

    name: ClassVar[str] = "rspm"
    noised: ClassVar[str] = "the objective, by a random weight on each separator"
    question: ClassVar[Task] = Task.LINEAR
    takes_constraints: ClassVar[bool] = True

    scale: float

    @classmethod
    def _calibrated(cls, target: Target) -> Calibration:
        counts = separator_counts(target.problem_type.separators(target.lattice))
        return calibrate_rspm(
            target.epsilon,
            target.delta,
            counts,
            loss_bound=target.loss_bound,
            calibration=target.calibration,
        )

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.scale}

    @property
    def excess(self) -> float:
        """Bound the mean of the largest sum of weights: in a coordinate, the largest of k + 1 partial sums.

        The mean maximum of a random walk of k steps is at most sqrt(2 k / pi) standard deviations of a step.
        """
        separators = self.problem_type.separators(self.lattice)
        _, steps = np.unique(separators.coordinate, return_counts=True)
        return self._deviation * float(np.sum(np.sqrt(2 * steps / math.pi)))

    @property
    def _deviation(self) -> float:
        """Standard deviation of a weight."""
        return self.scale

    def _perturbation(self, source: NoiseSource) -> Perturbation:
        """Weight the separators at random."""
        separators = self.problem_type.separators(self.lattice)
        eta = self._draw(source, separators.size)
        return separators.weighted(eta)

    def _draw(self, source: NoiseSource, size: int) -> NDArray[np.float64]:
        return source.gaussian(self.scale, size)


@dataclass(frozen=True)
class LaplaceRSPM(GaussianRSPM):
    """RSPM with Laplace weights of scale 2 B m / epsilon, B the largest loss of a record.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record, n and the lattice
    public. Take the m weights of the separators next to the winner in every coordinate. Moving these weights
    by 2 B toward the winner keeps it the winner on any neighbour, and costs a density ratio of at most
    exp(2 B m / scale) whichever the winner is; no bad set is needed.

    Source: Neel, Roth and Wu (2018), Theorem 7.
    """

    name: ClassVar[str] = "rspm-laplace"

    @classmethod
    def _calibrated(cls, target: Target) -> Calibration:
        counts = separator_counts(target.problem_type.separators(target.lattice))
        check_calibration(target.calibration, cls.name, ("sound",))
        return calibrate_rspm_laplace(target.epsilon, counts, loss_bound=target.loss_bound)

    @property
    def noise(self) -> dict[str, float]:
        return {"scale": self.scale}

    @property
    def _deviation(self) -> float:
        return math.sqrt(2) * self.scale

    def _draw(self, source: NoiseSource, size: int) -> NDArray[np.float64]:
        return source.laplace(self.scale, size)

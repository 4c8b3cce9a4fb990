"""OPDisc: objective perturbation over a discrete domain, through a normalized linear oracle."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Self

from privopt.mechanisms.discrete.calibration import Calibration, calibrate_opdisc, normalized_dof
from privopt.mechanisms.discrete.mechanism import PerturbedMinimizer, Target, largest_loss
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_positive
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation, rounding_slack
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass(frozen=True)
class OPDisc(PerturbedMinimizer):
    """Minimiser of the loss minus a random linear term in the point of the sphere above w.

    argmin over w of L(D, w) - <eta, pi(w)>, eta ~ N(0, sigma^2 I), pi(w) = (w/D, sqrt(1 - |w|^2/D^2)).

    Losses are bounded, as 0/1 losses are, or Lipschitz, as hinge and absolute losses are.

    Privacy, with calibration="sound": (epsilon, delta)-differential privacy, neighbours by replacing one
    record, n and the lattice public; the answer must be the certified, lexicographically first argmin.
    With calibration="printed" the noise is the source paper's, and its claim is refuted: the bad set of
    the proof's density-ratio lemma depends on the winner.

    Constraints: the proof needs |w| <= D and distances of at least tau between points, which hold in any part
    of a lattice; and a shift that makes w win against every other point also makes w win against fewer
    points. D is computed from the bounds of the lattice.

    Source: Neel, Roth, Vietri and Wu (ICML 2020), Algorithm 1; sensitivity and calibration in
    ``mechanisms.discrete.calibration``.
    """

    name: ClassVar[str] = "opdisc"
    noised: ClassVar[str] = "the linear term that is added to the objective, each coordinate"
    question: ClassVar[Task] = Task.NORMALIZED
    takes_constraints: ClassVar[bool] = True

    sigma: float
    lipschitz: float = math.inf

    @classmethod
    def plan(
        cls,
        problem_type: type[DiscreteProblem],
        lattice: IntegerLattice,
        *,
        epsilon: float,
        delta: float = 0.0,
        calibration: str = "sound",
        loss_bound: int | None = None,
        lipschitz: float = math.inf,
    ) -> Self:
        """Calibrate to public facts; see ``LatticeMechanism.plan``.

        ``lipschitz`` is a bound G on |l(w) - l(v)| / |w - v| for the loss l of a record. One record then
        changes the difference of two points' losses by at most 2 G |w - v|. The noise needed is largest at
        the least distance of two points, so the noise is set by the smaller of G times that distance and
        ``loss_bound``.
        """
        slope = check_positive(lipschitz, "lipschitz") if lipschitz != math.inf else lipschitz
        bound = largest_loss(problem_type, loss_bound)
        target = Target(problem_type, lattice, bound, epsilon, delta, calibration, slope)
        return dataclasses.replace(cls._planned(target), lipschitz=slope)

    def check_problem(self, problem: DiscreteProblem) -> None:
        super().check_problem(problem)
        if problem.record_lipschitz > self.lipschitz < math.inf:
            raise PlanMismatchError(
                f"this plan was made for losses with Lipschitz constant {self.lipschitz:g}; here it is "
                f"{problem.record_lipschitz:g}. To do: plan with lipschitz={problem.record_lipschitz:g}"
            )

    @classmethod
    def default_lattice(cls, dimension: int) -> IntegerLattice:
        """Return the lattice of the source paper: |w_j| <= floor(sqrt d), |w| <= sqrt d."""
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
            loss_difference=2.0 * min(target.loss_bound, target.lipschitz * lattice.separation),
            slack=rounding_slack(lattice.dimension + 1),
            calibration=target.calibration,
        )

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.sigma}

    @property
    def excess(self) -> float:
        """Bound E max <eta, pi(w)> over w, |pi(w)| = 1, by the lesser of E |eta|, sigma sqrt(2 log |W|)."""
        points = 2 * math.log(self.lattice.box_size)
        return self.sigma * math.sqrt(min(points, normalized_dof(self.lattice)))

    def _perturbation(self, source: NoiseSource) -> Perturbation:
        eta = source.gaussian(self.sigma, self.lattice.dimension + 1)
        return Perturbation.normalized(self.lattice, eta)

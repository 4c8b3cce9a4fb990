"""Oracle for convex quadratics over sets with a projection, by accelerated projected gradient steps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.convex.proximal import accelerated
from privopt.oracles.convex.quadratic import (
    QuadraticOracle,
    QuadraticProposal,
    QuadraticSolver,
    quadratic_oracle,
)
from privopt.oracles.convex.registry import linear_minimizer, projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError

_CHECK_EVERY = 10


@dataclass(frozen=True)
class ProjectedGradientOracle(QuadraticOracle):
    """Accelerated projected gradient steps with restarts (Beck and Teboulle 2009).

    The linear minimiser of the set proves the gap at every tenth step.

    Attributes:
        gap: the gap at which to stop, relative to a bound on the gradient norm times the radius of the set.
        steps: the largest number of steps; if the gap is not reached by then, the best point so far is
            returned.
    """

    name: ClassVar[str] = "projected-gradient"

    gap: float = 1e-9
    steps: int = 20_000

    def __post_init__(self) -> None:
        if not (self.gap > 0 and self.steps >= 1):
            raise InvalidInputError(f"gap must be > 0 and steps >= 1, got {self.gap} and {self.steps}")

    def refusals(self, convex_set: ConvexSet, H: Vector) -> list[str]:
        reasons = []
        for needed in (projector, linear_minimizer):
            try:
                needed(convex_set)
            except UnsupportedProblemError as refusal:
                reasons.append(str(refusal))
        return reasons

    def build(self, convex_set: ConvexSet, H: Vector) -> QuadraticSolver:
        project, minimize = projector(convex_set), linear_minimizer(convex_set)
        largest = float(np.linalg.eigvalsh(H)[-1])

        def solve(g: Vector, watch: Watch) -> QuadraticProposal:
            slope = largest * convex_set.radius + float(np.linalg.norm(g))
            smoothness = largest if largest > 0 else slope / convex_set.radius or 1.0
            target = self.gap * slope * convex_set.radius
            iterates = accelerated(
                lambda x: H @ x + g, lambda x, _step: project(x), 1 / smoothness, np.zeros(len(g))
            )
            best, least = project(np.zeros(len(g))), np.inf
            for k, w in enumerate(islice(iterates, self.steps)):
                stopped = watch.stop()
                if k % _CHECK_EVERY and stopped is None:
                    continue
                gradient = H @ w + g
                gap = float(gradient @ w) - minimize(gradient).bound
                if gap < least:
                    best, least = w, gap
                if least <= target or stopped is not None:
                    return QuadraticProposal(best, stopped or Status.OPTIMAL, steps=k + 1)
            return QuadraticProposal(best, Status.TIME_LIMIT, steps=self.steps, raw_status="out of steps")

        return solve


@quadratic_oracle.register
def _(convex_set: ConvexSet) -> QuadraticOracle:
    return ProjectedGradientOracle()

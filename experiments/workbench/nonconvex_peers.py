"""Methods later than Wang, Chen and Xu (2019), and the step sizes of that paper: for comparison only.

Noise is sampled by NumPy in floating point; the mechanisms of the package sample it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DoubleNoise:
    """Newton steps with noise on the gradient and on the step (Ganesh, Haghifam, Steinke and Thakurta 2023).

    The step is -Psi(H)^-1 g with a noisy gradient g; Psi(H) replaces every eigenvalue d by max(|d|, floor).
    The Frobenius distance of Psi(H) under replace-one is at most H's, 2 M_F / n, so the step changes by
    at most |g| 2 M_F / (n floor^2). The paper, for convex losses, has max(d, floor), and half of this bound.
    """

    steps: int
    floor: float  # in units of the noise that one step would add to the whole Hessian
    share: float = 0.5

    def __call__(
        self,
        risk: TwiceDifferentiableRisk,
        facts: RiskFacts,
        mu: float,
        start: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        w, size = start.copy(), facts.dimension
        sigma = facts.sensitivity * math.sqrt(self.steps / (1 - self.share)) / mu
        moved = facts.hessian_sensitivity * math.sqrt(self.steps / self.share) / mu
        least = self.floor * moved * math.sqrt(2 * size)
        for _ in range(self.steps):
            g = risk.gradient(w) + sigma * rng.normal(size=size)
            d, Q = np.linalg.eigh(risk.hessian(w))
            step = -Q @ ((Q.T @ g) / np.maximum(np.abs(d), least))
            scale = float(np.linalg.norm(g)) * moved / least**2
            w = w + step + scale * rng.normal(size=size)
        return w


Peer = Callable[[TwiceDifferentiableRisk, RiskFacts, float, Floats, np.random.Generator], Floats]

# The page shows the best of this grid per problem, chosen by the result, which favours this peer.
DOUBLES = tuple(DoubleNoise(steps, floor) for steps in (10, 30) for floor in (1.0, 3.0))


class PrintedFrankWolfeL2(DPFrankWolfeL2):
    """Frank-Wolfe with gamma = 1 / sqrt(T), as in Theorem 5 up to constants."""

    def _rate(self) -> Callable[[int], float]:
        return lambda k: 1 / math.sqrt(self.steps)


class PrintedFrankWolfeL1(DPFrankWolfeL1):
    """Frank-Wolfe with gamma = sqrt(2 / T), at most 1, as in Theorem 6 up to constants."""

    def _rate(self) -> Callable[[int], float]:
        return lambda k: min(1.0, math.sqrt(2 / self.steps))


def printed_steps(facts: RiskFacts, epsilon: float, delta: float, vertices: bool) -> int:
    """Return T of Theorem 5, n epsilon / sqrt(d ln(1/delta)), or of Theorem 6 at eta = 0.05; constants 1."""
    n, d = facts.n_records, facts.dimension
    if vertices:
        return max(1, math.ceil(n * epsilon / (math.sqrt(math.log(1 / delta)) * math.log(d * n / 0.05))))
    return max(1, math.ceil(n * epsilon / math.sqrt(d * math.log(1 / delta))))

"""Loss of phase retrieval, (z^2 - y)^2 / 4: the textbook quartic with a saddle between two minima."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privopt.problems.convex.losses import Labels, Loss, RealArray
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class QuarticLoss(Loss):
    """Loss (z^2 - y)^2 / 4 for |z| <= bound, y in [0, 1]; beyond, the curvature decreases linearly to 0.

    A quartic has no Lipschitz constant; this continuation has one. It changes nothing for predictions within
    the bound, which include all labels y = <a, w*>^2 with |a|, |w*| <= 1. Let B be the bound, c = 3 B^2 - y
    the curvature at B, and K = 6 B. The curvature decreases at rate K and reaches 0 at B + c/K, so it is
    K-Lipschitz everywhere and largest at z = B, y = 0. The slope ends at B^3 - y B + c^2 / (2 K), which is
    largest at y = 0. The curvature at z = 0 is -y.
    """

    bound: float = 1.5

    labels = Labels.UNIT
    convex = False

    def __post_init__(self) -> None:
        if not 1 <= self.bound <= 1e6:
            raise InvalidInputError(f"bound must be from 1, where the minima are, to 1e6, got {self.bound}")

    @property
    def lipschitz(self) -> float:
        return 1.75 * self.bound**3

    @property
    def smoothness(self) -> float:
        return 3 * self.bound**2

    @property
    def curvature_lipschitz(self) -> float:
        return 6 * self.bound

    def _parts(self, z: RealArray, y: RealArray) -> tuple[RealArray, RealArray, RealArray, RealArray]:
        """Return min(|z|, bound), the curvature there, the rest of |z|, and its part with curvature > 0."""
        inside = np.minimum(np.abs(z), self.bound)
        beyond = np.abs(z) - inside
        curvature = 3 * inside**2 - y
        return inside, curvature, beyond, np.minimum(beyond, curvature / (6 * self.bound) * (beyond > 0))

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        inside, curvature, beyond, falling = self._parts(z, y)
        slope = inside**3 - y * inside
        bend = falling * falling * (curvature / 2 - self.bound * falling)
        end = falling * (curvature - 3 * self.bound * falling)
        return (inside**2 - y) ** 2 / 4 + slope * beyond + bend + end * (beyond - falling)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        inside, curvature, _, falling = self._parts(z, y)
        slope = inside**3 - y * inside + falling * (curvature - 3 * self.bound * falling)
        return np.sign(z) * slope

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        _, curvature, beyond, _ = self._parts(z, y)
        return np.where(beyond > 0, np.maximum(0, curvature - 6 * self.bound * beyond), curvature)

"""Losses that are linear on either side of the label: convex and Lipschitz, not smooth."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from privopt.problems.convex.losses import Labels, Loss, RealArray


class KinkedLoss(Loss):
    """phi(z, y) = the largest s (z - y) for s between the slopes below and above the label.

    No multiple of a step is short enough for such a loss, so gradient methods refuse it; a linear program
    minimises its risk.
    """

    convex = True
    smoothness = math.inf

    @abstractmethod
    def slopes(self, y: RealArray) -> tuple[RealArray, RealArray]:
        """The slopes where z < y and where z > y, the shape of y each."""

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        below, above = self.slopes(y)
        return np.maximum(below * (z - y), above * (z - y))

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        """A subgradient: at z = y the slope above."""
        below, above = self.slopes(y)
        return np.where(z < y, below, above).astype(z.dtype)

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        return np.zeros_like(z)


@dataclass(frozen=True)
class HingeLoss(KinkedLoss):
    """max(0, 1 - y z), y = -1 or +1: that of support vector machines."""

    labels = Labels.SIGN
    lipschitz = 1.0

    def slopes(self, y: RealArray) -> tuple[RealArray, RealArray]:
        return np.minimum(-y, 0), np.maximum(-y, 0)


@dataclass(frozen=True)
class AbsoluteLoss(KinkedLoss):
    """|z - y|: the minimum is a regression to the median."""

    labels = Labels.REAL
    lipschitz = 1.0

    def slopes(self, y: RealArray) -> tuple[RealArray, RealArray]:
        return np.full_like(y, -1), np.ones_like(y)

"""Balls of the group norm: sums of l2 norms over groups of coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import (
    Estimate,
    NormBall,
    check_size,
    log1m,
    mean_of_maximum,
    scaled_estimate,
)
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class GroupL1Ball(NormBall):
    """Group ball {sum over groups of |w_group|_2 <= size}; groups partition the coordinates 0..p-1."""

    groups: tuple[tuple[int, ...], ...]
    size: float

    def __post_init__(self) -> None:
        members = sorted(j for group in self.groups for j in group)
        if not all(self.groups) or members != list(range(len(members))):
            raise InvalidInputError("groups must be non-empty and hold every coordinate 0..p-1 once")
        check_size(len(members), self.size)

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the groups
        return sum(len(group) for group in self.groups)

    @cached_property
    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The group of each coordinate, shape (p,)."""
        labels = np.empty(self.dimension, dtype=np.int64)
        for number, group in enumerate(self.groups):
            labels[list(group)] = number
        return labels

    def group_norms(self, v: Vector) -> Vector:
        """Return |v_group|_2 for every group."""
        return np.sqrt(np.bincount(self.labels, v * v, len(self.groups)))

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(max(len(group) for group in self.groups))

    def norm(self, v: Vector) -> float:
        return float(np.sum(self.group_norms(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.max(self.group_norms(v)))

    def gaussian_width(self) -> Estimate:
        sizes = np.array([len(group) for group in self.groups])
        return scaled_estimate(
            mean_of_maximum(lambda t: float(np.sum(log1m(special.gammaincc(sizes / 2, t * t / 2))))),
            self.size,
        )

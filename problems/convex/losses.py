"""Losses of linear models: f(w; (a, y)) = phi(<a, w>, y), as functions of the prediction alone.

A loss is evaluated on the vector of predictions and never sees the features. Its constants bound phi' and
phi'' over *all* predictions and allowed labels; times powers of the public row norm they are the Lipschitz
and smoothness constants that privacy rests on. A custom loss is a subclass of ``Loss``: run
``privopt.problems.convex.loss_check.check_loss`` on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from privopt.problems.arguments import check_real
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError

RealArray = NDArray[np.floating[Any]]  # float64, or float32 where the data are


class Labels(Enum):
    """The labels for which a loss is defined and its constants hold."""

    SIGN = "-1 or +1"
    UNIT = "in [0, 1]"
    REAL = "finite"


class Loss(ABC):
    """Loss phi(z, y) of scores z and labels y, arrays of one shape.

    Every method is elementwise and keeps the dtype of z.

    A risk calls them on blocks of records, from several threads at once.
    """

    labels: Labels
    convex: bool

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """A bound on |phi'| over all predictions and allowed labels. Public."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """A Lipschitz constant of phi' over all predictions and allowed labels. Public."""

    @property
    def curvature_lipschitz(self) -> float:
        """A Lipschitz constant of phi'' likewise; infinite where phi'' jumps or no bound is known. Public."""
        return math.inf

    @property
    def value_range(self) -> float:
        """A bound on phi over all predictions and allowed labels, phi >= 0; infinite if there is none."""
        return math.inf

    @abstractmethod
    def value(self, z: RealArray, y: RealArray) -> RealArray:
        """Return phi(z, y)."""

    @abstractmethod
    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        """Return the derivative of phi in z."""

    @abstractmethod
    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        """Return the second derivative of phi in z, wherever it exists."""

    def check_labels(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return a float64 copy of the labels, shape (n,).

        Raises:
            InvalidInputError: labels that the loss is not defined for.
        """
        check_unmasked(y, "y")
        try:
            labels = np.array(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInputError("labels must be real numbers, shape (n,)") from None
        allowed = {
            Labels.SIGN: np.isin(labels, (-1.0, 1.0)),
            Labels.UNIT: (labels >= 0) & (labels <= 1),
            Labels.REAL: np.isfinite(labels),
        }
        if not np.all(allowed[self.labels]):
            raise InvalidInputError(f"labels of {type(self).__name__} must be {self.labels.value}")
        return labels


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """Logistic loss log(1 + exp(-y z)), y = -1 or +1."""

    labels = Labels.SIGN
    convex = True
    lipschitz = 1.0
    smoothness = 0.25
    curvature_lipschitz = 1 / (6 * math.sqrt(3))  # of s(1-s)(1-2s), as in ``SigmoidLoss``

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        margin = y * z
        return np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        # -y / (1 + exp(y z)): NumPy's tanh is three times as fast as SciPy's expit.
        return np.asarray(0.5 * (np.tanh(0.5 * z) - y))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        p = expit(z)
        return np.asarray(p * (1 - p))


@dataclass(frozen=True)
class OneVsRestLoss(LogisticLoss):
    """Logistic loss of the first class against all others, y = 0, 1, ... the index of a record's class.

    The labels tell all classes apart, so one release of moments with them serves every class.

    Args:
        classes: the number of classes, >= 2.
    """

    classes: int

    labels = Labels.REAL

    def __post_init__(self) -> None:
        if check_real(self.classes, "classes") < 2 or not float(self.classes).is_integer():
            raise InvalidInputError(f"classes must be an integer of at least 2, got {self.classes}")

    def check_labels(self, y: ArrayLike) -> NDArray[np.float64]:
        labels = super().check_labels(y)
        if not np.all(np.isin(labels, np.arange(self.classes))):
            raise InvalidInputError(f"labels must be class indices from 0 to {self.classes - 1}")
        return labels

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return super().value(z, _first(y))

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return super().slope(z, _first(y))


@dataclass(frozen=True)
class SigmoidLoss(Loss):
    """Sigmoid loss 1 / (1 + exp(y z)), y = -1 or +1: a smooth count of errors, not convex.

    Wang and Xu (2019) print 1 / (1 + exp(-y z)), which *grows* with the margin; the decreasing function is
    the one that classifies.
    """

    labels = Labels.SIGN
    convex = False
    lipschitz = 0.25
    smoothness = 1 / (6 * math.sqrt(3))  # of s(1-s)(1-2s), at s = (3 +- sqrt 3)/6
    value_range = 1.0
    curvature_lipschitz = 0.125  # of s(1-s)(1-6s(1-s)), at s = 1/2

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray(expit(-y * z))

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        s = expit(-y * z)
        return np.asarray(-y * s * (1 - s))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        s = expit(-y * z)
        return np.asarray(s * (1 - s) * (1 - 2 * s))


@dataclass(frozen=True)
class WeightedLoss(Loss):
    """Loss |y| phi(z, sign y): the sign of a label is its class, its size the public weight of the class.

    Args:
        base: phi.
        largest: a bound on the weights, > 0; ``lipschitz`` and ``smoothness`` are proportional to it.
    """

    base: Loss
    largest: float

    labels = Labels.REAL

    def __post_init__(self) -> None:
        _positive("largest", self.largest)
        if self.base.labels is not Labels.SIGN:
            raise InvalidInputError(f"weights are for losses of two classes, not {type(self.base).__name__}")

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.base.convex

    @property
    def lipschitz(self) -> float:
        return self.largest * self.base.lipschitz

    @property
    def smoothness(self) -> float:
        return self.largest * self.base.smoothness

    def check_labels(self, y: ArrayLike) -> NDArray[np.float64]:
        labels = super().check_labels(y)
        if np.any(labels == 0) or np.any(np.abs(labels) > self.largest):
            raise InvalidInputError(f"weighted labels must not be 0, nor beyond {self.largest:g} in size")
        return labels

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.abs(y) * self.base.value(z, np.sign(y))

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return np.abs(y) * self.base.slope(z, np.sign(y))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        return np.abs(y) * self.base.curvature(z, np.sign(y))


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Huber loss: (z - y)^2 / 2 where |z - y| <= threshold, continued linearly beyond."""

    threshold: float

    labels = Labels.REAL
    convex = True
    smoothness = 1.0

    def __post_init__(self) -> None:
        _positive("threshold", self.threshold)

    @property
    def lipschitz(self) -> float:
        return self.threshold

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        residual = np.abs(z - y)
        inner = np.minimum(residual, self.threshold)
        return inner * (residual - inner / 2)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return np.clip(z - y, -self.threshold, self.threshold)

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        return (np.abs(z - y) <= self.threshold).astype(z.dtype)


@dataclass(frozen=True)
class SquaredLoss(HuberLoss):
    """Squared loss (z - y)^2 / 2 for residuals up to a public bound, the ``threshold``; linear beyond.

    Squares are Lipschitz only where residuals are bounded. With the linear continuation the Lipschitz
    constant holds for every iterate and every label; within the bound it changes nothing.
    """

    @classmethod
    def within(cls, *, set_radius: float, row_norm: float, label_bound: float) -> SquaredLoss:
        """Return exact squares for |w|_2 <= set_radius, |a|_2 <= row_norm, |y| <= label_bound: all public.

        Any pair of dual norms will do, such as l1 for the set and l-infinity for the rows.
        """
        return cls(set_radius * row_norm + label_bound)


@dataclass(frozen=True)
class SigmoidSquaredLoss(Loss):
    """Loss (s(z) - y)^2 with the sigmoid link s, y in [0, 1] (Wang, Chen and Xu 2019). Not convex."""

    labels = Labels.UNIT
    convex = False
    lipschitz = 8 / 27  # 2 s^2 (1-s) at s = 2/3; by symmetry the same for y = 1
    smoothness = 0.15405858  # 2 s^2 (1-s)(2-3s) at s = (15 - sqrt 33)/24, rounded up
    value_range = 1.0
    curvature_lipschitz = 0.20202301  # s(1-s)(8s - 30s^2 + 24s^3) at s = 0.63626, rounded up

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray((expit(z) - y) ** 2)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        s = expit(z)
        return np.asarray(2 * (s - y) * s * (1 - s))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        s = expit(z)
        first = s * (1 - s)
        return np.asarray(2 * first * (first + (s - y) * (1 - 2 * s)))


@dataclass(frozen=True)
class ProbitSquaredLoss(Loss):
    """Loss (Phi(z) - y)^2 with the probit link, y in [0, 1] (Wang, Chen and Xu 2019). Not convex."""

    labels = Labels.UNIT
    convex = False
    # Maxima over z of 2 Phi phi (at 0.50605) and of 2 phi (phi - z Phi) (at -0.30275), rounded up.
    lipschitz = 0.48689342
    smoothness = 0.37835237
    value_range = 1.0
    curvature_lipschitz = 0.73883728  # 2 phi ((z^2 - 1) Phi - 3z phi) at 0.46735, rounded up

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray((ndtr(z) - y) ** 2)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray(2 * (ndtr(z) - y) * _normal_density(z))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        density = _normal_density(z)
        return np.asarray(2 * density * (density - z * (ndtr(z) - y)))


@dataclass(frozen=True)
class BiweightLoss(Loss):
    """Robust regression: (c^2/6)(1 - (1 - (s/c)^2)^3) for |s| <= c, c^2/6 beyond, s = z - y. Not convex."""

    c: float = 4.685  # the usual choice: 95% efficiency under Gaussian errors of unit variance

    labels = Labels.REAL
    convex = False
    smoothness = 1.0  # (1 - u^2)(1 - 5u^2) at u = 0

    def __post_init__(self) -> None:
        _positive("c", self.c)

    @property
    def value_range(self) -> float:
        return self.c**2 / 6

    @property
    def curvature_lipschitz(self) -> float:
        return 8 / self.c  # (20u^3 - 12u)/c at u = 1

    @property
    def lipschitz(self) -> float:
        return 16 * self.c / (25 * math.sqrt(5))  # s (1 - (s/c)^2)^2 at s = c/sqrt 5

    def _inside(self, z: RealArray, y: RealArray) -> RealArray:
        return np.maximum(0, 1 - ((z - y) / self.c) ** 2)

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return self.c**2 / 6 * (1 - self._inside(z, y) ** 3)

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return (z - y) * self._inside(z, y) ** 2

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        inside = self._inside(z, y)
        return inside * (5 * inside - 4)


def _normal_density(z: RealArray) -> RealArray:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _first(y: RealArray) -> RealArray:
    """Return +1 for records of the first class, -1 for others."""
    return np.where(y == 0, y.dtype.type(1), y.dtype.type(-1))


def _positive(name: str, value: float) -> None:
    number = check_real(value, name)
    if not (math.isfinite(number) and number > 0):
        raise InvalidInputError(f"{name} must be finite and > 0, got {value}")

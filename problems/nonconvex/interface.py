"""Interface of twice differentiable risks: value, gradient, Hessian and their public bounds."""

from __future__ import annotations

from typing import Protocol

from numpy.typing import ArrayLike

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import RiskFacts


class TwiceDifferentiableRisk(Protocol):
    """F(w) = (1/n) sum_i f_i(w), every f_i twice differentiable.

    ``facts`` bounds, for every record and everywhere: the gradient (``gradient_bound``), the spectral norm
    of the Hessian (``smoothness``), its Frobenius norm (``hessian_bound``) and how fast it changes
    (``hessian_lipschitz``). Privacy rests on the first and the third. ``EmpiricalRisk`` is one.
    """

    @property
    def facts(self) -> RiskFacts:
        """The public facts."""

    def in_float64(self) -> TwiceDifferentiableRisk:
        """Return the same risk, computed in float64 throughout; may return itself."""

    def compile(self, *, exact: bool = False) -> None:
        """Compile the kernels of value and derivatives, ``exact``: for ``in_float64``; may do nothing."""

    def value(self, w: ArrayLike, /) -> float:
        """Return F(w). Not private."""

    def gradient(self, w: ArrayLike, /) -> Vector:
        """Return the gradient of F at w, shape (dimension,). Not private."""

    def hessian(self, w: ArrayLike, /) -> Vector:
        """Return the Hessian of F at w, shape (dimension, dimension), symmetric. Not private."""

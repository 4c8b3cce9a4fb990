"""Released minimum of a tilted, penalised risk and the noisy Hessian at it, as part of a larger release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import check_real
from privopt.problems.arrays import from_triangle, upper_triangle
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]
_NUMBERS = ("l2", "tilt", "blur", "sigma", "constant", "n_records")


@dataclass(frozen=True, eq=False)
class NoisyMinimum:
    """Minimum of F(w) + (l2/2) |w|^2 + <b, w>, with noise, and the Hessian of F at that point, with noise.

    Both are parts of a release, whose spend covers them.

    Attributes:
        weights: the noisy minimum, shape (p,).
        hessian: the noisy mean Hessian of F at ``weights``, without the penalty, shape (p, p), symmetric; the
            noise has standard deviation sigma on the diagonal and sigma / sqrt 2 off it.
        l2: the penalty, > 0. Public, as are all fields below.
        tilt: standard deviation of each coordinate of b.
        blur: standard deviation of the noise on each coordinate of the minimum.
        sigma: as above.
        constant: the value of the constant feature, which is the last one; 0 if there is none.
        n_records: n.
    """

    weights: Floats
    hessian: Floats
    l2: float
    tilt: float
    blur: float
    sigma: float
    constant: float
    n_records: int

    def __post_init__(self) -> None:
        p = len(self.weights)
        if p < 1 or self.hessian.shape != (p, p) or not np.array_equal(self.hessian, self.hessian.T):
            raise InvalidInputError("a noisy minimum is a vector and a symmetric matrix that fit together")
        given = [check_real(getattr(self, name), f"{name} of a noisy minimum") for name in _NUMBERS]
        if not (np.all(np.isfinite(self.hessian)) and np.all(np.isfinite([*self.weights, *given]))):
            raise InvalidInputError("a noisy minimum and its noise must be finite numbers")
        if not (self.l2 > 0 and min(given) >= 0 and self.n_records >= 1):
            raise InvalidInputError("the noise of a minimum must be >= 0, its penalty > 0, n >= 1")

    def along(self, Q: Floats) -> Self:
        """Return the minimum and the Hessian in the coordinates Q' w, Q with orthonormal columns.

        The noise of both is the same in all orthonormal coordinates.
        """
        inner = Q.T @ self.hessian @ Q
        return replace(self, weights=Q.T @ self.weights, hessian=(inner + inner.T) / 2)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with one triangle of the matrix; ``from_dict`` reads it back."""
        triangle = upper_triangle(self.hessian)
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"weights": self.weights.tolist(), "hessian": triangle, **numbers}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: not what ``to_dict`` returns.
        """
        weights, triangle = (np.array(record[k], dtype=np.float64) for k in ("weights", "hessian"))
        matrix = from_triangle(triangle)
        return cls(weights, matrix, **{name: record[name] for name in _NUMBERS})

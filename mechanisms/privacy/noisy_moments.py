"""Released second moments of features and labels with known noise, as part of a larger release."""

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
_NUMBERS = ("square", "sigma", "label_weight", "constant", "n_records")


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Means of z z', z y and y^2 plus Gaussian noise: a part of a release, whose spend covers it.

    Attributes:
        features: noisy mean of z z', shape (p, p), symmetric; the noise has standard deviation sigma on the
            diagonal and sigma / sqrt 2 off it.
        products: noisy mean of z y, shape (p,), with noise of sigma / label_weight.
        square: noisy mean of y^2.
        sigma: standard deviation of the noise, >= 0. Public.
        label_weight: the factor by which products were multiplied before noise was added, > 0. Public.
        constant: the value of the last entry of z if that is constant, so that its square has no noise;
            otherwise 0.
        n_records: n. Public.
    """

    features: Floats
    products: Floats
    square: float
    sigma: float
    label_weight: float
    constant: float
    n_records: int

    def __post_init__(self) -> None:
        p = len(self.products)
        if p < 1 or self.features.shape != (p, p) or not np.array_equal(self.features, self.features.T):
            raise InvalidInputError("noisy moments are a symmetric matrix and a vector that fit together")
        given = [check_real(getattr(self, name), "a noisy moment, or its noise,") for name in _NUMBERS]
        if not (np.all(np.isfinite(self.features)) and np.all(np.isfinite([*self.products, *given]))):
            raise InvalidInputError("noisy moments must be finite numbers")
        if not (self.sigma >= 0 and self.label_weight > 0 and self.constant >= 0 and self.n_records >= 1):
            raise InvalidInputError("the noise of moments must be >= 0, its weight > 0, n >= 1")

    def only(self, kept: NDArray[np.int64]) -> Self:
        """Return the moments of some entries of z; a constant entry must be among them, and last."""
        return replace(self, features=self.features[np.ix_(kept, kept)], products=self.products[kept])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with one triangle of the matrix; ``from_dict`` reads it back."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"features": upper_triangle(self.features), "products": self.products.tolist(), **numbers}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: not what ``to_dict`` returns.
        """
        products, triangle = (np.array(record[k], dtype=np.float64) for k in ("products", "features"))
        matrix = from_triangle(triangle)
        return cls(matrix, products, **{name: record[name] for name in _NUMBERS})


@dataclass(frozen=True, eq=False)
class NoisySpread:
    """Mean of e^2 z z' plus Gaussian noise, e the clipped residuals, as part of a larger release.

    Attributes:
        matrix: shape (p, p), symmetric, with noise as ``NoisyMoments.features``.
        sigma: standard deviation of the noise on its diagonal. Public.
    """

    matrix: Floats
    sigma: float

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or not np.array_equal(self.matrix, self.matrix.T):
            raise InvalidInputError("moments of residuals are a symmetric matrix")
        if not np.all(np.isfinite(self.matrix)) or not check_real(self.sigma, "sigma") >= 0:
            raise InvalidInputError("moments of residuals must be finite numbers, their noise >= 0")

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {"matrix": self.matrix.tolist(), "sigma": self.sigma}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: not what ``to_dict`` returns.
        """
        return cls(np.array(record["matrix"], dtype=np.float64), record["sigma"])

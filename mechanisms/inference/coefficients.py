"""Coefficients per unit of the columns, as linear functions of the weights that a mechanism works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import check_real, told
from privopt.problems.errors import InvalidInputError, InvalidTypeError, did_you_mean

Floats = NDArray[np.float64]
INTERCEPT = "intercept"
_TUPLES = ("names", "features", "middle", "zeros", "units", "references")
# Squares of larger weights would exceed the range of doubles.
_LARGEST = 1e100


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of columns, per unit of each column.

    Predictions are centre + sum_j theta_j (f_j - middle_j) + constant theta_last, where theta are the weights
    of the mechanism, constant is the value of the constant feature, and the features of columns v are f_j =
    (v_j - zero_j) / unit_j.

    Attributes:
        names: one for each coefficient.
        features: the index of each feature in the encoded table.
        middle, zeros, units: middle_j, zero_j and unit_j of each feature.
        centre: the number that was subtracted from labels.
        references: names of features without a coefficient: each is 1 minus the other features of its column.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    middle: tuple[float, ...]
    zeros: tuple[float, ...]
    units: tuple[float, ...]
    centre: float = 0.0
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.names, self.features, self.middle, self.zeros, self.units)}
        numbers = np.array([*self.middle, *self.zeros, *self.units, self.centre], dtype=np.float64)
        if len(sizes) != 1 or not np.all(np.isfinite(numbers)) or 0 in self.units:
            raise InvalidInputError("the names, units and centres of coefficients do not fit together")
        texts, indices = (*self.names, *self.references), self.features
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(k, int) for k in indices):
            raise InvalidInputError("coefficients have names that are text, and indices of features")

    def contrasts(self, constant: float) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names, a matrix C, shape (k, p), and a vector c, shape (k,), of the k coefficients.

        The coefficients are C theta + c.

        Args:
            constant: the value of the constant feature, from which the intercept follows; 0: no constant.
        """
        units = np.array(self.units, dtype=np.float64)
        if not constant:
            return self.names, np.diag(1 / units), np.zeros(len(units))
        d = len(units)
        C = np.zeros((d + 1, d + 1))
        C[:d, :d] = np.diag(1 / units)
        C[d, :d] = -(np.array(self.middle) + np.array(self.zeros) / units)
        C[d, d] = constant
        return (*self.names, INTERCEPT), C, np.append(np.zeros(d), self.centre)

    def combination(self, weights: Mapping[str, float], constant: float) -> tuple[Floats, float]:
        """Return a linear combination of coefficients as a' theta + b: the vector a, shape (p,), and b.

        Raises:
            InvalidInputError: no coefficient has a given name, or a weight is not finite or too large.
        """
        names, C, added = self.contrasts(constant)
        if not isinstance(weights, Mapping):
            raise InvalidTypeError(f"a combination takes weights by name, as a dict; got {told(weights)}")
        chosen = np.zeros(len(names))
        for name, weight in weights.items():
            if name not in names:
                raise InvalidInputError(f"no coefficient {told(name)}{did_you_mean(name, names)}")
            chosen[names.index(name)] = check_real(weight, f"the weight of {told(name)}")
        if not np.all(np.abs(chosen) <= _LARGEST) or not np.any(chosen):
            raise InvalidInputError(
                f"a combination takes weights of coefficients up to {_LARGEST:g}, not all 0"
            )
        return chosen @ C, float(chosen @ added)

    def rows(self, X: Floats, constant: float) -> Floats:
        """Return a matrix A, shape (n, p), for encoded features, shape (n, d).

        Predictions are A theta + centre.
        """
        measured = X[:, list(self.features)] - np.array(self.middle)
        return np.column_stack([measured, np.full(len(X), constant)]) if constant else measured

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {**{key: list(getattr(self, key)) for key in _TUPLES}, "centre": self.centre}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the coefficients of a record from ``to_dict``.

        Raises:
            KeyError, TypeError, InvalidInputError: the record is not from ``to_dict``.
        """
        return cls(**{key: tuple(record[key]) for key in _TUPLES}, centre=record["centre"])

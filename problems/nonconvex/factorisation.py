"""Low-rank factorisation: a symmetric matrix U U' from quadratic measurements a' U U' a."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.arrays import as_reals
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.errors import InvalidInputError
from privopt.problems.nonconvex.quartic import QuarticLoss


@dataclass(frozen=True)
class FactorFacts(RiskFacts):
    """The facts of a ``FactorRisk``: ``dimension`` is d times the rank, ``row_norm`` bounds |a|_2."""

    rank: int = 1

    @property
    def hessian_bound(self) -> float:
        """A bound on the Frobenius norm of a record's Hessian (a a') kron S: S is rank x rank, |S|_2 <= M."""
        return self.smoothness * math.sqrt(self.rank)


@dataclass(frozen=True, eq=False, repr=False)  # it holds the records
class FactorRisk:
    """F(U) = (1/n) sum_i phi(|U' a_i|, y_i), phi = ``QuarticLoss``.

    A term is (a_i' U U' a_i - y_i)^2 / 4 where |U' a_i| is within the bound of the loss.

    U has shape (d, rank); as a vector it is ``U.ravel()``. Points of lower rank can be saddles (0 is one);
    with noiseless labels the minima are U* times rotations.

    The constants of phi hold for vector predictions too. Let v = U' a and t = |v|. The Hessian of phi(|v|)
    in v has the eigenvalues phi''(t) and phi'(t)/t. The latter is the mean of phi'' over [0, t], so both are
    at most M in absolute value. For the third derivatives take a unit direction with component x along v
    and s across it. In the plane of v and the direction, the derivative of this Hessian is
    [[x p, s c], [s c, x c]] with p = phi'''(t), c = (phi'' - phi'/t)/t; orthogonal to the plane it is x c.
    If |phi'''| <= K, then |c| <= K/2, as (t (phi'' - phi'/t))' = t phi'''. The norm of the 2 x 2 matrix is
    convex in (p, c), so it is largest at a corner, |p| = K and |c| = K/2; there it is largest at x = 1,
    where it is K.

    Args:
        A: measurement vectors, shape (n, d), shortened to ``row_norm`` as rows of ``EmpiricalRisk`` are.
        y: labels in [0, 1], shape (n,).
        rank: number of columns of U.
        loss: phi.
        row_norm: public bound on |a|_2.

    Raises:
        InvalidInputError: see ``EmpiricalRisk``; a rank that is not from 1 to d.
    """

    A: Vector
    y: Vector
    facts: FactorFacts = field(init=False)

    def __init__(
        self, A: ArrayLike, y: ArrayLike, rank: int, loss: QuarticLoss | None = None, row_norm: float = 1.0
    ) -> None:
        rows = as_reals(A, "measurement vectors of shape (n, d)").astype(np.float64)
        linear = EmpiricalRisk(rows, y, loss or QuarticLoss(), row_norm=row_norm)  # its checks of A and y
        n, d = rows.shape
        if not 1 <= rank <= d:
            raise InvalidInputError(f"rank must be from 1 to {d}, got {rank}")
        bound = row_norm * (1 - 1e-12)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        object.__setattr__(self, "A", rows * np.minimum(1, bound / np.maximum(lengths, bound)))
        object.__setattr__(self, "y", np.asarray(linear.y, dtype=np.float64))
        facts = FactorFacts(n, d * rank, linear.facts.loss, row_norm, rank=rank)
        object.__setattr__(self, "facts", facts)

    def in_float64(self) -> FactorRisk:
        """Return itself."""
        return self

    def compile(self, *, batches: bool = False, exact: bool = False) -> None:
        """Do nothing: NumPy computes everything here."""

    def value(self, w: ArrayLike) -> float:
        """Return F(U). Not private."""
        return float(np.mean(self.facts.loss.value(self._lengths(self._seen(w)), self.y)))

    def gradient(self, w: ArrayLike) -> Vector:
        """Return the gradient, shape (d * rank,): the mean of a (U' a)' phi'(t)/t. Not private."""
        seen = self._seen(w)
        flat, _ = self._curvatures(seen)
        return np.asarray(self.A.T @ (seen * flat[:, None]) / len(self.y)).ravel()

    def hessian(self, w: ArrayLike) -> Vector:
        """Return the Hessian, shape (d * rank, d * rank): the mean of a a' kron S. Not private."""
        seen = self._seen(w)
        flat, rest = self._curvatures(seen)
        rank, d = self.facts.rank, self.A.shape[1]
        blocks = np.empty((d, rank, d, rank))
        for j in range(rank):
            for k in range(j + 1):
                weights = rest * seen[:, j] * seen[:, k] + (flat if j == k else 0.0)
                block = self.A.T @ (self.A * weights[:, None]) / len(self.y)
                blocks[:, j, :, k] = blocks[:, k, :, j] = (block + block.T) / 2
        return blocks.reshape(d * rank, d * rank)

    def _seen(self, w: ArrayLike) -> Vector:
        """Return U' a for every record, shape (n, rank)."""
        point = np.asarray(w, dtype=np.float64)
        if point.shape != (self.facts.dimension,):
            raise InvalidInputError(
                f"expected a vector of shape ({self.facts.dimension},), got {point.shape}"
            )
        return np.asarray(self.A @ point.reshape(-1, self.facts.rank))

    @staticmethod
    def _lengths(seen: Vector) -> Vector:
        return np.asarray(np.linalg.norm(seen, axis=1))

    def _curvatures(self, seen: Vector) -> tuple[Vector, Vector]:
        """Return f = phi'(t)/t and r = (phi''(t) - f) / t^2, so that S = f I + r v v'."""
        t, loss = self._lengths(seen), self.facts.loss
        long = np.maximum(t, 1e-6)  # as t -> 0 they tend to -y and 2
        flat = np.asarray(loss.slope(long, self.y) / long)
        return flat, np.asarray((loss.curvature(long, self.y) - flat) / long**2)

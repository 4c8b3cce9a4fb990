"""Non-private minimisers of convex risks over convex sets; a linear minimisation certifies an answer.

They are references for comparison with mechanisms, not mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from privopt.oracles.convex.interface import Bounded, ProxStep
from privopt.oracles.convex.prox import prox_step
from privopt.oracles.convex.quantities import penalized_support
from privopt.oracles.convex.smooth import minimize_ridge
from privopt.oracles.errors import CertificateError
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector, soft_threshold
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError

_CHECK_EVERY = 10


@dataclass(frozen=True, eq=False)
class ConvexAnswer(Bounded):
    """A point with its value and a lower bound on the minimum. Not private.

    Attributes:
        point: shape (p,), in C.
        value: F + r at the point.
        bound: a lower bound on F + r over C, up to the rounding of float64 sums.
    """

    point: Vector
    value: float
    bound: float

    def require(self, gap: float) -> ConvexAnswer:
        """Return this answer if its gap is small enough.

        Raises:
            CertificateError: the gap is larger.
        """
        if not self.gap <= gap:
            raise CertificateError(
                f"the solver stopped at gap {self.gap:.3g}, {gap:.3g} is needed: allow more steps "
                "or a larger gap"
            )
        return self


def minimize_convex(
    risk: EmpiricalRisk,
    convex_set: ConvexSet | None = None,
    regularizer: ElasticNet = NO_REGULARIZER,
    *,
    gap: float = 1e-6,
    steps: int = 10_000,
) -> ConvexAnswer:
    """Return argmin over C of F + r by accelerated proximal gradient steps. NOT private.

    Args:
        risk: F; a convex loss with values >= 0.
        convex_set: C; the whole space by default, and then a penalty is needed.
        regularizer: r.
        gap: the gap at which to stop.
        steps: the largest number of steps. The gap may still be larger then: see ``ConvexAnswer.require``.

    Raises:
        InvalidInputError: the loss is not convex, or there is neither a bounded set nor a penalty.
        UnsupportedProblemError: there is no proximal step over the set.
    """
    space = convex_set or WholeSpace(risk.facts.dimension)
    if isinstance(space, WholeSpace) and regularizer == NO_REGULARIZER:
        raise InvalidInputError("a certified minimum needs a bounded set or a penalty")
    if isinstance(space, WholeSpace) and regularizer.l1 == 0:
        # By strong convexity the value is within |gradient|^2 / (2 l2) of the minimum.
        tolerance = math.sqrt(2 * regularizer.l2 * gap) / 2
        point = minimize_ridge(risk, regularizer.l2, tolerance).point
        return _assessed(risk, space, regularizer, point)
    prox, eta = prox_step(space, regularizer), 1 / risk.facts.smoothness
    iterates = accelerated(risk.gradient, prox, eta, np.zeros(risk.facts.dimension))
    best = _assessed(risk, space, regularizer, next(iterates))
    for k, x in enumerate(islice(iterates, steps), start=1):
        if best.gap <= gap:
            break
        if k % _CHECK_EVERY == 0:
            now = _assessed(risk, space, regularizer, x)
            point, value = (now.point, now.value) if now.value < best.value else (best.point, best.value)
            best = ConvexAnswer(point, value, max(best.bound, now.bound))
    return best


def accelerated(
    gradient: Callable[[Vector], Vector], prox: ProxStep, eta: float, start: Vector
) -> Iterator[Vector]:
    """Generate accelerated proximal gradient iterates, with restarts when the momentum points uphill.

    Source: Beck and Teboulle (2009); restarts: O'Donoghue and Candes (2015).
    """
    x = z = prox(start, eta)
    momentum = 1.0
    while True:
        yield x
        following = prox(z - eta * gradient(z), eta)
        turned = float((z - following) @ (following - x)) > 0
        momentum, before = (1.0, 1.0) if turned else ((1 + math.sqrt(1 + 4 * momentum**2)) / 2, momentum)
        z = following if turned else following + (before - 1) / momentum * (following - x)
        x = following


def lower_bound(risk: EmpiricalRisk, convex_set: ConvexSet, regularizer: ElasticNet, w: Vector) -> float:
    """Return a lower bound on F + r over C from the tangent at w, tight at a minimum. NOT private.

    F(u) + r(u) >= F(w) + <g, u - w> + r(u) with g = grad F(w). If C is the whole space, the right side is
    minimised exactly. Over another set the l2 penalty, too, is replaced by its tangent at w. For an l1
    penalty alone over the whole space, the set is the l1 ball where the penalty is at most F + r at w: F is
    at least 0, so a minimum lies in this ball.

    Raises:
        InvalidInputError: the loss is not convex.
        UnsupportedProblemError: there is an l1 penalty, and no formula for it over the set.
    """
    if not risk.facts.loss.convex:
        raise InvalidInputError(f"no lower bound for {type(risk.facts.loss).__name__}: it is not convex")
    l1, l2 = regularizer.l1, regularizer.l2
    value, gradient = risk.value_and_gradient(w)
    if isinstance(convex_set, WholeSpace) and l2 > 0:
        kept = soft_threshold(gradient, l1)
        return value - float(gradient @ w) - float(kept @ kept) / (2 * l2)
    if isinstance(convex_set, WholeSpace):
        # The factor 1 + 1e-9 covers the rounding error.
        convex_set = L1Ball(len(w), (value + l1 * float(np.sum(np.abs(w)))) / l1 * (1 + 1e-9))
    slope = gradient + l2 * w
    lowest = -penalized_support(convex_set, -slope, l1)
    return value + l2 / 2 * float(w @ w) - float(slope @ w) + lowest


def _assessed(risk: EmpiricalRisk, space: ConvexSet, regularizer: ElasticNet, w: Vector) -> ConvexAnswer:
    value = risk.value(w) + regularizer.value(w)
    return ConvexAnswer(w, value, lower_bound(risk, space, regularizer, w))

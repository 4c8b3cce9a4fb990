"""Tolerances and default penalties of mechanisms that minimise exactly.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math

from privopt.mechanisms.risk.step_counts import typical_distance
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet


def gradient_tolerance(facts: RiskFacts, share: float) -> float:
    """Return the gradient norm to be proved: a share of G / n, but no less than float64 sums can resolve."""
    return facts.gradient_bound * max(share / facts.n_records, 4 * facts.rounding)


def output_penalty(facts: RiskFacts, convex_set: ConvexSet, mu: float, tolerance: float) -> float:
    """Return the l2 that minimises l2 B^2 / 8 + L s^2 / 2, s = 2 (G / n + tolerance) / (l2 mu). Public.

    s is the noise per coordinate. The first term bounds the bias of the penalty at |w*| = B
    (``typical_distance``) where F is quadratic: an eigenvalue h loses h l2^2 / (h + l2)^2 <= l2 / 4 of half
    its share of B^2. The second term bounds the excess risk of the noise: E F(w + s xi) - F(w) <= s^2 tr(H) /
    2, and the trace of a Hessian is a mean of phi'' |a_i|^2 <= L, whatever the dimension.
    """
    noise = 2 * (facts.gradient_bound / facts.n_records + tolerance) / mu
    return _trace_bound_l2(facts, convex_set, noise)


def objective_penalty(facts: RiskFacts, convex_set: ConvexSet, sigma: float, hiding: float = 0.0) -> float:
    """Return the l2 that minimises the bias l2 B^2 / 8 plus the cost of objective perturbation. Public.

    The cost has two parts: a linear term of sigma per coordinate, and noise of hiding / l2 on the minimum.
    The linear term moves the minimum by (H + l2)^-1 b, which costs at most sigma^2 / 2 times the sum of h /
    (h + l2)^2 over the eigenvalues h of a Hessian: at most p / (4 l2) and, as the trace is at most L, at most
    L / l2^2. The smaller of the two bounds is used. The noise on the minimum hides rounding, which grows with
    n; as in ``output_penalty`` this noise costs L (hiding / l2)^2 / 2.
    """
    distance, p = typical_distance(facts, convex_set), facts.dimension

    def cost(l2: float) -> float:  # products, not powers: powers raise on overflow
        traced = 4 * facts.smoothness / l2 / l2
        return l2 * distance * distance + sigma * sigma * min(p / l2, traced) + hiding * hiding * traced

    first = _representable(sigma * math.sqrt(p) / distance)
    candidates = [first, *(_trace_bound_l2(facts, convex_set, s) for s in (sigma, math.hypot(sigma, hiding)))]
    return min(candidates, key=cost)


def _trace_bound_l2(facts: RiskFacts, convex_set: ConvexSet, noise: float) -> float:
    """Return the argmin of l2 B^2 / 8 + L noise^2 / (2 l2^2)."""
    relative = noise / typical_distance(facts, convex_set)
    return _representable(2 * math.cbrt(facts.smoothness * relative * relative))


def _representable(l2: float) -> float:
    """Clip to the range in which neither the parameters nor the penalty underflow."""
    return min(max(l2, 1e-150), 1e150)

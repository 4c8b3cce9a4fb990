"""Default numbers of steps: the numbers in the theorems, with the constants of their proofs.

They depend on public facts alone and influence accuracy only; no privacy statement depends on them.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.mechanisms.risk.sets import default_start
from privopt.oracles.convex.bregman import natural_geometry
from privopt.oracles.convex.interface import Entropy, SignedEntropy
from privopt.oracles.convex.quantities import gaussian_width
from privopt.oracles.convex.registry import linear_minimizer
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace

# Largest default step count; steps=... allows more.
MOST_STEPS = 2000
# Largest number of directions over which ``typical_distance`` assumes rows to spread.
SPREAD = 100


def prediction_scale(facts: RiskFacts) -> float:
    """Return the scale of predictions on which the slope of the loss changes; 4 for the logistic loss.

    Public.

    It is the bound on slopes divided by the bound on curvature.
    """
    return facts.loss.lipschitz / facts.loss.smoothness


def typical_distance(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """Return a public guess at |w* - x_1| for step counts. It is not a bound, and no privacy depends on it.

    Rows of norm R spread evenly over m directions give predictions of about |w| R / sqrt(m). These reach the
    scale of the loss at |w| = scale * sqrt(m) / R; m is taken as the dimension, but at most 100. (With m = 1,
    which means rows along w*, there would be far too few steps for real tables.)
    """
    spread = prediction_scale(facts) * math.sqrt(min(facts.dimension, SPREAD)) / facts.row_norm_l2
    return max(min(spread, convex_set.radius), 1e-150)  # above 0 also for a set of one point


def loss_range(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """Return a guess at F(x_1) - min F: the decrease of F when predictions move by ``prediction_scale``, or
    as far as C allows.
    """
    within = facts.loss.lipschitz * prediction_scale(facts)
    if isinstance(convex_set, WholeSpace):
        return within
    return min(
        within,
        facts.gradient_bound * 2 * convex_set.radius,  # the diameter, or more
        2 * facts.gradient_bound_linf * convex_set.l1_radius,
    )


def dual_noise(convex_set: ConvexSet) -> float:
    """Return sqrt(E |xi|_{C*}^2) for standard normal xi, at most sqrt(G_C^2 + |C|_2^2) (Gaussian
    concentration).
    """
    return math.hypot(gaussian_width(convex_set).value, convex_set.radius)


def mirror_steps(divergence: float, gamma: float, noise: float) -> float:
    """Return T at which both terms of the bound for (projected, mirror) descent on convex losses are equal.

    E F(average) - F(w*) <= V / (gamma T) + gamma sigma^2 E|xi|_*^2, where sigma grows as sqrt(T): V is the
    divergence of w* from the start, gamma the step size, ``noise`` the root of sigma^2 E|xi|_*^2 for T = 1.
    Fewer steps leave optimisation error, more only add noise (Nemirovski, Juditsky, Lan and Shapiro 2009,
    section 2.3).
    """
    return math.sqrt(divergence) / (gamma * noise)


def euclidean_steps(
    facts: RiskFacts,
    convex_set: ConvexSet,
    regularizer: ElasticNet,
    mu: float,
    gamma: float,
    most: int = MOST_STEPS,
) -> int:
    """Return T of gradient steps in l2 of size gamma, fewer under strong convexity, at most ``most``.

    Without convexity the average squared gradient is at most 4 B / (gamma T) + sigma^2 p (Wang and Xu 2019,
    theorem 2); T makes both terms equal.
    """
    noise = math.sqrt(facts.dimension) / mu
    if not facts.loss.convex:
        return whole_steps(math.sqrt(4 * loss_range(facts, convex_set) / gamma) / noise, most)
    distance = typical_distance(facts, convex_set)
    steps = mirror_steps(distance**2 / 2, gamma, noise)
    if gamma * regularizer.l2 > 0:
        # A step multiplies the distance by 1 - gamma l2, until noise of gamma sigma^2 p / l2 dominates.
        signal = min(regularizer.l2 * distance / noise, 1e300)
        decades = max(1.0, 2 * math.log(max(1.0, signal)))
        steps = min(steps, decades / (gamma * regularizer.l2))
    return whole_steps(steps, most)


def lojasiewicz_steps(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, mu: float, constant: float
) -> int:
    """Return T of gradient steps 1/L under the Polyak-Lojasiewicz condition with constant c.

    A step with noise of variance sigma^2 per coordinate has E F(x+) <= F(x) - |grad F(x)|^2 / (2 L) +
    p sigma^2 / (2 L), so the excess shrinks by 1 - c/L, and T steps leave at most
    exp(-c T / L) B + p sigma^2 / (2 c). With sigma = sqrt(T) / mu this bound is least at T = (L/c) log(2 c^2
    B mu^2 / (p L)).
    """
    smoothness = facts.smoothness + regularizer.l2
    signal = 2 * constant**2 * loss_range(facts, convex_set) * mu**2 / (facts.dimension * smoothness)
    return whole_steps(smoothness / constant * math.log(max(signal, 1.0)))


def farthest_divergence(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """Return V from the start to a farthest point of C, in its natural geometry."""
    far = linear_minimizer(convex_set)(-np.eye(1, facts.dimension)[0]).point
    return natural_geometry(convex_set).divergence(far, default_start(convex_set))


def has_entropy(convex_set: ConvexSet) -> bool:
    """Return whether the natural geometry of the set is an entropy of its vertices."""
    return isinstance(natural_geometry(convex_set), Entropy | SignedEntropy)


def entropic_horizon(facts: RiskFacts, convex_set: ConvexSet, mu: float) -> float:
    """Return gamma T at which both terms of the bound for entropic mirror descent are equal.

    A step multiplies the weights q of the vertices v by exp(-gamma <g + xi, v>). By Jensen's inequality
    E log sum q exp(-gamma <g + xi, v>) <= log sum q exp(-gamma <g, v>) + gamma^2 s^2 / 2, s^2 the variance
    of <xi, v>. So noise costs gamma s^2 / 2 a step for any dimension p, not gamma times the largest of p
    squares.
    With s = |v|_2 sqrt(T) / mu the average suffers V / (gamma T) + gamma T (|v|_2 / mu)^2 / 2, which depends
    on gamma T alone: at best sqrt(2 V) |v|_2 / mu. Without noise about a quarter of ``loss_range`` could be
    gained, if slopes fall from half of their bound to 0. gamma T is limited to the value at which noise costs
    half of that gain: with a smaller budget the iterates move less.
    """
    noise = convex_set.radius / mu
    balanced = math.sqrt(2 * farthest_divergence(facts, convex_set)) / noise
    return min(balanced, loss_range(facts, convex_set) / (4 * noise**2))


def entropic_steps(facts: RiskFacts, convex_set: ConvexSet, mu: float) -> int:
    """Return T of entropic mirror descent: gamma T is ``entropic_horizon``, gamma one over the curvature."""
    return whole_steps(entropic_horizon(facts, convex_set, mu) * _vertex_curvature(facts, convex_set))


def entropic_step_size(facts: RiskFacts, convex_set: ConvexSet, mu: float, steps: int) -> float:
    """Return gamma for so many steps, at most the largest one with which steps without noise descend."""
    longest = 2 / _vertex_curvature(facts, convex_set)
    return min(longest, entropic_horizon(facts, convex_set, mu) / steps)


def entropic_accelerated_steps(facts: RiskFacts, convex_set: ConvexSet, mu: float, ridge: float) -> int:
    """Return T of accelerated entropic mirror descent; L' is the curvature of F plus the ridge.

    Steps alpha_k = (k + 2) / (4 L') sum up to A = T^2 / (8 L'). In the bound, noise as in
    ``entropic_horizon`` costs sum alpha_k^2 s^2 / 2 over A, that is 2/3 A (|v|_2 / mu)^2, and the start costs
    V / A. A is chosen such that both are equal.
    """
    reach = _accelerated_reach(facts, convex_set, mu)
    return whole_steps(math.sqrt(8 * (_vertex_curvature(facts, convex_set) + ridge) * reach))


def entropic_accelerated_smoothness(
    facts: RiskFacts, convex_set: ConvexSet, mu: float, ridge: float, steps: int
) -> float:
    """Return L' for so many steps, T^2 / (8 A); never below the curvature."""
    least = _vertex_curvature(facts, convex_set) + ridge
    return max(least, steps**2 / (8 * _accelerated_reach(facts, convex_set, mu)))


def _accelerated_reach(facts: RiskFacts, convex_set: ConvexSet, mu: float) -> float:
    return math.sqrt(3 / 4) * entropic_horizon(facts, convex_set, mu)


def _vertex_curvature(facts: RiskFacts, convex_set: ConvexSet) -> float:
    """Return a guess at the smoothness of F in the Minkowski norm, for step sizes. It is not a bound.

    The bound on the l2 norm of rows would allow the whole norm of every row in one and the same coordinate.
    Rows are assumed to spread over the coordinates, up to 100 of them, as in ``typical_distance``.
    """
    spread = min(facts.dimension, SPREAD) if facts.norm == "l2" else 1
    return facts.smoothness_in(convex_set) / spread


def ridged_smoothness(facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> float:
    """Return the smoothness of F plus the ridge in the Minkowski norm of C."""
    return facts.smoothness_in(convex_set) + regularizer.l2 * convex_set.radius**2


def whole_steps(steps: float, most: int = MOST_STEPS) -> int:
    """Return a whole number of steps, at most ``most``: more steps gain little and take long.

    Raises:
        ArithmeticError: ``steps`` is NaN, as where numbers leave the range of doubles.
    """
    if math.isnan(steps):
        raise ArithmeticError("no number of steps")
    return max(1, math.ceil(min(steps, most)))

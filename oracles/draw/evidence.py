"""Sequential tests of a claimed law of random draws, by test martingales (betting).

The odds of a bet are the likelihood ratio of the draws under an alternative law and the claimed law. If the
claim is true, the odds are a martingale of mean 1 for any alternative, so they reach x with a probability of
at most 1 / x (Ville 1939). This holds without approximation, for any number of draws and any expected counts.
The functions below return logarithms of odds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from privopt.problems.discrete.lattice import FloatArray, IntArray

_TINY = np.finfo(np.float64).tiny
# Alternative laws in which a draw repeats the previous draw too often or, if negative, too rarely.
_HABITS = (-0.9, -0.3, 0.05, 0.2, 0.5, 0.9)


def gibbs_law(losses: IntArray, beta: float) -> FloatArray:
    """Return the Gibbs law: probabilities in proportion to exp(-beta loss), in the shape of ``losses``."""
    weights: FloatArray = np.exp(-beta * (losses - losses.min()))
    weights /= weights.sum()
    return weights


def flip_law(losses: IntArray, beta: float) -> FloatArray:
    """Return the law of permute-and-flip, for at most a few hundred points.

    Let r_w = exp(-beta (L_w - min L)). The score of w is the largest with probability r_w times the integral
    over u in (0, 1) of prod_{v != w} (1 - r_v u). The integrand is a polynomial, which Gauss-Legendre
    quadrature of half its degree integrates exactly.
    """
    rates = np.exp(-beta * (losses - losses.min()))
    nodes, weights = _quadrature(len(losses) // 2 + 1)
    u = (nodes + 1) / 2
    factors = 1 - rates[:, None] * u[None, :]
    others = np.exp(np.log(factors).sum(axis=0)[None, :] - np.log(factors))
    law: FloatArray = rates * (others @ (weights / 2))
    return law


@cache
def _quadrature(degree: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of Gauss-Legendre quadrature; cached, as they take longer than the law."""
    nodes, weights = np.polynomial.legendre.leggauss(degree)
    return nodes, weights


def odds_of(drawn: IntArray, law: FloatArray, alternatives: Sequence[FloatArray]) -> FloatArray:
    """Return the log odds of each alternative law against the claimed law, shape (alternatives,)."""
    counts = np.bincount(drawn, minlength=len(law))
    seen = counts > 0
    if np.any(law[seen] == 0):
        return np.full(len(alternatives), math.inf)  # such a draw is impossible under the claim
    logs = [np.where(q[seen] > 0, np.log(np.maximum(q[seen], _TINY)), -math.inf) for q in alternatives]
    claimed = np.log(law[seen])
    return np.array([float(counts[seen] @ (log - claimed)) for log in logs])


def any_of(log_odds: FloatArray) -> float:
    """Return the log odds of the mixture of several bets with equal weights."""
    best = float(np.max(log_odds))
    if math.isinf(best):
        return best
    return best + math.log(float(np.mean(np.exp(log_odds - best))))


def odds_of_other_shares(kinds: IntArray, shares: FloatArray, given: IntArray | None = None) -> float:
    """Return the log odds that the probabilities of the kinds of draws differ from the claimed ones.

    The alternative is a mixture over all probabilities: the predictor of Krichevsky and Trofimov (1981).

    Args:
        kinds: the kind of each draw, in 0..k-1.
        shares: the claimed probabilities of the kinds, shape (k,), the same for every draw.
        given: an integer for each draw that is known before the draw. If it is given, the probabilities are
            learnt separately for each of its values, which detects dependence.
    """
    groups = np.zeros(len(kinds), dtype=np.int64) if given is None else given
    return sum(_learnt(kinds[groups == g], shares) for g in np.unique(groups).tolist())


def _learnt(kinds: IntArray, shares: FloatArray) -> float:
    k = len(shares)
    counts = np.bincount(kinds, minlength=k)
    if np.any((counts > 0) & (shares == 0)):
        return math.inf
    seen = counts > 0
    mixture = math.fsum(math.lgamma(c + 0.5) - math.lgamma(0.5) for c in counts.tolist())
    mixture += math.lgamma(k / 2) - math.lgamma(len(kinds) + k / 2)
    return mixture - float(counts[seen] @ np.log(shares[seen]))


def odds_of_habit(drawn: IntArray, before: IntArray, law: FloatArray) -> float:
    """Return the log odds that draws repeat the previous point too often or too rarely.

    Args:
        drawn: the index of each drawn point.
        before: for each drawn point, the index of the point drawn before it.
        law: the claimed probabilities of all points.
    """
    chance = law[before]
    open_ = (chance > 0) & (chance < 1)  # a draw that is certain gives no evidence
    same, chance = (drawn == before)[open_], chance[open_]
    bets = []
    for habit in _HABITS:
        repeat = chance + (1 - chance) * habit if habit > 0 else chance * (1 + habit)
        bets.append(np.where(same, repeat / chance, (1 - repeat) / (1 - chance)))
    return any_of(np.log(np.array(bets)).sum(axis=1))

"""Permute-and-flip from Gibbs draws, by a race of Poisson clocks.

Let every point w of a lattice ring at the times of a Poisson process of rate r(w) = exp(-beta (L(w) - m)),
with m the smallest loss. The first ring of all comes from w with probability r(w) / sum r: a Gibbs draw. The
first ring of w itself comes at a time t(w) for which r(w) t(w) is standard exponential, independently of the
other points, so -log(1 - exp(-r(w) t(w))) is standard exponential too and can serve as the noise of
permute-and-flip. Hence its winner is the w that minimises

    key(w) = (1 - exp(-r(w) t(w))) / r(w),

and because r <= 1, a point that has not rung by time t has a key of at least 1 - exp(-t). So: let points ring
until that bound reaches the smallest key seen. Later rings of the same point have larger keys and do no
harm, so the rings are simply independent Gibbs draws, and on average fewer than four of them are needed.
(With Z = sum r >= 1 the first ring comes at E / Z. If that is below 1/2, the search ends within (E / Z)^2
after it, which is E^2 / Z further rings on average; in any case it ends when the minimiser itself rings,
which takes Z further rings on average, and E / Z > 1/2 has probability exp(-Z / 2).)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from privopt.oracles.draw.interface import UNIT_ROUNDOFF, Exactness
from privopt.problems.discrete.lattice import IntArray


class Arrivals(ABC):
    """The rings of all points, in order of time; the unit of time is set by r = 1 at the smallest loss."""

    @abstractmethod
    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        """Time and point of the next ring, or None if there is none up to the horizon.

        Raises:
            UnfinishedDrawError: a limit was reached.
        """


def permute_and_flip(arrivals: Arrivals, beta: float, excess: Callable[[IntArray], int]) -> IntArray:
    """The permute-and-flip winner; ``excess`` gives the loss of a point above the smallest one."""
    smallest_key, horizon = math.inf, math.inf
    winner: IntArray | None = None
    while (arrival := arrivals.next(horizon)) is not None:
        time, point = arrival
        key = _key(time, math.exp(-beta * excess(point)))
        if key < smallest_key:
            winner, smallest_key = point, key
            horizon = -math.log1p(-key) if key < 1 else math.inf
    assert winner is not None  # the horizon is infinite until something has rung
    return winner


def flipped_exactness(gibbs: Exactness, beta: float, n: int) -> Exactness:
    """What permute-and-flip inherits from Gibbs draws of a given exactness.

    A relative error of the rates moves a noise by at most as much, and moving all noises by at most a changes
    a probability by a factor of at most exp(2a). Mass may be lost at each of the draws, fewer than four on
    average.
    """
    noise = gibbs.log_error + UNIT_ROUNDOFF * (32 + beta * n)
    return Exactness(2 * noise, 4 * gibbs.lost_mass)


def _key(time: float, rate: float) -> float:
    product = rate * time
    return time if product < UNIT_ROUNDOFF else -math.expm1(-product) / rate

"""Permute-and-flip from Gibbs draws, by competing Poisson processes.

Each point w of a lattice has an independent Poisson process of rate r(w) = exp(-beta (L(w) - m)), with m the
smallest loss. The first arrival of all is at w with probability r(w) / sum r: a Gibbs draw. The first arrival
at w itself is at a time t(w) for which r(w) t(w) is standard exponential, independently of the other points.
So -log(1 - exp(-r(w) t(w))) is standard exponential too and can serve as the noise of permute-and-flip. Its
winner is then the w that minimises

    key(w) = (1 - exp(-r(w) t(w))) / r(w),

and because r <= 1, a point without an arrival by time t has a key of at least 1 - exp(-t). The search
simulates arrivals until that bound reaches the smallest key seen. Later arrivals at the same point have
larger keys and never win, so the arrivals are independent Gibbs draws. On average fewer than four are needed.
(With Z = sum r >= 1 the first arrival is at E / Z. If that is below 1/2, the search ends within (E / Z)^2
after it, which is E^2 / Z further arrivals on average. In any case it ends at the first arrival at the
minimiser, which takes Z further arrivals on average, and E / Z > 1/2 has probability exp(-Z / 2).)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from privopt.oracles.draw.interface import UNIT_ROUNDOFF, DrawRequest, Exactness, exponentials
from privopt.problems.discrete.lattice import IntArray


class Arrivals(ABC):
    """Arrivals at all points in order of time, with the time unit set by r = 1 at the smallest loss."""

    @abstractmethod
    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        """Return time and point of the next arrival, or None if there is none up to the horizon.

        Raises:
            UnfinishedDrawError: a limit was reached.
        """


class RepeatedDraws(Arrivals):
    """Independent Gibbs draws at the times of a Poisson process, whose rate is the total mass.

    Attributes:
        request: the randomness and the limits.
        rate: the rate of arrivals at all points together.
    """

    def __init__(self, request: DrawRequest, rate: float) -> None:
        self.request, self.rate = request, rate
        self._time = 0.0

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        self._time += float(exponentials(self.request.random, 1)[0]) / self.rate
        return None if self._time > horizon else (self._time, self.draw())

    @abstractmethod
    def draw(self) -> IntArray:
        """Return one Gibbs draw."""


def permute_and_flip(arrivals: Arrivals, beta: float, excess: Callable[[IntArray], int]) -> IntArray:
    """Return the permute-and-flip winner; ``excess`` gives the loss of a point above the smallest one."""
    smallest_key, horizon = math.inf, math.inf
    winner: IntArray | None = None
    while (arrival := arrivals.next(horizon)) is not None:
        time, point = arrival
        rate = math.exp(-beta * excess(point))
        key = _key(time, rate)
        if key < smallest_key:
            winner, smallest_key = point, key
            horizon = min(horizon, -math.log1p(-key) if key < 1 else math.inf)
        if rate == 1:  # no later arrival can win, even if the time is so late that the key is rounded to 1
            horizon = min(horizon, time)
    assert winner is not None  # the horizon is infinite until the first arrival
    return winner


def flipped_exactness(gibbs: Exactness, beta: float, n: int) -> Exactness:
    """Return the exactness of permute-and-flip from Gibbs draws of a given exactness.

    A relative error of a rate moves the noise by at most the same amount. Moving all noises by at most a
    changes a probability by a factor of at most exp(2a). Mass may be lost at each of the draws, which are
    fewer than four on average.
    """
    noise = gibbs.log_error + UNIT_ROUNDOFF * (32 + beta * n)
    return Exactness(2 * noise, 4 * gibbs.lost_mass)


def _key(time: float, rate: float) -> float:
    product = rate * time
    return time if product < UNIT_ROUNDOFF else -math.expm1(-product) / rate

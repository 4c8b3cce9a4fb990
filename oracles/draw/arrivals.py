"""Permute-and-flip from Gibbs draws, by competing Poisson processes.

Each point w of a lattice has an independent Poisson process of rate r(w) = exp(-beta (L(w) - m)), with m the
smallest loss. The first arrival at any point is at w with probability r(w) / sum r: a Gibbs draw. Let t(w) be
the time of the first arrival at w. Then r(w) t(w) is standard exponential, independent of the other points.
So -log(1 - exp(-r(w) t(w))) is also standard exponential, and can be the noise of permute-and-flip. With this
noise, permute-and-flip chooses the w that minimises

    key(w) = (1 - exp(-r(w) t(w))) / r(w).

Because r <= 1, a point without an arrival by time t has a key of at least 1 - exp(-t). So arrivals are
simulated until this bound reaches the smallest key. The points of successive arrivals are independent Gibbs
draws; an arrival that is not the first at its point has a larger key and does not matter. Fewer than four
arrivals are needed on average.

Proof: with Z = sum r >= 1, the first arrival is at the time E / Z, E standard exponential. If this is below
1/2, the search ends within (E / Z)^2 after it, which is E^2 / Z further arrivals on average. In any case the
search ends at the first arrival at the minimiser, after Z further arrivals on average, and E / Z > 1/2 has
probability exp(-Z / 2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from privopt.oracles.draw.interface import UNIT_ROUNDOFF, DrawRequest, Exactness, exponentials
from privopt.problems.discrete.lattice import IntArray


class Arrivals(ABC):
    """Arrivals at all points in order of time; a point of smallest loss has the rate 1."""

    @abstractmethod
    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        """Return time and point of the next arrival, or None if there is none up to the horizon.

        Raises:
            UnfinishedDrawError: a limit was reached.
        """


class RepeatedDraws(Arrivals):
    """Arrivals as independent Gibbs draws, at the times of a Poisson process whose rate is the total mass.

    Attributes:
        request: the random source and the limits.
        rate: the total rate of arrivals at all points.
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
    """Return the point of permute-and-flip; ``excess`` is the loss of a point minus the smallest loss."""
    smallest_key, horizon = math.inf, math.inf
    winner: IntArray | None = None
    while (arrival := arrivals.next(horizon)) is not None:
        time, point = arrival
        rate = math.exp(-beta * excess(point))
        key = _key(time, rate)
        if key < smallest_key:
            winner, smallest_key = point, key
            horizon = min(horizon, -math.log1p(-key) if key < 1 else math.inf)
        if rate == 1:  # no later arrival can have a smaller key, even if this key is rounded to 1
            horizon = min(horizon, time)
    assert winner is not None  # the horizon is infinite until the first arrival
    return winner


def flipped_exactness(gibbs: Exactness, beta: float, n: int) -> Exactness:
    """Return the exactness of permute-and-flip from Gibbs draws of a given exactness.

    A relative error of a rate changes the noise by at most the same amount. If all noises change by at most
    a, each probability changes by a factor of at most exp(2a). Mass may be lost at each of the Gibbs draws,
    which are fewer than four on average.
    """
    noise = gibbs.log_error + UNIT_ROUNDOFF * (32 + beta * n)
    return Exactness(2 * noise, 4 * gibbs.lost_mass)


def _key(time: float, rate: float) -> float:
    product = rate * time
    return time if product < UNIT_ROUNDOFF else -math.expm1(-product) / rate

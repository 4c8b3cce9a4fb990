"""The only source of private randomness: draws from the operating system's cryptographic generator.

Continuous draws are for discrete outputs (an argmin over a lattice), where the low bits of a double never
leave the mechanism. A *released real vector* must use ``grid_releases``: the low bits of a sum with
floating-point noise can reveal the exact number before noise (Mironov 2012).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.errors import NoiseSourceError, PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.problems.arguments import check_type, told

Size = int | tuple[int, ...]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

# Words per request: larger requests to the kernel are not faster.
_CHUNK = 1 << 17
# Squares of numbers below 2**30 fit in int64.
MAX_EXPONENT = 30
# Number of noise coordinates drawn in advance; larger batches are hardly faster.
_DRAWN_AHEAD = 1 << 14
# Number of forks between the original process and this one.
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)


def checked_source(noise: NoiseSource | None) -> NoiseSource:
    """Return the given source, by default one that uses the operating system's generator.

    Raises:
        InvalidTypeError: not a ``NoiseSource``.
    """
    return NoiseSource() if noise is None else check_type(noise, NoiseSource, "noise must be a NoiseSource")


class NoiseSource:
    """Random numbers from the operating system's cryptographic generator.

    Every call asks the kernel, so a source has no state that a fork, a pickle or a thread could duplicate.
    Noise that was drawn in advance belongs to one run (``discrete_gaussian_vectors``). A forked child refuses
    it, because the same noise would finish the run twice.

    Resolution of the continuous draws: each is a smooth function of a uniform number in (0, 1), which is
    rounded to 53 *significant* bits of its distance from the nearer end of the interval. Both tails therefore
    extend over the whole range of doubles (no cut at 8 or 37 standard deviations), and no total-variation
    loss has to be added to delta. The remaining error is the rounding of each draw, a few units in the last
    place.

    Args:
        insecure_seed: makes the draws reproducible and the release *without privacy*: for tests and for
            reproducing figures. Such a source cannot be copied, pickled or used in a forked child.

    Raises:
        PrivacyParameterError: a seed that is not an integer >= 0.
    """

    def __init__(self, insecure_seed: int | None = None) -> None:
        self._stream: np.random.Philox | None = None
        if insecure_seed is not None:
            if isinstance(insecure_seed, bool) or not isinstance(insecure_seed, int | np.integer):
                raise PrivacyParameterError(
                    f"insecure_seed must be an integer or None, got {told(insecure_seed)}"
                )
            if insecure_seed < 0:
                raise PrivacyParameterError(f"insecure_seed must be >= 0, got {insecure_seed}")
            insecure_seed = int(insecure_seed)
            self._stream = np.random.Philox(insecure_seed)
        self._process = os.getpid()
        self._seed = insecure_seed

    @property
    def insecure_seed(self) -> int | None:
        """The seed, if the draws are reproducible; None for the operating system's generator."""
        return self._seed

    def __repr__(self) -> str:
        return "NoiseSource()" if self._seed is None else f"NoiseSource(insecure_seed={self._seed})"

    def __reduce__(self) -> tuple[type[NoiseSource], tuple[()]]:
        if self._stream is not None:
            raise NoiseSourceError(
                "a seeded noise source cannot be copied or pickled: its draws would repeat"
            )
        return NoiseSource, ()

    def order(self, n: int) -> NDArray[np.int64]:
        """Return 0 to n - 1 in uniformly random order."""
        keys = self.bits(n)
        while len(np.unique(keys)) < n:  # ties would make some orders likelier
            keys = self.bits(n)
        return np.argsort(keys)

    def bits(self, n: int) -> Words:
        """Return ``n`` uniform 64-bit words."""
        if self._stream is not None:
            if os.getpid() != self._process:
                raise NoiseSourceError(
                    "a seeded noise source cannot be used after a fork: its draws would repeat"
                )
            return self._stream.random_raw(n)
        words = np.empty(n, dtype=np.uint64)
        for start in range(0, n, _CHUNK):
            part = words[start : start + _CHUNK]
            part[:] = np.frombuffer(os.urandom(8 * part.size), dtype=np.uint64)
        return words

    def uniform(self, size: Size = 1) -> Floats:
        """Draw from the open interval (0, 1): a real uniform rounded down to 53 significant bits."""
        return self._fractions(size)[0]

    def exponential(self, size: Size = 1) -> Floats:
        """Draw exponentials with mean 1, with full relative precision near 0 and in the tail."""
        near, upper = self._fractions(size)
        near *= 0.5
        return np.where(upper, -np.log(near), -np.log1p(-near))

    def laplace(self, scale: float, size: Size = 1) -> Floats:
        """Draw from Laplace with mean 0 and density exp(-|x|/scale) / (2 scale)."""
        near, negative = self._fractions(size)
        magnitude = -check_positive(scale, "scale") * np.log(near)
        return np.where(negative, -magnitude, magnitude)

    def gumbel(self, size: Size = 1) -> Floats:
        """Draw from the standard Gumbel law of maxima: -log of an exponential."""
        return -np.log(self.exponential(size))

    def gaussian(self, scale: float, size: Size = 1) -> Floats:
        """Draw from the normal law with mean 0 and standard deviation ``scale``, by inversion of the
        nearer tail.
        """
        near, upper = self._fractions(size)
        near *= 0.5
        lower_tail = check_positive(scale, "scale") * special.ndtri(near)
        return np.where(upper, -lower_tail, lower_tail)

    def integers(self, n: int, size: Size = 1) -> Ints:
        """Draw exactly uniform integers in {0, ..., n - 1}, 1 <= n <= 2**62, by rejection."""
        if check_count(n, "n") > 1 << 62:
            raise PrivacyParameterError(f"integers are drawn up to 2**62, got n = {n}")
        return self._integers(n, math.prod(_shape(size))).reshape(size)

    def _integers(self, n: int, count: int) -> Ints:
        """Draw ``integers`` without checking n: samplers call this about thirty times per draw."""
        words = self.bits(count)
        if n & (n - 1) == 0:
            return (words & np.uint64(n - 1)).astype(np.int64)
        limit = np.uint64((1 << 64) // n * n - 1)
        while np.any(late := words > limit):
            words[late] = self.bits(int(np.count_nonzero(late)))
        return (words % np.uint64(n)).astype(np.int64)

    def discrete_laplace(self, exponent: int, size: Size = 1, *, steps: int = 1) -> Ints:
        """Draw from the exact discrete Laplace law: P[x] ~ exp(-|x| steps / 2**exponent), steps >= 1.

        Canonne, Kamath and Steinke (2020), algorithm 2, in integer arithmetic only: their s is ``steps``.
        """
        scale_bits, steps = _exponent(exponent), check_count(steps, "steps")
        return _until_accepted(lambda n: self._try_laplace(scale_bits, n, steps), size)

    def discrete_gaussian(self, exponent: int, size: Size = 1) -> Ints:
        """Draw from the exact discrete Gaussian law: P[x] ~ exp(-x**2 / 2**(2 exponent + 1)).

        Canonne, Kamath and Steinke (2020), algorithm 3, in integer arithmetic only. The parameter sigma is
        2**exponent, 0 <= exponent <= 30; other standard deviations follow from the choice of a grid.
        """
        sigma_bits = _exponent(exponent)
        return _until_accepted(lambda n: self._try_gaussian(sigma_bits, n), size)

    def discrete_gaussian_vectors(self, exponent: int, dimension: int, count: int) -> Iterator[Ints]:
        """Yield ``count`` vectors of ``discrete_gaussian``, drawn in batches for speed.

        The vectors are for one run of one mechanism: unused vectors must not be kept for another run, nor
        shared.

        Raises:
            NoiseSourceError: the process was forked after the draws were made, so its parent has the same
                draws.
        """
        at_once = max(1, _DRAWN_AHEAD // check_count(dimension, "dimension"))
        began = _forks
        for done in range(0, count, at_once):
            for vector in self.discrete_gaussian(exponent, (min(at_once, count - done), dimension)):
                if _forks != began:
                    raise NoiseSourceError(
                        "a run that began before a fork cannot go on in the child: its noise is the parent's"
                    )
                yield vector

    def _fractions(self, size: Size) -> tuple[Floats, NDArray[np.bool_]]:
        """Return a uniform in (0, 1) with 53 significant bits, and an independent fair coin.

        One word of 64 bits gives the coin (1 bit), the mantissa (52 bits) and the start of the exponent,
        which is geometric (11 bits). For one word in 2048 the exponent needs more bits.
        """
        words = self.bits(math.prod(_shape(size)))
        coin = (words >> np.uint64(63)).astype(bool)
        tail = (words & np.uint64(2047)).astype(np.float64)
        mantissa = ((words >> np.uint64(11)) & np.uint64((1 << 52) - 1)).view(np.int64) + (1 << 52)
        # frexp of a uniform integer in [1, 2047]: 11 - exponent leading zeros.
        shift = 11 - np.frexp(tail)[1].astype(np.int64)
        open_ = np.flatnonzero(tail == 0)
        while open_.size:
            word = self.bits(open_.size) >> np.uint64(32)
            zeros = 32 - np.frexp(word.astype(np.float64))[1].astype(np.int64)
            shift[open_] += np.where(word == 0, 32, zeros)
            open_ = open_[word == 0]
        return np.ldexp(mantissa.astype(np.float64), -53 - shift).reshape(size), coin.reshape(size)

    def _accept_exp(self, numerator: Ints, bits: int) -> NDArray[np.bool_]:
        """Draw from Bernoulli(exp(-numerator / 2**bits)), exactly; numerator >= 0, 0 <= bits <= 61.

        exp(-(k + f)) = exp(-1)^k exp(-f): the integer part is a run of k coins of bias exp(-1).
        """
        whole = numerator >> bits
        accepted = self._accept_fraction(numerator & ((1 << bits) - 1), bits)
        running = np.flatnonzero(accepted & (whole > 0))
        while running.size:
            heads = self._accept_fraction(np.ones(running.size, dtype=np.int64), 0)
            accepted[running[~heads]] = False
            running = running[heads]
            whole[running] -= 1
            running = running[whole[running] > 0]
        return accepted

    def _accept_fraction(self, numerator: Ints, bits: int) -> NDArray[np.bool_]:
        """Draw from Bernoulli(exp(-f)) for f = numerator / 2**bits <= 1: Canonne et al. (2020), algorithm 1.

        Toss coins of bias f/1, f/2, f/3, ... until one fails, and accept if an even number succeeded. A coin
        of bias f/k succeeds if a coin of bias f and a coin of bias 1/k do; both are integer comparisons.
        """
        accepted = np.ones(numerator.shape, dtype=bool)
        running = np.arange(numerator.size)
        k = 1
        while running.size:
            if bits:
                running = running[self._integers(1 << bits, running.size) < numerator[running]]
            else:
                running = running[numerator[running] > 0]
            if k > 1:
                running = running[self._integers(k, running.size) == 0]
            accepted[running] = ~accepted[running]
            k += 1
        return accepted

    def _try_laplace(self, bits: int, n: int, steps: int = 1) -> Ints:
        low = self._integers(1 << bits, n)
        low = low[self._accept_exp(low, bits)]
        high = np.zeros(low.size, dtype=np.int64)
        running = np.arange(low.size)
        while running.size:
            heads = self._accept_fraction(np.ones(running.size, dtype=np.int64), 0)
            running = running[heads]
            high[running] += 1
        magnitude = (low + (high << bits)) // steps
        negative = self._integers(2, low.size) == 1
        kept = ~(negative & (magnitude == 0))  # accept zero with one sign only
        return np.asarray(np.where(negative, -magnitude, magnitude)[kept])

    def _try_gaussian(self, bits: int, n: int) -> Ints:
        proposal = self._try_laplace(bits, n)
        # Accept with exp(-(|y| - sigma)^2 / (2 sigma^2)). With |y| - sigma = h sigma + l the exponent is
        # h^2/2 + h l/sigma + l^2/(2 sigma^2), and no term overflows.
        distance = np.abs(np.abs(proposal) - (1 << bits))
        h, low = distance >> bits, distance & ((1 << bits) - 1)
        kept = self._accept_exp(low * low, 2 * bits + 1)
        far = np.flatnonzero(kept & (h > 0))
        kept[far] = self._accept_exp(h[far] ** 2, 1) & self._accept_exp(h[far] * low[far], bits)
        return proposal[kept]


def _shape(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _exponent(exponent: int) -> int:
    if not (isinstance(exponent, int) and 0 <= exponent <= MAX_EXPONENT):
        raise PrivacyParameterError(f"exponent must be an integer from 0 to {MAX_EXPONENT}, got {exponent!r}")
    return exponent


def _until_accepted(attempt: Callable[[int], Ints], size: Size) -> Ints:
    """Collect accepted draws until there are enough."""
    wanted = math.prod(_shape(size))
    parts: list[Ints] = []
    while (missing := wanted - sum(len(p) for p in parts)) > 0:
        parts.append(attempt(missing + missing // 2 + 8)[:missing])
    return np.concatenate(parts).reshape(size) if parts else np.zeros(size, dtype=np.int64)

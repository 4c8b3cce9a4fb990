"""Interface of sampling oracles: exact draws for the exponential mechanism and permute-and-flip.

There are two laws over the points w of a lattice, for an integer loss L(D, w) and inverse temperature beta:

- Gibbs: P[w] proportional to exp(-beta * L(D, w)), the exponential mechanism (McSherry and Talwar 2007).
- Permute-and-flip (McKenna and Sheldon 2020): the w that maximises E_w - beta * L(D, w) with independent
  standard exponential E_w. (Ding, Kifer, Sayed, Steinke, Wang, Xiao and Zhang 2021 prove that this is
  McKenna and Sheldon's law.) The expected loss is never larger than under Gibbs at the same beta.

Replacing one record changes L at a fixed w by at most B (1 for a number of errors), so either law is
epsilon-DP (pure, replace-one) at beta = epsilon / (2 B). This guarantee covers only the drawn point. The
loss, the partition function, the node count and the running time are diagnostics, and not private.

The effect of floating point on these laws is stated in the form that pure privacy needs: as a factor on
*every* probability, however small (``Exactness``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError, UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.facts import Precision, ProblemFacts
from privopt.oracles.limits import LatticeOracle, Limits, Watch, started, unless_deaf
from privopt.oracles.vetting import is_own, outside_code
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.problem import DiscreteProblem, check_question
from privopt.problems.errors import InvalidInputError

UNIT_ROUNDOFF = 2.0**-53
# Relative error of one draw E of ``exponentials``: 1 roundoff of the uniform variable times a condition
# number of at most 1.5, and 4 units in the last place (8 roundoffs) of the logarithm.
EXPONENTIAL_ERROR = 16 * UNIT_ROUNDOFF
# |log E| is below this unless the random source returns 256 zero bits in a row.
LOG_EXPONENTIAL_RANGE = 180.0


class Law(Enum):
    """The laws of a draw: Gibbs or permute-and-flip."""

    GIBBS = "P[w] proportional to exp(-beta * L(D, w))"
    PERMUTE_AND_FLIP = "argmax over w of E_w - beta * L(D, w), E_w independent standard exponential"


class RandomSource(Protocol):
    """Source of uniform random bits, the only randomness that exact sampling needs."""

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        """Return n independent uniform 64-bit words."""


@dataclass(frozen=True)
class Exactness:
    """Bound on the distance of a draw's law from the stated law, given ideal random bits.

    Outside an event of probability ``lost_mass``, every point is drawn with its exact probability up to a
    factor between exp(-log_error) and exp(log_error). Both numbers depend on beta, the number of records and
    the structure of the problem, but not on losses. So if the exact law is epsilon-DP, its computation in
    floating point is (epsilon + 2 log_error, lost_mass (1 + exp(epsilon + 2 log_error)))-DP.
    """

    log_error: float
    lost_mass: float

    def with_losses_off_by(self, loss_error: float, beta: float) -> Exactness:
        """Return the bound for losses with an error, which counts twice: in a weight and in their sum."""
        return Exactness(self.log_error + 2 * beta * loss_error, self.lost_mass)

    def meets(self, needed: Precision) -> bool:
        return self.log_error <= needed.log_error and self.lost_mass <= needed.lost_mass

    def __str__(self) -> str:
        return (
            f"every probability is right to a relative {math.expm1(self.log_error):.1e}, "
            f"outside an event of probability {self.lost_mass:.1e}"
        )


@dataclass(frozen=True)
class DrawRequest:
    """Request for one draw: the inverse temperature, the random source, and limits."""

    beta: float
    random: RandomSource
    watch: Watch


@dataclass(frozen=True)
class Sample:
    """Result of a sampler, without the loss, which privopt recomputes."""

    point: IntArray
    exactness: Exactness
    log_partition: float | None = None
    nodes: int = 0


@dataclass(frozen=True)
class Moments:
    """Log-partition function and expected loss of a Gibbs law. Not private: never release them."""

    log_partition: float
    expected_loss: float


class Sampler(ABC):
    """A sampler built for one problem and one law."""

    @abstractmethod
    def draw(self, request: DrawRequest) -> Sample:
        """Make one exact draw.

        Raises:
            UnfinishedDrawError: a limit was reached.
        """

    def moments(self, beta: float, watch: Watch) -> Moments:
        """Return the log-partition function and the expected loss of the Gibbs law, by exact summation.

        Raises:
            UnsupportedProblemError: this sampler computes no sum over the whole lattice.
        """
        raise UnsupportedProblemError(
            "this sampler never sums over the whole lattice, so it knows no partition function. "
            "Use enumeration or elimination for diagnostics, or average many draws"
        )


@dataclass(frozen=True)
class Draw:
    """One draw. The privacy guarantee covers only ``point``; every other field is a diagnostic.

    Attributes:
        point: the drawn weights, shape (dimension,).
        loss: the exact loss of the point, such as its number of errors, recomputed in integers. Not private.
        law: the law of the draw.
        beta: inverse temperature.
        oracle: name of the oracle.
        exactness: bound on the effect of floating point on the law.
        log_partition: log of the sum over w of exp(-beta L(D, w)); None if unknown. Not private.
        nodes: work done. Not private unless the oracle states that it is.
        seconds: wall-clock time. Not private unless the oracle states that it is.
    """

    point: IntArray
    loss: int
    law: Law
    beta: float
    oracle: str
    exactness: Exactness
    log_partition: float | None
    nodes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.law.name} beta={self.beta:g} loss={self.loss} "
            f"({self.exactness}; {self.oracle}, {self.nodes} nodes, {self.seconds:.3g} s)"
        )


class GibbsOracle(LatticeOracle):
    """Sampling oracle over a lattice. Instances are cheap to make."""

    name: ClassVar[str]
    takers_of_constraints: ClassVar[str] = "enumerate, branch, stream"

    @abstractmethod
    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        """Return every reason why this oracle cannot draw; empty if it can. Must be cheap."""

    @abstractmethod
    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        """Do all work that does not depend on beta and randomness. Called only if there are no refusals."""

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness | None:
        """Return a bound on the exactness for every problem with these facts that is not refused, or None.

        More rows or larger losses must not improve the bound. ``facts.precision`` is not used.
        """
        return None

    def all_refusals(
        self, problem: DiscreteProblem, law: Law = Law.GIBBS, precision: Precision | None = None
    ) -> list[str]:
        """List ``refusals``, and the refusals of constraints and of too large rounding errors."""
        reasons = [*self._boxes_alone(problem.lattice), *self.refusals(problem, law)]
        return reasons or self._too_coarse(_facts_of(problem, law, precision))

    def all_planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return super().all_planned_refusals(facts) or self._too_coarse(facts)

    def _too_coarse(self, facts: ProblemFacts) -> list[str]:
        """Return the reason to refuse if draws may be less exact than ``facts.precision`` requires.

        The rule is the same before and after data are read. If the facts of a plan pass, every problem with
        these facts does.
        """
        if (needed := facts.precision) is None:
            return []
        bound = self.planned_exactness(facts, needed.beta)
        if bound is None:
            return []
        if (bound := bound.with_losses_off_by(facts.kind.loss_error, needed.beta)).meets(needed):
            return []
        return [
            f"its draws may have a relative error of {math.expm1(min(bound.log_error, 700.0)):.2g} and lose "
            f"mass {bound.lost_mass:.2g}, and epsilon leaves room for {needed.log_error:.2g} and "
            f"{needed.lost_mass:.2g}: an epsilon nearer to 1"
        ]

    def prepare(
        self, problem: DiscreteProblem, law: Law = Law.GIBBS, precision: Precision | None = None
    ) -> PreparedGibbs:
        """Check that the oracle takes the problem, then build a sampler.

        Args:
            problem: the problem.
            law: the law of the draws.
            precision: the exactness that a plan requires; None if it requires none.

        Raises:
            UnsupportedProblemError: the problem is refused; the message lists every reason.
        """
        check_question(problem, law, Law)
        if reasons := self.all_refusals(problem, law, precision):
            raise UnsupportedProblemError(
                f"oracle {self.name!r} cannot draw ({law.name}) for {type(problem).__name__} over "
                f"{problem.lattice}: " + "; ".join(reasons)
            )
        return PreparedGibbs(self.name, problem, law, self.build(problem, law), outside_code(self))


def _facts_of(problem: DiscreteProblem, law: Law, precision: Precision | None) -> ProblemFacts:
    """Return the facts of a problem that determine bounds on exactness."""
    return ProblemFacts(
        type(problem),
        law,
        problem.lattice,
        problem.n_rows,
        problem.largest_loss,
        layout=problem.layout if isinstance(problem, ZeroOneHalfspace) else None,
        predicates=len(problem.table) if isinstance(problem, BranchingProblem) else 0,
        precision=precision,
    )


@dataclass(frozen=True)
class PreparedGibbs:
    """A sampler built for one problem and one law; each of its draws is checked.

    The law of the draws and their independence cannot be checked here. They are claims of the sampler;
    ``maker`` is the class of the oracle that makes these claims.
    """

    name: str
    problem: DiscreteProblem
    law: Law
    sampler: Sampler
    maker: Any = field(default=None, compare=False)

    def draw(self, beta: float, random: RandomSource, limits: Limits | None = None) -> Draw:
        """Make one exact draw at inverse temperature beta.

        With beta = epsilon / (2 B), B the problem's ``record_loss_bound``, the point is an epsilon-DP release
        (pure, replace-one neighbours, n public).

        Args:
            beta: inverse temperature per unit of loss, finite, >= 0.
            random: uniform bits.
            limits: time limit, progress, cancellation.

        Raises:
            InvalidInputError: beta is negative or not finite.
            UnfinishedDrawError: a limit was reached before a point was drawn.
            SolverFailedError: the sampler returned a point outside the lattice.
        """
        watch = started(limits)
        sample = self._sample(DrawRequest(_inverse_temperature(beta), random, watch))
        point = np.array(sample.point, dtype=np.int64)
        if not self.problem.lattice.contains(point):
            raise SolverFailedError(f"oracle {self.name!r} drew a point outside the lattice")
        return Draw(
            point=point,
            loss=self.problem.loss(point),
            law=self.law,
            beta=float(beta),
            oracle=self.name,
            exactness=sample.exactness.with_losses_off_by(self.problem.loss_error, float(beta)),
            log_partition=sample.log_partition,
            nodes=sample.nodes,
            seconds=watch.seconds,
        )

    def _sample(self, request: DrawRequest) -> Sample:
        """Ask the sampler. Outside code that ignores a limit is abandoned, and an error is raised."""
        if self.maker is None or is_own(self.maker):
            return self.sampler.draw(request)

        def nothing(reason: Status) -> Sample:
            raise UnfinishedDrawError(
                f"stopped by {reason.name} after {request.watch.seconds:.1f} s: the sampler {self.name!r} "
                f"went on, and was abandoned. To do: {reason.value}"
            )

        return unless_deaf(request.watch, lambda: self.sampler.draw(request), nothing)

    def moments(self, beta: float, limits: Limits | None = None) -> Moments:
        """Return the log-partition function and the expected loss of the Gibbs law at beta. Not private.

        Raises:
            InvalidInputError: beta is negative or not finite.
            UnsupportedProblemError: the sampler computes no sum over the whole lattice.
            UnfinishedDrawError: a limit was reached.
        """
        return self.sampler.moments(_inverse_temperature(beta), started(limits))

    def log_partition(self, beta: float, limits: Limits | None = None) -> float:
        """Return the log of the sum over w of exp(-beta L(D, w)); see ``moments``. Not private."""
        return self.moments(beta, limits).log_partition

    def expected_loss(self, beta: float, limits: Limits | None = None) -> float:
        """Return the expected loss of a Gibbs draw; see ``moments``. Not private."""
        return self.moments(beta, limits).expected_loss


def stop_if_asked(watch: Watch, nodes: int) -> None:
    """Report progress, and raise an error if a limit is reached.

    Raises:
        UnfinishedDrawError: a limit is reached; the message gives time, work and a remedy.
    """
    watch.report(math.nan, math.nan, nodes)
    if (reason := watch.stop()) is not None:
        remedy = (
            reason.value if reason is Status.INTERRUPTED else "raise the time limit, or use a smaller lattice"
        )
        raise UnfinishedDrawError(
            f"stopped by {reason.name} after {watch.seconds:.1f} s and {nodes} nodes: no point was drawn. "
            f"To do: {remedy}"
        )


def exponentials(random: RandomSource, size: int) -> FloatArray:
    """Return standard exponentials with full relative precision near 0 and in the tail; shape (size,).

    Each is an exact exponential variable up to the relative error ``EXPONENTIAL_ERROR``. The usual -log(u),
    with u on a grid of 2^-53, takes no value between 0 and 1e-16. So events of smaller probability would be
    impossible, and a claim of pure privacy false. Here the binary exponent of the uniform variable is drawn
    as a geometric variable, and the fraction separately.
    """
    words = random.bits(size)
    fraction = 1.0 + ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    halved = np.ldexp(fraction, -2 - _leading_zeros(random, size))  # uniform on (0, 1/2)
    upper_half = (words & np.uint64(1)).astype(bool)
    return np.where(upper_half, -np.log(halved), -np.log1p(-halved))


def _leading_zeros(random: RandomSource, size: int) -> NDArray[np.int64]:
    """Return the number of zeros before the first 1 in independent streams of random bits, at most 256."""
    words = random.bits(size)
    zeros = _zeros_of(words)
    pending = np.flatnonzero(words == 0)
    for _ in range(3):
        if not len(pending):
            break
        words = random.bits(len(pending))
        zeros[pending] += _zeros_of(words)
        pending = pending[words == 0]
    return zeros


def _zeros_of(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the numbers of leading zeros of 64-bit words."""
    high = words >> np.uint64(11)  # 53 bits, which a double represents exactly
    length = np.frexp(high.astype(np.float64))[1] + np.int64(11)
    if not high.all():
        low = np.frexp(words.astype(np.float64))[1]  # used for words below 2^11 only, which are exact
        length = np.where(high > 0, length, low)
    return 64 - length


def uniform_below(random: RandomSource, n: int) -> int:
    """Return an exactly uniform integer in [0, n), by rejection; n >= 1 of any size."""
    words = max(1, -(-n.bit_length() // 64))
    excess = 64 * words - n.bit_length()
    while True:
        value = (
            int.from_bytes(np.ascontiguousarray(random.bits(words), dtype="<u8").tobytes(), "little")
            >> excess
        )
        if value < n:
            return value


def race(random: RandomSource, log_weights: FloatArray) -> int:
    """Return an index drawn in proportion to exp(log_weights), by a race of exponential clocks.

    Clock k rings at the time E_k / weight_k, and first with probability weight_k / (sum of weights).
    Unlike inversion of a cumulative sum, a race loses no small probability: rounding changes each time by a
    factor of at most 1 +- delta, hence each probability by at most (1 + delta) / (1 - delta). See
    ``race_error``.
    """
    clocks = np.log(exponentials(random, len(log_weights))) - log_weights
    return int(np.argmin(clocks))


def race_error(magnitude: float) -> float:
    """Return the error of a log probability under ``race``, for finite |log_weights| up to ``magnitude``.

    That is twice the error of one clock: the winner may be too early, and all other clocks too late.
    """
    return 2 * clock_error(magnitude)


def clock_error(magnitude: float) -> float:
    """Return the error of the log arrival time of one clock of ``race``."""
    return EXPONENTIAL_ERROR + 4 * UNIT_ROUNDOFF * (LOG_EXPONENTIAL_RANGE + magnitude)


def chain_error(races: int, weight_error: float, magnitude: float) -> float:
    """Return the error of a log probability under a chain of races.

    A probability is a product of one conditional probability for each race. In each race the winning weight
    may be too small and all others too large, by the relative error ``weight_error``.
    """
    return races * (2 * weight_error + race_error(magnitude))


def lost_to_the_source(exponentials_used: float) -> float:
    """Return a bound on the probability of 256 zero bits in a row in any of this number of exponentials."""
    return exponentials_used * 2.0**-256


def _inverse_temperature(beta: float) -> float:
    if not (math.isfinite(beta) and beta >= 0):
        raise InvalidInputError(f"the inverse temperature beta must be finite and >= 0, got {beta}")
    return float(beta)

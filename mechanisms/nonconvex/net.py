"""The exponential mechanism on an alpha-net of a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.preparation import check_takes, prepared_for
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.gradient_noise import shared_by
from privopt.mechanisms.privacy.parameters import check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskMechanism, RiskTarget
from privopt.mechanisms.risk.step_counts import typical_distance
from privopt.oracles.convex.smooth import SmoothCertificate
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import within
from privopt.oracles.select import gibbs_oracle
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.nonconvex.net import LOSS_UNITS, BallNet, NetProblem, loss_spread

# Number of loss evaluations, of one record at one point each: the limit for defaults, and the limit above
# which a net is refused.
_USUAL_WORK = 2e7
_MOST_WORK = 2e10
_MOST_UNITS = 2.0**60


@dataclass(frozen=True)
class NetMechanism(RiskMechanism):
    """A point w of an alpha-net of a ball, drawn with probability proportional to exp(-beta n F^r(w)).

    beta = epsilon / (2 Delta), Delta the ``loss_spread`` of one record. With probability 1 - q the objective
    at the released point is within ``excess(q)`` of its minimum over the ball, convex or not. The running
    time grows as (radius / alpha)^d, so the mechanism is for few dimensions.

    The set is an l2 ball. By default it contains the minimiser of the penalised risk, |w| <= G / l2, or has
    twice the typical norm of weights if that is smaller. The default alpha is Delta d / (n epsilon G), about
    the error due to privacy, or coarser where that would take more than 2e7 losses.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record, n public. This is the
    guarantee of ``ExponentialMechanism``, which runs here on ``NetProblem`` with any oracle that draws. The
    released point is a function of integers.

    Source: Wang, Chen and Xu (2019), Theorem 4, with the net and all constants worked out.

    Attributes:
        net: the net.
        draw: the exponential mechanism.
        oracle: name of the oracle that draws.
    """

    name: ClassVar[str] = "net"
    takes_l1: ClassVar[bool] = False
    noised: ClassVar[str] = "the choice of a point of the net"
    by_sums: ClassVar[bool] = False

    net: BallNet
    draw: ExponentialMechanism
    oracle: str = "auto"

    @classmethod
    def _calibrated(cls, target: RiskTarget, alpha: float | None = None, oracle: str = "auto") -> Self:
        """Calibrate to a target; releases share epsilon evenly, delta is not used.

        Args:
            target: its set is an ``L2Ball``, or the whole space for the default ball.
            alpha: every point of the ball is within alpha of a point of the net.
            oracle: name of the oracle that draws, in ``privopt.oracles.registry.GIBBS``.

        Raises:
            PrivacyParameterError: a net that is too large; the message says how large.
        """
        facts, regularizer = target.facts, target.regularizer
        epsilon, together = target.epsilon, target.releases
        ball = _ball(facts, target.convex_set, regularizer)
        spread = loss_spread(facts, ball.size)
        if alpha is None:
            wanted = spread * facts.dimension * together / (facts.n_records * epsilon * facts.gradient_bound)
            alpha = _affordable_alpha(facts, ball.size, min(wanted, ball.size))
        # The penalty of the farthest point, in units of losses; on the net all sums are 64-bit integers.
        penalty = facts.n_records * regularizer.l2 / 2 * ball.size**2 / spread * LOSS_UNITS
        if not facts.n_records * LOSS_UNITS + penalty <= _MOST_UNITS:
            raise PrivacyParameterError(
                f"{facts.n_records:,} records with a penalty l2:{regularizer.l2:.3g} over a ball of radius "
                f"{ball.size:.3g} leave the range of 64-bit sums: fewer records, a smaller penalty or ball"
            )
        net = BallNet(facts.dimension, ball.size, check_positive(alpha, "alpha"))
        if (work := net.size_bound * facts.n_records) > _MOST_WORK:
            raise PrivacyParameterError(
                f"a net with alpha = {alpha:.3g} of a ball of radius {ball.size:.3g} in {facts.dimension} "
                f"dimensions has up to {net.size_bound:.3g} points: {work:.3g} losses for {facts.n_records} "
                f"records, more than {_MOST_WORK:g}. A coarser alpha, a smaller ball or fewer features, or "
                "dp-gld"
            )
        draw = ExponentialMechanism.plan(NetProblem, net.lattice, epsilon=epsilon / together)
        largest = facts.n_records * LOSS_UNITS + math.ceil(penalty) + 1
        asked = ProblemFacts(
            NetProblem, draw.question, net.lattice, facts.n_records, largest, precision=draw.precision
        )
        check_takes(gibbs_oracle(oracle), cls.name, asked, "a coarser alpha, or dp-gld")
        note = shared_by(together, f"epsilon = {epsilon / together:.4g} each")
        spend = PrivacySpend.pure(epsilon, cls.name, note=note)
        return cls(facts, ball, regularizer, spend, net, draw, oracle)

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Expected excess loss of the draw against the loss of a constant."""
        found = math.log(self.net.size_bound) / (self.draw.beta * LOSS_UNITS)
        return NoiseToSignal(found, self.facts.n_records / 2, "total loss, of its range")

    @property
    def noise(self) -> dict[str, float]:
        return {"beta": self.beta, "alpha": self.net.alpha, "most_candidates": self.net.size_bound}

    @property
    def beta(self) -> float:
        """The inverse temperature, per unit of summed loss."""
        return self.draw.beta * LOSS_UNITS / loss_spread(self.facts, self.net.radius)

    def excess(self, failure: float) -> float:
        """Bound the excess of F^r at the released point over its minimum in the ball, with probability 1 -
        failure.

        The bound is the sum of alpha (G + l2 radius) for the net, (ln N + ln(1 / failure)) / (beta n) for the
        draw (McSherry and Talwar 2007), and a unit for rounding at either point.
        """
        slope = self.facts.gradient_bound + self.regularizer.l2 * self.net.radius
        drawn = (math.log(self.net.size_bound) - math.log(failure)) / (self.beta * self.facts.n_records)
        unit = loss_spread(self.facts, self.net.radius) / LOSS_UNITS
        return self.net.alpha * slope + drawn + 2 * unit

    def _compile(self, risk: EmpiricalRisk) -> None:
        """Compile nothing: the oracle compiles what it needs when it is prepared."""

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, SmoothCertificate | None]:
        problem = NetProblem(risk, self.net, self.regularizer.l2)
        if run.source is None:
            return self.net.points(_best(problem)[None, :])[0], None
        oracle = gibbs_oracle(self.oracle)
        prepared = within(run.watch, lambda: prepared_for(oracle, self.draw, problem))
        drawn = self.draw.release(prepared, run.source, run.watch.rest)
        return self.net.points(drawn.point[None, :])[0], None


def _best(problem: NetProblem) -> IntArray:
    """Return the first point with the least loss."""
    blocks = [(points, problem.losses(points)) for points in problem.lattice.batches(1 << 12)]
    points, losses = min(blocks, key=lambda block: int(block[1].min()))
    return np.asarray(points[int(losses.argmin())])


def _ball(facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> L2Ball:
    if isinstance(convex_set, L2Ball):
        return convex_set
    if not isinstance(convex_set, WholeSpace):
        raise PrivacyParameterError(f"net takes an l2 ball, got {type(convex_set).__name__}: use l2:SIZE")
    usual = 2 * typical_distance(facts, convex_set)
    # At the minimiser of the penalised risk grad F(w) + l2 w = 0, so |w| <= G / l2.
    sure = facts.gradient_bound / regularizer.l2 if regularizer.l2 > 0 else math.inf
    return L2Ball(facts.dimension, min(usual, sure))


def _affordable_alpha(facts: RiskFacts, radius: float, alpha: float) -> float:
    """Return alpha, or its least multiple by a power of 2^(1/8) whose net takes at most the default work."""
    while (
        alpha < radius and BallNet(facts.dimension, radius, alpha).size_bound * facts.n_records > _USUAL_WORK
    ):
        alpha *= 2**0.125
    return min(alpha, radius)

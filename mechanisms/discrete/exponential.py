"""The exponential mechanism and permute-and-flip over a lattice, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from privopt.mechanisms.discrete.calibration import Calibration
from privopt.mechanisms.discrete.mechanism import LatticeMechanism, Release, Target, check_calibration
from privopt.mechanisms.errors import InexactDrawError, PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.draw.interface import Law, PreparedGibbs, race_error
from privopt.oracles.facts import Precision
from privopt.oracles.limits import Limits

# The share of epsilon that is reserved for floating-point errors in the law of a draw.
_ARITHMETIC_SHARE = 1e-4
# Events of this probability are treated as impossible: a repeated key of the random source is likelier.
_NEVER = 2.0**-128
# The smallest epsilon whose reserved share covers the rounding of doubles in one race between points.
_LEAST_EPSILON = 2 * race_error(0.0) / _ARITHMETIC_SHARE


@dataclass(frozen=True)
class ExponentialMechanism(LatticeMechanism[PreparedGibbs]):
    """One draw from P[w] proportional to exp(-beta L(D, w)), beta = epsilon / (2 Delta).

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record, n and the lattice
    public. Delta is the largest loss of a record: replacing a record moves L at a fixed w by at most Delta,
    hence the numerator and the partition function by a factor of at most exp(epsilon / 2) each. No
    normalisation, separators or delta are needed.

    Constraints: the proof holds for any public finite set of points, and so for the part of a lattice that
    public constraints leave.

    Floating point: epsilon is charged in full, but beta is smaller by a share of 1e-4. A draw is not released
    if errors in the probability of some point may be larger than this share covers.

    Source: McSherry and Talwar (FOCS 2007), Theorem 6, with the sensitivity of a sum of losses in [0, Delta].
    """

    name: ClassVar[str] = "exponential"
    question: ClassVar[Law] = Law.GIBBS
    takes_constraints: ClassVar[bool] = True

    beta: float

    @classmethod
    def _calibrated(cls, target: Target) -> Calibration:
        check_calibration(target.calibration, cls.name, ("sound",))
        epsilon = check_epsilon(target.epsilon)
        if epsilon < _LEAST_EPSILON:
            raise PrivacyParameterError(
                f"{cls.name} draws in doubles, too coarse for epsilon = {epsilon:g}: at least "
                f"{_LEAST_EPSILON:.2g} is needed"
            )
        beta = epsilon * (1 - _ARITHMETIC_SHARE) / (2 * target.loss_bound)
        return Calibration(beta, PrivacySpend.pure(epsilon, cls.name))

    @property
    def noise(self) -> dict[str, float]:
        return {"beta": self.beta}

    @property
    def precision(self) -> Precision:
        """The exactness that a draw needs: the errors of two probabilities must stay within the reserved
        share of epsilon.

        A billionth of that share is left for the rounding of beta.
        """
        return Precision(self.beta, (1 - 1e-9) * _ARITHMETIC_SHARE * self.spend.epsilon / 2, _NEVER)

    @property
    def excess(self) -> float:
        """The bound log |W| / beta: the entropy of the draw is at most log |W|, and the entropy of a single
        point is 0.
        """
        return math.log(self.lattice.box_size) / self.beta

    @property
    def width(self) -> float:
        """The width of an interval in which, for neighbours, log P[w] / P'[w] lies for all w (bounded range).

        The logarithm is beta times a change of L, which lies in [-Delta, Delta], minus a number that is the
        same for all w (Durfee and Rogers 2019). Floating point moves either logarithm by up to half its share
        of epsilon. None of this holds for permute-and-flip.
        """
        return (2 * self.loss_bound * self.beta + 2 * _ARITHMETIC_SHARE * self.spend.epsilon) * (1 + 1e-12)

    def release(
        self, oracle: PreparedGibbs, noise: NoiseSource | None = None, limits: Limits | None = None
    ) -> Release:
        """Draw once.

        Raises:
            PlanMismatchError: the oracle was prepared for another problem or law.
            UnfinishedDrawError: a limit was reached; nothing is released.
            InexactDrawError: the oracle's arithmetic is too coarse for the claim; nothing is released. If the
                oracle bounds its exactness before data (``planned_exactness``), the plan refuses it instead.
        """
        self.check_oracle(oracle)
        source = checked_source(noise)
        draw = oracle.draw(self.beta, source, limits)
        needed = self.precision
        if not draw.exactness.meets(needed):
            error, lost = draw.exactness.log_error, draw.exactness.lost_mass
            raise InexactDrawError(
                f"{draw.oracle} draws with a relative error of {math.expm1(error):.2g} and loses mass "
                f"{lost:.2g}; epsilon = {self.spend.epsilon:g} leaves room for {needed.log_error:.2g} and "
                f"{needed.lost_mass:.2g}. To do: an epsilon nearer to 1, or an oracle with finer arithmetic"
            )
        return self.released(draw.point, source, oracle, None)


@dataclass(frozen=True)
class PermuteAndFlip(ExponentialMechanism):
    """Report the w that maximises E_w - beta L(D, w), E_w independent standard exponential.

    Privacy: as the exponential mechanism; its expected loss is never larger, at the same epsilon.

    Source: McKenna and Sheldon (NeurIPS 2020), Theorem 1; in this form Ding et al. (2021), Theorem 5.
    """

    name: ClassVar[str] = "permute-and-flip"
    question: ClassVar[Law] = Law.PERMUTE_AND_FLIP

    @property
    def width(self) -> float:
        """The width that pure privacy implies: the logarithm lies in [-epsilon, epsilon]."""
        return 2 * self.spend.epsilon

"""Interface of lattice mechanisms: a plan made without data, and a release by reduction to an oracle."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from privopt.mechanisms.discrete.calibration import Calibration
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.noisy_share import NoisyShare
from privopt.mechanisms.privacy.parameters import check_count, check_delta
from privopt.mechanisms.privacy.reliance import relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.oracles.certificate import Certificate
from privopt.oracles.draw.interface import Law, PreparedGibbs
from privopt.oracles.facts import Precision
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import PreparedOracle
from privopt.oracles.task import Task
from privopt.oracles.vetting import outside_code
from privopt.problems.arguments import told
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice, check_lattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError, InvalidTypeError
from privopt.problems.notebooks import html_fields

Prepared = TypeVar("Prepared", contravariant=True)


@dataclass(frozen=True)
class Release:
    """The outcome of a mechanism.

    All attributes but ``certificate`` and ``oracle`` may be published. Value, bound, node count and time of a
    certificate are functions of the records, and which oracle fits can depend on the patterns of the records,
    so both attributes are left out when a release is printed or pickled.

    Attributes:
        point: the chosen w, shape (dimension,).
        spend: the privacy cost of the release.
        noise: the public parameters of the noise, such as {"sigma": 808.3}.
        oracle: name of the oracle that answered; empty after unpickling.
        certificate: the evidence, for minimisers; None after unpickling and for Gibbs draws.
        share: the released share of positive records, if the release contains it.
        weights: the released weights of the linear model that the point was rounded from, if there is one.
        deviations: posterior standard deviations of these weights, if they can be computed from what is
            released.
    """

    point: IntArray
    spend: PrivacySpend
    noise: Mapping[str, float]
    oracle: str = dataclasses.field(repr=False)
    certificate: Certificate | None = dataclasses.field(default=None, repr=False)
    share: NoisyShare | None = None
    weights: FloatArray | None = dataclasses.field(default=None, repr=False)
    deviations: FloatArray | None = dataclasses.field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**fields, "certificate": None, "oracle": ""}


class Target(NamedTuple):
    """Target of a plan: the public facts and the privacy parameters to calibrate to."""

    problem_type: type[DiscreteProblem]
    lattice: IntegerLattice
    loss_bound: int
    epsilon: float
    delta: float
    calibration: str
    lipschitz: float = math.inf


@dataclass(frozen=True)
class LatticeMechanism(ABC, Generic[Prepared]):
    """Private choice of a lattice point. An instance is a plan: noise and spend, fixed before data.

    Subclasses are frozen dataclasses. ``loss_bound`` is the largest loss of one record that the noise was
    calibrated to.
    """

    family: ClassVar[Family] = Family.LATTICE
    name: ClassVar[str]
    noised: ClassVar[str] = "the choice of a point"  # the noised quantity
    # What ``release`` asks of its oracle.
    question: ClassVar[Task | Law]
    # Whether the privacy proof holds for any part of a lattice, so that points may be constrained.
    takes_constraints: ClassVar[bool] = False

    problem_type: type[DiscreteProblem]
    lattice: IntegerLattice
    spend: PrivacySpend
    loss_bound: int

    @classmethod
    def plan(
        cls,
        problem_type: type[DiscreteProblem],
        lattice: IntegerLattice,
        *,
        epsilon: float,
        delta: float = 0.0,
        calibration: str = "sound",
        loss_bound: int | None = None,
    ) -> Self:
        """Calibrate to public facts. Mechanisms that are pure take ``delta`` and do not use it.

        ``loss_bound`` is the largest loss of one record, for types whose problems differ in it (by public
        costs, say); None: the bound of the type.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, delta outside (0, 1) (0 is allowed for pure
                mechanisms), or a calibration that the mechanism does not have.
            InvalidInputError: the mechanism needs a separator set, and the lattice has none.
        """
        bound = largest_loss(problem_type, loss_bound)
        return cls._planned(Target(problem_type, lattice, bound, epsilon, delta, calibration))

    @property
    def precision(self) -> Precision | None:
        """The exactness that ``release`` needs of a draw; None for minimisers, whose answers are proved."""
        return None

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_fields(f"Plan of {self.name}", self)

    @classmethod
    def _planned(cls, target: Target) -> Self:
        check_lattice(target.lattice)
        if target.lattice.constrained and not cls.takes_constraints:
            raise InvalidInputError(f"{cls.name} takes no constraints on points: {target.lattice}")
        check_delta(target.delta, zero_allowed=True)
        noise = cls._calibrated(target)
        build: Callable[..., Self] = cls
        spend = dataclasses.replace(noise.spend, mechanism=cls.name)  # mechanisms may share a calibration
        made = build(target.problem_type, target.lattice, spend, target.loss_bound, noise.scale)
        return dataclasses.replace(made, spend=relying_on(spend, made))

    @classmethod
    @abstractmethod
    def _calibrated(cls, target: Target) -> Calibration:
        """Return the spend, and the one field that a subclass adds: the number that describes its noise."""

    @classmethod
    def default_lattice(cls, dimension: int) -> IntegerLattice:
        """Return the default lattice, {-1, 0, 1}^d."""
        return IntegerLattice(-1, 1, dimension=dimension)

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """The public parameters of the noise."""

    @property
    def excess(self) -> float | None:
        """Total loss that the noise is expected to add at most, from public facts; None: it is not known."""
        return None

    def noise_to_signal(self, n_records: int) -> NoiseToSignal | None:
        """Compare the expected excess loss with the loss of a constant, half of what n records can lose.

        None: the expected excess loss is unknown.
        """
        if self.excess is None:
            return None
        constant = check_count(n_records, "n_records") * self.loss_bound / 2
        return NoiseToSignal(self.excess, constant, "total loss")

    @abstractmethod
    def release(
        self, oracle: Prepared, noise: NoiseSource | None = None, limits: Limits | None = None
    ) -> Release:
        """Run once on an oracle prepared for the data. Costs ``spend``, whatever happens."""

    def check_problem(self, problem: DiscreteProblem) -> None:
        """Refuse a problem that the plan was not made for.

        Raises:
            PlanMismatchError: another lattice, another type of problem, or records that may lose more.
        """
        check_planned(self.problem_type, self.lattice, self.loss_bound, problem)

    def check_oracle(self, oracle: Any) -> None:
        """Refuse an oracle that was not prepared, or for another problem or another question.

        Raises:
            PlanMismatchError: says what the mechanism needs, and what was given.
        """
        if not isinstance(oracle, PreparedOracle | PreparedGibbs):
            raise PlanMismatchError(
                f"{self.name} needs an oracle prepared for the data, got {told(oracle)}. To do: "
                f"oracle.prepare(problem, {self.question})"
            )
        question = oracle.task if isinstance(oracle, PreparedOracle) else oracle.law
        self.check_problem(oracle.problem)
        if question is not self.question:
            raise PlanMismatchError(
                f"{self.name} needs an oracle prepared for {self.question}, got one for {question}"
            )

    def certified_argmin(
        self, oracle: PreparedOracle, noise: Perturbation, source: NoiseSource, limits: Limits | None
    ) -> Release:
        """Return the exact minimiser of loss + noise, ties broken by the rule that the proofs rely on.

        Raises:
            CertificateError: the minimiser is not proved; nothing is released.
        """
        answer = oracle.minimize(noise, limits, break_ties=True)
        point = answer.require(gap=0.0, lexicographic=True)
        return self.released(point, source, oracle, answer.certificate)

    def released(
        self,
        point: IntArray,
        source: NoiseSource,
        oracle: PreparedOracle | PreparedGibbs,
        proof: Certificate | None,
    ) -> Release:
        spend = relying_on(spent(self, source), self, answering(oracle))
        return Release(np.array(point), spend, self.noise, oracle.name, proof)


@dataclass(frozen=True)
class PerturbedMinimizer(LatticeMechanism[PreparedOracle]):
    """The certified minimiser of the loss plus a random linear term."""

    @abstractmethod
    def _perturbation(self, source: NoiseSource) -> Perturbation:
        """Draw the random term."""

    def release(
        self, oracle: PreparedOracle, noise: NoiseSource | None = None, limits: Limits | None = None
    ) -> Release:
        """Draw the random term, call the oracle once, and require a certified argmin.

        Raises:
            PlanMismatchError: the oracle was prepared for another problem or task.
            CertificateError: no certified argmin; nothing is released.
        """
        self.check_oracle(oracle)
        source = checked_source(noise)
        return self.certified_argmin(oracle, self._perturbation(source), source, limits)


def answering(oracle: Any) -> tuple[str, Any]:
    """Return the role and the class or function that the answers of an oracle rely on, for ``relying_on``."""
    if isinstance(oracle, PreparedOracle | PreparedGibbs):
        if oracle.maker is not None:
            return "oracle", oracle.maker
        return "oracle", oracle.solver if isinstance(oracle, PreparedOracle) else type(oracle.sampler)
    return "oracle", outside_code(oracle)


def check_planned(
    problem_type: type[DiscreteProblem], lattice: IntegerLattice, loss_bound: int, problem: DiscreteProblem
) -> None:
    """Refuse a problem that a plan for these facts was not made for.

    Raises:
        PlanMismatchError: another lattice, another type of problem, or records that may lose more.
    """
    if type(problem) is not problem_type or problem.lattice != lattice:
        raise PlanMismatchError(
            f"this plan was made for {problem_type.__name__} over {lattice}; "
            f"the oracle was prepared for {type(problem).__name__} over {problem.lattice}. "
            f"To do: plan again for that problem"
        )
    if (bound := problem.record_loss_bound) > loss_bound:
        raise PlanMismatchError(
            f"this plan was made for records that lose at most {loss_bound} each; here one may lose "
            f"{bound}. To do: plan with loss_bound={bound}"
        )


def largest_loss(problem_type: type[DiscreteProblem], declared: int | None) -> int:
    """Return the largest loss of one record that a plan may rely on, from public facts.

    Raises:
        PrivacyParameterError: it is not a whole number >= 1.
    """
    check_problem_type(problem_type)
    bound = problem_type.record_loss_bound if declared is None else declared
    return check_count(bound, "the largest loss of a record")


def check_problem_type(problem_type: object) -> None:
    """Raise InvalidTypeError for an argument that is no problem type."""
    if not (isinstance(problem_type, type) and issubclass(problem_type, DiscreteProblem)):
        raise InvalidTypeError(
            f"a plan is made for a type of problems, such as ZeroOneHalfspace, got {told(problem_type)}"
        )


def check_calibration(calibration: str, mechanism: str, known: tuple[str, ...] = ("sound", "printed")) -> str:
    """Check that the mechanism has the calibration, and return it.

    Raises:
        PrivacyParameterError: an unknown calibration; the message lists the known ones.
    """
    if not isinstance(calibration, str) or calibration not in known:
        raise PrivacyParameterError(
            f"{mechanism} has the calibration(s) {', '.join(known)}; got {told(calibration)}"
        )
    return calibration

"""Every mechanism of the package with an audit, and with mutants of itself that the audit must reject.

A mutant carries the claim of the mechanism it was made from and too little noise for it. An audit that lets
one pass is too weak to say anything about the original, so the two are always run together. The data sets and
parameters below were chosen by computing the exact laws: the true epsilon of the mechanism is as close to its
claim as one pair of neighbours is known to bring it, and that of the mutant is well above.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privopt.mechanisms.audit import AuditResult, Outcome, Sampler, audit
from privopt.mechanisms.audit_laws import audit_plan
from privopt.mechanisms.audit_neighbours import (
    LossTable,
    Neighbours,
    ParityOracle,
    ParityProblem,
    SignLattice,
    canned_neighbours,
    parity_neighbours,
    singled_out_neighbours,
)
from privopt.mechanisms.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.mechanism import LatticeMechanism
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.opdisc import OPDisc
from privopt.mechanisms.registry import prepare_oracle
from privopt.mechanisms.rspm import GaussianRSPM, LaplaceRSPM
from privopt.oracles.interface import Task
from privopt.problems.lattice import IntegerLattice

RELEASED = "as released"


@dataclass(frozen=True)
class Subject:
    """A claim and the two samplers to hold it against.

    Attributes:
        name: "as released", or what was done to the mechanism.
        first, second: the mechanism on two neighbouring data sets.
        epsilon, delta: the claim.
        exact_epsilon: the smallest epsilon that holds on these two data sets, where it can be computed.
    """

    name: str
    first: Sampler
    second: Sampler
    epsilon: float
    delta: float
    exact_epsilon: float | None = None


@dataclass(frozen=True)
class AuditedClaim:
    """A mechanism on a pair of neighbours, and versions of it that must not pass.

    Attributes:
        mechanism: its name.
        neighbours: what the pair of data sets is.
        claim: the mechanism as it is.
        mutants: at least one version with too little noise, under the same claim.
    """

    mechanism: str
    neighbours: str
    claim: Subject
    mutants: tuple[Subject, ...]


@dataclass(frozen=True)
class AuditLine:
    """What an audit found about one subject.

    Attributes:
        mechanism, neighbours: of the claim.
        subject: who was audited.
        mutant: whether it has to be rejected.
        exact_epsilon: from the laws, or None.
        result: from the runs.
    """

    mechanism: str
    neighbours: str
    subject: str
    mutant: bool
    exact_epsilon: float | None
    result: AuditResult

    @property
    def refuted(self) -> bool:
        """By the runs, or by the exact laws."""
        exact = self.exact_epsilon is not None and self.exact_epsilon > self.result.epsilon * (1 + 1e-9)
        return exact or self.result.refuted

    @property
    def passed(self) -> bool:
        """A claim passes if it is not refuted, a mutant if it is."""
        return self.refuted == self.mutant

    @property
    def verdict(self) -> str:
        if not self.mutant:
            return "REFUTED" if self.refuted else "stands"
        if self.result.refuted:
            return "rejected"
        return "rejected by its exact law" if self.refuted else "NOT REJECTED"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready account, without the event."""
        result = dataclasses.asdict(self.result)
        result.pop("event")
        return {
            "mechanism": self.mechanism,
            "neighbours": self.neighbours,
            "subject": self.subject,
            "mutant": self.mutant,
            "exact_epsilon": self.exact_epsilon,
            **result,
            "verdict": self.verdict,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class ReleaseSampler:
    """Runs a plan's own ``release`` on a problem; the outcome is how much the replaced record's loss changes.

    That number is a function of the released point, and the one that the likelihood ratio depends on for
    the pairs used here. The oracle is built once per call, the noise is drawn by the mechanism.
    """

    plan: LatticeMechanism[Any]
    pair: Neighbours
    second: bool

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        problem = self.pair.second if self.second else self.pair.first
        oracle = _prepare(self.plan, problem)
        points = np.stack([self.plan.release(oracle, noise).point for _ in range(runs)])
        return list(self.pair.change(points).tolist())


def audit_claim(
    audited: AuditedClaim,
    *,
    runs: int,
    confidence: float = 0.99,
    workers: int = 1,
    journal: Path | None = None,
    insecure_seed: int | None = None,
    on_progress: Callable[[str, int, int], None] = lambda subject, done, of: None,
) -> list[AuditLine]:
    """Audit a mechanism and its mutants. Arguments as for ``privopt.mechanisms.audit.audit``."""
    lines = []
    for subject in (audited.claim, *audited.mutants):

        def progress(done: int, of: int, name: str = subject.name) -> None:
            on_progress(name, done, of)

        result = audit(
            subject.first,
            subject.second,
            epsilon=subject.epsilon,
            delta=subject.delta,
            runs=runs,
            confidence=confidence,
            workers=workers,
            journal=journal,
            label=_label(audited, subject),
            insecure_seed=insecure_seed,
            on_progress=progress,
        )
        mutant = subject is not audited.claim
        line = AuditLine(
            audited.mechanism, audited.neighbours, subject.name, mutant, subject.exact_epsilon, result
        )
        lines.append(line)
    return lines


def _label(audited: AuditedClaim, subject: Subject) -> str:
    """Tells counts in a journal apart: the exact epsilon changes whenever the noise or the data do."""
    numbers = f"epsilon {subject.epsilon!r} | delta {subject.delta!r} | exact {subject.exact_epsilon!r}"
    return f"{audited.mechanism} | {audited.neighbours} | {subject.name} | {numbers}"


def lattice_claim(
    plan: LatticeMechanism[Any], pair: Neighbours, mutants: Mapping[str, LatticeMechanism[Any]]
) -> AuditedClaim:
    """A lattice mechanism whose exact law is known, with mutants by name."""
    name = f"{pair.name}, {plan.lattice}, n = {pair.first.n_records}"
    subjects = tuple(_subject(name, mutant, pair) for name, mutant in mutants.items())
    return AuditedClaim(plan.name, name, _subject(RELEASED, plan, pair), subjects)


def _subject(name: str, plan: LatticeMechanism[Any], pair: Neighbours) -> Subject:
    samplers = ReleaseSampler(plan, pair, False), ReleaseSampler(plan, pair, True)
    exact = audit_plan(plan, pair).true_epsilon
    return Subject(name, *samplers, plan.spend.epsilon, plan.spend.delta, exact)


def _prepare(plan: LatticeMechanism[Any], problem: Any) -> Any:
    if isinstance(problem, ParityProblem) and isinstance(plan.question, Task):
        return ParityOracle().prepare(problem, plan.question)
    return prepare_oracle("enumerate", plan, problem)


def _exponential() -> AuditedClaim:
    lattice = IntegerLattice(0, 1, dimension=3)
    plan = ExponentialMechanism.plan(LossTable, lattice, epsilon=1.0)
    halved = dataclasses.replace(plan, beta=2 * plan.beta)
    return lattice_claim(plan, singled_out_neighbours(lattice), {"beta doubled": halved})


def _permute_and_flip() -> AuditedClaim:
    lattice = IntegerLattice(0, 1, dimension=2)
    plan = PermuteAndFlip.plan(LossTable, lattice, epsilon=1.0)
    halved = dataclasses.replace(plan, beta=2 * plan.beta)
    return lattice_claim(plan, singled_out_neighbours(lattice), {"beta doubled": halved})


def _laplace() -> AuditedClaim:
    lattice = IntegerLattice(0, 1, dimension=2)
    plan = LaplaceRSPM.plan(LossTable, lattice, epsilon=1.0)
    halved = dataclasses.replace(plan, scale=plan.scale / 2)
    duplicated = next(p for p in canned_neighbours(LossTable, lattice) if p.name == "duplicated")
    return lattice_claim(plan, duplicated, {"noise halved": halved})


def _gaussian() -> AuditedClaim:
    lattice = IntegerLattice(0, 1, dimension=20)
    plan = GaussianRSPM.plan(ParityProblem, lattice, epsilon=1.0, delta=1e-2)
    halved = dataclasses.replace(plan, scale=plan.scale / 2)
    return lattice_claim(plan, parity_neighbours(lattice), {"noise halved": halved})


def _opdisc() -> AuditedClaim:
    lattice = SignLattice(50)
    plan = OPDisc.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2)
    printed = OPDisc.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2, calibration="printed")
    mutants = {
        "noise halved": dataclasses.replace(plan, sigma=plan.sigma / 2),
        "printed calibration": printed,
        "printed calibration halved": dataclasses.replace(printed, sigma=printed.sigma / 2),
    }
    return lattice_claim(plan, parity_neighbours(lattice), mutants)


# A mechanism without an entry here fails a test.
AUDITS: Mapping[str, Callable[[], AuditedClaim]] = {
    ExponentialMechanism.name: _exponential,
    PermuteAndFlip.name: _permute_and_flip,
    LaplaceRSPM.name: _laplace,
    GaussianRSPM.name: _gaussian,
    OPDisc.name: _opdisc,
}

"""Audited claims: a mechanism, mutants with too little noise, and the audit that must distinguish them.

A mutant carries the claim of the original mechanism but has too little noise for it. An audit that accepts a
mutant is too weak to say anything about the original, so the two are always run together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.audit.audit import AuditResult, Sampler, audit, exact_epsilon

RELEASED = "as released"


@dataclass(frozen=True)
class Subject:
    """A claim and the samplers on two neighbouring data sets that test it.

    Attributes:
        name: "as released", or the change that makes a mutant.
        first, second: the mechanism on two neighbouring data sets.
        epsilon, delta: the claim.
        exact_epsilon: the smallest epsilon that holds on these two data sets, if computable.
        laws: the two laws of the outcomes 0, 1, ... behind ``exact_epsilon``, if computed from probabilities.
    """

    name: str
    first: Sampler
    second: Sampler
    epsilon: float
    delta: float
    exact_epsilon: float | None = None
    laws: tuple[tuple[float, ...], tuple[float, ...]] | None = None


@dataclass(frozen=True)
class AuditedClaim:
    """A mechanism on a pair of neighbours, and mutants that the audit must reject.

    Attributes:
        mechanism: name of the mechanism.
        neighbours: description of the pair of data sets.
        claim: the unchanged mechanism.
        mutants: at least one version with too little noise, under the same claim.
    """

    mechanism: str
    neighbours: str
    claim: Subject
    mutants: tuple[Subject, ...]


def subject_by_laws(
    name: str, samplers: Sequence[Sampler], laws: Sequence[ArrayLike], epsilon: float, delta: float
) -> Subject:
    """Return a subject of two samplers whose outcomes 0, 1, ... have known laws, with its exact epsilon."""
    first, second = (tuple(np.asarray(law, dtype=np.float64).tolist()) for law in laws)
    worst = exact_epsilon(first, second, delta)
    return Subject(name, samplers[0], samplers[1], epsilon, delta, worst, (first, second))


def claim_by_laws(
    plan: Any,
    pair: tuple[Any, Any],
    neighbours: str,
    run: Callable[[Any, Any], Sampler],
    law: Callable[[Any, Any], NDArray[np.float64]],
    mutants: Mapping[str, Any],
) -> AuditedClaim:
    """Build the audited claim of a plan, and its mutants by name, on one pair of data sets.

    Args:
        plan: the plan.
        pair: the two data sets.
        neighbours: their description.
        run: (plan, data) -> a sampler of the outcomes of its releases.
        law: (plan, data) -> the probabilities of the outcomes 0, 1, ...
        mutants: plans with a fault, audited under the claim of ``plan``.
    """

    def subject(name: str, one: Any) -> Subject:
        samplers, laws = [run(one, data) for data in pair], [law(one, data) for data in pair]
        return subject_by_laws(name, samplers, laws, plan.spend.epsilon, plan.spend.delta)

    found = tuple(subject(name, one) for name, one in mutants.items())
    return AuditedClaim(plan.name, neighbours, subject(RELEASED, plan), found)


@dataclass(frozen=True)
class AuditLine:
    """Audit result of one subject.

    Attributes:
        mechanism, neighbours: those of the claim.
        subject: name of the audited subject.
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
        """Whether the runs or the exact laws refute the claim."""
        exact = self.exact_epsilon is not None and self.exact_epsilon > self.result.epsilon * (1 + 1e-9)
        return exact or self.result.refuted

    @property
    def passed(self) -> bool:
        """Whether the audit has the right outcome: a claim is not refuted, a mutant is."""
        return self.refuted == self.mutant

    @property
    def verdict(self) -> str:
        """A one-word verdict; "(law)" is added if the exact law decided because the runs were too few."""
        if not self.mutant:
            return "REFUTED" if self.refuted else "stands"
        if self.result.refuted:
            return "rejected"
        return "rejected (law)" if self.refuted else "NOT REJECTED"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, without the event."""
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
    """Audit a mechanism and its mutants; arguments as for ``privopt.mechanisms.audit.audit.audit``."""
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
    """Return the key of counts in a journal; the exact epsilon in it tells plans and data sets apart."""
    numbers = f"epsilon {subject.epsilon!r} | delta {subject.delta!r} | exact {subject.exact_epsilon!r}"
    return f"{audited.mechanism} | {audited.neighbours} | {subject.name} | {numbers}"

"""Audit of a mechanism of another package: neighbours for its family, and a mutant with too little noise.

Its law is not known, so runs alone decide. Pairs are those on which mechanisms of this package come near to
their claims. The mutant is the mechanism planned for eight times its epsilon, audited against the original
claim: if the runs do not reject the mutant, they say nothing about the mechanism either.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.audit import Binned, Sampler
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, AuditLine, Subject, audit_claim
from privopt.mechanisms.audit.convex import PointSampler, outlier
from privopt.mechanisms.audit.neighbours import (
    LossTable,
    ParityProblem,
    SignLattice,
    parity_neighbours,
    predefined_neighbours,
    singled_out_neighbours,
)
from privopt.mechanisms.audit.registry import ReleaseSampler
from privopt.mechanisms.errors import AuditError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import Family
from privopt.oracles.draw.interface import Law
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import PrivOptError

Floats = NDArray[np.float64]
# epsilon -> the plan
Planner = Callable[[float], Any]

_EPSILON, _DELTA = 1.0, 0.03
_LOUDER = 8.0
# Runs from which bins are made before the audited runs; half are on each data set.
_PILOT = 400
_BINS = 32
_FAR = 1e9
_BY_HAND = (
    "To do: privopt.mechanisms.audit.audit.audit on a pair of your own; then "
    'privopt.oracles.vetting.remember(YourMechanism, "mechanism")'
)


@dataclass(frozen=True)
class TableSampler:
    """Sampler of the last number of a plan's release on a table, with a vector of labels or without."""

    plan: Any
    X: tuple[tuple[float, ...], ...]
    labels: tuple[float, ...] | None = None

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        X = np.array(self.X)
        rest = () if self.labels is None else ([np.array(self.labels)],)
        found = [self.plan.release(X, *rest, noise) for _ in range(runs)]
        return np.array([(one[0] if isinstance(one, list) else one).point[-1] for one in found])


@dataclass(frozen=True)
class UnclippedSampler:
    """Sampler of the number that a plan's release returns for three records, one label far from 0."""

    plan: Any
    label: float

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        risk = UnclippedRisk(np.ones((3, 1)), np.array([self.label, 0.0, 0.0]), PLAIN_SQUARES)
        return np.array([self.plan.release(risk, noise).point[0] for _ in range(runs)])


def outside_claims(kind: type[Any], pilot: NoiseSource) -> tuple[AuditedClaim, ...]:
    """Return the claims of a mechanism class to audit, by its family.

    Args:
        kind: the mechanism class.
        pilot: noise of the runs that choose bins, none of which is counted.

    Raises:
        AuditError: a family, or arguments of its plan, for which no pair of neighbours is known; or its plan
            refuses the pairs that are.
    """
    family = getattr(kind, "family", None)
    if family is Family.LATTICE:
        return _lattice_claims(kind)
    if family is Family.RISK:
        return (_risk_claim(kind, pilot),)
    if family is Family.UNBOUNDED_RISK:
        return (_unclipped_claim(kind, pilot),)
    if family in (Family.MEAN, Family.UNBOUNDED_FIT):
        return (_table_claim(kind, family is Family.UNBOUNDED_FIT, pilot),)
    what = family or f"{kind.__name__}, which has no ``family`` (a privopt.mechanisms.registry.Family)"
    raise AuditError(f"no neighbours are known for {what}. {_BY_HAND}")


def audit_outside(
    kind: type[Any], *, runs: int, workers: int = 1, insecure_seed: int | None = None
) -> list[AuditLine]:
    """Audit a mechanism class: its claim must stand on all pairs, and its mutant be rejected on one at least.

    Raises:
        AuditError: the claim is refuted; no mutant was rejected, so that the runs say nothing; or a release
            failed.
    """
    lines: list[AuditLine] = []
    for claim in outside_claims(kind, NoiseSource(insecure_seed)):
        with _failures(kind, claim.neighbours):
            lines += audit_claim(claim, runs=runs, workers=workers, insecure_seed=insecure_seed)
    for line in lines:
        if line.refuted and not line.mutant:
            raise AuditError(
                f"{kind.__name__}: epsilon = {line.result.epsilon:g} at delta = {line.result.delta:g} is "
                f"refuted on {line.neighbours}: it is at least {line.result.lower_bound:.3g}, with "
                f"{line.result.confidence:.0%} confidence"
            )
    if not any(line.mutant and line.refuted for line in lines):
        raise AuditError(
            f"{kind.__name__}: planned for {_LOUDER:g} times its epsilon it was not refuted either, so these "
            "runs say nothing. To do: more runs, or an audit of its own (privopt.mechanisms.audit.audit)"
        )
    return lines


def _lattice_claims(kind: type[Any]) -> tuple[AuditedClaim, ...]:
    small, plane = IntegerLattice(0, 1, dimension=3), IntegerLattice(0, 1, dimension=2)
    pairs = [singled_out_neighbours(small)]
    if not isinstance(kind.question, Law):
        duplicated = next(p for p in predefined_neighbours(LossTable, plane) if p.name == "duplicated")
        pairs = [duplicated, parity_neighbours(SignLattice(50), records=2)]
    claims = []
    for pair in pairs:
        problem = ParityProblem if isinstance(pair.first, ParityProblem) else LossTable

        def planned(epsilon: float, problem: Any = problem, lattice: Any = pair.first.lattice) -> Any:
            return kind.plan(problem, lattice, epsilon=epsilon, delta=_DELTA)

        def samplers(plan: Any, pair: Any = pair) -> tuple[Sampler, Sampler]:
            return ReleaseSampler(plan, pair, False), ReleaseSampler(plan, pair, True)

        claims.append(_claim(kind, f"{pair.name}, {pair.first.lattice}", planned, samplers))
    return tuple(claims)


def _risk_claim(kind: type[Any], pilot: NoiseSource) -> AuditedClaim:
    first, second = outlier(idle=3)
    options: dict[str, Any] = {"steps": 2} if kind.takes_steps else {}

    def planned(epsilon: float) -> Any:
        return kind.plan(first.facts, epsilon=epsilon, delta=_DELTA, **options)

    def samplers(plan: Any) -> tuple[Sampler, Sampler]:
        return _binned(PointSampler(plan, first), PointSampler(plan, second), pilot)

    return _claim(kind, f"outlier, n = {first.facts.n_records}, d = 1", planned, samplers)


def _unclipped_claim(kind: type[Any], pilot: NoiseSource) -> AuditedClaim:
    given, facts = _public_facts(kind), unclipped_facts(3, 1, PLAIN_SQUARES)

    def planned(epsilon: float) -> Any:
        return kind.plan(facts, epsilon=epsilon, delta=_DELTA, **given)

    def samplers(plan: Any) -> tuple[Sampler, Sampler]:
        return _binned(UnclippedSampler(plan, _FAR), UnclippedSampler(plan, -_FAR), pilot)

    return _claim(kind, f"outlier, n = 3, d = 1, {sorted(given)}", planned, samplers)


def _public_facts(kind: type[Any]) -> dict[str, Any]:
    """Return the facts about records without bounds that a plan asks for, by name."""
    known = {"moment": 1.0, "mean_range": (-1.0, 1.0), "loss": PLAIN_SQUARES, "steps": 1}
    bases: tuple[Any, ...] = kind.__mro__  # a plan may pass the rest on
    plans = [vars(base)[name] for base in bases for name in ("plan", "_calibrated") if name in vars(base)]
    asked = {name for plan in plans for name in inspect.signature(plan.__func__).parameters}
    return {name: value for name, value in known.items() if name in asked}


def _table_claim(kind: type[Any], labelled: bool, pilot: NoiseSource) -> AuditedClaim:
    given = _public_facts(kind)

    def planned(epsilon: float) -> Any:
        return kind.plan(2, 1, epsilon=epsilon, delta=_DELTA, **given)

    def samplers(plan: Any) -> tuple[Sampler, Sampler]:
        if labelled:
            zeros = ((0.0,), (0.0,))
            far = [TableSampler(plan, zeros, (sign * _FAR, 0.0)) for sign in (1, -1)]
        else:
            far = [TableSampler(plan, ((sign * _FAR,), (0.0,))) for sign in (1, -1)]
        return _binned(far[0], far[1], pilot)

    return _claim(kind, f"outlier, n = 2, d = 1, {sorted(given)}", planned, samplers)


def _claim(
    kind: type[Any], name: str, planned: Planner, samplers: Callable[[Any], tuple[Sampler, Sampler]]
) -> AuditedClaim:
    try:
        plan = planned(_EPSILON)
    except PrivOptError as error:
        raise AuditError(
            f"{kind.__name__} refuses {name}, on which it would be audited ({error}). {_BY_HAND}"
        ) from error
    claimed = plan.spend.epsilon, plan.spend.delta
    with _failures(kind, name):
        first, second = samplers(plan)
        louder = samplers(planned(_LOUDER * _EPSILON))
    mutant = Subject(f"planned for {_LOUDER:g} times epsilon", louder[0], louder[1], *claimed)
    return AuditedClaim(plan.name, name, Subject(RELEASED, first, second, *claimed), (mutant,))


@contextmanager
def _failures(kind: type[Any], neighbours: str) -> Iterator[None]:
    """Turn whatever goes wrong in a mechanism's code into an AuditError that says where."""
    try:
        yield
    except PrivOptError:
        raise
    except BrokenExecutor as error:
        raise AuditError(
            f"{kind.__name__}: a process was killed while it audited releases on {neighbours}, most often "
            f"for lack of memory: a plan has to refuse what its release cannot list. {_BY_HAND}"
        ) from error
    except Exception as error:
        raise AuditError(
            f"{kind.__name__} failed on {neighbours} ({type(error).__name__}: {error}). {_BY_HAND}"
        ) from error


def _binned(first: Any, second: Any, pilot: NoiseSource) -> tuple[Sampler, Sampler]:
    """Bin both samplers by quantiles of pilot runs, which the audit does not count."""
    seen: Sequence[Floats] = [sampler(_PILOT // 2, pilot) for sampler in (first, second)]
    edges = np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, _BINS + 1)[1:-1]))
    return Binned(first, tuple(edges.tolist())), Binned(second, tuple(edges.tolist()))

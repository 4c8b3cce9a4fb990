"""Audits of OPSamp with an adversarial oracle, whose answers are as inexact as its certificate allows.

On two lattice points, with gaps up to alpha allowed, the oracle answers the point that the record favours,
whatever the tilt. The means then differ by the whole lattice, the noise is Laplace, and the law is known.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.audit import Binned
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.audit.neighbours import LossTable
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import UNIT
from privopt.problems.discrete.problem import DiscreteProblem

_EPSILON, _DELTA = 1.0, 1e-3
# Gap allowed to the oracle, far larger than any tilt at rate 1: any answer is within it.
_ALPHA = 1000.0
_LATTICE = IntegerLattice(0, 1, dimension=1)


@dataclass(frozen=True)
class AdversarialOracle(DiscreteOracle):
    """Adversarial oracle: returns the point of least loss for every tilt, with a certified gap of 1000."""

    name: ClassVar[str] = "contrary"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        points = np.concatenate(list(problem.lattice.batches()))
        chosen = points[int(np.argmin(problem.losses(points)))]

        def solve(query: Query) -> Proposal:
            bound = int(problem.value(chosen, query.perturbation)) - int(_ALPHA * UNIT)
            return Proposal(chosen, bound)

        return solve


@dataclass(frozen=True)
class OPSampSampler:
    """Sampler of a plan's ``release`` on one record whose loss is least at 0 or at 1."""

    plan: OPSamp
    prefers: int

    def __call__(self, runs: int, noise: NoiseSource) -> NDArray[np.float64]:
        losses = np.array([[self.prefers, 1 - self.prefers]])
        prepared = AdversarialOracle().prepare(LossTable(losses, _LATTICE), Task.LINEAR)
        return np.array([self.plan.release(prepared, noise).point[0] for _ in range(runs)])


def _claims(plan: OPSamp, unpaid: OPSamp) -> tuple[AuditedClaim, ...]:
    edges = 0.5 + np.linspace(-8, 8, 65)

    def law(one: OPSamp, prefers: int) -> NDArray[np.float64]:
        """Return the law; each tail is computed directly, as 1 minus the rest would round to 0 far out."""
        z = (np.concatenate([[-np.inf], edges, [np.inf]]) - prefers) / one.mean.laplace.scale
        below, above = np.exp(np.minimum(z, 0)) / 2, np.exp(-np.maximum(z, 0)) / 2
        across = 1 - below[:-1] - above[1:]
        return np.where(z[1:] <= 0, np.diff(below), np.where(z[:-1] >= 0, -np.diff(above), across))

    def subject(name: str, one: OPSamp) -> Subject:
        laws = law(one, 0), law(one, 1)
        samplers = [Binned(OPSampSampler(one, p), tuple(edges.tolist())) for p in (0, 1)]
        return subject_by_laws(name, samplers, laws, _EPSILON, _DELTA)

    halved = dataclasses.replace(plan.mean, sensitivity=plan.mean.sensitivity / 2)
    # The mutant allows the oracle the same gap, with the noise for an exact oracle.
    exact = dataclasses.replace(plan.mean, sensitivity=unpaid.mean.sensitivity)
    mutants = {"noise halved": halved, "alpha not paid for": exact}
    found = tuple(subject(name, dataclasses.replace(plan, mean=mean)) for name, mean in mutants.items())
    return (AuditedClaim(plan.name, "contrary oracle, n = 1, d = 1", subject(RELEASED, plan), found),)


def _discrete() -> tuple[AuditedClaim, ...]:
    def planned(alpha: float) -> OPSamp:
        rate, draws = (1.0, 1) if alpha else (1e-3, 400)
        return OPSamp.plan(
            LossTable,
            _LATTICE,
            n_records=1,
            epsilon=_EPSILON,
            delta=_DELTA,
            alpha=alpha,
            rate=rate,
            draws=draws,
        )

    return _claims(planned(_ALPHA), planned(0.0))


OPSAMP_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    OPSamp.name: _discrete,
}

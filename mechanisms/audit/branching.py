"""Audits of drawn trees and rule lists, and of the histogram of their leaves: one record, relabelled.

Many records with a true predicate have the label 1; one more has the label 0 or 1. A model that predicts 0
where the predicate is true is rare, and becomes rarer when that last label changes to 1: the weight of the
model falls by the factor exp(-beta) while the weights of all others rise by as much, so nearly all of epsilon
is spent. The audit runs the package's own draws, which use a recursion; the exact law is computed by
enumeration.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree

# Number of agreeing records: the rare event then has probability 1/8, which runs can estimate.
_AGREE = 3


@dataclass(frozen=True)
class ModelSampler:
    """Sampler of a plan's ``release``: the class predicted where the predicate is true, and whether the model
    branches.

    Attributes:
        plan: the plan of the draw.
        label: label of the replaced record.
        reads_data: a fault: the domain depends on the records; if their labels disagree, all models branch.
    """

    plan: ExponentialMechanism
    label: int
    reads_data: bool = False

    @property
    def problem(self) -> BranchingProblem:
        kind: type[BranchingProblem] = self.plan.problem_type  # type: ignore[assignment]
        y = np.array([1] * _AGREE + [self.label])
        lattice = kind.domain(1, 1, root_splits=self.reads_data and self.label == 0)
        return kind(np.ones((len(y), 1), dtype=np.int64), y, lattice)

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        problem = self.problem
        plan = dataclasses.replace(self.plan, lattice=problem.lattice)
        oracle = prepare_oracle("branching", plan, problem)
        points = np.stack([plan.release(oracle, noise).point for _ in range(runs)])
        return list(self.outcomes(points).tolist())

    def outcomes(self, points: IntArray) -> IntArray:
        problem = self.problem
        predicted = problem.predictions(problem.models(points), np.ones((1, 1), dtype=bool))[:, 0]
        stops = points[:, 0] >= problem.ways
        return np.asarray(2 * stops + predicted, dtype=np.int64)

    def law(self) -> tuple[float, ...]:
        """Return the probabilities of the outcomes, over all points."""
        problem = self.problem
        points = np.concatenate(list(problem.lattice.batches()))
        weights = np.exp(-self.plan.beta * problem.losses(points))
        held = np.bincount(self.outcomes(points), weights, minlength=4)
        return tuple((held / held.sum()).tolist())


def _subject(name: str, plan: ExponentialMechanism, *, reads_data: bool = False) -> Subject:
    samplers = ModelSampler(plan, 0, reads_data), ModelSampler(plan, 1, reads_data)
    laws = samplers[0].law(), samplers[1].law()
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, 0.0)


def _claims(name: str, kind: type[BranchingProblem]) -> tuple[AuditedClaim, ...]:
    plan = ExponentialMechanism.plan(kind, kind.domain(1, 1), epsilon=1.0)
    mutants = (
        _subject("beta doubled", dataclasses.replace(plan, beta=2 * plan.beta)),
        _subject("a prior that reads the data", plan, reads_data=True),
    )
    return (AuditedClaim(name, f"relabelled, n = {_AGREE + 1}", _subject(RELEASED, plan), mutants),)


def tree_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a drawn tree, with mutants: twice the inverse temperature, a prior that reads the
    data.
    """
    return _claims("tree", DecisionTree)


def rule_list_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a drawn rule list, with the same mutants."""
    return _claims("rule-list", RuleList)


@dataclass(frozen=True)
class LeafSampler:
    """Sampler of a plan's ``release`` on one record: in the first leaf and class, or in the second."""

    plan: LeafPlan
    place: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        at = np.array([self.place])
        counts = [self.plan.release(at, at, (2, 2), noise).counts for _ in range(runs)]
        return [2 * int(c[0, 0] > 0) + int(c[1, 1] > 0) for c in counts]


def _leaf_law(plan: LeafPlan, place: int) -> tuple[float, ...]:
    """Return the law of two signs: P[Z > 0] = a / (1 + a) with a = exp(-rate); P[1 + Z > 0] is one minus
    that.
    """
    ratio = np.exp(-plan.steps / 2**MAX_EXPONENT)
    without, held = ratio / (1 + ratio), 1 / (1 + ratio)
    left, right = (held, without) if place == 0 else (without, held)
    law = (1 - left) * (1 - right), (1 - left) * right, left * (1 - right), left * right
    return tuple(map(float, law))


def _leaf_subject(name: str, plan: LeafPlan) -> Subject:
    laws = _leaf_law(plan, 0), _leaf_law(plan, 1)
    samplers = LeafSampler(plan, 0), LeafSampler(plan, 1)
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, 0.0)


def leaf_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the leaf histogram, and a mutant that pays for one of the two changed counts."""
    plan = LeafPlan.plan(1.0)
    mutant = _leaf_subject("one count paid for", dataclasses.replace(plan, steps=2 * plan.steps))
    return (AuditedClaim(plan.name, "moved record, n = 1", _leaf_subject(RELEASED, plan), (mutant,)),)

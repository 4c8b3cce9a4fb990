"""Registry of audits: every mechanism of the package, with mutants that the audit must reject.

The data sets and parameters were chosen with the exact laws: the true epsilon of the mechanism is as close to
its claim as is known for one pair of neighbours, and the true epsilon of a mutant is well above the claim.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.branching import leaf_claims, rule_list_claims, tree_claims
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject
from privopt.mechanisms.audit.clipped_newton import NEWTON_AUDITS
from privopt.mechanisms.audit.columns import NAME as COLUMNS
from privopt.mechanisms.audit.columns import column_claims
from privopt.mechanisms.audit.convex import RISK_AUDITS
from privopt.mechanisms.audit.evaluation import evaluation_claims
from privopt.mechanisms.audit.heavy_tails import HEAVY_TAILED_AUDITS
from privopt.mechanisms.audit.laws import audit_plan
from privopt.mechanisms.audit.moments import moments_claims
from privopt.mechanisms.audit.neighbours import (
    LossTable,
    Neighbours,
    ParityOracle,
    ParityProblem,
    SignLattice,
    parity_neighbours,
    predefined_neighbours,
    singled_out_neighbours,
)
from privopt.mechanisms.audit.nonconvex import NONCONVEX_AUDITS
from privopt.mechanisms.audit.opsamp import OPSAMP_AUDITS
from privopt.mechanisms.audit.persons import person_claims
from privopt.mechanisms.audit.perturbed_hessian import perturbed_hessian_claims
from privopt.mechanisms.audit.residuals import comparison_claims, residual_claims
from privopt.mechanisms.audit.schemas import schema_claims
from privopt.mechanisms.audit.scorecards import means_claims, prevalence_claims, seeded_claims
from privopt.mechanisms.audit.screening import screening_claims
from privopt.mechanisms.audit.selection import selection_claims
from privopt.mechanisms.audit.subset import subset_claims
from privopt.mechanisms.convex.perturbation_with_hessian import PerturbationWithHessian
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.discrete.rspm import GaussianRSPM, LaplaceRSPM
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.evaluation.residuals import ResidualPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.learning import SchemaPlan
from privopt.mechanisms.scorecards.prevalence import PrevalencePlan
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.mechanisms.scorecards.units import NumberMeans
from privopt.mechanisms.tuning.selection import SelectionPlan
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntegerLattice


@dataclass(frozen=True)
class ReleaseSampler:
    """Sampler of a plan's ``release`` on a problem; the outcome is L(D, w) - L(D', w) at the released w.

    For the pairs used here the likelihood ratio depends on w only through this difference. The oracle is
    built once per call; the mechanism draws fresh noise in every run.
    """

    plan: LatticeMechanism[Any]
    pair: Neighbours
    second: bool

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        problem = self.pair.second if self.second else self.pair.first
        oracle = _prepare(self.plan, problem)
        points = np.stack([self.plan.release(oracle, noise).point for _ in range(runs)])
        return list(self.pair.change(points).tolist())


def lattice_claim(
    plan: LatticeMechanism[Any], pair: Neighbours, mutants: Mapping[str, LatticeMechanism[Any]]
) -> AuditedClaim:
    """Build the audited claim of a lattice mechanism with a known law, with mutants by name."""
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


def _exponential() -> tuple[AuditedClaim, ...]:
    lattice = IntegerLattice(0, 1, dimension=3)
    plan = ExponentialMechanism.plan(LossTable, lattice, epsilon=1.0)
    doubled = dataclasses.replace(plan, beta=2 * plan.beta)
    return (lattice_claim(plan, singled_out_neighbours(lattice), {"beta doubled": doubled}),)


def _permute_and_flip() -> tuple[AuditedClaim, ...]:
    lattice = IntegerLattice(0, 1, dimension=2)
    plan = PermuteAndFlip.plan(LossTable, lattice, epsilon=1.0)
    doubled = dataclasses.replace(plan, beta=2 * plan.beta)
    return (lattice_claim(plan, singled_out_neighbours(lattice), {"beta doubled": doubled}),)


def _laplace() -> tuple[AuditedClaim, ...]:
    lattice = IntegerLattice(0, 1, dimension=2)
    plan = LaplaceRSPM.plan(LossTable, lattice, epsilon=1.0)
    halved = dataclasses.replace(plan, scale=plan.scale / 2)
    duplicated = next(p for p in predefined_neighbours(LossTable, lattice) if p.name == "duplicated")
    return (lattice_claim(plan, duplicated, {"noise halved": halved}),)


def _gaussian() -> tuple[AuditedClaim, ...]:
    lattice = IntegerLattice(0, 1, dimension=50)
    plan = GaussianRSPM.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2)
    halved = dataclasses.replace(plan, scale=plan.scale / 2)
    return (lattice_claim(plan, parity_neighbours(lattice, records=2), {"noise halved": halved}),)


def _opdisc() -> tuple[AuditedClaim, ...]:
    lattice = SignLattice(50)
    plan = OPDisc.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2)
    printed = OPDisc.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2, calibration="printed")
    mutants = {
        "noise halved": dataclasses.replace(plan, sigma=plan.sigma / 2),
        "printed calibration": printed,
        "printed calibration halved": dataclasses.replace(printed, sigma=printed.sigma / 2),
    }
    return (lattice_claim(plan, parity_neighbours(lattice, records=2), mutants),)


# Claims by mechanism, one for each pair of neighbours. A test fails for a mechanism without an entry.
AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    ExponentialMechanism.name: _exponential,
    PermuteAndFlip.name: _permute_and_flip,
    LaplaceRSPM.name: _laplace,
    GaussianRSPM.name: _gaussian,
    OPDisc.name: _opdisc,
    **RISK_AUDITS,
    SufficientStatistics.name: moments_claims,
    COLUMNS: column_claims,
    ScreenedStatistics.name: screening_claims,
    PerturbationWithHessian.name: perturbed_hessian_claims,
    HistogramPlan.name: evaluation_claims,
    ResidualPlan.name: residual_claims,
    PairedResidualPlan.name: comparison_claims,
    **NONCONVEX_AUDITS,
    SeededScorecard.name: seeded_claims,
    NumberMeans.name: means_claims,
    PrevalencePlan.name: prevalence_claims,
    "tree": tree_claims,
    "rule-list": rule_list_claims,
    LeafPlan.name: leaf_claims,
    SelectionPlan.name: selection_claims,
    SchemaPlan.name: schema_claims,
    SubsetPlan.name: subset_claims,
    "persons": person_claims,
    **HEAVY_TAILED_AUDITS,
    **NEWTON_AUDITS,
    **OPSAMP_AUDITS,
}

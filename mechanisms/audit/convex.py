"""Audits of the first-order and perturbation mechanisms: one record, replaced by the worst possible one.

Under Huber's loss with an outlying label the gradient of a record is +-G at every iterate, so every step has
the full sensitivity. Records whose only feature is 0 do not contribute; further outlying records on one side
shift the output, so that a vote is decided in the tail of its noise. In one dimension the law of every output
is a sum or a quadrature:

- gradient steps, full or sampled: one Gaussian, or a mixture over how often the record was sampled;
- Frank-Wolfe steps over [-1, 1]: a weighted sum of noisy votes;
- DP-SVRG: Gaussian given the last full gradient, which is integrated out;
- minima: monotone functions of the noise.

Every plan runs by its own ``release``; a mutant is a plan with a field replaced.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import special, stats

from privopt.mechanisms.audit.audit import Binned, Outcome, Sampler
from privopt.mechanisms.audit.claims import AuditedClaim, claim_by_laws
from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent, DPProximalGradient
from privopt.mechanisms.convex.mirror_descent import DPAcceleratedMirrorDescent, DPMirrorDescent
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.convex.svrg import DPSVRG, DPSVRGPlusPlus
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output, noisy_iteration
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, RiskMechanism
from privopt.mechanisms.risk.sets import default_start
from privopt.problems.convex.losses import HuberLoss, Loss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace

Floats = NDArray[np.float64]

_FAR = 1e9  # beyond any iterate: the gradient stays at its bound
_WIDE = 1e5  # a set that contains all iterates of these audits
_LOSS = HuberLoss(1.0)
_EPSILON, _DELTA = 1.0, 0.05
# Probability level of rare events that distinguish a mutant.
_SMALL_DELTA = 0.01


@dataclass(frozen=True)
class Records:
    """Data in one dimension: features 0 or 1, and labels; as a sparse matrix if they are ``sparse``."""

    features: tuple[float, ...]
    labels: tuple[float, ...]
    loss: Loss = _LOSS
    sparse: bool = False

    @property
    def facts(self) -> RiskFacts:
        return RiskFacts(len(self.features), 1, self.loss)

    def risk(self) -> EmpiricalRisk:
        X: Any = np.array(self.features)[:, None]
        return EmpiricalRisk(sp.csr_array(X) if self.sparse else X, self.labels, self.loss)

    def slope(self, w: Floats) -> Floats:
        """Return the sum of the records' slopes at w, shape (k,)."""
        rows = zip(self.features, self.labels, strict=True)
        return np.asarray(sum(x * _LOSS.slope(x * w, np.full_like(w, y)) for x, y in rows))


def outlier(others: int = 0, idle: int = 0) -> tuple[Records, Records]:
    """Return a pair: an outlier above or below, beside ``others`` outliers above and ``idle`` zeros."""
    features = (1.0,) * (1 + others) + (0.0,) * idle
    first, second = ((s * _FAR, *(_FAR,) * others, *(0.0,) * idle) for s in (1.0, -1.0))
    return Records(features, first), Records(features, second)


@dataclass(frozen=True)
class PointSampler:
    """Sampler of the number that a plan's ``release`` returns."""

    plan: RiskMechanism
    records: Records

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        risk = self.records.risk()
        return np.array([self.plan.release(risk, noise).point[0] for _ in range(runs)])


@dataclass(frozen=True)
class VoteSampler:
    """Sampler of Frank-Wolfe steps k = 1..T over [-1, 1]: the sum of the k of all steps that went up."""

    points: PointSampler

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        steps = self.points.plan.schedule["steps"]
        return list(
            np.rint((self.points(runs, noise) + 1) / 2 * steps * (steps + 1) / 2).astype(int).tolist()
        )


# A function (plan, data) -> the probabilities of the outcomes 0, 1, ...
Law = Callable[[Any, Records], Floats]
# A function (plan, data) -> a sampler of the outcomes of its releases.
Runner = Callable[[Any, Records], Sampler]


def risk_claim(
    plan: Any, pair: tuple[Records, Records], name: str, run: Runner, law: Law, mutants: Mapping[str, Any]
) -> AuditedClaim:
    """Build the audited claim of a minimiser of a risk in one dimension, see ``claim_by_laws``."""
    return claim_by_laws(plan, pair, f"{name}, n = {plan.facts.n_records}, d = 1", run, law, mutants)


def binned(edges: Floats) -> Runner:
    return lambda plan, records: Binned(PointSampler(plan, records), tuple(edges.tolist()))


def masses(below: Floats) -> Floats:
    """Return probabilities of bins from the distribution function at their edges."""
    law = np.maximum(np.diff(np.concatenate([[0.0], below, [1.0]])), 0.0)
    return law / math.fsum(law)


def with_less_noise(noise: Any, factor: float = 0.5) -> Any:
    return dataclasses.replace(noise, sigma=noise.sigma * factor)


# --- full batches ----------------------------------------------------------------------------------------


def _noise_halved(plan: Any) -> Any:
    return dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise))


def gradient_claims(
    kind: type[FullBatchMechanism], convex_set: ConvexSet, halved: Callable[[Any], Any] = _noise_halved
) -> tuple[AuditedClaim, ...]:
    """Return claims of gradient steps; ``halved`` halves the noise of a plan and keeps its step sizes."""
    pair = outlier()
    plan = kind.plan(pair[0].facts, convex_set, epsilon=_EPSILON, delta=_DELTA, steps=2, output=Output.LAST)
    start, weights = _affine(plan)
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma * np.linalg.norm(weights)

    def law(one: FullBatchMechanism, records: Records) -> Floats:
        slope = records.slope(np.zeros(1))[0] / one.facts.n_records
        spread = one.vector_noise.sigma * float(np.linalg.norm(weights))
        return masses(special.ndtr((edges - start - slope * np.sum(weights)) / spread))

    return (risk_claim(plan, pair, "outlier", binned(edges), law, {"noise halved": halved(plan)}),)


def _affine(plan: FullBatchMechanism) -> tuple[float, Floats]:
    """Return (start, weights) such that the last iterate is start plus weights times the noisy gradients."""

    def last(noisy: Callable[[int], float]) -> float:
        step = iter(range(plan.steps))
        method = plan._method(default_start(plan.convex_set))
        *_, x = noisy_iteration(method, np.zeros_like, lambda g: g + noisy(next(step)), plan.steps)
        return float(x[0])

    start = last(lambda k: 0.0)
    return start, np.array([last(partial(_impulse, j)) - start for j in range(plan.steps)])


def _impulse(at: int, step: int) -> float:
    return float(step == at)


def _frank_wolfe_l2() -> tuple[AuditedClaim, ...]:
    pair = outlier(others=2)
    plan = DPFrankWolfeL2.plan(
        pair[0].facts, L2Ball(1, 1.0), epsilon=_EPSILON, delta=_DELTA, steps=2, output=Output.LAST
    )

    def law(one: DPFrankWolfeL2, records: Records) -> Floats:
        down = records.slope(np.zeros(1))[0] / one.facts.n_records
        return _vote_law(float(special.ndtr(-down / one.vector_noise.sigma)), one.steps)

    mutants = {"noise halved": dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise))}
    return (risk_claim(plan, pair, "outlier", _votes, law, mutants),)


def _frank_wolfe_l1() -> tuple[AuditedClaim, ...]:
    pair = outlier(others=1)
    plan = DPFrankWolfeL1.plan(
        pair[0].facts, L1Ball(1, 1.0), epsilon=_EPSILON, delta=_DELTA, steps=2, output=Output.LAST
    )

    def law(one: DPFrankWolfeL1, records: Records) -> Floats:
        # The scores are plus and minus the slope; the difference of two Gumbel variables is logistic.
        down = records.slope(np.zeros(1))[0] / one.facts.n_records
        return _vote_law(float(special.expit(-2 * down / one.selection.scale)), one.steps)

    louder = dataclasses.replace(plan.selection, step_epsilon=2 * plan.selection.step_epsilon)
    mutants = {"noise halved": dataclasses.replace(plan, selection=louder)}
    first, second = (dataclasses.replace(records, sparse=True) for records in pair)
    return (
        risk_claim(plan, pair, "outlier", _votes, law, mutants),
        risk_claim(plan, (first, second), "outlier on sparse rows", _votes, law, mutants),
    )


def _votes(plan: Any, records: Records) -> Sampler:
    return VoteSampler(PointSampler(plan, records))


def _vote_law(up: float, steps: int) -> Floats:
    """Return the law of the sum over k = 1..T of k with probability ``up``, 0 otherwise."""
    law = np.ones(1)
    for k in range(1, steps + 1):
        longer = np.zeros(law.size + k)
        longer[: law.size] += (1 - up) * law
        longer[k:] += up * law
        law = longer
    return law / math.fsum(law)


# --- Poisson batches -------------------------------------------------------------------------------------


def _stochastic_gradient() -> tuple[AuditedClaim, ...]:
    pair = outlier(idle=1)
    plan = DPStochasticGradient.plan(
        pair[0].facts, epsilon=_EPSILON, delta=_DELTA, steps=2, batch=1, output=Output.LAST
    )
    # Edges in units of the sum of the noisy batch sums; the last iterate is a multiple of that sum.
    unit = plan.step_size / (plan.sampling * plan.facts.n_records)
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma * math.sqrt(plan.steps) * unit

    def law(one: DPStochasticGradient, records: Records) -> Floats:
        spread = one.vector_noise.sigma * math.sqrt(one.steps)
        slope = records.slope(np.zeros(1))[0]
        at = -edges / (one.step_size / (one.sampling * one.facts.n_records))
        below = sum(
            stats.binom.pmf(k, one.steps, one.sampling) * special.ndtr((k * slope - at) / spread)
            for k in range(one.steps + 1)
        )
        return masses(np.asarray(below))

    halved = with_less_noise(plan.vector_noise)
    mutants = {
        "sensitivity C, not 2 C": dataclasses.replace(plan, vector_noise=halved),
        "everyone sampled": dataclasses.replace(plan, sampling=1.0),
    }
    return (risk_claim(plan, pair, "outlier", binned(edges), law, mutants),)


def _variance_reduced(kind: type[DPSVRG], rounds: tuple[int, ...]) -> tuple[AuditedClaim, ...]:
    """Return claims on two pairs, revealed by full gradients and by batch differences without noise."""
    pair = outlier(idle=3)
    plan = kind.plan(pair[0].facts, epsilon=_EPSILON, delta=_DELTA, rounds=rounds, batch=1)
    edges = np.linspace(-4, 4, 65) * plan.anchor_noise.sigma * plan.step_size * math.sqrt(len(rounds))
    halved = with_less_noise(plan.anchor_noise)
    as_sampled = with_less_noise(
        plan.anchor_noise,
        plan.multiplier * _LOSS.lipschitz / (plan.anchor_noise.sigma * plan.facts.n_records),
    )
    mutants = {
        "noise halved": dataclasses.replace(plan, anchor_noise=halved, multiplier=plan.multiplier / 2),
        "full gradients noised like batches": dataclasses.replace(plan, anchor_noise=as_sampled),
    }
    far = risk_claim(plan, pair, "outlier", binned(edges), partial(_svrg_law, edges), mutants)
    return far, _curved_difference(kind)


def _curved_difference(kind: type[DPSVRG]) -> AuditedClaim:
    """Return the claim on a record that has curvature where the iterates start, or no curvature.

    At this step size the average of the two iterates is exactly the start if the record is curved. The first
    step is shorter than the loss's threshold, so that the difference of its gradients carries no noise.
    """
    curved, flat = Records((1.0,), (0.0,)), Records((1.0,), (_FAR,))
    planned = kind.plan(curved.facts, epsilon=_EPSILON, delta=_SMALL_DELTA, rounds=(2,), batch=1)
    plan = dataclasses.replace(planned, step_size=3.0)  # irrelevant to the claim
    far = np.geomspace(3e-3, 10, 40) * plan.anchor_noise.sigma * plan.step_size
    edges = np.concatenate([-far[::-1], far])
    mutants = {"batch differences without noise": dataclasses.replace(plan, multiplier=1e-6)}
    run, law = binned(edges), partial(_svrg_law, edges)
    return risk_claim(plan, (curved, flat), "curved or flat record", run, law, mutants)


def _svrg_law(edges: Floats, plan: DPSVRG, records: Records) -> Floats:
    """Return the law of the average of the last two iterates, for rounds (1, ..., 1, 2), from the start 0.

    It is exact for one epoch, or for constant slopes, where earlier epochs only add Gaussians. Given the last
    full gradient, the iterate is a mixture of Gaussians over whether the first record was sampled.
    """
    n, q, eta = plan.facts.n_records, plan.sampling, plan.step_size
    earlier = len(plan.rounds) - 1
    z = np.linspace(-9, 9, 20_001)
    weights = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    at_start = records.slope(np.zeros(1))[0]
    full = at_start / n + plan.anchor_noise.sigma * z
    moved = -eta * full  # from the last anchor to the first iterate after it
    difference = (records.slope(moved) - at_start) / (q * n)
    bound = np.minimum(2 * plan.facts.gradient_bound, plan.facts.smoothness * np.abs(moved))
    spread = np.hypot(
        eta / 2 * plan.multiplier * bound / (q * n), eta * plan.anchor_noise.sigma * math.sqrt(earlier)
    )
    below = np.zeros(edges.size)
    for sampled, chance in ((0.0, 1 - q), (1.0, q)):
        centre = -eta * (earlier * at_start / n + 1.5 * full + sampled * difference / 2)
        below += chance * special.ndtr((edges[:, None] - centre) / np.maximum(spread, 1e-300)) @ weights
    return masses(below)


# --- minima ----------------------------------------------------------------------------------------------


def _output_perturbation() -> tuple[AuditedClaim, ...]:
    pair, penalty = outlier(), ridge(0.5)
    plan = OutputPerturbation.plan(pair[0].facts, regularizer=penalty, epsilon=_EPSILON, delta=_DELTA)
    lax = OutputPerturbation.plan(
        pair[0].facts, regularizer=ridge(2 * penalty.l2), epsilon=_EPSILON, delta=_DELTA
    )
    edges = np.linspace(-4, 4, 65) * plan.vector_noise.sigma

    def law(one: OutputPerturbation, records: Records) -> Floats:
        minimum = -records.slope(np.zeros(1))[0] / (one.facts.n_records * one.regularizer.l2)
        return masses(special.ndtr((edges - minimum) / one.vector_noise.sigma))

    mutants = {
        "noise halved": dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise)),
        "planned for twice the penalty": dataclasses.replace(lax, regularizer=penalty),
    }
    return (risk_claim(plan, pair, "outlier", binned(edges), law, mutants),)


def _objective_perturbation() -> tuple[AuditedClaim, ...]:
    """Return claims on two pairs: with a strong penalty gradients alone spend epsilon, else Hessians too."""
    pair = outlier()
    stiff = ObjectivePerturbation.plan(
        pair[0].facts, regularizer=ridge(200.0), epsilon=_EPSILON, delta=_SMALL_DELTA
    )
    plan = ObjectivePerturbation.plan(pair[0].facts, epsilon=_EPSILON, delta=_SMALL_DELTA)
    # The record is curved where noise of length 3 moves the minimum.
    curved = Records((1.0,), (3 / plan.regularizer.l2,)), pair[1]
    small = ridge(plan.regularizer.l2 / 40)

    def claim(
        one: ObjectivePerturbation, records: tuple[Records, Records], name: str, mutants: Mapping[str, Any]
    ) -> AuditedClaim:
        edges = np.linspace(-4, 4, 65) * one.sigma / one.regularizer.l2
        return risk_claim(one, records, name, binned(edges), partial(_minimum_law, edges), mutants)

    return (
        claim(stiff, pair, "outlier", {"noise halved": dataclasses.replace(stiff, sigma=stiff.sigma / 2)}),
        claim(
            plan,
            curved,
            "curved or flat record",
            {
                "noise halved": dataclasses.replace(plan, sigma=plan.sigma / 2),
                "Hessian not paid for": dataclasses.replace(plan, regularizer=small),
            },
        ),
    )


def _minimum_law(edges: Floats, plan: ObjectivePerturbation, records: Records) -> Floats:
    """Return the law of the minimum, which is below w iff the tilted slope at w is positive.

    The noise that the mechanism adds to the minimum is neglected: it only blurs this law.
    """
    slope = records.slope(edges) / plan.facts.n_records + plan.regularizer.l2 * edges
    return masses(special.ndtr(slope / plan.sigma))


RISK_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    DPGradientDescent.name: partial(gradient_claims, DPGradientDescent, WholeSpace(1)),
    DPProximalGradient.name: partial(gradient_claims, DPProximalGradient, L2Ball(1, _WIDE)),
    DPMirrorDescent.name: partial(gradient_claims, DPMirrorDescent, L2Ball(1, _WIDE)),
    DPAcceleratedMirrorDescent.name: partial(gradient_claims, DPAcceleratedMirrorDescent, L2Ball(1, _WIDE)),
    DPFrankWolfeL2.name: _frank_wolfe_l2,
    DPFrankWolfeL1.name: _frank_wolfe_l1,
    DPStochasticGradient.name: _stochastic_gradient,
    DPSVRG.name: partial(_variance_reduced, DPSVRG, (2,)),
    DPSVRGPlusPlus.name: partial(_variance_reduced, DPSVRGPlusPlus, (1, 2)),
    OutputPerturbation.name: _output_perturbation,
    ObjectivePerturbation.name: _objective_perturbation,
}

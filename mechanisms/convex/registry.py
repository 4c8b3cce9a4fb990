"""First-order and perturbation mechanisms by name, their public defaults, and their parts as text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent, DPProximalGradient
from privopt.mechanisms.convex.mirror_descent import DPAcceleratedMirrorDescent, DPMirrorDescent
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.penalties import objective_penalty
from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics, refusals
from privopt.mechanisms.convex.svrg import DPSVRG, DPSVRGPlusPlus
from privopt.mechanisms.errors import PrivacyParameterError, UnknownMechanismError
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.mechanisms.risk.step_counts import prediction_scale, typical_distance
from privopt.oracles.convex.registry import projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.arguments import told
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.intersections import intersect
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError

RISK_MECHANISMS: dict[str, type[Any]] = {
    m.name: m
    for m in (
        DPGradientDescent,
        DPProximalGradient,
        DPFrankWolfeL2,
        DPFrankWolfeL1,
        DPMirrorDescent,
        DPAcceleratedMirrorDescent,
        DPSVRG,
        DPSVRGPlusPlus,
        DPStochasticGradient,
        OutputPerturbation,
        ObjectivePerturbation,
        SufficientStatistics,
    )
}

# More are a slip: a pass over the smallest table takes some microseconds.
_MOST_STEPS_ASKED = 10_000_000
# Up to so many features a minimum is cheap to certify with Newton steps.
_LOW_DIMENSION = 512
# Classes are left to noisy moments up to so many n mu per feature, then to gradient descent: what was most
# accurate on synthetic tables of categories and numbers, for a mu that all mechanisms are given. (Noisy
# moments rank records best up to a few hundred; from here on probabilities of the others are better.) With
# few features moments hold out longer, up to so many n mu for all of them.
_SMALL_BUDGET, _MODEST_BUDGET, _FOR_ALL = 40, 60, 1_500
# Size of a default ball, in units of ``typical_distance``: twice, so that the guess lies well inside.
_ROOM = 2.0
# Of an l1 ball for rows with features of up to R: in units of the scale of predictions over R. Five features
# of weight 1 that are there or not make predictions of about that scale.
_FEATURES = 5.0

_BALLS: dict[str, Callable[[int, float], ConvexSet]] = {
    "l1": L1Ball,
    "l2": L2Ball,
    "linf": LinfBall,
    "simplex": Simplex,
}


@dataclass(frozen=True)
class Choice:
    """A mechanism with everything that it needs, and why."""

    kind: type[Any]
    convex_set: ConvexSet
    regularizer: ElasticNet
    reason: str

    def plan(
        self, facts: RiskFacts, *, epsilon: float, delta: float, steps: int | None, releases: int = 1
    ) -> RiskMechanism:
        """Calibrate; the penalty of objective perturbation, if there is none, follows its noise.

        ``releases`` runs share the budget, in the notion in which the mechanism composes best.

        Raises:
            PrivacyParameterError: steps of a mechanism that takes none, or what the mechanism refuses.
        """
        options: dict[str, Any] = {} if steps is None else {"steps": steps}
        if steps is not None and check_count(steps, "steps") > _MOST_STEPS_ASKED:
            raise PrivacyParameterError(
                f"steps = {steps:,}: more than {_MOST_STEPS_ASKED:,}, which would run for days; noise grows "
                "with their square root, and the default is the theory's number"
            )
        if options and issubclass(
            self.kind, DPSVRG | OutputPerturbation | ObjectivePerturbation | SufficientStatistics
        ):
            raise PrivacyParameterError(f"{self.kind.name} takes no number of steps")

        def planned(regularizer: ElasticNet) -> Any:
            return self.kind.plan(
                *(facts, self.convex_set, regularizer),
                **{"epsilon": epsilon, "delta": delta, "releases": releases, **options},
            )

        made: RiskMechanism = planned(self.regularizer)
        if isinstance(made, ObjectivePerturbation) and self.regularizer.l2 == 0:
            hiding = made.vector_noise.sigma * made.regularizer.l2
            l2 = objective_penalty(facts, self.convex_set, made.sigma, hiding)
            made = planned(ElasticNet(l2=max(l2, made.regularizer.l2)))
        return made


def choose_risk_mechanism(
    name: str,
    facts: RiskFacts,
    convex_set: ConvexSet | None = None,
    regularizer: ElasticNet = NO_REGULARIZER,
    *,
    mu: float,
) -> Choice:
    """A mechanism by name, or for "auto" one that fits the public facts, with defaults where it needs them.

    ``mu`` is the budget of one release, as Gaussian differential privacy.

    Raises:
        UnknownMechanismError: listing the names there are.
    """
    if not isinstance(name, str):
        raise UnknownMechanismError(f"a mechanism is named by text, got {told(name)}")
    if name == "auto":
        name, reason = _fitting(facts, convex_set, regularizer, mu)
    elif name in RISK_MECHANISMS:
        reason = "it was asked for"
    else:
        known = ", ".join(RISK_MECHANISMS)
        raise UnknownMechanismError(f"unknown mechanism {name!r}; there are auto, {known}")
    kind, p = RISK_MECHANISMS[name], facts.dimension
    if convex_set is None and issubclass(
        kind,
        DPFrankWolfeL1 | DPFrankWolfeL2 | DPMirrorDescent | DPAcceleratedMirrorDescent,
    ):
        size = _ROOM * typical_distance(facts, WholeSpace(p))
        if kind is DPFrankWolfeL1 and facts.norm == "linf":
            size = _FEATURES * prediction_scale(facts) / facts.row_norm
        convex_set = L1Ball(p, size) if kind is DPFrankWolfeL1 else L2Ball(p, size)
        reason += f"; it wants a bounded set, by default {type(convex_set).__name__} of size {size:.3g}"
    return Choice(kind, convex_set or WholeSpace(p), regularizer, reason)


def _fitting(
    facts: RiskFacts, convex_set: ConvexSet | None, regularizer: ElasticNet, mu: float
) -> tuple[str, str]:
    smooth, low = regularizer.l1 == 0, facts.dimension <= _LOW_DIMENSION
    if low and not refusals(facts, convex_set or WholeSpace(facts.dimension), regularizer):
        if isinstance(facts.loss, SquaredLoss):
            return "sufficient-statistics", (
                "for least squares with few features it was the most accurate at every epsilon measured, and "
                "it falls back to the mean where noise hides the rest"
            )
        budget, p = facts.n_records * mu, facts.dimension
        if budget <= max(_SMALL_BUDGET * p, _FOR_ALL):
            return "sufficient-statistics", (
                "where the budget is small for so many features and so few records it was among the most "
                "accurate, and how much it shrinks follows from the noise"
            )
        if budget <= _MODEST_BUDGET * p:
            return "dp-gd", (
                "at a modest budget for so many features and records it was the most accurate of those "
                "measured: few steps are a penalty, and its noise is accounted exactly"
            )
    if not low and smooth and (convex_set is None or convex_set.vertex_count is not None):
        return "dp-fw-l1", (
            f"with {facts.dimension} features its error grows with their logarithm, the others' with their "
            "square root"
        )
    if smooth and not _projects(convex_set):
        return "dp-fw-l2", "its steps need no projection, and none onto the set is known"
    if facts.loss.convex and smooth and low:
        return "objective-perturbation", (
            "the loss is smooth and convex, features are few, and there is no number of steps to choose; for "
            "classification it was among the most accurate at equal epsilon on the tasks measured"
        )
    return "dp-pgd", "it takes every loss, a set with a projection, and an l1 penalty"


def _projects(convex_set: ConvexSet | None) -> bool:
    try:
        projector(convex_set or WholeSpace(1))
    except UnsupportedProblemError:
        return False
    return True


def parse_set(text: str, dimension: int) -> ConvexSet:
    """ "l1:SIZE", "l2:SIZE", "linf:SIZE", "simplex" or "simplex:SIZE", in that many dimensions.

    Joined by plus signs: their intersection, as in "l1:5+linf:1", where that is a set of this package.
    """
    return functools.reduce(intersect, [_parse_ball(part, dimension) for part in text.split("+")])


def _parse_ball(text: str, dimension: int) -> ConvexSet:
    kind, _, size = text.partition(":")
    if kind not in _BALLS or not (size or kind == "simplex"):
        raise InvalidInputError(
            f"a set is l1:SIZE, l2:SIZE, linf:SIZE or simplex[:SIZE], or some with plus signs, got {text!r}"
        )
    return _BALLS[kind](dimension, _number(size or "1", text))


def parse_regularizer(text: str) -> ElasticNet:
    """ "none", "l1:STRENGTH", "l2:STRENGTH", or both with a plus sign, as in "l1:0.01+l2:0.1"."""
    if text == "none":
        return NO_REGULARIZER
    parts = dict(part.partition(":")[::2] for part in text.split("+"))
    if not set(parts) <= {"l1", "l2"} or len(parts) != text.count("+") + 1:
        raise InvalidInputError(
            f"a regularizer is none, l1:STRENGTH, l2:STRENGTH or l1:STRENGTH+l2:STRENGTH, got {text!r}"
        )
    return ElasticNet(**{name: _number(strength, text) for name, strength in parts.items()})


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"{text!r} in {whole!r} is not a number") from error

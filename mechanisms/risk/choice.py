"""Choice, from public facts, of a mechanism that minimises a risk, and of a default convex set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.oracles.convex.registry import projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet
from privopt.problems.convex.risk import RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace

# A larger number of steps is probably a mistake: even on the smallest table, at some microseconds a pass, so
# many steps take about a minute; at 10 milliseconds a pass they take more than a day.
_MOST_STEPS_ASKED = 10_000_000
# Largest number of features at which Newton steps certify a minimum cheaply.
_LOW_DIMENSION = 512
# For classification: noisy moments while n mu / d is at most the first of these limits, then gradient descent
# up to the second. At equal mu this choice was the most accurate on synthetic tables of categories and
# numbers. (Noisy moments rank records best while n mu / d is at most a few hundred, but above the first limit
# other mechanisms predict better probabilities.) With few features moments stay better for longer: up to an n
# mu of the third limit, for any d.
_SMALL_BUDGET, _MODEST_BUDGET, _FOR_ALL = 40, 60, 1_500
# Limits on n mu / d up to which moments are used: the first if most columns are numbers, the second if some
# are. Moments can rescale a number by a unit computed from its privately released mean; other mechanisms use
# its declared range. On synthetic tables of numbers and categories, independent and correlated, moments
# ranked records best up to these limits: by .001 to .11 AUC where most columns are numbers, and by .026 where
# some are (12 tables, standard error .010). On Adult, whose n mu per feature is above these limits, moments
# did not rank best.
_MOST_IN_UNITS, _SOME_IN_UNITS = 1_000, 100
# Number of features, each with its own bound, above which they are screened. On synthetic tables of 200 to
# 900 binary features or numbers, of which 8 to all mattered, screening was better than noisy moments of all
# features, or as good, except on tables of many numbers all of which mattered.
_MANY_BOUNDED = 100


@dataclass(frozen=True)
class Choice:
    """A chosen mechanism, its arguments, and the reason for the choice."""

    kind: type[Any]
    convex_set: ConvexSet
    regularizer: ElasticNet
    reason: str

    def plan(
        self, facts: RiskFacts, *, epsilon: float, delta: float, steps: int | None, releases: int = 1
    ) -> RiskMechanism:
        """Calibrate the mechanism, with the given penalty or, if the mechanism has a default penalty that
        depends on its noise (objective perturbation), with that default.

        The budget covers ``releases`` runs, composed in the privacy notion in which the mechanism composes
        best.

        Raises:
            PrivacyParameterError: steps for a mechanism without steps, or parameters that the mechanism
                refuses.
        """
        if steps is not None and check_count(steps, "steps") > _MOST_STEPS_ASKED:
            raise PrivacyParameterError(
                f"steps = {steps:,}: more than {_MOST_STEPS_ASKED:,}, which can run for days; noise grows "
                "with their square root, and the default is the theory's number"
            )
        budget = {"epsilon": epsilon, "delta": delta, "releases": releases}
        asked = self.kind.target(facts, self.convex_set, self.regularizer, **budget)
        penalty = self.kind.usual_penalty(asked)
        options: dict[str, Any] = {} if steps is None else {"steps": steps}
        made: RiskMechanism = self.kind.plan(facts, self.convex_set, penalty, **budget, **options)
        return made


def natural_norm(mechanism: str | type[Any]) -> RowNorm:
    """Return the row norm that determines the noise of a mechanism; l2 for "auto"."""
    return (
        "l2"
        if isinstance(mechanism, str) and mechanism == "auto"
        else RISK_MECHANISMS.named(mechanism).natural_norm
    )


def choose_risk_mechanism(
    name: str | type[Any],
    facts: RiskFacts,
    convex_set: ConvexSet | None = None,
    regularizer: ElasticNet = NO_REGULARIZER,
    *,
    mu: float,
    steps: int | None = None,
    numbers: float = 0.0,
) -> Choice:
    """Return the mechanism with this name or class, or for "auto" one that suits the public facts. Without a
    ``convex_set`` the mechanism has its default set.

    ``mu`` is the budget of one release, as Gaussian differential privacy. If ``steps`` are given and there
    are more than 512 features, "auto" takes a mechanism that has steps; with fewer features "auto" may take a
    mechanism that refuses ``steps``. ``numbers``: the share of the columns that are numbers, if moments can
    rescale these by private units; otherwise 0.

    Raises:
        UnknownMechanismError: an unknown name; the message lists the known ones.
    """
    reason = "it was asked for"
    if name == "auto":
        name, reason = _fitting(facts, convex_set, regularizer, mu, steps, numbers)
    kind = RISK_MECHANISMS.named(name)
    space: ConvexSet = kind.default_set(facts) if convex_set is None else convex_set
    if convex_set is None and not isinstance(space, WholeSpace):
        reason += f"; it needs a bounded set, by default {space}"
    return Choice(kind, space, regularizer, reason)


def _fitting(
    facts: RiskFacts,
    convex_set: ConvexSet | None,
    regularizer: ElasticNet,
    mu: float,
    steps: int | None,
    numbers: float,
) -> tuple[str, str]:
    """Return a mechanism that fits public facts, and why."""
    smooth, low = regularizer.l1 == 0, facts.dimension <= _LOW_DIMENSION
    many = _fitting_many(facts, convex_set, regularizer) if steps is None else None
    few = _fitting_few(facts, convex_set, regularizer, mu, numbers) if low else None
    if many is not None:
        return many
    if few is not None:
        return few
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


def _fitting_few(
    facts: RiskFacts,
    convex_set: ConvexSet | None,
    regularizer: ElasticNet,
    mu: float,
    numbers: float,
) -> tuple[str, str] | None:
    """Return the mechanism of moments or steps that fits few features and a budget, or None."""
    moments = RISK_MECHANISMS["sufficient-statistics"]
    if moments.refusals(facts, convex_set or WholeSpace(facts.dimension), regularizer):
        return None
    if isinstance(facts.loss, SquaredLoss):
        return moments.name, (
            "for least squares with few features it was the most accurate at every epsilon measured, and it "
            "falls back to the mean where noise hides the rest"
        )
    budget, p = facts.n_records * mu, facts.dimension
    if budget <= max(_SMALL_BUDGET * p, _FOR_ALL):
        return moments.name, (
            "where the budget is small for the numbers of features and records it was among the most "
            "accurate measured, and the amount of its shrinkage follows from the noise"
        )
    if numbers and budget <= (_MOST_IN_UNITS if numbers > 0.5 else _SOME_IN_UNITS) * p:
        return moments.name, (
            "it can rescale numbers by units that it learns privately; on tables with numbers it was the "
            "most accurate measured, unless the budget is very large for the number of features"
        )
    if budget <= _MODEST_BUDGET * p:
        return "dp-gd", (
            "at a modest budget for the numbers of features and records it was the most accurate measured: "
            "few steps act as regularisation, and its noise is accounted exactly"
        )
    return None


def _fitting_many(
    facts: RiskFacts, convex_set: ConvexSet | None, regularizer: ElasticNet
) -> tuple[str, str] | None:
    """Return the mechanism of moments that fits many features; None if they are few, or if screening refuses
    this loss, set or penalty.
    """
    p, space, screened = facts.dimension, convex_set or WholeSpace(facts.dimension), "screened-statistics"
    if RISK_MECHANISMS[screened].refusals(facts, space, regularizer):
        return None
    if facts.norm == "linf" and p > _MANY_BOUNDED:
        return screened, (
            f"there are {p} features, each with its own bound: those that matter are selected first, as "
            "noise in their scores grows only with the logarithm of their number, and only the "
            "selected are fitted"
        )
    if p <= _LOW_DIMENSION:
        return None
    if not RISK_MECHANISMS["sufficient-statistics"].refusals(facts, space, regularizer):
        return "sufficient-statistics", (
            f"with {p} features and a bound on the length of rows, it shrinks the weights by an amount that "
            'follows from the noise; if every feature has its own bound, declare that (norm="linf"), and '
            "only selected features are fitted"
        )
    return screened, (
        f"of {p} features those that matter are selected first; if every feature has its own bound, declare "
        'that (norm="linf"): a bound on the length of rows says little about single features'
    )


def _projects(convex_set: ConvexSet | None) -> bool:
    try:
        projector(convex_set or WholeSpace(1))
    except UnsupportedProblemError:
        return False
    return True

"""Targets are checked once; mechanisms say as data what they take, and refuse the rest before data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import pytest

from privopt.mechanisms import (
    RISK_MECHANISMS,
    DPMirrorDescent,
    DPStochasticGradient,
    OutputPerturbation,
    RiskMechanism,
    TrimmedMean,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.mechanisms.risk.options import options_of
from privopt.mechanisms.risk.step_counts import loss_range
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidTypeError

FACTS = RiskFacts(2_000, 3, LogisticLoss(), 1.0)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@dataclasses.dataclass(frozen=True)
class Kinked(HuberLoss):
    """A loss without a smoothness."""

    @property
    def smoothness(self) -> float:
        return math.inf


def test_steps_go_by_a_smoothness() -> None:
    for name in RISK_MECHANISMS:
        with pytest.raises(PrivacyParameterError, match="has a kink"):
            RISK_MECHANISMS[name].plan(RiskFacts(100, 3, Kinked(1.0), 1.0), **BUDGET)


@pytest.mark.parametrize("name", RISK_MECHANISMS)
def test_what_a_mechanism_takes_is_what_it_says(name: str) -> None:
    kind: type[RiskMechanism] = RISK_MECHANISMS[name]
    assert kind.takes_steps == ("steps" in options_of(kind))
    ball, space = L1Ball(3, 1.0), WholeSpace(3)
    refused = kind.refusals(FACTS, ball, ElasticNet())
    assert any("constraint" in reason for reason in refused) == (not kind.takes_set)
    refused = kind.refusals(FACTS, space, ElasticNet(l1=0.1))
    assert any("l1 penalty" in reason for reason in refused) == (not kind.takes_l1)
    assert any("bounded" in reason for reason in refused) == kind.wants_bounded_set
    refused = kind.refusals(dataclasses.replace(FACTS, loss=SigmoidLoss()), ball, ElasticNet())
    assert any("convex loss" in reason for reason in refused) == kind.convex_only
    assert math.isfinite(kind.default_set(FACTS).radius) == kind.wants_bounded_set


@pytest.mark.parametrize("name", RISK_MECHANISMS)
def test_options_that_a_mechanism_lacks_are_refused_with_those_it_has(name: str) -> None:
    kind = RISK_MECHANISMS[name]
    with pytest.raises(PrivacyParameterError, match=rf"^{name.replace('+', '.')} has no option colour"):
        kind.plan(FACTS, **BUDGET, colour=3)
    if not kind.takes_steps:
        with pytest.raises(PrivacyParameterError, match="has no option steps"):
            kind.plan(FACTS, **BUDGET, steps=3)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (DPMirrorDescent, ["steps", "output", "step_size"]),
        (DPStochasticGradient, ["steps", "output", "batch"]),
        (OutputPerturbation, []),
        (TrimmedMean, ["mean_range", "trimmed"]),
    ],
)
def test_options_that_a_calibration_passes_on_are_options_too(kind: type[Any], names: list[str]) -> None:
    assert list(options_of(kind)) == names


def test_options_that_a_calibration_does_not_pass_on_are_none() -> None:
    class OneStep(DPMirrorDescent):
        @classmethod
        def _calibrated(cls, target: RiskTarget, *, step_size: float = 1.0) -> Self:  # type: ignore[override]
            return super()._calibrated(target, step_size=step_size, steps=1)

    assert list(options_of(OneStep)) == ["step_size"]
    with pytest.raises(PrivacyParameterError, match=r"has no option steps; it has step_size$"):
        OneStep.plan(FACTS, **BUDGET, steps=3)


def test_a_plan_says_what_a_set_and_a_penalty_are() -> None:
    with pytest.raises(InvalidTypeError, match="convex_set must be a ConvexSet, such as an L2Ball"):
        DPMirrorDescent.plan(FACTS, "l2", **BUDGET)  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="regularizer must be an ElasticNet"):
        DPMirrorDescent.plan(FACTS, L1Ball(3, 1.0), "none", **BUDGET)  # type: ignore[arg-type]


def test_the_range_of_a_loss_is_what_a_set_allows_or_the_scale_of_predictions() -> None:
    """Logistic slopes are at most 1, rows have norm 1, and predictions of 4 are far from all others."""
    whole = loss_range(FACTS, WholeSpace(3))
    assert loss_range(FACTS, L2Ball(3, 1e9)) == whole > 1
    assert loss_range(FACTS, L2Ball(3, 0.01)) == pytest.approx(0.02)


def test_means_refuse_options_that_they_lack_with_those_they_have() -> None:
    with pytest.raises(PrivacyParameterError, match=r"^trimmed-mean has no option moment; it has mean_range"):
        TrimmedMean.plan(10, 2, mean_range=(0.0, 1.0), moment=1.0, **BUDGET)


def test_means_name_the_public_facts_that_they_need() -> None:
    with pytest.raises(PrivacyParameterError, match=r"^trimmed-mean needs the public facts mean_range$"):
        TrimmedMean.plan(10, 2, **BUDGET)

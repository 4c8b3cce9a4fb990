"""Sets and callbacks of somebody else that keep state: no release depends on what they saw in another one."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.oracles.convex.conformance import SetInstance, check_linear_minimizer, check_projector
from privopt.oracles.convex.registry import linear_minimizer, lmo_formula, project, projector
from privopt.oracles.errors import CertificateError, ConformanceError, UnfinishedDrawError
from privopt.oracles.limits import Limits, Progress
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L2Ball

X = np.random.default_rng(0).normal(size=(30, 2))
RISK = EmpiricalRisk(X, np.where(X[:, 0] > 0, 1.0, -1.0), LogisticLoss())
OTHER = EmpiricalRisk(-X, np.where(X[:, 1] > 0, 1.0, -1.0), LogisticLoss())


class Remembering(L2Ball):
    """A ball whose answers lean towards all that it was ever asked, as a warm start might."""

    def seen(self, x: Vector) -> Vector:
        total = self.__dict__.setdefault("total", np.zeros(self.dimension))
        total += x
        return np.asarray(1e-3 * total)


class Locked(L2Ball):
    """A ball that cannot be copied."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.__dict__["lock"] = threading.Lock()


@project.register
def _(ball: Remembering, x: Vector) -> Vector:
    x = x + ball.seen(x)
    return np.asarray(x / max(1.0, float(np.linalg.norm(x)) / ball.size))


@lmo_formula.register
def _(ball: Remembering, g: Vector) -> Vector:
    g = g + ball.seen(g)
    return np.asarray(-ball.size * g / max(float(np.linalg.norm(g)), 1e-300))


def released(plan: Any, risk: EmpiricalRisk, limits: Limits | None = None) -> Vector:
    return np.array(plan.release(risk, NoiseSource(insecure_seed=3), limits=limits).point)


@pytest.mark.parametrize("name", ["dp-pgd", "dp-fw-l2", "output-perturbation", "objective-perturbation"])
def test_a_set_that_keeps_state_takes_none_from_one_release_to_another(name: str) -> None:
    ball = Remembering(2, 0.3)
    plan = RISK_MECHANISMS[name].plan(RISK.facts, ball, epsilon=1.0, delta=1e-3)
    first = released(plan, RISK)
    released(plan, OTHER)  # the records of another table
    np.testing.assert_array_equal(released(plan, RISK), first)
    assert plan.spend.claim == "not checked"


def test_a_set_that_cannot_be_copied_is_refused_in_the_plan() -> None:
    with pytest.raises(PrivacyParameterError, match="Locked cannot be copied"):
        RISK_MECHANISMS["dp-pgd"].plan(RISK.facts, Locked(2, 1.0), epsilon=1.0, delta=1e-3)


def test_the_kits_reject_a_set_that_keeps_state() -> None:
    boundary = np.array([[np.cos(t), np.sin(t)] for t in np.linspace(0, 6, 50)])
    with pytest.raises(ConformanceError, match="asked again, it answers something else"):
        check_projector(projector, instances=[SetInstance("mine", Remembering(2, 1.0), boundary)])
    with pytest.raises(ConformanceError, match="asked again, it answers something else"):
        check_linear_minimizer(
            linear_minimizer, instances=[SetInstance("mine", Remembering(2, 1.0), boundary)]
        )


class Meddling:
    """Callbacks that keep what they are told, and write to the global generators."""

    def __init__(self, patience: float) -> None:
        self.patience, self.told, self.asked = patience, list[Progress](), 0

    def on_progress(self, progress: Progress) -> str:
        self.told.append(progress)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        return "what a callback returns is not used"

    def cancelled(self) -> bool:
        self.asked += 1
        return self.asked > self.patience

    @property
    def limits(self) -> Limits:
        return Limits(on_progress=self.on_progress, cancelled=self.cancelled)


@pytest.mark.parametrize("name", ["dp-pgd", "dp-sgd", "net", "objective-perturbation"])
def test_callbacks_that_keep_state_change_no_release(name: str) -> None:
    """They see numbers alone, and all they can do is end a run: with an error, and no point."""
    options = {"steps": 5} if RISK_MECHANISMS[name].takes_steps else {}
    plan = RISK_MECHANISMS[name].plan(RISK.facts, epsilon=1.0, delta=1e-3, **options)
    alone, watching = released(plan, RISK), Meddling(patience=np.inf)
    np.testing.assert_array_equal(released(plan, RISK, watching.limits), alone)
    assert watching.asked
    assert all(
        isinstance(value, float | int | None) for told in watching.told for value in vars(told).values()
    )
    stopping = Meddling(patience=0)
    with pytest.raises((UnfinishedDrawError, CertificateError)):
        released(plan, RISK, stopping.limits)
    np.testing.assert_array_equal(released(plan, RISK), alone)

"""The exponential mechanism on a net: covering, law, cost, its place among the oracles that draw."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles import check_gibbs_oracle
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.draw.interface import Law
from privopt.oracles.draw.stream import GibbsStream
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import (
    BiweightLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    RealArray,
    SigmoidLoss,
)
from privopt.problems.convex.regularizers import lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.errors import InvalidInputError
from privopt.problems.nonconvex.net import LOSS_UNITS, BallNet, NetProblem

NETS = [(1, 2.0, 0.07), (2, 1.0, 0.11), (3, 5.0, 0.9), (4, 1.0, 0.5)]


def risk(n: int = 200, d: int = 2, loss: Loss | None = None, seed: int = 0) -> EmpiricalRisk:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) / math.sqrt(d)
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, 1, -1)
    return EmpiricalRisk(X, y, loss or SigmoidLoss())


@pytest.mark.parametrize(
    ("d", "radius", "alpha"), [(1, 2.0, 0.07), (2, 1.0, 0.11), (3, 5.0, 0.9), (4, 1.0, 0.5)]
)
def test_a_net_covers_its_ball_and_stays_in_it(d: int, radius: float, alpha: float) -> None:
    net = BallNet(d, radius, alpha)
    points = net.points(np.concatenate(list(net.lattice.batches())))
    assert np.linalg.norm(points, axis=1).max() <= radius * (1 + 1e-12)
    assert len(points) <= net.size_bound
    rng = np.random.default_rng(d)
    probes = rng.standard_normal((500, d))
    lengths = radius * np.maximum(rng.random((500, 1)) ** (1 / d), rng.random((500, 1)) < 0.3)
    probes *= lengths / np.linalg.norm(probes, axis=1, keepdims=True)
    away = np.array([np.linalg.norm(points - probe, axis=1).min() for probe in probes])
    assert away.max() <= alpha * (1 + 1e-9)
    assert away.max() > 0.6 * alpha  # and not much finer than it was asked to be


@pytest.mark.parametrize("loss", [SigmoidLoss(), HuberLoss(1.0), LogisticLoss(), BiweightLoss()])
@pytest.mark.parametrize("l2", [0.0, 0.4])
def test_units_are_the_objective(loss: Loss, l2: float) -> None:
    one, net = risk(50, 2, loss), BallNet(2, 0.8, 0.2)
    problem = NetProblem(one, net, l2)
    points = np.concatenate(list(net.lattice.batches()))
    found = problem.losses(points)
    assert found.min() >= 0
    assert found.max() <= problem.largest_loss
    w = net.points(points)
    objective = np.array([one.value(v) for v in w]) + l2 / 2 * np.sum(w * w, axis=1)
    spread = min(loss.value_range, 2 * loss.lipschitz * 0.8)
    scaled = found / LOSS_UNITS * spread / 50
    assert scaled - scaled[0] == pytest.approx(objective - objective[0], abs=2 * spread / LOSS_UNITS)


def test_one_record_moves_the_loss_by_at_most_its_bound_and_nearly_that() -> None:
    net = BallNet(1, 3.0, 0.1)
    points = np.concatenate(list(net.lattice.batches()))
    losses: list[tuple[Loss, float]] = [(HuberLoss(1.0), 9.0), (SigmoidLoss(), 1.0), (LogisticLoss(), 1.0)]
    for loss, far in losses:
        first, second = (NetProblem(EmpiricalRisk([[0.2], [1.0]], [1.0, y], loss), net) for y in (far, -far))
        moved = np.abs(first.losses(points) - second.losses(points)).max()
        assert moved <= LOSS_UNITS
        assert moved > 0.4 * LOSS_UNITS


class Larger(SigmoidLoss):
    """Its values are beyond the range that it declares."""

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return 5 * super().value(z, y) - 2


def test_a_record_that_is_worse_than_declared_counts_as_the_worst_declared() -> None:
    net = BallNet(1, 3.0, 0.1)
    points = np.concatenate(list(net.lattice.batches()))
    found = NetProblem(EmpiricalRisk([[1.0]], [1.0], Larger()), net).losses(points)
    assert found.min() == 0
    assert found.max() == LOSS_UNITS


@pytest.mark.parametrize("oracle", ["enumerate", "stream", "auto"])
def test_the_law_is_the_exponential_mechanism_s(oracle: str) -> None:
    one = risk(40, 1)
    plan = NetMechanism.plan(one.facts, L2Ball(1, 6.0), ridge(0.02), epsilon=1.0, alpha=1.0, oracle=oracle)
    w = plan.net.points(np.concatenate(list(plan.net.lattice.batches())))
    objective = np.array([one.value(v) + 0.01 * float(v @ v) for v in w])
    assert plan.beta == pytest.approx(0.5, rel=1e-3)  # epsilon / 2, for losses in [0, 1]
    law = np.exp(-plan.beta * 40 * (objective - objective.min()))
    source = NoiseSource(insecure_seed=5)
    drawn = np.array([plan.release(one, source).point[0] for _ in range(800)])
    counts = np.array([np.sum(np.isclose(drawn, v)) for v in w[:, 0]])
    assert stats.chisquare(counts, 800 * law / law.sum()).pvalue > 1e-3
    wrong = law**2
    assert stats.chisquare(counts, 800 * wrong / wrong.sum()).pvalue < 1e-6


@pytest.mark.parametrize(
    "max_work", [1000.0, pytest.param(2e10, marks=pytest.mark.slow)], ids=["small", "all"]
)
def test_the_stream_is_an_oracle_like_any_other(max_work: float) -> None:
    """Points of the box times records are at most 1,000 in seven of the kit's thirteen instances."""
    check_gibbs_oracle(GibbsStream(max_work))


def test_the_problem_can_be_drawn_from_by_hand() -> None:
    one, net = risk(40, 2), BallNet(2, 3.0, 0.5)
    plan = ExponentialMechanism.plan(NetProblem, net.lattice, epsilon=1.0)
    for oracle in (GibbsEnumeration(), GibbsStream()):
        drawn = plan.release(oracle.prepare(NetProblem(one, net), Law.GIBBS))
        assert net.lattice.contains(drawn.point)
    with pytest.raises(PlanMismatchError):
        plan.release(GibbsStream().prepare(NetProblem(one, BallNet(2, 3.0, 0.4)), Law.GIBBS))
    with pytest.raises(InvalidInputError, match="separator set"):
        NetProblem.separators(net.lattice)


def test_memory_does_not_grow_with_the_net() -> None:
    def peak(alpha: float) -> tuple[int, int]:
        one, net = risk(5, 2), BallNet(2, 1.0, alpha)
        prepared = GibbsStream().prepare(NetProblem(one, net), Law.GIBBS)
        tracemalloc.start()
        drawn = prepared.draw(1e-6, NoiseSource())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, drawn.nodes

    (small, few), (large, many) = peak(0.006), peak(0.0012)
    assert many > 20 * few
    assert large < 1.5 * small


def test_excess_is_within_the_stated_bound() -> None:
    one = risk(2000, 2)
    plan = NetMechanism.plan(one.facts, L2Ball(2, 6.0), ridge(0.01), epsilon=1.0, alpha=0.4)
    fine = NetProblem(one, BallNet(2, 6.0, 0.05), 0.01)

    def objective(w: np.ndarray) -> float:
        return one.value(w) + 0.005 * float(w @ w)

    losses = np.concatenate([fine.losses(p) for p in fine.lattice.batches(4096)])
    best = objective(fine.net.points(np.concatenate(list(fine.lattice.batches()))[losses.argmin()][None])[0])
    source = NoiseSource(insecure_seed=0)
    found = np.array([objective(plan.release(one, source).point) - best for _ in range(20)])
    assert np.all(found < plan.excess(1e-3))
    assert plan.excess(0.05) < 0.2
    # Who wants to be surer is promised less, by ln(1 / failure) / (beta n).
    assert plan.excess(1e-6) - plan.excess(1e-3) == pytest.approx(math.log(1e3) / (plan.beta * 2000))
    assert objective(plan.without_noise(one)) - best < plan.net.alpha * 0.4


def test_an_expensive_net_is_refused_with_the_number_and_defaults_are_cheap() -> None:
    facts = RiskFacts(10_000, 3, SigmoidLoss())
    with pytest.raises(PrivacyParameterError, match=r"\de\+1\d losses for 10000 .* than 2e\+10"):
        NetMechanism.plan(facts, L2Ball(3, 1.0), epsilon=1.0, alpha=0.005)
    for d in (1, 2, 3, 5):
        plan = NetMechanism.plan(RiskFacts(10_000, d, SigmoidLoss()), epsilon=1.0)
        assert plan.net.size_bound * 10_000 <= 2e7 or plan.net.alpha == plan.net.radius
    with pytest.raises(PrivacyParameterError, match=r"up to .* points"):
        NetMechanism.plan(RiskFacts(10_000, 60, SigmoidLoss()), epsilon=1.0)


def test_the_ball_holds_the_penalised_minimum() -> None:
    plan = NetMechanism.plan(RiskFacts(1000, 2, SigmoidLoss()), regularizer=ridge(0.5), epsilon=1.0)
    assert plan.net.radius == pytest.approx(0.5)  # G = 1/4


def test_what_it_does_not_take_is_refused() -> None:
    facts = RiskFacts(100, 2, SigmoidLoss())
    with pytest.raises(PrivacyParameterError, match="l2 ball"):
        NetMechanism.plan(facts, Box([-1, -1], [1, 1]), epsilon=1.0)
    with pytest.raises(PrivacyParameterError, match="l1 penalty"):
        NetMechanism.plan(facts, regularizer=lasso(0.1), epsilon=1.0)
    with pytest.raises(PrivacyParameterError, match="has no option steps; it has alpha, oracle"):
        NetMechanism.plan(facts, epsilon=1.0, steps=3)
    with pytest.raises(InvalidInputError, match="a net needs"):
        BallNet(2, 1.0, 0.0)
    with pytest.raises(InvalidInputError, match="too fine"):
        BallNet(2, 1.0, 1e-12)
    with pytest.raises(InvalidInputError, match="3 dimensions for a risk in 2"):
        NetProblem(risk(10, 2), BallNet(3, 1.0, 0.5))


def test_limits_stop_a_draw_and_release_nothing() -> None:
    one = risk(100, 2)
    plan = NetMechanism.plan(one.facts, L2Ball(2, 1.0), epsilon=1.0)
    with pytest.raises(UnfinishedDrawError):
        plan.release(one, limits=Limits(cancelled=lambda: True))


def test_several_releases_share_epsilon() -> None:
    plan = NetMechanism.plan(RiskFacts(100, 2, SigmoidLoss()), epsilon=1.0, releases=4)
    assert plan.spend.epsilon == 1.0
    assert plan.draw.spend.epsilon == 0.25

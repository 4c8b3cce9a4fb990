"""OPSamp: the stability bound against simulation, Chernoff's against binomials, gaps paid for and refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.audit.audit import exact_delta
from privopt.mechanisms.audit.opsamp import OPSAMP_AUDITS, OPSampSampler
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.perturbed_leader import TiltedMean, lattice_distance, mean_distance
from privopt.oracles import Task, minimizer
from privopt.oracles.certificate import Status
from privopt.oracles.errors import CertificateError
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.problems import IntegerLattice, ZeroOneHalfspace
from privopt.problems.discrete.objective import rounding_slack
from privopt.problems.discrete.problem import DiscreteProblem


@pytest.mark.parametrize("rate", [0.002, 0.05, 1.0])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_neighbours_are_no_farther_apart_than_the_bound(rate: float, d: int) -> None:
    """Random 0/1 losses over {-1, 0, 1}^d: the worst of 40 pairs, by enumeration, 500 tilts each."""
    rng = np.random.default_rng(d)
    lattice = IntegerLattice(-1, 1, dimension=d)
    points = np.concatenate(list(lattice.batches()))
    bound = mean_distance(np.full(d, 2.0), 1.0, rate, 0.0)
    sharper = lattice_distance(np.full(d, 2.0), 1.0, rate, 0.0)
    worst = 0.0
    for _ in range(40):
        common = rng.integers(0, 8, len(points))
        first, second = (common + rng.integers(0, 2, len(points)) for _ in range(2))
        tilted = -(rng.exponential(1 / rate, (500, d)) @ points.T)
        moved = points[np.argmin(first + tilted, axis=1)] - points[np.argmin(second + tilted, axis=1)]
        worst = max(worst, float(np.mean(np.abs(moved).sum(axis=1))))
    # A distance is at most 2 d, so its variance at most 2 d times its mean: five standard errors.
    assert worst <= sharper + 5 * math.sqrt(2 * d * sharper / 500)
    assert sharper <= bound
    assert bound <= 8 * rate * d * d * 2 * (1 + 1e-6)  # 8 eta G d^2 D


@pytest.mark.parametrize(("rate", "bound", "alpha"), [(0.01, 1.0, 0.0), (0.3, 2.0, 0.0), (0.05, 1.0, 7.0)])
def test_the_bound_over_whole_points_is_attained(rate: float, bound: float, alpha: float) -> None:
    """Points 0 and 1, losses (0, B) and (B, 0), a public tilt of B + alpha towards 1, answers at the gap.

    The one answer is 1 from sigma = 0 on, the other from 2 B + 2 alpha.
    """
    differ = 1 - math.exp(-rate * (2 * bound + 2 * alpha))
    found = lattice_distance(np.ones(1), bound, rate, alpha)
    assert differ <= found <= differ * (1 + 1e-6)
    assert found < mean_distance(np.ones(1), bound, rate, alpha)


def test_plans_over_whole_points_take_the_smaller_bound() -> None:
    """A factor of 4 d less at gap 0, where eta is small."""
    widths, facts = np.full(23, 2.0), {"n_records": 10**4, "epsilon": 1.0, "delta": 1e-8, "rate": 1e-6}
    real = TiltedMean.plan(widths, lipschitz=1.0, **facts)
    whole = TiltedMean.plan(widths, lipschitz=1.0, loss_bound=1.0, **facts)
    ratio = mean_distance(widths, 1.0, 1e-6, 0.0) / lattice_distance(widths, 1.0, 1e-6, 0.0)
    assert ratio == pytest.approx(4 * 23, rel=0.01)
    assert whole.sensitivity < real.sensitivity


def test_tilts_are_centred() -> None:
    plan = TiltedMean.plan(
        np.ones(3), lipschitz=1.0, n_records=10, epsilon=1.0, delta=1e-3, rate=0.1, draws=4000
    )
    tilts = plan.tilts(NoiseSource(insecure_seed=1))
    assert tilts.min() >= -10.0
    # 12,000 numbers of standard deviation 10: four standard errors are .37.
    assert abs(float(tilts.mean())) < 0.37


def test_tilts_that_objectives_cannot_hold_are_refused_in_the_plan() -> None:
    """Terms stay below 2^30; a tilt that is cut off there has no memoryless law. exp(-x) is its tail."""
    lattice, facts = IntegerLattice(-3, 2, dimension=2), {"n_records": 50, "epsilon": 1.0, "delta": 1e-6}
    for rate, fits in ((1e-12, False), (3 * 80 / 2.0**30, False), (3 * 120 / 2.0**30, True)):
        if fits:
            OPSamp.plan(ZeroOneHalfspace, lattice, rate=rate, draws=1, **facts)
            continue
        with pytest.raises(PrivacyParameterError, match="leaves the range of objectives"):
            OPSamp.plan(ZeroOneHalfspace, lattice, rate=rate, draws=1, **facts)


def test_the_bound_is_far_below_the_printed_one_and_grows_with_the_gap() -> None:
    widths = np.full(23, 2.0)
    exact = mean_distance(widths, 1.0, 1e-4, 0.0)
    assert exact < 250 * 1e-4 * 23**2 * 2 / 30
    gaps = [mean_distance(widths, 1.0, 1e-4, a) for a in (0.0, 0.1, 1.0, 10.0, 1e6)]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1] == pytest.approx(46.0)


@pytest.mark.parametrize(("rate", "alpha"), [(1e-3, 0.0), (1e-3, 0.3), (0.02, 2.0)])
def test_the_bound_is_the_best_of_the_lemma(rate: float, alpha: float) -> None:
    """S <= (1 - q) sum D + q d (L S + 3 alpha) / c, q = exp(-rate c), for losses that move by L = 2 G."""
    widths, lipschitz = np.array([1.0, 3.0, 2.0]), 0.7

    def solved(log_c: float) -> float:
        c = math.exp(log_c)
        q = math.exp(-rate * c)
        kept = 1 - q * 3 * 2 * lipschitz / c
        return (6 * (1 - q) + 9 * q * alpha / c) / kept if kept > 0 else 6.0

    best = min(solved(x) for x in np.linspace(-3, 12, 20_001))
    found = mean_distance(widths, lipschitz, rate, alpha)
    assert best * (1 - 1e-5) <= found <= min(6.0, best * 1.001)
    tried = min(solved(math.log(6 * lipschitz * c)) for c in np.geomspace(1, 1e6, 2001))
    assert tried * (1 + 5e-10) < found  # with a margin for rounding


@pytest.mark.parametrize(("epsilon", "delta", "n", "d"), [(1.0, 1e-6, 10_000, 5), (0.1, 1e-3, 200, 2)])
def test_sensitivity_is_exceeded_with_probability_delta_at_most(
    epsilon: float, delta: float, n: int, d: int
) -> None:
    """The law that makes large means likeliest, 0 or the whole diameter: a binomial."""
    widths = np.full(d, 2.0)
    for draws in (None, 50, 2000):
        plan = TiltedMean.plan(widths, lipschitz=1.0, n_records=n, epsilon=epsilon, delta=delta, draws=draws)
        p = mean_distance(widths, 1.0, plan.rate, 0.0) / (2.0 * d)
        allowed = math.floor(plan.sensitivity / (2.0 * d) * plan.draws * (1 + 1e-12))
        assert stats.binom.sf(allowed, plan.draws, p) <= delta
        assert plan.laplace.epsilon <= epsilon
    few, many = (
        TiltedMean.plan(widths, lipschitz=1.0, n_records=n, epsilon=epsilon, delta=delta, rate=1e-3, draws=m)
        for m in (20, 4000)
    )
    assert many.sensitivity < few.sensitivity


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": -1.0}, {"alpha": math.nan}, {"draws": 0}, {"rate": 0.0}, {"epsilon": 0.0}, {"delta": 0.0}],
)
def test_plans_refuse(wrong: dict[str, Any]) -> None:
    with pytest.raises(PrivacyParameterError):
        TiltedMean.plan(
            np.ones(2), **{"lipschitz": 1.0, "n_records": 10, "epsilon": 1.0, "delta": 1e-3, **wrong}
        )


def halfspaces(n: int = 400, d: int = 3) -> ZeroOneHalfspace:
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (n, d))
    return ZeroOneHalfspace(
        X, np.where(X @ np.arange(1, d + 1) > 0, 1, -1), IntegerLattice(-1, 1, dimension=d)
    )


def planned(problem: Any, **options: Any) -> OPSamp:
    defaults: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "draws": 200}
    return OPSamp.plan(type(problem), problem.lattice, n_records=problem.n_records, **{**defaults, **options})


@pytest.mark.parametrize("oracle", ["interval", "enumerate"])
def test_releases_average_answers_and_add_noise(oracle: str) -> None:
    problem = halfspaces()
    plan = planned(problem, epsilon=1e6, rate=0.5)
    prepared = minimizer(oracle).prepare(problem, Task.LINEAR)
    found = plan.release(prepared, NoiseSource(insecure_seed=3), workers=2)
    assert np.all(np.abs(found.point) < 1.01)
    # Tilts of size 2 hardly move 400 records: the mean is near the minimum that they leave.
    assert found.point @ np.arange(1, 4) > 0
    assert found.worst_gap == 0.0
    assert found.spend.insecure_seed == 3
    again = plan.release(prepared, NoiseSource(insecure_seed=3))
    assert np.array_equal(found.point, again.point)  # whatever the number of workers
    assert not np.array_equal(plan.release(prepared).point, plan.release(prepared).point)


@dataclasses.dataclass(frozen=True)
class StoppedEarly(DiscreteOracle):
    """The true minimum, with a bound that is short of it."""

    gap: int
    name: ClassVar[str] = "stopped early"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        prepared = minimizer("enumerate").prepare(problem, task)

        def solve(query: Query) -> Proposal:
            answer = prepared.minimize(query.perturbation)
            proved = answer.certificate.fixed_bound - (self.gap << 20)
            return Proposal(answer.point, proved, status=Status.TIME_LIMIT)

        return solve


def test_the_gap_of_the_certificate_is_what_was_planned_or_nothing_is_released() -> None:
    problem = halfspaces()
    exact, lax = planned(problem), planned(problem, alpha=3.0)
    assert lax.mean.sensitivity > exact.mean.sensitivity
    oracle = StoppedEarly(3).prepare(problem, Task.LINEAR)
    with pytest.raises(CertificateError, match="gap of 3"):
        exact.release(oracle)
    assert lax.release(oracle).worst_gap == 3.0
    with pytest.raises(CertificateError, match="gap of 4"):
        lax.release(StoppedEarly(4).prepare(problem, Task.LINEAR))


def test_the_rounding_of_objectives_is_part_of_the_gap() -> None:
    problem = halfspaces()
    plan = planned(problem, alpha=3.0, rate=1e-3)
    facts: dict[str, Any] = {
        "lipschitz": 1.0,
        "loss_bound": 1.0,
        "n_records": problem.n_records,
        "rate": 1e-3,
        "draws": 200,
    }
    wider = TiltedMean.plan(np.full(3, 2.0), alpha=3.0 + rounding_slack(3), epsilon=1.0, delta=1e-4, **facts)
    assert plan.mean.sensitivity == wider.sensitivity
    assert (
        wider.sensitivity
        > TiltedMean.plan(np.full(3, 2.0), alpha=3.0, epsilon=1.0, delta=1e-4, **facts).sensitivity
    )


def test_other_problems_and_tasks_are_refused() -> None:
    problem, plan = halfspaces(), planned(halfspaces())
    with pytest.raises(PlanMismatchError, match="plan again"):
        plan.release(minimizer("enumerate").prepare(halfspaces(d=2), Task.LINEAR))
    with pytest.raises(PlanMismatchError, match="needs an oracle prepared for"):
        plan.release(minimizer("enumerate").prepare(problem, Task.NORMALIZED))


@pytest.mark.parametrize("runs", [200, pytest.param(800, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPSAMP_AUDITS)
def test_audited_laws_are_those_of_releases(name: str, runs: int) -> None:
    (audited,) = OPSAMP_AUDITS[name]()
    assert audited.claim.exact_epsilon == pytest.approx(1.0, abs=0.01)
    for subject in (audited.claim, *audited.mutants):
        assert subject.laws is not None
        # Draws beyond the first only repeat the answer of the contrary oracle: they are left out here.
        for side, law in enumerate(subject.laws):
            sampler: Any = (subject.first, subject.second)[side]
            assert isinstance(sampler.draw, OPSampSampler)
            outcomes = np.bincount(sampler(runs, NoiseSource(insecure_seed=5 + side)), minlength=len(law))
            rare = np.array(law) * runs < 5
            seen = np.append(outcomes[~rare], outcomes[rare].sum() + 10)
            due = np.append(np.array(law)[~rare] * runs, np.array(law)[rare].sum() * runs + 10)
            assert stats.chisquare(seen, due / due.sum() * seen.sum()).pvalue > 1e-3, subject.name
        assert exact_delta(*subject.laws, 1.0) <= 1e-3 or subject is not audited.claim

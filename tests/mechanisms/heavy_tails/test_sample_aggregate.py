"""Sample and aggregate: the smoothness of its scale, its noise against exact laws, refusals, oracles that
fail."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import SGDRegressor

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.fresh_copies import Estimator, FreshCopies
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.convex.erm import RiskMinimizer
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.errors import InvalidInputError


def planned(m: int = 400, d: int = 1, n: int | None = None, epsilon: float = 1.0) -> SampleAggregate:
    return SampleAggregate.plan(n or m, d, subsets=m, radius=1.0, epsilon=epsilon, delta=1e-2)


def test_one_estimate_moves_centre_and_scale_by_what_the_proof_allows() -> None:
    """An adversary moves one estimate after another, to the ends, into the cluster, next to another."""
    rng = np.random.default_rng(0)
    plan = planned(m=300, epsilon=1.5)
    beta = plan.decay + math.log((plan.averaged + 1) / (plan.averaged - 1))
    assert beta <= 1.5 / (4 * (1 + math.log(200)))
    moved = []
    for start in (rng.uniform(-1, 1, (300, 1)), np.zeros((300, 1)), rng.normal(0, 1e-3, (300, 1))):
        z = start.copy()
        for _ in range(120):
            after = z.copy()
            choices = [-1.0, 1.0, 0.0, float(rng.uniform(-1, 1)), float(z[rng.integers(300), 0])]
            after[rng.integers(300)] = choices[int(rng.integers(5))]
            (one, s), (two, other) = plan.centre(z), plan.centre(after)
            moved.append(abs(math.log(s / other)))
            assert moved[-1] <= beta * (1 + 1e-9)
            assert abs(one[0] - two[0]) <= min(s, other) * (1 + 1e-12)
            z = after
    assert max(moved) > 0.2 * beta


@pytest.mark.parametrize("m", [7, 8])
def test_the_scale_is_that_of_its_definition(m: int) -> None:
    rng = np.random.default_rng(m)
    small = dataclasses.replace(planned(), n_records=m, subsets=m, averaged=3, decay=0.4, gamma=1e-9)
    t0 = (m + 1) // 2 + 1
    for z in (rng.uniform(-1, 1, m), np.where(np.arange(m) < t0, 0.0, 1.0), np.arange(m) % 2 - 0.5):
        nearest = np.sort(np.abs(z[:, None] - z), axis=1)  # itself first

        def rho(t: int, nearest: np.ndarray = nearest) -> float:
            return float(np.mean(np.sort(nearest[:, t - 1])[:3])) if t <= m else 2.0

        largest = max(rho(t0 + 1 + k) * math.exp(-0.4 * k) for k in range(2 * m))
        assert small.centre(z[:, None])[1] == pytest.approx((1 + 4 / 2) * largest, rel=1e-8)


def test_the_proof_wants_as_many_neighbours_as_it_averages() -> None:
    """log((q + 1) / (q - 1)) = beta / 2 takes q = 90, and t0 of 161 subsets is 82."""
    with pytest.raises(PrivacyParameterError, match="too few"):
        planned(m=161, epsilon=1.12)
    assert planned(m=181, epsilon=1.12).averaged <= 91


def test_scale_grows_to_the_diameter_where_estimates_disagree() -> None:
    plan = planned()
    close = plan.centre(np.zeros((400, 1)))[1]
    apart = plan.centre(np.where(np.arange(400) % 2 == 0, 1.0, -1.0)[:, None])[1]
    assert apart >= 2 * 2.0  # (1 + g) times the diameter, at least
    assert close < 0.3 * apart
    assert close >= plan.gamma * 2.0**-16


class LargestDistances(SampleAggregate):
    """The other reading of "the top" distances."""

    def mean_distances(self, distances: np.ndarray) -> np.ndarray:
        return np.asarray(np.mean(np.sort(distances, axis=0)[-self.averaged :], axis=0))


def test_means_of_the_largest_distances_would_not_be_smooth() -> None:
    """One estimate out of 1001 moves away: the scale of the noise shows it, and should not."""
    plan = planned(m=1001)
    other = LargestDistances(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)})
    alike, outlier = np.zeros((1001, 1)), np.zeros((1001, 1))
    outlier[7] = 1.0
    assert plan.centre(outlier)[1] == plan.centre(alike)[1]
    assert other.centre(outlier)[1] > 5 * other.centre(alike)[1]


@pytest.mark.parametrize(("epsilon", "delta", "d"), [(1.0, 1e-5, 1), (0.5, 1e-3, 10), (2.0, 1e-8, 3)])
def test_noise_in_proportion_to_a_smooth_scale_keeps_its_claim(epsilon: float, delta: float, d: int) -> None:
    """Exact: N(0, I) against N(shift, r^2 I) through noncentral chi-square laws, at the largest shift and
    r."""
    log = math.log(2 / delta)
    gamma, beta = epsilon / (5 * math.sqrt(2 * log)), epsilon / (4 * (d + log))
    for r in np.exp(np.linspace(0, beta, 6)[1:]):
        # log p/q = d log r + |x - shift|^2 / (2 r^2) - |x|^2 / 2 exceeds epsilon inside a ball around
        # -shift/(r^2-1).
        k = 1 / r**2 - 1
        centre = gamma / r**2 / k
        radius = (2 * (epsilon - d * math.log(r)) - gamma**2 / r**2) / k + centre**2
        if radius > 0:
            p = stats.ncx2.cdf(radius, d, centre**2)
            q = stats.ncx2.cdf(radius / r**2, d, ((centre - gamma) / r) ** 2)
            assert p - math.exp(epsilon) * q <= delta
        # And the other way: q exceeds e^epsilon p outside a ball.
        radius = (2 * (-epsilon - d * math.log(r)) - gamma**2 / r**2) / k + centre**2
        q = stats.ncx2.sf(radius / r**2, d, ((centre - gamma) / r) ** 2)
        p = stats.ncx2.sf(radius, d, centre**2)
        assert q - math.exp(epsilon) * p <= delta


def test_the_predicted_noise_is_that_of_its_assumption() -> None:
    """Two estimates at the assumed distance; and of a few that agree, the whole ball."""
    many, few = planned(m=1000, d=1, n=10**5), planned(m=102, epsilon=2.0, n=10**6)
    apart = math.sqrt(2 * 1000 / 10**5)
    halves = np.where(np.arange(1000)[:, None] % 2, apart, 0.0)
    _, scale = many.centre(halves)
    _, agreed = many.centre(np.zeros((1000, 1)))
    measure = many.noise_to_signal
    assert scale / many.gamma == pytest.approx(measure.ratio, rel=0.05)
    assert agreed / many.gamma < 0.1 * measure.ratio
    assert f"{apart:.2g} apart" in measure.unit
    _, scale = few.centre(np.zeros((102, 1)))
    assert scale / few.gamma == pytest.approx(few.noise_to_signal.ratio, rel=1e-6)
    assert "however well subsets agree" in few.noise_to_signal.warning


def test_refusals() -> None:
    with pytest.raises(PrivacyParameterError, match="more than 100 subsets"):
        planned(m=100, d=5)  # 1 = 2 * 5 / sqrt(100)
    with pytest.raises(PrivacyParameterError, match="too few"):
        planned(m=20, epsilon=0.9)
    with pytest.raises(PrivacyParameterError, match="empty"):
        planned(m=400, n=300)
    with pytest.raises(PlanMismatchError, match="400 records"):
        planned().release(np.zeros((3, 1)), np.zeros(3), RiskMinimizer(PLAIN_SQUARES))


def always_fails(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    raise RuntimeError("a subset that cannot be fitted")


def returns_nonsense(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.array([math.nan, 1.0, 2.0])


@pytest.mark.parametrize("estimator", [always_fails, returns_nonsense])
def test_an_oracle_that_fails_has_the_origin_for_an_answer(estimator: object) -> None:
    found = planned().release(
        np.ones((400, 1)),
        np.ones(400),
        estimator,  # type: ignore[arg-type]
        NoiseSource(insecure_seed=0),
    )
    assert abs(found.point[0]) <= 64.0
    assert found.spend.insecure_seed == 0


def test_a_loss_stands_for_its_empirical_risk() -> None:
    plan = dataclasses.replace(planned(), n_records=60, subsets=3, averaged=2, gamma=100.0)
    X, y = np.ones((60, 1)), np.random.default_rng(0).pareto(2.0, 60) / 10
    found = [
        plan.release(X, y, *which, noise=NoiseSource(insecure_seed=1)).point[0]
        for which in ((), (PLAIN_SQUARES,), (RiskMinimizer(PLAIN_SQUARES),), (HuberLoss(0.1),))
    ]
    assert found[0] == found[1] == found[2] != found[3]


def files_there_are(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    folder = Path(os.environ["JOBLIB_TEMP_FOLDER"])
    return np.array([float(len(list(folder.rglob("*.pkl"))))])


def test_workers_get_their_records_through_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """joblib maps arrays of more than a megabyte into memory from files that stay after a kill."""
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    seen: list[np.ndarray] = []
    m, each = 3, 140_000
    plan = dataclasses.replace(planned(), n_records=m * each, subsets=m, averaged=2)
    monkeypatch.setattr(SampleAggregate, "shortened", lambda self, z: (seen.append(z), z)[1])
    plan.release(np.zeros((m * each, 1)), np.zeros(m * each), files_there_are, workers=2)
    assert not np.any(seen[0])


def test_it_aggregates_least_squares_and_logistic_fits() -> None:
    rng = np.random.default_rng(0)
    n, m = 40_000, 2000
    X = rng.standard_normal((n, 1))
    y = 0.5 * X[:, 0] + 0.1 * rng.standard_t(3, n)
    plan = SampleAggregate.plan(n, 1, subsets=m, radius=1.0, epsilon=20.0, delta=1e-2)
    found = plan.release(X, y, RiskMinimizer(PLAIN_SQUARES), NoiseSource(insecure_seed=1))
    assert found.point[0] == pytest.approx(0.5, abs=0.2)
    w = RiskMinimizer(LogisticLoss(), l2=0.1)(X[:500], np.where(y[:500] > 0, 1.0, -1.0))
    assert w[0] > 0.5


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize("delta", [0.1, 1e-6])
@pytest.mark.parametrize("epsilon", [10.0, 30.0, 100.0, 1000.0])
def test_large_budgets_get_no_less_noise_than_they_pay_for(d: int, delta: float, epsilon: float) -> None:
    """Exact, for one coordinate: N(0, 1) against N(shift, r^2), at the largest shift and the largest r.

    The constants of Nissim et al. would have a true delta of 0.88 at (30, 0.1), and 0.8 at (100, 1e-6).
    """
    plan = SampleAggregate.plan(400, d, subsets=400, radius=1.0, epsilon=epsilon, delta=delta)
    beta = plan.decay + math.log((plan.averaged + 1) / (plan.averaged - 1))
    z = np.linspace(-14, 14, 20_001)
    for r in (math.exp(-beta), 1.0, math.exp(beta)):
        for shift in (-plan.gamma, plan.gamma):
            loss = stats.norm.logpdf(z) - stats.norm.logpdf(z, shift, r)
            excess = stats.norm.pdf(z) * np.maximum(0, -np.expm1(epsilon - np.maximum(loss, epsilon)))
            assert np.trapezoid(excess, z) <= delta


def test_a_radius_that_squares_cannot_hold_is_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="radius"):
        SampleAggregate.plan(400, 1, subsets=400, radius=1e-170, epsilon=1.0, delta=1e-2)


class WarmSlope:
    """A slope that goes on from where the last call left it, as warm starts do."""

    def __init__(self) -> None:
        self.model = SGDRegressor(warm_start=True, max_iter=1, tol=None, random_state=0)

    def __call__(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.fit(rows, labels).coef_)


def sums_in_a_closure() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    seen: list[float] = []

    def ask(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        seen.append(float(np.sum(labels)))
        return np.array([sum(seen)])

    return ask


class DrawsAsManyAsItSees:
    """Takes numbers from the global generators, how many depends on the labels."""

    def __call__(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        drawn = np.random.uniform(size=int(labels.max()) + 1)  # noqa: NPY002
        return np.array([drawn[-1] + (random.random() if labels.max() else 0.0)])


class OwnGenerator:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return self.rng.uniform(size=int(labels.max()) + 1)[-1:]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(WarmSlope(), id="warm start"),
        pytest.param(sums_in_a_closure(), id="closure"),
        pytest.param(DrawsAsManyAsItSees(), id="global generators"),
        pytest.param(OwnGenerator(), id="own generator"),
        pytest.param(WarmSlope().__call__, id="bound method"),
    ],
)
def test_replacing_a_record_changes_the_answer_of_its_own_subset_alone(
    estimator: Estimator, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof moves one estimate out of m."""
    seen: list[np.ndarray] = []
    monkeypatch.setattr(SampleAggregate, "shortened", lambda self, z: (seen.append(z.copy()), z)[1])
    plan = dataclasses.replace(planned(), n_records=24, subsets=6, averaged=2)
    X, y = np.linspace(-1, 1, 24)[:, None], np.zeros(24)
    for far in (0.0, 40.0):
        y[5] = far
        plan.release(X, y, estimator, NoiseSource(insecure_seed=3), workers=workers)
    assert np.sum(np.any(seen[0] != seen[1], axis=1)) == 1


def test_an_estimator_is_copied_as_it_was_before_the_release() -> None:
    estimator = OwnGenerator()
    before = estimator.rng.bit_generator.state
    state = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    planned().release(np.ones((400, 1)), np.zeros(400), estimator, NoiseSource(insecure_seed=0))
    assert estimator.rng.bit_generator.state == before
    assert random.getstate() == state[0]
    assert np.array_equal(np.random.get_state()[1], state[1])  # type: ignore[index]  # noqa: NPY002


class HoldsALock:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.zeros(1)


class DoesNotComeBack:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)

    def __call__(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.zeros(1)


@pytest.mark.parametrize("estimator", [HoldsALock(), DoesNotComeBack(), iter(())])
def test_an_estimator_that_cannot_be_copied_is_refused_before_records_are_read(estimator: object) -> None:
    with pytest.raises(InvalidInputError, match=r"copy|function"):
        planned().release("never read", "neither", estimator)  # type: ignore[arg-type]


def test_a_copy_draws_from_states_of_its_own_and_leaves_the_others() -> None:
    ask = FreshCopies.of(lambda rows, labels: (random.random(), np.random.random()))  # noqa: NPY002
    rows, labels, before = np.zeros((2, 1)), np.zeros(2), random.getstate()
    first, again, other = (ask(seed, rows, labels) for seed in (3, 3, 4))
    assert first == again
    assert not set(first) & set(other)  # type: ignore[call-overload]
    assert random.getstate() == before

"""Every mechanism under extreme public parameters: the plan refuses in our words, or a release works.

Nothing that follows from public facts may fail after a booking. So any error of a plan but ours is a fault,
NumPy's warnings among them, and so is a release that raises another error than ours, gives what is no number,
or is refused for every table tried.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.discrete import calibration
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.descent import Descent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.privacy.accounting import zcdp_epsilon
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import ENTRIES, Family
from privopt.oracles.convex.smooth import minimize_ridge
from privopt.oracles.errors import CertificateError
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, Loss, SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import PrivOptError
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.made_up import synthetic_rows
from privopt.problems.tables.schema import Schema

Parameters = dict[str, Any]
Make = Callable[[Parameters], tuple[Any, Iterator[Callable[[], Any]]]]

# Planning these takes a second, whatever the parameters: `slow` has more of them.
SAMPLED = {"dp-sgd", "dp-svrg", "dp-svrg++", "robust-sgd"}
SLOW = SAMPLED | {"rspm"}
EPSILON = (1e-12, 1e-9, 1e-3, 1e3, 1e9, 1e12)
DELTA = (1e-300, 1e-200, 1e-12, 0.5, 1 - 2.0**-53)
RECORDS = (1, 2, 10**6, 10**12, 10**18)
SIZES = (1e-300, 1e-150, 1e-30, 1e30, 1e150, 1e300)
LOSSES: tuple[Loss, ...] = (
    SigmoidLoss(),
    HuberLoss(1e-30),
    HuberLoss(1e30),
    SquaredLoss(1e60),
    SquaredLoss(1e-60),
)
RISK: Parameters = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "n": RECORDS,
    "d": (1, 1000),
    "row_norm": (1e-100, 1e-90, 1e-30, 1e30, 1e90, 1e100),
    "loss": LOSSES,
    "l2": SIZES,
    "size": SIZES,
    "steps": (1, 10**7, 10**12),
    "releases": (1000, 10**9),
}
USUAL: Parameters = {"epsilon": 1.0, "delta": 1e-6, "n": 12, "d": 2, "steps": 2, "releases": 1}


def named(*families: Family) -> list[Any]:
    return [
        pytest.param(entry.load, id=f"{entry.family.name.lower()}-{entry.name}")
        for entry in ENTRIES
        if entry.family in families
    ]


def extremes(of: Parameters, together: int) -> Iterator[Parameters]:
    """One parameter after the other is extreme, or several together."""
    for names in itertools.combinations(of, together):
        for values in itertools.product(*(of[name] for name in names)):
            yield dict(zip(names, values, strict=True))


def faults(given: Parameters, make: Make) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            _, releases = make({**USUAL, **given})
    except PrivOptError:
        return []
    except Exception as error:  # whatever a plan raises that is not ours
        return [f"{given}: the plan raised {type(error).__name__}: {error}"]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        outcomes = [outcome(release) for release in releases]
    wrong = [f"{given}: {found}" for found in outcomes if found and not found.startswith("refused")]
    return wrong + [f"{given}: {found}" for found in outcomes[:1] if all(outcomes) and not wrong]


def outcome(release: Callable[[], Any]) -> str:
    try:
        made = release()
    except PrivOptError as refusal:
        return f"refused: {refusal}"
    except Exception as error:
        return f"a release raised {type(error).__name__}: {error}"
    points = [one.point for one in (made if isinstance(made, list) else [made])]
    return "" if np.all(np.isfinite(points)) else "a release is no number"


def labels(n: int, largest: float = 1.0) -> Any:
    return np.where(np.arange(n) % 3 > 0, largest, -largest)


def waves(p: Parameters) -> Any:
    """A table without zeros or equal rows, of n rows and d columns."""
    return np.cos(np.arange(p["n"] * p["d"])).reshape(p["n"], p["d"])


def source() -> NoiseSource:
    return NoiseSource(insecure_seed=1)


SOON = Limits(seconds=60.0)


def planned_risk(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    facts = RiskFacts(p["n"], p["d"], p.get("loss", LogisticLoss()), p.get("row_norm", 1.0))
    ball = L1Ball if kind.name == "dp-fw-l1" else L2Ball
    options = {"steps": p["steps"]} if kind.takes_steps and "svrg" not in kind.name else {}
    plan = kind.plan(
        facts,
        ball(p["d"], p["size"]) if "size" in p else None,
        ElasticNet(l2=p["l2"]) if "l2" in p else NO_REGULARIZER,
        epsilon=p["epsilon"],
        delta=p["delta"],
        releases=p["releases"],
        **options,
    )
    assert np.all(np.isfinite([*plan.noise.values()]))
    few = p["n"] * p["d"] <= 64 and plan.schedule.get("steps", 0) <= 50

    def release(X: Any) -> Any:
        y = labels(p["n"], min(getattr(facts.loss, "threshold", 1.0), 1e30))
        return plan.release(EmpiricalRisk(X, y, facts.loss, row_norm=facts.row_norm), source(), limits=SOON)

    tables = [np.zeros((p["n"], p["d"])), np.ones((p["n"], p["d"])), waves(p)] if few else []
    return plan, iter([lambda X=X: release(X * facts.row_norm) for X in tables])


@pytest.mark.parametrize("load", named(Family.RISK))
def test_risk_mechanisms(load: Callable[[], Any]) -> None:
    kind = load()
    of = {"epsilon": (1e12,), "n": (10**18,)} if kind.name in SAMPLED else RISK
    found = [f for p in extremes(of, 1) for f in faults(p, lambda q: planned_risk(kind, q))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("load", named(Family.RISK))
def test_risk_mechanisms_with_two_extremes(load: Callable[[], Any]) -> None:
    kind = load()
    pairs = extremes(RISK, 1 if kind.name in SAMPLED else 2)
    found = [f for p in pairs for f in faults(p, lambda q: planned_risk(kind, q))]
    assert not found, "\n".join(found)


def planned_fit(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    n, loss = p["n"], p.get("loss", LogisticLoss())
    budget = {"epsilon": p["epsilon"], "delta": p["delta"]}
    plan = kind.plan(n, p["d"], loss, steps=p["steps"], releases=p["releases"], **budget)
    few = n * p["d"] <= 200 and p["steps"] <= 50 and p["releases"] < 9

    def release(size: float) -> Any:
        X = size * waves(p)
        y = labels(n, 1.0 if isinstance(loss, LogisticLoss) else size)
        return plan.release(X, [y] * p["releases"], source(), SOON)

    return plan, iter([lambda s=s: release(s) for s in (0.0, 1.0, 1e300)] if few else [])


FITS: Parameters = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "n": RECORDS,
    "d": (1, 1000),
    "steps": (1, 10**12),
    "releases": (3, 10**9),
    "loss": (PLAIN_SQUARES,),
}


@pytest.mark.parametrize("load", named(Family.UNBOUNDED_FIT))
def test_fits_of_unbounded_records(load: Callable[[], Any]) -> None:
    kind = load()
    of = {"epsilon": (1e12,), "n": (10**18,)} if kind.name in SAMPLED else FITS
    found = [f for p in extremes(of, 1) for f in faults(p, lambda q: planned_fit(kind, q))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("load", named(Family.UNBOUNDED_FIT))
def test_fits_of_unbounded_records_with_two_extremes(load: Callable[[], Any]) -> None:
    kind = load()
    pairs = extremes(FITS, 1 if kind.name in SAMPLED else 2)
    found = [f for p in pairs for f in faults(p, lambda q: planned_fit(kind, q))]
    assert not found, "\n".join(found)


def planned_descent(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    n, d, loss = p["n"], p["d"], p.get("loss", LogisticLoss())
    guesses = {name: p[name] for name in ("smoothness", "distance") if name in p}
    known = {"mean_range": (p["low"], p["high"])} if kind.name == "trimmed-gd" else {"moment": p["moment"]}
    plan = kind.plan(
        unclipped_facts(n, d, loss),
        L2Ball(d, p["size"]) if "size" in p else None,
        ElasticNet(l2=p["l2"]) if "l2" in p else NO_REGULARIZER,
        epsilon=p["epsilon"],
        delta=p["delta"],
        steps=p["steps"],
        releases=p["releases"],
        descent=Descent(**guesses),
        **known,
    )
    assert np.all(np.isfinite([*plan.noise.values()]))
    few = n * d <= 64 and p["steps"] <= 50

    def release(size: float) -> Any:
        y = labels(n, 1.0 if isinstance(loss, LogisticLoss) else size)
        return plan.release(UnclippedRisk(size * waves(p), y, loss), source(), limits=SOON)

    return plan, iter([lambda s=s: release(s) for s in (0.0, 1.0, 1e300)] if few else [])


# The low ends of ranges differ from their high ends.
RANGES: Parameters = {"low": (-1e-300, -1e300, -1e60, 1 - 2.0**-53), "high": (-1 + 2.0**-53, 1e150, 1e300)}
DESCENTS: Parameters = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "n": RECORDS,
    "d": (1, 1000),
    "loss": (PLAIN_SQUARES,),
    "l2": SIZES,
    "size": SIZES,
    "steps": (1, 10**7, 10**12),
    "releases": (1000, 10**9),
    "moment": SIZES,
    "smoothness": SIZES,
    "distance": SIZES,
    **RANGES,
}
GUESSES: Parameters = {"moment": 1.0, "low": -1.0, "high": 1.0}


@pytest.mark.parametrize("load", named(Family.UNBOUNDED_RISK))
def test_descents_on_unbounded_records(load: Callable[[], Any]) -> None:
    kind = load()
    of = {"epsilon": (1e12,), "n": (10**18,)} if kind.name in SAMPLED else DESCENTS
    found = [f for p in extremes(of, 1) for f in faults({**GUESSES, **p}, lambda q: planned_descent(kind, q))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("load", named(Family.UNBOUNDED_RISK))
def test_descents_on_unbounded_records_with_two_extremes(load: Callable[[], Any]) -> None:
    kind = load()
    pairs = extremes(DESCENTS, 1 if kind.name in SAMPLED else 2)
    found = [f for p in pairs for f in faults({**GUESSES, **p}, lambda q: planned_descent(kind, q))]
    assert not found, "\n".join(found)


def planned_mean(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    n, d = p["n"], p["d"]
    trimmed = kind.name == "trimmed-mean"
    known = {"mean_range": (p["low"], p["high"])} if trimmed else {"moment": p["moment"]}
    plan = kind.plan(n, d, epsilon=p["epsilon"], delta=p["delta"], **known)
    tables = [np.zeros((n, d)), np.full((n, d), 1e300)] if n * d <= 64 else []
    return plan, iter([lambda X=X: plan.release(X, source()) for X in tables])


MEANS: Parameters = {"epsilon": EPSILON, "delta": DELTA, "n": RECORDS, "d": (1, 1000), "moment": SIZES}


@pytest.mark.parametrize("together", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("load", named(Family.MEAN))
def test_means(load: Callable[[], Any], together: int) -> None:
    kind = load()
    found = [
        f
        for p in extremes({**MEANS, **RANGES}, together)
        for f in faults({**GUESSES, **p}, lambda q: planned_mean(kind, q))
    ]
    assert not found, "\n".join(found)


def planned_draw(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    lattice = IntegerLattice(-1, p["high"], dimension=p["d"])
    budget = {"epsilon": p["epsilon"], "delta": p["delta"]}
    plan = kind.plan(ZeroOneHalfspace, lattice, loss_bound=p.get("bound"), **budget)
    few = p["d"] <= 2 and p["high"] == 1

    def release(y: list[int]) -> Any:
        problem = ZeroOneHalfspace(np.eye(3, p["d"], dtype=np.int64), y, lattice)
        return plan.release(prepare_oracle("enumerate", plan, problem), source(), SOON)

    return plan, iter([lambda y=y: release(y) for y in ([1, -1, 1], [1, 1, 1])] if few else [])


LATTICES: Parameters = {
    "epsilon": EPSILON,
    "delta": (*DELTA, 0.0),
    "high": (10**6, 10**12, 2**62),
    "d": (1, 30),
    "bound": (10**9, 10**18, 10**30),
}


@pytest.mark.parametrize("together", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("load", named(Family.LATTICE))
def test_lattice_mechanisms(load: Callable[[], Any], together: int) -> None:
    kind = load()
    few = {"epsilon": (1e-12, 1e12), "delta": (1e-300,)}
    found = [
        f
        for p in extremes(few if kind.name in SLOW and together == 1 else LATTICES, together)
        for f in faults({"high": 1, **p}, lambda q: planned_draw(kind, q))
    ]
    assert not found, "\n".join(found)


def planned_card(kind: Any, p: Parameters) -> tuple[Any, Iterator[Callable[[], Any]]]:
    n, columns = p["n"], [column() for column in p.get("columns", COLUMNS)]
    schema = Schema(columns, intercept=p.get("intercept", True))
    given = {name: p[name] for name in ("lattice", "class_weight", "prevalence", "max_columns") if name in p}
    model = PrivateHalfspaceClassifier(
        p["epsilon"],
        delta=p["delta"],
        mechanism=kind.name,
        schema=schema,
        classes=(-1, 1),
        risk_share=p.get("risk_share", 0.0),
        limits=SOON,
        insecure_seed=1,
        **given,
    )
    plan = model.plan(n)
    assert np.all(np.isfinite([*plan.plan.noise.values()]))
    few = n * schema.n_features <= 100

    def release(rows: Any, y: Any) -> Any:
        return model.fit(synthetic_rows(schema, n).iloc[rows], y).release_

    tables = [(range(n), labels(n)), ([0] * n, labels(n)), (range(n), np.ones(n))] if few else []
    return plan, iter([lambda X=X, y=y: release(list(X), y) for X, y in tables])


def number(*range_and_step: Any, **others: Any) -> Callable[[], Column]:
    return lambda: Numeric("x", *range_and_step, **others)


def names(size: int) -> Callable[[], Column]:
    return lambda: Categorical("c", [f"c{k}" for k in range(size)])


COLUMNS: tuple[Callable[[], Column], ...] = (number(0, 100, 10), names(2))
CARDS: Parameters = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "n": RECORDS,
    "columns": (
        (number(-(2**62), 2**62),),
        (number(-(2**62), 2**62, 2**61), names(2)),
        (number(1e-300, 1e300),),
        (number(0, 1, 1e-9),),
        (number(0, 1, 1, 1e-9, -1e-9),),
        (number(0, 100, 1, -1e15, 1e15), names(3)),
        (names(1),),
        (names(1000),),
        tuple(lambda k=k: Numeric(f"x{k}", 0, 1) for k in range(100)),
    ),
    "intercept": (False,),
    "lattice": (
        (-1, 1),
        (0, 0),
        (5, 9),
        (-(2**40), 2**40),
        (-(2**60), 2**60),
        (-(2**62), 2**62),
        (-1, 1, 2.0),
    ),
    "class_weight": ({-1: 1, 1: 1000}, {-1: 1000, 1: 1}, {-1: 1e-300, 1: 1e300}, "balanced"),
    "prevalence": (1e-300, 1 - 2.0**-53),
    "max_columns": (1, 10**6),
    "risk_share": (1e-12, 0.5, 1 - 2.0**-53),
}


@pytest.mark.parametrize("together", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("load", named(Family.CARD))
def test_cards(load: Callable[[], Any], together: int) -> None:
    kind = load()
    found = [f for p in extremes(CARDS, together) for f in faults(p, lambda q: planned_card(kind, q))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("kind", "facts", "ball"),
    [
        (DPStationaryPoint, {"row_norm": 1e-100}, None),
        (DPStationaryPoint, {"row_norm": 1e90}, None),
        (DPConstrainedStationaryPoint, {}, 1e-300),
        (DPConstrainedStationaryPoint, {}, 1e150),
    ],
)
def test_numbers_that_leave_the_doubles_are_refused_in_the_plan(
    kind: Any, facts: Parameters, ball: float | None
) -> None:
    """These were a ZeroDivisionError or an OverflowError."""
    with pytest.raises(PrivacyParameterError, match="leave the range of doubles"):
        kind.plan(
            RiskFacts(12, 2, LogisticLoss(), **facts),
            None if ball is None else L2Ball(2, ball),
            epsilon=1.0,
            delta=1e-6,
        )


def test_steps_that_noise_takes_beyond_the_doubles_are_refused_in_the_plan() -> None:
    """Every release was refused, after the booking, for weights that are no numbers."""
    with pytest.raises(PrivacyParameterError, match="leave the range of doubles"):
        RobustGradientDescent.plan(
            unclipped_facts(12, 2, LogisticLoss()),
            epsilon=1.0,
            delta=1e-6,
            moment=1e30,
            steps=2,
            descent=Descent(smoothness=1e-300),
        )


@pytest.mark.parametrize("radius", [1e30, 1e200])
def test_a_penalty_beyond_64_bits_on_a_net_is_refused_in_the_plan(radius: float) -> None:
    """Sums of losses wrapped around there, and 1e200 was an OverflowError in the release."""
    facts = RiskFacts(12, 2, LogisticLoss())
    with pytest.raises(PrivacyParameterError, match=r"64-bit sums|range of doubles"):
        NetMechanism.plan(facts, L2Ball(2, radius), ElasticNet(l2=1e-3), epsilon=1.0)


@pytest.mark.parametrize("l2", [1e-300, 1e-30])
def test_a_hessian_without_inverse_ends_in_our_words(l2: float) -> None:
    """It was NumPy's LinAlgError, after the booking: rows that are all alike have a Hessian of rank one."""
    risk = EmpiricalRisk(np.full((12, 2), 0.3), labels(12), LogisticLoss())
    answer = minimize_ridge(risk, l2, 1e-9, linear=np.array([1e-3, -1e-3]))
    with pytest.raises(CertificateError):
        answer.require(1e-9)
    minimize_ridge(risk, l2, 1e-9).require(1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-24])
def test_a_delta_that_no_noise_reaches_is_refused_at_once(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search doubled the noise a thousand times first, a minute and more."""
    asked, real = [], calibration.rspm_delta
    monkeypatch.setattr(calibration, "rspm_delta", lambda *a, **k: asked.append(1) or real(*a, **k))
    with pytest.raises(PrivacyParameterError, match=r"delta = .* is below .*, the least that is computed"):
        calibration.rspm_sigma(1.0, delta, calibration.SeparatorCounts(0, 2))
    assert len(asked) == 1


@pytest.mark.parametrize("delta", [1e-300, 1e-200, 1e-6])
@pytest.mark.parametrize("rho", [5e-324, 1e-310])
def test_an_epsilon_that_cannot_be_computed_is_not_zero(rho: float, delta: float) -> None:
    """NaN became 0. Total variation is at most sqrt(rho / 2) (Pinsker): epsilon = 0 needs delta above it."""
    assert zcdp_epsilon(rho, delta) > 0 or math.sqrt(rho / 2) <= delta

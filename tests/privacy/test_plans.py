"""Plans of every mechanism, for random public parameters: they spend what they claim, and hardly less.

What a plan spends is worked out again from its noise, by a formula or, for Poisson batches, by another
discretisation of the privacy loss than the one that calibrates.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.discrete.calibration import normalized_dof, opdisc_shift, rspm_delta, separator_counts
from privopt.mechanisms.privacy.accounting import (
    gaussian_epsilon,
    gaussian_mu,
    zcdp_epsilon,
)
from privopt.mechanisms.privacy.parameters import smallest
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet, ridge
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import PrivOptError
from tests.mechanisms.privacy.composition import GaussianSteps, composed_epsilon, shift_epsilon

EPSILONS = st.floats(math.log(0.05), math.log(8)).map(math.exp)
DELTAS = st.floats(math.log(1e-9), math.log(1e-2)).map(math.exp)
FACTS = st.builds(
    RiskFacts,
    st.integers(2, 1_000_000),
    st.integers(1, 200),
    st.sampled_from([LogisticLoss(), HuberLoss(0.3), HuberLoss(20.0)]),
    st.sampled_from([0.1, 1.0, 7.0]),
    st.sampled_from(["l2", "linf"]),
)
# Costly to plan; their own tests below use few parameters.
SAMPLED = ("dp-sgd", "dp-svrg", "dp-svrg++")
# Purely private with a cost that grows with the dimension, or several noises: tests/mechanisms/nonconvex, and
# test_perturbation_with_hessian and test_screened_statistics in tests/mechanisms/convex.
ELSEWHERE = (
    "net", "dp-sosp", "dp-newton", "dp-spider", "dp-gd-so", "objective-perturbation-hessian",
    "screened-statistics",
)  # fmt: skip
QUICK = sorted(set(RISK_MECHANISMS) - set(SAMPLED) - set(ELSEWHERE))


def space(name: str, dimension: int) -> ConvexSet:
    if name == "dp-fw-l1":
        return L1Ball(dimension, 3.0)
    whole = name in ("dp-gd", "dp-gld", "sufficient-statistics")
    return WholeSpace(dimension) if whole else L2Ball(dimension, 3.0)


def planned(name: str, facts: RiskFacts, epsilon: float, delta: float, **options: Any) -> Any:
    kind: Any = RISK_MECHANISMS[name]
    if name == "sufficient-statistics" and isinstance(facts.loss, HuberLoss):
        facts = dataclasses.replace(facts, loss=SquaredLoss(facts.loss.threshold))
    return kind.plan(facts, space(name, facts.dimension), epsilon=epsilon, delta=delta, **options)


def steps_of(name: str, steps: int) -> dict[str, int]:
    return {} if name.endswith(("perturbation", "statistics")) else {"steps": steps}


def spent(plan: Any) -> float:
    """epsilon at the plan's delta, from its noise and the sensitivities that the theory gives."""
    delta, facts = plan.spend.delta, plan.facts
    n, bound = facts.n_records, facts.gradient_bound
    if plan.name == "dp-fw-l1":
        moved = min(2 * facts.gradient_bound_linf * 3.0, 2 * bound * 3.0) / n
        return zcdp_epsilon(plan.steps * (2 * moved / plan.selection.scale) ** 2 / 8, delta)
    if plan.name == "output-perturbation":
        return gaussian_epsilon(2 * bound / (n * plan.regularizer.l2) / plan.vector_noise.sigma, delta)
    if plan.name == "sufficient-statistics":
        return gaussian_epsilon(3 / math.sqrt(2) * facts.row_norm_l2**2 / n / plan.vector_noise.sigma, delta)
    if plan.name == "objective-perturbation":
        hidden = gaussian_epsilon(
            2 * plan.tolerance / plan.regularizer.l2 / plan.vector_noise.sigma, 0.1 * delta
        )
        hessians = math.log1p(facts.smoothness / (n * plan.regularizer.l2))
        shift = shift_epsilon(0.9 * delta, plan.sigma, 2 * bound / n, min(2, facts.dimension))
        return hidden + hessians + shift
    if plan.name == "dp-sgd":
        noise = GaussianSteps(plan.vector_noise.sigma / (2 * bound), plan.sampling, plan.steps)
        return composed_epsilon([noise], delta)
    if plan.name in SAMPLED:
        batches = GaussianSteps(plan.multiplier / 2, plan.sampling, sum(plan.rounds))
        alike = sum(noise.sigma**-2.0 for noise in plan.anchor_noises) ** -0.5  # one Gaussian release
        return composed_epsilon([batches, GaussianSteps(alike * n / (2 * bound), 1.0, 1)], delta)
    return gaussian_epsilon(math.sqrt(plan.steps) * 2 * bound / n / plan.vector_noise.sigma, delta)


def noise_of(plan: Any) -> float:
    """Standard deviation, in units of the data."""
    if plan.name == "dp-fw-l1":
        return float(plan.selection.scale)
    if plan.name == "objective-perturbation":
        return float(plan.sigma)
    if plan.name.startswith("dp-svrg"):
        return float(plan.multiplier)
    return float(plan.vector_noise.sigma)


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=40, deadline=None)
@given(EPSILONS, DELTAS, FACTS, st.integers(1, 300))
def test_first_order_plans_spend_their_claim(
    name: str, epsilon: float, delta: float, facts: RiskFacts, steps: int
) -> None:
    plan = planned(name, facts, epsilon, delta, **steps_of(name, steps))
    assert plan.spend.epsilon <= epsilon * (1 + 1e-12)
    assert plan.spend.delta <= delta
    assert 0.99 * epsilon <= spent(plan) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=15, deadline=None)
@given(EPSILONS, DELTAS, FACTS, st.integers(1, 300), st.floats(1.05, 3.0))
def test_first_order_noise_is_monotone(
    name: str, epsilon: float, delta: float, facts: RiskFacts, steps: int, factor: float
) -> None:
    """Less noise for more epsilon, delta or records; more for more steps; never less for more features."""
    # A penalty of one's own: the default one follows the noise.
    options = {"regularizer": ridge(10.0)} if name.endswith("perturbation") else {}

    def noise(e: float = epsilon, q: float = delta, n: int = 1, p: int = 0, t: int = steps) -> float:
        # Rows clipped in l2, so that features alone do not move G.
        public = RiskFacts(n * facts.n_records, p + facts.dimension, facts.loss, facts.row_norm)
        return noise_of(planned(name, public, e, q, **steps_of(name, t), **options))

    base = noise()
    assert noise(e=epsilon * factor) < base
    assert noise(q=delta * factor) < base
    assert noise(n=3) < base
    assert noise(p=5) >= base * (1 - 1e-12)
    if steps_of(name, steps):
        assert noise(t=2 * steps) > base


def spent_together(plan: Any, releases: int) -> float:
    """epsilon of so many releases of a plan, by the rule that its docstring names."""
    delta = plan.spend.delta
    if plan.name == "objective-perturbation":  # even shares of epsilon and delta, which add up
        spend = dataclasses.replace(plan.spend, delta=delta / releases)
        return releases * spent(dataclasses.replace(plan, spend=spend))
    if plan.name == "dp-fw-l1":  # rho adds up
        return spent(dataclasses.replace(plan, steps=releases * plan.steps))
    return gaussian_epsilon(math.sqrt(releases) * gaussian_mu(spent(plan), delta), delta)


@pytest.mark.parametrize("releases", [2, 3])
@pytest.mark.parametrize("name", QUICK)
def test_several_releases_spend_the_claim_together(name: str, releases: int) -> None:
    facts = RiskFacts(400, 3, LogisticLoss())
    plan = planned(name, facts, 1.0, 1e-5, **steps_of(name, 7), releases=releases)
    assert (plan.spend.epsilon, plan.spend.delta) == (1.0, 1e-5)
    assert 0.99 <= spent_together(plan, releases) <= 1 + 1e-9
    assert getattr(plan, "steps", 1) == steps_of(name, 7).get("steps", 1)
    with pytest.raises(PrivOptError, match="releases"):
        planned(name, facts, 1.0, 1e-5, **steps_of(name, 7), releases=0)


SAMPLED_CASES = [(1.0, 1e-5, 2000, 40, 100), (0.3, 1e-2, 100, 100, 3)]


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize(("epsilon", "delta", "n", "batch", "steps"), SAMPLED_CASES)
def test_sampled_plans_spend_their_claim(
    name: str, epsilon: float, delta: float, n: int, batch: int, steps: int
) -> None:
    check_sampled(name, epsilon, delta, n, batch, steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
@settings(max_examples=15, deadline=None)
@given(
    st.floats(math.log(0.2), math.log(5)).map(math.exp),
    st.floats(math.log(1e-7), math.log(1e-2)).map(math.exp),
    st.integers(10, 100_000),
    st.integers(1, 500),
    st.integers(1, 300),
)
def test_sampled_plans_spend_their_claim_anywhere(
    name: str, epsilon: float, delta: float, n: int, batch: int, steps: int
) -> None:
    check_sampled(name, epsilon, delta, n, min(batch, n), steps)


def check_sampled(name: str, epsilon: float, delta: float, n: int, batch: int, steps: int) -> None:
    facts = RiskFacts(n, 5, LogisticLoss())

    def made(**changes: Any) -> Any:
        options = {"epsilon": epsilon, "delta": delta, "steps": steps, **changes}
        if name != "dp-sgd":
            options["rounds"] = (options.pop("steps"),) * 2
        return planned(name, facts, batch=batch, **options)

    plan = made()
    # The two discretisations agree to a few parts in ten thousand.
    assert 0.99 * epsilon <= spent(plan) <= epsilon * (1 + 1e-3)
    assert noise_of(made(steps=2 * steps)) > noise_of(plan)


@settings(max_examples=25, deadline=None)
@given(EPSILONS, st.integers(1, 60), st.integers(1, 4))
def test_pure_lattice_plans_spend_their_claim(epsilon: float, d: int, high: int) -> None:
    lattice = IntegerLattice(-1, high, dimension=d)
    for name in ("exponential", "permute-and-flip"):
        plan: Any = MECHANISMS[name].plan(ZeroOneHalfspace, lattice, epsilon=epsilon)
        # One record moves the loss of a point by 1, numerator and normaliser by exp(beta) each.
        assert plan.spend.epsilon == epsilon
        assert 0.99 * epsilon <= 2 * plan.beta <= epsilon
    laplace: Any = MECHANISMS["rspm-laplace"].plan(
        ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=d), epsilon=epsilon
    )
    separators = ZeroOneHalfspace.separators(laplace.lattice).size
    # Each weight moves by 2.
    assert 0.99 * epsilon <= 2 * separators / laplace.scale <= epsilon


@settings(max_examples=25, deadline=None)
@given(EPSILONS, DELTAS, st.integers(1, 60))
def test_opdisc_plans_spend_their_claim(epsilon: float, delta: float, d: int) -> None:
    lattice = MECHANISMS["opdisc"].default_lattice(d)
    plan: Any = MECHANISMS["opdisc"].plan(ZeroOneHalfspace, lattice, epsilon=epsilon, delta=delta)
    shift = opdisc_shift(lattice.max_squared_norm, lattice.separation, 2.0)
    found = shift_epsilon(delta, plan.sigma, shift, normalized_dof(lattice))
    assert 0.99 * epsilon <= found <= epsilon * (1 + 1e-9)


@settings(max_examples=4, deadline=None)
@given(EPSILONS, DELTAS, st.integers(1, 40))
def test_gaussian_rspm_plans_spend_their_claim(epsilon: float, delta: float, d: int) -> None:
    lattice = IntegerLattice(-1, 1, dimension=d)
    plan: Any = MECHANISMS["rspm"].plan(ZeroOneHalfspace, lattice, epsilon=epsilon, delta=delta)
    counts = separator_counts(ZeroOneHalfspace.separators(lattice))

    def holds(e: float) -> bool:
        return rspm_delta(e, plan.scale, counts) <= delta

    assert 0.99 * epsilon <= smallest(holds, start=epsilon, width=1e-3) <= epsilon * (1 + 2e-3)
    more: Any = MECHANISMS["rspm"].plan(
        ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=d + 1), epsilon=epsilon, delta=delta
    )
    assert more.scale > plan.scale


def test_no_mechanism_is_left_out() -> None:
    assert set(QUICK) | set(SAMPLED) | set(ELSEWHERE) == set(RISK_MECHANISMS)
    assert set(MECHANISMS) == {"exponential", "permute-and-flip", "rspm-laplace", "opdisc", "rspm"}


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 0), st.floats(), st.text(max_size=5))
JUNK = st.one_of(SCALARS, st.lists(st.integers(-3, 0), max_size=2), st.just(10**400), st.just(object()))
GOOD: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


def takes(value: object, low: float, high: float) -> bool:
    """Whether junk happens to be a number in (low, high)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low < value < high


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(RISK_MECHANISMS)),
    st.sampled_from(["epsilon", "delta", "steps", "batch", "rounds"]),
    JUNK,
)
def test_bad_parameters_are_refused_in_the_documented_classes(name: str, field: str, junk: Any) -> None:
    kind: Any = RISK_MECHANISMS[name]
    sampled = {"dp-sgd": {"steps", "batch"}, "dp-svrg": {"rounds", "batch"}, "dp-svrg++": {"rounds", "batch"}}
    if name in ELSEWHERE and field != "epsilon":
        return
    known = sampled.get(name, set(steps_of(name, 1)))
    if field not in known | set(GOOD):
        return
    default = junk is None and field not in GOOD
    whole = field not in GOOD and isinstance(junk, float) and junk >= 1 and junk.is_integer()  # a count
    if default or whole or takes(junk, 0, {"epsilon": math.inf, "delta": 1}.get(field, 0)):
        return
    facts = RiskFacts(100, 3, LogisticLoss())
    regularizer = ridge(0.1) if name == "dp-svrg" else ElasticNet()
    with pytest.raises(PrivOptError):
        kind.plan(facts, space(name, 3), regularizer, **{**GOOD, field: junk})


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(MECHANISMS)), st.sampled_from(["epsilon", "delta", "calibration"]), JUNK)
def test_bad_lattice_parameters_are_refused_in_the_documented_classes(
    name: str, field: str, junk: Any
) -> None:
    pure = name in ("exponential", "permute-and-flip", "rspm-laplace")
    if takes(junk, 0, {"epsilon": math.inf, "delta": 1}.get(field, 0)):
        return
    if field == "delta" and pure and takes(junk, -1e-300, 1e-300):
        return
    if field == "calibration" and junk in ("sound", "printed"):
        return  # strings of the source are among what hypothesis draws
    with pytest.raises(PrivOptError):
        MECHANISMS[name].plan(ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=2), **{**GOOD, field: junk})


def scaled(plan: Any, factor: float) -> Any:
    """The plan with that much noise."""
    if plan.name == "dp-fw-l1":
        selection = dataclasses.replace(plan.selection, step_epsilon=plan.selection.step_epsilon / factor)
        return dataclasses.replace(plan, selection=selection)
    if plan.name == "objective-perturbation":
        return dataclasses.replace(plan, sigma=plan.sigma * factor)
    noise = dataclasses.replace(plan.vector_noise, sigma=plan.vector_noise.sigma * factor)
    return dataclasses.replace(plan, vector_noise=noise)


@pytest.mark.parametrize("name", QUICK)
def test_the_check_notices_a_little_too_much_and_too_little_noise(name: str) -> None:
    plan = planned(name, RiskFacts(100, 3, LogisticLoss()), 1.0, 1e-5, **steps_of(name, 10))
    assert spent(scaled(plan, 0.98)) > 1.0
    assert spent(scaled(plan, 1.03)) < 0.99

"""Weights of records for cards: the loss of a record grows with its weight, the noise with their bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import ExponentialMechanism, PrivateHalfspaceClassifier
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.ambient import budget
from privopt.problems import Binned, InvalidInputError, Schema, ZeroOneHalfspace
from privopt.problems.discrete.costs import Costs
from privopt.problems.discrete.lattice import IntegerLattice

LATTICE, COSTS, BOUND = IntegerLattice(-1, 1, dimension=2), Costs(2, 1), 3
POINTS = np.array(list(LATTICE.points()))
# All records of two features in {0, 1}, and of every weight.
RECORDS = list(itertools.product([(0, 1), (1, 0), (1, 1)], (-1, 1), range(BOUND + 1)))


def problem(*records: tuple[tuple[int, int], int, int]) -> ZeroOneHalfspace:
    X, y, weights = zip(*records, strict=True)
    return ZeroOneHalfspace(X, y, LATTICE, COSTS, weights=weights, max_weight=BOUND)


REST = [((1, 0), 1, 2), ((0, 1), -1, 3), ((1, 1), -1, 0)]


def test_a_record_counts_as_often_as_it_weighs() -> None:
    weighted = problem(*REST)
    X, y, w = zip(*REST, strict=True)
    repeated = ZeroOneHalfspace(np.repeat(X, w, axis=0), np.repeat(y, w), LATTICE, COSTS)
    np.testing.assert_array_equal(weighted.losses(POINTS), repeated.losses(POINTS))
    assert weighted.n_records == 3  # not the sum of weights, 5, which is private
    assert weighted.largest_loss == 3 * BOUND * COSTS.largest


def test_no_neighbours_refute_the_bound_on_losses_or_epsilon() -> None:
    plan = ExponentialMechanism.plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, loss_bound=COSTS.largest * BOUND)
    losses = np.array([problem(*REST, record).losses(POINTS) for record in RECORDS])
    moved = max(int(np.abs(a - b).max()) for a, b in itertools.combinations(losses, 2))
    assert moved == problem(*REST).record_loss_bound == COSTS.largest * BOUND
    laws = np.exp(-plan.beta * losses)
    laws /= laws.sum(axis=1, keepdims=True)
    worst = max(float(np.log(p / q).max()) for p, q in itertools.permutations(laws, 2))
    assert 0.5 < worst <= 1.0


def test_a_plan_for_smaller_weights_refuses_the_problem() -> None:
    plan = ExponentialMechanism.plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, loss_bound=COSTS.largest)
    with pytest.raises(PlanMismatchError, match="lose at most 2 each; here one may lose 6"):
        plan.check_problem(problem(*REST))


@pytest.mark.parametrize("weights", [[1, 2, 4], [1, -1, 2], [1.0, 2.0, 3.0], [1, 2]])
def test_weights_are_whole_numbers_within_the_bound(weights: list[float]) -> None:
    X, y, _ = zip(*REST, strict=True)
    with pytest.raises(InvalidInputError, match="weights"):
        ZeroOneHalfspace(X, y, LATTICE, COSTS, weights=weights, max_weight=BOUND)


SCHEMA = Schema([Binned("a", [0, 4, 8]), Binned("b", [0, 4, 8])], intercept=True)
MECHANISMS = {"seeded": {}, "exponential": {"lattice": (-1, 1)}, "permute-and-flip": {"lattice": (-1, 1)}}


def card(mechanism: str, **more: object) -> PrivateHalfspaceClassifier:
    facts = {"schema": SCHEMA, "classes": (0, 1), "max_weight": BOUND, **MECHANISMS[mechanism]}
    return PrivateHalfspaceClassifier(20.0, mechanism=mechanism, insecure_seed=0, **{**facts, **more})


def task(n: int = 1500) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.random(n) * 8, "b": rng.random(n) * 8})
    return X, (X.a > 4).to_numpy().astype(int), rng.random(n) < 0.6


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_of_weight_0_do_not_matter_and_noise_follows_the_bound(mechanism: str) -> None:
    """Six labels of ten are wrong, and weigh nothing; beyond the bounds weights are clipped and rounded."""
    X, y, wrong = task()
    given = np.where(wrong, 0.4, 1e9)
    model = card(mechanism).fit(X, np.where(wrong, 1 - y, y), sample_weight=given)
    assert model.score(X, y) > 0.95
    noise, bare = model.release_.noise, card(mechanism).fit(X, y).release_.noise
    assert noise["beta"] == pytest.approx(bare["beta"] / BOUND)
    if mechanism == "seeded":
        assert noise["sigma"] == pytest.approx(bare["sigma"])  # of the linear model: weights are free there
    assert model.spend_.epsilon == pytest.approx(20)
    assert card(mechanism).plan(len(X)).plan.noise["beta"] == noise["beta"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"max_weight": None}, "needs max_weight"),
        ({"max_weight": 2.5}, "max_weight must be a whole number"),
        ({"risk_share": 0.2}, "not taken together with risk_share"),
        ({"class_weight": "balanced"}, "without a declared prevalence"),
        ({"classes": (0, 1, 2)}, "two classes"),
        ({"mechanism": "rspm"}, "'rspm' takes no weights of records"),
        ({"person": "id"}, "not taken together with person"),
    ],
)
def test_what_takes_no_weights_is_refused_by_plans_and_before_bookings(
    more: dict[str, object], why: str
) -> None:
    X, y, _ = task(50)
    with budget(epsilon=50.0, delta=1e-2) as book:
        with pytest.raises((InvalidInputError, PrivacyParameterError), match=why):
            card("exponential").set_params(**more).fit(X.assign(id=1), y, sample_weight=np.ones(50))
        with pytest.raises(InvalidInputError, match="has the shape"):
            card("exponential").fit(X, y, sample_weight=np.ones(49))
        assert not book.entries()
    if more != {"max_weight": None}:
        with pytest.raises((InvalidInputError, PrivacyParameterError), match=why):
            card("exponential").set_params(**more).plan(50)
    with pytest.raises(InvalidInputError, match="NaN"):
        card("exponential").fit(X, y, sample_weight=np.append(np.ones(49), math.nan))


def test_weights_whose_losses_leave_64_bits_are_refused_before_data() -> None:
    card = PrivateHalfspaceClassifier(
        1.0, schema=Schema([Binned("a", [0, 1, 2])]), classes=(0, 1), max_weight=10**9
    )
    with pytest.raises(InvalidInputError, match="below 2\\^40"):
        card.plan(2_000)

"""Several cards of several classes from one private model: nearest by enumeration, distinct, saved."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.card_choice import ADVICE, choice_page
from privopt.mechanisms.scorecards.facts import CardFacts, card_program
from privopt.mechanisms.scorecards.near_cards import CardSource, NearCard
from privopt.mechanisms.scorecards.near_class_cards import near_class_cards, subsets_by_sum
from privopt.mechanisms.scorecards.rounding import centred_classes, class_points, class_scale
from privopt.problems import Binned, Categorical, IntegerLattice, InvalidInputError, Numeric, Schema
from privopt.problems.tables.point_columns import point_columns
from tests.experiments.cli.test_evaluate_cli import run

SMALL = Schema(
    [Binned("late", [0, 1, 2]), Categorical("job", ["a", "b"]), Numeric("age", 0, 4)], intercept=True
)
BOX = IntegerLattice([-2] * 5 + [-9], [2] * 5 + [9])
FACTS = CardFacts.of(SMALL, 1, BOX)
COLUMNS = point_columns(SMALL.columns)


def source(seed: int) -> CardSource:
    """A model of three classes whose columns matter in different degrees."""
    spread = np.random.default_rng(seed).permutation([2.0, 0.7, 0.2])
    weights = np.random.default_rng(seed + 1).normal(size=(3, 6)) * [*np.repeat(spread, 2)[:5], 1.0]
    return CardSource(weights, BOX.low, BOX.high)


def found(seed: int, most: int = 20, gap: float = 1.0) -> tuple[NearCard, ...]:
    return near_class_cards(
        source(seed), class_points(source(seed).weights, FACTS), SMALL, most=most, gap=gap
    )


def used(points: np.ndarray) -> frozenset[str]:
    """The columns with points of any class, by the definition."""
    return frozenset(c.name for c in COLUMNS if np.any(points[:, c.start : c.stop]))


def test_the_second_card_is_the_nearest_with_other_columns() -> None:
    """Against all points of each column: at the released card's scale, distances of columns add up."""
    for seed in range(12):
        model = source(seed)
        real = centred_classes(model.weights, FACTS)
        real = class_scale(real, FACTS) * real
        costs = card_program(BOX, SMALL, ()).costs
        away = {}
        for column in COLUMNS:
            own = slice(column.start, column.stop)
            every = np.array(list(itertools.product(range(-2, 3), repeat=3 * column.size)))
            every = every.reshape(-1, 3, column.size)
            sums = (costs[own] * np.abs(real[:, own] - every)).sum(axis=(1, 2))
            nothing = ~np.any(every, axis=(1, 2))
            away[column.name] = float(sums[nothing][0]), float(sums[~nothing].min())
        first, second = found(seed, most=2)
        total = sum(none for none, _ in away.values())
        sums = {
            frozenset(names): sum(away[c.name][c.name in names] for c in COLUMNS) / total
            for k in (1, 2, 3)
            for names in itertools.combinations(away, k)
        }
        assert first.points.tolist() == class_points(model.weights, FACTS).tolist()
        del sums[used(first.points)]
        assert second.distance == pytest.approx(min(sums.values()))
        assert second.distance == pytest.approx(sums[used(second.points)])


def test_no_two_cards_have_the_same_columns() -> None:
    for seed in range(4):
        cards = found(seed)
        sets = {used(card.points) for card in cards}
        assert len(sets) == len(cards) == 7  # all sets of three columns but the empty one
        assert all(np.all((BOX.low <= c.points) & (c.points <= BOX.high)) for c in cards)


def test_cards_keep_the_gap_and_come_by_distance() -> None:
    loose, tight = found(3), found(3, gap=0.2)
    assert 1 < len(tight) < len(loose)
    assert all(card.distance <= tight[0].distance + 0.2 for card in tight)
    assert [c.distance for c in tight[1:]] == sorted(c.distance for c in tight[1:])
    assert len(found(3, most=2)) == 2
    with pytest.raises(InvalidInputError, match="several cards are 2 or more"):
        found(3, most=1)


def test_a_number_that_is_left_out_leaves_its_points_at_the_middle() -> None:
    """Age has 2, -2 and 0 points in proportion to its feature, from 0 to 1; job may have no points."""
    weights = np.zeros((3, 6))
    weights[:, 0], weights[:, 1], weights[:, 4] = [2, -1, -1], [-2, 1, 1], [2, -2, 0]
    model = CardSource(weights, BOX.low * [1, 1, 0, 0, 1, 1], BOX.high * [1, 1, 0, 0, 1, 1])
    cards = near_class_cards(model, class_points(weights, FACTS), SMALL, most=2, gap=1.0)
    assert [used(card.points) for card in cards] == [{"late", "age"}, {"late"}]
    assert cards[1].points[:, -1].tolist() == [1, -1, 0]


def test_columns_to_which_the_bounds_leave_no_0_are_on_every_card() -> None:
    """late has the smallest weights of the model, and at least one point for every level."""
    low = np.array([1, 1, -2, -2, -2, -9])
    facts = CardFacts.of(SMALL, 1, IntegerLattice(low, BOX.high))
    model = CardSource(source(0).weights * [0.1, 0.1, 1, 1, 1, 1], low, BOX.high)
    cards = near_class_cards(model, class_points(model.weights, facts), SMALL, most=9, gap=1.0)
    assert len(cards) == 4
    assert all("late" in used(card.points) for card in cards)
    assert all(np.all((low <= card.points) & (card.points <= BOX.high)) for card in cards)


@pytest.mark.parametrize("sizes", [[], [0.5], [3.0, 1.0, 2.0, 1.0, 0.0, 0.7]])
def test_subsets_come_once_each_by_their_sum(sizes: list[float]) -> None:
    subsets = list(subsets_by_sum(sizes))
    assert len({frozenset(s) for s in subsets}) == len(subsets) == 2 ** len(sizes)
    sums = [sum(sizes[i] for i in s) for s in subsets]
    assert sums == pytest.approx(sorted(sums))


def test_a_fitted_card_has_near_ones_before_and_after_it_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "late": rng.uniform(0, 2, 2000),
        "job": rng.choice(["a", "b"], 2000),
        "age": rng.uniform(0, 4, 2000),
    }
    y = np.array(["x", "y", "z"])[(table["late"] > 1).astype(int) + (table["age"] > 3)]
    fitted = PrivateHalfspaceClassifier(5.0, schema=SMALL, classes=("x", "y", "z"), insecure_seed=0)
    choice = fitted.fit(table, y).near_cards(3, gap=1.0)
    assert len(choice.cards) == 3
    assert choice.cards[0] == fitted.card_
    fitted.save(tmp_path / "card.json")
    loaded = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    assert loaded.near_cards(3, gap=1.0).to_markdown() == choice.to_markdown()

    text = run("card", tmp_path / "card.json", "--several", 3, "--gap", 1)
    assert text == choice.to_markdown()
    assert ADVICE in text
    assert "Points are those of x, y, z, in this order" in text
    run("card", tmp_path / "card.json", "--several", 3, "--gap", 1, "--output", tmp_path / "choice.html")
    assert (tmp_path / "choice.html").read_text("utf-8") == choice_page(choice)
    run("card", tmp_path / "card.json", "--several", 3, "--gap", 1, "--output", tmp_path / "choice.json")
    assert len(json.loads((tmp_path / "choice.json").read_text())["cards"]) == 3

    kept = json.loads((tmp_path / "card.json").read_text())
    source_ = kept.pop("linear_model")
    with pytest.raises(InvalidInputError, match="saved by an earlier version"):
        PrivateHalfspaceClassifier.from_dict(kept).near_cards()
    for weights in (source_["weights"][:2], [[float("nan")] * 6] * 3):
        with pytest.raises(InvalidInputError, match="no finite weight for each of its points"):
            PrivateHalfspaceClassifier.from_dict({**kept, "linear_model": {**source_, "weights": weights}})

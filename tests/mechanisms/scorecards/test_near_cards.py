"""Several cards from one private model: distinct, feasible, near the model, with advice on choosing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.card_choice import ADVICE, choice_page
from privopt.mechanisms.scorecards import near_cards as near_cards_module
from privopt.mechanisms.scorecards.near_cards import CardSource, NearCard, near_cards
from privopt.oracles import program_oracle
from privopt.problems import (
    Binned,
    Categorical,
    ConstrainedLattice,
    IntegerLattice,
    InvalidInputError,
    Schema,
)
from privopt.problems.programs.constraints import OtherColumns
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.program import COST, GRID, CardProgram
from privopt.problems.tables.point_columns import point_columns
from tests.mechanisms.scorecards.test_nearest import SCHEMA, loans, model

SMALL = Schema(
    [Binned("late", [0, 1, 2]), Categorical("job", ["a", "b"]), Binned("age", [0, 1, 2])], intercept=True
)
# Levels about 0: 2 and -2, 1 and -1, 0.2 and -0.2, each 2 to 1, 1 to 2, .. times the released card's points.
SOURCE = CardSource(
    np.array([2.0, -2.0, 1.0, -1.0, 0.2, -0.2, 0.5]), np.array([-4] * 6 + [-20]), np.array([4] * 6 + [20])
)
RELEASED = np.array([4, -4, 2, -2, 0, 0, 3])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every search end: on busy cores the time limit may come first."""
    monkeypatch.setattr(near_cards_module, "_SECONDS", 600.0)


def found(*constraints: str, most: int = 20, gap: float = 1.0) -> tuple[NearCard, ...]:
    rules = parse_constraints(list(constraints))
    return near_cards(SOURCE, RELEASED, SMALL, tuple(rules), program_oracle("highs"), most=most, gap=gap)


def used(card: NearCard) -> frozenset[str]:
    """The columns with points, by the definition."""
    return frozenset(c.name for c in point_columns(SMALL.columns) if np.any(card.points[c.start : c.stop]))


def test_cards_are_those_computed_by_hand() -> None:
    """At the scale of 2, real points are 4, 2 and .4: a card without points is 2 (4 + 2 + .4) = 12.8 away.

    The released card has those of age, .8. Nearest with other columns: a point between the levels of age, and
    a shift, leave .2. At the scale of 1, real points are 2, 1 and .2, and points 6.4 away: no point between
    the levels of age is as near as none, but late alone is 2 + .4, job alone 4 + .4 away.
    """
    cards = {used(card): card for card in found()}
    first = cards[frozenset({"late", "job"})]
    assert first.points.tolist() == RELEASED.tolist()
    assert first.distance == pytest.approx(0.8 / 12.8, abs=0.02)
    finest = cards[frozenset({"late", "job", "age"})]
    assert finest.points[:4].tolist() == [4, -4, 2, -2]
    assert finest.distance == pytest.approx(0.2 / 12.8, abs=0.02)
    assert finest.points[6] in (2, 3)  # less the shift
    halved = cards[frozenset({"late"})]
    assert halved.points[:6].tolist() == [2, -2, 0, 0, 0, 0]
    # The records moved the released threshold from 2 * .5 = 1 to 3: half as many points, half of the move.
    assert halved.points[6] in (1, 2)
    assert cards[frozenset({"late"})].distance == pytest.approx(2.2 / 6.4, abs=0.05)


def test_no_two_cards_have_the_same_columns() -> None:
    for rules in ((), ("at most 2 columns",), ("any of late", "points(job) in [-2, 2]")):
        cards = found(*rules)
        assert len({used(card) for card in cards}) == len(cards) >= 2


@pytest.mark.parametrize("solver", ["highs", "enumerate"])
def test_a_no_good_cut_is_a_constraint_that_solvers_keep(solver: str) -> None:
    """Without the columns of the model, a point less in one of them is not enough."""
    columns = point_columns(SMALL.columns)
    cut = OtherColumns(("late", "job"))
    low, high = np.full(6, -1), np.ones(6, dtype=np.int64)
    program = CardProgram.of(columns, low, high, (cut,), np.ones(6), shifted=False)
    near = program.near(np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]))
    assert program_oracle(solver).solve(near).value == GRID * COST  # one of three points is given up
    assert not cut.holds(np.array([1, 1, 1, 0, 0, 0]), columns)
    assert not cut.holds(np.array([1, 0, 1, 0, 1, 1]), columns)  # equal points of age tell no records apart
    assert cut.holds(np.array([0, 0, 1, 0, 0, 0]), columns)
    assert cut.holds(np.array([1, 0, 1, 0, 0, 1]), columns)
    assert str(cut) == "other columns than late, job"


def test_cards_satisfy_constraints_and_the_gap() -> None:
    rules = ["any of late, age", "points(job) in [-2, 2]", "total in [-6, 6]"]
    columns = point_columns(SMALL.columns)
    loose, tight = found(*rules), found(*rules, gap=0.05)
    assert len(loose) > len(tight)
    for cards, gap in ((loose, 1.0), (tight, 0.05)):
        assert all(c.holds(card.points, columns) for c in parse_constraints(rules) for card in cards)
        assert all(card.distance <= cards[0].distance + gap for card in cards[1:])
    assert len(found(*rules, most=2)) == 2


def test_a_column_that_is_demanded_is_not_left_out() -> None:
    assert all("late" in used(card) for card in found("any of late"))


@pytest.mark.parametrize(("most", "gap"), [(1, 0.1), (3, 0.0), (3, 1.5), (3, float("nan"))])
def test_numbers_out_of_range_are_refused(most: int, gap: float) -> None:
    with pytest.raises(InvalidInputError, match="several cards are 2 or more, within a gap in"):
        found(most=most, gap=gap)


def test_a_fitted_card_has_near_ones_before_and_after_it_is_saved(tmp_path: Path) -> None:
    frame, y = loans()
    rules = ["at most 3 columns", "sign(late) = +"]
    fitted = model(constraints=rules, risk_share=0.2, numbers="lines").fit(frame, y)
    choice = fitted.near_cards(5, gap=0.5)
    assert 2 <= len(choice.cards) <= 5
    assert choice.cards[0].columns == fitted.card_.columns
    assert all(len(card.columns) <= 3 for card in choice.cards)
    assert all(card.spend == fitted.spend_ for card in choice.cards)
    assert all(card.risks is None for card in choice.cards)  # those of the released card are no one else's
    names = [{column.shown for column in card.columns} for card in choice.cards]
    assert [set(own) for own in choice.left_out] == [names[0] - own for own in names]
    assert "at most 3 columns" in choice.notes[0]
    of_alphabet, beyond = (replace(choice, cards=choice.cards[:1] * k) for k in (26, 27))
    assert (of_alphabet.letters[-1], beyond.letters[-1]) == ("Z", "27")
    fitted.save(tmp_path / "card.json")
    loaded = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    again = loaded.near_cards(5, gap=0.5)
    assert again.distances == choice.distances
    assert again.to_markdown() == choice.to_markdown()
    kept = json.loads((tmp_path / "card.json").read_text())
    del kept["linear_model"]
    with pytest.raises(InvalidInputError, match="saved by an earlier version"):
        PrivateHalfspaceClassifier.from_dict(kept).near_cards()
    kept["linear_model"] = {"weights": [float("nan")] * 12, "low": [0] * 12, "high": [1] * 12}
    with pytest.raises(InvalidInputError):
        PrivateHalfspaceClassifier.from_dict(kept)


def test_outputs_compare_the_cards_and_give_the_advice() -> None:
    frame, y = loans()
    choice = model().fit(frame, y).near_cards(3, gap=0.5)
    page, text, data = choice_page(choice), choice.to_markdown(), choice.to_dict()
    for column in SCHEMA.columns:
        assert column.name in page
        assert column.name in text
    for shown in (page, text, data["advice"]):
        assert "Trying them on records again" in shown
    assert ADVICE in text
    assert len(data["cards"]) == len(choice.cards)
    assert "<script" not in page
    rows = [line for line in text.splitlines() if line.startswith("| late ")]
    assert rows
    assert all(line.count("|") == 3 + len(choice.cards) for line in rows)


def test_other_mechanisms_have_no_model_to_take_them_from() -> None:
    frame, y = loans()
    options: dict[str, Any] = {"mechanism": "exponential", "oracle": "enumerate"}
    small = Schema([Binned("late", [0, 1, 2, 3, 4])], intercept=True)
    fitted = model(schema=small, **options).fit(frame[["late"]], y)
    with pytest.raises(InvalidInputError, match="another mechanism than 'seeded'"):
        fitted.near_cards()


def rows(n: int) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(1)
    table = {"late": rng.uniform(0, 2, n), "job": rng.choice(["a", "b"], n), "age": rng.uniform(0, 2, n)}
    return table, (table["late"] > 1).astype(int) + (table["age"] > 1.5)


def test_a_fit_of_several_classes_keeps_nothing_of_the_fit_before() -> None:
    table, y = rows(600)
    card = PrivateHalfspaceClassifier(5.0, mechanism="seeded", schema=SMALL, classes=(0, 1), insecure_seed=0)
    card.fit(table, np.minimum(y, 1))
    assert np.shape(card.to_dict()["linear_model"]["weights"]) == (7,)
    card.set_params(classes=(0, 1, 2), mechanism="auto").fit(table, y)
    assert np.shape(card.to_dict()["linear_model"]["weights"]) == (3, 7)


@pytest.mark.parametrize("mechanism", ["auto", "seeded", "exponential", "rspm"])
@pytest.mark.parametrize("more", [[], ["points in [-1, 1]"]])
def test_constraints_of_a_lattice_hold_beside_others(mechanism: str, more: list[str]) -> None:
    table, y = rows(600)
    lattice = ConstrainedLattice(
        IntegerLattice(-1, 1, dimension=7), point_columns(SMALL.columns), ["at most 0 of late"]
    )
    card = PrivateHalfspaceClassifier(
        50.0,
        mechanism=mechanism,
        delta=1e-3 if mechanism == "rspm" else "auto",
        lattice=lattice,
        constraints=more,
        schema=SMALL,
        classes=(0, 1),
        insecure_seed=0,
    )
    weights = card.fit(table, np.minimum(y, 1)).release_.point
    assert weights[:2].tolist() == [0, 0]  # although late is what labels depend on
    with pytest.raises(InvalidInputError, match="constraints of the lattice"):
        card.set_params(classes=(0, 1, 2), mechanism="auto", constraints=None).fit(table, y)

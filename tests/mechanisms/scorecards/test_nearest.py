"""Constraints on points: nearest cards against enumeration, fits end to end, refusals before data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.scorecards.domain import all_constraints
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.nearest import NearestCards
from privopt.mechanisms.scorecards.seeded import points_lattice
from privopt.oracles import Limits, ProgramOracle, UnknownOracleError, program_oracle
from privopt.oracles.errors import SolverFailedError, UnfinishedBuildError, UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.programs.enumerate import EnumeratedPrograms
from privopt.oracles.programs.interface import GAP, ProgramProposal
from privopt.problems import Binned, Categorical, InvalidInputError, Numeric, PointRule, Schema
from privopt.problems.errors import InfeasibleDomainError
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.program import CardProgram
from privopt.problems.tables.point_columns import point_columns

SCHEMA = Schema(
    [
        Binned("late", [0, 1, 2, 3, 4]),  # features 0 to 3
        Binned("income", [0, 1, 2, 3]),  # 4 to 6
        Categorical("job", ["a", "b", "c"]),  # 7 to 9
        Numeric("age", 0, 100, step=10, zero=0, one=100),  # 10
    ],
    intercept=True,
)
COLUMNS = {"late": slice(0, 4), "income": slice(4, 7), "job": slice(7, 10), "age": slice(10, 11)}
N = 2000


def loans() -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"late": rng.integers(0, 4, N), "income": rng.uniform(0, 3, N),
                          "job": rng.choice(["a", "b", "c"], N), "age": rng.integers(0, 101, N)})  # fmt: skip
    score = 2 * frame["late"] - 1.5 * frame["income"] + (frame["job"] == "b") + frame["age"] / 100
    return frame, np.where(score + rng.normal(size=N) / 2 > 1.5, 1, 0)


def model(**options: Any) -> PrivateHalfspaceClassifier:
    given = {"schema": SCHEMA, "classes": (0, 1), "insecure_seed": 0, "numbers": "lines", **options}
    return PrivateHalfspaceClassifier(3.0, **given)


def used(w: np.ndarray[Any, Any]) -> list[str]:
    return [name for name, own in COLUMNS.items() if w[own].any()]


def differ(w: np.ndarray[Any, Any], name: str) -> bool:
    return bool(w[10]) if name == "age" else bool(np.ptp(w[COLUMNS[name]]))


def totals(w: np.ndarray[Any, Any], names: list[str]) -> tuple[int, int]:
    ends = [(min(0, w[10]), max(0, w[10])) if n == "age" else (w[COLUMNS[n]].min(), w[COLUMNS[n]].max())
            for n in names]  # fmt: skip
    return sum(low for low, _ in ends), sum(high for _, high in ends)


# A constraint, its meaning, and further constraints with which alone a card violates it.
KINDS: list[tuple[str, Callable[[np.ndarray[Any, Any]], bool], list[str]]] = [
    ("points(late) in [-2, 2]", lambda w: np.abs(w[:4]).max() <= 2, []),
    ("points in {-5, -1, 0, 1, 5}", lambda w: set(w[:-1]) <= {-5, -1, 0, 1, 5}, []),
    ("sign(income, age) = +", lambda w: min(w[4:7].min(), w[10]) >= 0, []),
    ("monotone(late) = falling", lambda w: (np.diff(w[:4]) <= 0).all(), []),
    ("at most 2 columns", lambda w: len(used(w)) <= 2, []),
    ("at most 1 of late, income", lambda w: len({"late", "income"} & set(used(w))) <= 1, []),
    ("any of job, age", lambda w: differ(w, "job") or differ(w, "age"), ["at most 1 columns"]),
    ("all of job, age", lambda w: differ(w, "job") and differ(w, "age"), ["at most 2 columns"]),
    ("if late then job", lambda w: "late" not in used(w) or differ(w, "job"), ["at most 2 columns"]),
    ("total in [0, 9]", lambda w: totals(w, list(COLUMNS)) >= (0, 0)
        and totals(w, list(COLUMNS))[0] >= 0 and totals(w, list(COLUMNS))[1] <= 9, []),
    ("total(late, income) in [-3, 3]", lambda w: totals(w, ["late", "income"])[0] >= -3
        and totals(w, ["late", "income"])[1] <= 3, []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "holds", "others"), KINDS, ids=[k[0] for k in KINDS])
def test_fits_satisfy_what_they_violate_without(
    text: str, holds: Callable[[np.ndarray[Any, Any]], bool], others: list[str]
) -> None:
    frame, y = loans()
    without = model(constraints=others).fit(frame, y)
    assert not holds(without.coef_[0])
    fitted = model(constraints=[text, *others]).fit(frame, y)
    assert holds(fitted.coef_[0])
    assert fitted.mechanism_ == "seeded"
    assert str(fitted.spend_.epsilon) == str(without.spend_.epsilon)
    assert list(map(str, fitted.constraints_)) == [text, *others]


class Compared(ProgramOracle):
    """HiGHS, compared with enumeration at each program; what is compared is counted."""

    name = "compared"

    def __init__(self) -> None:
        self.seen: list[CardProgram] = []

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        answer = program_oracle("highs").solve(program)
        least = EnumeratedPrograms().solve(program).value
        assert answer.value is not None
        assert least is not None
        assert least <= answer.value <= (1 + GAP) * least
        assert answer.finished
        self.seen.append(program)
        return ProgramProposal(answer.point, answer.finished)


@pytest.mark.parametrize(
    "lines",
    [
        ["at most 1 columns"],
        ["sign(income) = +", "total in [-1, 3]"],
        ["if income then age", "monotone(income) = rising"],
        ["points(income) in {-2, 1, 2}", "any of age, job"],
    ],
    ids=lambda lines: lines[0],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_nearest_cards_are_those_of_enumeration(lines: list[str], intercept: bool) -> None:
    columns = [Binned("income", [0, 1, 2, 3]), Categorical("job", ["a", "b"]), SCHEMA.columns[3]]
    schema = Schema(columns, intercept=intercept)
    lattice = points_lattice(-2, 2, schema.n_features, intercept, len(columns))
    constraints = parse_constraints(lines)
    facts = CardFacts.of(schema, N, lattice, constraints=constraints)
    oracle = Compared()
    plan, rng = NearestCards.plan(facts, program_oracle("highs")), np.random.default_rng(0)
    plan = NearestCards(facts, plan.program, oracle, plan.first)
    shapes = [part.shape for part in plan.blank()]
    for _ in range(3):
        cards, thresholds = plan.cards(3 * rng.normal(size=schema.n_features), Limits().start())
        assert [cards.shape, thresholds.shape] == shapes
        assert all(c.holds(card, point_columns(columns)) for c in constraints for card in cards)
    assert len(oracle.seen) == 3 * shapes[0][0]
    assert len({program.targets.tobytes() for program in oracle.seen}) > 3


class Ignores(ProgramOracle):
    """A solver that forgets the constraints."""

    name = "ignores"

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        low, high = program.low, program.high
        return ProgramProposal(np.clip(np.rint(program.targets / 64).astype(np.int64), low, high), True)


def test_cards_of_a_solver_that_forgets_constraints_are_dropped() -> None:
    frame, y = loans()
    with pytest.raises(SolverFailedError, match="violates 'all of late, job'"):
        model(constraints=["all of late, job"], card_solver=Ignores()).plan(N)
    model(constraints=["all of late, age"]).plan(N)  # a first card is found and kept
    fitted = model(constraints=["sign(income) = +"], card_solver=Ignores())
    with pytest.warns(UserWarning, match="the nearest card was not found.*violates"):
        fitted.fit(frame, y)
    assert fitted.coef_[0][4:7].min() >= 0


class Slow(ProgramOracle):
    """A solver that finds nothing in time."""

    name = "slow"

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        return ProgramProposal(None, False, "time")


def test_a_card_that_is_not_found_in_time_is_announced() -> None:
    lattice = points_lattice(-2, 2, SCHEMA.n_features, True, 4)
    facts = CardFacts.of(SCHEMA, N, lattice, constraints=parse_constraints(["points(age) in [2, 2]"]))
    with pytest.raises(InvalidInputError, match="was found in 60 s"):
        NearestCards.plan(facts, Slow())
    plan = NearestCards.plan(facts, program_oracle("highs"))
    late = NearestCards(facts, plan.program, Slow(), plan.first)
    with pytest.warns(UserWarning, match="no card was found in time"):
        cards, _ = late.cards(np.ones(SCHEMA.n_features), Limits().start())
    assert (cards[:, 10] == 2).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"constraints": ["at most 1 columns", "sign(job) = +", "all of late, age"]},
            "no card satisfies all of these.*: 'at most 1 columns'; 'all of late, age'. To do",
        ),
        ({"constraints": ["points(job) in [1, 2]", "points in [-2, 0]"]}, "leave column 'job' no points"),
        ({"constraints": ["total(job) in [1, 2]", "points(job) in [3, 3]"]}, "no card satisfies all"),
        ({"constraints": ["any of late, job"], "max_columns": 1, "schema": Schema(
            SCHEMA.columns, intercept=True, rules={"income": PointRule(None, (1, 3))})},
            "no card satisfies all of these constraints.*'any of late, job'"),
    ],
    ids=["counts", "bounds", "total", "schema"],
)  # fmt: skip
def test_what_no_card_satisfies_is_refused_in_the_plan(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InfeasibleDomainError, match=words) as refused:
        model(**options).plan(N)
    assert "\n" not in str(refused.value)
    assert "'sign(job) = +'" not in str(refused.value)  # it is not in conflict


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"constraints": "any of late"}, "constraints are a list"),
        ({"constraints": ["tpr >= 0.9"]}, "tpr is a fact about records"),
        ({"constraints": ["any of lat"]}, "no column 'lat' is declared"),
        ({"card_solver": 3}, "card_solver must be a name or a ProgramOracle"),
        ({"lattice": (-(1 << 22), 1 << 22)}, "points of at most 1048576"),
    ],
)
def test_bad_options_are_refused_before_data(options: dict[str, Any], words: str) -> None:
    frame, y = loans()
    with pytest.raises(InvalidInputError, match=words) as refused:
        model(**{"constraints": ["any of late, age"], **options}).fit(frame, y)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        {"constraints": ["at most 2 columns"]},
        {"schema": Schema(SCHEMA.columns, intercept=True, rules={"job": PointRule(None, (-1, 1))})},
    ],
)
@pytest.mark.parametrize("mechanism", ["auto", "seeded"])
def test_a_norm_bound_is_not_dropped_where_points_are_bounded(mechanism: str, more: dict[str, Any]) -> None:
    with pytest.raises(PrivacyParameterError, match=r"a box of weights, not .*To do: leave the radius out"):
        model(lattice=(-1, 1, 2.0), mechanism=mechanism, **more).plan(3000)


def test_a_plan_asks_the_solver_that_was_named() -> None:
    """Whatever another solver has found before."""
    model(constraints=["at most 2 columns"]).plan(3000)
    with pytest.raises(UnsupportedProblemError, match="highs takes them"):
        model(constraints=["at most 2 columns"], card_solver="enumerate").plan(3000)


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(UnknownOracleError, match="pulp-highs"):
        model(constraints=["any of late, age"], card_solver="magic").plan(N)


def test_a_plan_says_why_and_what() -> None:
    planned = model(constraints=["at most 2 columns"]).plan(N)
    assert "satisfy the constraints" in planned.reason
    assert list(map(str, planned.constraints)) == ["at most 2 columns"]
    assert planned.seconds is not None


def test_a_stopped_clock_releases_nothing() -> None:
    """The clock of a release ran while records were read: what is left of it must not choose the cards."""
    lattice = points_lattice(-2, 2, SCHEMA.n_features, True, 4)
    facts = CardFacts.of(SCHEMA, N, lattice, constraints=parse_constraints(["at most 1 columns"]))
    plan = NearestCards.plan(facts, program_oracle("highs"))
    for limits in (Limits(cancelled=lambda: True), Limits(seconds=1e-9)):
        with pytest.raises(UnfinishedBuildError, match="before the nearest cards were found"):
            plan.cards(np.ones(SCHEMA.n_features), limits.start())


def test_saved_models_keep_their_constraints(tmp_path: Path) -> None:
    frame, y = loans()
    schema = Schema(SCHEMA.columns, intercept=True, constraints=["at most 2 columns"])
    fitted = model(schema=schema, constraints=["sign(late) = +"], risk_share=0.2).fit(frame, y)
    said = ["at most 2 columns", "sign(late) = +"]
    fitted.save(tmp_path / "card.json")
    loaded = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    assert list(map(str, loaded.constraints_)) == said
    assert loaded.card_.to_dict()["constraints"] == said
    for page in (loaded.card_.to_markdown(), loaded.card_.without_negative_points().to_markdown()):
        assert "at most 2 columns; sign(late) = +" in page
    saved = json.loads((tmp_path / "card.json").read_text())
    saved["weights"][0] = -100
    (tmp_path / "card.json").write_text(json.dumps(saved))
    with pytest.raises(InvalidInputError, match=r"violate its constraint 'sign\(late\) = \+'"):
        PrivateHalfspaceClassifier.load(tmp_path / "card.json")


# --- constraints inside the mechanisms that choose a card from a lattice -----------------------------------

SMALL = Schema(
    [Binned("late", [0, 1, 2]), Categorical("job", ["a", "b", "c"]), Numeric("age", 0, 100)], intercept=True
)


# 3^16 cards of 15 levels and the constant.
MANY = {
    "schema": Schema([Categorical("job", list("abcdefghijklmno"))], intercept=True),
    "constraints": ["at most 1 columns"],
}


def small(**options: Any) -> PrivateHalfspaceClassifier:
    given = {"schema": SMALL, "constraints": ["any of late, age", "at most 1 columns"], **options}
    return model(**given)


@pytest.mark.parametrize("mechanism", ["exponential", "permute-and-flip", "rspm", "rspm-laplace", "opdisc"])
def test_every_mechanism_with_a_proof_chooses_among_cards_that_satisfy_them(mechanism: str) -> None:
    frame, y = loans()
    frame["late"] = np.minimum(frame["late"], 1)
    fitted = small(mechanism=mechanism, oracle="enumerate").fit(frame[["late", "job", "age"]][:300], y[:300])
    w = fitted.coef_[0]
    named = {"late": w[:2], "job": w[2:5], "age": w[5:6]}
    assert sum(bool(points.any()) for points in named.values()) <= 1
    assert w[0] != w[1] or w[5]
    assert [str(c) for c in fitted.constraints_] == ["any of late, age", "at most 1 columns"]
    planned = small(mechanism=mechanism).plan(N)
    assert planned.plan.lattice.constrained
    assert [str(c) for c in planned.constraints] == ["any of late, age", "at most 1 columns"]


def test_rules_and_numbers_of_columns_shape_the_domain_too() -> None:
    ruled = Schema(SMALL.columns, intercept=True, rules={"late": PointRule("rising", (0, 1))})
    lattice = (
        small(mechanism="exponential", schema=ruled, constraints=None, max_columns=1).plan(N).plan.lattice
    )
    points = np.concatenate(list(lattice.batches()))
    assert points[:, :2].min() == 0
    assert (points[:, 0] <= points[:, 1]).all()
    counts = points[:, :2].any(axis=1) + points[:, 2:5].any(axis=1).astype(int) + (points[:, 5] != 0)
    assert counts.max() == 1
    # None; (0, 1) and (1, 1) of late; 26 points other than 0 of job; -1 and 1 of age; the intercept's three.
    assert len(points) == 3 * (1 + 2 + 26 + 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mechanism": "exponential", "oracle": "elimination"}, "gibbs-elimination.*enumerate, branch"),
        ({"mechanism": "exponential", "oracle": "elimination"}, "knows no constraints on points"),
        ({"mechanism": "rspm", "oracle": "native"}, "highs, cpsat, scip"),
        ({"oracle": "elimination"}, "enumerate, branch"),
        # 3^5 x 3 x 3 cards of levels, age and the constant at three points each; 9 points are too many.
        ({"mechanism": "permute-and-flip", "oracle": "enumerate", "lattice": (-4, 4)}, "4.78e.06 candidates"),
        (
            {"mechanism": "permute-and-flip", "oracle": "enumerate", "lattice": (-4, 4)},
            "one of auto, native, branch, stream",
        ),
        ({"mechanism": "rspm", "oracle": "enumerate", **MANY}, "4.3e.07 candidates.*one of auto, highs"),
        ({"mechanism": "exponential", "oracle": "bounded", "lattice": (-4, 4)}, "enumerate does not fit"),
        ({"mechanism": "exponential", "oracle": "stream", "lattice": (-100, 100)}, "candidate-record pairs"),
    ],
)
def test_oracles_that_cannot_answer_are_refused_in_the_plan(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedProblemError, match=words) as refused:
        small(**options).plan(N)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mechanism", ["exponential", "rspm", "opdisc"])
def test_an_empty_domain_is_refused_in_the_plan(mechanism: str) -> None:
    with pytest.raises(
        InfeasibleDomainError, match=r"no card satisfies all of these.*'all of late, job, age'"
    ):
        small(mechanism=mechanism, constraints=["all of late, job, age", "at most 2 columns"]).plan(N)


def test_without_constraints_none_are_made_up() -> None:
    assert all_constraints(SCHEMA, (), None) == ()
    assert [str(c) for c in all_constraints(SCHEMA, (), 2)] == ["at most 2 columns"]


def test_a_norm_bound_without_a_card_is_refused_in_the_plan() -> None:
    """all of late, job, age need a point each: |w|^2 >= 3."""
    asked = {"mechanism": "opdisc", "constraints": ["all of late, job, age"]}
    with pytest.raises(InfeasibleDomainError, match=r"\|w\|\^2 <= 2"):
        small(**asked, lattice=(-1, 1, 2**0.5)).plan(N)
    assert small(**asked, lattice=(-1, 1, 3**0.5)).plan(N).plan.lattice.size > 0

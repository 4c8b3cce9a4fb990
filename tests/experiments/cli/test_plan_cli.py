"""``privopt plan``: what a fit will do, before data; and that a fit does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privopt.experiments.cli.main import load
from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.scorecards.card_plan import plan_card
from privopt.mechanisms.scorecards.effort import draw_work
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.oracles.select import gibbs_oracle
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema, ZeroOneHalfspace
from privopt.problems.errors import InfeasibleDomainError, PrivOptError

SCHEMA = Schema([Numeric("age", 0, 100, step=10), Categorical("smoker", ["no", "yes"])], intercept=True)
WIDE = Schema([Categorical(f"c{j}", ["a", "b", "c", "d"]) for j in range(10)], intercept=True)


def planned(tmp_path: Path, *words: str, schema: Schema = SCHEMA) -> Any:
    schema.save(tmp_path / "schema.toml")
    return CliRunner().invoke(load_app(), ["--schema", str(tmp_path / "schema.toml"), *words])


def load_app() -> Any:
    import privopt.experiments.cli.plan as module

    return module.app


def test_the_help_is_announced() -> None:
    assert "before any data" in load("plan").help


def test_plans_say_what_why_and_how_long(tmp_path: Path) -> None:
    run = planned(tmp_path, "--records", "50000", "--epsilon", "1", schema=WIDE)
    assert run.exit_code == 0
    assert "mechanism: seeded (" in run.output
    assert "-10 to 10 for each of 40 features, -100 to 100 for the intercept" in run.output
    assert "it is sure to end" in run.output
    assert "inf" not in run.output.split()
    few = planned(tmp_path, "--records", "200", "--epsilon", "0.5", "--lattice", "-1:1", "--json")
    report = json.loads(few.output)
    assert (report["mechanism"], report["delta"], report["epsilon"]) == ("exponential", 0.0, 0.5)
    assert report["seconds"] < 1
    search = planned(tmp_path, "--records", "200", "--epsilon", "1", "--mechanism", "rspm")
    assert "not bounded by public facts" in search.output


def test_a_plan_names_an_intercept_only_where_there_is_one(tmp_path: Path) -> None:
    plain = Schema([*WIDE.columns, Numeric("age", 0, 100)])
    run = planned(tmp_path, "--records", "50000", "--epsilon", "1", "--numbers", "lines", schema=plain)
    assert "-10 to 10 for each of 40 features, -400 to 400 for each of 1 features" in run.output


def test_classes_are_read_as_fit_reads_them(tmp_path: Path) -> None:
    words = ("--records", "200", "--epsilon", "1", "--classes", "well, ill", "--class-weight", "ill=5")
    assert planned(tmp_path, *words).exit_code == 0


def test_plans_do_not_book(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0, 1e-3)
    words = ["--records", "9000", "--ledger", ledger.address]
    assert "affords it; nothing was booked" in planned(tmp_path, *words, "--epsilon", "1").output
    assert planned(tmp_path, *words, "--epsilon", "1.1").exit_code != 0
    assert ledger.entries() == []


def table(schema: Schema, n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            c.name: rng.integers(0, 101, n) if isinstance(c, Numeric) else rng.choice(list("abcd"), n)
            for c in schema.columns
        }
    )


@pytest.mark.parametrize(("n", "epsilon"), [(60, 0.1), (60, 30.0), (3000, 1.0)])
@pytest.mark.parametrize("columns", [2, 10])
def test_fits_do_as_planned(n: int, epsilon: float, columns: int) -> None:
    schema = Schema([*WIDE.columns[:columns], Numeric("age", 0, 100, step=10)], intercept=True)
    model = PrivateHalfspaceClassifier(epsilon, schema=schema, classes=(0, 1))
    plan = model.plan(n)
    model.fit(table(schema, n), np.arange(n) % 2)
    assert plan.plan.name == model.mechanism_
    assert plan.spend == model.spend_
    assert plan.reason == model.mechanism_reason_
    assert plan.seconds is not None


def test_automatic_draws_need_no_more_work_than_planned() -> None:
    """The oracle's own count of table additions, for the records as they are, against the public bound."""
    from privopt.oracles.cells.structure import CellStructure
    from privopt.oracles.draw.elimination import _PlanBuilder

    schema = Schema([*WIDE.columns[:3], Numeric("age", 0, 100, step=10)], intercept=True)
    for n in (30, 1000):
        lattice = plan_card("exponential", schema, n, epsilon=1.0, delta=1e-5).plan.lattice
        problem = ZeroOneHalfspace(schema.encode(table(schema, n)).X, np.resize([1, -1], n), lattice)
        bound = draw_work(schema, n, lattice)
        assert _PlanBuilder(CellStructure.of(problem)).work <= bound < 1e9
        assert gibbs_oracle("bounded").refusals(problem) == []


def test_a_norm_bound_without_a_bounded_draw_is_refused_before_data() -> None:
    model = PrivateHalfspaceClassifier(1.0, schema=WIDE, classes=(0, 1), lattice=(-4, 4, 4.8))
    with pytest.raises(InvalidInputError, match="leave the radius out"):
        model.plan(1000)
    with pytest.raises(InvalidInputError, match="declared schema"):
        PrivateHalfspaceClassifier(1.0).plan(1000)


def test_a_user_may_allow_more_work_or_less() -> None:
    schema = Schema([*WIDE.columns[:3], Numeric("age", 0, 100, step=10)], intercept=True)

    def planned(**options: Any) -> Any:
        weights = {"lattice": (-1, 1), **options}
        return PrivateHalfspaceClassifier(0.1, schema=schema, classes=(0, 1), **weights).plan(300)

    assert planned().plan.name == "exponential"
    assert planned(lattice=None).plan.name == "seeded"
    assert planned(max_work=10).plan.name == "seeded"
    assert planned(max_work=10).seconds is not None
    with pytest.raises(PrivOptError, match="max_work"):
        planned(max_work=0)


def test_a_search_that_ran_out_of_time_says_what_would_not_have(tmp_path: Path) -> None:
    records = table(WIDE, 2000)
    y = np.random.default_rng(1).integers(0, 2, 2000)
    model = PrivateHalfspaceClassifier(
        1.0, schema=WIDE, classes=(0, 1), mechanism="exponential", limits=Limits(seconds=0.01)
    )
    with pytest.raises(UnfinishedDrawError) as stopped:
        model.fit(records, y)
    assert "seeded" in stopped.value.__notes__[0]
    assert "--loss logistic" in stopped.value.__notes__[0]


def test_constraints_are_planned_and_refused_before_data(tmp_path: Path) -> None:
    words = ("--records", "9000", "--epsilon", "1")
    said = ("--constraint", "at most 1 columns", "--constraint", "sign(age) = +")
    assert "constraints: at most 1 columns; sign(age) = +" in planned(tmp_path, *words, *said).output
    report = json.loads(planned(tmp_path, *words, *said, "--json", "--card-solver", "highs").output)
    assert report["constraints"] == ["at most 1 columns", "sign(age) = +"]
    impossible = planned(tmp_path, *words, *said, "--constraint", "all of age, smoker")
    assert isinstance(impossible.exception, InfeasibleDomainError)
    assert "'at most 1 columns'; 'all of age, smoker'" in str(impossible.exception)
    for refused in ("tpr >= 90%", "any of agee", "at most one column"):
        assert isinstance(planned(tmp_path, *words, "--constraint", refused).exception, InvalidInputError)


def test_plans_say_what_a_person_with_several_records_costs(tmp_path: Path) -> None:
    words = ("--records", "1000", "--epsilon", "1", "--person", "id", "--records-per-person", "3")
    for model in ("card", "tree", "robust", "linear"):
        run = planned(tmp_path, *words, "--model", model)
        assert run.exit_code == 0, run.output
        assert "(replace-one person; proved)" in run.output
        assert "a person with at most 3 records, each protected at epsilon = 0.3" in run.output
        run = planned(tmp_path, *words[:3], "2.1", *words[4:-1], "learn", "--model", model)
        assert "learned at epsilon = 0.2, at most 32; a person with at most 32 records" in run.output
    report = json.loads(planned(tmp_path, *words, "--model", "robust", "--json").output)
    # 1 / persons^2, whatever the records of each
    assert (report["neighbours"], report["delta"]) == ("replace-one person", 1e-6)
    assert report["epsilon"] == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("columns", "words", "told"),
    [
        (3, (), ("mechanism: objective-perturbation (", "weights: 4\n")),
        (1200, (), ("mechanism: screened-statistics (of 1201 features", 'norm="linf"')),
        (3, ("--mechanism", "dp-fw-l1"), ("dp-fw-l1 (it was asked for; ", "gumbel_scale = ", "steps: ")),
        (3, ("--loss", "huber:0.5", "--label-range=-1:1"), ("mechanism: ", "epsilon = 3, delta = 1e-10")),
        (3, ("--classes", "a,b,c", "--class-weight", "balanced"), ("the prevalence at epsilon = 0.15",)),
    ],
)
def test_a_linear_model_is_planned_with_its_noise(
    columns: int, words: tuple[str, ...], told: tuple[str, ...], tmp_path: Path
) -> None:
    schema = Schema([Numeric(f"x{i}", 0, 1) for i in range(columns)])
    given = ("--records", "100000", "--epsilon", "3", "--model", "linear", *words)
    run = planned(tmp_path, *given, schema=schema)
    assert run.exit_code == 0, run.output
    for text in told:
        assert text in run.output
    report = json.loads(planned(tmp_path, *given, "--json", schema=schema).output)
    assert report["epsilon"] == pytest.approx(3)
    assert report["weights"] == columns + 1


def test_a_plan_of_a_regression_needs_the_range_of_labels(tmp_path: Path) -> None:
    words = ("--records", "100", "--epsilon", "3", "--model", "linear", "--loss", "squared")
    assert "a plan needs label_range" in str(planned(tmp_path, *words).exception)

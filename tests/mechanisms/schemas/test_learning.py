"""Schemas learned from tables: public plan, one booking, odd cells, and what the schema is good for."""

from __future__ import annotations

import datetime
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privopt.mechanisms import SchemaPlan, learn_schema
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.cuts import CutPlan
from privopt.mechanisms.schemas.types import votes_of
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.tables import schema
from privopt.problems.tables.cells import NO_MARKERS
from privopt.problems.tables.rules import PointRule

N = 4000
TYPES = {"age": "whole", "dose": "number", "town": "text", "smoker": "boolean", "mixed": "vote"}
TYPES |= {"born": "date"}
ODD: list[Any] = [None, math.nan, "x", "NA", "", "1e999", "9" * 400, math.inf, -math.inf, True, 10**400, b"x"]
ODD += [[1], "\ud800", object(), "2048-02-13", 5e-324]


def table() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "age": rng.integers(17, 91, N).astype(object),
        "dose": rng.lognormal(size=N).astype(object),
        "town": rng.choice(["Bern", "Graz", "Köln"], N).astype(object),
        "smoker": rng.choice([True, False], N).astype(object),
        "mixed": rng.choice(["a", "b"], N).astype(object),
        "born": (np.datetime64("1990-01-01") + rng.integers(0, 3653, N)).astype(str).astype(object),
    }


def learned(cells: dict[str, Any], seed: int = 0, **more: Any) -> Any:
    return learn_schema(cells, epsilon=2.0, types=TYPES, insecure_seed=seed, **more)


def test_a_learned_schema_has_bins_categories_and_missing_levels() -> None:
    found = learned(table(), cuts=3)
    assert [c.name for c in found.schema.columns] == list(TYPES)
    age, dose, town, smoker, mixed, born = (c.column for c in found.schema.columns)
    cuts = np.array([float(e) for e in age.edges[1:-1]])
    assert np.abs(cuts - [35, 54, 72]).max() < 8
    assert all(float(e).is_integer() for e in age.edges)
    assert len(dose.edges) == 5
    assert set(town.categories) == {"Bern", "Graz", "Köln"}
    assert list(smoker.categories) == [False, True]
    assert set(mixed.categories) == {"a", "b"}
    starts = [np.datetime64(text) for text in ("1992-07-01", "1995-01-01", "1997-07-01")]
    cut = [np.datetime64(text) for text in born.edge_texts[1:-1]]
    assert max(abs((a - b).astype(int)) for a, b in zip(cut, starts, strict=True)) < 300
    assert found.schema.intercept
    assert found.left_out == ()
    assert not found.spend.adds_up  # the seed voids it
    finer = learned(table()).schema.columns[0].column
    assert len(finer.edges) == 9  # seven cuts, where records are enough


@pytest.mark.parametrize("name", TYPES)
def test_no_cell_is_refused_neither_then_nor_later(name: str) -> None:
    cells = table()
    for k, odd in enumerate(ODD):
        cells[name][7 * k] = odd
    schema = learned(cells).schema
    assert len(schema.codes(cells)[0]) == N
    cells[name] = np.array([*ODD, *[None] * (N - len(ODD))], dtype=object)
    # A column of odd cells alone loses its categories at most.
    assert len(learned(cells).schema.codes(cells)) >= 4


def test_the_types_of_columns_are_declared_not_seen() -> None:
    frame = pd.DataFrame({"count": [1, 2] * 2000, "share": 0.5, "yes": True, "name": "x", "any": "1"})
    frame["name"], frame["any"] = frame["name"].astype("string"), frame["any"].astype(object)
    kinds = {c["name"]: c["type"] for c in plan_of(frame)}
    assert kinds == {"count": "number", "share": "number", "yes": "boolean", "name": "text", "any": "vote"}
    other = frame.assign(count=frame["count"].astype(float))  # as pandas does for one missing cell
    assert plan_of(other) == plan_of(frame)
    with pytest.raises(SchemaError, match="column 6 of the table: neither numbers, dates nor text"):
        learn_schema(frame.assign(took=pd.Timedelta("1 day")), epsilon=1.0)
    assert plan_of(frame.assign(when=pd.Timestamp("2048-02-13")))[-1]["type"] == "date"
    read = pd.read_csv(io.StringIO("a\n" + "1,5 %;\n" * 4000), sep=";", usecols=["a"], index_col=False)
    assert plan_of(read)[0]["type"] == "vote"  # pandas 3 reads "str", before objects: nobody declared either


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_a_missing_cell_changes_no_type_of_a_table_of_another_library(library: str) -> None:
    # Its conversion to pandas makes Python objects of booleans beside a missing one: they would be voted on.
    dose, smoker = table()["dose"].astype(float), [True, False] * (N // 2)
    full, other = (pa.table({"dose": dose, "smoker": cells}) for cells in (smoker, [None, *smoker[1:]]))
    if library == "polars":
        polars = pytest.importorskip("polars")
        full, other = polars.from_arrow(full), polars.from_arrow(other)
    one, two = (learn_schema(each, epsilon=2.0, insecure_seed=1) for each in (full, other))
    assert one.spend == two.spend
    assert one.schema == two.schema


def plan_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    from privopt.mechanisms.estimators.learn_schema import column_types

    made = SchemaPlan.plan(column_types(frame, {}, None, ()), len(frame), epsilon=2.0, delta=1e-7)
    return made.to_dict()["columns"]  # type: ignore[no-any-return]


def test_columns_compose_to_the_spend_and_share_it() -> None:
    numbers = SchemaPlan.plan({"a": "whole", "b": "number"}, N, epsilon=1.0, delta=1e-6)
    mu = gaussian_mu(1.0, 1e-6)
    assert numbers.spend.notion == "gdp"
    assert numbers.level <= mu
    assert numbers.level == pytest.approx(mu, rel=1e-3)
    assert numbers.columns[0].level == pytest.approx(mu / math.sqrt(2), rel=1e-3)
    mixed = SchemaPlan.plan(TYPES, N, epsilon=1.0, delta=1e-6)
    assert (mixed.spend.notion, mixed.spend.epsilon, mixed.spend.delta) == ("approximate", 1.0, 1e-6)
    deltas = [column.delta for column in mixed.columns]
    assert sum(deltas) == pytest.approx(5e-7, rel=1e-6)
    assert [d > 0 for d in deltas] == [False, False, True, False, True, False]
    assert mixed.level <= gaussian_mu(1.0, 1e-6 - sum(deltas))
    assert mixed.level == pytest.approx(gaussian_mu(1.0, 1e-6 - sum(deltas)), rel=1e-3)
    assert mixed.columns[3].level == 0  # both values of a boolean are public


def test_declared_columns_are_kept_and_cost_nothing() -> None:
    known = Schema([Numeric("dose", 0, 10), Categorical("town", ["Bern"], outside="ignore")])
    plan = SchemaPlan.plan(TYPES, N, epsilon=1.0, delta=1e-6, declared=known)
    assert [c.name for c in plan.columns] == ["age", "smoker", "mixed", "born"]
    found = learned(table(), declared=known, leave_out=["mixed", "born"])
    assert [c.name for c in found.schema.columns] == ["age", "smoker", "dose", "town"] or [
        c.name for c in found.schema.columns
    ] == ["age", "dose", "town", "smoker"]
    assert found.schema.columns[-1] == known.columns[-1] or known.columns[0] in found.schema.columns


@pytest.mark.parametrize(
    "asked",
    [{"rules": {"dose": PointRule(monotone="rising")}}, {"constraints": ["at most 1 column"]}],
    ids=["rule", "constraint"],
)
def test_constraints_of_declared_columns_are_refused_not_dropped(asked: dict[str, Any]) -> None:
    known = Schema([Numeric("dose", 0, 10), Numeric("age", 0, 99)], **asked)
    with pytest.raises(InvalidInputError, match="does not keep"):
        SchemaPlan.plan(TYPES, N, epsilon=1.0, delta=1e-6, declared=known)


def test_too_few_records_are_refused_by_the_plan_which_says_how_many_are_needed() -> None:
    with pytest.raises(PrivacyParameterError, match="too few records, 500, to learn 5 columns") as caught:
        SchemaPlan.plan(TYPES, 500, epsilon=0.1, delta=1e-6)
    said = re.search(
        r"about ([\d,]+) for one cut of each column of numbers or dates, ([\d,]+) for three",
        str(caught.value),
    )
    assert said
    one, three = (int(number.replace(",", "")) for number in said.groups())
    plan = SchemaPlan.plan(TYPES, three, epsilon=0.1, delta=1e-6)
    assert plan.columns[-1].cuts is not None
    assert plan.columns[-1].cuts.depth == 2
    assert one < three
    with pytest.raises(PrivacyParameterError, match="for a category that half of them have"):
        SchemaPlan.plan({"a": "text"}, 100, epsilon=0.1, delta=1e-6)


def test_what_a_refusal_says_is_public() -> None:
    """A table without a header has a record for its names."""
    for frame in (pd.DataFrame({"Quagmire": ["x"] * 9}), pd.DataFrame({"Quagmire": [1.5] * 9})):
        with pytest.raises(PrivacyParameterError) as caught:
            learn_schema(frame, epsilon=0.1)
        assert "Quagmire" not in str(caught.value)
    with pytest.raises(SchemaError) as refused:
        SchemaPlan.plan({"Quagmire": "text", "Quagmire is missing": "text"}, 9, epsilon=1.0, delta=1e-3,
                        declared=Schema([Numeric("Quagmire is missing", 0, 1)]))  # fmt: skip
    assert "Quagmire" not in str(refused.value)


def test_the_release_is_booked_before_a_cell_is_read(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "ledger", 3.0, 1e-3)
    found = learn_schema(table(), epsilon=2.0, types=TYPES, ledger=book)
    assert [(e.spend.mechanism, e.spend.epsilon) for e in book.entries()] == [("learn-schema", 2.0)]
    assert found.spend.guaranteed

    class Unreadable:
        dtype, shape = np.dtype(float), (N,)

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("read before it was booked")

    with pytest.raises(BudgetExceededError):
        learn_schema({"age": Unreadable()}, epsilon=2.0, ledger=book)
    assert len(book.entries()) == 1


def test_nothing_is_kept_where_no_category_is_frequent() -> None:
    names = np.array([f"name {k}" for k in range(N)], dtype=object)
    found = learn_schema({**table(), "id": names}, epsilon=2.0, types=TYPES | {"id": "text"})
    assert found.left_out == ("id",)
    alone = learn_schema({"id": names}, epsilon=2.0, types={"id": "text"})
    assert alone.left_out == ("id",)
    assert alone.schema.columns == (MissingLevel(Binned("id", [0, 1])),)
    alone.schema.codes({"id": np.array(ODD, dtype=object)})  # refuses no cell


def test_a_coarser_schema_has_the_most_frequent_categories() -> None:
    towns = np.repeat(["Aa", "Bern", "Chur", "?"], [700, 2000, 1000, 300]).astype(object)
    cells = {"town": towns, "age": table()["age"]}
    found = learn_schema(cells, epsilon=2.0, types={"town": "text", "age": "whole"})
    assert found.schema.columns[0].levels == ("Aa", "Bern", "Chur", "missing")
    assert found.ranks == {"town": ("Bern", "Chur", "Aa")}
    assert found.coarser(2).columns[0].levels == ("Bern", "Chur", "missing")
    assert found.coarser(2).columns[1] == found.schema.columns[1]
    assert found.coarser(5) == found.schema


def test_a_category_whose_feature_has_the_name_of_another_is_dropped() -> None:
    cells = {
        "town": np.array(["Bern", "x is missing"] * (N // 2), dtype=object),
        "town=x": np.arange(float(N)),
    }
    found = learn_schema(cells, epsilon=2.0, types={"town": "text", "town=x": "number"})
    assert found.schema.columns[0].levels == ("Bern", "missing")


def test_a_category_whose_feature_two_learned_columns_have_is_dropped() -> None:
    cells = {
        "a": np.array(["b=c", "d"] * (N // 2), dtype=object),
        "a=b": np.array(["c"] * N, dtype=object),
    }
    found = learn_schema(cells, epsilon=2.0, types={"a": "text", "a=b": "text"})
    assert [column.levels for column in found.schema.columns] == [("d", "missing")]
    assert found.left_out == ("a=b",)


def test_a_schema_learns_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"age": np.arange(4000) % 70, "town": np.array(["Bern", "Graz"])[np.arange(4000) % 2]}
    asked: dict[str, Any] = {"epsilon": 1.0, "types": {"age": "whole"}, "leave_out": ["town"]}
    found, same = (learn(table, **asked, insecure_seed=1) for learn in (Schema.learn, learn_schema))
    assert (found.schema, found.spend) == (same.schema, same.spend)
    with pytest.raises(PrivacyParameterError, match="epsilon"):
        Schema.learn(table, epsilon=-1.0)
    monkeypatch.setattr(schema, "LEARNERS", "privopt.nobody")
    with pytest.raises(SchemaError, match="nothing that learns schemas is installed"):
        Schema.learn(table, **asked)


def test_seeded_runs_repeat_and_others_do_not() -> None:
    first, again, other = (learned(table(), seed).schema for seed in (1, 1, 2))
    assert first == again
    assert first != other
    values = table()["dose"].astype(float)
    one, two = (CutPlan(0.01, 3, N).release(values, NoiseSource()) for _ in range(2))
    assert one != two


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"types": {"age": "int"}}, "type must be one of"),
        ({"types": {"height": "number"}}, "missing from the table"),
        ({"leave_out": ["height"]}, "missing from the table"),
        ({"cuts": 4}, "cuts must be one of 1, 3, 7, 15"),
        ({"na_values": [None]}, "na_values must be a list"),
        ({"leave_out": list(TYPES)}, "nothing to learn"),
    ],
)
def test_arguments_that_cannot_be_used(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        learn_schema(table(), epsilon=2.0, **{"types": TYPES, **change})
    for given, part in (
        (np.zeros((9, 2)), "with names"),
        ({"a": []}, "no records"),
        ({"a": [1], "b": [1, 2]}, "length"),
    ):
        with pytest.raises(InvalidInputError, match=part):
            learn_schema(given, epsilon=1.0)


@pytest.mark.parametrize(
    ("cells", "type_of", "form"),
    [
        ([1.5, "2.5", "NA"], "binned", None),
        (["3", 4, 5.0, "?"], "binned", None),
        (["x", "y", "n/a", "1"], "categorical", None),
        (["2048-02-13", "1999-12-31 23:59", None], "date", None),
        ([datetime.date(2048, 2, 13), pd.Timestamp("1999-12-31"), "x"], "date", None),
        (["13.02.2048", "1.1.1999"], "date", "%d.%m.%Y"),
        (["13/02/2048", "1/1/1999"], "date", "%d/%m/%Y"),
        (["02/13/2048", "1/1/1999"], "date", "%m/%d/%Y"),
    ],
)
def test_a_vote_finds_numbers_dates_in_their_format_and_text(
    cells: list[Any], type_of: str, form: str | None
) -> None:
    held = np.empty(N, dtype=object)
    held[:] = (cells * N)[:N]
    column = learn_schema({"a": held}, epsilon=2.0, types={"a": "vote"}, insecure_seed=0).schema.columns[0]
    said = column.to_dict()
    assert (said["kind"], said.get("format")) == (type_of, form)
    if "4" not in map(str, cells):
        return
    assert all(float(edge).is_integer() for edge in said["edges"])  # found to be whole numbers


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1.234,50 €", "999,90 €", "80"], {"decimal": ",", "thousands": "."}),
        (["12,5 %", "7,25 %", "3"], {"decimal": ",", "thousands": "."}),
        (["0,512", "0,250", "0,125"], {"decimal": ",", "thousands": "."}),  # no groups of thousands
        (["$1,234.50", "1,234", "999.9", "80"], {"thousands": ","}),
        (["1 234,5", "999,9", "80,1"], {"decimal": ",", "thousands": " "}),
        (["CHF 1'234.50", "999.9", "80"], {"thousands": "'"}),
    ],
)
def test_a_vote_finds_how_text_writes_numbers(cells: list[str], said: dict[str, str]) -> None:
    held = np.array((cells * N)[:N], dtype=object)
    column = learn_schema({"a": held}, epsilon=5.0, types={"a": "vote"}, insecure_seed=0).schema.columns[0]
    found = column.to_dict()
    assert found["kind"] == "binned"
    assert {key: found[key] for key in ("decimal", "thousands") if key in found} == said
    assert isinstance(column, MissingLevel)
    assert column.gap not in column.code(held)  # every cell is read


def test_a_column_is_cut_by_the_notation_that_is_declared() -> None:
    cells = np.array(["1.500,00 €", "20,00 €"] * (N // 2), dtype=object)
    column = learn_schema({"a": cells}, epsilon=5.0, types={"a": "vote"}, insecure_seed=0).schema.columns[0]
    assert len(set(column.code(cells).tolist())) == 2  # a cut lies between 20 and 1500


def test_few_cells_in_another_notation_change_none_and_texts_with_numbers_are_text() -> None:
    usual = np.array((["80", "81.5"] * 10 + ["1,2"]) * (N // 21), dtype=object)
    texts = np.array(["Nr. 3", "4 kg", "1.2.3", "EUR"] * (N // 4), dtype=object)
    for held, kind in ((usual, "binned"), (texts, "categorical")):
        column = learn_schema({"a": held}, epsilon=5.0, types={"a": "vote"}, insecure_seed=0).schema.columns[
            0
        ]
        said = column.to_dict()
        assert said["kind"] == kind
        assert "decimal" not in said
        assert "thousands" not in said


def test_a_cell_gives_every_candidate_of_a_vote_one_vote_at_most() -> None:
    some: list[Any] = [*ODD, 3, 2.5, "4", "-1e-7", "01.02.2003", "1/2/2003", "2003/1/2", datetime.date.min]
    some += ["1,5", "1.234,5 €", "$1,234", "0,512", "1 234", "1'234.5", "12 %", "%", "€ -3,5", ",5", "1e5 %"]
    for odd in some:
        held = np.empty(1, dtype=object)
        held[0] = odd
        votes = votes_of(held, NO_MARKERS)
        assert np.all((votes >= 0) & (votes <= 10)), odd
        assert votes.sum() == 0 or votes.max() == 10
    texts = [odd for odd in some if isinstance(odd, str) and odd.isprintable()]
    for made in (pa.array(texts), np.array(texts), np.array(texts, dtype=object)):
        assert votes_of(made, NO_MARKERS).tolist() == votes_of(np.array(texts), NO_MARKERS).tolist()


def test_the_usual_words_for_a_missing_value_are_no_categories() -> None:
    cells = np.array(["Bern", "?", "N/A", "Graz"] * (N // 4), dtype=object)
    column = learn_schema({"town": cells}, epsilon=2.0, types={"town": "text"}).schema.columns[0]
    assert column.levels == ("Bern", "Graz", "missing")
    assert column.code(cells[:4]).tolist() == [0, column.gap, column.gap, 1]


def test_markers_are_missing_in_learned_columns() -> None:
    cells = table()
    cells["town"][: N // 2] = "unknown"
    cells["age"][: N // 2] = -999
    schema = learned(cells, na_values=["unknown", -999]).schema
    age, town = schema.columns[0], schema.columns[2]
    assert isinstance(age, MissingLevel)
    assert isinstance(town, MissingLevel)
    assert isinstance(age.column, Binned)
    assert float(age.column.edges[1]) > 17
    assert "unknown" not in town.levels
    assert int(np.sum(age.code(cells["age"]) == age.gap)) == N // 2

"""Labels and units of columns: printed everywhere a person reads a column, computed with nowhere."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateTreeClassifier
from privopt.mechanisms.estimators.card import Card, card_of
from privopt.mechanisms.estimators.page import card_page
from privopt.mechanisms.estimators.sql import select_statement
from privopt.mechanisms.estimators.tree_card import _wrapped
from privopt.mechanisms.estimators.tree_page import tree_page
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems import Binned, Categorical, MissingLevel, Numeric, PointRule, Schema
from privopt.problems.errors import SchemaError

COLUMNS = [
    MissingLevel(Binned("bp_sys", [80, 120, 200])),
    Categorical("smk", ["no", "yes"]),
    Numeric("age", 0, 100, step=10),
]
LABELS = {"bp_sys": "Blood pressure", "smk": "Smoker"}
UNITS = {"bp_sys": "mmHg", "age": "years"}
PLAIN = Schema(COLUMNS, rules={"bp_sys": PointRule("rising")})
LABELLED = Schema(COLUMNS, rules={"bp_sys": PointRule("rising")}, labels=LABELS, units=UNITS)
POINTS = [1, 2, 0, 0, 3, 4]
SPEND = PrivacySpend.approximate(1.0, 1e-6, "test")


def card(schema: Schema, points: list[int] | None = None) -> Card:
    return card_of(schema, POINTS if points is None else points, ("no", "yes"), SPEND)


def test_labels_survive_files_and_markers_and_change_no_feature(tmp_path: Path) -> None:
    for name in ("s.toml", "s.json"):
        LABELLED.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == LABELLED
    assert LABELLED.with_na_values(["gone"]).displays == LABELLED.displays
    assert LABELLED.feature_names == PLAIN.feature_names
    assert list(LABELLED.feature_titles.values()) == [
        "Blood pressure (mmHg) in [80, 120)",
        "Blood pressure (mmHg) in [120, 200]",
        "Blood pressure (mmHg) is missing",
        "Smoker=no",
        "Smoker=yes",
        "age (years)",
    ]


def test_cards_pages_and_markdown_name_the_label() -> None:
    shown = card(LABELLED)
    for text in (shown.to_markdown(), card_page(shown), shown._repr_html_()):
        assert "Blood pressure (mmHg)" in text
        assert "age (years)" in text
        assert "bp_sys" not in text
    assert "No points for Smoker." in card(LABELLED, [1, 2, 0, 0, 0, 4]).to_markdown()
    assert shown.to_dict()["columns"][0]["name"] == "bp_sys"
    assert shown.to_dict()["columns"][0]["title"] == "Blood pressure (mmHg)"
    assert card(PLAIN).to_dict()["columns"][0].keys() == {"name", "levels", "in_proportion"}


def test_sql_names_labels_in_comments_alone() -> None:
    named, plain = (select_statement(s, POINTS, ("no", "yes"), None, "t") for s in (LABELLED, PLAIN))
    assert named.splitlines()[:3] == [
        "-- bp_sys: Blood pressure (mmHg)",
        "-- smk: Smoker",
        "-- age: age (years)",
    ]
    assert "".join(f"{line}\n" for line in named.splitlines()[3:]) == plain
    frame = pd.DataFrame({"bp_sys": [90, 130], "smk": ["no", "yes"], "age": [50, 50]})
    with sqlite3.connect(":memory:") as database:
        frame.to_sql("t", database, index=False)
        assert pd.read_sql_query(named, database)["points"].tolist() == [3, 7]


def test_a_name_of_several_lines_stays_within_its_comment() -> None:
    odd = Schema([Binned("a\nDROP TABLE t", [0, 1, 2])], labels={"a\nDROP TABLE t": "Fine"})
    assert select_statement(odd, [1, 2], (0, 1), None, "t").startswith("-- 'a\\nDROP TABLE t': Fine\nSELECT")


@pytest.mark.parametrize("bad", ["", " ", "a\nb", 3, "a\u2028b"])
def test_labels_are_texts_of_one_line(bad: Any) -> None:
    for key in ("label", "unit"):
        entry = {"kind": "binned", "name": "x", "edges": [0, 1], key: bad}
        with pytest.raises(SchemaError, match=f"column 'x': {key} must be a text of one line"):
            Schema.from_dict({"columns": [entry]})
    with pytest.raises(SchemaError, match="not declared"):
        Schema(COLUMNS, labels={"pulse": "Pulse"})


def test_trees_name_the_label_with_the_unit_behind_the_number() -> None:
    rng = np.random.default_rng(0)
    pressure = rng.integers(80, 200, 3000)
    frame = pd.DataFrame({"bp_sys": pressure, "smk": "no", "age": 30})
    model = PrivateTreeClassifier(20.0, schema=LABELLED, max_depth=1, classes=("no", "yes"), insecure_seed=0)
    model.fit(frame, np.where(pressure < 120, "no", "yes"))
    shown = model.card_
    for text in (shown.to_markdown(), tree_page(shown), "\n".join(shown.lines())):
        assert "Blood pressure" in text
        assert "120 mmHg" in text
        assert "bp_sys" not in text


def test_long_names_break_at_separators() -> None:
    assert _wrapped("systolic_pressure_at_admission < 120", 20) == [
        "systolic_pressure_", "at_admission < 120",
    ]  # fmt: skip
    assert _wrapped("", 20) == [""]

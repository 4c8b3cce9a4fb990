"""Declared notations of numbers: marks, symbols, words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privopt.problems import Binned, MissingLevel, Numeric, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.tables.predicates import Predicates

NAN = np.nan
CASES: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "German": (
        {"decimal": ",", "thousands": "."},
        {"1.234.567,8": 1234567.8, "12": 12, "1,5": 1.5, "1.5": NAN, "1.2345": NAN, "1,5e2": 150, ",5": 0.5},
    ),
    "US dollars": (
        {"thousands": ",", "symbols": ["$", "USD"]},
        {"$1,234.50": 1234.5, "-$5": -5, "$ -5": -5, "5 USD": 5, "1,23": NAN, "$": NAN, "$$5": NAN},
    ),
    "French": (
        {"decimal": ",", "thousands": " "},
        {"1\u202f234,5": 1234.5, "1\u00a0234": 1234, "1 234 567": 1234567, "12 34": NAN},
    ),
    "Swiss": ({"thousands": "'"}, {"1'234.5": 1234.5, "1234.5": 1234.5}),
    "percent": ({"symbols": ["%"]}, {"12.5 %": 12.5, "12.5%": 12.5, "%": NAN, "12": 12}),
    "words": (
        {"words": {"Yes": 1, "no": 0, "-": "1/2"}},
        {"yes": 1, " NO ": 0, "-": 0.5, "maybe": NAN, "?": NAN, "true": 1, "3": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_read_as_declared(name: str) -> None:
    options, cells = CASES[name]
    column = Numeric("x", 0, 10, **options)
    found = column.read(np.array(list(cells), dtype=object)).values
    np.testing.assert_array_equal(found, list(cells.values()))
    for kind in (column, MissingLevel(Binned("x", [0, 1, 2], **options))):
        schema = Schema([kind])
        assert Schema.from_dict(schema.to_dict()) == schema
        assert Schema.from_dict(schema.with_na_values(["gone"]).to_dict()).columns[0].to_dict() == {
            **kind.to_dict(),
            "na_values": ["gone"],
        }


def test_a_notation_survives_a_file_and_the_bins_of_a_tree(tmp_path: Any) -> None:
    schema = Schema(
        [MissingLevel(Numeric("x", 0, 8, decimal=",", symbols=['"'], words={'a "b"': 1, "\u00e9": 2}))]
    )
    schema.save(tmp_path / "s.toml")
    assert Schema.load(tmp_path / "s.toml") == schema
    predicates, table = Predicates.of(schema), {"x": ["7,6", "\u00c9", "1.5"]}
    assert [c.tolist() for c in predicates.coarse.codes(table)] == [
        c.tolist() for c in predicates.coarsened(schema.codes(table))
    ]


def test_declared_markers_are_written_in_the_notation_too() -> None:
    column = Numeric("x", -5, 10, decimal=",", na_values=["-999,00", 7])
    assert np.isnan(column.read(np.array(["-999,0", "7,0", -999.0, 7], dtype=object)).values).all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decimal": ";"}, "decimal must be"),
        ({"thousands": "."}, "thousands must be"),
        ({"thousands": "00"}, "thousands must be"),
        ({"thousands": "-"}, "thousands must be"),
        ({"symbols": "%"}, "symbols must be a list"),
        ({"symbols": ["m2"]}, "symbols must be a list of texts without digits"),
        ({"words": ["yes"]}, "words must map"),
        ({"words": {"yes": "many"}}, "words: 'yes' must be a finite number"),
    ],
)
def test_notations_that_cannot_be_are_refused_by_name(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=f"'x': {reason}"):
        Numeric("x", 0, 1, **options)


def test_text_in_a_column_of_numbers_is_refused_with_the_remedy() -> None:
    with pytest.raises(SchemaError, match=r"column 'x'.*declare how text writes numbers \(decimal"):
        Schema([Numeric("x", 0, 1)]).codes({"x": ["1,5"]})

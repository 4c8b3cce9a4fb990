"""The small tables that ship for examples are what the repository documents."""

from __future__ import annotations

from privopt.problems.datasets.hospital import load_readmissions
from privopt.problems.datasets.uci import load_credit, load_marketing, load_mushrooms


def test_mushrooms_have_the_documented_counts() -> None:
    table = load_mushrooms()
    assert table.shape == (8124, 23)
    assert table["class"].value_counts().to_dict() == {"edible": 4208, "poisonous": 3916}
    assert (table["stalk-root"] == "").sum() == 2480


def test_loans_have_the_documented_counts() -> None:
    table = load_credit()
    assert table.shape == (1000, 21)
    assert table["repaid"].value_counts().to_dict() == {"yes": 700, "no": 300}
    assert not table.isna().any(axis=None)


def test_calls_have_the_documented_counts() -> None:
    table = load_marketing()
    assert table.shape == (45_211, 17)
    assert table["y"].value_counts().to_dict() == {"no": 39_922, "yes": 5289}


def test_stays_have_the_documented_counts() -> None:
    table = load_readmissions()
    assert table.shape == (1000, 6)
    assert table["patient"].nunique() == 161
    assert table["readmitted"].value_counts().to_dict() == {"no": 836, "yes": 154}
    assert table[["patient", "gender"]].notna().all(axis=None)
    assert table[["systolic", "ldl", "a1c", "readmitted"]].isna().sum().tolist() == [13, 13, 13, 10]

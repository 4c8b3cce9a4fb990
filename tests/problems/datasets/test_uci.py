"""The small tables that ship for examples are what the repository documents."""

from __future__ import annotations

import numpy as np

from privopt.problems.datasets.customers import load_customers
from privopt.problems.datasets.emails import EMAIL_COLUMNS, load_emails, word_column
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


def test_customers_have_the_documented_counts() -> None:
    table = load_customers()
    assert table.shape == (23_570, 6)
    assert table["left"].value_counts().to_dict() == {"yes": 16_512, "no": 7058}
    assert table["visits"].sum() == 47_907  # days with a purchase in the nine months
    assert (table["first"] >= table["last"]).all()
    assert table["first"].between(190, 273).all()
    assert not table.isna().any(axis=None)


def test_emails_have_the_documented_counts_and_their_words_the_documented_columns() -> None:
    table, kind = load_emails()
    assert table.shape == (5849, EMAIL_COLUMNS)
    assert (kind == "spam").sum() == 1756
    assert table.has_canonical_format
    assert set(table.data) == {1.0}
    assert table.indptr[-1] == 426_893
    assert np.diff(table.indptr).max() <= 100
    with_click = table[:, [word_column("Click")]].toarray().ravel() > 0
    assert ((kind == "spam") & with_click).sum() == 769
    assert with_click.sum() == 854

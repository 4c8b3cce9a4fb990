"""Three tables of the UCI Machine Learning Repository, shipped with the package for examples.

CC BY 4.0; sources and changes are in data/LICENSE-uci.txt. The records are public, so nothing here needs a
privacy budget; they stand in for private ones.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def load_mushrooms() -> pd.DataFrame:
    """Load descriptions of mushrooms: 8,124 rows of 22 categories, and ``class``: edible or poisonous.

    Levels are words in place of the letters of the original; 2,480 roots (``stalk-root``) are missing, as
    empty text.
    """
    return _table("mushrooms")


def load_credit() -> pd.DataFrame:
    """Load loans of a German bank: 1,000 rows of 20 columns, and ``repaid``: yes or no (30%).

    Words replace the codes of the original; amounts are in Deutsche Mark, durations in months.
    """
    return _table("credit")


def load_marketing() -> pd.DataFrame:
    """Load calls of a Portuguese bank: 45,211 rows of 16 columns, and ``y``.

    ``y`` says whether a deposit was made: yes (12%) or no.

    ``duration`` is the length of the call, known only when it has ended.
    """
    return _table("marketing")


def _table(name: str) -> pd.DataFrame:
    """Read a table; empty and other texts stay as they are."""
    with (files("privopt.problems.datasets") / "data" / f"{name}.csv.gz").open("rb") as stored:
        return pd.read_csv(stored, compression="gzip", keep_default_na=False)

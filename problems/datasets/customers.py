"""Customers of a shop, a table shipped with the package for examples of churn.

Made from the CDNOW transactions; source, licence and changes are in data/LICENSE-customers.txt. The records
are public, so nothing here needs a privacy budget; they stand in for private ones.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def load_customers() -> pd.DataFrame:
    """Load customers of an online music shop as of October 1997: 23,570 rows; ``left`` is yes (70%) or no.

    All bought for the first time in the first quarter of 1997. A row has the number of days with a purchase,
    the discs and the dollars until the end of September, and how many days before 1 October the first and the
    last purchase were. ``left`` is yes for customers who bought nothing in the following nine months.
    """
    with (files("privopt.problems.datasets") / "data" / "customers.csv.gz").open("rb") as stored:
        return pd.read_csv(stored, compression="gzip")

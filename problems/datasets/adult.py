"""The Adult (Census Income) data set of the UCI Machine Learning Repository, shipped with the package.

Becker and Kohavi (1996), DOI 10.24432/C5XW20, CC BY 4.0; see data/LICENSE-adult.txt. The records are public,
so nothing here needs a privacy budget; they stand in for private ones in examples and experiments.
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Literal

import numpy as np
import pandas as pd

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.schema import Schema

ADULT_TARGET = "income"
ADULT23_CLASSES = ("<=50K", ">50K")  # labelled -1 and +1

_FILES = {"train": "adult.data.gz", "test": "adult.test.gz"}

# The categories in the order of the data set's documentation. The files write a missing value as "?".
_CATEGORIES = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked, ?",
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, "
    "12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, "
    "Priv-house-serv, Protective-serv, Armed-Forces, ?",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, "
    "Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, "
    "Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, "
    "Trinadad&Tobago, Peru, Hong, Holand-Netherlands, ?",
}

# Public facts: people over 16, ages top-coded at 90; 16 numbered levels of education; weekly hours above
# 0, top-coded at 99; gains top-coded at 99999. The other two bounds are round numbers; larger values are
# clipped.
_NUMERIC = {
    "age": Numeric("age", 17, 90, zero=0, one=90),
    "fnlwgt": Numeric("fnlwgt", 0, 1_500_000, step=15_000),
    "education-num": Numeric("education-num", 1, 16, zero=0, one=16),
    "capital-gain": Numeric("capital-gain", 0, 100_000, step=1_000),
    "capital-loss": Numeric("capital-loss", 0, 5_000, step=50),
    "hours-per-week": Numeric("hours-per-week", 1, 99, zero=0, one=99),
}

_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
]

_COLUMNS_23 = [
    *("age", "education-num", "hours-per-week", "marital-status", "relationship", "race", "sex"),
]


def load_adult(split: Literal["train", "test", "all"] = "train") -> pd.DataFrame:
    """Load all records in file order: 14 attributes and the label "income", either "<=50K" or ">50K".

    The files hold 32,561 (train) and 16,281 (test) records. Missing values read "?".
    """
    if split == "all":
        return pd.concat([load_adult("train"), load_adult("test")], ignore_index=True)
    if split not in _FILES:
        raise InvalidInputError(f"split must be 'train', 'test' or 'all', got {split!r}")
    with (
        (files("privopt.problems.datasets") / "data" / _FILES[split]).open("rb") as raw,
        gzip.open(raw) as content,
    ):
        frame = pd.read_csv(
            content,
            header=None,
            names=[*_COLUMNS, ADULT_TARGET],
            skipinitialspace=True,
            comment="|",  # the first line of the test file
            keep_default_na=False,
        )
    frame[ADULT_TARGET] = frame[ADULT_TARGET].str.removesuffix(
        "."
    )  # the test file ends its labels with a full stop
    return frame


def adult_labels(frame: pd.DataFrame) -> IntArray:
    """Return +1 for an income above 50K, -1 otherwise; shape (n,)."""
    return np.where(frame[ADULT_TARGET] == ADULT23_CLASSES[1], 1, -1).astype(np.int64)


def adult_schema(*, intercept: bool = False) -> Schema:
    """Return all 14 attributes, 108 features, from the data set's documentation and the census top codes."""
    return Schema([_column(name) for name in _COLUMNS], intercept)


def adult23_schema() -> Schema:
    """Return the 23 features of Neel, Roth, Vietri and Wu (2020): three scaled numbers, then four one-hots.

    age/90, education-num/16, hours-per-week/99, marital-status (7), relationship (6), race (5), sex (2).
    """
    return Schema([_column(name) for name in _COLUMNS_23])


def adult23_frame(seed: int = 0) -> pd.DataFrame:
    """Load the balanced task of that paper: the seven columns of ``adult23_schema`` and "income".

    All 7,841 positive records of the training file and as many negative ones drawn at random, in file order:
    n = 15,682. The draw is public: it reproduces an experiment on public records, and protects nobody.
    """
    frame = load_adult("train")
    positive = frame[ADULT_TARGET] == ADULT23_CLASSES[1]
    drawn = np.random.default_rng(seed).choice(
        np.flatnonzero(~positive), size=int(positive.sum()), replace=False
    )
    rows = np.sort(np.concatenate([np.flatnonzero(positive), drawn]))
    return frame.loc[rows, [*_COLUMNS_23, ADULT_TARGET]].reset_index(drop=True)


def load_adult23(seed: int = 0) -> tuple[IntArray, IntArray, Schema]:
    """Return integer features (15682, 23) over the denominator 7920, labels -1 or +1, and the schema."""
    return _encoded(adult23_frame(seed))


def load_adult23_test() -> tuple[IntArray, IntArray, Schema]:
    """Load the test file under the same schema: features (16281, 23), labels, schema. It is not balanced."""
    return _encoded(load_adult("test"))


def _encoded(frame: pd.DataFrame) -> tuple[IntArray, IntArray, Schema]:
    schema = adult23_schema()
    return schema.encode(frame).X, adult_labels(frame), schema


def _column(name: str) -> Column:
    if name in _NUMERIC:
        return _NUMERIC[name]
    return Categorical(name, _CATEGORIES[name].split(", "))

"""The shipped Adult data against published facts, and the generators against their definitions."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

import numpy as np
import pytest

from privopt.problems.datasets.adult import (
    ADULT23_CLASSES,
    ADULT_TARGET,
    adult23_frame,
    adult23_schema,
    adult_labels,
    adult_schema,
    load_adult,
    load_adult23,
    load_adult23_test,
)
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical

# MD5 of the raw files, as third-party loaders of the UCI originals pin them.
MD5 = {
    "adult.data": "5d7c39d7b8804f071cdd1f2a7c460872",
    "adult.test": "35238206dfdf7f1fe215bbb874adecdc",
}


@pytest.mark.parametrize("name", MD5)
def test_raw_files_are_the_originals(name: str) -> None:
    raw = (files("privopt.problems.datasets") / "data" / f"{name}.gz").read_bytes()
    content = gzip.decompress(raw)
    assert hashlib.md5(content, usedforsecurity=False).hexdigest() == MD5[name]
    licence = (files("privopt.problems.datasets") / "data" / "LICENSE-adult.txt").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in licence


def test_adult_has_the_documented_counts() -> None:
    # From the data set's documentation (adult.names): 32561 + 16281 instances, 30162 + 15060 without
    # unknown values; '>50K' has probability 23.93%, and 24.78% without unknown values.
    counts, complete_counts, positive = [], [], []
    for split in ("train", "test"):
        frame = load_adult(split)  # type: ignore[arg-type]
        complete = frame[~(frame == "?").any(axis=1)]
        counts.append(len(frame))
        complete_counts.append(len(complete))
        positive.append((int(np.sum(adult_labels(frame) > 0)), int(np.sum(adult_labels(complete) > 0))))
    assert counts == [32_561, 16_281]
    assert complete_counts == [30_162, 15_060]
    assert positive[0][0] == 7_841
    everyone, known = np.sum(positive, axis=0)
    assert round(100 * everyone / 48_842, 2) == 23.93
    assert round(100 * known / 45_222, 2) == 24.78


def test_adult_frames_are_clean() -> None:
    frame = load_adult("all")
    assert frame.shape == (48_842, 15)
    assert set(frame[ADULT_TARGET]) == set(ADULT23_CLASSES)
    assert not frame.isna().any(axis=None)
    # The first record of each raw file, read by eye.
    assert frame.iloc[0, :4].tolist() == [39, "State-gov", 77516, "Bachelors"]
    assert frame.iloc[32_561, :4].tolist() == [25, "Private", 226802, "11th"]


def test_adult_schema_declares_exactly_the_levels_that_occur() -> None:
    # Declared from the documentation; equal sets show that no name was mistyped.
    frame = load_adult("all")
    categorical = [c for c in adult_schema().columns if isinstance(c, Categorical)]
    assert len(categorical) == 8
    for column in categorical:
        assert set(column.categories) == set(frame[column.name])


def test_adult_schema_encodes_everybody() -> None:
    schema = adult_schema(intercept=True)
    encoded = schema.encode(load_adult("all"))
    # 6 numbers; 9 + 16 + 7 + 15 + 6 + 5 + 2 + 42 categories; the intercept. lcm(90, 16, 99, 100) = 39600.
    assert encoded.X.shape == (48_842, 109)
    assert encoded.denominator == 39_600
    one_hots = encoded.X[:, [i for i, name in enumerate(encoded.names) if "=" in name]]
    assert np.all(one_hots.sum(axis=1) == 8 * encoded.denominator)
    assert encoded.X.min() >= 0
    assert encoded.X.max() == encoded.denominator


def test_the_task_of_the_paper() -> None:
    X, y, schema = load_adult23()
    assert X.shape == (15_682, 23)
    assert schema.denominator == 7920
    assert [int(np.sum(y == label)) for label in (1, -1)] == [7_841, 7_841]
    frame = adult23_frame()
    # 7920 / 90, 7920 / 16, 7920 / 99.
    for j, (name, factor) in enumerate({"age": 88, "education-num": 495, "hours-per-week": 80}.items()):
        assert np.array_equal(X[:, j], factor * frame[name].to_numpy())
    for start, stop in ((3, 10), (10, 16), (16, 21), (21, 23)):
        assert np.all(np.sort(X[:, start:stop], axis=1)[:, -1] == 7920)
        assert np.all(X[:, start:stop].sum(axis=1) == 7920)
    assert schema.feature_names[3] == "marital-status=Married-civ-spouse"


def test_the_draw_keeps_file_order_and_depends_on_the_seed() -> None:
    full, drawn = load_adult("train"), adult23_frame(0)
    remaining = full[drawn.columns].itertuples(index=False, name=None)
    assert all(row in remaining for row in drawn.itertuples(index=False, name=None))  # a subsequence
    positives = full.loc[full[ADULT_TARGET] == ">50K", drawn.columns].reset_index(drop=True)
    assert drawn[drawn[ADULT_TARGET] == ">50K"].reset_index(drop=True).equals(positives)
    assert adult23_frame(0).equals(drawn)
    assert not adult23_frame(1).equals(drawn)


def test_held_out_records_use_the_same_columns() -> None:
    X, y, schema = load_adult23_test()
    assert X.shape == (16_281, 23)
    assert schema == adult23_schema()
    assert int(np.sum(y == 1)) == 11_687 - 7_841  # 23.93% of 48,842 less the training file's


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="split"):
        load_adult("validation")  # type: ignore[arg-type]


def test_cells_have_blocks_and_a_grid() -> None:
    X, y = make_cells(300, (4, 3), 2, grid=10, seed=0)
    assert X.shape == (300, 9)
    assert X.dtype == y.dtype == np.int64
    assert X[:, :2].min() == 0
    assert X[:, :2].max() == 10
    for start, stop in ((2, 6), (6, 9)):
        assert np.all(X[:, start:stop].sum(axis=1) == 10)
        assert set(np.unique(X[:, start:stop])) == {0, 10}
    assert set(y.tolist()) == {-1, 1}
    assert np.array_equal(make_cells(300, (4, 3), 2, grid=10, seed=0)[0], X)
    assert make_cells(5, (), 1, seed=0)[0].shape == (5, 1)
    assert make_cells(5, (2,), 0, seed=0)[0].shape == (5, 2)


def test_impossible_instances_are_refused() -> None:
    for wrong in (
        lambda: make_cells(3, (0,), seed=0),
        lambda: make_cells(3, (), 0, seed=0),
        lambda: make_cells(3, grid=0, seed=0),
    ):
        with pytest.raises(InvalidInputError):
            wrong()

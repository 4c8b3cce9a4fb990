"""Covertype against its published counts and checksum, and the synthetic logistic task."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from privopt.problems.datasets.covertype import (
    COVERTYPE_CLASSES,
    COVERTYPE_COLUMNS,
    covertype_binary,
    covertype_bounds,
    load_covertype,
)


def test_shape_and_the_published_class_counts() -> None:
    X, y = load_covertype(np.float32)
    assert X.shape == (581_012, 54)
    assert len(COVERTYPE_COLUMNS) == 54
    # The counts in the data set's documentation (covtype.info), classes 1 to 7.
    counts = [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]
    assert np.bincount(y)[1:].tolist() == counts
    assert len(COVERTYPE_CLASSES) == 7
    np.testing.assert_array_equal(X[:, 10:14].sum(axis=1), 1)
    np.testing.assert_array_equal(X[:, 14:].sum(axis=1), 1)


@pytest.mark.slow
def test_rebuilt_file_has_the_distributed_checksum() -> None:
    X, y = load_covertype(np.int16)
    digest = hashlib.md5(usedforsecurity=False)
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        digest.update((",".join(map(str, [*row, label])) + "\n").encode())
    assert digest.hexdigest() == "71df19898bd3e11db15ae0faf4159f2c"


def test_binary_task_is_class_2_against_the_rest_within_public_bounds() -> None:
    X, y = covertype_binary(np.float32)
    assert np.count_nonzero(y == 1) == 283_301
    assert set(np.unique(y)) == {-1, 1}
    assert X.min() == 0
    assert X.max() == 1
    assert float(np.max(np.einsum("ij,ij->i", X, X))) <= 12
    box = covertype_bounds()
    raw, _ = load_covertype(np.float32)
    assert np.all(raw >= box.low)  # the round public bounds clip nothing
    assert np.all(raw <= box.high)

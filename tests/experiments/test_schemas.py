"""Ranks of private cuts: what an excess is."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.experiments import schemas


def test_ties_are_no_error_and_misses_are() -> None:
    share = 1 / schemas._RECORDS
    even = np.arange(100.0)
    assert schemas.excess(even, 50.0) == 0
    assert schemas.excess(even, 60.0) == pytest.approx(10 * share)
    zeros = np.repeat([0.0, 1.0], [70, 30])  # a cut has 0, 70 or 100 records below it
    assert schemas.excess(zeros, 0.5) == 0
    assert schemas.excess(zeros, 0.0) == pytest.approx(30 * share)
    assert schemas.tree_excess(even, 50.0, (25.0, 50.0, 74.0)) == pytest.approx([0, 0, share])


def test_the_shapes_are_fifteen_columns_of_ten_thousand_numbers() -> None:
    found = schemas.shapes()
    assert len(found) == 15
    assert all(values.shape == (10_000,) and np.isfinite(values).all() for values in found.values())

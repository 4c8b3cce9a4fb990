"""Records of arrays in compiled code, and the line that says that code is being compiled."""

from __future__ import annotations

import dataclasses
import logging
import pickle

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.record import Record


class Pair(Record):
    size: int
    line: NDArray[np.int64]
    table: NDArray[np.float64]


class Turned(Record):
    size: int
    table: NDArray[np.float64]
    line: NDArray[np.int64]


@njit  # type: ignore[untyped-decorator]
def total(pair: Pair, row: int) -> float:
    found = 0.0
    for j in range(pair.table.shape[1]):
        found += pair.table[row, j] * pair.line[j] * pair.size
    pair.line[0] = -1
    return found


def make() -> Pair:
    return Pair(3, np.array([5, 7]), np.array([[1.0, 10.0], [100.0, 1000.0], [0.5, 0.25]]))


def test_compiled_code_reads_and_writes_the_arrays() -> None:
    pair = make()
    assert total(pair, 1) == 3 * (5 * 100 + 7 * 1000)
    assert pair.line.tolist() == [-1, 7]
    copied = pickle.loads(pickle.dumps(pair))
    assert total(copied, 2) == 3 * (-0.5 + 7 * 0.25)
    assert copied.address != pair.address
    assert total(dataclasses.replace(pair, size=1), 0) == -1 + 70
    turned = Turned(3, pair.table, np.array([5, 7]))
    assert total(turned, 1) == 3 * (5 * 100 + 7 * 1000)
    assert turned._numba_type_ != pair._numba_type_
    assert pair.nbytes == 8 * (2 + 6)


def test_an_array_in_another_order_is_refused() -> None:
    with pytest.raises(ValueError, match="table must be in C order"):
        Pair(1, np.array([1]), np.ones((2, 3)).T)


def test_compiling_is_announced_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    @njit  # type: ignore[untyped-decorator]
    def doubled(x: int) -> int:
        return 2 * x

    with caplog.at_level(logging.WARNING, "privopt"):
        for _ in range(2):
            with announced("an example"):
                doubled(1)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "compiling an example for this machine"
    ]

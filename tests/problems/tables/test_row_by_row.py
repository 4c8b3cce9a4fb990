"""Steps of a Dask graph by which a partition depends on others are refused; all others are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.partitions import parts_of

da = pytest.importorskip("dask.array", reason="Dask is not installed")
dd = pytest.importorskip("dask.dataframe")
dask = pytest.importorskip("dask")
delayed = dask.delayed

ROWS = np.arange(24.0).reshape(12, 2)
FRAME = pd.DataFrame({"a": np.arange(12.0), "b": list("uv") * 6, "y": np.arange(12) % 2})


def array(chunks: int = 3, rows: Any = ROWS) -> Any:
    return da.from_array(rows, chunks=(chunks, 2))


def labels(chunks: int = 3) -> Any:
    return da.from_array(np.arange(12) % 2, chunks=chunks)


BY_ROW: dict[str, Callable[[], tuple[Any, Any]]] = {
    "blocks": lambda: (array(), labels()),
    "one block": lambda: (array(12), labels(12)),
    "blocks of columns": lambda: (da.from_array(ROWS, chunks=(3, 1)), labels()),
    "constants": lambda: ((array() - np.array([1.0, 2.0])) / 3, labels()),
    "projection": lambda: (array() @ np.ones((2, 5)), labels()),
    "rechunk": lambda: (array().rechunk((4, 2)), labels().rechunk(4)),
    "rechunk to one": lambda: (array().rechunk((12, 2)), labels().rechunk(12)),
    "one that is cut": lambda: (array(12).rechunk((3, 2)), labels()),
    "slice": lambda: (array()[2:], labels()[2:]),
    "records of one block": lambda: (array(12)[[3, 0, 5]], labels(12)[[3, 0, 5]]),
    "a column twice": lambda: (array()[:, [0, 0]], labels()),
    "mask": lambda: (array()[labels() > 0], labels()[labels() > 0]),
    "map_blocks": lambda: (array().map_blocks(np.sqrt), labels()),
    "two tables": lambda: (da.concatenate([array(), array(rows=ROWS * 2)]), da.zeros(24, chunks=3)),
    "drawn": lambda: (da.random.default_rng(0).normal(size=(12, 2), chunks=(3, 2)), labels()),
}
MIXED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "maximum": lambda: (array() - array().max(axis=0), labels()),
    "mean": lambda: (array() / array().mean(axis=0), labels()),
    "mean of labels": lambda: (array(), labels() > labels().mean()),
    "totals": lambda: (array().sum(axis=0, keepdims=True), labels().sum(keepdims=True)),
    "cumsum": lambda: (array().cumsum(axis=0), labels()),
    "map_overlap": lambda: (array().map_overlap(np.sqrt, depth=1), labels()),
    "other order": lambda: (array() + array()[::-1], labels()),
    "products": lambda: (array() @ array().T, labels()),
    "twice": lambda: (da.concatenate([array(), array() + 1]), da.concatenate([labels()] * 2)),
    "one block twice": lambda: (da.concatenate([array(12)] * 2), da.concatenate([labels(12)] * 2)),
}
FRAMES_BY_ROW: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda f: f,
    "dropna": lambda f: f.dropna(),
    "loc": lambda f: f.loc[f.a > 3],
    "filter and assign": lambda f: f[f.a > 3].assign(a=f.a * 2),
    "map_partitions": lambda f: f.map_partitions(lambda part: part),
    "repartition": lambda f: f.repartition(npartitions=2),
    "sample": lambda f: f.sample(frac=0.5, random_state=1),
    "concat": lambda f: dd.concat([f, dd.from_pandas(FRAME * 1, npartitions=2)]),
}
FRAMES_MIXED: dict[str, Callable[[Any], Any]] = {
    "shuffle": lambda f: f.shuffle("a"),
    "merge": lambda f: f.merge(f[["b"]], on="b"),
    "merge of one partition": lambda f: f.merge(dd.from_pandas(FRAME[["b"]], npartitions=1), on="b"),
    "merge of a data frame": lambda f: f.merge(FRAME[["b"]], on="b"),
    "mean": lambda f: f.assign(a=f.a - f.a.mean()),
    "fillna": lambda f: f.assign(a=f.a.fillna(f.a.max())),
    "drop_duplicates": lambda f: f.drop_duplicates(),
    "concat of itself": lambda f: dd.concat([f, f]),
    "rolling": lambda f: f.assign(a=f.a.rolling(2).sum()),
    "cumsum": lambda f: f.assign(a=f.a.cumsum()),
    "shift": lambda f: f.assign(a=f.a.shift(1)),
}


@pytest.mark.parametrize("made", BY_ROW)
def test_arrays_by_row_are_taken(made: str) -> None:
    assert parts_of(*BY_ROW[made]()) is not None


@pytest.mark.parametrize("made", MIXED)
def test_arrays_with_mixed_rows_are_refused(made: str) -> None:
    with pytest.raises(InvalidInputError, match="depends on others"):
        parts_of(*MIXED[made]())


def test_steps_that_repeat_records_are_refused() -> None:
    with dask.config.set({"dataframe.convert-string": False}):  # lists are no text
        lists = dd.from_pandas(FRAME.assign(c=[[1.0, 2.0]] * 12), npartitions=2).explode("c")
    long = dd.from_pandas(FRAME[["a", "y"]], npartitions=2).melt(id_vars=["y"])
    twice = (da.repeat(array(), 2, axis=0), da.repeat(labels(), 2))
    more = lists[["c", "y"]].rename(columns={"c": "z"})  # in optimised graphs steps are within others
    fused = more[["z"]].optimize(), more["y"].optimize()
    frames = ((lists[["c"]], lists["y"]), (long[["value"]], long["y"]), fused)
    for X, y in (twice, dask.optimize(*twice), *frames):
        with pytest.raises(InvalidInputError, match="makes several rows of one record"):
            parts_of(X, y)


@pytest.mark.parametrize("index", [[0, 0, 1], [2, 5, 5], np.array([1, 1])], ids=str)
def test_an_index_with_a_record_twice_is_refused(index: Any) -> None:
    table = dd.from_pandas(FRAME, npartitions=3).loc[index]
    rows, classes = array()[index], labels()[index]
    for X, y in (
        (table[["a"]], table["y"]),
        (table[["a"]].optimize(), table["y"].optimize()),
        (rows, classes),
        dask.optimize(rows * 2, classes * 2),
    ):
        with pytest.raises(InvalidInputError, match="makes several rows of one record"):
            parts_of(X, y)


def test_samples_with_replacement_and_rows_spread_over_an_axis_are_refused() -> None:
    table = dd.from_pandas(FRAME, npartitions=3).sample(frac=2, replace=True, random_state=1)
    spread = da.broadcast_to(array()[None], (2, 12, 2)).reshape(24, 2), da.zeros(24, chunks=3)
    for X, y in ((table[["a"]], table["y"]), spread, dask.optimize(*spread)):
        with pytest.raises(InvalidInputError, match="makes several rows of one record"):
            parts_of(X, y)


def frame(turn: int, folder: Path) -> Any:
    """One table, of three sources in turn."""
    if turn % 3 == 0:
        return dd.from_pandas(FRAME, npartitions=4)
    files = [folder / f"{k}.parquet" for k in range(4)]
    for k, file in enumerate(files):
        FRAME[3 * k : 3 * k + 3].to_parquet(file)
    if turn % 3 == 1:
        return dd.read_parquet(folder)
    return dd.from_delayed([delayed(pd.read_parquet)(file) for file in files], meta=FRAME[:0])


@pytest.mark.parametrize("one", [1.0, 2.0])
def test_parquet_files_read_by_a_filter_are_refused(tmp_path: Path, one: float) -> None:
    """Statistics that leave NaN out decide it: of neighbours, 0 and 11 records differed from 1."""
    path = tmp_path / "a.parquet"
    x = pyarrow.array([one] + [np.nan] * 10, from_pandas=False)
    pyarrow.parquet.write_table(pyarrow.table({"x": x, "y": np.zeros(11)}), path)
    arrow, differs = {"filesystem": "arrow"}, {"filters": [("x", "!=", 1.0)]}
    by_condition = dd.read_parquet(path, **arrow)
    by_condition = by_condition[by_condition["x"] != 1.0]
    for rows in (dd.read_parquet(path, **differs), dd.read_parquet(path, **arrow, **differs), by_condition):
        for given in (rows[["x"]], rows[["x"]].optimize(), rows[["x"]].to_dask_array(lengths=True)):
            with pytest.raises(InvalidInputError, match="Dask reads Parquet files by a filter"):
                parts_of(given, rows["y"])
    rows = dd.read_parquet(path)
    rows = rows[rows["x"] != 1.0]
    assert sum(parts_of(rows[["x"]], rows["y"]).each(lambda part: len(part[0]))) == 10 + (one != 1.0)


@pytest.mark.parametrize("made", FRAMES_BY_ROW)
def test_data_frames_by_row_are_taken(made: str, tmp_path: Path) -> None:
    table = FRAMES_BY_ROW[made](frame(list(FRAMES_BY_ROW).index(made), tmp_path))
    assert parts_of(table[["a"]], table["y"]) is not None
    assert parts_of(table[["a"]].to_dask_array(), table["y"].to_dask_array()) is not None


@pytest.mark.parametrize("made", FRAMES_MIXED)
def test_data_frames_with_mixed_rows_are_refused(made: str, tmp_path: Path) -> None:
    ordered = made in ("rolling", "cumsum", "shift")  # which Dask takes of known divisions alone
    table = FRAMES_MIXED[made](frame(0 if ordered else list(FRAMES_MIXED).index(made), tmp_path))
    with pytest.raises(InvalidInputError, match="depends on others"):
        parts_of(table[["a"]], table["y"])

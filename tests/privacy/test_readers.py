"""No reader lets one cell change how another record is read, or turn a lenient schema into a refusal."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema, read_table
from privopt.problems.arrays import record_counts

BIG = 1 << 53
SCHEMA = Schema(
    [
        MissingLevel(Binned("whole", [-BIG, 0, BIG, 5258986265376043509, 2**63])),
        MissingLevel(Numeric("real", -1, 1, step="1/1000")),
        MissingLevel(Categorical("word", ["a", "\u00e9", "NA", "1"], "ignore", na_values=["?"])),
    ]
)
KINDS = {"whole": pa.int64(), "real": pa.float64(), "word": pa.string()}
WHOLE = st.sampled_from(
    [None, 0, 1, BIG - 1, BIG + 1, 5258986265376043509, 5258986265376043508, 2**63 - 1, -(2**63)]
)
REAL = st.sampled_from([None, 0.1, -0.0, 0.5005, 1e300, float("inf"), float("-inf"), float("nan"), 5e-324])
WORD = st.sampled_from([None, "a", "\u00e9", "e\u0301", "NA", "?", "x" * 400, "a ", "1", "1.0"])
ROWS = st.lists(st.tuples(WHOLE, REAL, WORD), min_size=2, max_size=6)
WRITTEN = st.sampled_from(
    ["", "x", "NA", "1e999", "9" * 400, "5.5", "-inf", "nan", "\u0663", "5258986265376043509"]
)
SETTINGS = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
Rows = list[tuple[Any, ...]]


def arrow(rows: Rows) -> Any:
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, kind) for (n, kind), c in zip(KINDS.items(), columns, strict=True)})


def in_dictionaries(rows: Rows) -> Any:
    table = arrow(rows)
    return pa.table({name: table[name].dictionary_encode() for name in KINDS})


def in_polars(rows: Rows) -> Any:
    return pytest.importorskip("polars").from_arrow(arrow(rows))


def from_parquet(rows: Rows, folder: Path) -> Any:
    pa.parquet.write_table(arrow(rows), folder / "t.parquet")
    return read_table(folder / "t.parquet")


IN_MEMORY: dict[str, Callable[[Rows, Path], Any]] = {
    "lists": lambda rows, folder: dict(zip(KINDS, map(list, zip(*rows, strict=True)), strict=True)),
    "pandas": lambda rows, folder: pd.DataFrame(rows, columns=list(KINDS)),
    "nullable": lambda rows, folder: arrow(rows).to_pandas(types_mapper=pd.ArrowDtype),
    "numpy nullable": lambda rows, folder: pd.DataFrame(rows, columns=list(KINDS)).convert_dtypes(),
    "categorical": lambda rows, folder: pd.DataFrame(rows, columns=list(KINDS)).astype("category"),
    "arrow": lambda rows, folder: arrow(rows),
    "dictionaries": lambda rows, folder: in_dictionaries(rows),
    "polars": lambda rows, folder: in_polars(rows),
    "parquet": from_parquet,
}


def codes(table: Any) -> list[list[int]]:
    return np.transpose(SCHEMA.codes(table)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("reader", IN_MEMORY)
@SETTINGS
@given(rows=ROWS, other=st.tuples(WHOLE, REAL, WORD), place=st.integers(0, 1))
def test_one_record_changes_its_own_codes_alone(
    reader: str, tmp_path: Path, rows: Rows, other: tuple[Any, ...], place: int
) -> None:
    """And all readers read alike: each record as it is read alone, as Python objects."""
    made = IN_MEMORY[reader]
    expected = [codes({n: [v] for n, v in zip(KINDS, row, strict=True)})[0] for row in rows]
    assert codes(made(rows, tmp_path)) == expected
    changed = codes(made([*rows[:place], other, *rows[place + 1 :]], tmp_path))
    assert [c for i, c in enumerate(changed) if i != place] == [
        c for i, c in enumerate(expected) if i != place
    ]


@SETTINGS
@given(rows=ROWS, cell=WRITTEN, place=st.integers(0, 1), column=st.integers(0, 2), quoted=st.booleans())
def test_one_cell_of_a_file_changes_its_own_record_alone(
    tmp_path: Path, rows: Rows, cell: str, place: int, column: int, quoted: bool
) -> None:
    lines = [["" if v is None else str(v) for v in row] for row in rows]
    expected = [codes({n: [v or None] for n, v in zip(KINDS, line, strict=True)})[0] for line in lines]
    lines[place][column] = cell
    mark = '"' if quoted else ""
    text = "\n".join(",".join(f"{mark}{v}{mark}" for v in line) for line in [list(KINDS), *lines])
    (tmp_path / "t.csv").write_text(text + "\n", "utf-8")
    for as_text in (SCHEMA.text_columns, ["word"]):
        found = codes(read_table(tmp_path / "t.csv", as_text))
        assert [c for i, c in enumerate(found) if i != place] == [
            c for i, c in enumerate(expected) if i != place
        ]


def test_partitions_of_dask_are_read_alike() -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    rows = [(5258986265376043509, 0.1, "a"), (None, 0.5, None), (BIG + 1, float("inf"), "?"), (1, None, "NA")]
    frame = pd.DataFrame(
        {n: pd.Series(c, dtype=object) for n, c in zip(KINDS, zip(*rows, strict=True), strict=True)}
    )
    parts = dataframe.from_pandas(frame, npartitions=2).to_delayed()
    assert [code for part in parts for code in codes(part.compute())] == codes(frame)


def test_labels_and_counts_of_odd_types_are_refused_in_plain_words() -> None:
    schema, table = Schema([Binned("x", [0, 1, 2])]), {"x": [1, 1]}
    card = PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1))
    with pytest.raises(InvalidInputError, match="missing labels"):
        card.fit(table, [Decimal("sNaN"), 1])
    with pytest.raises(InvalidInputError, match="no text, integers or booleans"):
        card.fit(table, np.array([b"a", b"b"]))
    with pytest.raises(InvalidInputError, match="counts must be whole numbers"):
        record_counts([[1], [1, 2]], 2)
    twice = pd.DataFrame([[0.1, 0.2]] * 2, columns=["SECRET", "SECRET"])
    with pytest.raises(InvalidInputError, match="columns need distinct names") as refused:
        PrivateLogisticRegression(1.0, data_norm=1.0, classes=(0, 1)).fit(twice, [0, 1])
    assert "SECRET" not in str(refused.value)

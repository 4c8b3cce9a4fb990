"""Reading of tables from CSV files, compressed or not, and Parquet files. No error quotes their content."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from privopt.problems.arguments import as_path, told
from privopt.problems.errors import SchemaError
from privopt.problems.tables.cells import read_numbers
from privopt.problems.tables.frames import as_pandas, check_distinct
from privopt.problems.tables.schema import Schema

_FLOAT = r"(?i:[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?))"


def read_table(path: str | Path, text: Collection[str] = (), *, schema: Schema | None = None) -> pd.DataFrame:
    """Read a table: CSV with a header (.csv, also compressed as .csv.gz), or .parquet.

    CSV files are UTF-8 and separated by commas; by semicolons or tabs if the header holds no comma. Blanks
    after a separator are no part of a cell. Only empty cells count as missing: "NA", "None" and "?" stay
    text, which a schema may declare as missing. Empty lines are skipped; in a table of one column an empty
    line is an empty cell.

    Columns of the schema and those in ``text`` hold the cells as text, for the schema to convert one by one.
    Any other column of a CSV file holds numbers, the nearest 64-bit ones, if all of its cells are numbers;
    else text. So, without the schema, what a cell means can depend on other records: "01" is the number 1 if
    all cells of its column are numbers, else a text.

    Text, dates and times of a Parquet file stay in Arrow, because pandas cannot hold all of them.

    Args:
        path: the file.
        text: further columns of a CSV file that are read as text, such as labels.
        schema: the declaration that is going to encode the table.

    Raises:
        SchemaError: another extension, a file that cannot be read, or no ``Schema``. No content is repeated.
    """
    if not isinstance(schema, Schema | None):
        raise SchemaError(f"schema takes a Schema, such as Schema.load(path) returns; got {told(schema)}")
    written = {*text, *([] if schema is None else schema.text_columns)}
    with _told_apart(path) as file:
        return _read_parquet(file, written) if _is_parquet(file) else _read_csv(file, written)


def header_of(path: str | Path) -> pyarrow.Schema | list[str]:
    """Return the names of a table's columns, for a Parquet file with their types; no record is read.

    Raises:
        SchemaError: as ``read_table``.
    """
    with _told_apart(path) as file:
        return pyarrow.parquet.read_schema(file) if _is_parquet(file) else _csv_header(file)[1]


def _is_parquet(file: Path) -> bool:
    return file.name.lower().endswith(".parquet")


@contextmanager
def _told_apart(path: str | Path) -> Iterator[Path]:
    """Open the path of a table; errors in the block become SchemaError without the file's content."""
    file = as_path(path, "a table")
    name = file.name.lower()
    if file.is_dir():
        raise SchemaError(
            f"{file}: that is a folder; name a table in it, or all by a pattern such as {file}/*.parquet"
        )
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise SchemaError(f"{file.name}: tables end in .csv, .csv.gz or .parquet")
    try:
        yield file
    except FileNotFoundError:
        raise SchemaError(f"{file}: no such file") from None
    except PermissionError:
        raise SchemaError(f"{file}: permission denied") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{file}: not UTF-8 text; save it as CSV in UTF-8") from None
    except SchemaError:
        raise
    except (OSError, ValueError, EOFError, zlib.error):  # messages of parsers can quote records
        kind = {"parquet": "Parquet", "csv": "CSV", "gz": "gzip-compressed CSV"}[name.rpartition(".")[2]]
        raise SchemaError(f"{file}: damaged, or not a {kind} file") from None


def _read_parquet(file: Path, exact: Collection[str]) -> pd.DataFrame:
    content = pyarrow.parquet.ParquetFile(file)
    check_distinct(str(file), content.schema_arrow.names)
    found: pd.DataFrame = as_pandas(content.read(), exact)
    return found


def _csv_header(file: Path) -> tuple[str, list[str]]:
    """Return the separator and the names of the columns."""
    with _csv_text(file) as stream:
        first = stream.readline()
        separator = next((s for s in ",;\t" if s in first), ",")
        stream.seek(0)
        header = next(csv.reader(stream, delimiter=separator, skipinitialspace=True), [])
    if not any(header):
        raise SchemaError(f"{file}: the first line must hold the names of the columns, and it is empty")
    check_distinct(str(file), header)
    return separator, header


def _read_csv(file: Path, text: Collection[str]) -> pd.DataFrame:
    separator, header = _csv_header(file)
    frame = _read_unquoted(file, separator, header)
    if frame is None:
        frame = _read_quoted(file, separator, header)
    for name in set(frame.columns) - set(text):
        frame[name] = _numbers_if_all(frame[name])
    return frame


def _numbers_if_all(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Convert text to numbers or truth values if all cells are such or empty; else return it unchanged.

    pandas can convert when it reads a file, but before version 3.1 it takes -2^63 for a missing cell if the
    column has an empty cell.
    """
    texts = pc.ascii_trim_whitespace(pa.array(cells, type=pa.large_string(), from_pandas=True))
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not texts.null_count and _all_match(texts, "[+-]?[0-9]+"):
        for whole in (pa.int64(), pa.uint64()):
            with suppress(pa.ArrowInvalid):  # beyond the type: the next one, or the nearest floats
                return pd.Series(np.asarray(pc.cast(pc.replace_substring_regex(texts, r"^\+", ""), whole)))
    if _all_match(texts, _FLOAT):
        return pd.Series(read_numbers(texts).values)
    if _all_match(texts, "(?i:true|false)"):
        return pd.Series(np.asarray(pc.equal(pc.ascii_lower(texts), "true")))
    return cells


def _all_match(texts: Any, pattern: str) -> bool:
    """Return whether all texts match, and there are some."""
    found = pc.match_substring_regex(texts, f"^({pattern})$")
    return len(texts) > 0 and pc.all(found, min_count=0).as_py() is not False


def _read_quoted(file: Path, separator: str, header: list[str]) -> pd.DataFrame:
    """Read all cells as text by pandas; check the number of cells of each line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # pandas warns of cells beyond the header
            frame = pd.read_csv(
                file, sep=separator, dtype=str, index_col=False, keep_default_na=False, na_values=[""],
                low_memory=False, encoding="utf-8-sig", skipinitialspace=True,
                skip_blank_lines=len(header) > 1,
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _check_lines(file, separator, len(header))
        open_quote = re.search(r"EOF inside string starting at row (\d+)", str(error))
        where = f"; the quote that opens in record {open_quote[1]} is never closed" if open_quote else ""
        raise SchemaError(f"{file}: damaged, or not a CSV file{where}") from None
    if frame.iloc[:, -1].isna().any():  # for example after a line that is too short
        _check_lines(file, separator, len(header))
    return frame


def _read_unquoted(file: Path, separator: str, header: list[str]) -> pd.DataFrame | None:
    """Read all cells as text by Arrow, which is faster; None if a quote or a malformed line needs pandas."""
    with _csv_bytes(file) as raw:
        content = raw.read()
    if b'"' in content or b"\0" in content:
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            read_options=pyarrow.csv.ReadOptions(column_names=header, skip_rows=1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=separator, quote_char=False, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.large_string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid:
        return None
    if any(before + b" " in content for before in (separator.encode(), b"\n", b"\r")):
        trimmed = [pc.utf8_ltrim(column, characters=" ") for column in table.columns]
        nothing = pa.scalar(None, pa.large_string())
        cells = [pc.if_else(pc.equal(column, ""), nothing, column) for column in trimmed]
        table = pa.table(cells, names=header)
    frame: pd.DataFrame = table.to_pandas()
    return frame


@contextmanager
def _csv_bytes(file: Path) -> Iterator[Any]:
    with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as raw:
        yield raw


@contextmanager
def _csv_text(file: Path) -> Iterator[io.TextIOWrapper]:
    with _csv_bytes(file) as raw:
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _check_lines(file: Path, separator: str, width: int) -> None:
    """Raise SchemaError at the first line that does not have ``width`` cells."""
    with _csv_text(file) as stream:
        lines = csv.reader(stream, delimiter=separator, skipinitialspace=True)
        try:
            for cells in lines:
                if cells and len(cells) != width:
                    raise SchemaError(
                        f"{file}, line {lines.line_num}: {len(cells)} cells where the header has {width}"
                    )
        except csv.Error:
            raise SchemaError(f"{file}, line {lines.line_num}: a quote is never closed") from None

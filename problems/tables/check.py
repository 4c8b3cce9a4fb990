"""Effect of a schema on public or synthetic rows: counts of accepted and refused cells, by column.

Counts are exact functions of the rows: counts of private rows would leak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privopt.problems.tables.cells import MISSING, UNDECLARED, UNREADABLE
from privopt.problems.tables.columns import Binned, Categorical, Column, Number
from privopt.problems.tables.frames import Table
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class ColumnCheck:
    """Counts of the cells of one column.

    Attributes:
        name: the column.
        cells: the number of cells.
        missing: of these, empty cells and missing-value markers.
        unreadable: of these, cells of another type than the column's.
        outside: of these, values beyond the declared bounds or categories.
        refused: the number of cells that the schema refuses.
        levels: the share of each level among accepted cells.
        treatments: the declared treatments of missing (and unreadable) cells, and of those outside.
    """

    name: str
    cells: int
    missing: int
    unreadable: int
    outside: int
    refused: int
    levels: tuple[tuple[str, float], ...]
    treatments: tuple[str, str]

    def __str__(self) -> str:
        gaps, beyond = self.treatments
        facts = [f"{self.missing:,} missing", f"{self.unreadable:,} unreadable"]
        found = f"{self.name}: {', '.join(facts)} ({gaps}); {self.outside:,} outside ({beyond})"
        if self.levels:
            found += "; " + ", ".join(f"{level}: {share:.1%}" for level, share in self.levels)
        return found


@dataclass(frozen=True)
class SchemaCheck:
    """The counts of all columns."""

    columns: tuple[ColumnCheck, ...]

    @property
    def verdict(self) -> str:
        """Whether the schema accepts the rows; a remedy if it refuses them or cannot read most cells."""
        refused = [column for column in self.columns if column.refused]
        names = ", ".join(f"{column.name!r} ({column.refused:,} cells)" for column in refused)
        said = (
            f"refused: column {names}. To do: complete the declaration, or accept such cells by "
            "missing_level = true and outside = 'clip' or 'ignore'"
            if refused
            else "every row is accepted"
        )
        if unread := [repr(column.name) for column in self.columns if 2 * column.unreadable > column.cells]:
            said += (
                f"\nmost cells are not read: column {', '.join(unread)}. To do: declare how its text writes "
                "numbers (decimal, thousands, symbols, words) or dates (format)"
            )
        return said


def check_rows(schema: Schema, table: Table) -> SchemaCheck:
    """Count what a schema does to the rows of a table that is public or synthetic.

    Raises:
        SchemaError: columns that the table lacks.
    """
    arrays = schema.declared_columns(table)
    return SchemaCheck(tuple(_check(c, values) for c, values in zip(schema.columns, arrays, strict=True)))


def _check(column: Column, values: Any) -> ColumnCheck:
    kind, has_level = plain_column(column)
    if isinstance(kind, Number):
        found = kind.read(values)
        low, high = map(float, kind.bounds)
        empty, unreadable = np.isnan(found.values) & ~found.unreadable, found.unreadable
        outside = (found.values < low) | (found.values > high)
    else:
        assert isinstance(kind, Categorical)
        places = kind.positions(values)
        empty, unreadable, outside = (places == code for code in (MISSING, UNREADABLE, UNDECLARED))
    gap_refused = empty if isinstance(kind, Categorical) else empty | unreadable
    refused = (gap_refused & (column.gap is None)) | (outside & (kind.outside == "refuse"))
    if isinstance(kind, Categorical) and kind.outside == "refuse":
        refused = refused | unreadable
    missing = "refused" if column.gap is None else "a level" if has_level else "replaced"
    beyond = {"clip": "clipped", "ignore": "no points", "refuse": "refused"}[kind.outside]
    levels = _levels(column, _kept(values, ~refused))
    return ColumnCheck(
        name=column.name,
        cells=len(values),
        missing=int(np.count_nonzero(empty)),
        unreadable=int(np.count_nonzero(unreadable)),
        outside=int(np.count_nonzero(outside)),
        refused=int(np.count_nonzero(refused)),
        levels=levels,
        treatments=(missing, beyond),
    )


def _kept(values: Any, rows: NDArray[np.bool_]) -> Any:
    return values.filter(pa.array(rows)) if isinstance(values, pa.Array) else values[rows]


def _levels(column: Column, values: Any) -> tuple[tuple[str, float], ...]:
    """Return the shares of bins, categories and the missing level; none for a column of numbers on a grid."""
    kind, has_level = plain_column(column)
    if not isinstance(kind, Binned | Categorical) or len(values) == 0:
        return ()
    names = list(kind.words) if isinstance(kind, Binned) else [str(c) for c in kind.categories]
    if isinstance(kind, Categorical) and kind.outside == "ignore":
        names.append("any other")
    names += ["missing"] * has_level
    shares = np.bincount(column.code(values), minlength=len(names)) / len(values)
    return tuple(zip(names, shares.tolist(), strict=True))

"""Missing values as a separate level of a column."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from privopt.problems.arguments import told
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import SchemaError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.values import Refused


@dataclass(frozen=True)
class MissingLevel(Column):
    """A column with a separate level for missing values (empty, NaN, None, markers): no imputation.

    The column has one more feature, an indicator of missing values; its other features are 0 where the value
    is missing. In numeric and binned columns, any cell that is not a number counts as missing. In a schema
    file, declare the level with ``missing_level = true`` among the keys of the column.

    Args:
        column: a ``Numeric``, ``Categorical`` or ``Binned``.

    Raises:
        SchemaError: another kind of column, or one that already declares ``missing``.
    """

    column: Numeric | Categorical | Binned

    def __post_init__(self) -> None:
        if not isinstance(self.column, Numeric | Categorical | Binned):
            raise SchemaError(
                f"a missing level belongs to a numeric, categorical or binned column, got {told(self.column)}"
            )
        if self.column.missing is not None:
            raise SchemaError(
                f"column {self.name!r}: missing and missing_level exclude each other: declare one of them"
            )

    @property
    def name(self) -> str:  # type: ignore[override]  # read-only here
        return self.column.name

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (*self.column.feature_names, f"{self.name} is missing")

    @property
    def levels(self) -> tuple[str, ...]:
        return (*self.column.levels, "missing")

    @property
    def denominator(self) -> int:
        return self.column.denominator

    @property
    def reach(self) -> Fraction:
        return max(self.column.reach, Fraction(1))

    @property
    def middle(self) -> tuple[Fraction, ...]:
        if isinstance(self.column, Numeric):
            return (*self.column.middle, Fraction(1, 2))
        return super().middle

    @property
    def squared_spread(self) -> Fraction:
        """The largest squared distance from ``middle``.

        For a number v with middle m the squared distance is (v - m)^2 + 1/4, for its missing level
        m^2 + 1/4. For categories and bins, the missing level is one more level.
        """
        if isinstance(self.column, Numeric):
            return max(self.column.squared_spread, self.column.middle[0] ** 2) + Fraction(1, 4)
        return super().squared_spread

    @property
    def n_codes(self) -> int:
        return self.column.n_codes + 1

    @property
    def gap(self) -> int:
        return self.column.n_codes

    def coded(self, values: Any, gap: int | None) -> IntArray:
        return self.column.coded(values, gap)

    def write(self, codes: IntArray, out: IntArray, denominator: int) -> None:
        gaps = codes == self.column.n_codes
        out[gaps, -1] = denominator
        inner = np.zeros((int(np.count_nonzero(~gaps)), out.shape[1] - 1), dtype=np.int64)
        self.column.write(codes[~gaps], inner, denominator)
        out[~gaps, :-1] = inner

    def refusal(self, reason: Refused) -> SchemaError:
        return self.column.refusal(reason)

    def to_dict(self) -> dict[str, Any]:
        return {**self.column.to_dict(), "missing_level": True}


def plain_column(column: Column) -> tuple[Column, bool]:
    """Return a column without its missing level, and whether it had one."""
    return (column.column, True) if isinstance(column, MissingLevel) else (column, False)

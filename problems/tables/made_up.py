"""Synthetic rows of a schema, drawn from its declaration without data."""

from __future__ import annotations

import itertools
import math
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.dates import Date
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

_FINE = 1000  # largest number of grid points of a numeric column that values are drawn from


def synthetic_rows(schema: Schema, n_rows: int, seed: int = 0) -> pd.DataFrame:
    """Draw a table of ``n_rows`` rows that the schema accepts. Public: no record is read.

    Columns are independent and uniform on declared values, bounds of numeric columns included. One value in
    eight is missing where the declaration accepts missing values.
    """
    rng = np.random.default_rng(seed)
    return pd.DataFrame({c.name: _values(c, n_rows, rng) for c in schema.columns})


def rows_beyond(schema: Schema, most: int, seed: int = 0) -> pd.DataFrame:
    """Draw rows, each with one cell that is not declared but accepted. Public: no record is read.

    Such cells are numbers (infinity too) and dates beyond bounds to which they are clipped, and undeclared
    categories that are ignored. There are up to ``most`` rows, none if the schema refuses all such cells.
    """
    cells = [(c.name, cell) for c in schema.columns for cell in _beyond(plain_column(c)[0])]
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(cells))[:most].tolist()
    rows = synthetic_rows(schema, len(chosen), seed)
    for row, place in enumerate(chosen):
        name, cell = cells[place]
        if isinstance(cell, float) and rows[name].dtype.kind in "iub":
            rows[name] = rows[name].astype(np.float64)
        rows.loc[row, name] = cell
    return rows


def _beyond(kind: Column) -> list[Any]:
    """Return cells that a column accepts and does not declare."""
    if isinstance(kind, Categorical):
        if kind.outside != "ignore":
            return []
        whole = [int(c) for c in kind.categories if not isinstance(c, str)]
        return [max(whole) + 1] if whole else ["".join(map(str, kind.categories)) + " or another"]
    if isinstance(kind, Date):
        days = (date(1000, 1, 1), date(9000, 1, 1)) if kind.part is None else ()
        return [f"{day:{kind.format or '%Y-%m-%d'}}" for day in days if kind.outside == "clip"]
    if not isinstance(kind, Numeric | Binned) or kind.outside != "clip":
        return []
    low, high = map(float, kind.bounds)
    width = max(1.0, np.ceil(high - low))
    return [float(np.floor(low - width)), float(np.ceil(high + width)), np.inf]


def _values(column: Column, n: int, rng: Generator) -> NDArray[Any]:
    kind, has_level = plain_column(column)
    found = _declared(kind, n, rng)
    if not (has_level or getattr(kind, "missing", None) is not None):
        return found
    gaps = rng.integers(0, 8, n) == 0
    holds_objects = isinstance(kind, Categorical | Date)
    found = found.astype(object if holds_objects else np.float64)
    found[gaps] = None if holds_objects else np.nan
    return found


def _declared(kind: Column, n: int, rng: Generator) -> NDArray[Any]:
    """Draw values that a column accepts, shape (n,)."""
    if isinstance(kind, Numeric):
        steps = np.unique(np.linspace(0, kind.top, min(kind.top + 1, _FINE)).astype(np.int64))
        drawn = steps[rng.integers(0, len(steps), n)].tolist()
        d = math.lcm(kind.low.denominator, kind.step.denominator)
        low, step = int(kind.low * d), int(kind.step * d)
        return _plain([(low + k * step) / d for k in drawn], d == 1)
    if isinstance(kind, Categorical):
        values = np.array(kind.categories, dtype=object)
    elif isinstance(kind, Date):
        values = _dates(kind)
    else:
        assert isinstance(kind, Binned)
        edges = np.array([float(e) for e in kind.edges])
        found = np.array([*edges, *(edges[:-1] + edges[1:]) / 2])
        values = _plain(found.tolist(), bool(np.all(found == np.rint(found))))
    return values[rng.integers(0, len(values), n)]


def _dates(kind: Date) -> NDArray[Any]:
    """Return dates that a column accepts, as texts in its format: edges and middles of bins, or a year."""
    days = _within(kind) if kind.part is None else [date(2024, 1, 1) + timedelta(k) for k in range(366)]
    return np.array([f"{day:{kind.format or '%Y-%m-%d'}}" for day in days], dtype=object)


def _within(kind: Date) -> list[date]:
    if kind.age_at is None:
        edges = [date.fromisoformat(text).toordinal() for text in kind.edge_texts]
        return [date.fromordinal(d) for d in [*edges, *((a + b) // 2 for a, b in itertools.pairwise(edges))]]
    ages = list(map(int, kind.edge_texts))
    ages += [(a + b) // 2 for a, b in itertools.pairwise(ages)]
    return [date(max(kind.age_at.year - age, 1), kind.age_at.month, 1) for age in ages]


def _plain(values: list[float], whole: bool) -> NDArray[Any]:
    """Return an array, of integers if ``whole`` and all of them are below 2^53 in absolute value."""
    numbers = np.array(values)
    return numbers.astype(np.int64) if whole and np.max(np.abs(numbers), initial=0) < 2**53 else numbers

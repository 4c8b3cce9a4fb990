"""Synthetic populations for the public choices of trees: cuts of numbers, weights of columns, kind of model.

A population has independent columns of given distributions and labels that depend on a few columns. Its
records are spread evenly: the k-th smallest value of a column is the (k + 1/2) / N quantile of its
distribution, in random order. Bounds of numbers are declared up to five times too wide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

_ROWS = 20_000
# Factors by which the declared bounds of a number are wider than its values, drawn at random.
_WIDTHS = (1.0, 2.0, 5.0)

# The columns of a population, by distribution.
FAMILIES: dict[str, tuple[str, ...]] = {
    "uniform": ("uniform",) * 6,
    "bell-shaped": ("bell",) * 6,
    "skewed amounts": ("amount",) * 6,
    "spike at zero": ("spike",) * 3 + ("bell",) * 3,
    "heavy tails": ("tail",) * 6,
    "counts": ("count",) * 6,
    "few levels": ("flag", "flag", "levels 3", "levels 3", "levels 5", "levels 8"),
    "many levels": ("levels 40", "levels 20", "levels 8", "bell", "amount", "flag"),
    "mixed": ("uniform", "bell", "amount", "spike", "count", "levels 3", "levels 12", "flag"),
    "mostly irrelevant": ("bell", "amount", "spike", "levels 12") * 2,
}
# Labels: a tree of two levels, a sum of three steps, or a smooth sum of five columns.
SIGNALS = ("tree", "steps", "smooth")


@dataclass(frozen=True, eq=False)
class Population:
    """A population of records with labels 0 and 1.

    Attributes:
        family, signal: how it was made.
        schema: its declared schema.
        records: the table.
        labels: shape (rows,).
    """

    family: str
    signal: str
    schema: Schema
    records: pd.DataFrame
    labels: NDArray[np.int64]


def populations(seeds: int, rows: int = _ROWS) -> Iterator[Population]:
    """Yield ``seeds`` populations of each family and signal."""
    for family, signal, seed in itertools.product(FAMILIES, SIGNALS, range(seeds)):
        yield population(family, signal, seed, rows)


def population(family: str, signal: str, seed: int, rows: int = _ROWS) -> Population:
    """Return a population of a family and signal."""
    rng = np.random.default_rng([list(FAMILIES).index(family), SIGNALS.index(signal), seed])
    columns: list[Column] = []
    ranks, values = [], {}
    for k, kind in enumerate(FAMILIES[family]):
        share = (rng.permutation(rows) + 0.5) / rows
        values[f"c{k}"], column = _column(f"c{k}", kind, share, rng)
        columns.append(column)
        ranks.append(share)
    frame = pd.DataFrame(values)
    odds = _odds(signal, frame, ranks, rng)
    # Between a tenth and a half of the labels are 1.
    shift = np.quantile(odds, 1 - rng.uniform(0.1, 0.5))
    labels = (rng.random(rows) < expit(odds - shift)).astype(np.int64)
    return Population(family, signal, Schema(columns, intercept=True), frame, labels)


def _column(name: str, kind: str, share: Floats, rng: np.random.Generator) -> tuple[Any, Column]:
    """Return values, from their ranks in (0, 1), and the declaration of a column."""
    if kind == "flag" or kind.startswith("levels"):
        levels = 2 if kind == "flag" else int(kind.split()[1])
        mass = 1 / np.arange(1, levels + 1)  # Zipf's law
        return np.searchsorted(np.cumsum(mass / mass.sum()), share), Categorical(name, list(range(levels)))
    if kind == "bell":
        return _number(name, np.clip(50 + 12 * ndtri(share), 15, 90), 15.0, 90.0)
    found: Floats = {
        "uniform": 100 * share,
        "amount": np.exp(ndtri(share)),
        # Nine tenths are 0.
        "spike": np.where(share < 0.9, 0.0, np.exp(ndtri(np.clip(10 * share - 9, 1e-6, 1 - 1e-6)))),
        "tail": (1 - share) ** (-1 / 1.5) - 1,
        "count": np.floor(np.log1p(-share) / np.log(2 / 3)),
    }[kind]
    return _number(name, found, 0.0, float(np.ceil(found.max()) * rng.choice(_WIDTHS)))


def _number(name: str, values: Floats, low: float, high: float) -> tuple[Floats, Column]:
    steps = 120
    whole = int(-(-(high - low) // steps) * steps) if high - low > steps else int(high - low)
    return values, Numeric(name, int(low), int(low) + whole, step=f"{whole}/{steps}")


def _odds(signal: str, frame: pd.DataFrame, ranks: list[Floats], rng: np.random.Generator) -> Floats:
    """Return logarithms of the odds of label 1, up to a constant."""
    chosen = rng.permutation(len(ranks))
    steps = [_step(frame[f"c{k}"], ranks[k], rng) for k in chosen]
    if signal == "tree":
        leaves = rng.normal(0, 2, 4)
        return np.asarray(leaves[2 * steps[0] + np.where(steps[0], steps[1], steps[2])])
    if signal == "steps":
        return np.asarray(sum(rng.choice([-1, 1]) * rng.uniform(1, 2) * s for s in steps[:3]))
    # Smooth in the rank of a number, any effect for a level.
    total = np.zeros(len(frame))
    for k in chosen[:5]:
        column = frame[f"c{k}"]
        effect = ranks[k] if column.dtype.kind == "f" else rng.normal(0, 0.5, 40)[column]
        total += rng.choice([-1, 1]) * rng.uniform(1, 3) * effect
    return total


def _step(values: Any, rank: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return whether numbers are above a random quantile, or levels in a random set; 0 and 1."""
    if values.dtype.kind == "f":
        positive = float(np.mean(values <= values.min()))
        cut = rng.uniform(max(0.1, positive), max(0.9, (1 + positive) / 2))
        return np.asarray(values > np.quantile(values, cut)).astype(np.int64)
    return np.asarray((rng.permutation(int(values.max()) + 1) % 2)[values], dtype=np.int64)

"""Tables of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from privopt.experiments.reproduce.interface import Agreement
from privopt.problems.convex.regularizers import Vector


def pivot(frame: pd.DataFrame, measures: Sequence[str], column: str, by: str = "level") -> pd.DataFrame:
    """Tabulate mean ± standard deviation over runs: a line per measure, panel and curve, a column per level.

    Args:
        column: the format of the heading of a level, such as "n = {:,.0f}".
    """
    lines = []
    for measure in measures:
        here = frame[frame["measure"] == measure]
        for (panel, curve), points in here.groupby(["panel", "curve"], sort=False):
            values = points.groupby(by)["value"]
            cells = {column.format(x): spread(v.mean(), v.std()) for x, v in values}
            lines.append({"measure": measure, "panel": panel, "curve": curve, **cells})
    return pd.DataFrame(lines).fillna("")


def apart(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Split a table into parts, each without the columns that its lines leave empty.

    Columns that every line fills are in each part. Two lines are in the same part if both fill
    another column, or if a chain of such pairs links them. If a line would be alone, the table is not split.
    """
    filled = table.notna() & (table != "")
    common = set(table.columns[filled.all()])
    groups: list[tuple[set[str], list[int]]] = []
    for number in range(len(table)):
        columns, lines = set(table.columns[filled.iloc[number]]) - common, [number]
        for group in [group for group in groups if group[0] & columns]:
            groups.remove(group)
            columns, lines = columns | group[0], lines + group[1]
        groups.append((columns, lines))
    if any(not columns or len(lines) == 1 for columns, lines in groups):
        return [table]
    groups.sort(key=lambda group: min(group[1]))
    return [
        table.iloc[sorted(lines)][[c for c in table.columns if c in common or c in columns]]
        for columns, lines in groups
    ]


def spread(mean: float, std: float) -> str:
    """Format mean and standard deviation; a single run has no deviation."""
    if std != std or std == 0:
        return f"{mean:,.3g}" if abs(mean) < 1000 else f"{mean:,.0f}"
    digits = min(6, max(0, 1 - math.floor(math.log10(std))))  # two digits of the deviation
    return f"{mean:,.{digits}f} ± {std:,.{digits}f}"


def means(
    frame: pd.DataFrame, panel: str, measure: str, statistic: str = "mean"
) -> dict[str, pd.Series[float]]:
    """Return, by curve, the mean (or "std") over runs at each level, for one panel and one measure."""
    here = frame[(frame["panel"] == panel) & (frame["measure"] == measure)]
    return {
        str(name): points.groupby("level")["value"].agg(statistic) for name, points in here.groupby("curve")
    }


@dataclass(frozen=True)
class Power:
    """A power law fitted by least squares on logarithmic axes, with its 95% confidence interval.

    Attributes:
        slope: the estimated power.
        low, high: the ends of the interval, by Student's t.
    """

    slope: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.slope:.2f} (95%: {self.low:.2f} to {self.high:.2f})"

    def at_most(self, bound: float) -> Agreement:
        """Return YES if the interval is below 0 and reaches ``bound``; PARTLY if it is only below 0."""
        if self.high >= 0:
            return Agreement.NO
        return Agreement.YES if self.low <= bound else Agreement.PARTLY

    @property
    def inverted(self) -> Power:
        """The power law of the reciprocal of the measured value."""
        return Power(-self.slope, -self.high, -self.low)

    def costs_at_most(self, bound: float) -> Agreement:
        """Return ``grows_at_most`` if the interval is above 0, so that growth is certain; otherwise NO."""
        return self.grows_at_most(bound) if self.low > 0 else Agreement.NO

    def grows_at_most(self, bound: float) -> Agreement:
        """Return whether the power is at most ``bound``; in part if only its interval contains ``bound``."""
        if self.slope <= bound:
            return Agreement.YES
        return Agreement.PARTLY if self.low <= bound else Agreement.NO


def earned(agreement: Agreement, better: int, of: int) -> Agreement:
    """Lower an agreement if results are good at only ``better`` of ``of`` settings.

    A claim on a ratio or on slow growth also holds for a method that always returns the same answer. So an
    agreement becomes PARTLY if results are good at some settings only, and NO if at none.
    """
    if better == of or agreement is Agreement.NO:
        return agreement
    return Agreement.PARTLY if better else Agreement.NO


def power_law(frame: pd.DataFrame, least: float = 1e-12) -> Power:
    """Fit the power of ``at`` in ``value`` over all runs; values below ``least`` count as ``least``.

    For two different values the ends of the interval are infinite. Equal values have power 0, with ends 0.
    """
    x = np.log(frame["at"].to_numpy(dtype=float))
    y = np.log(np.maximum(frame["value"].to_numpy(dtype=float), least))
    if np.ptp(y) == 0:  # where linregress has no interval
        return Power(0.0, 0.0, 0.0)
    fit = stats.linregress(x, y)
    reach = float(stats.t.ppf(0.975, len(x) - 2)) * fit.stderr if len(x) > 2 else math.inf
    return Power(float(fit.slope), float(fit.slope - reach), float(fit.slope + reach))


def bound_power(frame: pd.DataFrame, bound: Callable[[Vector], Vector]) -> float:
    """Return the power fitted to a bound, such as log(n) / n, at the positions of measured values."""
    return power_law(frame.assign(value=bound(frame["at"].to_numpy(dtype=float)))).slope

"""Tables of results."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd


def pivot(frame: pd.DataFrame, measures: Sequence[str], column: str, by: str = "level") -> pd.DataFrame:
    """Tabulate mean ± standard deviation over runs: a line per measure, panel and curve, a column per level.

    Args:
        column: the heading of a level, such as "n = {:,.0f}".
    """
    lines = []
    for measure in measures:
        here = frame[frame["measure"] == measure]
        for (panel, curve), points in here.groupby(["panel", "curve"], sort=False):
            values = points.groupby(by)["value"]
            cells = {column.format(x): spread(v.mean(), v.std()) for x, v in values}
            lines.append({"measure": measure, "panel": panel, "curve": curve, **cells})
    return pd.DataFrame(lines).fillna("")


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

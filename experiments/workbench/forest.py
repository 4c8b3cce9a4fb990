"""Forest plot of a linear model's coefficients: intervals, and the part of each interval that is sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.palette import GREY, SERIES
from privopt.mechanisms.inference.interval import Summary

_TOTAL, _SAMPLING = SERIES[0], SERIES[2]


def forest_plot(found: Summary, titles: Mapping[str, str] | None = None) -> Figure:
    """Draw a line for each interval; a thick line on it is the interval that sampling alone would give.

    A coefficient without bounds has no line. Features are named by their titles. The intercept is left out:
    on its scale the other coefficients could not be seen.
    """
    shown = [one for one in found if one.name != "intercept"] or list(found)
    figure = Figure(figsize=(7, 1.2 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for row, one in enumerate(shown):
        if not (math.isfinite(one.low) and math.isfinite(one.high)):
            axes.text(0.01, row, "no bound", transform=axes.get_yaxis_transform(), va="center", fontsize=9)
            continue
        sampling = math.sqrt(1 - one.noise_share)
        low, high = (one.estimate + sampling * (bound - one.estimate) for bound in (one.low, one.high))
        axes.plot([one.low, one.high], [row, row], color=_TOTAL, linewidth=1.5)
        axes.plot([low, high], [row, row], color=_SAMPLING, linewidth=4, solid_capstyle="butt")
        axes.plot(one.estimate, row, "o", color=_TOTAL, markersize=5)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(shown)), [(titles or {}).get(one.name, one.name) for one in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel(f"coefficient, {100 * found.confidence:.4g}% interval; thick: without noise for privacy")
    axes.grid(axis="x", alpha=0.3)
    return figure

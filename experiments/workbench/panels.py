"""Figures of several panels, with curves labelled at their right ends and one colour per mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize

from privopt.experiments.workbench.drawing import Axes, Figure, mpl
from privopt.experiments.workbench.palette import ink_of, mark_of

MOST_CURVES = 7
_LINES = {"": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.5))}
_HEIGHT = 3.1  # height of a panel in inches

Scale = Literal["linear", "log", "symlog"]


@dataclass(frozen=True)
class Curve:
    """A curve of means with one standard deviation to either side.

    Attributes:
        label: the text at its right end.
        colour: the mechanism's colour, ``privopt.experiments.workbench.figures.colour``, or a ``shade`` of
            it.
        points: the index has positions on the x axis; the columns are "mean" and "std".
        dashes: "", "dashed" or "dotted".
        spread: "bars" for few points, "band" for many.
        steps: whether the curve is a step function, constant until the next point.
    """

    label: str
    colour: str
    points: pd.DataFrame
    dashes: Literal["", "dashed", "dotted"] = ""
    spread: Literal["bars", "band", "none"] = "bars"
    steps: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes with curves.

    Attributes:
        levels: horizontal lines for reference, by label.
    """

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    xscale: Scale = "log"
    yscale: Scale = "linear"
    levels: dict[str, float] = field(default_factory=dict)
    ylim: tuple[float, float] | None = None


def averaged(frame: pd.DataFrame, measure: str, by: str = "at") -> pd.DataFrame:
    """Return mean and standard deviation of a measure over runs, by position; 0 for a single run."""
    points = frame[frame["measure"] == measure].groupby(by)["value"].agg(["mean", "std"])
    return points.fillna({"std": 0.0})


def shade(base: str, share: float) -> str:
    """Mix a colour with white: white at share 0, the base at share 1."""
    red, green, blue = (1 - share * (1 - c) for c in mpl.colors.to_rgb(base))
    return mpl.colors.to_hex((red, green, blue))


def panels_figure(panels: Sequence[Panel]) -> Figure:
    """Draw panels one below the other, as wide as a page, so that each fits on a phone."""
    figure = Figure(figsize=(7, _HEIGHT * len(panels) + 0.2), layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(len(panels), 1)), panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    if len(panel.curves) > MOST_CURVES:
        raise ValueError(
            f"{len(panel.curves)} curves in a panel: nobody can tell more than {MOST_CURVES} apart"
        )
    for k in range(len(panel.curves)):
        _draw_curve(axes, panel, k)
    axes.set(xscale=panel.xscale, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_yscale(panel.yscale, **({"linthresh": 1.0} if panel.yscale == "symlog" else {}))
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.grid(alpha=0.3)
    for label, level in panel.levels.items():
        axes.axhline(level, color="0.4", linestyle=(0, (6, 3)), linewidth=1)
        axes.text(0.01, level, label, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8)
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
    _place_ticks(axes, panel)
    _name_ends(axes, panel)


def _draw_curve(axes: Axes, panel: Panel, k: int) -> None:
    """Draw the k-th curve with its spread."""
    curve = panel.curves[k]
    x, mean, std = _columns(curve.points)
    if curve.spread == "bars" and panel.xscale == "log":
        # Curves are shifted sideways: those that agree would hide one another.
        x = x * 1.015 ** (2 * k - len(panel.curves) + 1)
    low, high = mean - std, mean + std
    if panel.yscale == "log":
        low = np.maximum(low, mean / 10)
    style: dict[str, Any] = {"color": curve.colour, "linestyle": _LINES[curve.dashes], "linewidth": 1.5}
    if curve.spread == "bars":
        style |= {"marker": mark_of(curve.colour), "markersize": 3.5, "capsize": 2, "elinewidth": 0.8}
        axes.errorbar(x, mean, yerr=(mean - low, high - mean), **style)
    else:
        # A long curve has few marks, at positions that differ between curves.
        apart = max(1, len(x) // 6)
        style |= {"marker": mark_of(curve.colour), "markersize": 3.5, "markevery": (k % apart, apart)}
        axes.plot(x, mean, drawstyle="steps-post" if curve.steps else "default", **style)
    if curve.spread == "band":
        axes.fill_between(x, low, high, color=curve.colour, alpha=0.15, linewidth=0)


def _place_ticks(axes: Axes, panel: Panel) -> None:
    """Put ticks at the measured positions if they are few, and at readable values of a logarithmic axis."""
    places = sorted({float(x) for curve in panel.curves for x in curve.points.index})
    if panel.xscale == "log" and len(places) <= 10 and _can_be_read(places):
        axes.set_xticks(places, [f"{x:,.6g}" for x in places])
        axes.minorticks_off()
    if panel.yscale == "log":
        for place in (axes.yaxis.set_major_locator, axes.yaxis.set_minor_locator):
            place(mpl.ticker.LogLocator(subs=_subs(axes)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.3g}" if y < 1e4 else f"{y:.0e}".replace("e+0", "e"))


def _can_be_read(places: Sequence[float]) -> bool:
    """Return whether tick labels at these increasing positions do not overlap."""
    x = np.log(places)
    return bool(np.all(np.diff(x) >= 0.07 * (x[-1] - x[0])))


def _subs(axes: Axes) -> tuple[float, ...]:
    """Return the multiples of powers of ten that are ticks; fewer decades get more ticks each."""
    low, high = axes.get_ylim()
    decades = float(np.log10(high / low))
    return (1.0, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 1 else (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Write the labels to the right of the axes, near the heights of the right ends of their curves."""
    low, high = axes.get_ylim()
    place = axes.transData + axes.transAxes.inverted()
    heights = []
    for curve in panel.curves:
        last = float(np.clip(curve.points["mean"].iloc[-1], low, high))
        heights.append(float(place.transform((axes.get_xlim()[1], last))[1]))
    order = np.argsort(heights)
    spread = _apart(np.array(heights)[order], 0.085)
    for k, height in zip(order.tolist(), spread.tolist(), strict=True):
        curve = panel.curves[k]
        axes.annotate(
            curve.label,
            (1.0, heights[k]),
            (1.03, height),
            xycoords="axes fraction",
            color=ink_of(curve.colour),
            fontsize=8,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": curve.colour,
                "linewidth": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def _apart(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Move ascending heights in [0, 1] at least ``gap`` apart, by the least sum of squares."""
    steps = gap * np.arange(len(heights))
    level = optimize.isotonic_regression(heights - steps).x
    return np.asarray(np.clip(level, 0.0, max(0.0, 1.0 - steps[-1])) + steps)


def _columns(points: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return (
        points.index.to_numpy(dtype=np.float64),
        points["mean"].to_numpy(dtype=np.float64),
        points["std"].to_numpy(dtype=np.float64),
    )

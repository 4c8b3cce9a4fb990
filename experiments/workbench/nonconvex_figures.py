"""Figures of ``privopt.experiments.nonconvex``: escapes from saddle points, and excess risk."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.experiments.workbench.drawing import Axes, Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.palette import ink_of, mark_of
from privopt.problems.nonconvex.planted import Planted


def trajectories(problem: Planted, paths: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Draw contours of F in the plane, and iterates that start at the saddle point or converge to it."""
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    axes = figure.subplots()
    x, y = np.meshgrid(np.linspace(-1.5, 1.5, 121), np.linspace(-1.2, 1.25, 101))
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    values = np.array([problem.risk.value(w) for w in points]).reshape(x.shape)
    axes.contour(x, y, values, levels=np.geomspace(0.002, 1.5, 14), colors="0.85", linewidths=0.8)
    for name, path in paths.items():
        size = 3.5 if len(path) < 100 else 1.5
        axes.plot(*path.T, color=colour(name), marker=mark_of(colour(name)), markersize=size, linewidth=0.9)
        into = name == "without noise"
        at = (float(path[0, 0]), float(path[0, 1])) if into else (0.42 if path[-1, 0] > 0 else -0.42, 0.0)
        axes.annotate(
            f"{name}, {len(path) - 1} steps",
            at,
            xytext={"without noise": (8, 0), "dp-newton": (0, 22)}.get(name, (0, -26)),
            textcoords="offset points",
            color=ink_of(colour(name)),
            ha="left" if into else "center",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
    axes.plot(0, 0, "x", color="0.2", markersize=9)
    axes.annotate("saddle", (0, 0), xytext=(0, -16), textcoords="offset points", color="0.2", ha="center")
    for side in (-1, 1):
        axes.plot(side, 0, "*", color="0.2", markersize=10, zorder=5)
    axes.set(xlabel="w₁", ylabel="w₂", aspect="equal")
    return figure


def escapes(rows: pd.DataFrame, wanted: Mapping[str, float]) -> Figure:
    """Draw the excess risk of runs from a saddle point against n, a panel per problem.

    ``wanted`` has for each problem the n that the theorem requires, drawn as a vertical line.
    """
    rows = rows[(rows["part"] == "saddle") & (rows["measure"] == "excess")]
    problems = list(dict.fromkeys(rows["problem"]))
    tall = -(-len(problems) // 2)
    figure = Figure(figsize=(9, 3.6 * tall), layout="constrained")
    panels = np.atleast_1d(figure.subplots(tall, 2)).ravel()
    for axes, problem in zip(panels, problems, strict=False):
        some = rows[rows["problem"] == problem]
        quiet = some["mechanism"] == "without noise"
        level = float(some[quiet]["value"].max())
        _lines(axes, some[~quiet], "records")
        axes.axhline(level, color="black", linewidth=1.2)
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, 6 * level))
        first = float(some["records"].min())
        axes.text(first, 1.15 * level, "saddle; stays there without noise", va="bottom", fontsize=9)
        axes.axvline(wanted[problem], color="0.6", linestyle=(0, (5, 3)), linewidth=1)
        axes.set(title=problem, xlabel="records n")
    for axes in panels[::2]:
        axes.set_ylabel("F above its least value")
    for axes in panels[len(problems) :]:
        axes.set_visible(False)
    return figure


def excesses(rows: pd.DataFrame) -> Figure:
    """Draw median excess risk against n and against epsilon."""
    rows = rows[rows["part"] == "excess"]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = rows["records"].mode()[0]
    _lines(left, rows[rows["epsilon"] == 1.0], "records")
    _lines(right, rows[rows["records"] == sizes], "epsilon")
    left.set(xlabel="records n, at ε = 1", ylabel="excess risk")
    right.set(xlabel=f"ε, at n = {sizes:,}")
    return figure


def _lines(axes: Axes, rows: pd.DataFrame, along: str) -> None:
    """Draw median and quartiles, one curve per mechanism, labelled at its right end."""
    ends = []
    for name, group in rows.groupby("mechanism", sort=False):
        points = group.groupby(along)["value"]
        middle, low, high = points.median(), points.quantile(0.25), points.quantile(0.75)
        hue = colour(str(name))
        axes.plot(middle.index, middle, marker=mark_of(hue), color=hue, markersize=4, linewidth=1.4)
        axes.fill_between(middle.index, low, high, color=hue, alpha=0.12, linewidth=0)
        ends.append((float(np.log(middle.iloc[-1])), float(middle.index[-1]), str(name)))
    axes.set(xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    bottom, top = np.log(axes.get_ylim())
    last: dict[float, float] = {}
    for height, end, name in sorted(ends):  # labels at the same height must not overlap
        last[end] = max(height, last.get(end, -np.inf) + 0.07 * (top - bottom))
        axes.text(end * 1.15, np.exp(last[end]), name, color=ink_of(colour(name)), va="center", fontsize=9)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.25)

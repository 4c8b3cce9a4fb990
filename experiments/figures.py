"""Pictures: accuracy against epsilon, solve times, certificates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from privopt.oracles.interface import Progress

# Colour-blind safe (Okabe and Ito 2008), one per curve, with its own marker for black-and-white print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"

# Figures are made without pyplot: no window system, no global state.
mpl.rcParams["svg.hashsalt"] = "privopt"


def accuracy_figure(rows: pd.DataFrame, optimum: Mapping[str, float], measure: str) -> Figure:
    """Mean accuracy against epsilon with one standard deviation, one curve per mechanism and lattice.

    Args:
        rows: the rows of ``privopt.experiments.runs.Results``.
        optimum: non-private accuracies to draw as horizontal lines, by label.
        measure: "train_accuracy" or "test_accuracy".
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for k, (name, curve) in enumerate(rows.groupby(["mechanism", "lattice"], sort=False)):
        points = curve.groupby("epsilon")[measure].agg(["mean", "std"])
        label = " over ".join(str(part) for part in np.atleast_1d(np.array(name, dtype=object)))
        colour = _COLOURS[k % len(_COLOURS)]
        # Later curves are thinner, so that one that lies on another does not hide it.
        width, style = max(1.0, 3.0 - 0.25 * k), "-" if k < len(_COLOURS) else "--"
        axes.plot(
            points.index,
            points["mean"],
            color=colour,
            marker=_MARKERS[k % 7],
            lw=width,
            ls=style,
            label=label,
        )
        spread = points["std"].fillna(0.0)
        low, high = points["mean"] - spread, points["mean"] + spread
        axes.fill_between(points.index, low, high, color=colour, alpha=0.15, linewidth=0)
    for label, level in optimum.items():
        axes.axhline(level, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(
            label, (0.01, level), xycoords=("axes fraction", "data"), ha="left", va="bottom", fontsize=8
        )
    axes.set(xscale="log", xlabel="epsilon (replace-one)", ylabel=measure.replace("_", " "))
    axes.set_title("mean over draws, band of one standard deviation", fontsize=10)
    epsilons = sorted(rows["epsilon"].unique())
    axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return figure


def solver_profile(rows: pd.DataFrame) -> Figure:
    """Share of draws that were finished within a time, one curve per mechanism."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for k, (name, group) in enumerate(rows.groupby("mechanism", sort=False)):
        times = np.sort(group["seconds"].to_numpy())
        share = np.arange(1, len(times) + 1) / len(times)
        axes.step(times, share, where="post", color=_COLOURS[k % len(_COLOURS)], label=str(name))
    axes.set(xscale="log", xlabel="seconds per draw", ylabel="share of draws finished")
    axes.set_title("the first draw at each epsilon includes what is prepared for it", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def certificate_figure(trace: Sequence[Progress], title: str) -> Figure:
    """Best value found and proved bound over the time of one solve, and the gap between them."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    values, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    seconds = [p.seconds for p in trace]
    values.step(seconds, [p.incumbent for p in trace], where="post", color=_COLOURS[1], label="best found")
    values.step(seconds, [p.bound for p in trace], where="post", color=_COLOURS[0], label="proved bound")
    values.set(ylabel="objective (errors + noise)", title=title)
    values.legend(fontsize=8)
    gaps.step(seconds, [p.gap for p in trace], where="post", color=_COLOURS[6])
    gaps.set_yscale("symlog", linthresh=1.0)
    gaps.set(xlabel="seconds", ylabel="gap (0: proved)", ylim=(0, None))
    for axes in (values, gaps):
        axes.grid(alpha=0.3)
    return figure


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)

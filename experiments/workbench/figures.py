"""Figures of accuracy against epsilon, solve times and certificates; display names of mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from privopt.experiments.workbench.drawing import Axes, Figure, mpl
from privopt.experiments.workbench.palette import BROWN, GREY, SERIES, VIOLET
from privopt.experiments.workbench.panels import Curve, Panel, panels_figure
from privopt.oracles.limits import Progress

_BLUE, _ORANGE, _BLACK, _GREEN, _PINK, _YELLOW, _SKY = SERIES
# The colour of each mechanism in all figures. Mechanisms of the same hue never share a panel.
_PALETTE = {
    "exponential": _BLUE,
    "permute-and-flip": _ORANGE,
    "opdisc": _BLACK,
    "rspm": _GREEN,
    "rspm-laplace": _PINK,
    "dp-sgd": _YELLOW,
    "dp-gd logistic": _SKY,
    "n² steps of one record": _BLACK,
    "dp-gd": _SKY,
    "dp-pgd": _BLUE,
    "dp-svrg": _PINK,
    "dp-svrg++": _PINK,
    "objective-perturbation": _ORANGE,
    "output-perturbation": _GREEN,
    "dp-accmd": _BLACK,
    "dp-pmd": VIOLET,
    "dp-fw-l1": _GREEN,
    "dp-fw-l2": _PINK,
    "dp-gld": _GREEN,
    "net": BROWN,
    "dp-sosp": _BLUE,
    "opsamp": _ORANGE,
    "dp-newton": _ORANGE,
    "dp-spider": VIOLET,
    "dp-gd-so": _PINK,
    "without noise": _BLACK,
    "robust-gd": _BLUE,
    "trimmed-gd": _ORANGE,
    "clipped-newton": _GREEN,
    "sample-aggregate": VIOLET,
    "diffprivlib": BROWN,
    "opacus": VIOLET,
    "Opacus DP-SGD, replace-one": VIOLET,
    "Opacus DP-SGD, add/remove": VIOLET,
    "not private": GREY,
    # dp-pgd with noise by other rules of accounting.
    "noise by zCDP": _YELLOW,
    "noise by moments": VIOLET,
    "noise by composition": _ORANGE,
}
_DASHES: tuple[Literal["", "dashed", "dotted"], ...] = ("", "dashed", "dotted")
_LINES = ("-", "--", ":", "-.")

_NAMES = {
    "exponential": "Exponential mechanism",
    "permute-and-flip": "Permute-and-flip",
    "opdisc": "OPDisc",
    "rspm": "RSPM, Gaussian noise",
    "rspm-laplace": "RSPM, Laplace noise",
    "dp-gd logistic": "DP-GD, logistic regression",
}
MEASURES = {"train_accuracy": "training accuracy", "test_accuracy": "held-out accuracy"}

# Figures are made without pyplot: no window system, no global state.
mpl.rcParams["svg.hashsalt"] = "privopt"


def named(mechanism: str) -> str:
    """Return the display name of a mechanism."""
    return _NAMES.get(mechanism, mechanism)


def colour(mechanism: str) -> str:
    """Return the colour of a mechanism, by its name on the command line.

    Raises:
        KeyError: the palette has no colour for it; add one.
    """
    return _PALETTE[mechanism]


def weights(lattice: str) -> str:
    """Return the display name of a lattice: [-1, 1]²³ for [-1, 1]^23."""
    whole, _, ball = lattice.partition(" with ")
    base, power, exponent = whole.partition("^")
    text = base + exponent.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")) if power else whole
    return f"{text}, {ball.replace('^2', '²').replace('<=', '≤')}" if ball else text


def guarantee(delta: float) -> str:
    """Return the display name of a privacy guarantee, pure or with its delta."""
    return "pure (δ = 0)" if delta == 0 else f"δ = {delta:.2g}"


# The mechanisms of each panel in a comparison over lattices: at most seven curves, no hue twice.
OVER_LATTICES = {
    "Exact draws": ("exponential", "permute-and-flip"),
    "Noise on an objective, or on gradients": ("opdisc", "rspm", "rspm-laplace", "dp-gd logistic"),
}


def accuracy_figure(
    rows: pd.DataFrame,
    optimum: Mapping[str, float],
    measure: str,
    groups: Mapping[str, Sequence[str]] = OVER_LATTICES,
) -> Figure:
    """Draw mean accuracy against epsilon with one standard deviation, one curve per mechanism and lattice.

    Args:
        rows: the rows of ``privopt.experiments.workbench.runs.Results``.
        optimum: non-private accuracies to draw as horizontal lines, by label.
        measure: "train_accuracy" or "test_accuracy".
        groups: the mechanisms of each panel, by its title; panels without measurements are left out.
    """
    means = rows.groupby(["mechanism", "lattice", "epsilon"])[measure].agg(["mean", "std"]).fillna(0.0)
    ends = [(means["mean"] - means["std"]).min(), (means["mean"] + means["std"]).max(), *optimum.values()]
    room = 0.09 * (max(ends) - min(ends))
    panels = []
    for title, names in groups.items():
        some = rows[rows["mechanism"].isin(names)]
        if len(some):
            panel = Panel(
                title=f"{title}; {guarantee(some['delta'].max())}",
                xlabel="ε, the privacy budget of one release (replace-one)",
                ylabel=f"{MEASURES.get(measure, measure)}, mean ± 1 s.d.",
                curves=_accuracy_curves(some, measure),
                levels=dict(optimum),
                ylim=(min(ends) - room, max(ends) + room),
            )
            panels.append(panel)
    return panels_figure(panels)


def _accuracy_curves(rows: pd.DataFrame, measure: str) -> list[Curve]:
    """Return the curves: the hue shows the mechanism, dashes distinguish curves of the same hue."""
    curves: list[Curve] = []
    for key, group in rows.groupby(["mechanism", "lattice"], sort=False):
        mechanism, lattice = map(str, key)
        hue = colour(mechanism)
        label = named(mechanism) + (f", {weights(lattice)}" if "^" in lattice else "")
        if group["delta"].max() == 0 < rows["delta"].max():
            label += ", pure"
        points = group.groupby("epsilon")[measure].agg(["mean", "std"]).fillna({"std": 0.0})
        dashes = _DASHES[sum(curve.colour == hue for curve in curves)]
        curves.append(Curve(label, hue, points, dashes=dashes))
    return curves


def solver_profile(rows: pd.DataFrame) -> Figure:
    """Draw the share of draws finished within a time, one curve per mechanism and lattice."""
    curves = list(rows.groupby(["mechanism", "lattice"], sort=False))
    figure = Figure(figsize=(7, 3.4 + 0.2 * len(curves)), layout="constrained")
    axes = figure.subplots()
    low, high = np.min(rows["seconds"]) / 1.5, np.max(rows["seconds"]) * 1.5
    for k, (key, group) in enumerate(curves):
        mechanism, lattice = np.atleast_1d(np.array(key, dtype=object))
        times = np.sort(group["seconds"].to_numpy())
        share = np.arange(1, len(times) + 1) / len(times)
        axes.step(
            [low, *times, high],
            [0, *share, 1],
            where="post",
            color=SERIES[k % len(SERIES)],
            linestyle=_LINES[k % len(_LINES)],
            label=f"{named(mechanism)}, {weights(lattice)}, {_span(group)}",
        )
    axes.set(xscale="log", xlim=(low, high), ylim=(0, 1.02))
    axes.set(xlabel="seconds for one release", ylabel="share of releases finished")
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    _finish(figure, axes)
    return figure


def certificate_figure(trace: Sequence[Progress], title: str) -> Figure:
    """Draw the incumbent value, the proved bound and the gap between them over the time of one solve.

    Value and bound are drawn as distances to the best value of all, on a scale for large and small distances.
    """
    figure = Figure(figsize=(7, 5), layout="constrained")
    values, gaps = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    seconds = [p.seconds for p in trace]
    least = min(p.incumbent for p in trace)
    found, bound = [p.incumbent - least for p in trace], [p.bound - least for p in trace]
    values.step(seconds, found, where="post", color=SERIES[1], label="best point found so far")
    style: dict[str, Any] = {"color": SERIES[0], "linestyle": "--"}
    values.step(seconds, bound, where="post", label="proved: no point is below this", **style)
    if trace[-1].gap == 0:
        values.plot(seconds[-1:], found[-1:], "o", color=SERIES[2], label="they meet: proved optimal")
    values.set_yscale("symlog", linthresh=1.0)
    values.set_ylabel("objective − minimum, in errors")
    values.set_title(title, fontsize=10)
    values.legend(fontsize=9)
    gaps.step(seconds, [p.gap for p in trace], where="post", color=SERIES[2])
    gaps.set_yscale("symlog", linthresh=1.0)
    gaps.set(xlabel="seconds", ylabel="gap, in errors", ylim=(0, None))
    for axes in (values, gaps):
        axes.grid(alpha=0.3)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the label of a figure, if any, becomes the title of the file: its text alternative."""
    title = str(figure.get_label())
    figure.savefig(path, dpi=150, metadata={"Title": title} if title else None)


def _span(group: pd.DataFrame) -> str:
    low, high = group["epsilon"].min(), group["epsilon"].max()
    return f"ε = {low:g}" if low == high else f"ε from {low:g} to {high:g}"


def _finish(figure: Figure, axes: Axes) -> None:
    """Add a grid, and a legend below the axes, where it covers no data."""
    axes.grid(alpha=0.3)
    handles: tuple[list[Any], list[str]] = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", fontsize=9, frameon=False)

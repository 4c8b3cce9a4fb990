"""Picture of the shapes of a linear model or a scorecard, one panel for each column."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from privopt.experiments.workbench.drawing import Axes, Figure, mpl
from privopt.experiments.workbench.palette import GREY, PALE, SERIES, mark_of
from privopt.experiments.workbench.shapes import Shape, Shaped, Shapes, shapes_of
from privopt.mechanisms.estimators.card import number

mpl.rcParams["svg.hashsalt"] = "privopt"
_WIDTH = 4.0  # inches, 384 pixels: a phone shows the picture at its own size


def shape_plot(model: Shaped) -> Figure:
    """Draw the contribution of each declared column by level: of a linear model, or the points of a card.

    Columns with the widest spread come first. If a linear model has confidence intervals, a band shows their
    part that is noise for privacy. Points have a band if a private model of known spread is behind them.
    Post-processing: reads no records and costs no privacy. The label of the figure is its text alternative.

    Args:
        model: a fitted linear model with a schema, also one of several classes; a scorecard, or its card; a
            card and a tree.

    Raises:
        InvalidInputError: another kind of model, a linear one without a schema, or no contributions.
    """
    found = shapes_of(model)
    # Bars of several classes stand beside each other, each with its number.
    tall = max(1.0, 0.6 * len(found.series)) if found.is_card else 1.0
    rows = [tall * len(shape.levels) + 1.0 for shape in found.shapes]
    notes = [line for note in found.notes for line in textwrap.wrap(note, 58)]
    height = 0.2 * sum(rows) + 0.14 * len(notes) + 0.16 * len(found.series) + 0.9
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    for axes, shape in zip(panels, found.shapes, strict=True):
        _draw(axes, shape, found)
    unit = textwrap.fill("points of the card" if found.is_card else found.unit, 52)
    panels[-1].set_xlabel(unit, fontsize=8, parse_math=False)
    _add_legend(figure, list(panels), "\n".join(notes))
    figure.set_label(found.description)
    return figure


def _draw(axes: Axes, shape: Shape, found: Shapes) -> None:
    """Draw lines of numbers and marks or bars of levels, from the first level down, over the band."""
    rows, ends = np.arange(len(shape.levels)), 3 if shape.is_line else 0
    if shape.band is not None:
        low, high = shape.band.T
        meant = "noise and records" if found.is_card else "noise for privacy"
        style: dict[str, Any] = {"color": PALE, "linewidth": 0, "label": meant}
        axes.fill_betweenx(rows[:ends], low[:ends], high[:ends], **style)
        axes.barh(rows[ends:], (high - low)[ends:], left=low[ends:], height=0.6, **style)
    count = shape.values.shape[1]
    for k, values in enumerate(shape.values.T):
        colour, name = SERIES[k % len(SERIES)], (found.series or ("in predictions",))[k]
        mark: dict[str, Any] = {"color": colour, "label": "points" if found.is_card and count == 1 else name}
        shift = 0.8 * ((k + 0.5) / count - 0.5)
        marker = mark_of(colour)
        if ends:
            axes.plot(values[:ends], rows[:ends], marker=marker, markersize=3, **mark)
        if found.is_card and shape.band is not None:
            axes.plot(values[ends:], rows[ends:], marker, markersize=4, **mark)
            _add_numbers(axes, shape, ends)
        elif found.is_card:
            bars = axes.barh(rows[ends:] + shift, values[ends:], height=0.8 / count, **mark)
            axes.bar_label(bars, [number(v) for v in values[ends:]], fontsize=7, padding=2)
        else:
            axes.plot(values[ends:], rows[ends:] + shift, marker, markersize=4, **mark)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    names = [name if len(name) <= 24 else name[:23] + "\N{HORIZONTAL ELLIPSIS}" for name in shape.levels]
    axes.set_yticks(rows, names, fontsize=8, parse_math=False)
    axes.use_sticky_edges = False  # numbers stand beside bands
    axes.margins(x=0.15)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(textwrap.fill(shape.title, 52), loc="left", fontsize=9, parse_math=False)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _add_numbers(axes: Axes, shape: Shape, first: int) -> None:
    """Write the points of levels beside their marks, outside the band and away from zero."""
    assert shape.band is not None
    for row in range(first, len(shape.levels)):
        value, (low, high) = float(shape.values[row, 0]), shape.band[row]
        place, side, gap = (max(value, high), "left", 5) if value >= 0 else (min(value, low), "right", -5)
        axes.annotate(
            number(value),
            (place, row),
            (gap, 0),
            textcoords="offset points",
            fontsize=7,
            ha=side,
            va="center_baseline",
        )


def _add_legend(figure: Figure, panels: list[Axes], notes: str) -> None:
    """Name each series and the band once, below the panels and the notes."""
    marks: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            marks.setdefault(name, handle)
    legend = figure.legend(
        list(marks.values()),
        list(marks),
        title=notes,
        loc="outside lower left",
        ncols=2,
        fontsize=8,
        title_fontsize=7.5,
        alignment="left",
        frameon=False,
    )
    for text in (*legend.get_texts(), legend.get_title()):
        text.set_parse_math(False)

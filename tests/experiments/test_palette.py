"""Colours of series are told apart with every kind of colour vision, and by their marks without colours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from privopt.experiments.workbench import figures
from privopt.experiments.workbench.palette import (
    BROWN,
    GREY,
    MARKS,
    PALE,
    SERIES,
    VIOLET,
    contrast,
    ink_of,
    mark_of,
)
from privopt.experiments.workbench.panels import Curve, Panel, panels_figure
from privopt.mechanisms.estimators import tree_card

# Machado, Oliveira and Fernandes (2009): what an eye without one kind of cone sees, in linear RGB.
EYES = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def seen(colour: str, eye: np.ndarray) -> np.ndarray:
    """CIE Lab coordinates of a colour as an eye sees it."""
    parts = np.array(mpl.colors.to_rgb(colour))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = (
        np.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
        for t in XYZ @ np.clip(eye @ linear, 0, 1) / WHITE
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: Sequence[str], eye: np.ndarray) -> float:
    """The least distance of two colours, where 2.3 is just noticeable."""
    return min(
        float(np.linalg.norm(seen(a, eye) - seen(b, eye))) for a, b in itertools.combinations(colours, 2)
    )


@pytest.mark.parametrize("eye", EYES)
def test_every_eye_tells_the_colours_apart(eye: str) -> None:
    assert nearest(SERIES, EYES[eye]) > 15
    assert nearest((*SERIES, VIOLET), EYES[eye]) > 15
    assert nearest((*SERIES, VIOLET, BROWN, GREY), EYES[eye]) > 10  # brown and grey have dashes or labels
    assert nearest((SERIES[0], PALE), EYES[eye]) > 25
    assert nearest(tree_card._COLOURS, EYES[eye]) > 8  # every leaf has its class written in it


def test_simulated_eyes_confuse_what_such_eyes_confuse() -> None:
    """A check on the check: red and green, and blue and green of equal lightness."""
    assert nearest(("#C8524F", "#8B7B35"), EYES["all cones"]) > 40
    assert nearest(("#C8524F", "#8B7B35"), EYES["deuteranopia"]) < 15
    assert nearest(("#7B3294", SERIES[0]), EYES["deuteranopia"]) < 11  # a violet that was in the palette once


def test_colours_of_figures_have_marks_of_their_own_and_inks_that_can_be_read() -> None:
    assert set(figures._PALETTE.values()) <= set(MARKS)
    assert len(set(MARKS.values())) == len(MARKS)
    for colour in MARKS:
        assert contrast(ink_of(colour)) >= 4.5
        assert (
            np.argsort(mpl.colors.to_rgb(ink_of(colour))).tolist()
            == np.argsort(mpl.colors.to_rgb(colour)).tolist()
        )
    assert contrast("#767676") == pytest.approx(4.54, abs=0.01)  # as other checkers of contrast say
    assert ink_of("#000000") == "#000000"


@pytest.mark.parametrize("spread", ["bars", "band", "none"])
def test_curves_of_a_panel_differ_without_their_colours(spread: str) -> None:
    points = pd.DataFrame({"mean": [1.0, 2.0, 3.0], "std": 0.1}, index=[1.0, 2.0, 3.0])
    curves = [Curve(colour, colour, points, spread=spread) for colour in SERIES]  # type: ignore[arg-type]
    axes = panels_figure([Panel("", "", "", curves)]).axes[0]
    marks = [line.get_marker() for line in axes.lines if line.get_color() in SERIES]
    assert [mark for mark in marks if mark in MARKS.values()] == [mark_of(colour) for colour in SERIES]

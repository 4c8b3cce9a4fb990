"""Colours and marks of series in pictures, told apart with any kind of colour vision."""

from __future__ import annotations

from privopt.experiments.workbench.drawing import mpl

# Colour-blind safe (Okabe and Ito 2008); a test simulates the three kinds of colour blindness. Each colour
# has its own mark, for those who see no colours and for grey paper.
SERIES = ("#0072B2", "#D55E00", "#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
VIOLET, BROWN, GREY = "#4B0092", "#8C510A", "#777777"
MARKS = dict(zip((*SERIES, VIOLET, BROWN, GREY), "os^DvPX<>*", strict=True))
# Colour of bands and fills behind a series of the first colour.
PALE = "#9BC8E3"
# Contrast with white that small text has to have (WCAG 2, level AA).
_OF_TEXT = 4.5


def mark_of(colour: str) -> str:
    """Return the mark of a colour; shades of a colour have circles."""
    return MARKS.get(colour, "o")


def ink_of(colour: str) -> str:
    """Return a colour for text: the same hue, so dark that it can be read on white."""
    shown = mpl.colors.to_rgb(colour)
    while contrast(mpl.colors.to_hex(shown)) < _OF_TEXT:
        shown = (0.97 * shown[0], 0.97 * shown[1], 0.97 * shown[2])
    return mpl.colors.to_hex(shown)


def contrast(colour: str) -> float:
    """Return the contrast of a colour with white, by WCAG 2."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in mpl.colors.to_rgb(colour)
    )
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)

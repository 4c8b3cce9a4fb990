"""Names of matplotlib that figures use; if it is not installed, the error names the extra to install."""

from __future__ import annotations

from privopt.problems.errors import missing

try:
    import matplotlib as mpl
    from matplotlib import dates, ticker
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise missing("a figure", "matplotlib", "plots") from error

__all__ = ["Axes", "Figure", "dates", "mpl", "ticker"]

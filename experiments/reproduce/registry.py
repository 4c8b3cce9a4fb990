"""Registry of the figures. A figure is imported on request, because its libraries load slowly."""

from __future__ import annotations

from importlib import import_module

from privopt.experiments.reproduce.interface import Reproduction
from privopt.problems.errors import InvalidInputError

FIGURES = (
    "neel2020-figure1",
    "neel2020-figure2",
    "neel2020-opsamp",
    "neel2020-spacing",
    "wang-xu2019-figure1",
    "wang-xu2019-figure2",
    "wang-xu2019-figure3",
    "wang-xu2019-figure4",
    "wang-xu2019-table1",
    "wang2017-table1",
    "wang2017-table2",
    "wang2017-table3",
    "wang2017-theorem6",
    "wang-chen-xu2019-risk",
    "wang-chen-xu2019-minima",
    "wang-chen-xu2019-population",
    "wang-xiao2020-figure1",
    "wang-xiao2020-figure2",
    "wang-xiao2020-figure3",
    "wang-xiao2020-figure4",
    "wang-xiao2020-means",
    "wang-xiao2020-risk",
)


def reproduction(name: str) -> Reproduction:
    """Import a figure by name.

    Raises:
        InvalidInputError: an unknown name; the message lists the known ones.
    """
    if name not in FIGURES:
        raise InvalidInputError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    module = import_module(f"privopt.experiments.reproduce.{name.replace('-', '_')}")
    found: Reproduction = module.FIGURE
    return found

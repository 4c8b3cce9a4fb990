"""Formatting shared by pages of the documentation."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

_DOCS = Path(__file__).parents[1] / "docs"
# A place on a page, <!-- fill: NAME -->...<!-- end -->: what stands between its comments is replaced.
_PLACE = re.compile(r"(?P<start><!-- fill: (?P<name>[\w-]+) -->\n?).*?<!-- end -->", re.DOTALL)


def filled(page: str, values: Mapping[str, str]) -> str:
    """Return a page of ``experiments/docs`` with values in its places.

    Raises:
        ValueError: the places have other names than the values.
    """
    text = (_DOCS / f"{page}.md").read_text("utf-8")
    names = [place["name"] for place in _PLACE.finditer(text)]
    if set(names) != set(values):
        raise ValueError(f"{page}.md has places for {sorted(names)}, there are values for {sorted(values)}")

    def put(place: re.Match[str]) -> str:
        end = "\n<!-- end -->" if place["start"].endswith("\n") else "<!-- end -->"
        return place["start"] + values[place["name"]] + end

    return _PLACE.sub(put, text)


def markdown_table(table: pd.DataFrame) -> str:
    """Format a table in Markdown by ``str``; all columns but the first are aligned to the right."""
    header = "| " + " | ".join(str(c).strip() for c in table.columns) + " |"
    rule = "|---|" + "---:|" * (len(table.columns) - 1)
    body = ["| " + " | ".join(str(v).replace("|", "\\|") for v in row) + " |" for row in table.to_numpy()]
    return "\n".join([header, rule, *body])


def readable(value: object) -> str:
    """Format a number in four digits, thousands with commas; anything else by ``str``."""
    if isinstance(value, float) and not 1e3 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def processor() -> str:
    """Return the name of the processor and the number of its cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"

"""Formatting shared by pages of the documentation."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pandas as pd


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

"""Tables from score to risk, as text and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.markup import escape
from rich.table import Table

from privopt.mechanisms.evaluation.risk import RiskTable


def risk_table(risks: RiskTable, positive: str) -> Table:
    """Return a table of risks, one row per range of scores."""
    interval = f"{risks.confidence:.0%} interval"
    table = Table("points", f"risk of {escape(positive)}", interval, "share of records")
    table.columns[0].no_wrap = True
    for above, up_to, risk, low, high, share in risks.frame.to_numpy().tolist():
        table.add_row(between(above, up_to), f"{risk:.1%}", f"{low:.1%} to {high:.1%}", f"{share:.1%}")
    return table


def risk_rows(risks: RiskTable) -> list[dict[str, Any]]:
    """Return the rows of the table JSON-ready, with None for an open end."""
    rows = risks.frame.to_dict("records")
    return [{str(k): None if math.isnan(v) else v for k, v in row.items()} for row in rows]


def between(above: float, up_to: float) -> str:
    """Describe a range of scores; NaN is an open end."""
    low, high = (None if math.isnan(x) else f"{x:.4g}" for x in (above, up_to))
    if low is None:
        return "all" if high is None else f"up to {high}"
    return f"above {low}" if high is None else f"above {low} to {high}"

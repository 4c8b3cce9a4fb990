"""View of an empirical risk on some of its features, for sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, Vector


class SomeColumns(EmpiricalRisk):
    """The records of a risk on some of its features, for sums of functions of ``bare_rows``.

    Rows, labels and counts stay where they are: nothing is copied, and parts of a table are read in place.
    The view computes no values or gradients: ask ``risk`` for them.

    Args:
        risk: the risk.
        columns: indices of features, increasing; the constant feature is not among them.
        facts: the public facts of the view, with the constant feature of the risk, if it has one.
    """

    def __init__(self, risk: EmpiricalRisk, columns: NDArray[np.int64], facts: RiskFacts) -> None:
        self.risk, self.columns, self.facts = risk, columns, facts

    def __getattr__(self, name: str) -> Any:
        """Return the table, labels or counts of the risk; AttributeError for a partitioned risk."""
        if name in ("X", "y", "counts"):
            return getattr(self.risk, name)
        raise AttributeError(name)

    def bare_rows(self, b: slice) -> Any:
        """Return rows on the chosen columns in float64, before clipping. Not private."""
        return self.risk.bare_rows(b)[:, self.columns]

    def total(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        """Run ``task`` on the view of every part of the records and add the results up."""
        return self.risk.total(partial(_on_columns, task=task, columns=self.columns, facts=self.facts))


def _on_columns(
    part: EmpiricalRisk,
    task: Callable[[EmpiricalRisk], Vector],
    columns: NDArray[np.int64],
    facts: RiskFacts,
) -> Vector:
    return task(SomeColumns(part, columns, facts))

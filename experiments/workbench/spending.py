"""Figure of the privacy loss spent over time, below the total of each budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from privopt.experiments.workbench.drawing import Figure, dates, mpl
from privopt.experiments.workbench.palette import SERIES
from privopt.mechanisms.privacy.budget import Budget, Total

mpl.rcParams["svg.hashsalt"] = "privopt"
_SPENT, _LIMIT = SERIES[:2]


def spending(
    budgets: Mapping[str, tuple[Budget, Total]], course: Mapping[str, Sequence[tuple[datetime, Total]]]
) -> Figure:
    """Draw epsilon spent over time as a step function below the budget's total, one panel per budget.

    ``course`` has for each budget the times of releases, each with the total spent after it.
    """
    figure = Figure(figsize=(7, 0.8 + 2.1 * len(budgets)), layout="constrained")
    panels = figure.subplots(len(budgets), 1, sharex=True, squeeze=False)[:, 0]
    end = max(points[-1][0] for points in course.values())
    for axes, (name, (budget, spent)) in zip(panels, budgets.items(), strict=True):
        times = [*(t for t, _ in course[name]), end]
        values = [*(total.epsilon for _, total in course[name]), spent.epsilon]
        axes.fill_between(times, values, step="post", color=_SPENT, alpha=0.2, linewidth=0)
        axes.step(times, values, where="post", color=_SPENT, linewidth=1.6)
        axes.plot(times[-1], values[-1], "o", color=_SPENT, markersize=4)
        axes.axhline(budget.epsilon, color=_LIMIT, linestyle="--", linewidth=1.2)
        axes.text(
            0.005, budget.epsilon, "total", color=_LIMIT, va="bottom", transform=axes.get_yaxis_transform()
        )
        axes.set_ylim(0, 1.2 * max(budget.epsilon, *values))
        axes.set_ylabel("ε spent")
        delta = f", δ = {spent.delta:.2g} of {budget.delta:g}" if budget.delta else ""
        axes.set_title(
            f"{name}: ε = {spent.epsilon:.4g} of {budget.epsilon:g}{delta} (rule {budget.rule})",
            loc="left",
            fontsize=10,
        )
        axes.spines[["top", "right"]].set_visible(False)
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    panels[-1].xaxis.set_major_locator(locator)
    panels[-1].xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    panels[-1].set_xlabel("time (UTC)", loc="left")
    return figure

"""Sentences about a search before it runs: the price of tuning, and choices that cost nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.tuning.selection import SelectionPlan

# Parameters that need no search, by name, with the reason: a release determines them at no further cost.
FREE: Mapping[str, str] = {
    "regularizer": "ridge and shrinkage follow from the release itself: the default mechanism of linear "
    "regression shrinks by the noise of its moments, at no cost",
    "max_columns": "the columns of a scorecard are chosen within the private fit: max_columns costs nothing, "
    "so decide by size",
    "lattice": "points are rounded from the released linear model: finer or coarser points cost nothing",
}
_THRESHOLDS = (
    "thresholds, roundings and the number of columns of a released model are post-processing: change them "
    "after one fit, without a search"
)


def expected_lines(
    plan: SelectionPlan, candidates: Sequence[Any], delta: float, n: int, held_out: int
) -> tuple[str, ...]:
    """Return sentences about a plan; each candidate has an attribute ``params``."""
    noise = plan_noise(plan, delta) * n / (n - held_out)
    runs = f"all {plan.candidates} candidates are run"
    if plan.law is not None:
        tried = plan.law.tried(plan.candidates)
        runs = (
            f"runs: a random number, {plan.law.mean:g} on average, of {plan.candidates} candidates; a given "
            f"candidate is run with probability {tried:.2f}"
        )
    names = sorted({name for candidate in candidates for name in candidate.params} & set(FREE))
    return (
        f"{runs}, each at epsilon = {plan.run_epsilon:.4g}, delta = {plan.run_delta:.3g}",
        f"models are fitted to {n - held_out} records and scored on {held_out}; the score has noise of "
        f"{plan.score.scale / held_out:.2g}, and chance decides between candidates that differ by less",
        f"expected: noise {noise:.2f} times that of one fit to all records with the whole budget. "
        "Tuning is worth it for estimators without good defaults, or if candidates differ by more than this",
        *(f"{name}: {FREE[name]}" for name in names),
        _THRESHOLDS,
    )


def plan_noise(plan: SelectionPlan, delta: float) -> float:
    """Return the noise of a run over the noise of one fit with the whole budget to as many records."""
    epsilon = plan.spend.epsilon
    if plan.run_mu is not None:
        return gaussian_mu(epsilon, delta) / plan.run_mu
    return epsilon / plan.run_epsilon

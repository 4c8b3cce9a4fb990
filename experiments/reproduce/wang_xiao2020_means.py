"""Wang, Xiao, Devadas and Xu (2020), Theorems 3 and 6: private means of numbers with a heavy tail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from privopt.experiments.reproduce.interface import (
    Agreement,
    Cell,
    Point,
    Reason,
    Reproduction,
    Verdict,
    held,
)
from privopt.experiments.reproduce.tables import bound_power, earned, pivot, power_law
from privopt.experiments.reproduce.wang_xiao2020 import CITE, PAPER
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.regularizers import Vector

RECORDS, BUDGETS = "against n", "against ε"
TRIMMED, CONSTANT_TRIM = "trimmed mean", "Algorithm 2 as printed, 10 trimmed"
PRINTED, BALANCED = "robust mean, printed scale", "robust mean, balanced scale"
CURVES = (TRIMMED, PRINTED, BALANCED, CONSTANT_TRIM)
SQUARED, ERROR, BOUND = "squared error", "error", "bound on the error"
DELTA, EPSILON, FAILURE = 1e-6, 1.0, 0.05
_MIDDLE, _EPSILONS = 16_000, (0.25, 0.5, 1.0)
_TAIL = 2.5  # of the Lomax distribution, which has no third moment then
MEAN = 1 / (_TAIL - 1)
MOMENT = 2 / ((_TAIL - 1) * (_TAIL - 2))
REACH, _TRIM = 2.0, 10  # [a, b] = [-2, 2], whose centre is the constant 0


def sizes(quick: bool) -> tuple[int, ...]:
    return (4_000, 16_000, 64_000, 256_000) if quick else (4_000, 16_000, 64_000, 256_000, 1_000_000)


def runs(quick: bool) -> int:
    return 80 if quick else 200


def cells(quick: bool) -> list[Cell]:
    by_records = [Cell(RECORDS, curve, n) for curve in CURVES for n in sizes(quick)]
    return by_records + [Cell(BUDGETS, curve, e) for curve in CURVES[:3] for e in _EPSILONS]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    n, epsilon = (int(cell.level), EPSILON) if cell.panel == RECORDS else (_MIDDLE, cell.level)
    plan = _plan(cell.curve, n, epsilon)
    for run in range(runs(quick)):
        x = records(n, run)
        if plan is None:
            found = printed_mean(x, epsilon, np.random.default_rng([n, run, 1]))
        else:
            found = float(plan.release(x[:, None], NoiseSource(insecure_seed=run)).point[0])
        yield Point(run, cell.level, ERROR, abs(found - MEAN))
    if isinstance(plan, RobustMean):
        yield Point(0, cell.level, BOUND, plan.error_bound(FAILURE))


def records(n: int, run: int) -> Vector:
    """Draw numbers without a third moment."""
    return np.random.default_rng([n, run]).pareto(_TAIL, n)


def _plan(curve: str, n: int, epsilon: float) -> TrimmedMean | RobustMean | None:
    """Plan a mean; Algorithm 2 as printed has no private plan."""
    if curve == CONSTANT_TRIM:
        return None
    if curve == TRIMMED:
        return TrimmedMean.plan(n, 1, mean_range=(-REACH, REACH), epsilon=epsilon, delta=DELTA)
    soft = SoftTruncation.as_printed(n, MOMENT, FAILURE) if curve == PRINTED else None
    return RobustMean.plan(
        n, 1, moment=MOMENT, epsilon=epsilon, delta=DELTA, failure=FAILURE, truncation=soft
    )


def printed_mean(x: Vector, epsilon: float, rng: np.random.Generator) -> float:
    """Return the mean of Algorithm 2 as printed, m constant. NOT private: the scale reveals the range."""
    order, s = np.sort(x), epsilon / 4
    mean = float(np.clip(order[_TRIM:-_TRIM].mean(), -REACH, REACH))
    spread = float(order[-1] - order[0]) / (len(x) - 2 * _TRIM)
    return mean + max(spread, math.exp(-_TRIM * epsilon**2 / 16) * 2 * REACH) / s * math.sinh(rng.normal())


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for panel, axis in ((RECORDS, "n"), (BUDGETS, "ε")):
        here = frame[frame["panel"] == panel]
        looks = ("trimmed-gd", "robust-gd", "clipped-newton", "dp-gd")
        curves = [
            Curve(name, colour(look), averaged(here[here["curve"] == name], ERROR))
            for name, look in zip(CURVES, looks, strict=True)
            if (here["curve"] == name).any()
        ]
        zero = here[(here["curve"] == TRIMMED) & (here["measure"] == ERROR)].assign(value=MEAN)
        curves.append(Curve("0", colour("not private"), averaged(zero, ERROR), "dashed"))
        panels.append(Panel(f"Error {panel}", axis, ERROR, curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    parts = [
        pivot(frame[frame["panel"] == panel], (ERROR, BOUND), heading)
        for panel, heading in ((RECORDS, "n = {:,.0f}"), (BUDGETS, "ε = {:g}"))
    ]
    return pd.concat(parts).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = [
        _falls(frame, "Theorem 3", TRIMMED, SQUARED),
        _costs(frame, "Theorem 3", TRIMMED, SQUARED),
        replace(_falls(frame, "Theorem 3", CONSTANT_TRIM, SQUARED), reason=_CONSTANT),
    ]
    for curve in (PRINTED, BALANCED):
        three = [_within(frame, curve), _falls(frame, "Theorem 6", curve, ERROR)]
        three.append(_costs(frame, "Theorem 6", curve, ERROR))
        found += [v if curve == PRINTED else replace(v, agreement=v.agreement.beside) for v in three]
    return found


_CONSTANT = Reason(
    "the scale of the noise is a maximum, and with a constant m its second argument, e^(-m t) (b - a), does "
    "not fall with n (errata, 13). m has to grow like log(n) / t",
    derived=True,
)


def _values(frame: pd.DataFrame, panel: str, curve: str, measure: str) -> pd.DataFrame:
    here = frame[(frame["panel"] == panel) & (frame["curve"] == curve)]
    if measure == SQUARED:
        errors = here[here["measure"] == ERROR]
        return errors.assign(value=errors["value"] ** 2)
    return here[here["measure"] == measure]


def _useful(frame: pd.DataFrame, panel: str, curve: str) -> tuple[int, int]:
    """Count levels with less squared error than the constant 0, the centre of [a, b]."""
    mean = _values(frame, panel, curve, SQUARED).groupby("level")["value"].mean()
    return int((mean < MEAN**2).sum()), len(mean)


def _falls(frame: pd.DataFrame, theorem: str, curve: str, measure: str) -> Verdict:
    """Judge the power of n by the bound's power at the same values of n."""
    values = _values(frame, RECORDS, curve, measure)
    squared = measure == SQUARED
    bound = bound_power(values, lambda n: np.log(n) / n if squared else n**-0.5)
    power, (better, of) = power_law(values), _useful(frame, RECORDS, curve)
    return Verdict(
        f"{theorem}, {curve}: the {measure} falls at least like {'log(n) / n' if squared else '1 / √n'}",
        earned(power.at_most(bound), better, of),
        f"Measured power of n: {power}, that of the bound: {bound:.2f}; better than the constant 0 at "
        f"{better} of {of} values.",
    )


def _costs(frame: pd.DataFrame, theorem: str, curve: str, measure: str) -> Verdict:
    """Judge the power of 1 / epsilon; an error that does not grow with it confirms no cost."""
    power = power_law(_values(frame, BUDGETS, curve, measure)).inverted
    bound, (better, of) = 2 if measure == SQUARED else 1, _useful(frame, BUDGETS, curve)
    return Verdict(
        f"{theorem}, {curve}: the {measure} grows, and at most like 1 / ε{'²' if bound == 2 else ''}",
        earned(power.costs_at_most(bound), better, of),
        f"Measured power of 1 / ε: {power}; better than the constant 0 at {better} of {of} values.",
    )


def _within(frame: pd.DataFrame, curve: str) -> Verdict:
    """Judge the bound with its constants where it is below sqrt(v), itself a bound on the mean."""
    keys, own = ["panel", "level"], frame[frame["curve"] == curve]
    errors = own[own["measure"] == ERROR]
    bounds = own[own["measure"] == BOUND].rename(columns={"value": "bound"})
    both = errors.merge(bounds[[*keys, "bound"]], on=keys)
    told = both[both["bound"] < math.sqrt(MOMENT)]
    varied = told["panel"] == RECORDS
    n, epsilon = told["level"].where(varied, _MIDDLE), told["level"].where(~varied, EPSILON)
    form = np.sqrt(MOMENT * math.log(1 / DELTA) * math.log(1 / FAILURE) / n) / epsilon
    constant = float((told["bound"] / form).max())
    out = int((told["value"] > told["bound"]).sum())
    return Verdict(
        f"Theorem 6, {curve}: the error is within C √(v ln(1/δ) ln(1/δ')) / (√n ε) with probability 1 - δ'",
        held(int(out <= FAILURE * len(told)), 1) if len(told) else Agreement.NO,
        f"The proved bound has C = {constant:.2g} or less. It is below √v for {len(told)} of {len(both)} "
        f"releases, and {out} of these have an error beyond it; δ' = {FAILURE:g}.",
    )


def setting(quick: bool) -> str:
    return (
        f"Numbers with density {_TAIL:g} (1 + x)^(-{_TAIL + 1:g}), which have no third moment: mean "
        f"{MEAN:.3g}, v = E x² = {MOMENT:.3g}, public for the robust mean; public for the trimmed mean is "
        f"[a, b] = [-{REACH:g}, {REACH:g}]. n from {sizes(quick)[0]:,} to {sizes(quick)[-1]:,} at ε = "
        f"{EPSILON:g}; ε from {_EPSILONS[0]:g} to {_EPSILONS[-1]:g} at n = {_MIDDLE:,}; δ = {DELTA:g}, δ' = "
        f"{FAILURE:g}; neighbours replace one record, n is public; {runs(quick)} runs, new records for each, "
        "sound noise. The trimmed mean has the exact smooth sensitivity and trims as many records as its "
        f"budget requires; as printed it trims a constant number, here {_TRIM} at either end, and its scale "
        "is not private (errata, 4). A value of n or ε counts if the error there is less than that of the "
        "constant 0."
    )


FIGURE = Reproduction(
    name="wang-xiao2020-means",
    paper=PAPER,
    cite=CITE,
    figure="Theorems 3 and 6 (means)",
    shows=(
        "Bounds without pictures. The trimmed mean of Algorithm 2 has an expected squared error of σ² log(n) "
        "/ (n ε²); the truncated, smoothed mean an error of √(v ln(1/δ) ln(1/δ') / (n ε²)) with probability "
        "1 - δ'."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Error of a private mean, mean and one standard deviation over runs, on logarithmic axes.",
    table=table,
    verdicts=verdicts,
)

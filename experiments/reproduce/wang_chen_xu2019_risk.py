"""Wang, Chen and Xu (2019), Theorems 2 to 4: excess risk of Langevin dynamics and of nets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from privopt.experiments import nonconvex
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import bound_power, earned, means, pivot, power_law
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.problems.convex.regularizers import Vector, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts

CITE = "Wang, Chen and Xu (2019)"
PAPER = (
    "Wang, Chen and Xu, Differentially Private Empirical Risk Minimization with Non-convex Loss Functions, "
    "ICML 2019"
)
EMPIRICAL, POPULATION, START = "excess empirical risk", "excess population risk", "excess of zero weights"
_RECORDS, _BUDGETS, _EPSILON = "two classes, d = 2", "two classes, d = 2, against ε", 1.0
LAST, RANDOM, NET, BESIDE = "dp-gld", "dp-gld, random iterate", "net", "dp-gd"
_CURVES = (LAST, RANDOM, NET, BESIDE)
_EPSILONS, _MIDDLE, _FRESH = (0.3, 1.0, 3.0), 2_000, 100_000
_COLD, _WIDE = "two classes, d = 2, against β", "two classes, against d"
_TEMPERATURES, _DIMENSIONS, _BETA = (100.0, 300.0, 1_000.0, 3_000.0), (2, 4, 8, 16), 300.0


def sizes(quick: bool) -> tuple[int, ...]:
    return (500, 2_000, 10_000) if quick else (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000)


def runs(quick: bool) -> int:
    return 5 if quick else 15


def cells(quick: bool) -> list[Cell]:
    by_records = [Cell(_RECORDS, curve, n) for curve in _CURVES for n in sizes(quick)]
    by_records += [Cell(_BUDGETS, LAST, e) for e in _EPSILONS]
    by_records += [Cell(_COLD, LAST, beta) for beta in _TEMPERATURES]
    return by_records + [Cell(_WIDE, LAST, d) for d in _DIMENSIONS]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    if cell.panel in (_COLD, _WIDE):
        yield from _tempered(cell, quick)
        return
    n, epsilon = (int(cell.level), _EPSILON) if cell.panel == _RECORDS else (_MIDDLE, cell.level)
    fresh, least = population()
    for run in range(runs(quick)):
        risk = nonconvex.classes(n, 2, run)
        w, start = _released(cell.curve, risk, epsilon, run), np.zeros(2)
        best = nonconvex.least_risk(n, 2, run)
        yield Point(run, cell.level, EMPIRICAL, max(_penalised(risk, w) - best, 1e-9))
        yield Point(run, cell.level, START, _penalised(risk, start) - best)
        yield Point(run, cell.level, POPULATION, max(_penalised(fresh, w) - least, 1e-9))


def _tempered(cell: Cell, quick: bool) -> Iterator[Point]:
    """Measure the last iterate at another inverse temperature or dimension, at the same privacy."""
    beta, d = (cell.level, 2) if cell.panel == _COLD else (_BETA, int(cell.level))
    for run in range(2 * runs(quick)):
        risk = nonconvex.classes(_MIDDLE, d, run)
        plan = tempered_plan(risk.facts, beta)
        w = plan.release(risk, NoiseSource(insecure_seed=run)).point
        best = nonconvex.least_risk(_MIDDLE, d, run)
        yield Point(run, cell.level, EMPIRICAL, max(_penalised(risk, w) - best, 1e-9))
        yield Point(run, cell.level, START, _penalised(risk, np.zeros(d)) - best)


def tempered_plan(facts: RiskFacts, beta: float) -> DPLangevin:
    """Plan Langevin dynamics of an inverse temperature, in steps of 1 / (2 (L + l2)) or less.

    T steps of size eta have T eta beta = 2 (mu / sensitivity)^2, whatever beta is.
    """
    delta = 1 / facts.n_records**2
    reach = 2 * (gaussian_mu(_EPSILON, delta) / facts.sensitivity) ** 2
    steps = math.ceil(2 * (facts.smoothness + nonconvex.RIDGE) * reach / beta)
    return DPLangevin.plan(
        facts,
        None,
        ridge(nonconvex.RIDGE),
        epsilon=_EPSILON,
        delta=delta,
        steps=steps,
        output=Output.LAST,
        beta=beta,
    )


def _released(curve: str, risk: EmpiricalRisk, epsilon: float, run: int) -> Vector:
    kind = nonconvex.RISKED[LAST if curve == RANDOM else curve]
    options: dict[str, Any] = {} if curve == NET else {"output": Output.LAST}
    if curve == RANDOM:
        options = {"output": Output.RANDOM}
    penalty, delta = ridge(nonconvex.RIDGE), 1 / risk.facts.n_records**2
    plan = kind.plan(risk.facts, None, penalty, epsilon=epsilon, delta=delta, **options)
    released: Vector = plan.release(risk, NoiseSource(insecure_seed=run)).point
    return released


def _penalised(risk: EmpiricalRisk, w: Vector) -> float:
    return risk.value(w) + nonconvex.RIDGE / 2 * float(w @ w)


@cache
def population() -> tuple[EmpiricalRisk, float]:
    """Return the risk of many fresh records, and its least value."""
    return nonconvex.classes(_FRESH, 2, 1_000), nonconvex.least_risk(_FRESH, 2, 1_000)


def draw(frame: pd.DataFrame) -> Figure:
    here = frame[frame["panel"] == _RECORDS]
    panels = []
    for measure in (EMPIRICAL, POPULATION):
        curves = [
            Curve(
                name,
                colour(LAST if name == RANDOM else name),
                averaged(here[here["curve"] == name], measure),
                dashes="dashed" if name == RANDOM else "",
            )
            for name in _CURVES
        ]
        panels.append(Panel(f"{measure.capitalize()}, ε = 1", "n", measure, curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    by_records = pivot(frame[frame["panel"] == _RECORDS], (EMPIRICAL, POPULATION, START), "n = {:,.0f}")
    by_budget = pivot(frame[frame["panel"] == _BUDGETS], (EMPIRICAL, POPULATION, START), "ε = {:g}")
    colder = pivot(frame[frame["panel"] == _COLD], (EMPIRICAL, START), "β = {:g}")
    wider = pivot(frame[frame["panel"] == _WIDE], (EMPIRICAL, START), "d = {:g}")
    return pd.concat([by_records, by_budget, colder, wider]).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    slow = "1 / log(n)", lambda n: 1 / np.log(n)
    net = "log(n) / n", lambda n: np.log(n) / n
    found = [
        _rate(frame, "Theorem 2", LAST, EMPIRICAL, *slow),
        _rate(frame, "Theorem 2", LAST, POPULATION, *slow),
        _rate(frame, "Theorem 2", LAST, EMPIRICAL, "1 / ε²", lambda e: e**-2.0, _BUDGETS),
        _rate(frame, "Theorem 2", LAST, EMPIRICAL, "log(β) / β", lambda b: np.log(b) / b, _COLD),
        _growth(frame),
        _rate(
            frame,
            "Theorem 3",
            RANDOM,
            EMPIRICAL,
            "a power of n between 0 and -1, here -1/4",
            lambda n: n**-0.25,
        ),
        _rate(frame, "Theorem 4", NET, EMPIRICAL, *net),
    ]
    risk = means(frame, _RECORDS, EMPIRICAL)
    count, of = int((risk[NET] < risk[LAST]).sum()), len(risk[NET])
    ahead = Verdict(
        "A net is ahead of Langevin dynamics in two dimensions",
        held(count, of).beside,
        f"At {count} of {of} values of n. Its work grows like a power of n with d in the exponent.",
    )
    return [*found, ahead]


def _rate(
    frame: pd.DataFrame,
    theorem: str,
    curve: str,
    measure: str,
    what: str,
    bound: Callable[[Vector], Vector],
    panel: str = _RECORDS,
) -> Verdict:
    """Judge a power by the bound's power at the same levels; levels count where zero weights are worse."""
    here = frame[(frame["panel"] == panel) & (frame["curve"] == curve)]
    values = here[here["measure"] == measure]
    power = power_law(values)
    allowed = bound_power(values, bound)
    mean = here.groupby(["measure", "level"])["value"].mean()
    better, of = int((mean[EMPIRICAL] < mean[START]).sum()), len(mean[START])
    return Verdict(
        f"{theorem}, {curve}: the {measure} falls at least like {what}",
        earned(power.at_most(allowed), better, of),
        f"Measured power: {power}, that of the bound: {allowed:.2f}; better than zero weights at {better} of "
        f"{of} values.",
    )


def _growth(frame: pd.DataFrame) -> Verdict:
    """Judge the power of d where zero weights are worse; growth has to be seen for a bound to limit it."""
    here = frame[(frame["panel"] == _WIDE) & (frame["curve"] == LAST)]
    power = power_law(here[here["measure"] == EMPIRICAL])
    mean = here.groupby(["measure", "level"])["value"].mean()
    better, of = int((mean[EMPIRICAL] < mean[START]).sum()), len(mean[START])
    return Verdict(
        f"Theorem 2, {LAST}: the {EMPIRICAL} grows with d, and at most like d",
        earned(power.costs_at_most(1.0), better, of),
        f"Measured power at β = {_BETA:g}: {power}; better than zero weights at {better} of {of} values.",
    )


FIGURE = Reproduction(
    name="wang-chen-xu2019-risk",
    paper=PAPER,
    cite=CITE,
    figure="Theorems 2 to 4 (excess risk)",
    shows=(
        "Theorems, no pictures. The last iterate of gradient Langevin dynamics has excess empirical and "
        "population risk d log(β) / β for long runs, d / (log(n) ε²) for β of order log(n); a random "
        "iterate has a power of 1 / n for fixed d. The exponential mechanism on a net has d / (n ε), at a "
        "cost that is exponential in d."
    ),
    setting=lambda quick: (
        "Two classes in the plane, one on both sides of the other, under the sigmoid loss with a ridge "
        "penalty: several local minima. The least risk is the best of many starts without privacy. ε = "
        f"{_EPSILON:g}, and from {_EPSILONS[0]:g} to {_EPSILONS[-1]:g} at n = {_MIDDLE:,}; δ = 1/n²; "
        f"neighbours replace one record, n is public; {runs(quick)} runs, new records for each. Population "
        f"risk: on {_FRESH:,} fresh records. "
        "All mechanisms with privopt's defaults and sound noise; dp-gd is shown as a simple baseline. "
        f"The inverse temperature β from {_TEMPERATURES[0]:g} to {_TEMPERATURES[-1]:,.0f}, and d from "
        f"{_DIMENSIONS[0]} to {_DIMENSIONS[-1]} at β = {_BETA:g}, have n = {_MIDDLE:,}, and as many steps as "
        f"a step size of 1 / (2 (L + l2)) requires; {2 * runs(quick)} runs."
    ),
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Excess penalised risk against n, mean and one standard deviation.",
    table=table,
    verdicts=verdicts,
)

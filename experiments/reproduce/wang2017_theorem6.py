"""Wang, Ye and Xu (2017), Theorems 6.2 and 6.3: DP-GD under the Polyak-Lojasiewicz condition, and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import Power, bound_power, earned, pivot, power_law
from privopt.experiments.reproduce.wang2017 import CITE, PAPER
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.conditions import PolyakLojasiewicz
from privopt.problems.convex.losses import SigmoidSquaredLoss, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk

LINK, COPIES = "sigmoid link", "least squares, copied columns"
NAMED, PLAIN = "dp-gd, condition named", "dp-gd"
EXCESS, START, BOUND, GRADIENT = "excess risk", "excess risk at the start", "bound", "gradient norm"
STEEP = "gradient norm at the start"
FEATURES, _DIMENSIONS = "sigmoid link, against p", (4, 16, 64)
DELTA, EPSILON = 1e-6, 1.0
_LINK_FEATURES, _LINK_NORM, _LINK_REACH = 4, 1.6, 1.2
_PAIRS = 10
_SPREAD = 0.75  # the least positive eigenvalue of X'X / n over E X'X / n's: an assumption


@dataclass(frozen=True)
class Problem:
    """A risk that satisfies the condition.

    Attributes:
        make: (n, seed) -> the risk F and min F.
        constant: the public constant of the condition.
    """

    make: Callable[[int, int], tuple[EmpiricalRisk, float]]
    constant: float


def link_risk(n: int, seed: int, features: int = _LINK_FEATURES) -> tuple[EmpiricalRisk, float]:
    """Return the risk of (s(<x, w>) - y)^2, s the sigmoid, with y = s(<x, w*>), so that min F = 0.

    Rows have norm r = 1.6 and p entries +-r / sqrt(p), and w* is a multiple of e_1: all predictions at w* are
    +-r / 2.
    """
    X = np.random.default_rng([n, seed]).choice([-1.0, 1.0], size=(n, features))
    y = 1 / (1 + np.exp(-X[:, 0] * _LINK_NORM / 2))
    X *= _LINK_NORM / math.sqrt(features)
    return EmpiricalRisk(X, y, SigmoidSquaredLoss(), row_norm=_LINK_NORM * (1 + 1e-12)), 0.0


def link_constant() -> float:
    """Return a constant of the condition for predictions within +-1.2; its proof needs no convexity.

    Let d = w - w*, z = <x, w>, z* = <x, w*>, a be a lower bound on s' there, and lambda the least eigenvalue
    of X'X / n. Then <grad F, d> = (2/n) sum (s(z) - s(z*)) s'(z) <x, d> >= 8 a F, because |<x, d>| is at
    least 4 |s(z) - s(z*)|; and F >= a^2 lambda |d|^2. So |grad F|^2 >= 64 a^2 F^2 / |d|^2 >= 64 a^4 lambda F.
    """
    s = 1 / (1 + math.exp(-_LINK_REACH))
    return 32 * (s * (1 - s)) ** 4 * _SPREAD * _LINK_NORM**2 / _LINK_FEATURES


def copies_risk(n: int, seed: int) -> tuple[EmpiricalRisk, float]:
    """Return least squares with equal columns 2 i, 2 i + 1: convex, constant where w_2i + w_(2i + 1) is."""
    rng = np.random.default_rng([n, seed])
    half = rng.choice([-1.0, 1.0], size=(n, _PAIRS)) / math.sqrt(2 * _PAIRS)
    X = np.repeat(half, 2, axis=1)
    y = np.clip(half @ np.full(_PAIRS, 1.0) + rng.uniform(-0.2, 0.2, n), -1, 1)
    loss = SquaredLoss.within(set_radius=1.0, row_norm=1.0, label_bound=1.0)
    risk = EmpiricalRisk(X, y, loss, row_norm=1 + 1e-12)
    return risk, risk.value(np.linalg.lstsq(X, y, rcond=None)[0])


PROBLEMS = {
    LINK: Problem(link_risk, link_constant()),
    COPIES: Problem(copies_risk, _SPREAD / _PAIRS),  # eigenvalues of X'X / n: 0 and, expected, 1 / pairs
}


def sizes(quick: bool) -> tuple[int, ...]:
    return (1_000, 4_000, 16_000, 64_000) if quick else (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)


def epsilons(quick: bool) -> tuple[float, ...]:
    return (0.3, 1.0, 3.0) if quick else (0.1, 0.3, 1.0, 3.0)


def runs(quick: bool) -> int:
    return 5 if quick else 10


_MIDDLE = 16_000


def cells(quick: bool) -> list[Cell]:
    by_records = [Cell(p, curve, n) for p in PROBLEMS for curve in (NAMED, PLAIN) for n in sizes(quick)]
    by_records += [Cell(_budgets(p), NAMED, e) for p in PROBLEMS for e in epsilons(quick)]
    by_records += [Cell(_budgets(LINK), PLAIN, e) for e in epsilons(quick)]
    return by_records + [Cell(FEATURES, PLAIN, p) for p in _DIMENSIONS]


def _budgets(problem: str) -> str:
    return f"{problem}, against ε"


@lru_cache(maxsize=16)
def _made(problem: str, n: int, run: int) -> tuple[EmpiricalRisk, float]:
    return PROBLEMS[problem].make(n, run)


def _stationary(cell: Cell, quick: bool) -> Iterator[Point]:
    """Measure the gradient of a random iterate at another number of features."""
    for run in range(runs(quick)):
        risk, _least = link_risk(_MIDDLE, run, int(cell.level))
        plan = DPGradientDescent.plan(risk.facts, epsilon=EPSILON, delta=DELTA)
        w = plan.release(risk, NoiseSource(insecure_seed=run)).point
        yield Point(run, cell.level, GRADIENT, float(np.linalg.norm(risk.gradient(w))))
        yield Point(run, cell.level, STEEP, float(np.linalg.norm(risk.gradient(np.zeros_like(w)))))


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    if cell.panel == FEATURES:
        yield from _stationary(cell, quick)
        return
    name = cell.panel.removesuffix(", against ε")
    n, epsilon = (int(cell.level), EPSILON) if name == cell.panel else (_MIDDLE, cell.level)
    constant = PROBLEMS[name].constant
    condition = PolyakLojasiewicz(constant) if cell.curve == NAMED else None
    for run in range(runs(quick)):
        risk, least = _made(name, n, run)
        plan = DPGradientDescent.plan(risk.facts, epsilon=epsilon, delta=DELTA, condition=condition)
        w = plan.release(risk, NoiseSource(insecure_seed=run)).point
        start = risk.value(np.zeros(risk.facts.dimension)) - least
        yield Point(run, cell.level, EXCESS, max(risk.value(w) - least, 0.0))
        yield Point(run, cell.level, START, start)
        yield Point(run, cell.level, GRADIENT, float(np.linalg.norm(risk.gradient(w))))
        if cell.curve == PLAIN:
            yield Point(run, cell.level, STEEP, float(np.linalg.norm(risk.gradient(np.zeros_like(w)))))
        if cell.curve == NAMED:
            yield Point(run, cell.level, BOUND, proved(plan, constant, start))


def proved(plan: DPGradientDescent, constant: float, start: float) -> float:
    """Return the bound on the expected excess risk after T steps: see ``lojasiewicz_steps``."""
    left = (1 - constant / plan.facts.smoothness) ** plan.steps
    noise = plan.facts.dimension * plan.noise["sigma"] ** 2 / (2 * constant)
    return float(left * start + (1 - left) * noise)


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for problem in PROBLEMS:
        here = frame[frame["panel"] == problem]
        named = here[here["curve"] == NAMED]
        curves = [
            Curve(NAMED, colour("dp-gd"), averaged(named, EXCESS)),
            Curve("its bound", colour("dp-gd"), averaged(named, BOUND), dashes="dotted"),
            Curve(PLAIN, colour("dp-pgd"), averaged(here[here["curve"] == PLAIN], EXCESS)),
            Curve("the start", colour("not private"), averaged(named, START), dashes="dashed"),
        ]
        panels.append(Panel(problem.capitalize(), "n", EXCESS, curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    measures = (EXCESS, START, BOUND, GRADIENT, STEEP)
    by_records = pivot(frame[frame["panel"].isin(list(PROBLEMS))], measures, "n = {:,.0f}")
    budgets = frame[frame["panel"].isin([_budgets(p) for p in PROBLEMS])]
    features = pivot(frame[frame["panel"] == FEATURES], (GRADIENT, STEEP), "p = {:g}")
    by_budget = pivot(budgets, (EXCESS, BOUND, GRADIENT), "ε = {:g}")
    return pd.concat([by_records, by_budget, features]).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for problem in PROBLEMS:
        found += [_rate(frame, problem), _rate(frame, _budgets(problem)), _within(frame, problem)]
        found.append(_named(frame, problem))
    found += [_gradients(frame, panel, power) for panel, power in _STATIONARY.items()]
    return found


def _values(frame: pd.DataFrame, panel: str, curve: str, measure: str) -> pd.DataFrame:
    return frame[(frame["panel"] == panel) & (frame["curve"] == curve) & (frame["measure"] == measure)]


def _averages(frame: pd.DataFrame, panel: str, curve: str, measure: str) -> pd.Series[float]:
    return _values(frame, panel, curve, measure).groupby("level")["value"].mean()


def _rate(frame: pd.DataFrame, panel: str) -> Verdict:
    """Judge the power of n or epsilon in the excess risk by the power in the bound, at the same values.

    Only those n count at which the bound, with the constants of its proof, is below the excess risk at the
    start.
    """
    values = _values(frame, panel, NAMED, EXCESS)
    bound, what = -2.0, "ε to the power -2"
    own = power_law(_values(frame, panel, NAMED, BOUND))
    if panel in PROBLEMS:
        told, start = (_averages(frame, panel, NAMED, measure) for measure in (BOUND, START))
        values = values[values["level"].isin(told[told < start].index)]
        if not len(values):
            return Verdict(
                f"Theorem 6.2, {panel}: the excess risk falls with n",
                Agreement.NO,
                "The bound is above the excess risk at the start at every n.",
            )
        bound = bound_power(values, lambda n: (np.log(n) / n) ** 2)
        what = f"log(n)² / n², that is n to the power {bound:.2f}"
    power: Power = power_law(values)
    risk = values.groupby("level")["value"].mean()
    better = int((risk < _averages(frame, panel, NAMED, START).reindex(risk.index)).sum())
    return Verdict(
        f"Theorem 6.2, {panel}: the excess risk falls at least like {what}",
        earned(power.at_most(bound), better, len(risk)),
        f"Measured power: {power}; better than the start at {better} of {len(risk)} values. The bound with "
        f"the constants of its proof and exactly calibrated noise has the power {own.slope:.2f}.",
    )


def _within(frame: pd.DataFrame, problem: str) -> Verdict:
    """Judge the bound, with the constants of its proof, where it is below the excess risk at the start."""
    excess, bound, start = (_averages(frame, problem, NAMED, m) for m in (EXCESS, BOUND, START))
    told = bound[bound < start].index
    within = sum(float(excess[n]) <= float(bound[n]) for n in told)
    words = ", ".join(f"{excess[n] / bound[n]:.2g} at n = {n:,.0f}" for n in told)
    return Verdict(
        f"Theorem 6.2, {problem}: the excess risk is within the bound, with the constants of its proof",
        held(within, len(told)) if len(told) else Agreement.NO,
        f"The bound is below the excess risk at the start at {len(told)} of {len(bound)} values of n. Excess "
        f"risk divided by the bound there: {words or 'none'}.",
    )


def _named(frame: pd.DataFrame, problem: str) -> Verdict:
    """Judge the gain of naming the condition where the result is better than the start."""
    named, plain = (_averages(frame, problem, curve, EXCESS) for curve in (NAMED, PLAIN))
    start = _averages(frame, problem, NAMED, START)
    ahead = sum(float(named[n]) < min(float(plain[n]), float(start[n])) for n in named.index)
    last = named.index[-1]
    return Verdict(
        f"{problem}: dp-gd with the condition named has less risk than dp-gd by default, and less than "
        "at the start",
        held(ahead, len(named)).beside,
        f"At {ahead} of {len(named)} values of n; at n = {last:,.0f} it has {named[last] / plain[last]:.2g} "
        f"times the risk of the default and {named[last] / start[last]:.2g} times that of the start.",
    )


# Powers in the bound (sqrt(p ln(1/delta)) / (n epsilon))^(1/2) on the root mean square of the norm.
_STATIONARY = {LINK: ("n", -0.5), f"{LINK}, against ε": ("ε", -0.5), FEATURES: ("p", 0.25)}


def _gradients(frame: pd.DataFrame, panel: str, of: tuple[str, float]) -> Verdict:
    """Judge Theorem 6.3 on the gradient of a random iterate, where it is smaller than at the start."""
    name, bound = of
    power = power_law(_values(frame, panel, PLAIN, GRADIENT))
    norm, start = (_averages(frame, panel, PLAIN, measure) for measure in (GRADIENT, STEEP))
    better = int((norm < start).sum())
    falls = bound < 0
    return Verdict(
        f"Theorem 6.3, {LINK}: the gradient of a random iterate "
        f"{'falls at least' if falls else 'grows at most'} like {name} to the power {bound:g}",
        earned(power.at_most(bound) if falls else power.grows_at_most(bound), better, len(norm)),
        f"Measured power: {power}; smaller than at the start at {better} of {len(norm)} values of {name}.",
    )


def setting(quick: bool) -> str:
    return (
        f"{LINK.capitalize()}: (s(<x, w>) - y)², {_LINK_FEATURES} features ±{_LINK_NORM:g}/√"
        f"{_LINK_FEATURES}, labels s(<x, w*>), so that the least risk is 0; not convex, and the condition "
        f"is proved for predictions within ±{_LINK_REACH:g} (at the minimum they are ±0.8), with constant "
        f"{PROBLEMS[LINK].constant:.3g}. {COPIES.capitalize()}: {2 * _PAIRS} columns in equal pairs, convex "
        f"but not strictly; constant {PROBLEMS[COPIES].constant:.3g}. If the condition is named, it gives "
        "the number of steps, and the last iterate is released; by default, a random iterate (not convex) or "
        "the average (convex). "
        f"n from {sizes(quick)[0]:,} to {sizes(quick)[-1]:,} at ε = {EPSILON:g}, and ε from "
        f"{epsilons(quick)[0]:g} to {epsilons(quick)[-1]:g}, p from {_DIMENSIONS[0]} to {_DIMENSIONS[-1]} "
        f"at n = {_MIDDLE:,}; δ = {DELTA:g}; neighbours replace one "
        f"record, n is public; {runs(quick)} runs, new records for each. The bound is that of the proof for "
        "the steps T and the noise σ in use: a B + (1 - a) p σ² / (2 c), where a = (1 - c/L)^T, B is the "
        "excess risk at the start, c the constant and L the smoothness of the risk."
    )


FIGURE = Reproduction(
    name="wang2017-theorem6",
    paper=PAPER,
    cite=CITE,
    figure="Theorems 6.2 and 6.3 (Polyak-Lojasiewicz)",
    shows=(
        "Bounds without pictures. Under the Polyak-Lojasiewicz condition the last iterate of DP-GD has "
        "excess risk p log(n)² / (n ε)², convex or not, after some log(n) steps; without it a random iterate "
        "has a gradient of norm (√p / (n ε))^(1/2)."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Excess risk against n, mean and one standard deviation, on logarithmic axes.",
    table=table,
    verdicts=verdicts,
)

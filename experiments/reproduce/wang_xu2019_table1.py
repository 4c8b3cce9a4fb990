"""Wang and Xu (2019), Table 1 and Theorems 1 to 6: stationarity against n, epsilon, p and the set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import Power, earned, pivot, power_law
from privopt.experiments.reproduce.wang_xu2019 import CITE, PAPER
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.mechanisms.risk.sets import default_start
from privopt.oracles.convex.prox import prox_step
from privopt.oracles.convex.quantities import support
from privopt.problems.convex.losses import SigmoidLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RowNorm
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace

RECORDS, BUDGETS, FEATURES = "against n", "against ε", "against p"
POPULATION = "population, against n"
SETS = ("l2 ball", "l1 ball", "simplex", "box", "polytope")
GAP, NORM, START = "Frank-Wolfe gap", "projected gradient", "Frank-Wolfe gap at the start"
GRADIENT = "gradient of the population risk"
METHODS = ("dp-pgd", "dp-fw-l2", "dp-pmd", "dp-fw-l1")
DELTA, EPSILON = 1e-6, 2.0
_RELEVANT, _FEATURES, _FEW, _MIDDLE, _FRESH = 5, 40, 10, 4_000, 100_000
_EPSILONS, _DIMENSIONS = (0.5, 2.0, 8.0), (10, 40, 160)


@dataclass(frozen=True)
class Theorem:
    """A bound of the table: the measure that falls, and its power of n and of epsilon."""

    number: int
    method: str
    measure: str
    power: float = -0.5


THEOREMS = (
    Theorem(2, "dp-pgd", NORM),
    Theorem(4, "dp-fw-l2", GAP),
    Theorem(5, "dp-pmd", NORM),
    Theorem(6, "dp-fw-l1", GAP),
)


def sizes(quick: bool) -> tuple[int, ...]:
    return (1_000, 4_000, 16_000) if quick else (1_000, 4_000, 16_000, 64_000)


def runs(quick: bool) -> int:
    return 3 if quick else 10


def cells(quick: bool) -> list[Cell]:
    levels: Sequence[tuple[str, tuple[float, ...]]] = (
        (RECORDS, sizes(quick)),
        (BUDGETS, _EPSILONS),
        (FEATURES, _DIMENSIONS),
    )
    found = [Cell(panel, m, x) for panel, xs in levels for m in METHODS for x in xs]
    found += [
        Cell(name, m, _MIDDLE) for name in SETS for m in METHODS if m != "dp-fw-l1" or name in SETS[1:3]
    ]
    return found + [Cell(POPULATION, "dp-pgd", n) for n in sizes(quick)]


def make(n: int, p: int, seed: int) -> tuple[Vector, Vector]:
    """Generate features +-1/sqrt(p), and labels of a logistic model of five features."""
    rng = np.random.default_rng(seed)
    X = rng.choice(np.array([-1.0, 1.0]), size=(n, p)) / math.sqrt(p)
    chances = 1 / (1 + np.exp(-(X[:, :_RELEVANT].sum(axis=1) * _weight(p))))
    return X, np.where(rng.random(n) < chances, 1.0, -1.0)


def _weight(p: int) -> float:
    """Return the weight of a relevant feature: predictions have size about 2."""
    return 2 * math.sqrt(p / _RELEVANT)


def set_of(name: str, p: int) -> ConvexSet:
    """Build a set with the true weights on its boundary."""
    each, total = _weight(p), _weight(p) * _RELEVANT
    if name == "polytope":
        rows = np.stack([np.ones(p), -np.ones(p)])
        return Polytope(rows, [total, total], np.full(p, -each), np.full(p, each))
    if name == "box":
        return Box(np.full(p, -each), np.full(p, each))
    if name == "l2 ball":
        return L2Ball(p, each * math.sqrt(_RELEVANT))
    return L1Ball(p, total) if name == "l1 ball" else Simplex(p, total)


def problem(cell: Cell, run: int) -> tuple[EmpiricalRisk, ConvexSet, float]:
    """Build the records of a run, the set and epsilon of a cell."""
    n = int(cell.level) if cell.panel in (RECORDS, POPULATION) else _MIDDLE
    p = int(cell.level) if cell.panel == FEATURES else _FEW if cell.panel in SETS else _FEATURES
    space: ConvexSet = set_of(cell.panel if cell.panel in SETS else "l1 ball", p)
    space = WholeSpace(p) if cell.panel == POPULATION else space
    norm: RowNorm = "linf" if isinstance(space, L1Ball | Simplex) else "l2"
    bound = 1 / math.sqrt(p) if norm == "linf" else 1.0
    risk = EmpiricalRisk(*make(n, p, 1000 + run), SigmoidLoss(), row_norm=bound, norm=norm)
    return risk, space, cell.level if cell.panel == BUDGETS else EPSILON


def frank_wolfe_gap(risk: EmpiricalRisk, space: ConvexSet, w: Vector) -> float:
    """Return max over v in C of <v - w, -grad F(w)>."""
    g = risk.gradient(w)
    return float(g @ w) + support(space, -g)


def projected_gradient(risk: EmpiricalRisk, space: ConvexSet, w: Vector) -> float:
    """Return |w - w+| / gamma of an exact proximal step, gamma = 1/(2 L)."""
    gamma = 1 / (2 * risk.facts.smoothness)
    step = prox_step(space, NO_REGULARIZER)
    return float(np.linalg.norm(w - step(w - gamma * risk.gradient(w), gamma))) / gamma


@lru_cache(maxsize=1)
def _fresh(p: int) -> EmpiricalRisk:
    return EmpiricalRisk(*make(_FRESH, p, 7), SigmoidLoss())


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    for run in range(runs(quick)):
        risk, space, epsilon = problem(cell, run)
        plan: RiskMechanism = RISK_MECHANISMS[cell.curve].plan(
            risk.facts, space, epsilon=epsilon, delta=DELTA
        )
        w = plan.release(risk, NoiseSource(insecure_seed=run)).point
        if cell.panel == POPULATION:
            norm = float(np.linalg.norm(_fresh(risk.facts.dimension).gradient(w)))
            yield Point(run, cell.level, GRADIENT, norm)
            continue
        yield Point(run, cell.level, GAP, max(frank_wolfe_gap(risk, space, w), 0.0))
        yield Point(run, cell.level, NORM, projected_gradient(risk, space, w))
        yield Point(run, cell.level, START, frank_wolfe_gap(risk, space, default_start(space)))


def draw(frame: pd.DataFrame) -> Figure:
    specifications = (
        (RECORDS, GAP, "Gap over an l1 ball", "n"),
        (BUDGETS, GAP, "Gap over an l1 ball", "ε"),
        (RECORDS, NORM, "Projected gradient over an l1 ball", "n"),
        (FEATURES, GAP, "Gap over an l1 ball", "p"),
    )
    panels = []
    for panel, measure, title, axis in specifications:
        here = frame[frame["panel"] == panel]
        curves = [Curve(m, colour(m), averaged(here[here["curve"] == m], measure)) for m in METHODS]
        panels.append(Panel(title, axis, measure, curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    parts = [
        pivot(frame[frame["panel"].isin(panels)], (GAP, NORM, GRADIENT), heading)
        for panels, heading in (
            ((RECORDS, POPULATION), "n = {:,.0f}"),
            ((BUDGETS,), "ε = {:g}"),
            ((FEATURES,), "p = {:g}"),
        )
    ]
    parts.append(pivot(frame[frame["panel"].isin(SETS)], (GAP, START), f"p = {_FEW}"))
    return pd.concat(parts).fillna("")


def _power(frame: pd.DataFrame, panel: str, curve: str, measure: str) -> Power:
    here = frame[(frame["panel"] == panel) & (frame["curve"] == curve) & (frame["measure"] == measure)]
    return power_law(here)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for theorem in THEOREMS:
        for panel, what in ((RECORDS, "n"), (BUDGETS, "ε")):
            power = _power(frame, panel, theorem.method, theorem.measure)
            found.append(
                Verdict(
                    f"Theorem {theorem.number}, {theorem.method}: {theorem.measure} falls at least like "
                    f"{what} to the power {theorem.power:g}",
                    power.at_most(theorem.power),
                    f"Measured power: {power}.",
                )
            )
    population = _power(frame, POPULATION, "dp-pgd", GRADIENT)
    found.append(
        Verdict(
            "Theorem 3, dp-pgd: the gradient of the population risk falls at least like n to the power -0.5",
            population.at_most(-0.5),
            f"Measured power: {population}, on {_FRESH:,} fresh records.",
        )
    )
    return [*found, *_against_features(frame), *_over_sets(frame)]


def _against_features(frame: pd.DataFrame) -> list[Verdict]:
    """Compare growth with p: Theorem 2 has a fourth root, Theorem 6 a logarithm."""
    found = []
    for number, method, measure, bound in ((2, "dp-pgd", NORM, 0.25), (6, "dp-fw-l1", GAP, 0.1)):
        power = _power(frame, FEATURES, method, measure)
        here = frame[(frame["panel"] == FEATURES) & (frame["curve"] == method)]
        gaps = here.groupby(["measure", "level"])["value"].mean()
        better, of = int((gaps[GAP] < gaps[START]).sum()), len(gaps[GAP])
        what = "like the fourth root of p" if number == 2 else "logarithmically with p, a power below 0.1"
        found.append(
            Verdict(
                f"Theorem {number}, {method}: {measure} grows at most {what}",
                earned(power.grows_at_most(bound), better, of),
                f"Measured power: {power}; a smaller gap than at the start at {better} of {of} values of p.",
            )
        )
    return found


def _over_sets(frame: pd.DataFrame) -> list[Verdict]:
    """Judge each set: the gap has to be below half of that at the start, where a constant model stays."""
    found = []
    for name in SETS:
        here = frame[frame["panel"] == name].groupby(["curve", "measure"])["value"].mean()
        ratios = {m: here[m, GAP] / here[m, START] for m in METHODS if (m, GAP) in here.index}
        words = ", ".join(f"{m} {ratio:.2f}" for m, ratio in ratios.items())
        found.append(
            Verdict(
                f"Over the {name}: private steps leave less than half of the Frank-Wolfe gap of the start",
                held(sum(ratio < 0.5 for ratio in ratios.values()), len(ratios)),
                f"Gap over that of the start: {words}.",
            )
        )
    return found


def setting(quick: bool) -> str:
    return (
        "The sigmoid loss, falling with the margin; features of size 1/√p, so that rows have norm 1; labels "
        f"drawn from a logistic model of {_RELEVANT} features; sets with the true weights on their boundary. "
        f"n from {sizes(quick)[0]:,} to {sizes(quick)[-1]:,}, ε from {_EPSILONS[0]:g} to {_EPSILONS[-1]:g}, "
        f"p from {_DIMENSIONS[0]} to {_DIMENSIONS[-1]} over an l1 ball, otherwise n = {_MIDDLE:,}, "
        f"ε = {EPSILON:g}, p = {_FEATURES}; five sets at p = {_FEW}. δ = {DELTA:g}; neighbours replace one "
        f"record, n is public; {runs(quick)} runs, new records for each. Mechanisms run with sound noise and "
        "privopt's defaults, without a penalty. Gap and projected gradient (γ = 1/(2L)) are exact functions "
        "of the records. Powers are fitted by least squares to all runs, with 95% intervals; the bounds are "
        "upper bounds, so that a steeper fall agrees. Theorem 1 is about privacy: see the errata for its "
        "constant."
    )


FIGURE = Reproduction(
    name="wang-xu2019-table1",
    paper=PAPER,
    cite=CITE,
    figure="Table 1 and Theorems 1 to 6",
    shows=(
        "Bounds without pictures: the norm of the projected gradient (DP-PGD, DP-PMD) or the Frank-Wolfe gap "
        "(DP-FW-L2, DP-FW-L1) falls like 1 / √(n ε), and grows like the fourth root of p, the Gaussian "
        "width of the set, or the logarithm of p. The gradient of the population risk falls like √(p / n)."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Frank-Wolfe gap and projected gradient, mean and one standard deviation, logarithmic axes.",
    table=table,
    verdicts=verdicts,
)

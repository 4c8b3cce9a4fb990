"""Wang, Chen and Xu (2019), Theorems 5 and 6: population risk of regressions with non-convex losses.

Records come from a finite population. A sample of n records is a multinomial draw of the counts of its
distinct records, so that its cost does not grow with n, and the population risk is an exact sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr

from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import bound_power, earned, pivot, power_law
from privopt.experiments.reproduce.wang_chen_xu2019_risk import CITE, PAPER
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.nonconvex_peers import (
    PrintedFrankWolfeL1,
    PrintedFrankWolfeL2,
    printed_steps,
)
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.problems.convex.losses import BiweightLoss, Loss, ProbitSquaredLoss, SigmoidSquaredLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball

EXCESS, START, STEPS = "excess population risk", "excess population risk of zero weights", "steps"
DELTA, EPSILON = 1e-6, 1.0
_MIDDLE, _FEATURES = 30_000, 6
_EPSILONS, _DIMENSIONS = (0.3, 1.0, 3.0), {5: (3, 6, 12), 6: (12, 48, 192)}
_ROWS = 4_096  # the most distinct rows of a population
_ETA = 0.05  # the failure probability of Theorem 6
_REACH = 3.2  # c of the biweight loss, larger than all residuals: its slope is positive up to c
_ERRORS = (-1.0, -0.2, 0.2, 1.0)
LOSSES: dict[str, Loss] = {
    "sigmoid link": SigmoidSquaredLoss(),
    "probit link": ProbitSquaredLoss(),
    "biweight": BiweightLoss(_REACH),
}
_LINKS: dict[str, Callable[[Vector], Vector]] = {"sigmoid link": expit, "probit link": ndtr}
DEFAULT, PRINTED = "privopt's steps", "the paper's steps"


@dataclass(frozen=True)
class Theorem:
    """A bound on the population risk, over a ball."""

    number: int
    norm: str

    def bound(self, n: Vector, d: Vector) -> Vector:
        """Return the bound at epsilon 1, without its constants."""
        growth = np.sqrt(d) if self.number == 5 else np.log(n * d / _ETA)
        return np.asarray(np.sqrt(growth / n))


THEOREMS = (Theorem(5, "l2"), Theorem(6, "l1"))


@dataclass(frozen=True, eq=False)
class Population:
    """Distinct records, their probabilities, and the weights that the labels come from."""

    X: Vector
    y: Vector
    chances: Vector
    weights: Vector
    loss: Loss

    def sample(self, n: int, norm: str, seed: int) -> EmpiricalRisk:
        """Return the risk of n records drawn from the population."""
        counts = np.random.default_rng([n, seed]).multinomial(n, self.chances)
        kept = counts > 0
        rows: RowNorm = "l2" if norm == "l2" else "linf"
        return EmpiricalRisk(
            self.X[kept], self.y[kept], self.loss, row_norm=1 + 1e-12, norm=rows, counts=counts[kept]
        )

    def value(self, w: Vector) -> float:
        """Return the population risk of w."""
        return float(self.chances @ self.loss.value(self.X @ w, self.y))


@lru_cache(maxsize=8)
def population(loss: str, norm: str, d: int) -> Population:
    """Return rows x of d signs in the unit ball of the dual norm, and labels by w* in the unit ball.

    The rows are all rows of signs, or random ones if there are too many. With a link s labels are 1 with
    probability s(<x, w*>); for the biweight loss they are <x, w*> plus a symmetric error. In either case w*
    minimises the population risk.
    """
    if 2**d <= _ROWS:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    else:
        signs = np.random.default_rng(d).choice([-1.0, 1.0], size=(_ROWS, d))
    X = signs / math.sqrt(d) if norm == "l2" else signs
    weights = np.zeros(d)
    weights[:3] = (0.8, -0.48, 0.36) if norm == "l2" else (0.5, -0.3, 0.2)
    z = X @ weights
    if loss == "biweight":
        y, share = z[:, None] + np.array(_ERRORS), np.full((len(z), len(_ERRORS)), 1 / len(_ERRORS))
    else:
        right = _LINKS[loss](z)
        y, share = np.tile([0.0, 1.0], (len(z), 1)), np.column_stack([1 - right, right])
    X = np.repeat(X, y.shape[1], axis=0)
    return Population(X, y.ravel(), share.ravel() / len(z), weights, LOSSES[loss])


def _panel(theorem: Theorem, loss: str, of: str) -> str:
    return f"Theorem {theorem.number}, {loss}, against {of}"


def sizes(quick: bool) -> tuple[int, ...]:
    return (1_000, 10_000, 100_000, 1_000_000)


def runs(quick: bool) -> int:
    return 6 if quick else 10


def cells(quick: bool) -> list[Cell]:
    found = []
    for theorem, loss in itertools.product(THEOREMS, LOSSES):
        for curve in (DEFAULT, PRINTED):
            most = 100_000 if quick and curve == PRINTED else math.inf  # the paper's steps grow like n
            found += [Cell(_panel(theorem, loss, "n"), curve, n) for n in sizes(quick) if n <= most]
            found += [Cell(_panel(theorem, loss, "ε"), curve, e) for e in _EPSILONS]
            found += [Cell(_panel(theorem, loss, "d"), curve, d) for d in _DIMENSIONS[theorem.number]]
    return found


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    theorem, loss, of = _parsed(cell.panel)
    n = int(cell.level) if of == "n" else _MIDDLE
    d = int(cell.level) if of == "d" else _FEATURES
    people = population(loss, theorem.norm, d)
    least = people.value(people.weights)
    for run in range(runs(quick)):
        risk = people.sample(n, theorem.norm, run)
        plan = _plan(theorem, cell.curve, risk.facts, cell.level if of == "ε" else EPSILON)
        w = plan.release(risk, NoiseSource(insecure_seed=run)).point
        yield Point(run, cell.level, EXCESS, people.value(w) - least)
        yield Point(run, cell.level, START, people.value(np.zeros(d)) - least)
        yield Point(run, cell.level, STEPS, float(plan.schedule["steps"]))


def _parsed(panel: str) -> tuple[Theorem, str, str]:
    """Return theorem, loss and varied quantity of a panel."""
    for theorem, loss, of in itertools.product(THEOREMS, LOSSES, ("n", "ε", "d")):
        if panel == _panel(theorem, loss, of):
            return theorem, loss, of
    raise KeyError(panel)


def _plan(theorem: Theorem, curve: str, facts: RiskFacts, epsilon: float) -> RiskMechanism:
    """Plan with privopt's defaults, or with the steps of the theorem and a random iterate."""
    vertices = theorem.number == 6
    ball = (L1Ball if vertices else L2Ball)(facts.dimension, 1.0)
    if curve == DEFAULT:
        kind = DPFrankWolfeL1 if vertices else DPFrankWolfeL2
        return kind.plan(facts, ball, epsilon=epsilon, delta=DELTA)
    printed = PrintedFrankWolfeL1 if vertices else PrintedFrankWolfeL2
    steps = printed_steps(facts, epsilon, DELTA, vertices)
    return printed.plan(facts, ball, epsilon=epsilon, delta=DELTA, steps=steps, output=Output.RANDOM)


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for theorem, loss in itertools.product(THEOREMS, LOSSES):
        here = frame[frame["panel"] == _panel(theorem, loss, "n")]
        ours = here[here["curve"] == DEFAULT]
        curves = [
            Curve(DEFAULT, colour("dp-fw-l2"), averaged(ours, EXCESS)),
            Curve(PRINTED, colour("dp-pgd"), averaged(here[here["curve"] == PRINTED], EXCESS)),
            Curve("zero weights", colour("not private"), averaged(ours, START), dashes="dashed"),
        ]
        title = f"Theorem {theorem.number}, {loss}"
        panels.append(Panel(title, "n", "excess population risk", curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    parts = []
    for of, heading in (("n", "n = {:,.0f}"), ("ε", "ε = {:g}"), ("d", "d = {:g}")):
        here = frame[frame["panel"].str.endswith(f"against {of}")]
        parts.append(pivot(here, (EXCESS, START, STEPS) if of == "n" else (EXCESS, START), heading))
    return pd.concat(parts).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for theorem, loss in itertools.product(THEOREMS, LOSSES):
        for of, curve in (("n", PRINTED), ("ε", PRINTED), ("d", PRINTED), ("n", DEFAULT)):
            found.append(_rate(frame, theorem, loss, of, curve))
        found.append(_faster(frame, theorem, loss))
    return found


def _rate(frame: pd.DataFrame, theorem: Theorem, loss: str, of: str, curve: str) -> Verdict:
    """Judge a power by the bound's power at the same levels; levels count where zero weights are worse."""
    here = frame[(frame["panel"] == _panel(theorem, loss, of)) & (frame["curve"] == curve)]
    excess = here[here["measure"] == EXCESS]
    power, bound = power_law(excess), _bound_power(theorem, of, excess)
    better, count = _better(here)
    grows = of == "d"
    agreement = power.grows_at_most(bound) if grows else power.at_most(bound)
    claim = f"Theorem {theorem.number}, {loss}, {curve}"
    verdict = Verdict(
        f"{claim}: the excess population risk "
        f"{'grows at most' if grows else 'falls at least'} like {of} to the power {bound:.2f}",
        earned(agreement, better, count),
        f"Measured power: {power}; better than zero weights at {better} of {count} values of {of}.",
    )
    return verdict if curve == PRINTED else replace(verdict, agreement=verdict.agreement.beside)


def _bound_power(theorem: Theorem, of: str, excess: pd.DataFrame) -> float:
    if of == "ε":
        return -0.5
    at = excess["at"].to_numpy(dtype=float)
    features, records = np.full_like(at, _FEATURES), np.full_like(at, _MIDDLE)
    return bound_power(
        excess, lambda x: theorem.bound(x, features) if of == "n" else theorem.bound(records, x)
    )


def _better(here: pd.DataFrame) -> tuple[int, int]:
    """Count levels where the mean excess is below the excess of zero weights."""
    risk = here.groupby(["measure", "level"])["value"].mean()
    return int((risk[EXCESS] < risk[START]).sum()), len(risk[EXCESS])


def _faster(frame: pd.DataFrame, theorem: Theorem, loss: str) -> Verdict:
    """Count where privopt's steps have less risk than the paper's steps and than zero weights."""
    here = frame[frame["panel"] == _panel(theorem, loss, "n")]
    risk = here.groupby(["measure", "curve", "level"])["value"].mean()
    ours, printed = risk[EXCESS, DEFAULT], risk[EXCESS, PRINTED]
    start = risk[START, DEFAULT]
    ahead = sum(float(ours[n]) < min(float(printed[n]), float(start[n])) for n in printed.index)
    last = printed.index[-1]
    return Verdict(
        f"Theorem {theorem.number}, {loss}: privopt's default steps have less risk than the paper's",
        held(ahead, len(printed)).beside,
        f"At {ahead} of {len(printed)} values of n; at n = {last:,.0f} {ours[last] / printed[last]:.2g} "
        "times the risk.",
    )


def setting(quick: bool) -> str:
    few, many = (_DIMENSIONS[theorem.number] for theorem in THEOREMS)
    return (
        f"A finite population of all rows of d = {_FEATURES} signs (of {_ROWS:,} where there are more), "
        "scaled to the unit l2 ball (Theorem 5, DP-FW-L2 over the unit l2 ball) or not (Theorem 6, DP-FW-L1 "
        "over the unit l1 ball). Labels under a link are drawn from the model. Under the biweight loss they "
        f"are <x, w*> plus an error of {', '.join(f'{e:+g}' for e in _ERRORS)}; with c = {_REACH:g} the "
        "slope of the loss is positive for all residuals, as the paper assumes. A sample of n records is a "
        "multinomial draw of counts, and the population risk is an exact sum. n from "
        f"{sizes(quick)[0]:,} to {sizes(quick)[-1]:,} at ε = {EPSILON:g}; ε from {_EPSILONS[0]:g} to "
        f"{_EPSILONS[-1]:g}, and d from {few[0]} to {few[-1]} (Theorem 5) or {many[0]} to {many[-1]} "
        f"(Theorem 6), at n = {_MIDDLE:,}; δ = {DELTA:g}; neighbours replace one record, n is public; "
        f"{runs(quick)} runs with new records, sound noise. The paper's steps are T = n ε / √(d ln(1/δ)) and "
        f"γ = 1/√T, with constants of 1 (Theorem 6: n ε / (√ln(1/δ) ln(nd/η)), η = {_ETA:g}, γ = √(2/T)), "
        "and a random iterate. The bounds are upper bounds: a risk far below its bound may grow faster with "
        "d than the bound."
    )


FIGURE = Reproduction(
    name="wang-chen-xu2019-population",
    paper=PAPER,
    cite=CITE,
    figure="Theorems 5 and 6 (population risk)",
    shows=(
        "Bounds without pictures. For squared loss with a sigmoid or probit link and for robust regression "
        "by the biweight, Frank-Wolfe over an l2 ball has excess population risk (d ln(1/δ))^(1/4) / √(n ε), "
        "over an l1 ball √ln(nd/η) in place of the fourth root of d."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Excess population risk against n, mean and one standard deviation, on logarithmic axes.",
    table=table,
    verdicts=verdicts,
)

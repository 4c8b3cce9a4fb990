"""Wang, Xiao, Devadas and Xu (2020), Theorems 2 and 8: population risk of two mechanisms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reason, Reproduction, Verdict
from privopt.experiments.reproduce.tables import Power, earned, pivot, power_law
from privopt.experiments.reproduce.wang_xiao2020 import CITE, PAPER
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.descent import Descent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts

Floats = NDArray[np.float64]

EXCESS, START = "excess population risk", "excess population risk of zero weights"
RADIUS, SUBSETS, STEPS = "noise / signal", "subsets", "steps"
CENTRE, PRINTED, BALANCED = "sample-aggregate", "Algorithm 4, printed scale", "Algorithm 4, balanced scale"
DELTA, FAILURE = 1e-6, 0.05
_LAST = 8  # features with nonzero weight in Theorem 8, of variances 1, 1/4, 1/9, ...


@dataclass(frozen=True)
class Scan:
    """A quantity of which a theorem's bound contains a power.

    Attributes:
        of: its name.
        levels: its values in quick runs.
        bound: its power in the bound.
        more: its further values in full runs.
    """

    of: str
    levels: tuple[float, ...]
    bound: float
    more: tuple[float, ...] = ()

    @property
    def falls(self) -> bool:
        return self.of == "n"


@dataclass(frozen=True)
class Theorem:
    """A theorem: its mechanisms, and where it is measured.

    Attributes:
        number: its number in the paper.
        curves: the mechanisms.
        base: the values of n, epsilon, d and the least risk L(w*), where they are not varied.
        scans: the quantities that are varied, one at a time.
    """

    number: int
    curves: tuple[str, ...]
    base: Mapping[str, float]
    scans: tuple[Scan, ...]

    def panel(self, scan: Scan) -> str:
        return f"Theorem {self.number}, against {scan.of}"

    def at(self, scan: Scan, level: float) -> dict[str, float]:
        return {**self.base, scan.of: level}


SILENT = "Theorem 2, labels without noise"
THEOREMS = (
    Theorem(
        8,
        (PRINTED, BALANCED),
        {"n": 160_000, "ε": 1.0, "d": 8, "L(w*)": 0.2},
        (
            Scan("n", (40_000, 160_000, 640_000, 2_560_000), -1 / 3),
            Scan("ε", (0.5, 1.0, 2.0), -2 / 3),
            Scan("d", (8, 16, 32), 2 / 3),
        ),
    ),
    Theorem(
        2,
        (CENTRE,),
        {"n": 250_000, "ε": 2.0, "d": 2, "L(w*)": 0.003},
        (
            Scan("n", (62_500, 250_000, 1_000_000), -1, (4_000_000,)),
            Scan("ε", (1.0, 2.0, 4.0), -4),
            Scan("d", (1, 2, 4), 3),
            Scan("L(w*)", (0.0003, 0.003, 0.03), 1),
        ),
    ),
)
_BALL = 2.0  # R; |w*| <= 1


def runs(quick: bool, theorem: Theorem) -> int:
    return (6 if quick else 12) * (2 if theorem.number == 2 else 1)


def cells(quick: bool) -> list[Cell]:
    found = [
        Cell(theorem.panel(scan), curve, level)
        for theorem in THEOREMS
        for scan in theorem.scans
        for curve in theorem.curves
        for level in (scan.levels if quick else scan.levels + scan.more)
    ]
    return [*found, *(Cell(SILENT, CENTRE, n) for n in (100_000, 200_000))]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    theorem, at = _parsed(cell)
    n, d, variance = int(at["n"]), int(at["d"]), 2 * at["L(w*)"]
    plan = _plan(theorem, cell.curve, n, d, at["ε"], variance)
    spectrum, weights = problem(theorem, d)
    for run in range(runs(quick, theorem)):
        X, y = records(n, spectrum, weights, variance, run)
        noise = NoiseSource(insecure_seed=run)
        if isinstance(plan, SampleAggregate):
            w = plan.release(X, y, least_squares, noise).point
        else:
            w = plan.release(UnclippedRisk(X, y, PLAIN_SQUARES), noise).point
        yield Point(run, cell.level, EXCESS, float(spectrum @ (w - weights) ** 2) / 2)
    yield Point(0, cell.level, START, float(spectrum @ weights**2) / 2)
    if isinstance(plan, SampleAggregate):
        yield Point(0, cell.level, SUBSETS, plan.subsets)
        yield Point(0, cell.level, RADIUS, plan.noise_to_signal.ratio)
    else:
        yield Point(0, cell.level, STEPS, plan.steps)


def _parsed(cell: Cell) -> tuple[Theorem, dict[str, float]]:
    """Return the theorem of a cell, and n, epsilon, d and L(w*)."""
    for theorem in THEOREMS:
        for scan in theorem.scans:
            if cell.panel == theorem.panel(scan):
                return theorem, theorem.at(scan, cell.level)
    return THEOREMS[1], {**THEOREMS[1].base, "n": cell.level, "L(w*)": 0.0}


def problem(theorem: Theorem, d: int) -> tuple[Floats, Floats]:
    """Return the variances of the features and w*, |w*| = 1.

    Theorem 2: equal variances, so that the risk is strongly convex. Theorem 8: 1/j^2 for the first 8
    features, which have weight, and 1/64 for all others, so that T < 64 steps do not profit from strong
    convexity.
    """
    if theorem.number == 2:
        return np.ones(d), np.eye(d)[0]
    spectrum = 1.0 / np.minimum(np.arange(1, d + 1), _LAST) ** 2.0
    weights = np.where(np.arange(d) < _LAST, 1 / math.sqrt(_LAST), 0.0)
    return spectrum, weights


def records(n: int, spectrum: Floats, weights: Floats, variance: float, run: int) -> tuple[Floats, Floats]:
    """Return normal features, and labels <x, w*> plus centred log-normal noise of this variance."""
    rng = np.random.default_rng([n, len(weights), run])
    X = rng.normal(size=(n, len(weights))) * np.sqrt(spectrum)
    noise = (rng.lognormal(size=n) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1))
    return X, X @ weights + math.sqrt(variance) * noise


def least_squares(X: Floats, y: Floats) -> Floats:
    """Return the minimiser of the empirical risk of a subset."""
    return np.asarray(np.linalg.solve(X.T @ X, X.T @ y))


def _plan(
    theorem: Theorem, curve: str, n: int, d: int, epsilon: float, variance: float
) -> SampleAggregate | RobustGradientDescent:
    if theorem.number == 2:
        return centre_plan(n, d, epsilon)
    moment = 1.0 + variance  # guessed second moment of x_1 (<x, w - w*> - noise), |w - w*| about 1
    soft = SoftTruncation.as_printed(n, moment, FAILURE) if curve == PRINTED else None
    return RobustGradientDescent.plan(
        unclipped_facts(n, d, PLAIN_SQUARES),
        L2Ball(d, _BALL),
        moment=moment,
        steps=printed_steps(n, d, epsilon),
        descent=Descent(smoothness=1.0, distance=1.0, failure=FAILURE),
        truncation=soft,
        epsilon=epsilon,
        delta=DELTA,
    )


def printed_steps(n: int, d: int, epsilon: float) -> int:
    """Return T of Theorem 8, (sqrt(n epsilon') / d)^(2/3), at |w0 - w*| = 1 and constant 1.

    epsilon' is (sqrt(log(1 / delta) + epsilon) - sqrt(log(1 / delta)))^2, as in Algorithm 4.
    """
    log = math.log(1 / DELTA)
    tilde = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    return max(1, round(float((math.sqrt(n * tilde) / d) ** (2 / 3))))


def centre_plan(n: int, d: int, epsilon: float) -> SampleAggregate:
    """Plan with about the least number m of subsets at which e^(-B m / 2) is at most 1/n, B = ``decay``.

    This is the weight of the diameter of the ball in the scale of the noise.
    """
    subsets = math.ceil((2 * d / epsilon) ** 2) + 1
    while True:
        try:
            plan = SampleAggregate.plan(n, d, subsets=subsets, radius=_BALL, epsilon=epsilon, delta=DELTA)
        except PrivacyParameterError:
            subsets = math.ceil(1.2 * subsets)
            continue
        enough = math.ceil(2 * math.log(n) / plan.decay)
        if subsets >= enough:
            return plan
        subsets = enough


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    looks = {CENTRE: "sample-aggregate", PRINTED: "dp-gd", BALANCED: "robust-gd"}
    for theorem in THEOREMS:
        for scan in theorem.scans:
            here = frame[frame["panel"] == theorem.panel(scan)]
            curves = [
                Curve(name, colour(looks[name]), averaged(here[here["curve"] == name], EXCESS))
                for name in theorem.curves
            ]
            start = averaged(here[here["curve"] == theorem.curves[0]], START)
            curves.append(Curve("zero weights", colour("not private"), start, "dashed"))
            panels.append(Panel(theorem.panel(scan), scan.of, EXCESS, curves, "log", "log"))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    measures = (EXCESS, START, STEPS, SUBSETS, RADIUS)
    headings = {"n": "n = {:,.0f}", "ε": "ε = {:g}", "d": "d = {:g}", "L(w*)": "L(w*) = {:g}"}
    parts = []
    for of, heading in headings.items():
        panels = [t.panel(s) for t in THEOREMS for s in t.scans if s.of == of]
        panels += [SILENT] if of == "n" else []
        parts.append(pivot(frame[frame["panel"].isin(panels)], measures, heading))
    return pd.concat(parts).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = [
        _rate(frame, theorem, scan, curve)
        for theorem in sorted(THEOREMS, key=lambda t: t.number)
        for curve in theorem.curves
        for scan in theorem.scans
    ]
    return [*found, _exact(frame)]


def _rate(frame: pd.DataFrame, theorem: Theorem, scan: Scan, curve: str) -> Verdict:
    """Judge the measured power by that of the bound; the mechanism must be better than zero weights, too.

    For 1/epsilon, d and L(w*) some growth must be measured: otherwise an upper bound on it says nothing.
    """
    here = frame[(frame["panel"] == theorem.panel(scan)) & (frame["curve"] == curve)]
    power: Power = power_law(here[here["measure"] == EXCESS])
    mean = here.groupby(["measure", "level"])["value"].mean()
    better, of = int((mean[EXCESS] < mean[START]).sum()), len(mean[EXCESS])
    if scan.falls:
        agreement, how = power.at_most(scan.bound), f"falls at least like n to the power {scan.bound:.2f}"
    else:
        name, bound = scan.of, scan.bound
        if scan.of == "ε":
            name, bound, power = "1 / ε", -bound, power.inverted
        agreement = power.costs_at_most(bound)
        how = f"grows with {name}, and at most to the power {bound:.2f}"
    agreement = earned(agreement, better, of)
    return Verdict(
        f"Theorem {theorem.number}, {curve}: the excess population risk {how}",
        agreement.beside if curve == BALANCED else agreement,
        f"Measured power: {power}; better than zero weights at {better} of {of} values of {scan.of}.",
    )


def _exact(frame: pd.DataFrame) -> Verdict:
    """Judge the remark that labels without noise are fitted exactly."""
    here = frame[(frame["panel"] == SILENT) & (frame["measure"] == EXCESS)]
    mean, exact = here.groupby("level")["value"].mean(), bool((here["value"] == 0).all())
    words = ", ".join(f"{v:.2g} at n = {n:,.0f}" for n, v in mean.items())
    return Verdict(
        "Theorem 2, remark: with L(w*) = 0 the excess population risk is 0",
        Agreement.YES if exact else Agreement.NO,
        f"Mean excess risk: {words}; at n = {THEOREMS[1].base['n']:,.0f} with L(w*) = "
        f"{THEOREMS[1].base['L(w*)']:g} it is {_usual(frame):.2g}.",
        Reason(
            "a smooth scale of noise that is 0 on one data set is 0 on all; Theorem 1 keeps the term that "
            "the remark drops (errata, 14)",
            derived=True,
        ),
    )


def _usual(frame: pd.DataFrame) -> float:
    """Return the mean excess risk at the base values of Theorem 2."""
    scan = THEOREMS[1].scans[0]
    here = frame[(frame["panel"] == THEOREMS[1].panel(scan)) & (frame["measure"] == EXCESS)]
    return float(here[here["level"] == THEOREMS[1].base["n"]]["value"].mean())


def setting(quick: bool) -> str:
    eight, two = (theorem.base for theorem in THEOREMS)
    return (
        "Least squares with normal features and centred log-normal noise of the labels, |w*| = 1, so that "
        "the excess population risk is exact. Theorem 2: features of variance 1, sample-aggregate over "
        f"disjoint subsets in the ball of radius {_BALL:g}, with sound noise, and the least number of "
        "subsets at which answers across the ball count for 1/n or less (of order d / ε, where the "
        f"theorem requires d² / ε²); n = {two['n']:,.0f}, ε = {two['ε']:g}, d = {two['d']:g}, L(w*) = "
        f"{two['L(w*)']:g} where they are not varied. Theorem 8: variances 1, 1/4, ..., 1/{_LAST**2}, the "
        f"last for all features beyond {_LAST}, which have weight 0; Algorithm 4 with sound noise over the "
        f"same ball, and T = (√(n ε') / d)^(2/3) steps with constant 1 and its ε'; n = {eight['n']:,.0f}, ε "
        f"= {eight['ε']:g}, d = {eight['d']:g}, L(w*) = {eight['L(w*)']:g}. δ = {DELTA:g}; neighbours "
        f"replace one record, n is public; {runs(quick, THEOREMS[0])} runs, {runs(quick, THEOREMS[1])} of "
        "Theorem 2, new records for each."
    )


FIGURE = Reproduction(
    name="wang-xiao2020-risk",
    paper=PAPER,
    cite=CITE,
    figure="Theorems 2 and 8 (population risk)",
    shows=(
        "Bounds without pictures. Sample and aggregate has excess population risk (β / α)² d³ L(w*) / (n ε⁴) "
        "for strongly convex risks, Algorithm 4 d^(2/3) / (n ε²)^(1/3) for convex ones, up to logarithms."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Excess population risk, mean and one standard deviation over runs, on logarithmic axes.",
    table=table,
    verdicts=verdicts,
)

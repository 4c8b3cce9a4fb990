"""Gradient descent on heavy-tailed records by Algorithms 3 and 4 of Wang, Xiao, Devadas and Xu (2020)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Verdict, held
from privopt.experiments.reproduce.tables import bound_power, earned, power_law
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, shade
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.descent import Descent, RobustDescent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_stochastic import RobustStochasticGradient
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.noise import Ints, NoiseSource, Size
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk
from privopt.problems.datasets.adult import load_adult
from privopt.problems.datasets.heavy_tails import make_loglogistic_signs, make_lognormal_line

CITE = "Wang, Xiao, Devadas and Xu (2020)"
PAPER = (
    "Wang, Xiao, Devadas and Xu, On Differentially Private Stochastic Convex Optimization with Heavy-tailed "
    "Data, ICML 2020"
)
LINE, SIGNS = "ridge, log-normal noise", "logistic, log-logistic noise"
ADULT_LINE, ADULT_SIGNS = "Adult, ridge", "Adult, logistic"
_BATCHED = ", batches of 1000"
MEASURES = {
    LINE: "|w - w*|",
    SIGNS: "angle between w and w*",
    ADULT_LINE: "test risk",
    ADULT_SIGNS: "test risk",
}

PRINTED, BALANCED = "Algorithm 4, printed scale", "Algorithm 4, balanced scale"
GOOD, WIDE = "Algorithm 3, good κ", "Algorithm 3, κ x 10"
RGD, BATCHES, RGD_BATCHES = "RGD, not private", "Algorithm 4, batches of 1000", "RGD, batches of 1000"
UNITS = "clipped-newton (privopt)"
CONSTANT = "best constant, not private"
FULL, STOCHASTIC = (PRINTED, BALANCED, GOOD, WIDE, RGD), (BATCHES, RGD_BATCHES)

Dashes = Literal["", "dashed", "dotted"]
LOOK: Mapping[str, tuple[str, Dashes]] = {
    PRINTED: ("robust-gd", "dashed"),
    BALANCED: ("robust-gd", ""),
    BATCHES: ("robust-gd", "dotted"),
    GOOD: ("trimmed-gd", ""),
    WIDE: ("trimmed-gd", "dashed"),
    RGD: ("not private", ""),
    RGD_BATCHES: ("not private", "dotted"),
    UNITS: ("clipped-newton", ""),
    CONSTANT: ("not private", "dashed"),
}
_FAILURE, _MOST_STEPS, _TRIMMED_STEPS, _BATCH_STEPS = 0.05, 20, 5, 50
_NUMERIC = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
# Assumed public knowledge of these columns: a typical large value.
_SIZES = np.array([100.0, 16.0, 10_000.0, 2_000.0, 100.0])
ADULT_TRAIN = 28_000
SHOWN = 1.0  # epsilon of the figures against iterations


def runs(quick: bool) -> int:
    """Return the number of runs."""
    return 5 if quick else 15


def epsilons(quick: bool) -> tuple[float, ...]:
    """Return the values of epsilon of the figures against iterations."""
    return (SHOWN,) if quick else (0.1, 0.5, SHOWN)


@dataclass(frozen=True)
class Public:
    """Public guesses for a task: moment v, half of b - a, smoothness, and distance of the minimum from 0."""

    moment: float
    reach: float
    smoothness: float
    size: float


PUBLIC = {
    LINE: Public(10.0, 2.0, 1.0, 1.0),
    SIGNS: Public(1.0, 0.5, 0.25, 5.0),
    ADULT_LINE: Public(1.0, 0.5, 2.0, 2.0),
    ADULT_SIGNS: Public(0.25, 0.25, 0.5, 5.0),
}


class TracedRisk(UnclippedRisk):
    """A risk that records the points of its gradient evaluations: the iterates of a release."""

    def __init__(self, X: Any, y: ArrayLike, loss: Any) -> None:
        super().__init__(X, y, loss)
        self.visited: list[Vector] = []

    def compile(self, *, batches: bool = False, exact: bool = False) -> None:
        super().compile(batches=batches)
        self.visited.clear()  # evaluations before the first step are no iterates

    def soft_gradient(self, w: ArrayLike, scale: float, beta: float) -> Vector:
        self._note(w)
        return super().soft_gradient(w, scale, beta)

    def soft_gradient_sum(
        self, w: ArrayLike, records: NDArray[np.int64], scale: float, beta: float
    ) -> Vector:
        self._note(w)
        return super().soft_gradient_sum(w, records, scale, beta)

    def slopes(self, w: ArrayLike) -> Vector:
        self._note(w)
        return super().slopes(w)

    def _note(self, w: ArrayLike) -> None:
        self.visited.append(np.array(w, dtype=np.float64))


class Batches(NoiseSource):
    """A source of seeded batches without any noise. NOT private."""

    def discrete_gaussian(self, exponent: int, size: Size = 1) -> Ints:
        return np.zeros(size, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Task:
    """Records, the error of weights, and held-out records if there are any."""

    risk: TracedRisk
    error: Callable[[Vector], float]
    test_rows: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    test_labels: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def labels(self) -> Vector:
        return self.risk.y.astype(np.float64)


def task(name: str, n: int, d: int, run: int) -> Task:
    """Return new records for each run; for Adult, a new split into 28,000 and 2,000."""
    name = name.removesuffix(_BATCHED)
    if name in (ADULT_LINE, ADULT_SIGNS):
        return _adult(name, run)
    make = make_lognormal_line if name == LINE else make_loglogistic_signs
    X, y, w = make(n, d, seed=1000 * run + d)
    loss = PLAIN_SQUARES if name == LINE else LogisticLoss()

    def error(found: Vector) -> float:
        if name == LINE:
            return float(np.linalg.norm(found - w))
        return math.acos(float(np.clip(found @ w / max(float(np.linalg.norm(found)), 1e-300), -1, 1)))

    return Task(TracedRisk(X, y, loss), error)


@lru_cache(maxsize=1)
def _adult_records() -> tuple[Vector, Vector]:
    frame = load_adult("train")
    X = frame[_NUMERIC].to_numpy(dtype=float) / _SIZES
    return np.column_stack([X, np.ones(len(X))]), np.where(frame["income"] == ">50K", 1.0, -1.0)


def _adult(name: str, run: int) -> Task:
    X, y = _adult_records()
    order = np.random.default_rng(run).permutation(len(y))[: ADULT_TRAIN + 2000]
    train, rest = order[:ADULT_TRAIN], order[ADULT_TRAIN:]
    loss = PLAIN_SQUARES if name == ADULT_LINE else LogisticLoss()

    def error(found: Vector) -> float:
        return float(np.mean(loss.value(X[rest] @ found, y[rest])))

    return Task(TracedRisk(X[train], y[train], loss), error, X[rest], y[rest])


def plan_of(curve: str, name: str, facts: RiskFacts, epsilon: float) -> RobustDescent:
    """Plan a descent from the public facts of its task; delta = 1/n^2."""
    public, n = PUBLIC[name.removesuffix(_BATCHED)], facts.n_records
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": n**-2.0,
        "descent": Descent(public.smoothness, public.size, _FAILURE),
    }
    ball = L2Ball(facts.dimension, 2 * public.size)
    if curve in (GOOD, WIDE):
        reach = public.reach * (10 if curve == WIDE else 1)
        return TrimmedGradientDescent.plan(
            facts, ball, mean_range=(-reach, reach), steps=_TRIMMED_STEPS, **options
        )
    if curve in (BATCHES, RGD_BATCHES):
        return RobustStochasticGradient.plan(facts, ball, moment=public.moment, steps=_BATCH_STEPS, **options)
    soft = None if curve == BALANCED else SoftTruncation.as_printed(n, public.moment, _FAILURE)
    return RobustGradientDescent.plan(
        facts, ball, moment=public.moment, steps=_MOST_STEPS, truncation=soft, **options
    )


def weights(curve: str, name: str, one: Task, epsilon: float, run: int) -> Vector:
    """Return the released weights."""
    risk = one.risk
    if curve == UNITS:
        constant = name in (ADULT_LINE, ADULT_SIGNS)  # clipped-newton adds a constant itself
        X = risk.X[:, :-1] if constant else risk.X
        n, d = X.shape
        plan = ClippedNewton.plan(n, d, risk.facts.loss, epsilon=epsilon, delta=n**-2.0)
        point = plan.release(X, [one.labels], NoiseSource(insecure_seed=run))[0].point
        return point if constant else point[:d]
    if curve == CONSTANT:
        return best_constant(risk)
    descent = plan_of(curve, name, risk.facts, epsilon)
    if curve == RGD:
        return descent.without_noise(risk)
    if curve == RGD_BATCHES:
        return descent.release(risk, Batches(insecure_seed=run)).point
    return descent.release(risk, NoiseSource(insecure_seed=run)).point


def best_constant(risk: EmpiricalRisk) -> Vector:
    """Return the best weights on the training records that are 0 except for the last, constant feature."""
    w = np.zeros(risk.facts.dimension)

    def value(level: float) -> float:
        w[-1] = level
        return risk.value(w)

    w[-1] = float(minimize_scalar(value, bounds=(-10, 10), method="bounded").x)
    return w


def trajectory(curve: str, name: str, one: Task, epsilon: float, run: int) -> list[float]:
    """Return the errors at the start and after each step."""
    one.risk.visited.clear()
    last = weights(curve, name, one, epsilon, run)
    return [one.error(w) for w in [*one.risk.visited, last]]


def final(curve: str, name: str, one: Task, epsilon: float, run: int) -> float:
    """Return the error of the released weights."""
    return one.error(weights(curve, name, one, epsilon, run))


def measure_of(panel: str) -> str:
    return MEASURES[panel.removesuffix(_BATCHED)]


def trajectories(cell: Cell, n: int, d: int, epsilon: float, count: int) -> Iterator[Point]:
    """Yield errors by iteration; for methods without iterates the final error only, at position 0."""
    for run in range(count):
        one = task(cell.panel, n, d, run)
        if cell.curve in (UNITS, CONSTANT):
            yield Point(run, 0, measure_of(cell.panel), final(cell.curve, cell.panel, one, epsilon, run))
            continue
        for k, value in enumerate(trajectory(cell.curve, cell.panel, one, epsilon, run)):
            yield Point(run, k, measure_of(cell.panel), value)


def iteration_cells(panels: tuple[str, str], epsilons: tuple[float, ...]) -> list[Cell]:
    """Return a cell for every curve of the figures against iterations; ``level`` is epsilon."""
    kinds = [(p, c) for p in panels for c in (*FULL, UNITS)]
    kinds += [(p, CONSTANT) for p in panels if p in (ADULT_LINE, ADULT_SIGNS)]
    kinds += [(p + _BATCHED, c) for p in panels for c in STOCHASTIC]
    return [Cell(p, c, e) for p, c in kinds for e in epsilons]


def iteration_panels(frame: pd.DataFrame, panels: tuple[str, str], epsilon: float) -> list[Panel]:
    """Return separate panels for full batches and for minibatches."""
    found = []
    for panel in panels:
        units = frame[(frame["panel"] == panel) & (frame["curve"] == UNITS) & (frame["level"] == epsilon)]
        level = {UNITS: float(units["value"].mean())}
        constant = frame[(frame["panel"] == panel) & (frame["curve"] == CONSTANT)]
        level |= {CONSTANT: float(constant["value"].mean())} if len(constant) else {}
        for where, curves in ((panel, FULL), (panel + _BATCHED, STOCHASTIC)):
            here = frame[(frame["panel"] == where) & (frame["level"] == epsilon)]
            measure = measure_of(panel)
            drawn = [
                Curve(c, colour(LOOK[c][0]), averaged(here[here["curve"] == c], measure), LOOK[c][1], "band")
                for c in curves
            ]
            title = f"{where}, ε = {epsilon:g}"
            found.append(Panel(title, "iteration", measure, drawn, "linear", "log", level))
    return found


def last_errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the last iterate of each run."""
    keys = ["panel", "curve", "level"]
    return frame[frame["at"] == frame.groupby(keys)["at"].transform("max")]


def ends(frame: pd.DataFrame, panel: str, statistic: str = "mean") -> dict[str, pd.Series[float]]:
    """Return, by curve and level, the mean (or "std") of the last error over runs."""
    here = last_errors(frame)
    here = here[here["panel"] == panel]
    return {
        str(c): rows.groupby("level")["value"].agg(statistic) for c, rows in here.groupby("curve", sort=False)
    }


def iteration_verdicts(frame: pd.DataFrame, panels: tuple[str, ...]) -> list[Verdict]:
    """Check the paper's claims about Figures 1 and 2, and one of ours."""
    return [verdict for panel in panels for verdict in _panel_verdicts(frame, panel)]


def _panel_verdicts(frame: pd.DataFrame, panel: str) -> Iterator[Verdict]:
    mean, std = ends(frame, panel) | ends(frame, panel + _BATCHED), ends(frame, panel, "std")
    levels = mean[RGD].index
    for ours, against in ((PRINTED, RGD), (BALANCED, RGD), (BATCHES, RGD_BATCHES)):
        near = sum(_comparable(mean, panel, ours, against, float(e)) for e in levels)
        yield Verdict(
            f"{panel}: {ours} is comparable to {against}",
            held(int(near), len(levels)),
            f"Errors of the two: {_beside(mean, ours, against)}. {_NEAR[panel in (LINE, SIGNS)]} at {near} "
            f"of {len(levels)} values of ε.",
        )
    wild = sum(std[GOOD][e] > std[PRINTED][e] for e in levels)
    each = ", ".join(f"{std[GOOD][e]:.2g} against {std[PRINTED][e]:.2g} at ε = {e:g}" for e in levels)
    yield Verdict(
        f"{panel}: {GOOD} varies more than {PRINTED}",
        held(int(wild), len(levels)),
        f"Standard deviations at the end: {each}.",
    )
    ratios = mean[WIDE] / mean[GOOD]
    yield Verdict(
        f"{panel}: Algorithm 3 is sensitive to κ = b - a",
        held(int((ratios > 1.25).sum()), len(levels)),
        f"With [a, b] ten times as wide the error is {_each(ratios)} times as large.",
    )
    worse = mean[GOOD] / mean[PRINTED]
    yield Verdict(
        f"{panel}: Algorithm 3 does worse than Algorithm 4 (printed scale)",
        held(int((worse > 1).sum()), len(levels)),
        f"With a good guess at [a, b] and the exact smooth sensitivity its error is {_each(worse)} "
        "times that of Algorithm 4.",
    )
    best = pd.concat([mean[c] for c in (PRINTED, BALANCED, GOOD)], axis=1).min(axis=1)
    ahead = mean[UNITS] / best
    yield Verdict(
        f"{panel}: {UNITS}, without public guesses, is ahead of Algorithms 3 and 4",
        held(int((ahead < 1).sum()), len(levels)).beside,
        f"Its error is {_each(ahead)} times that of the best of them.",
    )


_NEAR = {
    True: "The first is at most 1.5 times the second",
    False: "The first gains at least two thirds of what the second gains on the best constant",
}


def _comparable(
    mean: dict[str, pd.Series[float]], panel: str, ours: str, against: str, epsilon: float
) -> bool:
    """Judge errors as comparable up to a factor of 1.5, and risks by their gains on the best constant.

    A gain is comparable if it is at least two thirds of the other.
    """
    value, goal = mean[ours][epsilon], mean[against][epsilon]
    if panel in (LINE, SIGNS):
        return bool(value <= 1.5 * goal)
    constant = mean[CONSTANT][epsilon]
    return bool(goal < constant and constant - value >= 2 / 3 * (constant - goal))


def _beside(mean: dict[str, pd.Series[float]], ours: str, against: str) -> str:
    both = zip(mean[ours].items(), mean[against], strict=True)
    return ", ".join(f"{value:.3g} and {other:.3g} at ε = {e:g}" for (e, value), other in both)


def _each(ratios: pd.Series[float]) -> str:
    return ", ".join(f"{r:.2f} at ε = {e:g}" for e, r in ratios.items())


SIZE_CURVES: Mapping[str, tuple[str, float]] = {
    "Algorithm 4, ε = 0.1": (BALANCED, 0.1),
    "Algorithm 4, ε = 0.5": (BALANCED, 0.5),
    "Algorithm 4, ε = 1": (BALANCED, 1.0),
    "printed scale, ε = 1": (PRINTED, 1.0),
    "Algorithm 3, ε = 1": (GOOD, 1.0),
    "RGD, not private": (RGD, 1.0),
    "clipped-newton, ε = 1": (UNITS, 1.0),
}
_SHADES = {"Algorithm 4, ε = 0.1": 0.45, "Algorithm 4, ε = 0.5": 0.7}


def size_cells(levels: tuple[int, ...]) -> list[Cell]:
    """Return the cells of a figure against sizes: every curve of both tasks at every level."""
    return [Cell(p, c, level) for p in (LINE, SIGNS) for c in SIZE_CURVES for level in levels]


def sized(cell: Cell, n: int, d: int, count: int) -> Iterator[Point]:
    """Return errors of releases for a curve of ``SIZE_CURVES``."""
    curve, epsilon = SIZE_CURVES[cell.curve]
    for run in range(count):
        value = final(curve, cell.panel, task(cell.panel, n, d, run), epsilon, run)
        yield Point(run, cell.level, MEASURES[cell.panel], value)


def size_panels(frame: pd.DataFrame, xlabel: str) -> list[Panel]:
    found = []
    for panel in (LINE, SIGNS):
        here = frame[frame["panel"] == panel]
        curves = []
        for name, (curve, _) in SIZE_CURVES.items():
            look, dashes = LOOK[curve]
            tone = shade(colour(look), _SHADES.get(name, 1.0))
            curves.append(Curve(name, tone, averaged(here[here["curve"] == name], MEASURES[panel]), dashes))
        found.append(Panel(panel, xlabel, MEASURES[panel], curves, "log", "log"))
    return found


def size_verdicts(frame: pd.DataFrame, grows: bool, what: str) -> list[Verdict]:
    """Check that errors grow (or fall) along the levels, and fall with epsilon."""
    found = []
    for panel in (LINE, SIGNS):
        mean = ends(frame, panel)
        for names, kind in (
            (("Algorithm 4, ε = 0.1", "Algorithm 4, ε = 0.5", "Algorithm 4, ε = 1", "RGD, not private"), ""),
            (("Algorithm 3, ε = 1", "printed scale, ε = 1", "clipped-newton, ε = 1"), " of other methods"),
        ):
            steps = np.concatenate([np.diff(mean[c]) for c in names])
            right = int(np.sum(steps > 0 if grows else steps < 0))
            agreement: Agreement = held(right, steps.size)
            found.append(
                Verdict(
                    f"{panel}: the error{kind} {'grows' if grows else 'falls'} with {what}",
                    agreement.beside if kind else agreement,
                    "; ".join(f"{c}: {', '.join(f'{v:.3g}' for v in mean[c])}" for c in names)
                    + f". {right} of {steps.size} steps from one value to the next go this way.",
                )
            )
        order = [mean[f"Algorithm 4, ε = {e}"] for e in ("0.1", "0.5", "1")]
        right = int(sum((b < a).sum() for a, b in itertools.pairwise(order)))
        found.append(
            Verdict(
                f"{panel}: the error of Algorithm 4 falls as ε grows",
                held(right, 2 * len(order[0])),
                f"From one ε to the next larger one it falls in {right} of {2 * len(order[0])} cases.",
            )
        )
    return found + [_rate(frame, curve, theorem, grows) for curve, theorem in _THEOREMS.items()]


# Theorems that bound the excess risk by d^2 log(n)^2 / (n ε^2) for strongly convex ones: least squares.
_THEOREMS = {"Algorithm 3, ε = 1": 5, "printed scale, ε = 1": 7, "Algorithm 4, ε = 1": 7}


def _rate(frame: pd.DataFrame, curve: str, theorem: int, grows: bool) -> Verdict:
    """Judge the power of d or n in |w - w*|, the root of twice the excess risk, where it is below |w*|."""
    here = frame[(frame["panel"] == LINE) & (frame["curve"] == curve) & (frame["measure"] == MEASURES[LINE])]
    power, mean = power_law(here), here.groupby("level")["value"].mean()
    if grows:
        agreement, claim = power.grows_at_most(1.0), "grows at most like d"
    else:
        bound = bound_power(here, lambda n: np.log(n) / np.sqrt(n))
        agreement = power.at_most(bound)
        claim = f"falls at least like log(n) / √n, that is n to the power {bound:.2f}"
    better = int((mean < 1.0).sum())  # |w*| = 1
    return Verdict(
        f"Theorem {theorem}, {LINE}, {curve}: |w - w*| {claim}",
        earned(agreement, better, len(mean)),
        f"Measured power: {power}; better than zero weights at {better} of {len(mean)} values.",
    )


SYNTHETIC = (
    "The paper states neither the law of features nor parameters. Here features are standard normal, |w*| = "
    "1; noise is log-normal(0, 1), or log-logistic(0, 0.3), minus its mean."
)


def setting(count: int, records: str = SYNTHETIC) -> str:
    """Describe the setting common to all four figures, after a sentence about the records."""
    return (
        f"{records} δ = 1/n²; neighbours replace one record, n is public; accounting is sound and exact "
        f"(Algorithm 3 as printed spends several times ε: see the errata), and {count} runs have new records "
        "and noise each. Algorithm 4 has the printed scale of truncation, or the one that balances bias, "
        "deviation and noise. Algorithm 3 has the exact smooth sensitivity, and as [a, b] a good guess or "
        "one ten times as wide. Both take moments or ranges, smoothness and a radius as public facts. There "
        f"are T = {_MOST_STEPS} steps on the full batch, {_TRIMMED_STEPS} for Algorithm 3, {_BATCH_STEPS} on "
        "batches. RGD is Holland's robust gradient descent at the printed scale, without noise. "
        "clipped-newton is privopt's default, and needs none of these public facts."
    )

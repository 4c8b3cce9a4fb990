"""Excess empirical risk and gradients evaluated in Tables 1 to 3 of Wang, Ye and Xu (2017)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict
from privopt.experiments.reproduce.tables import Power, bound_power, earned, means, pivot, power_law
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.oracles.convex.proximal import ConvexAnswer, minimize_convex
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ElasticNet, Vector, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball

CITE = "Wang, Ye and Xu (2017)"
PAPER = (
    "Wang, Ye and Xu, Differentially Private Empirical Risk Minimization Revisited: Faster and More "
    "General, NIPS 2017"
)
RECORDS, BUDGETS = "against n", "against ε"
FEATURES, CONDITIONS = "against p", "against κ"
EXCESS, GRADIENTS = "excess empirical risk", "gradients of records"
START = "excess empirical risk of zero weights"
PRINTED = ", the paper's T and m"
_WITH_PRINTED = " with the paper's T and m"
ONE_RECORD = "n² steps of one record"
_MOST_SQUARED = 4_000  # the largest n for these steps: more take long
DELTA, EPSILON = 1e-6, 1.0
_GAP = 1e-6  # accuracy of the least risk
EPSILONS = (0.1, 0.3, 1.0, 3.0)


class CountingRisk(EmpiricalRisk):
    """A risk that counts evaluations of single records' gradients and Hessians.

    Attributes:
        gradients: the number of evaluated gradients of records.
        curvatures: the number of evaluated Hessians of records, or products with them.
    """

    gradients = 0
    curvatures = 0

    def value_and_gradient(self, w: ArrayLike) -> tuple[float, Vector]:
        self.gradients += self.facts.n_records
        return super().value_and_gradient(w)

    def gradient(self, w: ArrayLike) -> Vector:
        self.gradients += self.facts.n_records
        return super().gradient(w)

    def gradient_sum(self, w: ArrayLike, records: NDArray[np.int64]) -> Vector:
        self.gradients += len(records)
        return super().gradient_sum(w, records)

    def difference_sum(self, w: ArrayLike, anchor: ArrayLike, records: NDArray[np.int64]) -> Vector:
        self.gradients += 2 * len(records)
        return super().difference_sum(w, anchor, records)

    def hessian(self, w: ArrayLike) -> Vector:
        self.curvatures += self.facts.n_records
        return super().hessian(w)

    def hessian_vector(self, w: ArrayLike, v: ArrayLike) -> Vector:
        self.curvatures += self.facts.n_records
        return super().hessian_vector(w, v)


Records = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Study:
    """Problem and methods of one table.

    Attributes:
        features: p.
        ball: p -> C; None: the whole space.
        regularizer: r.
        methods: mechanisms by name; the first is the paper's.
        slope: the power of n in the paper's bound on its excess risk.
        work: the power of n in its bound on the number of gradients, without logarithms.
        relevant: the number of features that the labels depend on; None: all.
        growth: the power of p in the bound on the excess risk.
        dimensions: the values of p, where p is varied.
        ridges: the penalties l2, where the condition number is varied, which they determine.
        rivals: the methods whose comparison counts as a claim of the paper; others count as claims of ours.
        full_sizes: the values of n in full runs; the gradients of full-batch steps grow like n squared.
    """

    features: int
    ball: Callable[[int], L1Ball | L2Ball] | None
    regularizer: ElasticNet
    methods: Sequence[str]
    slope: float
    work: float
    relevant: int | None
    growth: float
    dimensions: tuple[int, ...]
    rivals: Sequence[str]
    ridges: tuple[float, ...] = ()
    full_sizes: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)

    def reproduction(self, name: str, figure: str, shows: str) -> Reproduction:
        """Build the reproduction of its table."""
        return Reproduction(
            name=name,
            paper=PAPER,
            cite=CITE,
            figure=figure,
            shows=shows,
            setting=self.setting,
            cells=self.cells,
            compute=self.compute,
            draw=self.draw,
            caption=(
                "Excess risk and gradients evaluated, mean and one standard deviation, on logarithmic axes."
            ),
            table=self.table,
            verdicts=self.verdicts,
        )

    @property
    def convex_set(self) -> L1Ball | L2Ball | None:
        return None if self.ball is None else self.ball(self.features)

    @property
    def ours(self) -> str:
        return self.methods[0]

    def sizes(self, quick: bool) -> tuple[int, ...]:
        return (1_000, 4_000, 16_000) if quick else self.full_sizes

    def middle(self, quick: bool) -> int:
        """Return the value of n at which epsilon is varied."""
        return 4_000 if quick else 10_000

    def cells(self, quick: bool) -> list[Cell]:
        by_records = [
            Cell(RECORDS, m, n)
            for m in self.methods
            for n in self.sizes(quick)
            if m != ONE_RECORD or n <= _MOST_SQUARED
        ]
        levels = {
            BUDGETS: EPSILONS,
            FEATURES: self.dimensions,
            CONDITIONS: map(condition_number, self.ridges),
        }
        varied = [m for m in self.methods if m != ONE_RECORD]
        return by_records + [Cell(p, m, x) for p, xs in levels.items() for x in xs for m in varied]

    def at(self, cell: Cell) -> Study:
        """Return the study with the features or the penalty of a cell."""
        if cell.panel == FEATURES:
            return replace(self, features=int(cell.level))
        if cell.panel == CONDITIONS:
            return replace(self, regularizer=ridge(LogisticLoss.smoothness / (cell.level - 1)))
        return self

    def compute(self, cell: Cell, quick: bool) -> Iterator[Point]:
        n = int(cell.level) if cell.panel == RECORDS else self.middle(quick)
        epsilon = cell.level if cell.panel == BUDGETS else EPSILON
        return self.at(cell)._measured(cell, n, epsilon, runs(quick))

    def _measured(self, cell: Cell, n: int, epsilon: float, count: int) -> Iterator[Point]:
        for run in range(count):
            # Smoothness in the norm of an l1 ball follows the largest entry; rows satisfy both bounds.
            norm: RowNorm = "linf" if isinstance(self.convex_set, L1Ball) else "l2"
            X, y = self.records(n, run)
            bound = 1 / math.sqrt(self.features) if norm == "linf" else 1.0
            risk = CountingRisk(X, y, LogisticLoss(), row_norm=bound, norm=norm)
            best = _best(self, n, run)
            if cell.curve == ONE_RECORD:
                point, risk.gradients = self._one_record(risk, epsilon, run)
            else:
                plan = self._plan(cell.curve, risk.facts, epsilon)
                point = plan.release(risk, NoiseSource(insecure_seed=run)).point
            yield Point(run, cell.level, GRADIENTS, risk.gradients)
            value = risk.value(point) + self.regularizer.value(point)
            yield Point(run, cell.level, EXCESS, max(value - best.value, 0.0))
            yield Point(run, cell.level, START, risk.value(np.zeros(self.features)) - best.value)

    def _one_record(self, risk: EmpiricalRisk, epsilon: float, run: int) -> tuple[Vector, int]:
        """Return weights and gradients of n^2 steps; without a set, over a ball that holds the minimum."""
        from privopt.experiments.workbench.one_record_steps import one_record_steps  # imports numba

        n, l2 = risk.facts.n_records, self.regularizer.l2
        plan = DPStochasticGradient.plan(
            risk.facts, self.convex_set, self.regularizer, epsilon=epsilon, delta=DELTA, steps=n * n, batch=1
        )
        radius = risk.facts.gradient_bound / l2 if self.convex_set is None else self.convex_set.radius
        X, y = (np.asarray(numbers, dtype=np.float64) for numbers in (risk.X, risk.y))
        return one_record_steps(X, y, n * n, plan.noise["sigma"], l2, radius, np.random.default_rng(run))

    def records(self, n: int, run: int) -> Records:
        return _records(n, self.features, self.relevant or self.features, run)

    def _plan(self, curve: str, facts: RiskFacts, epsilon: float) -> RiskMechanism:
        """Plan a mechanism with its defaults, or with the paper's T and m."""
        name = curve.removesuffix(PRINTED)
        if name != curve:
            made: RiskMechanism = RISK_MECHANISMS[name].plan(
                facts,
                self.convex_set,
                self.regularizer,
                epsilon=epsilon,
                delta=DELTA,
                rounds=printed_rounds(facts, self.regularizer.l2, epsilon),
            )
            return made
        mu = gaussian_mu(epsilon, DELTA)
        choice = choose_risk_mechanism(name, facts, self.convex_set, self.regularizer, mu=mu)
        return choice.plan(facts, epsilon=epsilon, delta=DELTA, steps=None)

    def draw(self, frame: pd.DataFrame) -> Figure:
        specifications = [
            (RECORDS, EXCESS, f"Excess risk against n, ε = {EPSILON:g}", "n"),
            (BUDGETS, EXCESS, "Excess risk against ε", "ε"),
            (RECORDS, GRADIENTS, f"Gradients evaluated against n, ε = {EPSILON:g}", "n"),
        ]
        return panels_figure(
            [
                Panel(title, axis, measure, self._curves(frame, panel, measure), "log", "log")
                for panel, measure, title, axis in specifications
            ]
        )

    def _curves(self, frame: pd.DataFrame, panel: str, measure: str) -> list[Curve]:
        here = frame[frame["panel"] == panel]
        present = [m for m in self.methods if (here["curve"] == m).any()]
        return [
            Curve(
                m,
                colour(m.removesuffix(PRINTED)),
                averaged(here[here["curve"] == m], measure),
                dashes="dashed" if m.endswith(PRINTED) else "",
            )
            for m in present
        ]

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        headings = {
            RECORDS: "n = {:,.0f}",
            BUDGETS: "ε = {:g}",
            FEATURES: "p = {:g}",
            CONDITIONS: "κ = {:g}",
        }
        own = frame[(frame["measure"] != START) | (frame["curve"] == self.ours)]  # START is the same for all
        parts = [
            pivot(own[own["panel"] == panel], (EXCESS, START, *more), heading)
            for panel, heading in headings.items()
            for more in [(GRADIENTS,) if panel in (RECORDS, CONDITIONS) else ()]
        ]
        return pd.concat(parts).fillna("").drop(columns="panel")

    def power(self, frame: pd.DataFrame, method: str, measure: str, panel: str = RECORDS) -> Power:
        """Fit the power of the varied quantity in a measure; excess risks are accurate to ``_GAP``."""
        return power_law(self._of(frame, method, measure, panel), _GAP)

    def _of(self, frame: pd.DataFrame, method: str, measure: str, panel: str = RECORDS) -> pd.DataFrame:
        """Return the values of a measure."""
        return frame[(frame["panel"] == panel) & (frame["curve"] == method) & (frame["measure"] == measure)]

    def verdicts(self, frame: pd.DataFrame) -> list[Verdict]:
        by_records = self.power(frame, self.ours, EXCESS)
        by_budget = self.power(frame, self.ours, EXCESS, BUDGETS)
        work = self.power(frame, self.ours, GRADIENTS)
        falls = []
        for of, power, panel in (("n", by_records, RECORDS), ("ε", by_budget, BUDGETS)):
            better, count = self._useful(frame, panel)
            falls.append(
                Verdict(
                    f"{self.ours}: the excess risk falls like {of} to the power {self.slope:g}",
                    earned(power.at_most(self.slope), better, count),
                    f"Measured power: {power}; better than zero weights at {better} of {count} values of "
                    f"{of}.",
                )
            )
        most = self.work + bound_power(self._of(frame, self.ours, GRADIENTS), np.log)
        grows = Verdict(
            f"{self.ours}: the gradients grow, and at most like n to the power {self.work:g} times log(n)",
            work.costs_at_most(most),
            f"Measured power: {work}, that of the bound: {most:.2f}.",
        )
        return [*falls, grows, *self._growth(frame), *self._against(frame)]

    def _growth(self, frame: pd.DataFrame) -> list[Verdict]:
        """Judge growth with p and with the condition number, where the result is better than zero weights."""
        claims = [(FEATURES, "p", EXCESS, "the excess risk grows", self.growth)]
        if self.ridges:
            claims.append((CONDITIONS, "κ", EXCESS, "the excess risk grows", 1.0))
            claims.append((CONDITIONS, "κ", GRADIENTS, "the gradients grow", 1.0))
        found = []
        for panel, of, measure, what, bound in claims:
            power = self.power(frame, self.ours, measure, panel)
            better, count = self._useful(frame, panel)
            found.append(
                Verdict(
                    f"{self.ours}: {what} at most like {of} to the power {bound:g}",
                    earned(power.grows_at_most(bound), better, count),
                    f"Measured power: {power}; better than zero weights at {better} of {count} values of "
                    f"{of}.",
                )
            )
        return found

    def _useful(self, frame: pd.DataFrame, panel: str) -> tuple[int, int]:
        """Count the levels where the paper's method is better than zero weights, and all levels."""
        risk, start = (means(frame, panel, m)[self.ours] for m in (EXCESS, START))
        return int((risk < start).sum()), len(risk)

    def _against(self, frame: pd.DataFrame) -> list[Verdict]:
        """Compare the paper's method with each other method where n is varied.

        A value of n counts only if the method has less risk than zero weights, a constant model.
        """
        risk, work, start = (means(frame, RECORDS, m) for m in (EXCESS, GRADIENTS, START))
        useful = risk[self.ours] < start[self.ours]
        found = []
        for other in (m for m in self.methods[1:] if m in risk):
            at = risk[other].index  # n^2 steps are run for small n only
            ours, gradients, helps = risk[self.ours][at], work[self.ours][at], useful[at]
            better = int((helps & (ours <= risk[other])).sum())
            cheaper = int((helps & (gradients <= work[other])).sum())
            of = len(at)
            both = int((helps & (ours <= 1.1 * risk[other]) & (gradients <= work[other])).sum())
            agreement = Agreement.YES if both == of else Agreement.NO
            called = other.replace(PRINTED, _WITH_PRINTED)
            if both < of and (better or cheaper):
                agreement = Agreement.PARTLY
            found.append(
                Verdict(
                    f"{self.ours} is as accurate as {called}, with fewer gradients",
                    agreement if other in self.rivals else agreement.beside,
                    f"Of {of} values of n, the risk of {self.ours} is at most as large at {better}, its "
                    f"number of gradients at {cheaper}, and both (the risk within a tenth) at {both}; it is "
                    f"better than zero weights at {int(helps.sum())}. At the largest n it has "
                    f"{ours.iloc[-1] / risk[other].iloc[-1]:.2f} times the risk with "
                    f"{gradients.iloc[-1] / max(work[other].iloc[-1], 1):.2g} times the gradients.",
                )
            )
        return found

    def setting(self, quick: bool) -> str:
        where = "all weights" if self.convex_set is None else _named(self.convex_set)
        return (
            f"Logistic regression, {self.features} features of size 1/√{self.features}, so that rows have "
            f"norm 1; labels drawn from a logistic model with {self.relevant or self.features} relevant "
            f"features; over {where}, penalty (l2/2)|w|² with l2 = {self.regularizer.l2:g}. "
            f"{runs(quick)} runs, new records for each; n from {self.sizes(quick)[0]:,} to "
            f"{self.sizes(quick)[-1]:,} at ε = {EPSILON:g}, and "
            f"ε from {EPSILONS[0]:g} to {EPSILONS[-1]:g}, p from {self.dimensions[0]} to "
            f"{self.dimensions[-1]}{self._ridges()} at n = {self.middle(quick):,}; δ = {DELTA:g}; "
            "neighbours replace one record, n is public. All mechanisms run with sound noise, and with "
            "privopt's defaults unless the paper's T and m are named. The n² steps of one record are the "
            f"gradient perturbation of Bassily, Smith and Thakurta (2014), for n up to {_MOST_SQUARED:,}. "
            "dp-sgd, the same on batches, stands for the table's gradient perturbation, too; dp-gd and "
            "dp-pgd are not in the table. The least risk is found to 1e-6 without privacy. Evaluated "
            "gradients of single records are counted; Hessians, which the perturbation methods evaluate in "
            "Newton steps, are not. The bounds are upper bounds: a risk far below its bound may grow faster "
            "with p than the bound does."
        )

    def _ridges(self) -> str:
        if not self.ridges:
            return ""
        first, last = (f"{condition_number(l2):g}" for l2 in (self.ridges[0], self.ridges[-1]))
        return f" and κ = (L + l2) / l2 from {first} to {last}"


def condition_number(l2: float) -> float:
    """Return (L + l2) / l2 for rows of norm 1."""
    return 1 + LogisticLoss.smoothness / l2


def printed_rounds(facts: RiskFacts, l2: float, epsilon: float) -> tuple[int, ...]:
    """Return the inner steps of each epoch by Theorems 4.2 and 4.4; constants, which these omit, are 1.

    Strongly convex: T = log(n^2 epsilon^2 l2 / (p G^2 ln(1/delta))) epochs of m = 8 (L + l2) / l2 steps, the
    least that the condition of convergence allows at our step. Convex: log(n epsilon / (G sqrt(p
    ln(1/delta)))) epochs of 2, 4, 8, ... steps.
    """
    ratio = (facts.n_records * epsilon / facts.gradient_bound) ** 2 / (facts.dimension * -math.log(DELTA))
    if l2 > 0:
        epochs = max(1, math.ceil(math.log(max(math.e, ratio * l2))))
        return (math.ceil(8 * (facts.smoothness + l2) / l2),) * epochs
    return tuple(2**s for s in range(1, 1 + max(1, math.ceil(math.log(max(math.e, ratio)) / 2))))


def _named(ball: L1Ball | L2Ball) -> str:
    return f"an {'l1' if isinstance(ball, L1Ball) else 'l2'} ball of radius {ball.size:.3g}"


def runs(quick: bool) -> int:
    return 3 if quick else 10


def _records(n: int, features: int, relevant: int, seed: int) -> Records:
    """Generate features +-1/sqrt(p) and labels of a logistic model whose predictions have size about 2."""
    rng = np.random.default_rng(1000 + seed)
    X = rng.choice(np.array([-1.0, 1.0]), size=(n, features)) / math.sqrt(features)
    weights = np.zeros(features)
    weights[:relevant] = 2 * math.sqrt(features / relevant)
    chances = 1 / (1 + np.exp(-(X @ weights)))
    return X, np.where(rng.random(n) < chances, 1, -1)


@lru_cache(maxsize=64)
def _best(study: Study, n: int, run: int) -> ConvexAnswer:
    """Return the minimum of the penalised risk on the records of a run."""
    risk = EmpiricalRisk(*study.records(n, run), LogisticLoss())
    return minimize_convex(risk, study.convex_set, study.regularizer, gap=_GAP)

"""Noisy proximal gradient descent on sigmoid losses with an l1 penalty, for four figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.experiments.reproduce.interface import Point
from privopt.experiments.reproduce.tables import pivot
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.privacy.accounting import gaussian_epsilon
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_steps
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.convex.prox import prox_step
from privopt.problems.convex.losses import SigmoidLoss
from privopt.problems.convex.regularizers import lasso
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.datasets.covertype import covertype_binary

CITE = "Wang and Xu (2019)"
PAPER = (
    "Wang and Xu, Differentially Private Empirical Risk Minimization with Smooth Non-Convex Loss Functions: "
    "A Non-Stationary View, AAAI 2019"
)
SYNTHETIC, COVERTYPE = "synthetic", "Covertype"
MEASURE = "norm of the generalized projected gradient"
YLABEL = "|projected gradient|"
CAPTION = (
    "Norm of the generalized projected gradient at each iterate, mean of the runs (bands: one standard "
    "deviation), by the exact gradient."
)
DELTA = 1e-3
_LASSO = lasso(0.01 / 2)
_ROW_NORM = 1 / SigmoidLoss.lipschitz  # "normalized so that the loss is 1-Lipschitz"
_FEATURES = 100
# The largest number of iterates of a run that are measured and drawn.
_KEPT = 60


def records(dataset: str, quick: bool) -> int:
    """Return the number of records used of a data set."""
    if dataset == SYNTHETIC:
        return 10_000
    return 40_000 if quick else 200_000


def runs(quick: bool) -> int:
    return 3 if quick else 10


@lru_cache(maxsize=2)
def _table(dataset: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return all records in random order; rows have norm at most ``_ROW_NORM``."""
    rng = np.random.default_rng(0)
    if dataset == COVERTYPE:
        X, y = covertype_binary()
        order = rng.permutation(len(y))[:200_000]
        return X[order] * (_ROW_NORM / math.sqrt(12)), y[order]
    X = rng.normal(size=(10_000, _FEATURES))
    X *= _ROW_NORM / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ rng.normal(size=_FEATURES) > 0, 1, -1)


@lru_cache(maxsize=2)
def risk_of(dataset: str, n: int) -> EmpiricalRisk:
    """Return the sigmoid loss over the first n records of a data set."""
    X, y = _table(dataset)
    return EmpiricalRisk(X[:n], y[:n], SigmoidLoss(), row_norm=_ROW_NORM)


@lru_cache(maxsize=8)
def step_size(dataset: str, n: int) -> float:
    """Return 1 / L; L is the curvature bound of the loss times the largest eigenvalue of X'X / n.

    L is computed from the data, not paid for, like the paper's line search. The mechanisms of privopt use the
    bound over all possible records, which is up to a hundred times as large: 200 such steps are too few.
    """
    X = risk_of(dataset, n).X
    return 1 / (SigmoidLoss.smoothness * float(np.linalg.eigvalsh(X.T @ X / n)[-1]))


# (facts, epsilon, T) -> standard deviation of the noise on a coordinate of the mean gradient
Rule = Callable[[RiskFacts, float, int], float]


def exact_noise(facts: RiskFacts, epsilon: float, steps: int) -> float:
    """Return the noise of privopt: T Gaussian steps are exactly one Gaussian release."""
    noise = gaussian_steps(
        epsilon, DELTA, steps=steps, sensitivity=facts.sensitivity, dimension=facts.dimension
    )
    return noise.sigma


def zcdp_noise(facts: RiskFacts, epsilon: float, steps: int) -> float:
    """Return the noise by zCDP: rho + 2 sqrt(rho ln(1/delta)) = epsilon, variance 2 G^2 T / (n^2 rho).

    The paper prints L instead of G, and its listing rho^2 instead of rho: see the errata.
    """
    root = math.sqrt(-math.log(DELTA))
    rho = (math.sqrt(root**2 + epsilon) - root) ** 2
    return math.sqrt(2 * steps / rho) * facts.gradient_bound / facts.n_records


def moments_noise(facts: RiskFacts, epsilon: float, steps: int) -> float:
    """Return the least noise by the moments accountant of Abadi et al. (2016), with integer orders up to 512.

    Wang, Ye and Xu (2017) leave its constant unspecified. Replacing a record changes a sum of gradients by at
    most 2 G; the log moment of order k of T steps is T k (k + 1) (2 G / n)^2 / (2 sigma^2).
    """
    best = math.inf
    for k in range(1, 513):
        left = epsilon * k + math.log(DELTA)  # epsilon k >= moment + ln(1/delta)
        if left > 0:
            best = min(best, math.sqrt(steps * k * (k + 1) / (2 * left)))
    return best * 2 * facts.gradient_bound / facts.n_records


def quoted_noise(facts: RiskFacts, epsilon: float, steps: int) -> float:
    """Return the noise of Zhang et al. (2017) as the paper quotes it.

    The variance is 32 ln(1/delta) ln(T/delta) / (n epsilon)^2. It does not grow in proportion to T, as
    composition requires, so T steps on all records exceed epsilon.
    """
    variance = 32 * -math.log(DELTA) * math.log(steps / DELTA)
    return math.sqrt(variance) * facts.gradient_bound / (facts.n_records * epsilon)


def composed_noise(facts: RiskFacts, epsilon: float, steps: int) -> float:
    """Return the quoted noise with T times the variance, as advanced composition of T steps requires."""
    return math.sqrt(steps) * quoted_noise(facts, epsilon, steps)


def no_noise(_facts: RiskFacts, _epsilon: float, _steps: int) -> float:
    return 0.0


def true_epsilon(facts: RiskFacts, sigma: float, steps: int) -> float:
    """Return the exact epsilon of T steps with this noise at ``DELTA``: they are one Gaussian release."""
    return gaussian_epsilon(math.sqrt(steps) * facts.sensitivity / sigma, DELTA)


def trajectories(dataset: str, n: int, epsilon: float, steps: int, rule: Rule, count: int) -> Iterator[Point]:
    """Yield norms of the generalized projected gradient along runs of DP-PGD from random starts.

    Runs differ in start and noise; both are the same across noise rules, so that comparisons are paired.
    """
    risk = risk_of(dataset, n)
    facts = risk.facts
    gamma, sigma = step_size(dataset, n), rule(facts, epsilon, steps)
    step = prox_step(WholeSpace(facts.dimension), _LASSO)
    kept = set(np.unique(np.geomspace(1, steps, _KEPT).astype(int)).tolist())
    for run in range(count):
        x = np.random.default_rng(run).normal(size=facts.dimension) / math.sqrt(facts.dimension)
        source = NoiseSource(insecure_seed=run)
        perturb = (
            VectorNoise(facts.sensitivity, sigma, facts.dimension).adder(source, steps) if sigma else None
        )
        for k in range(1, steps + 1):
            gradient = risk.gradient(x)
            if k in kept:  # uses the exact gradient: not private
                norm = float(np.linalg.norm(x - step(x - gamma * gradient, gamma))) / gamma
                yield Point(run, k, MEASURE, norm)
            x = step(x - gamma * (perturb(gradient) if perturb else gradient), gamma)


def panel(frame: pd.DataFrame, dataset: str, title: str, look: Callable[[float], tuple[str, str]]) -> Panel:
    """Build a panel of norms against iterations, one curve per level; ``look``: level -> label and colour."""
    here = frame[frame["panel"] == dataset]
    curves = [
        Curve(*look(float(str(level))), averaged(rows, MEASURE), spread="band")
        for level, rows in here.groupby("level")
    ]
    return Panel(title, "iteration", YLABEL, curves, "linear", "log")


def both_panels(frame: pd.DataFrame, look: Callable[[float], tuple[str, str]]) -> Figure:
    """Draw the norms of both data sets side by side."""
    sets = ((SYNTHETIC, "Synthetic"), (COVERTYPE, "Covertype"))
    return panels_figure([panel(frame, dataset, title, look) for dataset, title in sets])


def final_norms(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean norm over the later half of the iterations, a line per run (column "value")."""
    rows = frame[frame["measure"] == MEASURE]
    keys = ["panel", "curve", "level"]
    late = rows[rows["at"] >= rows.groupby(keys)["at"].transform("max") / 2]
    return late.groupby([*keys, "run"], sort=False)["value"].mean().reset_index()


def late_norms(frame: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return the mean of ``final_norms`` by data set and level."""
    norms = final_norms(frame)
    return {
        name: norms[norms["panel"] == name].groupby("level")["value"].mean()
        for name in (SYNTHETIC, COVERTYPE)
    }


def starting_norms(frame: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return the mean norm at the first iterate by data set and level."""
    here = frame[(frame["measure"] == MEASURE) & (frame["at"] == 1)]
    return {
        name: here[here["panel"] == name].groupby("level")["value"].mean() for name in (SYNTHETIC, COVERTYPE)
    }


def descended(frame: pd.DataFrame, dataset: str) -> tuple[int, int]:
    """Return at how many levels the later norms are below the starting norm, and the number of levels."""
    late, first = late_norms(frame)[dataset], starting_norms(frame)[dataset]
    return int((late < first).sum()), len(late)


def table(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Format ``final_norms`` as a table."""
    return pivot(
        final_norms(frame).assign(measure=f"{MEASURE}, later half"), (f"{MEASURE}, later half",), column
    )


def falls(values: Sequence[float]) -> int:
    """Count the consecutive pairs of a sequence that decrease."""
    return int(np.sum(np.diff(np.asarray(values)) < 0))


def setting(quick: bool) -> str:
    """Describe the setting common to all four figures."""
    return (
        "Synthetic: 10,000 records, 100 features, labels by the sign of a random linear score; Covertype: "
        f"{records(COVERTYPE, quick):,} records (the paper: 200,000), 54 features, Lodgepole Pine or not. "
        "Rows have norm at most 4, so that the sigmoid loss is 1-Lipschitz. λ = 0.01, δ = 1e-3; neighbours "
        f"replace one record, n is public; {runs(quick)} runs from random starts. The paper prints the "
        "sigmoid with the opposite sign of the margin; here it falls with the margin. The noise is privopt's "
        "exact one unless another one is named. The step size is 1/L of the mean loss, computed from the "
        "data and not paid for, like the paper's line search."
    )

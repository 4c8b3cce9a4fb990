"""Benchmark of robust mechanisms on heavy-tailed data: the paper's, synthetic and real tables.

    python -m privopt.experiments.heavy_tails [--output FOLDER] [--tables FOLDER] [--quick]

Lines are kept in ``heavy-tails.csv`` as they come: the same command goes on where it stopped, and then writes
``heavy-tails.md``. ``--tables`` is where statsmodels and plotnine are unpacked, for medical costs and prices:
``pip install --no-deps --target FOLDER statsmodels plotnine``. Times are of one machine in one run; only their
ratios say something. Neighbours: replace-one, n public.
"""

# ruff: noqa: E501 - lines of a page are as long as those of other pages

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy import special
from sklearn.metrics import log_loss, roc_auc_score

from privopt.experiments.reproduce import wang_xiao2020 as descents
from privopt.experiments.reproduce.tables import spread
from privopt.experiments.workbench import localisation
from privopt.experiments.workbench.resumable import Kept, each, machine, markdown
from privopt.mechanisms import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustRegression,
)
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.soft_truncation import soft_mean
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.datasets.adult import load_adult
from privopt.problems.files import write_atomically

Floats = NDArray[np.float64]
EPSILONS = (0.1, 0.5, 1.0)
LINE, SIGNS = descents.LINE, descents.SIGNS
UNITS, LOCALISED, CLIPPED = (
    "clipped-newton (default)",
    "localisation, tuned for free",
    "clipped descent, tuned for free",
)
_STATISTICS, _LOGISTIC = "sufficient statistics (AdaSSP-like)", "logistic"
_KEY = ("part", "task", "mechanism", "n", "d", "epsilon", "run", "measure")


@dataclass(frozen=True)
class Line:
    """One measured value. ``epsilon`` is 0 for methods without privacy."""

    part: str
    task: str
    mechanism: str
    n: int
    d: int
    epsilon: float
    run: int
    measure: str
    value: float


@dataclass(frozen=True)
class Part:
    """A unit of work that yields lines, identified by its name."""

    name: str
    work: Callable[[], Iterator[Line]]

    def __str__(self) -> str:
        return self.name


# --- the kernel ------------------------------------------------------------------------------------------


def plain_mean(X: Floats, scale: float, beta: float) -> Floats:
    """Compute the mean by the printed expression in NumPy, correction included."""
    a = X / scale
    b = np.abs(a) / math.sqrt(beta)
    near, far = (math.sqrt(2) - a) / b, (math.sqrt(2) + a) / b
    f_near, f_far = special.ndtr(-near), special.ndtr(-far)
    e_near, e_far = np.exp(-near * near / 2), np.exp(-far * far / 2)
    root = math.sqrt(2 * math.pi)
    c = 2 * math.sqrt(2) / 3 * (f_near - f_far) - (a - a**3 / 6) * (f_near + f_far)
    c += b / root * (1 - a * a / 2) * (e_far - e_near)
    c += a * b * b / 2 * (f_far + f_near + (far * e_far + near * e_near) / root)
    c += b**3 / (6 * root) * ((2 + near**2) * e_near - (2 + far**2) * e_far)
    return np.asarray(scale * np.mean(a * (1 - b * b / 2) - a**3 / 6 + c, axis=0))


def kernel(n: int) -> Iterator[Line]:
    """Nanoseconds per entry, and by how many bytes per entry the process grows at most beside the data."""
    X = np.random.default_rng(0).standard_t(3, (n, 10))
    large = np.tile(
        X, (10, 1)
    )  # so large that freed memory returns to the system, and growth is visible again
    ways: dict[str, Callable[[Floats], object]] = {
        "fused pass": lambda X: soft_mean(X, 50.0, 3.0),
        "NumPy, one exp per entry": np.exp,
        "NumPy, the printed expression": lambda X: plain_mean(X, 50.0, 3.0),
    }
    for name, way in ways.items():
        way(X)
        best = min(_seconds(partial(way, X)) for _ in range(9))
        yield Line("kernel", "t(3)", name, n, 10, 0.0, 0, "ns per entry", best / X.size * 1e9)
        if (grown := _growth(partial(way, large))) is not None:
            yield Line("kernel", "t(3)", name, n, 10, 0.0, 0, "peak bytes per entry", grown / large.size)


def _seconds(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def _growth(way: Callable[[], object]) -> int | None:
    """Bytes by which the resident memory of the process exceeds what it was, at most; None where Linux is not.

    The kernel of the system counts, so memory of compiled code is in it, which tracemalloc does not see. Its mark
    is reset first: ``resource.getrusage`` has the highest of all times, that of the parent's included.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory("VmRSS")
        way()
        return max(0, _memory("VmHWM") - before)
    except OSError:
        return None


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


# --- means -----------------------------------------------------------------------------------------------


def means(n: int, runs: int) -> Iterator[Line]:
    """Measure errors of private means of numbers, epsilon = 1, delta = 1e-5."""
    laws: dict[str, tuple[Callable[[np.random.Generator], Floats], float, float]] = {
        "Pareto(2.5)": (lambda rng: rng.pareto(2.5, (n, 1)) + 1, 5 / 3, 5.0),
        "log-normal(0, 1)": (lambda rng: rng.lognormal(0, 1, (n, 1)), math.exp(0.5), math.exp(2)),
        "t(2.5)": (lambda rng: rng.standard_t(2.5, (n, 1)), 0.0, 5.0),
    }
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
    for name, (draw, mean, moment) in laws.items():
        printed = SoftTruncation.as_printed(n, moment, 0.05)
        balanced = RobustMean.plan(n, 1, moment=moment, **budget)
        plans: dict[str, RobustMean | TrimmedMean] = {
            "robust, balanced": balanced,
            "robust, printed scale": RobustMean.plan(n, 1, moment=moment, truncation=printed, **budget),
            "trimmed, in [-10, 10]": TrimmedMean.plan(n, 1, mean_range=(-10.0, 10.0), **budget),
        }
        yield Line("means", name, "robust, balanced", n, 1, 1.0, 0, "95% bound", balanced.error_bound(0.05))
        for run in range(runs):
            X, noise = draw(np.random.default_rng(run)), NoiseSource(insecure_seed=run)
            for way, plan in plans.items():
                error = abs(plan.release(X, noise).point[0] - mean)
                yield Line("means", name, way, n, 1, 1.0, run, "error", error)
            plain = abs(float(np.mean(X)) - mean)
            yield Line("means", name, "mean, not private", n, 1, 0.0, run, "error", plain)


# --- the paper's tasks -----------------------------------------------------------------------------------


def paper(task: str, n: int, d: int, epsilon: float, runs: int) -> Iterator[Line]:
    """|w - w*| for the line, the angle between them for signs; delta = 1/n^2; new records for each run.

    Public: rows of norm 2 sqrt d, labels within 4 (or ten times as much), moments of 10 (line) and 1 (signs).
    """
    measure, norm = descents.MEASURES[task], 2 * math.sqrt(d)
    mu = gaussian_mu(epsilon, n**-2.0)
    for run in range(runs):
        one = descents.task(task, n, d, run)
        X, y, options = (
            one.risk.X,
            one.labels,
            {"delta": n**-2.0, "insecure_seed": run, "fit_intercept": False},
        )
        found = {c: descents.final(c, task, one, epsilon, run) for c in descents.FULL}
        found[UNITS] = descents.final(descents.UNITS, task, one, epsilon, run)
        for factor, label in ((1, "good norm"), (10, "norm x 10")):
            if task == LINE:
                reach: dict[str, Any] = {"label_range": (-4.0 * factor, 4.0 * factor)}
                line = PrivateLinearRegression(epsilon, data_norm=norm * factor, **reach, **options).fit(X, y)
                found[f"{_STATISTICS}, {label}"] = one.error(line.coef_)
            else:
                signs = PrivateLogisticRegression(
                    epsilon, data_norm=norm * factor, classes=(-1.0, 1.0), **options
                )
                found[f"{_LOGISTIC}, clipped, {label}"] = one.error(signs.fit(X, y).coef_[0])
        tuned = {CLIPPED: localisation.plain(), LOCALISED: localisation.localising(n)}
        for name, grid in tuned.items():
            found[name] = localisation.best(grid, X, y, one.risk.facts.loss, mu, one.error, 1)[0]
        for name, value in found.items():
            yield Line("paper", task, name, n, d, epsilon, run, measure, value)


# --- real columns ----------------------------------------------------------------------------------------


def adult(epsilon: float, runs: int) -> Iterator[Line]:
    """Measure classification of Adult by its numeric columns, with the paper's split drawn anew for each run."""
    n, name = descents.ADULT_TRAIN, descents.ADULT_SIGNS
    mu = gaussian_mu(epsilon, n**-2.0)
    for run in range(runs):
        one = descents.task(name, n, 6, run)
        X, y, test, labels = one.risk.X, one.labels, one.test_rows, one.test_labels
        found = {c: descents.weights(c, name, one, epsilon, run) for c in (*descents.FULL, descents.UNITS)}
        found[UNITS] = found.pop(descents.UNITS)
        for factor, label in ((1, "good norm"), (10, "norm x 10")):
            plain = PrivateLogisticRegression(
                epsilon,
                delta=n**-2.0,
                data_norm=math.sqrt(5) * factor,
                classes=(-1.0, 1.0),
                insecure_seed=run,
            ).fit(X[:, :-1], y)
            found[f"{_LOGISTIC}, clipped, {label}"] = np.append(plain.coef_[0], plain.intercept_)
        for kind, grid in ((CLIPPED, localisation.plain()), (LOCALISED, localisation.localising(n))):
            value = localisation.best(grid, X, y, LogisticLoss(), mu, one.error, 1)[0]
            yield Line("real", "Adult, 28,000 + 2,000", kind, n, 5, epsilon, run, "log loss", value)
        for way, w in found.items():
            score = test @ w
            risk = log_loss(labels > 0, special.expit(np.clip(score, -30, 30)))
            where = ("real", "Adult, 28,000 + 2,000", way, n, 5, epsilon, run)
            yield Line(*where, "AUC", float(roc_auc_score(labels > 0, score)))
            yield Line(*where, "log loss", float(risk))


@dataclass(frozen=True)
class Columns:
    """A regression on real columns, with typical large values of each column and of the label."""

    name: str
    X: Floats
    y: Floats
    sizes: Floats
    large: float


def regressions(tables: Path | None) -> Iterator[Columns]:
    """Return the regressions: incomes, medical costs and prices."""
    frame = load_adult("all")
    frame = frame[(frame["capital-gain"] > 0) | (frame["capital-loss"] > 0)]
    kept = ["age", "education-num", "hours-per-week"]
    gains = (frame["capital-gain"] - frame["capital-loss"]).to_numpy(dtype=float)
    yield Columns(
        "Adult, capital", frame[kept].to_numpy(dtype=float), gains, np.array([100.0, 16, 100]), 10_000.0
    )
    if tables is None:
        return
    costs = tables / "statsmodels/datasets/randhie/src/randhie.csv"
    if costs.exists():
        columns = ["income", "xage", "num", "disea", "educdec", "mhi", "female", "coins"]
        table = pd.read_csv(costs)[[*columns, "meddol"]].dropna()
        sizes = np.array([20_000.0, 60, 5, 20, 16, 100, 1, 100])
        yield Columns(
            "RAND, medical costs",
            table[columns].to_numpy(float),
            table["meddol"].to_numpy(float),
            sizes,
            500.0,
        )
    prices = tables / "plotnine/data/diamonds.csv"
    if prices.exists():
        table = pd.read_csv(prices)
        columns = ["carat", "depth", "table", "x", "y", "z"]
        sizes = np.array([2.0, 100, 100, 10, 10, 10])
        yield Columns(
            "Diamonds, prices",
            table[columns].to_numpy(float),
            table["price"].to_numpy(float),
            sizes,
            10_000.0,
        )


def regression(one: Columns, epsilon: float, runs: int) -> Iterator[Line]:
    """Measure the mean absolute error on a random quarter of the records, relative to that of their median."""
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(one.X))
        X, y = one.X[order], one.y[order]
        n, d = int(0.75 * len(X)), X.shape[1]
        delta, scaled = n**-2.0, X / one.sizes
        constant = float(np.mean(np.abs(y[n:] - np.median(y[n:]))))
        options: dict[str, Any] = {"delta": delta, "insecure_seed": run}
        found = {UNITS: PrivateRobustRegression(epsilon, **options).fit(X[:n], y[:n]).predict(X[n:])}
        for factor, label in ((1, "good norm"), (10, "norm x 10")):
            reach = one.large * factor
            model = PrivateLinearRegression(
                epsilon, data_norm=math.sqrt(d) * factor, label_range=(-reach, reach), **options
            ).fit(scaled[:n], y[:n])
            found[f"{_STATISTICS}, {label}"] = model.predict(scaled[n:])
        errors = {way: float(np.mean(np.abs(p - y[n:]))) / constant for way, p in found.items()}
        wide, mu = np.column_stack([scaled, np.ones(len(X))]), gaussian_mu(epsilon, delta)

        def error(
            w: Floats, wide: Floats = wide, y: Floats = y, n: int = n, constant: float = constant
        ) -> float:
            return float(np.mean(np.abs(wide[n:] @ w * one.large - y[n:]))) / constant

        for loss, kind in ((PLAIN_SQUARES, ""), (HuberLoss(0.1), ", Huber's loss")):
            for name, grid in ((CLIPPED, localisation.plain()), (LOCALISED, localisation.localising(n))):
                errors[name + kind] = localisation.best(
                    grid, wide[:n], y[:n] / one.large, loss, mu, error, 1
                )[0]
        for way, value in errors.items():
            yield Line("real", one.name, way, n, d, epsilon, run, "mean absolute error", value)


# --- the run ---------------------------------------------------------------------------------------------


def parts(quick: bool, tables: Path | None, runs: int) -> list[Part]:
    """Return all parts."""
    runs, n, d = (1, 500, 2) if quick else (runs, 100_000, 10)
    found = [
        Part("kernel", partial(kernel, 1000 if quick else 100_000)),
        Part("means", partial(means, 200 if quick else 10_000, 2 if quick else 20)),
    ]
    for e in EPSILONS[-1:] if quick else EPSILONS:
        for task in (LINE, SIGNS):
            found.append(Part(f"{task}, epsilon = {e:g}", partial(paper, task, n, d, e, runs)))
        found.append(Part(f"Adult, epsilon = {e:g}", partial(adult, e, runs)))
        for one in regressions(tables):
            found.append(Part(f"{one.name}, epsilon = {e:g}", partial(regression, one, e, runs)))
    return found


def table(frame: pd.DataFrame, part: str, measure: str, column: str) -> str:
    """Tabulate mean and standard deviation over runs: a row per mechanism, a column per setting."""
    some = frame[(frame["part"] == part) & (frame["measure"] == measure)]
    lines = []
    for (task, mechanism), points in some.groupby(["task", "mechanism"], sort=False):
        values = points.groupby(column)["value"]
        cells = {f"{column} = {at:g}": spread(v.mean(), v.std()) for at, v in values}
        lines.append({"task": task, "mechanism": mechanism, **cells})
    return markdown(pd.DataFrame(lines).fillna(""))


def main(
    output: Annotated[Path, typer.Option(help="Folder for lines and page.")] = Path("heavy-tails"),
    tables: Annotated[Path | None, typer.Option(help="Folder that holds statsmodels and plotnine.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each setting.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small data, one run: to see that it works.")
    ] = False,
) -> None:
    """Measure the missing parts, and write the page."""
    output.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, soft_wrap=True, emoji=False)
    kept = Kept(output / "heavy-tails.csv", Line, _KEY)

    def do(part: Part) -> None:
        for line in part.work():
            if not kept.holds(line):
                kept.add(line)
        done.write_text(done.read_text() + f"{part}\n")

    done = output / "heavy-tails.done"
    done.touch()
    finished = set(done.read_text().splitlines())
    missing = each(
        [p for p in parts(quick, tables, runs) if str(p) not in finished], do, console, "heavy tails"
    )
    write_atomically(output / "heavy-tails.md", page(kept.frame, missing))


_INTRO = """# Heavy tails, and oracles that are only approximate

Mechanisms for records that nothing bounds, in `privopt.mechanisms.heavy_tails`, and OPSamp, which takes answers with a gap. The tables are made by

    python -m privopt.experiments.heavy_tails --output FOLDER --tables FOLDER

which keeps its lines in [a table](heavy-tails.csv) and goes on where it stopped; `--tables` is where statsmodels and plotnine are unpacked (`pip install
--no-deps --target FOLDER statsmodels plotnine`), for medical costs and prices. The paper's figures are `privopt reproduce wang-xiao2020-figure1` to `-figure4`.
Neighbours: replace-one, n public.

## What to take

`PrivateRobustRegression()` and `PrivateRobustClassifier()`, on the command line `--robust` with `--loss squared` or `logistic`: nothing about
magnitudes is declared, nothing leaks. Their default, `clipped-newton`, finds the median and a tail quantile of every column by noisy counts,
releases noisy second moments of rows in these units, and takes ten steps along means of gradients that are clipped after the moments have made
all directions alike. Where noise is symmetric the model is that of least squares; where it is skewed, predictions lie between the median and the
mean of the labels, as with Huber's regression. With fewer than about n mu = 175 (5 features; 240 for 10, 340 for 20; mu of Gaussian privacy, 0.25 at
epsilon = 1 and delta = 1e-6) units cannot be found, and columns are taken as they are.

| mechanism | a record's influence is bounded by | public inputs |
| --- | --- | --- |
| `ClippedNewton`, the default of the robust estimators | units found privately, rows and turned gradients clipped in them | none |
| `RobustMean`, `RobustGradientDescent`, `RobustStochasticGradient` (Wang, Xiao, Devadas and Xu 2020, Algorithm 4) | smoothed soft truncation: at most 2 sqrt(2)/3 s/n per coordinate | v, a guess at second moments |
| `TrimmedMean`, `TrimmedGradientDescent` (Algorithms 2 and 3, corrected) | trimming, with noise in proportion to the exact smooth sensitivity | a range [a, b] of the mean |
| `SampleAggregate` (Algorithm 1, corrected) | one answer out of m | a ball that holds the answer |
| `OPSamp` (Neel, Roth, Vietri and Wu 2020, Algorithm 2, constants derived anew) | stability of tilted minima | alpha, the gap that is taken |

The descents are there by name, `mechanism="robust-gd"`, `"robust-sgd"` and `"trimmed-gd"`, then in units found privately too. Robust gradient
descent without privacy (Holland 2019) is `plan.without_noise(risk)`.

## What differs from the papers

- *Robust means.* The printed scale s balances bias and deviation and forgets the noise, which grows with s. `SoftTruncation.balanced`
  balances all three. Accounting is that of one Gaussian release.
- *Arsinh-normal noise.* If the privacy loss is K-Lipschitz in the underlying normal variable, the release is K^2/2-zCDP for every order at once (the
  proof stands in `arsinh_noise.py`). At the budget of a single gradient coordinate t is 10 to 1000 times the printed one and s 1.2 to 1.6 times.
  Quadrature finds Renyi divergences at a fifth of that bound: K is the steepest slope of the loss, and most of the law is where it is far
  less steep. The room is not used, because it is not proved to be there: zCDP wants all orders and all shifts and stretches at once. For orders
  well below 1/K Hoelder's inequality would put the root of the mean fourth power of the slope in the place of K^2, but the budget of a
  single mean, with no composition to keep orders low, is not of that kind.
- *The printed scale* of Algorithm 2, *the printed budget* of Algorithm 3, *the largest distances* of Algorithm 1 and OPSamp's *concentration step* are
  errata 4, 5, 9 and 10 on [errata.md](errata.md). All but the last are mutants that `privopt audit` rejects.
- *Sample and aggregate.* Subsets are disjoint: as drawn there a record is in up to sqrt(m) of them and moves as many answers. The maximum goes on past m
  with the diameter. It is refused at epsilon <= 2d/sqrt(m), and where the proof wants more subsets.
- *OPSamp.* The stability lemma is proved again, with 8 eta G d^2 D in place of 250 at gap 0; the l1 distance of means is bounded by Chernoff. A certificate
  with a larger gap than planned releases nothing. Any oracle over a lattice will do.
- *Data.* The paper states neither the law of features nor parameters: here features are standard normal, |w| = 1, the line's noise is log-normal(0, 1) and the
  signs' log-logistic(0, 0.3), less their means. Adult: 30,000 records of the training file, drawn anew for each run, 28,000 to train, the five numeric columns.
"""

_FOUND = """## What was found

Figures 1 to 4 of the paper, five runs each, with a verdict for every statement: [1](figures/wang-xiao2020-figure1-quick.md), [2](figures/wang-xiao2020-figure2-quick.md),
[3](figures/wang-xiao2020-figure3-quick.md), [4](figures/wang-xiao2020-figure4-quick.md). The tables below have three runs of each setting (five at epsilon = 0.1 on the line).

- *Reproduced*: errors fall with n and epsilon and rise with d at every step of Figures 3 and 4; on synthetic records Algorithm 3 is sensitive to b - a: ten times too wide costs a factor of 5
  (epsilon = 1). On Adult Algorithm 4 comes near robust descent without privacy at its balanced scale; at the printed one it does not beat a constant.
- *Contradicted*: on synthetic records Algorithm 4 is nowhere near it under sound accounting: 70 times its error at the printed scale, 10 to 12 times at the balanced one. Algorithm 3, with the exact smooth
  sensitivity and a good guess at [a, b], has a thirtieth of the error of Algorithm 4 as printed, and varies less. On Adult neither keeps up with clipping.
- *What came after*: `clipped-newton`, told nothing, has a quarter of the error of sufficient statistics with a good norm on the line (a fourth at each epsilon), and on signs from under half the angle of clipped
  logistic regression with a good norm (epsilon = 0.1) to about the same (1). On the line it is ahead of robust descent without privacy but for epsilon = 0.1: truncation costs more than its noise. Localisation after Asi,
  Liu and Tian (2024), with constants that are tuned on the true error for free, does not win there: 1.5 to 2 times the error of `clipped-newton` on the line, the same within the spread on signs;
  clipped descent tuned for free is ahead of it on both, and on signs ahead of `clipped-newton` too. (On real columns its 20 steps are too few: localisation takes 20 in each of its phases.)
- *Real columns*: at epsilon 0.5 and 1 `clipped-newton` has the least error on capital, medical costs and prices, told nothing, localisation the second least with free tuning; on Adult's classes it is beside logistic regression with a good
  norm. At 0.1 *Adult, capital* (4,700 records) is worse than the median, where tuning for free is just better than it, and *prices* go to localisation by a twentieth. A column that is 0 about as often as the noise of counts
  hides may get a tiny unit, and predictions explode: three more questions look whether anything is near the unit, and leave the column out if not (`column_search.py`): of 4,000 such columns
  in simulations none was left with a tiny unit.
"""


def page(frame: pd.DataFrame, missing: Sequence[str]) -> str:
    """Write the page of the documentation."""
    sections = {
        "The kernel": "Nanoseconds per entry, one thread or more as there are.\n\n"
        f"{table(frame, 'kernel', 'ns per entry', 'n')}\n\n{_MEMORY}\n\n"
        f"{table(frame, 'kernel', 'peak bytes per entry', 'n')}",
        "Means, epsilon = 1, delta = 1e-5": "Errors, and the bound that holds with probability 95%; n = 10,000.\n\n"
        + "\n\n".join(table(frame, "means", m, "n") for m in ("error", "95% bound")),
        "The paper's tasks, n = 100,000, d = 10": f"{_PUBLIC}\n\n"
        + "\n\n".join(
            f"{m}:\n\n{table(frame, 'paper', m, 'epsilon')}"
            for m in (descents.MEASURES[LINE], descents.MEASURES[SIGNS])
        ),
        "Real columns": f"{_REAL}\n\n"
        + "\n\n".join(
            f"{m}:\n\n{table(frame, 'real', m, 'epsilon')}"
            for m in ("AUC", "log loss", "mean absolute error")
        ),
        "What a gap costs OPSamp": _GAPS,
    }
    text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items())
    rest = "" if not missing else "\n\nNot finished: " + "; ".join(missing)
    return f"{_INTRO}\n{_FOUND}\n{text}\n\n{machine()}.{rest}\n"


_MEMORY = """By how many bytes per entry the resident memory of the process grows at most beside the data, as the operating system counts it: memory of compiled
code is in it."""
_PUBLIC = """Means and standard deviations over runs with new records and noise; delta = 1/n^2. Algorithms 3 and 4 are told moments or ranges, a radius and the smoothness;
clipping is told a norm that is good (2 sqrt d, labels within 4) or ten times too large; the default is told nothing. *Tuned for free*: the constants with the least *true* error
out of 7 (clipped descent, 20 steps) or 84 (localisation, 20 steps in each phase, after Asi, Liu and Tian 2024), one choice for each run, which nobody has."""
_REAL = """Adult by the paper's split, drawn anew for each run: classes from the five numeric columns as they are written (a few capital gains are 99,999; nine in ten are 0). *Adult, capital*:
the gain or loss of those who have one. *RAND*: a year's medical costs of a person (statsmodels; eight columns). *Diamonds*: prices (plotnine; six numbers). For numbers: the mean absolute
error on held-out records over that of their median. Clipping is told what a large number of each column is, or ten times that."""
_GAPS = """`privopt reproduce neel2020-opsamp` runs OPSamp on the task of the OPDisc paper (n = 15,682, weights in {-1, 0, 1}) beside OPDisc and the exponential mechanism:
[noise against certified gap](figures/neel2020-opsamp-quick.md). It is private, and of no use there: at epsilon = 10 the accuracy is that of a coin where the others have 0.78 and 0.79, and at
100 it is 0.64 at most. Exact answers do not help: random tilts of the size that stability asks for outweigh the losses (by 34 at epsilon = 1, the plan says before any
data; by a fifth of the records still for n = 10^8 at epsilon = 10). A gap costs noise until it is cheaper to ask once and to cover the whole diameter: scales of 0.65 for exact answers, 0.78 for a
gap of 1 error, 2.2 for 100, 4.6 for 1000 and beyond (epsilon = 10, at most 500 draws). A search that is stopped on purpose proves gaps of up to 4,200 errors: refused where 1 or 100 were paid for,
released where 1000 were."""


if __name__ == "__main__":
    typer.run(main)

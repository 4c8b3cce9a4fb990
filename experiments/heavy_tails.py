"""Benchmark of robust mechanisms on heavy-tailed data: the paper's tasks, synthetic numbers and real tables.

    python -m privopt.experiments.heavy_tails [--output FOLDER] [--tables FOLDER] [--quick]

``heavy-tails.csv`` keeps the results of finished parts: the same command resumes an interrupted run. It then
writes ``heavy-tails.md``. ``--tables`` is a folder into which statsmodels and plotnine are unpacked, for
medical costs and prices: ``pip install --no-deps --target FOLDER statsmodels plotnine``. Times are from
one machine in one run: only their ratios are meaningful. Neighbours: replace-one, n public.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy import special
from sklearn.metrics import log_loss, roc_auc_score

from privopt.experiments.reproduce import wang_xiao2020 as descents
from privopt.experiments.reproduce.tables import spread
from privopt.experiments.workbench import localisation
from privopt.experiments.workbench.pages import filled
from privopt.experiments.workbench.resumable import machine, markdown
from privopt.experiments.workbench.study import Study
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

Floats = NDArray[np.float64]
EPSILONS = (0.1, 0.5, 1.0)
LINE, SIGNS, ADULT = descents.LINE, descents.SIGNS, "Adult, 28,000 + 2,000"
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


class Part(NamedTuple):
    """A cell of the study: fields that identify its lines, and the work that yields them."""

    about: dict[str, object]
    work: Callable[[], Iterator[Line]]

    def __str__(self) -> str:
        return ", ".join(map(str, self.about.values()))


# --- the kernel ------------------------------------------------------------------------------------------


def plain_mean(X: Floats, scale: float, beta: float) -> Floats:
    """Compute the soft-truncated mean by the printed expression in NumPy, correction included."""
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
    """Measure nanoseconds per entry, and by how many bytes per entry the process grows beside the data."""
    X = np.random.default_rng(0).standard_t(3, (n, 10))
    # So large that freed memory returns to the system: otherwise a later call would not grow the process.
    large = np.tile(X, (10, 1))
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
    """Return the peak growth of the resident memory of the process, in bytes; None except on Linux.

    The operating system counts, so that memory of compiled code is included; tracemalloc would leave it out.
    The peak is reset first. ``resource.getrusage`` would not do: it has the peak since the process began, or
    the peak of the parent process.
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
    """Measure errors of private means of numbers at epsilon = 1, delta = 1e-5."""
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
    """Measure |w - w*| for regression, and the angle between w and w* for classification.

    w* are the true weights; each run draws new records. Public facts: a norm of rows of 2 sqrt d and labels
    within 4, or ten times as much; moments of 10 (regression) and 1 (classification). delta = 1/n^2.
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
    """Measure classification of Adult by its five numeric columns, with a new split for each run."""
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
            yield Line("real", ADULT, kind, n, 5, epsilon, run, "log loss", value)
        for way, w in found.items():
            score = test @ w
            risk = log_loss(labels > 0, special.expit(np.clip(score, -30, 30)))
            where = ("real", ADULT, way, n, 5, epsilon, run)
            yield Line(*where, "AUC", float(roc_auc_score(labels > 0, score)))
            yield Line(*where, "log loss", float(risk))


@dataclass(frozen=True)
class Columns:
    """A regression on real columns.

    Attributes:
        sizes: a typical large value of each column.
        large: a typical large value of the label.
    """

    name: str
    X: Floats
    y: Floats
    sizes: Floats
    large: float


def regressions(tables: Path | None) -> Iterator[Columns]:
    """Yield the regressions: gains of capital and, if ``tables`` has them, medical costs and prices."""
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
    """Measure the mean absolute error on a random quarter of the records, held out.

    The error is divided by the error of predicting the median of these records.
    """
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
        Part({"part": "kernel"}, partial(kernel, 1000 if quick else 100_000)),
        Part({"part": "means"}, partial(means, 200 if quick else 10_000, 2 if quick else 20)),
    ]
    for e in EPSILONS[-1:] if quick else EPSILONS:
        for task in (LINE, SIGNS):
            found.append(Part({"task": task, "epsilon": e}, partial(paper, task, n, d, e, runs)))
        found.append(Part({"task": ADULT, "epsilon": e}, partial(adult, e, runs)))
        for one in regressions(tables):
            found.append(Part({"task": one.name, "epsilon": e}, partial(regression, one, e, runs)))
    return found


def table(frame: pd.DataFrame, part: str, measure: str, column: str) -> str:
    """Tabulate mean and standard deviation over runs, by mechanism and by the values of ``column``."""
    some = frame[(frame["part"] == part) & (frame["measure"] == measure)]
    lines = []
    for (task, mechanism), points in some.groupby(["task", "mechanism"], sort=False):
        values = points.groupby(column)["value"]
        cells = {f"{column} = {at:g}": spread(v.mean(), v.std()) for at, v in values}
        lines.append({"task": task, "mechanism": mechanism, **cells})
    return markdown(pd.DataFrame(lines).fillna(""))


def ratios(frame: pd.DataFrame) -> str:
    """Tabulate ratios of mean errors on the paper's tasks: a row per pair of mechanisms."""
    statistics = f"{_STATISTICS}, good norm"
    pairs = (
        (LINE, UNITS, statistics),
        (LINE, UNITS, descents.RGD),
        (LINE, descents.PRINTED, descents.RGD),
        (LINE, descents.BALANCED, descents.RGD),
        (LINE, descents.WIDE, descents.GOOD),
        (LINE, LOCALISED, UNITS),
        (LINE, CLIPPED, UNITS),
        (SIGNS, UNITS, f"{_LOGISTIC}, clipped, good norm"),
        (SIGNS, LOCALISED, UNITS),
        (SIGNS, CLIPPED, UNITS),
    )
    some = frame[frame["part"] == "paper"]
    means: Any = some.groupby(["task", "mechanism", "epsilon"])["value"].mean()
    lines = []
    for task, one, other in pairs:
        if (task, one) in means.index and (task, other) in means.index:
            quotients = means[task, one] / means[task, other]
            cells = {f"epsilon = {e:g}": f"{ratio:.2g}" for e, ratio in quotients.items()}
            lines.append({"task": task, "error of": one, "divided by that of": other, **cells})
    return markdown(pd.DataFrame(lines))


def least_errors(frame: pd.DataFrame) -> str:
    """Tabulate, per regression and epsilon, which mechanism has the least mean absolute error.

    The last column is the error of the default divided by the least.
    """
    some = frame[frame["measure"] == "mean absolute error"]
    means: Any = some.groupby(["task", "epsilon", "mechanism"], sort=False)["value"].mean()
    lines = []
    for (task, epsilon), errors in means.groupby(level=[0, 1], sort=False):
        found = errors.droplevel([0, 1])
        where = {"task": task, "epsilon": f"{epsilon:g}"}
        ratio = f"{found[UNITS] / found.min():.3f}"
        lines.append({**where, "least": found.idxmin(), "default / least": ratio})
    return markdown(pd.DataFrame(lines))


def page(frame: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    line, signs = descents.MEASURES[LINE], descents.MEASURES[SIGNS]
    places = {
        "ratios": ratios(frame),
        "least": least_errors(frame),
        "kernel-times": table(frame, "kernel", "ns per entry", "n"),
        "kernel-memory": table(frame, "kernel", "peak bytes per entry", "n"),
        "means-errors": table(frame, "means", "error", "n"),
        "means-bounds": table(frame, "means", "95% bound", "n"),
        "line-errors": table(frame, "paper", line, "epsilon"),
        "sign-angles": table(frame, "paper", signs, "epsilon"),
        "auc": table(frame, "real", "AUC", "epsilon"),
        "log-loss": table(frame, "real", "log loss", "epsilon"),
        "absolute-errors": table(frame, "real", "mean absolute error", "epsilon"),
        "machine": machine(),
    }
    return filled("heavy-tails", places)


STUDY = Study[Part](
    "heavy-tails",
    Line,
    _KEY,
    compute=lambda part: list(part.work()),
    is_finished=lambda kept, part: bool(kept.matching(**part.about)),
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")] = Path("heavy-tails"),
    tables: Annotated[
        Path | None, typer.Option(help="Folder that contains statsmodels and plotnine.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Number of runs of each setting.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small data and one run, as a test.")] = False,
) -> None:
    """Measure the missing parts, and write the page."""
    STUDY.run(output, parts(quick, tables, runs))


if __name__ == "__main__":
    typer.run(main)

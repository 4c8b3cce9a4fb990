"""Means and descents on unbounded records, measured: ``python -m privopt.experiments.heavy_tails``.

Prints the tables of ``experiments/docs/heavy-tails.md``. Times are of this machine, in one run; only their
ratios say something.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.heavy_tails.descent import Descent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.perturbed_leader import TiltedMean
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.soft_truncation import soft_mean
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk
from privopt.problems.datasets.heavy_tails import make_lognormal_line

Floats = NDArray[np.float64]
_DELTA = 1e-5


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain_mean(X: Floats, scale: float, beta: float) -> Floats:
    """The printed expression in NumPy, correction and all."""
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


def kernel() -> str:
    """Nanoseconds per entry of the fused pass, of the NumPy expression, and of one exponential per entry."""
    X = np.random.default_rng(0).standard_t(3, (100_000, 10))
    ways: dict[str, Callable[[], object]] = {
        "fused pass": lambda: soft_mean(X, 50.0, 3.0),
        "NumPy, one exp per entry": lambda: np.exp(X),
        "NumPy, the printed expression": lambda: plain_mean(X, 50.0, 3.0),
    }
    for way in ways.values():
        way()
    best = {name: min(_seconds(way) for _ in range(5)) / X.size * 1e9 for name, way in ways.items()}
    least = best["fused pass"]
    return table(
        ("way", "ns per entry", "times the fused pass"),
        [(name, f"{ns:.2f}", f"{ns / least:.1f}") for name, ns in best.items()],
    )


def _seconds(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def means(n: int = 10_000, runs: int = 40) -> str:
    """Root mean squared errors of private means of numbers, epsilon = 1."""
    rng, noise = np.random.default_rng(0), NoiseSource(insecure_seed=0)
    laws: dict[str, tuple[Callable[[], Floats], float, float]] = {
        "Pareto(2.5)": (lambda: rng.pareto(2.5, (n, 1)) + 1, 5 / 3, 5.0),
        "log-normal(0, 1)": (lambda: rng.lognormal(0, 1, (n, 1)), math.exp(0.5), math.exp(2)),
        "t(2.5)": (lambda: rng.standard_t(2.5, (n, 1)), 0.0, 5.0),
    }
    rows = []
    for name, (draw, mean, moment) in laws.items():
        budget: dict[str, Any] = {"epsilon": 1.0, "delta": _DELTA}
        plans = (
            RobustMean.plan(n, 1, moment=moment, **budget),
            RobustMean.plan(
                n, 1, moment=moment, truncation=SoftTruncation.as_printed(n, moment, 0.05), **budget
            ),
            TrimmedMean.plan(n, 1, mean_range=(-10.0, 10.0), **budget),
        )
        data = [draw() for _ in range(runs)]
        found = [[plan.release(X, noise).point[0] - mean for X in data] for plan in plans]
        plain = [float(np.mean(X)) - mean for X in data]
        first = plans[0]
        assert isinstance(first, RobustMean)
        errors = [f"{math.sqrt(np.mean(np.square(e))):.3f}" for e in (*found, plain)]
        rows.append((name, *errors, f"{first.error_bound(0.05):.3f}"))
    columns = (
        "law",
        "robust, balanced",
        "robust, printed scale",
        "trimmed",
        "mean, not private",
        "95% bound",
    )
    return table(columns, rows)


def descents(runs: int = 5) -> str:
    """|w - w*| on the line with log-normal noise: median over runs."""
    rows = []
    for n, d, epsilon in [(100_000, 10, 1.0), (100_000, 10, 0.1), (10_000, 10, 1.0), (100_000, 30, 1.0)]:
        X, y, w = make_lognormal_line(n, d, seed=0)
        risk, ball, noise = UnclippedRisk(X, y, PLAIN_SQUARES), L2Ball(d, 2.0), NoiseSource(insecure_seed=0)
        moment = 10.0
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA}
        printed = SoftTruncation.as_printed(n, moment, 0.05)
        guess = Descent()
        robust = RobustGradientDescent.plan(risk.facts, ball, moment=moment, descent=guess, **budget)
        plans = [
            robust,
            RobustGradientDescent.plan(
                risk.facts, ball, moment=moment, steps=20, truncation=printed, descent=guess, **budget
            ),
            *(
                TrimmedGradientDescent.plan(
                    risk.facts, ball, mean_range=(-k, k), steps=5, descent=guess, **budget
                )
                for k in (2.0, 20.0)
            ),
        ]
        errors = [
            np.median([np.linalg.norm(p.release(risk, noise).point - w) for _ in range(runs)]) for p in plans
        ]
        quiet = plans[1].without_noise(risk)
        rows.append(
            (str(n), str(d), f"{epsilon:g}", *(f"{e:.3f}" for e in (*errors, np.linalg.norm(quiet - w))))
        )
    columns = (
        *("n", "d", "epsilon", "robust-gd", "robust-gd, printed scale, 20 steps", "trimmed-gd, b - a = 4"),
        *("trimmed-gd, b - a = 40", "robust descent, not private"),
    )
    return table(columns, rows)


def gaps() -> str:
    """What an oracle's gap costs OPSamp, on the task of the OPDisc paper: n = 15,682, {-1, 0, 1}^23."""
    rows = []
    for alpha in (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0):
        plan = TiltedMean.plan(
            np.full(23, 2.0), lipschitz=1.0, n_records=15_682, epsilon=1.0, delta=15_682.0**-2, alpha=alpha
        )
        printed = 250 * plan.rate * 23**2 * 2 + alpha / 10
        rows.append((f"{alpha:g}", str(plan.draws), f"{plan.laplace.scale:.3f}", f"{printed:.1f}"))
    return table(
        ("gap alpha, in errors", "draws", "Laplace scale", "printed stability terms, same rate"), rows
    )


def main() -> None:
    """Print every table."""
    for title, made in (("Kernel", kernel), ("Means", means), ("Descents", descents), ("Gaps", gaps)):
        print(f"## {title}\n\n{made()}\n", flush=True)


if __name__ == "__main__":
    typer.run(main)

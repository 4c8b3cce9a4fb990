"""Wang, Chen and Xu (2019), Theorems 7 to 9: escapes from saddle points, and local minima that are found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from privopt.experiments import nonconvex
from privopt.experiments.reproduce import wang_chen_xu2019_risk as paper
from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import bound_power, earned, means, pivot, power_law
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.regularizers import Vector
from privopt.problems.nonconvex.planted import Planted, strict_saddle

LEFT, FOUND, GAMMA, CURVATURE = "left", "found", "gamma", "least curvature of the saddle"
TRUE, ALPHA = "found, and true", "alpha"
LEAST, START = "least alpha of an iterate", "alpha of the start"
_PROBLEMS = {
    "quartic, d = 2": "Quartic in the plane",
    "phase retrieval, d = 3": "Phase retrieval in three dimensions",
}
FREE, CONSTRAINED = "dp-sosp", "dp-gd-so"
_CURVES = (FREE, CONSTRAINED, "dp-gld")
_FEATURES, _DIMENSIONS = "quartic, against d", (4, 8, 16)
_MANY = {FREE: 100_000, CONSTRAINED: 10_000_000}  # n, where d is varied
_PATH, _WIDE_PATH = "quartic, d = 2, trajectory", "quartic, against d, trajectory"
_THEOREMS = {FREE: "Theorems 7 and 8", CONSTRAINED: "Theorem 9"}


def sizes(quick: bool, curve: str = FREE) -> tuple[int, ...]:
    """Return values of n; private tests relative to a set need more records."""
    if curve == CONSTRAINED:
        found = (20_000, 60_000, 200_000, 600_000, 2_000_000)
        return found if quick else (*found, 20_000_000)
    return (1_000, 5_000, 20_000) if quick else (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


def runs(quick: bool) -> int:
    return 6 if quick else 20


def cells(quick: bool) -> list[Cell]:
    found = [Cell(p, curve, n) for p in _PROBLEMS for curve in _CURVES for n in sizes(quick, curve)]
    found += [Cell(_FEATURES, curve, d) for curve in _THEOREMS for d in _DIMENSIONS]
    found += [Cell(_PATH, FREE, n) for n in sizes(quick)]
    return found + [Cell(_WIDE_PATH, FREE, d) for d in _DIMENSIONS]


def _problem(cell: Cell) -> tuple[Planted, int]:
    """Return the problem of a cell, and n."""
    if cell.panel in (_FEATURES, _WIDE_PATH):
        return strict_saddle(400, int(cell.level)), _MANY[cell.curve]
    return nonconvex.saddles()[cell.panel.removesuffix(", trajectory")], int(cell.level)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    problem, n = _problem(cell)
    if cell.panel in (_PATH, _WIDE_PATH):
        yield from _along(cell, problem, n, quick)
        return
    for run in range(runs(quick)):
        measured = nonconvex.searched(problem, cell.curve, n, 1.0, run)
        for measure in (LEFT, FOUND, GAMMA, ALPHA):  # of which the last two are public
            if measure in measured:
                yield Point(run, cell.level, measure, measured[measure])
        if FOUND in measured:
            yield Point(run, cell.level, TRUE, measured[FOUND] * measured["true"])
    if cell.curve in _THEOREMS:
        least = float(np.linalg.eigvalsh(problem.risk.hessian(problem.saddle))[0])
        yield Point(0, cell.level, CURVATURE, least)


def _along(cell: Cell, problem: Planted, n: int, quick: bool) -> Iterator[Point]:
    """Measure the least alpha, by exact gradients and Hessians, in the later half of the iterates."""
    plan = nonconvex.planned(nonconvex.SADDLED[FREE], problem, n, 1.0)
    for run in range(runs(quick)):
        released = plan.release(problem.risk, NoiseSource(insecure_seed=run), start=problem.saddle)
        path = released.trajectory[len(released.trajectory) // 2 :]
        yield Point(
            run, cell.level, LEAST, min(alpha_of(problem, w) for w in path[:: max(1, len(path) // 50)])
        )
    yield Point(0, cell.level, START, alpha_of(problem, problem.saddle))


def alpha_of(problem: Planted, w: Vector) -> float:
    """Return the least alpha with |g| <= alpha and H >= -sqrt(rho alpha), rho the Lipschitz constant of H."""
    least = float(np.linalg.eigvalsh(problem.risk.hessian(w))[0])
    slope = float(np.linalg.norm(problem.risk.gradient(w)))
    return max(slope, min(least, 0.0) ** 2 / problem.risk.facts.hessian_lipschitz)


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for problem, title in _PROBLEMS.items():
        here = frame[frame["panel"] == problem]
        curves = [
            Curve(name, colour(name), averaged(here[here["curve"] == name], LEFT).assign(std=0.0))
            for name in _CURVES
        ]
        panels.append(Panel(title, "n", "share of runs that left the saddle", curves, ylim=(-0.05, 1.05)))
    return panels_figure(panels)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    measures = (LEFT, FOUND, TRUE, ALPHA, GAMMA, CURVATURE, LEAST, START)
    by_features = frame["panel"].isin([_FEATURES, _WIDE_PATH])
    parts = [
        pivot(frame[~by_features], measures, "n = {:,.0f}"),
        pivot(frame[by_features], measures, "d = {:g}"),
    ]
    return pd.concat(parts).fillna("")


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for problem, title in _PROBLEMS.items():
        for curve in _THEOREMS:
            found += [_left(frame, problem, title, curve), _tested(frame, problem, title, curve)]
            found.append(_scaling(frame, problem, title, curve))
    found += [_growth(frame, curve) for curve in _THEOREMS]
    return [*found, _passed(frame, _PATH), _passed(frame, _WIDE_PATH)]


def _left(frame: pd.DataFrame, problem: str, title: str, curve: str) -> Verdict:
    shares = means(frame, problem, LEFT)[curve]
    last, first = float(shares.iloc[-1]), float(shares.iloc[0])
    words = ", ".join(f"{100 * v:.0f}% at n = {n:,.0f}" for n, v in shares.items())
    return Verdict(
        f"{_THEOREMS[curve]}, {curve}, {title}: for large n saddles are left with high probability",
        Agreement.YES if last >= 0.9 else Agreement.PARTLY if last > first else Agreement.NO,
        f"Share of runs, all started on the saddle, that end at least half of the way down: {words}.",
    )


def _told(frame: pd.DataFrame, problem: str, curve: str) -> pd.Index[float]:
    """Return the values of n with a gamma for which the saddle itself does not pass the test."""
    gammas = means(frame, problem, GAMMA)[curve]
    saddle = float(means(frame, problem, CURVATURE)[curve].iloc[0])
    return gammas[gammas < -saddle].index


def _tested(frame: pd.DataFrame, problem: str, title: str, curve: str) -> Verdict:
    """Judge the points that passed the private test by their exact gradients and Hessians."""
    shares, gammas = (means(frame, problem, measure)[curve] for measure in (TRUE, GAMMA))
    told = _told(frame, problem, curve)
    right = sum(float(shares[n]) >= 0.9 for n in told)
    words = ", ".join(
        f"{gammas[n]:.3g} at n = {n:,.0f} ({100 * shares[n]:.0f}% found and true)" for n in gammas.index
    )
    saddle = float(means(frame, problem, CURVATURE)[curve].iloc[0])
    return Verdict(
        f"{_THEOREMS[curve]}, {curve}, {title}: an approximate local minimum is found with high probability",
        held(right, len(told)) if len(told) else Agreement.NO,
        f"Least curvature at the saddle: {saddle:.3g}; γ: {words}. If γ is {-saddle:.3g} or more, the "
        f'saddle itself passes, and "found" says nothing: {len(told)} of {len(gammas)} values of n are left.',
    )


def _scaling(frame: pd.DataFrame, problem: str, title: str, curve: str) -> Verdict:
    """Judge the power of n in alpha where points were found: n of order log(n) / alpha^2 suffices."""
    alphas, shares = (means(frame, problem, measure)[curve] for measure in (ALPHA, TRUE))
    values = alphas.rename_axis("at").reset_index(name="value")
    power = power_law(values)
    bound = bound_power(values, lambda n: np.sqrt(np.log(n) / n))
    right = int((shares >= 0.9).sum())
    return Verdict(
        f"{_THEOREMS[curve]}, {curve}, {title}: α falls at least like √(log(n) / n)",
        earned(power.at_most(bound), right, len(shares)),
        f"Measured power: {power}, that of the bound: {bound:.2f}; points found are α-SOSP in at "
        f"least 90% of the runs at {right} of {len(shares)} values of n.",
    )


def _growth(frame: pd.DataFrame, curve: str) -> Verdict:
    """Judge the power of d in alpha where points were found: n of order d / alpha^2 suffices."""
    alphas, shares = (means(frame, _FEATURES, measure)[curve] for measure in (ALPHA, TRUE))
    power = power_law(alphas.rename_axis("at").reset_index(name="value"))
    right = int((shares >= 0.9).sum())
    return Verdict(
        f"{_THEOREMS[curve]}, {curve}, quartic: α grows at most like d to the power 0.5",
        earned(power.grows_at_most(0.5), right, len(shares)),
        f"Measured power: {power}; points found are α-SOSP in at least 90% of the runs at {right} of "
        f"{len(shares)} values of d.",
    )


def _passed(frame: pd.DataFrame, panel: str) -> Verdict:
    """Judge Theorem 7, n of order sqrt(d) / alpha^2, where an iterate has a smaller alpha than the start."""
    here = frame[(frame["panel"] == panel) & (frame["curve"] == FREE)]
    values = here[here["measure"] == LEAST]
    mean = here.groupby(["measure", "level"])["value"].mean()
    better, of = int((mean[LEAST] < mean[START]).sum()), len(mean[START])
    power = power_law(values)
    if panel == _PATH:
        bound = bound_power(values, lambda n: np.sqrt(np.log(n) / n))
        agreement, how = power.at_most(bound), "falls at least like √(log(n) / n)"
    else:
        bound = 0.25
        agreement, how = power.grows_at_most(bound), "grows at most like d to the power 0.25"
    return Verdict(
        f"Theorem 7, {FREE}, {panel}: the least α of an iterate {how}",
        earned(agreement, better, of),
        f"Measured power: {power}, that of the bound: {bound:.2f}; smaller than that of the start at "
        f"{better} of {of}.",
    )


FIGURE = Reproduction(
    name="wang-chen-xu2019-minima",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Theorems 7 to 9 (approximate local minima)",
    shows=(
        "Theorems, no pictures. For n large enough a private descent passes an approximate local minimum, "
        "and a private test of its iterates finds it, with high probability: saddle points are left; over "
        "a set, too (Algorithm 6). For an α-SOSP (approximate second-order stationary point) to be selected, "
        "n of order d / α² suffices; for one to be among the iterates, n of order √d / α²."
    ),
    setting=lambda quick: (
        "Problems with a known saddle, where every run starts; each of 400 records counts n / 400 times. ε = "
        f"1, δ = 1e-6; neighbours replace one record, n is public; {runs(quick)} runs, with privopt's "
        "defaults and sound noise. A run has left the saddle if it ends at least half of the way from the "
        "saddle's value to the least one. Found: an iterate passed the private test of a gradient of at most "
        "α and a curvature of at least -γ. True: its exact gradient and Hessian pass this test, too. The "
        "least α of an iterate, by exact gradients and Hessians, is taken over 50 or more iterates of the "
        f"later half. dp-gd-so runs over a ball of radius 1.2. Where d is varied, the radius is 2, and n is "
        f"{_MANY[FREE]:,} ({_MANY[CONSTRAINED]:,} for dp-gd-so)."
    ),
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Share of runs that left the saddle, against n.",
    table=table,
    verdicts=verdicts,
)

"""Wang, Chen and Xu (2019), section 5: frequency of escapes from a saddle point against n."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from privopt.experiments import nonconvex
from privopt.experiments.reproduce import wang_chen_xu2019_risk as paper
from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import means, pivot
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure

LEFT, FOUND, GAMMA, CURVATURE = "left", "found", "gamma", "least curvature of the saddle"
_PROBLEMS = {
    "quartic, d = 2": "Quartic in the plane",
    "phase retrieval, d = 3": "Phase retrieval in three dimensions",
}
_CURVES = ("dp-sosp", "dp-gld")


def sizes(quick: bool) -> tuple[int, ...]:
    return (1_000, 5_000, 20_000) if quick else (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


def runs(quick: bool) -> int:
    return 6 if quick else 20


def cells(quick: bool) -> list[Cell]:
    return [Cell(p, curve, n) for p in _PROBLEMS for curve in _CURVES for n in sizes(quick)]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    part = paper.part_of("saddle", cell.panel, cell, 1.0, runs(quick))
    for run in range(part.draws):
        measured = part.work(part, run)
        for measure in (LEFT, FOUND, GAMMA):  # gamma is public, and told with the first run
            if measure in measured:
                yield Point(run, cell.level, measure, measured[measure])
    if cell.curve == "dp-sosp":
        problem = nonconvex.saddles()[cell.panel]
        least = float(np.linalg.eigvalsh(problem.risk.hessian(problem.saddle))[0])
        yield Point(0, cell.level, CURVATURE, least)


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


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for problem, title in _PROBLEMS.items():
        shares = means(frame, problem, LEFT)["dp-sosp"]
        last, first = float(shares.iloc[-1]), float(shares.iloc[0])
        words = ", ".join(f"{100 * v:.0f}% at n = {n:,.0f}" for n, v in shares.items())
        found.append(
            Verdict(
                f"{title}: for large n saddles are left with high probability",
                Agreement.YES if last >= 0.9 else Agreement.PARTLY if last > first else Agreement.NO,
                f"dp-sosp ends at least half of the way down in {words} of the runs, all started on the "
                "saddle.",
            )
        )
        found.append(_tested(frame, problem, title))
    return found


def _tested(frame: pd.DataFrame, problem: str, title: str) -> Verdict:
    """Judge the test where it says anything: the saddle itself passes for gamma beyond its curvature."""
    shares, gammas = (means(frame, problem, measure)["dp-sosp"] for measure in (FOUND, GAMMA))
    saddle = float(means(frame, problem, CURVATURE)["dp-sosp"].iloc[0])
    told = gammas[gammas < -saddle].index
    right = sum(float(shares[n]) >= 0.9 for n in told)
    words = ", ".join(f"{gammas[n]:.3g} at n = {n:,.0f} ({100 * shares[n]:.0f}% found)" for n in gammas.index)
    return Verdict(
        f"{title}: an approximate local minimum is found with high probability",
        held(right, len(told)) if len(told) else Agreement.NO,
        f"Curvature at the saddle: {saddle:.3g}; γ: {words}. Where γ is beyond it the saddle itself passes, "
        f'and "found" says nothing: that leaves {len(told)} of {len(gammas)} values of n.',
    )


FIGURE = Reproduction(
    name="wang-chen-xu2019-minima",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="approximate local minima against n",
    shows=(
        "Theorems, no pictures. For n large enough a private descent passes an approximate local minimum, "
        "and a private test of its iterates finds it, with high probability: saddle points are left."
    ),
    setting=lambda quick: (
        "Problems with a known saddle, where every run starts; each record stands for n / 400. ε = 1, δ = "
        f"1e-6, replacing one record, n public; {runs(quick)} runs, with privopt's defaults and sound noise. "
        "A run has left the saddle if it ends at least half of the way from the saddle's value to the least "
        "one. Found: an iterate passed the private test for (α, γ), curvature of at least -γ."
    ),
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Share of runs that left the saddle, against n.",
    table=lambda frame: pivot(frame, (LEFT, FOUND, GAMMA, CURVATURE), "n = {:,.0f}"),
    verdicts=verdicts,
)

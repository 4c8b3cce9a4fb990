"""Neel, Roth, Vietri and Wu (2020), Algorithm 2 on the task of Figure 1: the cost of a certified gap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pandas as pd

from privopt.experiments.reproduce import neel2020_figure1 as figure1
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import means, spread
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.experiments.workbench.runs import accuracy
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.errors import CertificateError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import PreparedOracle
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.task import Task
from privopt.problems.datasets.adult import load_adult23, load_adult23_test
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice

BUDGET, GAP = "budgets", "gaps"
EXACT, EARLY = "OPSamp, exact answers", "OPSamp, stopped early"
OPDISC, EXPONENTIAL = figure1.OPDISC, figure1.EXPONENTIAL
_GAP_EPSILON = 10.0
# An early stop: the number of polls before the one that stops the search; the declared gap, in errors.
_POLLS, _DECLARED = 2, 5000.0
_LATTICE = IntegerLattice(-1, 1, dimension=23)
_ACCURACY, _NOISE, _WORST, _RELEASED = "training accuracy", "Laplace scale", "largest gap", "released"


def epsilons(quick: bool) -> tuple[float, ...]:
    return (1.0, 10.0, 100.0) if quick else (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def alphas(quick: bool) -> tuple[float, ...]:
    return (1.0, 100.0, 1000.0, _DECLARED) if quick else (0.1, 1.0, 10.0, 100.0, 1000.0, _DECLARED)


def runs(quick: bool) -> int:
    return 3 if quick else 5


def draws(quick: bool) -> int | None:
    """Return m, the number of answers that are averaged; None: the plan's default."""
    return 500 if quick else None


def cells(quick: bool) -> list[Cell]:
    budgets = (EXACT, EARLY, OPDISC, EXPONENTIAL)
    return [Cell(BUDGET, c, e) for c in budgets for e in epsilons(quick)] + [
        Cell(GAP, c, a) for c in (EXACT, EARLY) for a in alphas(quick)
    ]


@dataclass
class StoppedOracle:
    """Oracle that is stopped once it has polled its limits a given number of times; keeps the largest gap.

    The limit is a number of polls on one thread, and not a time, so that a run can be repeated exactly.
    """

    prepared: PreparedOracle
    polls: int
    worst: float = field(default=0.0)

    @property
    def problem(self) -> Any:
        return self.prepared.problem

    @property
    def task(self) -> Task:
        return self.prepared.task

    def minimize(self, perturbation: Any, limits: Limits | None = None) -> Any:
        asked = itertools.count()
        answer = self.prepared.minimize(perturbation, Limits(cancelled=lambda: next(asked) >= self.polls))
        self.worst = max(self.worst, answer.certificate.gap)
        return answer


@lru_cache(maxsize=1)
def _prepared() -> PreparedOracle:
    X, y, _ = load_adult23()
    return NativeOracle(threads=1).prepare(ZeroOneHalfspace(X, y, _LATTICE), Task.LINEAR)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    if cell.curve in (OPDISC, EXPONENTIAL):
        kept = range(runs(quick))
        found = figure1.compute(Cell(figure1.SOUND, cell.curve, cell.level), quick)
        yield from itertools.takewhile(lambda p: p.run in kept, found)
    else:
        yield from _lattice(cell, quick)


def _lattice(cell: Cell, quick: bool) -> Iterator[Point]:
    (X, y, _), (X_test, y_test, _) = load_adult23(), load_adult23_test()
    facts: dict[str, Any] = {
        "n_records": len(y),
        "epsilon": _epsilon(cell.panel, cell.level),
        "delta": 1 / len(y) ** 2,
        "alpha": _alpha(cell.panel, cell.curve, cell.level),
    }
    plan = OPSamp.plan(ZeroOneHalfspace, _LATTICE, **facts)
    if (most := draws(quick)) is not None and plan.mean.draws > most:
        plan = OPSamp.plan(ZeroOneHalfspace, _LATTICE, draws=most, **facts)
    for run in range(runs(quick)):
        oracle: Any = _prepared() if cell.curve == EXACT else StoppedOracle(_prepared(), _POLLS)
        yield Point(run, cell.level, _NOISE, plan.mean.laplace.scale)
        yield Point(run, cell.level, "draws", plan.mean.draws)
        try:
            release = plan.release(oracle, NoiseSource(insecure_seed=run))
        except CertificateError:  # nothing is released
            yield Point(run, cell.level, _RELEASED, 0.0)
            yield Point(run, cell.level, _WORST, oracle.worst)
            continue
        yield Point(run, cell.level, _RELEASED, 1.0)
        yield Point(run, cell.level, _WORST, release.worst_gap)
        yield Point(run, cell.level, _ACCURACY, accuracy(release.point, X, y))
        yield Point(run, cell.level, "test accuracy", accuracy(release.point, X_test, y_test))


def _epsilon(panel: str, level: float) -> float:
    return level if panel == BUDGET else _GAP_EPSILON


def _alpha(panel: str, curve: str, level: float) -> float:
    """Return the declared gap, which the plan pays for with noise."""
    return level if panel == GAP else {EXACT: 0.0, EARLY: _DECLARED}[curve]


_LOOK: dict[str, tuple[str, Any]] = {
    EXACT: ("opsamp", ""),
    EARLY: ("opsamp", "dashed"),
    OPDISC: ("opdisc", ""),
    EXPONENTIAL: ("exponential", ""),
}


def draw(frame: pd.DataFrame) -> Figure:
    def curves(panel: str, measure: str) -> list[Curve]:
        here = frame[(frame["panel"] == panel) & (frame["measure"] == measure)]
        return [
            Curve(name, colour(look), averaged(here[here["curve"] == name], measure), dashes)
            for name, (look, dashes) in _LOOK.items()
            if (here["curve"] == name).any()
        ]

    gap = f"gap that is paid for, in errors (ε = {_GAP_EPSILON:g})"
    return panels_figure(
        [
            Panel("The task of Figure 1", "ε", _ACCURACY, curves(BUDGET, _ACCURACY), ylim=(0.3, 0.82)),
            Panel("Noise against certified gap", gap, "Laplace scale of a weight", curves(GAP, _NOISE)[:1]),
            Panel("Accuracy against certified gap", gap, _ACCURACY, curves(GAP, _ACCURACY), ylim=(0.3, 0.82)),
        ]
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Tabulate planned, proved and measured values, a line per setting."""
    lines = []
    for key, points in frame.groupby(["panel", "curve", "level"], sort=False):
        panel, curve, level = cast("tuple[str, str, float]", key)
        values = {str(m): v["value"] for m, v in points.groupby("measure", sort=False)}
        paid = f"{_alpha(panel, curve, level):g}" if _NOISE in values else ""
        line = {"mechanism": curve, "ε": f"{_epsilon(panel, level):g}", "gap paid for": paid}
        for m in ("draws", _NOISE):
            line[m] = f"{values[m].iloc[0]:.3g}" if m in values else ""
        line[_WORST] = f"{values[_WORST].max():.3g}" if _WORST in values else ""
        line["refused"] = f"{(values[_RELEASED] == 0).mean():.0%}" if _RELEASED in values else ""
        for m in (_ACCURACY, "test accuracy"):
            line[m] = spread(values[m].mean(), values[m].std()) if m in values else ""
        lines.append(line)
    return pd.DataFrame(lines)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = means(frame, BUDGET, _ACCURACY)
    verdicts = []
    for ours, rival in ((EXACT, EXPONENTIAL), (EXACT, OPDISC)):
        lead = (found[ours] - found[rival]).dropna()
        each = ", ".join(f"{100 * v:+.1f} at ε = {e:g}" for e, v in lead.items())
        ahead = (lead > 0) & (found[ours] > figure1.CONSTANT).reindex(lead.index)
        agreement = held(int(ahead.sum()), len(lead)).beside
        verdicts.append(Verdict(f"{ours} is ahead of {rival}", agreement, f"In percentage points: {each}."))
    noise = means(frame, GAP, _NOISE)[EXACT]
    grows = int((np.diff(noise) >= 0).sum()) if noise.iloc[-1] > noise.iloc[0] else 0
    verdicts.append(
        Verdict(
            "The larger the gap that is paid for, the more noise, up to that of a single answer",
            held(grows, len(noise) - 1),
            f"Laplace scales: {', '.join(f'{v:.2f} for a gap of {a:g}' for a, v in noise.items())}. Weights "
            f"are within [-1, 1]. The scale for a single answer is {46 / _GAP_EPSILON:g}.",
        )
    )
    early = frame[(frame["panel"] == GAP) & (frame["curve"] == EARLY)]
    runs_of = early.pivot_table(index=["level", "run"], columns="measure", values="value").reset_index()
    right = (runs_of[_RELEASED] == 1) == (runs_of[_WORST] <= runs_of["level"])
    words = ". ".join(
        f"Gap paid for {a:g}: {(r[_RELEASED] == 1).sum()} of {len(r)} released, largest proved gap "
        f"{r[_WORST].max():,.0f}"
        for a, r in runs_of.groupby("level")
    )
    verdicts.append(
        Verdict(
            "If an oracle is stopped early, there is a release if and only if its proved gap was paid for",
            held(int(right.sum()), len(right)),
            f"{words}.",
        )
    )
    return verdicts


def setting(quick: bool) -> str:
    limited = f" At most {draws(True)} draws, which costs noise." if quick else ""
    return (
        "The records and the split of Figure 1: n = 15,682, d = 23, δ = 1/n²; neighbours replace one record, "
        f"n is public. OPSamp: weights in {{-1, 0, 1}}, 0/1 losses, the native search. The search is exact, "
        f"or stopped after {_POLLS} polls of its limits, with a gap of {_DECLARED:,.0f} errors declared and "
        "paid for. The rate and the number of draws follow from the public facts. The constants are derived "
        "anew, and are smaller than the printed ones. "
        f"{runs(quick)} runs.{limited}"
    )


FIGURE = Reproduction(
    name="neel2020-opsamp",
    paper=figure1.PAPER,
    cite=figure1.CITE,
    figure="Algorithm 2 (OPSamp) on the task of Figure 1",
    shows=(
        "No pictures. OPSamp releases the mean of m answers to randomly tilted problems, with Laplace noise "
        "that grows with the gap alpha of the oracle. It is private whatever the oracle answers within "
        "this gap."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption=(
        "Mean training accuracy and one standard deviation: OPSamp against ε beside OPDisc and the "
        "exponential mechanism; the noise that a certified gap costs, and the accuracy at this noise. Half "
        "of the records are in each class, so that a coin has accuracy 0.5."
    ),
    table=table,
    verdicts=verdicts,
)

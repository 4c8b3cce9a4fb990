"""Neel, Roth, Vietri and Wu (2020), section 3.1, Theorems 5 to 7: spacing of lattices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from privopt.experiments.reproduce import neel2020_figure1 as figure1
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import spread
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.discrete.rspm import GaussianRSPM
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import PreparedOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.lipschitz import HingeHalfspace

OPDISC, RSPM, OPSAMP = "OPDisc", "RSPM", "OPSamp, hinge loss"
PRINTED = ", printed noise"
CURVES = (OPDISC, RSPM, OPDISC + PRINTED, RSPM + PRINTED)
CONVEX = "convex loss, d = 2"
EXCESS, BOUND, CONSTANT, BEST = "excess loss", "bound", "excess of a constant", "least loss"
# The theorems hold with probability 1 - beta.
BETA = 0.05
GROWING = "d = 4, τ = 1/2"
_EPSILON = 1.0
# Numbers of records: of the comparison, few enough for noise to matter, and of the convex problem.
_FEW, _MANY = 2_000, 1_000_000
_ROWS, _LARGEST, _FLIPPED = 300, 3, 0.1
# Lattice of the convex problem: weights in [-_WIDE, _WIDE]^2, margin _MARGIN, rows of norm _NORM.
_WIDE, _MARGIN, _NORM = 4, 4, 4.0


class Table(NamedTuple):
    """Records as few distinct rows with counts.

    Attributes:
        X: integer features, shape (rows, d).
        y: labels -1 or +1.
        counts: the number of records of each row; n in all.
    """

    X: np.ndarray[Any, np.dtype[np.int64]]
    y: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]]


def spacings(quick: bool) -> dict[int, tuple[int, ...]]:
    """Return 1/tau for each number of features d."""
    most = {2: (1, 2, 4, 8, 16), 4: (1, 2, 4, 8), 6: (1, 2, 3)}
    return {2: most[2], 4: most[4][:3], 6: most[6][:2]} if quick else most


def epsilons(quick: bool) -> tuple[float, ...]:
    return (10.0, 100.0, 1000.0) if quick else (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def sizes(quick: bool) -> tuple[int, ...]:
    """Return the numbers of records n, for the bounds against measurement."""
    return (2_000, 6_000, 20_000, 200_000) if quick else (2_000, 6_000, 20_000, 60_000, 200_000, 600_000)


def runs(quick: bool) -> int:
    return 60 if quick else 400


def cells(quick: bool) -> list[Cell]:
    lattices = [
        Cell(_panel(d), curve, 1 / k) for d, ks in spacings(quick).items() for curve in CURVES for k in ks
    ]
    growing = [Cell(GROWING, curve, n) for curve in (OPDISC, RSPM) for n in sizes(quick)]
    return [*lattices, *growing, *(Cell(CONVEX, OPSAMP, e) for e in epsilons(quick))]


def _panel(d: int) -> str:
    return f"d = {d}"


@lru_cache(maxsize=4)
def records(d: int, n: int) -> Table:
    """Draw records with integer features, and labels by a threshold of unit norm, 10% of labels flipped."""
    rng = np.random.default_rng(d)
    X = rng.integers(-_LARGEST, _LARGEST + 1, (_ROWS, d))
    direction = rng.normal(size=d)
    positive = X @ direction / np.linalg.norm(direction) >= 1
    shares = rng.dirichlet(np.ones(_ROWS))
    held_by = rng.multinomial(n, np.concatenate([shares * (1 - _FLIPPED), shares * _FLIPPED]))
    label = np.where(positive, 1, -1)
    kept = held_by > 0
    return Table(np.vstack([X, X])[kept], np.concatenate([label, -label])[kept], held_by[kept])


def lattice(d: int, k: int) -> IntegerLattice:
    """Return the integer vectors k w, for w of spacing 1/k in the unit ball of R^d, each followed by a 1."""
    high = np.append(np.full(d, k), 1)
    return IntegerLattice(np.append(np.full(d, -k), 1), high, radius=math.sqrt(k * k + 1))


@lru_cache(maxsize=2)
def _problem(d: int, k: int, n: int) -> ZeroOneHalfspace:
    """Return the problem of 1{<w, x> >= 1}, w = v / k; for integers, that is 2 <v, x> - (2 k - 1) > 0."""
    table = records(d, n)
    X = np.column_stack([2 * table.X, np.full(len(table.X), 1 - 2 * k)])
    return ZeroOneHalfspace(X, table.y, lattice(d, k), counts=table.counts)


@lru_cache(maxsize=2)
def _oracle(d: int, k: int, n: int, task: Task) -> PreparedOracle:
    return EnumerationOracle().prepare(_problem(d, k, n), task)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    if cell.panel == CONVEX:
        yield from _convex(cell, quick)
    elif cell.panel == GROWING:
        yield from _thresholds(cell, 4, 2, int(cell.level), quick)
    else:
        yield from _thresholds(cell, _dimension(cell.panel), round(1 / cell.level), _FEW, quick)


def _dimension(panel: str) -> int:
    return int(panel.removeprefix("d = "))


def _thresholds(cell: Cell, d: int, k: int, n: int, quick: bool) -> Iterator[Point]:
    problem, domain = _problem(d, k, n), lattice(d, k)
    kind: type[OPDisc | GaussianRSPM] = OPDisc if cell.curve.startswith(OPDISC) else GaussianRSPM
    printed = cell.curve.endswith(PRINTED)
    plan = kind.plan(
        ZeroOneHalfspace,
        domain,
        epsilon=_EPSILON,
        delta=1 / n**2,
        calibration="printed" if printed else "sound",
    )
    oracle = _oracle(d, k, n, plan.question)
    losses = np.concatenate([problem.losses(points) for points in domain.batches()])
    zero = np.append(np.zeros(d, dtype=np.int64), 1)
    least = int(np.min(losses))
    for run in range(runs(quick)):
        point = plan.release(oracle, NoiseSource(insecure_seed=run)).point
        yield Point(run, cell.level, EXCESS, (int(problem.losses(point[None])[0]) - least) / n)
    yield Point(0, cell.level, BOUND, _bound(plan) / n)
    yield Point(0, cell.level, BEST, least / n)
    yield Point(0, cell.level, CONSTANT, (int(problem.losses(zero[None])[0]) - least) / n)


def _bound(plan: OPDisc | GaussianRSPM) -> float:
    """Return the excess loss, in records, that Theorem 5 or 6 allows with probability 1 - beta.

    The noise is normal of deviation sigma per coordinate. OPDisc adds <eta, pi(w)> to the loss, pi(w) a unit
    vector in k = d + 1 >= 2 dimensions: <eta, pi(w) - pi(v)> <= 2 |eta|, and |eta| is at most
    sigma sqrt(2 k ln(4 / beta)), by E exp(|x|^2 / 4) = 2^(k / 2) for a standard normal x. RSPM adds a sum of
    at most m weights, each at most sigma sqrt(2 ln(2 m / beta)).
    """
    if isinstance(plan, OPDisc):
        free = int(np.count_nonzero(plan.lattice.low < plan.lattice.high))
        return 2 * plan.sigma * math.sqrt(2 * (free + 1) * math.log(4 / BETA))
    m = plan.problem_type.separators(plan.lattice).size
    return m * plan.scale * math.sqrt(2 * math.log(2 * m / BETA))


def _convex(cell: Cell, quick: bool) -> Iterator[Point]:
    domain = IntegerLattice(-_WIDE, _WIDE, dimension=2)
    table = records(2, _MANY)
    problem = HingeHalfspace(table.X, table.y, domain, _NORM, _MARGIN, counts=table.counts)
    facts: dict[str, Any] = {
        "n_records": _MANY,
        "epsilon": cell.level,
        "delta": 1 / _MANY**2,
        "loss_bound": problem.record_loss_bound,
    }
    plan = OPSamp.plan(HingeHalfspace, domain, **facts)
    if quick and plan.mean.draws > 300:
        plan = OPSamp.plan(HingeHalfspace, domain, draws=300, **facts)
    oracle = EnumerationOracle().prepare(problem, plan.question)
    losses = np.concatenate([problem.losses(points) for points in domain.batches()])
    least = int(np.min(losses))
    for run in range(5 if quick else 20):
        w = plan.release(oracle, NoiseSource(insecure_seed=run)).point
        yield Point(run, cell.level, EXCESS, (_hinge(problem, w) - least) / _MANY)
    yield Point(0, cell.level, BOUND, _convex_bound(plan, problem) / _MANY)
    yield Point(0, cell.level, CONSTANT, (_hinge(problem, np.zeros(2)) - least) / _MANY)


def _hinge(problem: HingeHalfspace, w: Any) -> float:
    """Return the hinge loss at real weights."""
    return float(problem.counts @ np.maximum(0, problem.largest - problem.y * (problem.X @ w)))


def _convex_bound(plan: OPSamp, problem: HingeHalfspace) -> float:
    """Return excess loss that Theorem 7 allows with probability 1 - beta, in records, at the plan's noise.

    By convexity the loss of the mean of m answers is at most the mean of their losses. The answer w under a
    tilt s loses at most <s, w - v> <= D |s|_1 more than the best point v, D the width of the domain, and the
    gap alpha of the oracle. For a centred exponential s of rate 1, |s| has mean 2 / e and variance
    1 - 4 / e^2; the mean of m d such |s| is bounded by Chebyshev. Laplace noise z adds at most n G |z|_2, G
    the Lipschitz constant of the loss of a record.
    """
    mean, d = plan.mean, problem.lattice.dimension
    widest = float(np.max(problem.lattice.high - problem.lattice.low))
    deviation = math.sqrt((1 - 4 / math.e**2) * 2 / (BETA * mean.draws * d))
    tilts = d * (2 / math.e + deviation) / mean.rate
    noise = mean.laplace.scale * math.sqrt(d) * math.log(2 * d / BETA)
    return widest * tilts + mean.alpha + problem.n_records * problem.record_lipschitz * noise


_LOOK: dict[str, tuple[str, Any]] = {
    OPDISC: ("opdisc", ""),
    RSPM: ("rspm", ""),
    OPDISC + PRINTED: ("opdisc", "dashed"),
    RSPM + PRINTED: ("rspm", "dashed"),
    OPSAMP: ("opsamp", ""),
}


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for panel in dict.fromkeys(frame["panel"]):
        here = frame[frame["panel"] == panel]
        if panel in (CONVEX, GROWING):
            panels.append(_against_bounds(str(panel), here))
            continue
        curves = [
            Curve(name, colour(look), averaged(here[here["curve"] == name], EXCESS), dashes)
            for name, (look, dashes) in _LOOK.items()
            if name in CURVES
        ]
        constant = float(here[here["measure"] == CONSTANT]["value"].max())
        title = f"Thresholds in the unit ball, {panel}"
        panels.append(Panel(title, "spacing τ", "excess 0/1 loss", curves, levels={"a constant": constant}))
    return panels_figure(panels)


def _against_bounds(panel: str, here: pd.DataFrame) -> Panel:
    """Return the panel of excess loss with the theorem's bound."""
    curves = []
    for name in dict.fromkeys(here["curve"]):
        own, hue = here[here["curve"] == name], colour(_LOOK[name][0])
        curves += [
            Curve(name, hue, averaged(own, EXCESS)),
            Curve(f"bound, {name}", hue, averaged(own, BOUND), "dotted", "none"),
        ]
    x = "ε" if panel == CONVEX else "n"
    return Panel(f"Bound and measurement: {panel}", x, EXCESS, curves)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Tabulate excess loss, bound, a constant and the least loss, a line per setting."""
    lines = []
    for line in settings(frame).to_dict("records"):
        level = {CONVEX: "ε", GROWING: "n"}.get(line["panel"], "τ")
        size = f"{line['level']:,.0f}" if level == "n" else f"{line['level']:.3g}"
        lines.append(
            {
                "problem": line["panel"],
                "mechanism": line["curve"],
                "at": f"{level} = {size}",
                EXCESS: spread(line["excess"], line["std"]),
                "within the bound": f"{line['within']:.0%}",
                BOUND: f"{line['bound']:.3g}",
                CONSTANT: f"{line['constant']:.3g}",
                BEST: "" if math.isnan(line["best"]) else f"{line['best']:.3g}",
            }
        )
    return pd.DataFrame(lines)


def settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Summarise the runs, a line per panel, curve and level."""
    lines = []
    for key, points in frame.groupby(["panel", "curve", "level"], sort=False):
        panel, curve, level = cast("tuple[str, str, float]", key)
        values = {str(m): v["value"] for m, v in points.groupby("measure")}
        excess, bound = values[EXCESS], float(values[BOUND].iloc[0])
        lines.append(
            {
                "panel": panel,
                "curve": curve,
                "level": level,
                "excess": float(excess.mean()),
                "std": float(excess.std()),
                "runs": len(excess),
                "within": float((excess <= bound).mean()),
                "bound": bound,
                "constant": float(values[CONSTANT].iloc[0]),
                "best": float(values[BEST].iloc[0]) if BEST in values else math.nan,
            }
        )
    return pd.DataFrame(lines)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = settings(frame)
    return [
        _bounds_cross(found),
        _ahead(found, PRINTED, "With the paper's noise"),
        _ahead(found, "", "With the noise that is proved"),
        _theorem(found, OPDISC, "Theorem 5 (OPDisc)"),
        _theorem(found, RSPM, "Theorem 6 (RSPM)"),
        _theorem(found, OPSAMP, "Theorem 7 (OPSamp)"),
    ]


def _pairs(found: pd.DataFrame, noise: str) -> Iterator[tuple[int, float, pd.Series[Any], pd.Series[Any]]]:
    """Yield d, spacing, and the lines of OPDisc and of RSPM, where they are compared."""
    lines = {(line["panel"], line["curve"], line["level"]): line for _, line in found.iterrows()}
    for panel, curve, tau in lines:
        if curve == OPDISC and panel != GROWING:
            ours, rival = (lines[panel, name + noise, tau] for name in (OPDISC, RSPM))
            yield _dimension(panel), tau, ours, rival


def _bounds_cross(found: pd.DataFrame) -> Verdict:
    pairs = list(_pairs(found, PRINTED))
    right = sum((ours["bound"] < rival["bound"]) == (tau > 1 / d**2) for d, tau, ours, rival in pairs)
    ratios = ", ".join(
        f"{rival['bound'] / ours['bound']:.2g} at d = {d}, τ = {tau:.2g}" for d, tau, ours, rival in pairs
    )
    return Verdict(
        "The bound of OPDisc is smaller than that of RSPM for τ > 1/d², and larger below",
        held(right, len(pairs)),
        f"With the paper's noise this is so in {right} of {len(pairs)} settings. RSPM's bound divided by "
        f"OPDisc's is {ratios}.",
    )


def _ahead(found: pd.DataFrame, noise: str, which: str) -> Verdict:
    """Judge whether OPDisc is ahead of RSPM for a spacing above 1/d^2, and behind below.

    A setting decides if either mechanism beats a constant, and the means differ by over two standard errors.
    """
    right, of, words = 0, 0, []
    for d, tau, ours, rival in _pairs(found, noise):
        lead = float(rival["excess"] - ours["excess"])
        error = math.sqrt((ours["std"] ** 2 + rival["std"] ** 2) / float(ours["runs"]))
        if min(ours["excess"], rival["excess"]) >= ours["constant"] or abs(lead) <= 2 * error:
            continue
        of += 1
        right += (lead > 0) == (tau > 1 / d**2)
        words.append(f"{lead:+.2g} at d = {d}, τ = {tau:.2g}")
    agreement = held(right, max(1, of))
    lead_words = f"RSPM's excess loss minus OPDisc's: {', '.join(words)}." if words else ""
    return Verdict(
        f"{which} OPDisc is ahead of RSPM for τ > 1/d², and behind below",
        agreement if noise else agreement.beside,
        f"This is so in {right} of {of} settings where either beats a constant and the means differ by more "
        f"than two standard errors. {lead_words}".strip(),
    )


def _theorem(found: pd.DataFrame, curve: str, name: str) -> Verdict:
    """Judge a bound where it is below the excess loss of a constant, which satisfies it everywhere else."""
    here = found[found["curve"] == curve]
    telling = here[here["bound"] < here["constant"]]
    kept = int((telling["within"] >= 1 - BETA).sum())
    times = (telling["bound"] / telling["excess"])[telling["excess"] > 0]
    words = (
        f"The bound is below the excess loss of a constant in {len(telling)} of {len(here)} settings, and "
        f"holds in {kept} of them"
    )
    if len(times):
        words += (
            f". It is {times.min():,.2g} to {times.max():,.2g} times the mean excess loss, unless that is 0"
        )
    return Verdict(
        f"{name}: the excess loss is within the bound with probability {1 - BETA:g}",
        held(kept, max(1, len(telling))),
        f"{words}.",
    )


def setting(quick: bool) -> str:
    ks = "; ".join(f"d = {d}: τ = {', '.join(f'1/{k}' for k in k_of)}" for d, k_of in spacings(quick).items())
    return (
        f"Thresholds 1{{<w, x> >= 1}}, w in the unit ball with multiples of τ as coordinates ({ks}), written "
        f"as integer weights and a fixed one. n = {_FEW:,} synthetic records in {_ROWS} distinct rows of "
        f"integer features from -{_LARGEST} to {_LARGEST}; labels by a threshold of random direction, "
        f"{_FLIPPED:.0%} of them flipped; ε = {_EPSILON:g}, δ = 1/n². The noise is the paper's, whose proofs "
        "are refuted, or the one that privopt proves. RSPM has one separator between any two neighbouring "
        "values of a weight, and a shift moves two separators of each weight; the paper's bound counts all. "
        f"The bounds are the theorems' tail bounds with constants, at the noise in use, for β = {BETA:g}. "
        f"Theorem 7: hinge loss of margin {_MARGIN}, weights in [-{_WIDE}, {_WIDE}]², n = {_MANY:,}. Every "
        f"oracle enumerates. {runs(quick)} runs."
    )


FIGURE = Reproduction(
    name="neel2020-spacing",
    paper=figure1.PAPER,
    cite=figure1.CITE,
    figure="section 3.1, Theorems 5 to 7 (spacing of the lattice)",
    shows=(
        "No pictures. Bounds on the excess loss of OPDisc, RSPM and OPSamp; for thresholds over a lattice "
        "of spacing τ in the unit ball OPDisc's bound is smaller than RSPM's by a factor of d√τ, and OPDisc "
        "is ahead for τ > 1/d²."
    ),
    setting=setting,
    cells=cells,
    compute=compute,
    draw=draw,
    caption=(
        "Mean excess loss over the best point of the lattice, and one standard deviation: OPDisc and RSPM "
        "against the spacing, with the noise that is proved and with the paper's; OPSamp against ε, with the "
        "bound of Theorem 7."
    ),
    table=table,
    verdicts=verdicts,
)

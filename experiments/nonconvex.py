"""Benchmark of non-convex mechanisms: escapes from saddle points, certified minima, excess risk, step times.

    python -m privopt.experiments.nonconvex --output FOLDER [--quick]

Writes ``nonconvex.md``, ``nonconvex.csv`` (a line per measure and draw, appended as draws finish: an
interrupted run resumes) and the pictures. All data are synthetic and the noise is seeded, so that a run can
be reproduced; times are from one machine in one run. ``--quick`` measures fewer settings.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from scipy.optimize import minimize

from privopt.experiments.workbench import nonconvex_figures as figures
from privopt.experiments.workbench.nonconvex_page import page
from privopt.experiments.workbench.nonconvex_peers import (
    DOUBLES,
    Floats,
    Peer,
    PrintedFrankWolfeL1,
    PrintedFrankWolfeL2,
    printed_steps,
)
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.mechanisms.nonconvex.second_order import LocalMinimumRelease
from privopt.mechanisms.nonconvex.spider import DPSpider
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.oracles.indefinite.ball import BallOracle
from privopt.oracles.indefinite.interface import HalfSpace
from privopt.problems.convex.losses import (
    BiweightLoss,
    Loss,
    ProbitSquaredLoss,
    SigmoidLoss,
    SigmoidSquaredLoss,
)
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.nonconvex.planted import (
    Planted,
    low_rank,
    phase_retrieval,
    sigmoid_saddle,
    strict_saddle,
)

DELTA = 1e-6
RECORDS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 200_000)
CONSTRAINED = (200_000, 2_000_000, 20_000_000)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RIDGE = 0.01


@dataclass(frozen=True)
class Line:
    """One measured value of one draw; ``records`` and ``epsilon`` are what the plan is for."""

    part: str
    problem: str
    mechanism: str
    records: int
    epsilon: float
    draw: int
    measure: str
    value: float


@dataclass(frozen=True)
class Part:
    """A unit of work: all draws of one mechanism on one problem."""

    part: str
    problem: str
    mechanism: str
    records: int
    epsilon: float
    draws: int
    work: Callable[[Part, int], Mapping[str, float]]

    def __str__(self) -> str:
        return (
            f"{self.part}: {self.problem}, {self.mechanism}, n = {self.records:,}, epsilon {self.epsilon:g}"
        )


# --- Saddles: plans for n records, run on 400 records that stand for n / 400 each ------------------------


@cache
def saddles() -> dict[str, Planted]:
    found = (strict_saddle(400, 2), phase_retrieval(400, 3), low_rank(400, 3, 2), sigmoid_saddle(400, 3))
    return {problem.name: problem for problem in found}


_LEAST = {"sigmoid, d = 3": 0.25}  # the infimum of F, which is not attained; other problems attain 0
# Radii of balls that contain the minima, for mechanisms that need a set; the sigmoid problem has no minimum.
_RADIUS = {"quartic, d = 2": 1.2, "phase retrieval, d = 3": 1.2, "factorisation, 3 x 2": 1.6}
SADDLED: dict[str, type[Any]] = {
    kind.name: kind
    for kind in (
        DPStationaryPoint,
        DPCubicNewton,
        DPSpider,
        DPLangevin,
        DPGradientDescent,
        DPConstrainedStationaryPoint,
    )
}


def planned(kind: type[Any], problem: Planted, records: int, epsilon: float) -> Any:
    """Return the default plan for ``records`` records, adapted to the table of 400 with its noise kept."""
    facts = dataclasses.replace(problem.risk.facts, n_records=records)
    radius = _RADIUS.get(problem.name, 2.0)
    space = L2Ball(facts.dimension, radius) if kind is DPConstrainedStationaryPoint else None
    options = {"output": Output.LAST} if kind in (DPGradientDescent, DPLangevin) else {}
    plan = kind.plan(facts, space, epsilon=epsilon, delta=DELTA, **options)
    small = dataclasses.replace(plan, facts=problem.risk.facts)
    if isinstance(plan, DPSpider):  # its noise is proportional to a sensitivity, and so to 1 / n
        scale = problem.risk.facts.n_records / records
        small = dataclasses.replace(small, multiplier=plan.multiplier * scale)
    return small


def _from_the_saddle(part: Part, draw: int) -> dict[str, float]:
    problem = saddles()[part.problem]
    if part.mechanism == "without noise":
        plan = planned(DPStationaryPoint, problem, part.records, part.epsilon)
        return judged(problem, plan.without_noise(problem.risk, problem.saddle))
    return searched(problem, part.mechanism, part.records, part.epsilon, draw)


def searched(problem: Planted, mechanism: str, records: int, epsilon: float, draw: int) -> dict[str, float]:
    """Run a mechanism from the saddle point and judge what it returns; draw 0 adds facts about the plan."""
    plan = planned(SADDLED[mechanism], problem, records, epsilon)
    released = plan.release(problem.risk, NoiseSource(insecure_seed=draw), start=problem.saddle)
    found = judged(problem, released.point)
    if isinstance(released, LocalMinimumRelease):
        found |= {"found": float(released.found), "true": float(_holds(plan, problem, released.point))}
    if draw > 0:  # the plan is the same for all draws
        return found
    public = {"alpha": plan.alpha, "gamma": plan.gamma} if isinstance(released, LocalMinimumRelease) else {}
    return found | public | {"steps": float(plan.schedule.get("steps", 1))}


def judged(problem: Planted, w: Floats) -> dict[str, float]:
    """Evaluate a point by exact values, gradients and Hessians.

    The saddle point counts as left if F fell from its value there at least halfway to the infimum.
    """
    risk, least = problem.risk, _LEAST.get(problem.name, 0.0)
    excess = risk.value(w) - least
    return {
        "left": float(excess <= (risk.value(problem.saddle) - least) / 2),
        "excess": excess,
        "gradient": float(np.linalg.norm(risk.gradient(w))),
        "curvature": float(np.linalg.eigvalsh(risk.hessian(w))[0]),
    }


def _holds(plan: Any, problem: Planted, w: Floats) -> bool:
    """Return whether a point has the tested property, by the exact gradient and Hessian."""
    g, H = problem.risk.gradient(w), problem.risk.hessian(w)
    if not isinstance(plan, DPConstrainedStationaryPoint):
        return bool(np.linalg.norm(g) <= plan.alpha and np.linalg.eigvalsh(H)[0] >= -plan.gamma)
    ball = plan.convex_set
    if g @ w + ball.radius * float(np.linalg.norm(g)) > plan.alpha:  # -min over C of <g, w' - w>
        return False
    # The least (w' - w)'H(w' - w) over w' in C with <g, w' - w> <= 0: stricter than the definition.
    cut = HalfSpace(g, float(g @ w)) if np.any(g) else None
    lowest = BallOracle().prepare(ball, 2 * H, cut).minimize(-2 * (H @ w))
    return bool(lowest.bound + w @ H @ w >= -plan.gamma)


def wanted_records(problem: Planted, epsilon: float) -> float:
    """Return the n of theorem 7 at alpha = curvature^2 / rho, rho the Lipschitz constant of the Hessian.

    At this alpha the saddle point is not an alpha-SOSP. The hidden constant and the logarithm of d are set
    to 1.
    """
    facts = problem.risk.facts
    least = float(np.linalg.eigvalsh(problem.risk.hessian(problem.saddle))[0])
    alpha = least**2 / facts.hessian_lipschitz
    drop = problem.risk.value(problem.saddle) - _LEAST.get(problem.name, 0.0)
    noise = math.sqrt(facts.dimension * math.log(1 / DELTA)) * facts.gradient_bound
    return math.sqrt(facts.smoothness * drop) * noise / (epsilon * alpha**2)


# --- Excess risk of Langevin dynamics, nets and descents, in two dimensions ------------------------------


@cache
def classes(n: int, dimension: int, draw: int) -> EmpiricalRisk:
    """Generate two classes, one in two clusters on both sides of the other: there are several minima."""
    rng = np.random.default_rng([n, dimension, draw])
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    side = np.where(rng.random(n) < 0.75, 1.0, -1.0)
    X = 0.25 * rng.standard_normal((n, dimension))
    X[:, 0] += np.where(y > 0, 0.7 * side, 0.0)
    X[:, -1] = 0.5
    return EmpiricalRisk(X, y, SigmoidLoss(), row_norm=1.0)


def _penalised(risk: EmpiricalRisk, w: Floats) -> float:
    return risk.value(w) + RIDGE / 2 * float(w @ w)


@cache
def least_risk(n: int, dimension: int, draw: int) -> float:
    """Return the least penalised risk found by local search from several starts."""
    risk = classes(n, dimension, draw)

    def value(w: Floats) -> float:
        return _penalised(risk, w)

    def slope(w: Floats) -> Floats:
        return risk.gradient(w) + RIDGE * w

    starts = 4 * np.random.default_rng(0).standard_normal((8, dimension))
    return min(float(minimize(value, start, jac=slope, method="BFGS").fun) for start in starts)


RISKED: dict[str, type[Any]] = {
    kind.name: kind for kind in (DPLangevin, NetMechanism, DPGradientDescent, DPCubicNewton, DPSpider)
}


def _excess(part: Part, draw: int) -> dict[str, float]:
    risk = classes(part.records, 2, draw)
    kind = RISKED[part.mechanism]
    options = {"output": Output.LAST} if kind in (DPLangevin, DPGradientDescent) else {}
    plan = kind.plan(
        risk.facts, None, ridge(RIDGE), epsilon=part.epsilon, delta=1 / part.records**2, **options
    )
    w = plan.release(risk, NoiseSource(insecure_seed=draw)).point
    return {"excess": _penalised(risk, w) - least_risk(part.records, 2, draw)}


# --- Methods that are later than the paper ---------------------------------------------------------------


@cache
def later_problems() -> dict[str, Planted]:
    wide = classes(2_000, 20, 0)
    wide_problem = Planted("two classes, d = 20", wide, np.zeros(20), None, None)
    return {**saddles(), "phase retrieval, d = 8": phase_retrieval(1000, 8), wide_problem.name: wide_problem}


def _later(part: Part, draw: int) -> dict[str, float]:
    problem = later_problems()[part.problem]
    risk = problem.risk
    facts = dataclasses.replace(risk.facts, n_records=part.records)
    if part.mechanism in PEERS:
        mu = gaussian_mu(part.epsilon, DELTA)
        lines: dict[str, float] = {}
        for k, peer in enumerate(PEERS[part.mechanism]):
            w = peer(risk, facts, mu, problem.saddle, np.random.default_rng([k, draw]))
            lines |= {f"gradient {k}": float(np.linalg.norm(risk.gradient(w))), f"risk {k}": risk.value(w)}
        return lines
    plan = planned(SADDLED[part.mechanism], problem, part.records, part.epsilon)
    w = plan.release(risk, NoiseSource(insecure_seed=draw), start=problem.saddle).point
    return {"gradient": float(np.linalg.norm(risk.gradient(w))), "risk": risk.value(w)}


LATER = (DPStationaryPoint.name, DPCubicNewton.name, DPSpider.name, DPGradientDescent.name, "double noise")
PEERS: dict[str, tuple[Peer, ...]] = {"double noise": DOUBLES}


# --- Generalised linear models and robust regression, population risk ------------------------------------

GLM_LOSSES: dict[str, Loss] = {
    "sigmoid link": SigmoidSquaredLoss(),
    "probit link": ProbitSquaredLoss(),
    "biweight": BiweightLoss(1.0),
}


@cache
def model(loss: str, geometry: str, n: int, draw: int) -> tuple[EmpiricalRisk, Floats]:
    """Return the risk of records of theorem 5 (l2) or 6 (l1), and the true weights, in the unit ball."""
    d = 10 if geometry == "l2" else 200
    rng = np.random.default_rng([d, n, draw])
    if geometry == "l2":
        X = rng.standard_normal((n, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        w = np.ones(d) / math.sqrt(d)
    else:
        X = rng.choice([-1.0, 1.0], (n, d))
        w = np.zeros(d)
        w[:3] = 0.6, -0.3, 0.1
    z = X @ w
    if loss == "biweight":
        y = z + np.where(rng.random(n) < 0.1, 5.0, 0.2) * rng.standard_normal(n)
    else:
        link = {"sigmoid link": lambda t: 1 / (1 + np.exp(-t)), "probit link": _probit}[loss]
        y = (rng.random(n) < link(z)).astype(np.float64)
    return EmpiricalRisk(X, y, GLM_LOSSES[loss], norm="l2" if geometry == "l2" else "linf"), w


def _probit(t: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(t))


def _frank_wolfe(part: Part, draw: int) -> dict[str, float]:
    loss, _, geometry = part.problem.partition(", ")
    risk, true = model(loss, geometry, part.records, draw)
    fresh, _ = model(loss, geometry, 100_000, 1_000)
    ball: ConvexSet = (L2Ball if geometry == "l2" else L1Ball)(risk.facts.dimension, 1.0)
    kinds: dict[str, Any] = {
        "l2 default": DPFrankWolfeL2,
        "l2 printed": PrintedFrankWolfeL2,
        "l1 default": DPFrankWolfeL1,
        "l1 printed": PrintedFrankWolfeL1,
    }
    delta, printed = 1 / part.records**2, part.mechanism == "printed"
    steps = printed_steps(risk.facts, part.epsilon, delta, geometry == "l1") if printed else None
    plan = kinds[f"{geometry} {part.mechanism}"].plan(
        risk.facts,
        ball,
        epsilon=part.epsilon,
        delta=delta,
        steps=steps,
        output=Output.RANDOM if printed else None,
    )
    w = plan.release(risk, NoiseSource(insecure_seed=draw)).point
    start = np.zeros(len(true))
    return {
        "excess": fresh.value(w) - fresh.value(true),
        "start": fresh.value(start) - fresh.value(true),
        "steps": float(plan.schedule.get("steps", 1)),
    }


# --- Speed -----------------------------------------------------------------------------------------------


def _speed(part: Part, draw: int) -> dict[str, float]:
    """Measure times in milliseconds, the minimum of several."""
    rng = np.random.default_rng(0)
    n, d = part.records, 50
    risk = EmpiricalRisk(rng.standard_normal((n, d)) / 10, np.sign(rng.standard_normal(n)), SigmoidLoss())
    w, weights = rng.standard_normal(d), rng.random(n)
    H = rng.standard_normal((100, 100))
    H, g, normal = (H + H.T) / 2, rng.standard_normal(100), rng.standard_normal(100)
    ball = L2Ball(100, 1.0)
    cut = HalfSpace(normal, -0.3 * float(np.linalg.norm(normal)))
    plans = {
        f"a step of {kind.name}": kind.plan(risk.facts, epsilon=1.0, delta=DELTA, steps=20)
        for kind in (DPGradientDescent, DPLangevin, DPCubicNewton, DPSpider)
    }
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "Hessian, in blocks": (1, lambda: risk.hessian(w)),
        "X'DX by BLAS, D X made for it": (1, lambda: risk.X.T @ (risk.X * weights[:, None])),
        "X'X by BLAS": (1, lambda: risk.X.T @ risk.X),
        "gradient": (1, lambda: risk.gradient(w)),
        "quadratic over a ball, d = 100": (1, lambda: BallOracle().prepare(ball, H).minimize(g)),
        "the same with a half-space": (1, lambda: BallOracle().prepare(ball, H, cut).minimize(g)),
    }
    for name, plan in plans.items():
        ways[name] = 20, partial(plan.release, risk, NoiseSource(insecure_seed=0))
    found = {}
    for name, (steps, way) in ways.items():
        way()
        found[name] = min(_milliseconds(way) for _ in range(5)) / steps
    return found


def _milliseconds(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return 1e3 * (time.perf_counter() - began)


# --- Putting it together ---------------------------------------------------------------------------------


def parts(quick: bool) -> Iterator[Part]:
    """Yield all parts; ``quick`` takes a few settings of each."""
    draws = 2 if quick else 10
    yield Part("speed", "one machine", "all", 20_000 if quick else 200_000, 1.0, 1, _speed)
    for problem in list(saddles())[: 2 if quick else None]:
        for n in RECORDS[2:5:2] if quick else RECORDS:
            for name in (DPStationaryPoint.name, DPCubicNewton.name, DPSpider.name, DPLangevin.name):
                yield Part("saddle", problem, name, n, 1.0, draws, _from_the_saddle)
            yield Part("saddle", problem, "without noise", n, 1.0, 1, _from_the_saddle)
        if problem in _RADIUS:
            for n in CONSTRAINED[1:2] if quick else CONSTRAINED:
                kind = DPConstrainedStationaryPoint.name
                yield Part("saddle", problem, kind, n, 1.0, draws // 2, _from_the_saddle)
    for name in RISKED:
        for n in (500, 2_000) if quick else (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000):
            yield Part("excess", "two classes, d = 2", name, n, 1.0, draws, _excess)
        for epsilon in (1.0,) if quick else EPSILONS:
            if epsilon != 1.0:
                yield Part("excess", "two classes, d = 2", name, 2_000, epsilon, draws, _excess)
    for problem in list(later_problems())[: 1 if quick else None]:
        for n in (20_000,) if quick else (20_000, 200_000):
            for name in LATER:
                yield Part("later", problem, name, n, 1.0, draws // 2, _later)
    for loss in list(GLM_LOSSES)[: 1 if quick else None]:
        for geometry in ("l2", "l1"):
            for epsilon in (1.0,) if quick else (0.3, 1.0, 3.0):
                for name in ("default", "printed"):
                    part = Part(
                        "regression", f"{loss}, {geometry}", name, 10_000, epsilon, draws // 2, _frank_wolfe
                    )
                    yield part


class Draw(NamedTuple):
    """A cell of the study: one draw of a part."""

    part: Part
    number: int

    def __str__(self) -> str:
        return f"{self.part}, draw {self.number}"


def draws(quick: bool) -> list[Draw]:
    """Return all draws."""
    return [Draw(part, number) for part in parts(quick) for number in range(part.draws)]


def lines(draw: Draw) -> list[Line]:
    """Measure a draw."""
    found = draw.part.work(draw.part, draw.number)
    return [Line(**_about(draw), measure=name, value=float(f"{value:.6g}")) for name, value in found.items()]


def _about(draw: Draw) -> dict[str, Any]:
    key = ("part", "problem", "mechanism", "records", "epsilon")
    return {**{k: getattr(draw.part, k) for k in key}, "draw": draw.number}


def paths() -> tuple[Planted, dict[str, Floats]]:
    """Return iterates from the saddle point of a quartic in the plane, by plans for 5,000 records."""
    problem = saddles()["quartic, d = 2"]
    found = {}
    for name in (DPStationaryPoint.name, DPCubicNewton.name, DPSpider.name):
        plan = planned(SADDLED[name], problem, 5_000, 1.0)
        seed = {DPStationaryPoint.name: 1, DPCubicNewton.name: 0, DPSpider.name: 3}[name]
        found[name] = plan.release(
            problem.risk, NoiseSource(insecure_seed=seed), start=problem.saddle
        ).trajectory
    start = np.array([0.0, 1.1])  # without noise the iterates converge to the saddle point
    quiet, w = [start], start
    for _ in range(400):
        w = w - problem.risk.gradient(w) / problem.risk.facts.smoothness
        quiet.append(w)
    return problem, {**found, "without noise": np.stack(quiet)}


def study() -> Study[Draw]:
    """Return the study."""
    wanted = {name: wanted_records(problem, 1.0) for name, problem in saddles().items()}
    return Study(
        "nonconvex",
        Line,
        [f.name for f in dataclasses.fields(Line)][:-1],
        compute=lines,
        is_finished=lambda kept, draw: bool(kept.matching(**_about(draw))),
        page=lambda rows: page(rows, wanted),
        figures={
            "-trajectories.png": lambda _: figures.trajectories(*paths()),
            "-escape.png": lambda rows: figures.escapes(rows, wanted),
            "-excess.png": figures.excesses,
        },
    )


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page, pictures and draws.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer measurements, in seconds.")] = False,
) -> None:
    """Measure, write the page, and print it."""
    console = Console(soft_wrap=True, emoji=False)
    study().run(output, draws(quick), console)
    console.print((output / "nonconvex.md").read_text("utf-8"), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)

"""Checks that any oracle for tilted risks can be put through, by whoever wrote it.

>>> from privopt.oracles.convex.tilted_select import tilted_minimizer
>>> print(check_tilted_oracle(tilted_minimizer).oracle)
tilted_minimizer

A proved gap must cover by how much every vertex of the box, random points, and points between those and the
answer are better; all are evaluated by the definition of the loss, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.conformance import ConformanceReport, Finding, RandomStates, Tally
from privopt.oracles.convex.tilted import TiltedAnswer, TiltedOracle
from privopt.oracles.limits import Limits
from privopt.problems.convex.kinked_losses import AbsoluteLoss, HingeLoss
from privopt.problems.convex.losses import HuberLoss, Labels, LogisticLoss, Loss, SquaredLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.box import Box
from privopt.problems.errors import InvalidInputError

_POINTS = 200
_SCALES = (1e-2, 1.0, 30.0, 1e5)


@dataclass(frozen=True, eq=False)
class TiltedInstance:
    """A risk and a box to ask about."""

    name: str
    risk: EmpiricalRisk
    box: Box


def check_tilted_oracle(
    build: Callable[[EmpiricalRisk, Box], TiltedOracle],
    *,
    instances: Iterable[TiltedInstance] | None = None,
    tolerance: float = 1e-6,
) -> ConformanceReport:
    """Put an oracle through every check on every risk that it takes.

    Args:
        build: from risk and box to the oracle; it may refuse by ``UnsupportedProblemError``.
        instances: small risks of every loss by default.
        tolerance: the largest gap of a finished answer, in units of the largest loss and tilt.

    Raises:
        ConformanceError: listing every kind of failure, or that nothing could be checked at all.
    """
    tally = Tally()
    for one in tilted_instances() if instances is None else instances:

        def made(one: TiltedInstance = one) -> _Case:
            return _Case(one, build(one.risk, one.box), tolerance)

        for case in tally.built(one.name, made):
            tally.check_all(one.name, _CHECKS, case)
    return tally.verdict(str(getattr(build, "name", getattr(build, "__name__", type(build).__name__))))


@dataclass(frozen=True, eq=False)
class _Case:
    instance: TiltedInstance
    oracle: TiltedOracle
    tolerance: float

    def tilts(self) -> Iterator[tuple[str, Vector]]:
        d, rng = self.instance.box.dimension, np.random.default_rng(0)
        yield "no tilt", np.zeros(d)
        for scale in _SCALES:
            yield f"tilts of {scale:g}", scale * rng.exponential(1.0, d)
            yield f"tilts of {scale:g}, both signs", scale * rng.normal(size=d)

    def objective(self, w: Vector, tilt: Vector) -> float:
        """By its definition: rows shortened, losses summed."""
        risk = self.instance.risk
        norms = np.abs(risk.X).max(axis=1) if risk.facts.norm == "linf" else np.linalg.norm(risk.X, axis=1)
        rows = risk.X * np.minimum(1, risk.facts.row_norm / np.maximum(norms, risk.facts.row_norm))[:, None]
        return float(risk.counts @ risk.facts.loss.value(rows @ w, risk.y) - tilt @ w)

    def points(self, near: Vector) -> Vector:
        box, rng = self.instance.box, np.random.default_rng(1)
        spread = rng.uniform(box.low, box.high, (_POINTS, box.dimension))
        return np.concatenate([box.vertices(), spread, (near + spread) / 2, near + (spread - near) / 1000])

    def wrong(self, tilt: Vector, answer: TiltedAnswer) -> Iterator[str]:
        """What is false in an answer, whether or not it is finished."""
        risk, w = self.instance.risk, answer.point
        n, facts = risk.facts.n_records, risk.facts
        size = n * facts.gradient_bound_linf + float(np.sum(np.abs(tilt)))
        if not self.instance.box.contains(w):
            yield "the point is outside the box"
            return
        reached = self.objective(w, tilt)
        best = min(self.objective(v, tilt) for v in self.points(w))
        if not answer.gap >= 0 or reached - best > answer.gap + 1e-9 * size:
            yield f"a gap of {answer.gap:.6g} is claimed, a point of the box is {reached - best:.6g} better"
        if answer.status is Status.OPTIMAL and answer.gap > self.tolerance * size:
            yield f"status OPTIMAL with a gap of {answer.gap:.3g}"


def _check_gaps(case: _Case) -> Iterator[Finding]:
    """Finished, and no point of the box is better by more than the gap."""
    for where, tilt in case.tilts():
        answer = case.oracle.solve(tilt)
        yield from ((where, finding) for finding in case.wrong(tilt, answer))
        if answer.status is not Status.OPTIMAL:
            yield where, f"stopped by {answer.status.name} without a limit"


def _check_limits(case: _Case) -> Iterator[Finding]:
    """Cancelled at once, out of time: a point and an honest gap all the same."""
    limits = {"cancelled at once": Limits(cancelled=lambda: True), "no time": Limits(seconds=1e-9)}
    for name, limit in limits.items():
        for where, tilt in case.tilts():
            answer = case.oracle.solve(tilt, limit)
            yield from ((f"{where}, {name}", finding) for finding in case.wrong(tilt, answer))


def _check_purity(case: _Case) -> Iterator[Finding]:
    """The same answer after other questions, and from another thread: OPSamp's proof wants a function."""
    states, asked = RandomStates(), dict(case.tilts())
    first = {where: case.oracle.solve(tilt).point.tolist() for where, tilt in asked.items()}
    for where, tilt in reversed(asked.items()):
        if case.oracle.solve(tilt).point.tolist() != first[where]:
            yield where, "asked again, it answers something else"
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda tilt: case.oracle.solve(tilt).point.tolist(), asked.values())
        for where, point in zip(asked, found, strict=True):
            if point != first[where]:
                yield where, "asked from another thread, it answers something else"
    yield from (("", finding) for finding in states.touched())


def _check_refusals(case: _Case) -> Iterator[Finding]:
    d = case.instance.box.dimension
    bad = {"a NaN": np.full(d, np.nan), "infinity": np.full(d, np.inf), "another dimension": np.ones(d + 1)}
    for what, tilt in bad.items():
        try:
            case.oracle.solve(tilt)
        except InvalidInputError:
            continue
        yield "", f"{what} was accepted"


_CHECKS = (_check_gaps, _check_limits, _check_purity, _check_refusals)


def tilted_instances() -> Iterator[TiltedInstance]:
    """Small risks of every convex loss: with counts, with ties, with a coordinate that is fixed."""
    rng = np.random.default_rng(0)
    boxes = {
        "a box": Box([-1, -0.2, 0.1], [0.5, 0.7, 2]),
        "a fixed coordinate": Box([-1, 0.3, -1], [1, 0.3, 1]),
    }
    losses: tuple[Loss, ...] = (
        LogisticLoss(),
        HingeLoss(),
        AbsoluteLoss(),
        HuberLoss(0.7),
        SquaredLoss.within(set_radius=8.0, row_norm=1.0, label_bound=4.0),
    )
    for loss in losses:
        for name, box in boxes.items():
            X = rng.uniform(-1.2, 1.2, (60, 3))
            X[:20] = X[20:40]  # ties
            signs = np.where(X[:, 0] + rng.normal(size=60) > 0, 1.0, -1.0)
            y = signs if loss.labels is Labels.SIGN else np.clip(X[:, 0] + rng.standard_t(2, 60), -4, 4)
            counts = rng.integers(1, 4, 60) if name == "a box" else None
            risk = EmpiricalRisk(X, y, loss, norm="linf", counts=counts)
            yield TiltedInstance(f"{type(loss).__name__} over {name}", risk, box)

"""Conformance kit for minimising oracles over a lattice, built-in or your own.

>>> from privopt.oracles.minimize.enumerate import EnumerationOracle
>>> print(check_oracle(EnumerationOracle()).oracle)
enumerate

Instances are small enough to try every point, so each answer is compared with brute force in exact
arithmetic. Values are compared instead of points, because minimisers are rarely unique under 0/1 loss. The
point of an answer is compared only if the answer claims that it is the lexicographically first minimiser.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.random import Generator

from privopt.oracles.certificate import Answer, Status
from privopt.oracles.conformance import (
    ConformanceReport,
    DataProblem,
    Finding,
    RandomStates,
    Tally,
    changed,
    constrained_lattice,
    decimal_ties,
    random_halfspace,
)
from privopt.oracles.limits import Limits, Progress
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.lipschitz import AbsoluteRegression, HingeHalfspace
from privopt.problems.discrete.objective import UNIT, Perturbation, from_fixed, levels
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

# Numbers of consecutive questions to a prepared oracle. Of 250 answers at least two are wrong if every
# hundredth is. On large instances there are 5 questions, with minima spread over the whole lattice.
_MANY, _SEVERAL = 250, 5
# The name of a perturbation that is exact in any arithmetic, so that related sessions get this question, too.
_TIES = "integer tables with ties"


@dataclass(frozen=True)
class Instance:
    """A test instance: a problem, a task and named perturbations."""

    name: str
    problem: DataProblem
    task: Task
    perturbations: dict[str, Perturbation]


def check_oracle(
    oracle: DiscreteOracle, *, seeds: Iterable[int] = (0, 1), tolerance: float = 0.0
) -> ConformanceReport:
    """Put an oracle through every check on every instance that the oracle takes.

    Args:
        oracle: any discrete oracle, or a wrapper.
        seeds: for each seed a set of instances is drawn.
        tolerance: the allowed error of values and bounds, in units of loss, if the certificate says
            ``exact=False``. Otherwise no error is allowed.

    Returns:
        A report of the checks that passed, and of the instances skipped because the oracle refuses them.

    Raises:
        ConformanceError: a check failed (the message lists every kind of failure), or nothing was checked.
    """
    tally, cases = Tally(), list[_Case]()
    for instance, checks in (asked for seed in seeds for asked in _asked(seed)):
        for case in tally.built(instance.name, partial(_Case, oracle, instance, tolerance)):
            tally.check_all(instance.name, checks, case)
            del case.prepared  # if the solver runs in a separate process, this ends the process
            cases.append(case)
    if (tally.passed or tally.failures) and not any(case.lexicographic for case in cases):
        tally.skipped.append(
            "lexicographic ties: never claimed, so mechanisms that need them will fail closed"
        )
    return tally.verdict(oracle.name, _unseen(cases))


def _asked(seed: int) -> Iterator[tuple[Instance, Checks]]:
    """Yield all instances of a seed, with their checks."""
    yield from ((instance, _CHECKS) for instance in instances(seed))
    for instance in large_instances(seed):
        few = instance.problem.lattice.box_size < 100
        yield instance, (_check_optimality,) if few else (_check_optimality, _check_many_questions)
    yield from ((instance, (_check_tables, _check_many_questions)) for instance in short_instances(seed))


def _unseen(cases: list[_Case]) -> tuple[str, ...]:
    """Return kinds of faults that these checks cannot detect."""
    if not cases:
        return ()
    points = max(len(case.points) for case in cases)
    records = max(case.instance.problem.n_records for case in cases)
    compared = sum(case.compared for case in cases)
    return (
        f"what goes wrong only over lattices of more than {points:,} points, with more than {records:,} "
        f"records, or for perturbations of other kinds than here ({compared:,} answers were compared)",
        f"a fault in fewer than one of {_MANY} questions to an oracle that was prepared once",
        "the reasoning behind a bound: bounds are compared with the minimum, proofs are not read",
        "what depends on the time of day, on other threads, or on knowing that this is a test",
    )


class _Case:
    """An instance with its brute-force solution and the oracle prepared for it."""

    def __init__(self, oracle: DiscreteOracle, instance: Instance, tolerance: float) -> None:
        self.oracle, self.instance = oracle, instance
        self.tolerance = int(tolerance * UNIT)
        self.lexicographic = False  # whether an answer has claimed the lexicographically first minimiser
        self.compared = 0  # number of answers compared with brute force
        self.points = np.concatenate(list(instance.problem.lattice.batches()))
        self.losses = instance.problem.losses(self.points)
        # Without a maker the solver is never abandoned, so that even answers long after a limit are checked.
        self.prepared = replace(oracle.prepare(instance.problem, instance.task), maker=None)

    def minimum(self, perturbation: Perturbation) -> tuple[int, IntArray]:
        """Return the exact minimum and its lexicographically first minimiser, by trying every point."""
        values = self.losses * UNIT + perturbation.values(self.points)
        first = int(np.argmin(values))
        return int(values[first]), self.points[first]

    def wrong(self, answer: Answer, perturbation: Perturbation) -> Iterator[str]:
        """Find false statements in an answer, whether or not the solve finished."""
        best, first = self.minimum(perturbation)
        self.compared += 1
        c = answer.certificate
        slack = 0 if c.exact else self.tolerance
        if c.fixed_bound > best + slack:
            yield f"bound {c.bound:.9g} is above the minimum {from_fixed(best):.9g}"
        if answer.point is not None and c.fixed_value is not None:
            if not self.instance.problem.lattice.contains(answer.point):
                yield "the point is outside the lattice"
            if c.fixed_value != self.instance.problem.value(answer.point, perturbation):
                yield "the value in the certificate is not the objective at the point"
            if c.gap == 0 and c.fixed_value > best + slack:
                yield f"value {c.value:.9g} is claimed optimal, the minimum is {from_fixed(best):.9g}"
        if c.status is Status.OPTIMAL and c.gap != 0:
            yield f"status OPTIMAL with a gap of {c.gap:.3g}"
        if c.lexicographic:
            self.lexicographic = True
            if answer.point is None or not np.array_equal(answer.point, first):
                yield "claims the lexicographically first minimiser, but it is another point"

    def unfinished(self, answer: Answer) -> Iterator[str]:
        """Find signs of an unfinished solve; without limits, an oracle must finish or be a heuristic."""
        c = answer.certificate
        if c.status not in (Status.OPTIMAL, Status.HEURISTIC):
            yield f"stopped by {c.status.name} although no limit was set"
        if answer.point is None:
            yield "no point although no limit was set"


# --- Checks. Each yields the circumstances and the fault. ---------------------------------------------


def _check_optimality(case: _Case) -> Iterator[Finding]:
    """Check that the point is feasible, that bound <= minimum <= value, and that OPTIMAL means a gap of 0."""
    for name, perturbation in case.instance.perturbations.items():
        for break_ties in (False, True):
            answer = case.prepared.minimize(perturbation, break_ties=break_ties)
            for finding in (*case.wrong(answer, perturbation), *case.unfinished(answer)):
                yield f"{name} (break_ties={break_ties})", finding


def _check_scaling(case: _Case) -> Iterator[Finding]:
    """Check that the minimum triples with three copies of every record and three times the perturbation."""
    problem = case.instance.problem
    tripled = problem.with_records(np.repeat(problem.X, 3, axis=0), np.repeat(problem.y, 3))
    if case.oracle.refusals(tripled, case.instance.task):
        return
    prepared = case.oracle.prepare(tripled, case.instance.task)
    for name, p in case.instance.perturbations.items():
        scaled = Perturbation(
            p.lattice, tuple(3 * t for t in p.unary), None if p.radial is None else 3 * p.radial
        )
        c = prepared.minimize(scaled).certificate
        best, _ = case.minimum(p)
        slack = 0 if c.exact else case.tolerance
        if c.fixed_bound > 3 * best + slack:
            yield name, f"bound {c.bound:.9g} is above three times the minimum {from_fixed(best):.9g}"
        if c.gap == 0 and c.fixed_value is not None and c.fixed_value > 3 * best + slack:
            yield name, f"value {c.value:.9g} is above three times the minimum {from_fixed(best):.9g}"


def _check_independence(case: _Case) -> Iterator[Finding]:
    """Check that answers depend on problem and question alone: ask A, then B, then A again.

    Question A and the question with ties also go to sessions on related data, alternately. An oracle that
    reuses an earlier question or earlier data gives a wrong answer to one of these questions.
    """
    (name, a), *others = case.instance.perturbations.items()
    sessions = [("", case), *_related(case)]
    turns = [(f"first {name}", a, sessions)]
    turns += [
        (f"{other} after {name}", b, sessions[::-1] if other == _TIES else sessions[:1])
        for other, b in others
    ]
    turns += [(f"{name} again", a, sessions)]
    for where, question, asked in turns:
        for whose, session in asked:
            answer = session.prepared.minimize(question)
            wrong = (*session.wrong(answer, question), *session.unfinished(answer))
            yield from ((f"{where}{whose}", finding) for finding in wrong)


def _related(case: _Case) -> Iterator[tuple[str, _Case]]:
    """Yield the oracle prepared for related tables, which a faulty cache could confuse with the given one."""
    problem = case.instance.problem
    tables = {
        ", labels exchanged": problem.with_records(problem.X, -problem.y),
        ", rows in another order": problem.with_records(problem.X[::-1], problem.y),
    }
    costs = getattr(problem, "costs", EQUAL_COSTS)
    if costs.false_negative != costs.false_positive:
        swapped = Costs(costs.false_positive, costs.false_negative)
        kind: Any = type(problem)
        tables[", costs exchanged"] = kind(problem.X, problem.y, problem.lattice, swapped)
    for name, table in tables.items():
        if not case.oracle.refusals(table, case.instance.task):
            instance = replace(case.instance, problem=table)
            yield name, _Case(case.oracle, instance, case.tolerance / UNIT)


def _check_limits(case: _Case) -> Iterator[Finding]:
    """Check that answers are valid if cancelled, at once or later, and if the time limit has expired."""
    asked = count()
    limits = {
        "cancelled at once": Limits(cancelled=lambda: True),
        "cancelled later": Limits(cancelled=lambda: next(asked) > 3),
        "no time": Limits(seconds=1e-9),
    }
    for name, p in case.instance.perturbations.items():
        for limit, value in limits.items():
            answer = case.prepared.minimize(p, value)
            yield from ((f"{name}, {limit}", w) for w in case.wrong(answer, p))


def _check_progress(case: _Case) -> Iterator[Finding]:
    """Check that reported incumbents are never below the minimum, and reported bounds never above it."""
    for name, p in case.instance.perturbations.items():
        seen: list[Progress] = []
        answer = case.prepared.minimize(p, Limits(on_progress=seen.append))
        minimum = from_fixed(case.minimum(p)[0])
        slack = 1e-9 if answer.certificate.exact else max(1e-9, from_fixed(case.tolerance))
        for progress in seen:
            if progress.incumbent < minimum - slack:
                yield name, f"reported incumbent {progress.incumbent:.9g} below the minimum {minimum:.9g}"
            if progress.bound > minimum + slack:
                yield name, f"reported bound {progress.bound:.9g} above the minimum {minimum:.9g}"


def _check_purity(case: _Case) -> Iterator[Finding]:
    """Check that solving changes neither the data, nor the perturbation, nor global random states."""
    problem = case.instance.problem
    tables = [t for p in case.instance.perturbations.values() for t in (*p.unary, p.radial) if t is not None]
    arrays = [problem.X, problem.y, problem.lattice.low, problem.lattice.high, *tables]
    before = [a.copy() for a in arrays]
    states = RandomStates()
    prepared = case.oracle.prepare(problem, case.instance.task)
    for p in case.instance.perturbations.values():
        prepared.minimize(p)
    if changed(arrays, before):
        yield "", "the data, the lattice or the perturbation was changed in place"
    yield from (("", finding) for finding in states.touched())


def _check_refusals(case: _Case) -> Iterator[Finding]:
    """Check that NaN, empty domains, other lattices and terms of another task raise errors."""
    lattice = case.instance.problem.lattice
    other = IntegerLattice(0, 7, dimension=lattice.dimension)
    radial = np.zeros(lattice.max_squared_norm + 1, dtype=np.int64)
    flat = Perturbation.zero(lattice)
    linear: PreparedOracle | None = None
    if not case.oracle.refusals(case.instance.problem, Task.LINEAR):
        linear = case.oracle.prepare(case.instance.problem, Task.LINEAR)
    attempts: dict[str, Callable[[], object]] = {
        "a NaN coefficient": lambda: case.prepared.minimize(
            Perturbation.linear(lattice, np.full(lattice.dimension, np.nan))
        ),
        "an empty lattice": lambda: IntegerLattice(2, 3, dimension=2, radius=1.0),
        "a perturbation of another lattice": lambda: case.prepared.minimize(Perturbation.zero(other)),
    }
    if linear is not None:
        prepared = linear
        attempts["a term in |w|^2 under Task.LINEAR"] = lambda: prepared.minimize(
            Perturbation(lattice, flat.unary, radial)
        )
    for what, attempt in attempts.items():
        try:
            attempt()
        except (InvalidInputError, InfeasibleDomainError):
            continue
        yield "", f"{what} was accepted"


def _check_tables(case: _Case) -> Iterator[Finding]:
    """Check answers to a perturbation, then to one with a single different table, then to the first again."""
    lattice, base = case.instance.problem.lattice, case.instance.perturbations["noise"]
    for turn in range(lattice.dimension + (base.radial is not None)):
        unary, radial = [table.copy() for table in base.unary], base.radial
        changed = unary[turn] if turn < lattice.dimension else None
        if changed is not None:
            changed[:] = changed[::-1] - changed * 3
            name = f"noise with another table of w_{turn}"
        else:
            assert radial is not None
            radial = radial[::-1] - radial * 3
            name = "noise with another table of |w|^2"
        other = Perturbation(lattice, tuple(unary), radial)
        for where, p in (("noise", base), (name, other), (f"noise, after {name}", base)):
            answer = case.prepared.minimize(p)
            yield from ((where, w) for w in (*case.wrong(answer, p), *case.unfinished(answer)))


def _check_many_questions(case: _Case) -> Iterator[Finding]:
    """Check answers to many consecutive questions whose minimisers differ, to find occasional faults."""
    lattice, size = case.instance.problem.lattice, len(case.points)
    if size < 100:
        steps = np.random.default_rng(size).integers(1, size, _MANY)  # from one minimiser to the next
    else:
        steps = np.full(_SEVERAL, -(-size // (_SEVERAL - 1)) - 1)  # spread over the whole lattice
    for number, target in enumerate((np.cumsum(steps) - steps[0]) % size):
        far = [UNIT * 1000 * np.abs(v - w) for v, w in zip(levels(lattice), case.points[target], strict=True)]
        p = Perturbation(lattice, tuple(far))
        answer = case.prepared.minimize(p)
        for wrong in (*case.wrong(answer, p), *case.unfinished(answer)):
            yield f"question {number + 1} of {len(steps)}", wrong


Checks = tuple[Callable[[_Case], Iterator[Finding]], ...]

_CHECKS: Checks = (
    _check_optimality,
    _check_scaling,
    _check_independence,
    _check_limits,
    _check_progress,
    _check_purity,
    _check_refusals,
)


# --- Instances ----------------------------------------------------------------------------------------


def instances(seed: int) -> Iterator[Instance]:
    """Yield every small problem under both tasks, with data and noise drawn from ``seed``."""
    for number, (name, problem) in enumerate(_problems(np.random.default_rng([seed, 0]))):
        for task in Task:
            rng = np.random.default_rng([seed, 1 + number, task is Task.LINEAR])
            yield Instance(
                f"{name}, {task.name.lower()}, seed {seed}",
                problem,
                task,
                _perturbations(problem.lattice, task, rng),
            )


def large_instances(seed: int) -> Iterator[Instance]:
    """Yield instances with more points or larger losses, which take longer, with two perturbations each."""
    rng = np.random.default_rng([seed, 20])
    box, ball = IntegerLattice(-2, 2, dimension=5), IntegerLattice(-2, 2, dimension=7, radius=3.5)
    few = random_halfspace(rng, IntegerLattice([-2, 0, -1], [1, 2, 1]), blocks=(2,), numeric=1)
    # With noisy labels on repeated rows, the smallest losses are in the hundreds and differ by grid steps.
    y = np.where(rng.random(60 * len(few.y)) < 0.3, -1, 1) * np.tile(few.y, 60)
    problems = {
        "3,125 points": random_halfspace(rng, box, blocks=(2, 2), numeric=1),
        "ball in 78,125 points": random_halfspace(rng, ball, blocks=(4, 3), numeric=0),
        "2,400 records": ZeroOneHalfspace(np.tile(few.X, (60, 1)), y, few.lattice),
    }
    for (name, problem), task in itertools.product(problems.items(), Task):
        noise = _perturbations(problem.lattice, task, rng)
        kept = {kind: noise[kind] for kind in ("noise", "grid steps")}
        yield Instance(f"{name}, {task.name.lower()}, seed {seed}", problem, task, kept)


def short_instances(seed: int) -> Iterator[Instance]:
    """Yield instances with few points, so that many questions take little time."""
    rng = np.random.default_rng([seed, 30])
    problem = random_halfspace(rng, IntegerLattice(-1, 1, dimension=3), blocks=(2,), numeric=1)
    for task in Task:
        noise = _perturbations(problem.lattice, task, rng)
        yield Instance(f"27 points, {task.name.lower()}, seed {seed}", problem, task, noise)


def _problems(rng: Generator) -> Iterator[tuple[str, DataProblem]]:
    signs = IntegerLattice(-1, 1, dimension=5)
    yield "signs, one-hot and numeric", random_halfspace(rng, signs, blocks=(2, 2), numeric=1)
    yield (
        "asymmetric box",
        random_halfspace(rng, IntegerLattice([-2, 0, -1], [1, 2, 3]), blocks=(2,), numeric=1),
    )
    yield (
        "box with radius",
        random_halfspace(rng, IntegerLattice(-2, 2, dimension=3, radius=5**0.5), blocks=(3,), numeric=0),
    )
    # No point of the lattice has |w|^2 = 7, so the largest |w|^2 is below max_squared_norm.
    yield (
        "radius that is not attained",
        random_halfspace(rng, IntegerLattice([-3, -3], [3, 3], radius=7**0.5), blocks=(), numeric=2),
    )
    yield (
        "box without the origin",
        random_halfspace(rng, IntegerLattice([1, -3, 0], [2, -1, 3], radius=3.5), blocks=(2,), numeric=1),
    )
    yield (
        "sets of columns",
        random_halfspace(rng, IntegerLattice(0, 1, dimension=5), blocks=(3, 2), numeric=0),
    )
    costly = random_halfspace(rng, IntegerLattice(-1, 1, dimension=5), blocks=(2, 2), numeric=1)
    yield "unequal costs", ZeroOneHalfspace(costly.X, costly.y, costly.lattice, Costs(7, 3))
    yield "one point", random_halfspace(rng, IntegerLattice([1, -1], [1, -1]), blocks=(2,), numeric=0)
    yield (
        "zero features",
        ZeroOneHalfspace(np.zeros((4, 2), dtype=int), [1, 1, -1, 1], IntegerLattice(-1, 1, dimension=2)),
    )
    yield "scores of zero", decimal_ties()
    yield from _other_losses(rng)
    yield "constraints on points", random_halfspace(rng, constrained_lattice(), blocks=(2, 2), numeric=1)


def _other_losses(rng: Generator) -> Iterator[tuple[str, DataProblem]]:
    binary = rng.integers(0, 2, (30, 5))
    labels = rng.choice([-1, 1], 30)
    yield "conjunction", MonotoneConjunction(binary, labels)
    yield "disjunction", MonotoneDisjunction(binary, labels)
    ball = IntegerLattice([-2, -2, 0], [2, 1, 3], radius=3.0)
    features = rng.integers(-6, 7, (12, 3))
    yield "hinge loss", HingeHalfspace(features, rng.choice([-1, 1], 12), ball, norm=7.5, largest=5)
    yield "absolute loss", AbsoluteRegression(features, rng.integers(-9, 10, 12), ball, norm=7.5, largest=8)
    few = IntegerLattice([0, 0, 1, 0, 0], 1, radius=2**0.5)
    yield "conjunction of at most two features", MonotoneConjunction(binary, labels, few)


def _perturbations(lattice: IntegerLattice, task: Task, rng: Generator) -> dict[str, Perturbation]:
    """Return perturbations: none, noise, noise much larger than the loss, exact ties, single grid steps.

    A grid step is 1 in fixed point.
    """
    d = lattice.dimension

    def noise(scale: float) -> Perturbation:
        if task is Task.LINEAR:
            return Perturbation.linear(lattice, rng.normal(0.0, scale, d))
        return Perturbation.normalized(lattice, rng.normal(0.0, scale, d + 1))

    def tables(unit: int, largest: int) -> Perturbation:
        def draw(size: int) -> IntArray:
            return unit * rng.integers(-largest, largest + 1, size)

        radial = draw(lattice.max_squared_norm + 1) if task is Task.NORMALIZED else None
        return Perturbation(lattice, tuple(draw(len(v)) for v in levels(lattice)), radial)

    return {
        "no perturbation": Perturbation.zero(lattice),
        "noise": noise(3.0),
        "large noise": noise(1e4),
        _TIES: tables(UNIT, 1),
        "grid steps": tables(1, 2),
    }

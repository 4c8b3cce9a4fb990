"""Oracles that wrap another oracle, and add counting, caching, timing or a time limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from privopt.oracles.certificate import Status
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.task import Task
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass
class _Wrapper(DiscreteOracle):
    inner: DiscreteOracle
    name: ClassVar[str] = "wrapper"

    def __post_init__(self) -> None:
        # A wrapper has the name and capabilities of the oracle that it wraps.
        self.name, self.certifies = self.inner.name, self.inner.certifies  # type: ignore[misc]
        self.takes_constraints = self.inner.takes_constraints  # type: ignore[misc]

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return self.inner.refusals(problem, task)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return self.inner.planned_refusals(facts)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        return self.wrap(self.inner.build(problem, task))

    def wrap(self, solver: Solver) -> Solver:
        raise TypeError("a subclass has to define wrap")


@dataclass
class Counting(_Wrapper):
    """Counts builds and solves."""

    builds: int = 0
    solves: int = 0

    def wrap(self, solver: Solver) -> Solver:
        self.builds += 1

        def solve(query: Query) -> Proposal:
            self.solves += 1
            return solver(query)

        return solve


@dataclass
class Timing(_Wrapper):
    """Records the wall-clock seconds of every solve."""

    seconds: list[float] = field(default_factory=list)

    def wrap(self, solver: Solver) -> Solver:
        def solve(query: Query) -> Proposal:
            began = query.watch.seconds
            try:
                return solver(query)
            finally:
                self.seconds.append(query.watch.seconds - began)

        return solve


@dataclass
class TimeLimited(_Wrapper):
    """Stops each solve after ``limit`` seconds, or earlier if the caller's own limit is shorter."""

    limit: float = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        Limits(seconds=self.limit)  # raises if the limit is not positive

    def wrap(self, solver: Solver) -> Solver:
        def solve(query: Query) -> Proposal:
            left = query.watch.remaining
            if left is not None and left < self.limit:
                return solver(query)
            # The new watch has the start of the caller's watch, so its limit counts from that time.
            limits = replace(query.watch.limits, seconds=query.watch.seconds + self.limit)
            return solver(replace(query, watch=Watch(limits, query.watch.began)))

        return solve


@dataclass
class Caching(_Wrapper):
    """Caches answers by the exact perturbation, except for answers that a limit stopped."""

    hits: int = 0

    def wrap(self, solver: Solver) -> Solver:
        known: dict[tuple[bytes, ...], Proposal] = {}

        def solve(query: Query) -> Proposal:
            p = query.perturbation
            key = (*(t.tobytes() for t in p.unary), b"" if p.radial is None else p.radial.tobytes())
            found = known.get(key)
            if found is not None and (found.lexicographic or not query.break_ties):
                self.hits += 1
                return found
            answer = solver(query)
            if answer.status is Status.OPTIMAL:
                known[key] = answer
            return answer

        return solve

"""Noisy first-order iteration: gradient, noise, oracle step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector

State = Vector  # shape (p,), or (2, p) for methods that keep two points
Perturb = Callable[[Vector], Vector]


class Output(Enum):
    """The returned iterate: last, random or an average."""

    LAST = "last"
    AVERAGE = "average"
    WEIGHTED = "weighted"
    RANDOM = "random"


@dataclass(frozen=True)
class Run:
    """One run of a mechanism.

    Attributes:
        start: the first iterate.
        source: source of the noise; None for a run without noise.
        watch: the limits.
    """

    start: Vector
    source: NoiseSource | None
    watch: Watch

    def perturbation(self, noise: VectorNoise, steps: int) -> Perturb:
        """Return a function that adds fresh noise in each of ``steps`` steps; in a run without noise it adds
        nothing.
        """
        return (lambda vector: vector) if self.source is None else noise.adder(self.source, steps)


@dataclass(frozen=True)
class Method:
    """A first-order method as functions of its state and of a gradient.

    Attributes:
        start: the first state.
        step: (k, state, x, g) -> the next state, g the (noisy) gradient at x, k = 0, 1, ...
        query: (k, state) -> x, the point at which the gradient is computed.
        point: state -> its iterate.
    """

    start: State
    step: Callable[[int, State, Vector, Vector], State]
    query: Callable[[int, State], Vector] = lambda _, state: state
    point: Callable[[State], Vector] = lambda state: state


@dataclass
class StepClock:
    """Step counter of an iteration: reports progress, and stops the iteration when a limit is reached.

    Attributes:
        watch: the limits.
        total: the total number of steps.
        done: the number of steps done.
    """

    watch: Watch
    total: int
    done: int = 0

    def tick(self) -> None:
        """Count a step before it is made.

        Raises:
            UnfinishedDrawError: a limit was reached. Iterates so far are not released: their number depends
                on running time, and thus on the records.
        """
        if (reason := self.watch.stop()) is not None:
            remedy = "raise the time limit, or take fewer steps (steps=...)"
            raise UnfinishedDrawError(
                f"stopped by {reason.name} after {self.watch.seconds:.1f} s and {self.done} of {self.total} "
                "steps: nothing was released, though what a ledger reserved stays spent. "
                f"To do: {reason.value if reason is Status.INTERRUPTED else remedy}"
            )
        self.watch.report(math.nan, math.nan, self.done, self.total)
        self.done += 1


def noisy_iteration(
    method: Method,
    gradient: Callable[[Vector], Vector],
    perturb: Perturb,
    steps: int,
    clock: StepClock | None = None,
) -> Iterator[Vector]:
    """Yield the iterates x_2, ..., x_{steps+1} of a method with noisy gradients."""
    state = method.start
    for k in range(steps):
        if clock is not None:
            clock.tick()
        x = method.query(k, state)
        state = method.step(k, state, x, perturb(gradient(x)))
        yield method.point(state)


def choose_output(iterates: Iterator[Vector], output: Output, first: Vector) -> Vector:
    """Return the last iterate (``first`` if there is none), the average, or the average with weights 1, 2,
    ...

    These weights reduce the influence of the start, and the noise is still averaged (Lacoste-Julien, Schmidt
    and Bach 2012; Shamir and Zhang 2013).
    """
    last, total, weight, k = first, np.zeros_like(first), 0, 0
    for k, x in enumerate(iterates, start=1):
        last = x
        share = k if output is Output.WEIGHTED else 1
        total, weight = total + share * x, weight + share
    return total / weight if output in (Output.AVERAGE, Output.WEIGHTED) and k else last

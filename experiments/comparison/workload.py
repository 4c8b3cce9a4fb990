"""Workloads of the benchmark: problems, sizes, noise levels, draws; the same on every machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import MECHANISMS
from privopt.oracles.task import Task
from privopt.problems.datasets.adult import load_adult23
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.conjunction import MonotoneConjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.errors import InvalidInputError

NO_NOISE = math.inf
Problem = ZeroOneHalfspace | MonotoneConjunction
# Columns of Adult's 23 features: three numbers and sex; then race, relationship and marital status too.
_ADULT_COLUMNS = {
    5: (*range(3), 21, 22),
    10: (*range(3), *range(16, 23)),
    16: (*range(3), *range(10, 23)),
    23: tuple(range(23)),
}
# One-hot blocks of the synthetic tables, by dimension. Without numbers, one cell model is the whole problem.
_BLOCKS = {12: (4, 4, 4), 20: (6, 5, 5, 4), 30: (8, 8, 7, 7)}


@dataclass(frozen=True)
class Instance:
    """One instance of the benchmark: a problem and the noise of one draw.

    Attributes:
        data: "adult", "synthetic" or "conjunction".
        n: the number of records.
        d: the number of features.
        question: the mechanism, "rspm" or "opdisc", which determines noise and lattice.
        epsilon: the epsilon of the noise; infinite for no noise.
        draw: the number of the draw, which seeds the noise.
    """

    data: str
    n: int
    d: int
    question: str
    epsilon: float
    draw: int

    @property
    def task(self) -> Task:
        task = MECHANISMS[self.question].question
        assert isinstance(task, Task)
        return task

    def __str__(self) -> str:
        noise = "no noise" if math.isinf(self.epsilon) else f"epsilon {self.epsilon:g}"
        return f"{self.data} n={self.n} d={self.d} {self.question} {noise} draw {self.draw}"

    @property
    def file_name(self) -> str:
        """The name of the instance in file names."""
        return f"{self.data}-n{self.n}-d{self.d}-{self.question}-eps{self.epsilon:g}-{self.draw}"


def workload(name: str, draws: int) -> list[Instance]:
    """Return the instances of a workload, small ones first.

    Args:
        name: "tiny" (seconds), "ladder" (Adult from 200 to 15,682 records and from 5 to 23 features),
            "synthetic", "conjunctions", "noise" (the full Adult task at other levels of noise), "all" (these
            without "tiny"), or "hard" (small files that general solvers find hard, for ``--export``).
        draws: the number of draws of the noise, if there is noise.
    """
    parts = {
        "tiny": _grid("synthetic", (60,), (12,), ("rspm", "opdisc"), (1.0,), draws)
        + _grid("conjunction", (60,), (8,), ("rspm",), (1.0,), draws),
        "ladder": _grid("adult", (200, 2000, 15_682), (5, 10, 16, 23), ("rspm", "opdisc"), (1.0,), draws),
        "synthetic": _grid("synthetic", (500, 5000), (12, 20, 30), ("opdisc",), (1.0, NO_NOISE), draws),
        "conjunctions": _grid("conjunction", (200, 2000), (20, 60), ("rspm",), (1.0, NO_NOISE), draws),
        "noise": _grid("adult", (15_682,), (23,), ("rspm", "opdisc"), (0.1, 5.0, NO_NOISE), draws),
        "hard": _grid("adult", (200,), (5,), ("rspm", "opdisc"), (1.0,), draws)
        + _grid("adult", (2000,), (10, 16), ("rspm", "opdisc"), (1.0,), draws)
        + _grid("synthetic", (500,), (20, 30), ("opdisc",), (NO_NOISE,), draws)
        + _grid("synthetic", (5000,), (12, 20), ("opdisc",), (NO_NOISE,), draws)
        + _grid("conjunction", (2000,), (60,), ("rspm",), (NO_NOISE,), draws),
    }
    if name == "all":
        return [i for key, part in parts.items() if key not in ("tiny", "hard") for i in part]
    if name not in parts:
        raise InvalidInputError(f"no workload {name!r}; there are {', '.join(parts)}, all")
    return parts[name]


def _grid(
    data: str,
    records: Sequence[int],
    features: Sequence[int],
    questions: Sequence[str],
    epsilons: Sequence[float],
    draws: int,
) -> list[Instance]:
    return [
        Instance(data, n, d, question, epsilon, draw)
        for n, d, question, epsilon in itertools.product(records, features, questions, epsilons)
        for draw in range(1 if math.isinf(epsilon) else draws)
    ]


@lru_cache(maxsize=4)
def problem(data: str, n: int, d: int, question: str) -> Problem:
    """Build the problem of an instance: its data over the lattice of its mechanism."""
    if data == "conjunction":
        return _conjunction(n, d)
    X, y = _adult(n, d) if data == "adult" else make_cells(n, _BLOCKS[d], numeric=0, seed=d)
    return ZeroOneHalfspace(X, y, MECHANISMS[question].default_lattice(d))


@lru_cache(maxsize=1)
def _adult_table() -> tuple[IntArray, IntArray]:
    X, y, _ = load_adult23()
    return X, y


def _adult(n: int, d: int) -> tuple[IntArray, IntArray]:
    X, y = _adult_table()
    rows = np.sort(np.random.default_rng(n).permutation(len(X))[:n])
    return X[np.ix_(rows, _ADULT_COLUMNS[d])], y[rows]


def _conjunction(n: int, d: int) -> MonotoneConjunction:
    """Generate features, 1 with probability 0.9, and labels by a conjunction of four; a tenth is flipped."""
    rng = np.random.default_rng([n, d])
    X = (rng.random((n, d)) < 0.9).astype(np.int64)
    hidden = rng.choice(d, 4, replace=False)
    y = np.where(X[:, hidden].all(axis=1) ^ (rng.random(n) < 0.1), 1, -1)
    return MonotoneConjunction(X, y)


def perturbation(instance: Instance) -> Perturbation:
    """Return the noise of an instance, seeded by its draw: NOT private, and the data are public."""
    asked = problem(instance.data, instance.n, instance.d, instance.question)
    return noise_of(instance.question, asked, instance.epsilon, instance.draw)


def noise_of(mechanism: str, problem: Problem, epsilon: float, seed: int) -> Perturbation:
    """Return a seeded perturbation by the mechanism's plan at delta = 1/n^2."""
    kind, lattice = type(problem), problem.lattice
    if math.isinf(epsilon):
        return Perturbation.zero(lattice)
    plan = MECHANISMS[mechanism].plan(kind, lattice, epsilon=epsilon, delta=1.0 / problem.n_records**2)
    source = NoiseSource(insecure_seed=seed)
    if mechanism == "opdisc":
        return Perturbation.normalized(lattice, source.gaussian(plan.noise["sigma"], lattice.dimension + 1))
    separators = kind.separators(lattice)
    return separators.weighted(source.gaussian(plan.noise["sigma"], separators.size))

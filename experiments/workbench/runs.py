"""Repeated releases of lattice mechanisms, one saved row each: the loop of the demo and accuracy figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from privopt.experiments.workbench.resumable import Kept
from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.limits import Limits
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice

# The fields of a row that identify it.
KEY = ("mechanism", "lattice", "epsilon", "draw")


def key_of(mechanism: str, lattice: str, epsilon: float, draw: int) -> dict[str, object]:
    """Return the fields that identify a row, by name."""
    return dict(zip(KEY, (mechanism, lattice, epsilon, draw), strict=True))


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment: a mechanism over a lattice at one epsilon."""

    mechanism: type[LatticeMechanism[Any]]
    lattice: IntegerLattice
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Row:
    """One draw. All fields but mechanism, lattice, epsilon, delta and oracle depend on the records."""

    mechanism: str
    lattice: str
    epsilon: float
    delta: float
    draw: int
    oracle: str
    train_accuracy: float
    test_accuracy: float
    status: str
    gap: float
    seconds: float


class Results(Kept):
    """Rows in a CSV file, appended one by one, so that an interrupted run can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Row, KEY)

    def drawn(self, *key: object) -> bool:
        """Return whether a draw is saved; the key is mechanism, lattice, epsilon and number of the draw."""
        return bool(self.matching(**dict(zip(self.key, key, strict=True))))


class Repeats:
    """Draws of lattice mechanisms on public records; each oracle is prepared once.

    The noise is seeded by the number of the draw, so that a rerun reproduces the results: never use this
    class to release results about private data.

    Args:
        train, test: features of shape (n, d) and labels -1 or +1.
        oracle: the name of an oracle.
    """

    def __init__(
        self,
        train: tuple[np.ndarray, np.ndarray],
        test: tuple[np.ndarray, np.ndarray],
        oracle: str = "auto",
    ) -> None:
        self.train, self.test, self.oracle = train, test, oracle
        self._prepared: dict[tuple[type[LatticeMechanism[Any]], IntegerLattice], Any] = {}

    def row(self, setting: Setting, draw: int) -> Row:
        """Release once, and measure the point on both tables."""
        kind, lattice = setting.mechanism, setting.lattice
        plan = kind.plan(ZeroOneHalfspace, lattice, epsilon=setting.epsilon, delta=setting.delta)
        if (kind, lattice) not in self._prepared:
            problem = ZeroOneHalfspace(*self.train, lattice)
            self._prepared[kind, lattice] = prepare_oracle(self.oracle, plan, problem)
        began = time.perf_counter()
        release = plan.release(self._prepared[kind, lattice], NoiseSource(insecure_seed=draw), Limits())
        seconds = time.perf_counter() - began
        proof = release.certificate
        return Row(
            mechanism=kind.name,
            lattice=str(lattice),
            epsilon=setting.epsilon,
            delta=release.spend.delta,
            draw=draw,
            oracle=release.oracle,
            train_accuracy=accuracy(release.point, *self.train),
            test_accuracy=accuracy(release.point, *self.test),
            status="EXACT_DRAW" if proof is None else proof.status.name,
            gap=0.0 if proof is None else proof.gap,
            seconds=seconds,
        )


def run_settings(
    settings: Sequence[Setting],
    draws: int,
    repeats: Repeats,
    results: Results,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> None:
    """Make ``draws`` draws of every setting, but for those that ``results`` holds, and add them to it."""
    for setting, draw in product(settings, range(draws)):
        if not results.drawn(setting.mechanism.name, str(setting.lattice), setting.epsilon, draw):
            row = repeats.row(setting, draw)
            results.add(row)
            on_row(row)


def accuracy(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Return the share of correct predictions; a score of 0 predicts -1."""
    return float(np.mean(np.where(X @ w > 0, 1, -1) == y))

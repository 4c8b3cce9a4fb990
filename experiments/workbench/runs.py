"""Many draws, one row each, kept as they finish: the loop behind the demo and the accuracy figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Setting:
    """One cell of an experiment: a mechanism over a lattice at one epsilon."""

    mechanism: type[LatticeMechanism[Any]]
    lattice: IntegerLattice
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Row:
    """One draw. Everything but mechanism, lattice, epsilon, delta and oracle is a fact about the records."""

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
    """Rows in a CSV file, appended one by one, so that an interrupted run keeps what it has finished."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Row, ("mechanism", "lattice", "epsilon", "draw"))

    def drawn(self, *key: object) -> bool:
        """Whether the draw of a mechanism, over a lattice, at an epsilon, of a number is there."""
        return bool(self.matching(**dict(zip(self.key, key, strict=True))))


def run_settings(
    settings: Sequence[Setting],
    draws: int,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    results: Results,
    *,
    oracle: str = "auto",
    on_row: Callable[[Row], None] = lambda row: None,
) -> None:
    """Fill ``results`` with ``draws`` draws of every setting that is not there yet.

    The noise is seeded by the draw's number, so that a rerun reproduces the figures: the data is public,
    and nothing here may be used to release anything about other data.
    """
    prepared: dict[tuple[type[LatticeMechanism[Any]], IntegerLattice], Any] = {}
    for setting in settings:
        for draw in range(draws):
            if results.drawn(setting.mechanism.name, str(setting.lattice), setting.epsilon, draw):
                continue
            plan = setting.mechanism.plan(
                ZeroOneHalfspace, setting.lattice, epsilon=setting.epsilon, delta=setting.delta
            )
            key = setting.mechanism, setting.lattice
            if key not in prepared:
                prepared[key] = prepare_oracle(oracle, plan, ZeroOneHalfspace(*train, setting.lattice))
            row = _one(plan, setting, draw, prepared[key], train, test)
            results.add(row)
            on_row(row)


def _one(plan: Any, setting: Setting, draw: int, oracle: Any, train: Any, test: Any) -> Row:
    began = time.perf_counter()
    release = plan.release(oracle, NoiseSource(insecure_seed=draw), Limits())
    seconds = time.perf_counter() - began
    proof = release.certificate
    return Row(
        mechanism=setting.mechanism.name,
        lattice=str(setting.lattice),
        epsilon=setting.epsilon,
        delta=release.spend.delta,
        draw=draw,
        oracle=release.oracle,
        train_accuracy=accuracy(release.point, *train),
        test_accuracy=accuracy(release.point, *test),
        status="EXACT_DRAW" if proof is None else proof.status.name,
        gap=0.0 if proof is None else proof.gap,
        seconds=seconds,
    )


def accuracy(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Share of correct predictions; a score of 0 predicts -1."""
    return float(np.mean(np.where(X @ w > 0, 1, -1) == y))

"""Repeated releases of lattice mechanisms, one saved row each: the loop of the demo and accuracy figures."""

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
        super().__init__(path, Row, ("mechanism", "lattice", "epsilon", "draw"))

    def drawn(self, *key: object) -> bool:
        """Return whether a draw is saved; the key is mechanism, lattice, epsilon and number of the draw."""
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
    """Add the missing ones of ``draws`` draws of every setting to ``results``.

    The noise is seeded by the number of the draw, so that a rerun reproduces the results. The data is public;
    never use this function to release results about private data.
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
    """Return the share of correct predictions; a score of 0 predicts -1."""
    return float(np.mean(np.where(X @ w > 0, 1, -1) == y))

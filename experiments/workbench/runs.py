"""Many draws, one row each, kept as they finish: the loop behind the demo and the accuracy figures."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.registry import prepare_oracle
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


class Results:
    """Rows in a CSV file, appended one by one, so that an interrupted run keeps what it has finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Mapping[Any, Any]] = []
        if path.exists():
            self.rows.extend(pd.read_csv(path).to_dict("records"))
        self._done = {(r["mechanism"], r["lattice"], repr(float(r["epsilon"])), r["draw"]) for r in self.rows}

    def holds(self, mechanism: str, lattice: str, epsilon: float, draw: int) -> bool:
        return (mechanism, lattice, repr(epsilon), draw) in self._done

    def add(self, row: Row) -> None:
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Row)])
            if new:
                writer.writeheader()
            writer.writerow(asdict(row))
        self.rows.append(asdict(row))
        self._done.add((row.mechanism, row.lattice, repr(row.epsilon), row.draw))

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)


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
            if results.holds(setting.mechanism.name, str(setting.lattice), setting.epsilon, draw):
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

"""Measure accuracy against epsilon on the Adult task of Neel, Roth, Vietri and Wu (2020).

    python -m privopt.experiments.accuracy --output FOLDER [--draws 20]

Writes ``accuracy.csv`` (a line per draw, appended as the draw finishes: an interrupted run resumes),
``accuracy.md`` (the table) and two pictures. The data are public and the noise is seeded, so that a run can
be reproduced. Every mechanism has its sound calibration. The hyper-parameters of the DP-GD baseline cost it
no budget: they are the best of a grid, chosen on the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from privopt.experiments.workbench.dpgd_baseline import dpgd_accuracies
from privopt.experiments.workbench.figures import accuracy_figure, named, weights
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.runs import KEY, Repeats, Row, Setting, key_of
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.rspm import GaussianRSPM, LaplaceRSPM
from privopt.oracles.draw.interface import Law
from privopt.oracles.select import gibbs_oracle
from privopt.problems.datasets.adult import load_adult23, load_adult23_test
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
TERNARY = IntegerLattice(-1, 1, dimension=23)
QUINARY = IntegerLattice(-2, 2, dimension=23)
BALL = OPDisc.default_lattice(23)
_BASELINE = ("dp-gd logistic", "weights in R^24")


def settings(n: int) -> list[Setting]:
    """Return the mechanisms, lattices and epsilons that are compared; delta is 1/n^2 where one is needed."""
    pairs: list[tuple[type[Any], IntegerLattice]] = [
        *((ExponentialMechanism, lattice) for lattice in (TERNARY, QUINARY, BALL)),
        *((PermuteAndFlip, lattice) for lattice in (TERNARY, QUINARY, BALL)),
        (OPDisc, BALL),
        (GaussianRSPM, TERNARY),
        (LaplaceRSPM, TERNARY),
    ]
    return [Setting(kind, lattice, eps, 1.0 / n**2) for kind, lattice in pairs for eps in EPSILONS]


Table = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Draw:
    """One draw of a lattice mechanism."""

    setting: Setting
    draw: int

    @property
    def key(self) -> dict[str, object]:
        s = self.setting
        return key_of(s.mechanism.name, str(s.lattice), s.epsilon, self.draw)

    def rows(self, repeats: Repeats) -> list[Row]:
        return [repeats.row(self.setting, self.draw)]

    def __str__(self) -> str:
        return f"{self.setting.mechanism.name} over {self.setting.lattice}, epsilon {self.setting.epsilon:g}"


@dataclass(frozen=True)
class Baseline:
    """All draws of DP-GD logistic regression at one epsilon, whose hyper-parameters are chosen once."""

    epsilon: float
    draws: int

    @property
    def key(self) -> dict[str, object]:
        return key_of(*_BASELINE, self.epsilon, self.draws - 1)

    def rows(self, repeats: Repeats) -> Iterator[Row]:
        delta = 1.0 / len(repeats.train[1]) ** 2
        found = dpgd_accuracies(*repeats.train, *repeats.test, self.epsilon, delta, self.draws, seed=0)
        for number, (on_train, on_test, seconds) in enumerate(found):
            yield Row(
                *_BASELINE, self.epsilon, delta, number, "gradient", on_train, on_test,
                "NO_CERTIFICATE", float("nan"), seconds,
            )  # fmt: skip

    def __str__(self) -> str:
        return f"{_BASELINE[0]}, epsilon {self.epsilon:g}"


def study(train: Table, test: Table) -> Study[Draw | Baseline]:
    """Return the study on two public tables: training and held-out records."""
    repeats = Repeats(train, test)

    def whole_page(rows: pd.DataFrame) -> str:
        return page(rows, exact_expectation(ZeroOneHalfspace(*train, TERNARY)))

    return Study(
        "accuracy",
        Row,
        KEY,
        compute=lambda cell: cell.rows(repeats),
        is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
        page=whole_page,
        figures={
            ".png": lambda rows: accuracy_figure(rows, {}, "train_accuracy"),
            "-held-out.png": lambda rows: accuracy_figure(rows, {}, "test_accuracy"),
        },
    )


def exact_expectation(problem: ZeroOneHalfspace) -> dict[float, float]:
    """Return the expected training accuracy of the exponential mechanism, a sum over all of {-1,0,1}^23."""
    oracle = gibbs_oracle("elimination").prepare(problem, Law.GIBBS)
    return {e: 1 - oracle.expected_loss(e / 2) / problem.n_records for e in EPSILONS}


def pivot(rows: pd.DataFrame, measure: str, exact: dict[float, float]) -> pd.DataFrame:
    """Tabulate mean and standard deviation: a line per mechanism and lattice, a column per epsilon.

    Args:
        measure: the column of ``rows`` to tabulate.
        exact: the exact expectation by epsilon, for a last line; if empty, there is no such line.
    """
    lines = []
    for (mechanism, lattice), group in rows.groupby(["mechanism", "lattice"], sort=False):
        points = group.groupby("epsilon")[measure]
        cells = {f"{e:g}": f"{m:.3f} ± {s:.3f}" for e, m, s in zip(*_moments(points), strict=True)}
        lines.append({**_heading(str(mechanism), str(lattice), group["delta"].iloc[0]), **cells})
    if exact:
        cells = {f"{e:g}": f"{a:.4f}" for e, a in exact.items()}
        heading = _heading("exponential", str(TERNARY), 0.0)
        lines.append({**heading, "mechanism": f"{heading['mechanism']}, exact expectation", **cells})
    return pd.DataFrame(lines)


def _heading(mechanism: str, lattice: str, delta: float) -> dict[str, str]:
    return {"mechanism": named(mechanism), "weights": weights(lattice), "δ": f"{delta:.2g}"}


def _moments(points: Any) -> tuple[list[float], list[float], list[float]]:
    means, spreads = points.mean(), points.std(ddof=1)
    return list(means.index), list(means), list(np.nan_to_num(spreads))


def page(rows: pd.DataFrame, exact: dict[float, float]) -> str:
    """Write the page from all draws and the exact expectation of the training accuracy at each epsilon."""
    means = rows.groupby(["mechanism", "lattice", "epsilon"])["train_accuracy"].mean()
    drawn = means["exponential", str(TERNARY)]
    places = {
        "draws": f"{rows['draw'].nunique()}",
        "training": markdown_table(pivot(rows, "train_accuracy", exact)),
        "held-out": markdown_table(pivot(rows, "test_accuracy", {})),
        "above-rspm": f"{(drawn > means['rspm', str(TERNARY)]).sum()} of {len(drawn)}",
        "below-wider": f"{(drawn < means['exponential', str(BALL)]).sum()} of {len(drawn)}",
    }
    return filled("accuracy", places)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for table, pictures and draws.")],
    draws: Annotated[int, typer.Option(min=2, help="Number of draws per setting.")] = 20,
) -> None:
    """Measure the missing draws, and write the page."""
    (X, y, _), (test_X, test_y, _) = load_adult23(), load_adult23_test()
    cells: list[Draw | Baseline] = [Draw(one, k) for one in settings(len(y)) for k in range(draws)]
    cells += [Baseline(epsilon, draws) for epsilon in EPSILONS]
    study((X, y), (test_X, test_y)).run(output, cells)


if __name__ == "__main__":
    typer.run(main)

"""Accuracy against epsilon on the Adult task of Neel, Roth, Vietri and Wu (2020), all soundly calibrated.

    python -m privopt.experiments.accuracy --output FOLDER [--draws 20]

Writes ``accuracy-draws.csv`` (every draw, appended as it finishes: an interrupted run resumes),
``accuracy.md`` (the table) and two pictures. The data is public and the noise seeded, so a run reproduces.
The DP-GD baseline gets its hyper-parameters for free: the best of a grid, chosen on the private data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.progress import Progress as Bar

from privopt.experiments.workbench.dpgd_baseline import dpgd_accuracies
from privopt.experiments.workbench.figures import accuracy_figure, named, save, weights
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.runs import Results, Row, Setting, run_settings
from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.rspm import GaussianRSPM, LaplaceRSPM
from privopt.oracles.draw.interface import Law
from privopt.oracles.select import gibbs_oracle
from privopt.problems.datasets.adult import load_adult23, load_adult23_test
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.files import write_atomically

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
TERNARY = IntegerLattice(-1, 1, dimension=23)
QUINARY = IntegerLattice(-2, 2, dimension=23)
BALL = OPDisc.default_lattice(23)


def settings(n: int) -> list[Setting]:
    """Return mechanisms, lattices and epsilons of the comparison; delta = 1/n^2, if there is one."""
    pairs: list[tuple[type[Any], IntegerLattice]] = [
        *((ExponentialMechanism, lattice) for lattice in (TERNARY, QUINARY, BALL)),
        *((PermuteAndFlip, lattice) for lattice in (TERNARY, QUINARY, BALL)),
        (OPDisc, BALL),
        (GaussianRSPM, TERNARY),
        (LaplaceRSPM, TERNARY),
    ]
    return [Setting(kind, lattice, eps, 1.0 / n**2) for kind, lattice in pairs for eps in EPSILONS]


def run(output: Path, draws: int, console: Console) -> pd.DataFrame:
    """Run the comparison, write files to ``output``, and return all rows."""
    output.mkdir(parents=True, exist_ok=True)
    X, y, _ = load_adult23()
    test_X, test_y, _ = load_adult23_test()
    results = Results(output / "accuracy-draws.csv")
    todo = settings(len(y))
    with Bar(console=console) as bar:
        line = bar.add_task("draws", total=(len(todo) + len(EPSILONS)) * draws, completed=len(results.lines))

        def on_row(row: Row) -> None:
            text = f"{row.mechanism} over {row.lattice}, eps={row.epsilon:g}: {row.train_accuracy:.3f}"
            bar.update(line, advance=1, description=text)

        run_settings(todo, draws, (X, y), (test_X, test_y), results, on_row=on_row)
        _baseline(results, draws, (X, y), (test_X, test_y), on_row)
    rows = results.frame
    exact = exact_expectation(ZeroOneHalfspace(X, y, TERNARY))
    write_atomically(output / "accuracy.md", page(rows, exact, draws))
    save(accuracy_figure(rows, {}, "train_accuracy"), output / "accuracy.png")
    save(accuracy_figure(rows, {}, "test_accuracy"), output / "test-accuracy.png")
    return rows


def _baseline(results: Results, draws: int, train: Any, test: Any, on_row: Any) -> None:
    """Add rows of DP-GD logistic regression, one per draw."""
    (X, y), (test_X, test_y) = train, test
    delta = 1.0 / len(y) ** 2
    for epsilon in EPSILONS:
        if results.drawn("dp-gd logistic", "weights in R^24", epsilon, draws - 1):
            continue
        for number, (on_train, on_test, seconds) in enumerate(
            dpgd_accuracies(X, y, test_X, test_y, epsilon, delta, draws, seed=0)
        ):
            if results.drawn("dp-gd logistic", "weights in R^24", epsilon, number):
                continue
            row = Row(
                "dp-gd logistic", "weights in R^24", epsilon, delta, number, "gradient", on_train, on_test,
                "NO_CERTIFICATE", float("nan"), seconds,
            )  # fmt: skip
            results.add(row)
            on_row(row)


def exact_expectation(problem: ZeroOneHalfspace) -> dict[float, float]:
    """Return the expected training accuracy of the exponential mechanism, a sum over all of {-1,0,1}^23."""
    oracle = gibbs_oracle("elimination").prepare(problem, Law.GIBBS)
    return {e: 1 - oracle.expected_loss(e / 2) / problem.n_records for e in EPSILONS}


def pivot(rows: pd.DataFrame, measure: str, exact: dict[float, float]) -> pd.DataFrame:
    """Tabulate mean and standard deviation: a line per mechanism and lattice, a column per epsilon."""
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


def page(rows: pd.DataFrame, exact: dict[float, float], draws: int) -> str:
    """Write the page from all draws and the expected training accuracies."""
    means = rows.groupby(["mechanism", "lattice", "epsilon"])["train_accuracy"].mean()
    drawn = means["exponential", str(TERNARY)]
    places = {
        "draws": f"{draws}",
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
    """Run the comparison and print the table."""
    console = Console(soft_wrap=True, emoji=False)
    run(output, draws, console)
    console.print((output / "accuracy.md").read_text(), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)

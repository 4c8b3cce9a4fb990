"""The main job, end to end: private scorecards on the real Adult data, every oracle call certified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Column, Table

from privopt.experiments.figures import accuracy_figure, certificate_figure, save, solver_profile
from privopt.experiments.report import page
from privopt.experiments.runs import Results, Row, Setting, accuracy, run_settings
from privopt.mechanisms.classifier import scorecard, write_atomically
from privopt.mechanisms.mechanism import LatticeMechanism
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.opdisc import OPDisc
from privopt.mechanisms.registry import MECHANISMS
from privopt.oracles.certificate import Answer
from privopt.oracles.interface import Limits, Progress, Task
from privopt.oracles.select import minimizer
from privopt.problems.adult import load_adult23, load_adult23_test
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.objective import Perturbation
from privopt.problems.schema import Schema

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)


def run_demo(output: Path, draws: int, console: Console) -> None:
    """Run every mechanism at a few epsilons, then leave a table, pictures and a report in ``output``.

    Interrupted, it keeps the draws that are done; run again, it goes on from there.
    """
    output.mkdir(parents=True, exist_ok=True)
    X, y, schema = load_adult23()
    test_X, test_y, _ = load_adult23_test()
    console.print(f"Adult, balanced task of Neel, Roth, Vietri and Wu (2020): n = {len(y)}, d = {X.shape[1]}")
    results = Results(output / "draws.csv")
    settings = _settings(len(y), X.shape[1])
    with Bar(console=console) as bar:
        line = bar.add_task("private draws", total=len(settings) * draws, completed=len(results.rows))

        def on_row(row: Row) -> None:
            text = f"{row.mechanism} eps={row.epsilon:g}: {row.train_accuracy:.3f}, {row.seconds:.1f} s"
            bar.update(line, advance=1, description=text)

        run_settings(settings, draws, (X, y), (test_X, test_y), results, on_row=on_row)
    problem = ZeroOneHalfspace(X, y, MECHANISMS["opdisc"].default_lattice(X.shape[1]))
    best, _ = _solve(problem, Perturbation.zero(problem.lattice), "auto")
    noisy, second, trace = _two_solvers(problem)
    rows = results.frame
    table = summary(rows)
    _print(table, console)
    agreement = _agreement(noisy, second)
    console.print(agreement)
    top = (
        {} if best.point is None else {"best over OPDisc's lattice, not private": accuracy(best.point, X, y)}
    )
    pictures = {
        "accuracy.png": accuracy_figure(rows, top, "train_accuracy"),
        "test-accuracy.png": accuracy_figure(rows, {}, "test_accuracy"),
        "solver-profile.png": solver_profile(rows),
        "certificate.png": certificate_figure(trace, "One OPDisc solve at epsilon = 1, PuLP with HiGHS"),
    }
    for name, figure in pictures.items():
        save(figure, output / name)
    table.to_csv(output / "summary.csv", index=False)
    write_atomically(output / "report.html", _report(table, pictures, schema, best, agreement))
    console.print(f"Table, pictures and report are in {output}/ (open {output}/report.html)")


def _settings(n: int, dimension: int) -> list[Setting]:
    kinds: list[type[LatticeMechanism[Any]]] = list(MECHANISMS.values())
    return [Setting(m, m.default_lattice(dimension), eps, 1.0 / n**2) for m in kinds for eps in EPSILONS]


def _solve(problem: ZeroOneHalfspace, noise: Perturbation, oracle: str) -> tuple[Answer, list[Progress]]:
    """One certified solve, and how its certificate came about."""
    trace: list[Progress] = []
    prepared = minimizer(oracle).prepare(problem, Task.NORMALIZED)
    answer = prepared.minimize(noise, Limits(seconds=180.0, on_progress=trace.append))
    c = answer.certificate
    return answer, [*trace, Progress(c.value, c.bound, c.nodes, c.seconds)]


def _two_solvers(problem: ZeroOneHalfspace) -> tuple[Answer, Answer, list[Progress]]:
    """The same noisy problem through the automatic oracle and through PuLP with HiGHS."""
    n, d = problem.n_records, problem.lattice.dimension
    plan = OPDisc.plan(ZeroOneHalfspace, problem.lattice, epsilon=1.0, delta=1.0 / n**2)
    eta = NoiseSource(insecure_seed=0).gaussian(plan.sigma, d + 1)
    noise = Perturbation.normalized(problem.lattice, eta)
    first, _ = _solve(problem, noise, "auto")
    second, trace = _solve(problem, noise, "pulp-highs")
    return first, second, trace


def _agreement(first: Answer, second: Answer) -> str:
    same = first.certificate.fixed_value == second.certificate.fixed_value
    return (
        f"Two solvers on one OPDisc draw at epsilon = 1 {'agree' if same else 'do not agree'}:\n"
        f"  {first.certificate}\n  {second.certificate}"
    )


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per mechanism, lattice and epsilon."""
    groups = rows.groupby(["mechanism", "lattice", "epsilon"], sort=False)
    table = groups.agg(
        delta=("delta", "first"),
        draws=("draw", "count"),
        train_mean=("train_accuracy", "mean"),
        train_sd=("train_accuracy", "std"),
        test_mean=("test_accuracy", "mean"),
        largest_gap=("gap", "max"),
        median_seconds=("seconds", "median"),
    )
    return table.reset_index()


def _print(table: pd.DataFrame, console: Console) -> None:
    """Training accuracy, mean and standard deviation: a line per mechanism, a column per epsilon."""
    columns = [f"eps {e:g}" for e in EPSILONS]
    shown = Table(Column("mechanism", no_wrap=True), *columns, title="Training accuracy (not private)")
    for name, group in table.groupby("mechanism", sort=False):
        cells = (f"{row.train_mean:.3f} ±{row.train_sd:.3f}" for row in group.itertuples())
        shown.add_row(str(name), *cells)
    console.print(shown)
    console.print(
        f"{table['draws'].sum()} draws, largest gap left by a minimiser {table['largest_gap'].max():g}, "
        f"largest median time of a draw {table['median_seconds'].max():.2g} s"
    )


def _report(
    table: pd.DataFrame, pictures: dict[str, Any], schema: Schema, best: Answer, agreement: str
) -> str:
    card = [] if best.point is None else [scorecard(schema, best.point)]
    return page(
        "privopt: private scorecards on Adult",
        [
            (
                "Accuracy against epsilon",
                [
                    "Each point is the mean over draws, the band one standard deviation. Neighbouring data "
                    "sets differ by replacing one record. Accuracies are facts about the records and are not "
                    "covered by the guarantee; the data is public and the noise seeded so that this page can "
                    "be reproduced.",
                    pictures["accuracy.png"],
                    pictures["test-accuracy.png"],
                    table,
                ],
            ),
            (
                "How long a draw takes",
                ["Minimisers end with a proved gap of 0.", pictures["solver-profile.png"]],
            ),
            (
                "A certificate over time",
                [agreement, pictures["certificate.png"]],
            ),
            (
                "The best scorecard without privacy",
                [str(best.certificate), *card],
            ),
        ],
    )

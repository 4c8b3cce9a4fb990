"""Compare card, tree and card plus tree on synthetic populations: ``choose_model`` has its limits from here.

    python -m privopt.experiments.model_choice [--output FOLDER]

Training records are drawn from one half of a population of ``privopt.experiments.workbench.tree_tasks``; the
other half is held out. Costs are balanced, and trees have three levels. Small budgets, whose results vary
most, have several draws. Writes ``model-choice.md``, and ``model-choice.csv``, which keeps the results of
finished cells: an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.experiments.workbench.tree_tasks import Population, populations
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateTreeClassifier,
)

# Numbers of records and epsilons.
SIZES = (
    *((1_000, epsilon) for epsilon in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)),
    *((10_000, epsilon) for epsilon in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
)
# Number of draws where records times epsilon are at most ``_DRAWN_UP_TO``; beyond, there is one draw.
_DRAWS, _DRAWN_UP_TO = 4, 3_000
# Families whose populations with labels from a tree take part.
_TREES = ("uniform", "few levels", "mixed")
MODELS: dict[str, Callable[..., Any]] = {
    "card": lambda epsilon, **known: PrivateHalfspaceClassifier(epsilon, class_weight="balanced", **known),
    "tree": lambda epsilon, **known: PrivateTreeClassifier(
        epsilon, class_weight="balanced", risk_share=0.1, max_depth=3, **known
    ),
    "additive": lambda epsilon, **known: PrivateAdditiveTreeClassifier(epsilon, max_depth=3, **known),
}


@dataclass(frozen=True)
class Line:
    """Measures of one model on held-out records of a population."""

    population: int
    family: str
    signal: str
    n: int
    epsilon: float
    draw: int
    model: str
    balanced_accuracy: float
    auc: float


class Cell(NamedTuple):
    """A draw of records: the number of the population, the population, size, epsilon, number of the draw."""

    number: int
    population: Population
    n: int
    epsilon: float
    draw: int

    def __str__(self) -> str:
        return f"population {self.number}, n = {self.n:,}, epsilon {self.epsilon:g}, draw {self.draw}"

    @property
    def key(self) -> dict[str, object]:
        return {"population": self.number, "n": self.n, "epsilon": self.epsilon, "draw": self.draw}


def measured(cell: Cell) -> list[Line]:
    """Measure each model, fitted to n records, at most half of the population, on the other half."""
    number, population, n, epsilon, draw = cell
    half = len(population.labels) // 2
    order = np.random.default_rng([number, draw]).permutation(len(population.labels))
    train, test = order[:n], order[half:]
    truth, others = population.labels[test], population.records.iloc[test]
    lines = []
    for name, make in MODELS.items():
        model = make(epsilon, schema=population.schema, classes=(0, 1))
        model.fit(population.records.iloc[train], population.labels[train])
        balanced = float(balanced_accuracy_score(truth, model.predict(others)))
        ranks = float(roc_auc_score(truth, model.decision_function(others)))
        known = (number, population.family, population.signal, n, epsilon, draw)
        lines.append(Line(*known, name, balanced, ranks))
    return lines


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate mean balanced accuracy and AUC by the number of records times epsilon."""
    strength = (lines["n"] * lines["epsilon"]).round().astype(int)
    rows = []
    for metric, said in (("balanced_accuracy", "balanced accuracy"), ("auc", "AUC")):
        means = lines.groupby([strength, "model"])[metric].mean().unstack(0)
        for model in MODELS:
            cells = {f"{amount:,}": f"{mean:.3f}" for amount, mean in means.loc[model].items()}
            rows.append({"records times epsilon": f"{said}: {model}", **cells})
    return pd.DataFrame(rows)


def page(lines: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    populations = f"{lines['population'].nunique()}"
    return filled("decision-trees", {"populations": populations, "choices": markdown_table(table(lines))})


STUDY = Study[Cell](
    "model-choice",
    Line,
    ("population", "n", "epsilon", "draw", "model"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path("model-choice"),
) -> None:
    """Measure the missing cells, and write the page."""
    chosen = [p for p in populations(1) if p.signal != "tree" or p.family in _TREES]
    cells = [
        Cell(number, one, n, epsilon, draw)
        for n, epsilon in SIZES
        for draw in range(_DRAWS if n * epsilon <= _DRAWN_UP_TO else 1)
        for number, one in enumerate(chosen)
    ]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

"""Compare the fewest errors of a tree on real tables: by the sums for drawing trees, and by STreeD.

    python -m privopt.experiments.optimal_trees --output FOLDER [--environments FOLDER]

Trees are drawn with probability proportional to exp(-beta errors). As beta grows, the expected number of
errors tends to the smallest number of any tree. STreeD (van der Linden, de Weerdt and Demirovic 2023; the
package pystreed) finds that number by dynamic programming. Tables and questions are as in
``privopt.experiments.trees``; trees have up to three levels, or up to two on tables with more than 200
questions. ``optimal-trees.csv`` keeps each result as it comes: an interrupted run resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from privopt.experiments.trees import Table, all_tables
from privopt.experiments.workbench.study import Study
from privopt.oracles.draw.branching import GibbsBranching
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.tables.predicates import Predicates

# A beta so large that all trees with more errors than the fewest, at least one more, have no mass left.
_COLD = 200.0
_MANY, _LEVELS, _FEWER = 200, (1, 2, 3), (1, 2)  # with more than ``_MANY`` questions, only ``_FEWER`` levels


@dataclass(frozen=True)
class Optimum:
    """The fewest errors of trees with ``levels`` levels: by this package, and by STreeD."""

    table: str
    records: int
    questions: int
    levels: int
    errors: float
    streed: int


class Cell(NamedTuple):
    """A table and a number of levels."""

    table: Table
    levels: int

    def __str__(self) -> str:
        return f"{self.table[0]}, {self.levels} level(s)"


def errors_of_streed(X: NDArray[Any], y: NDArray[Any], levels: int) -> int:
    """Return the fewest errors of a tree with ``levels`` levels, by STreeD."""
    streed: Any = import_module("pystreed")
    solver = streed.STreeDClassifier("accuracy", max_depth=levels)
    solver.fit(X, y)
    return int(np.sum(solver.predict(X) != y))


def fewest_errors(X: NDArray[Any], y: NDArray[Any], levels: int) -> float:
    """Return the expected errors of a tree that is drawn at a beta at which only the best trees have mass."""
    classes = int(y.max()) + 1
    lattice = DecisionTree.domain(X.shape[1], levels, classes)
    problem = DecisionTree(X, y, lattice, CostMatrix.equal(classes))
    return GibbsBranching().prepare(problem).expected_loss(_COLD)


def measured(cell: Cell) -> list[Optimum]:
    """Find the fewest errors by both."""
    (name, frame, y, schema), levels = cell
    X, y = answers(frame, schema), y.astype(np.int64)
    ours, theirs = fewest_errors(X, y, levels), errors_of_streed(X, y, levels)
    return [Optimum(name, len(y), X.shape[1], levels, ours, theirs)]


def answers(frame: Any, schema: Any) -> NDArray[np.int64]:
    """Return the answers of records to the questions of a schema, shape (n, questions)."""
    predicates = Predicates.of(schema)
    table = predicates.table(predicates.coarse.codes(frame))
    return np.stack([table.column(g) for g in range(len(predicates))], axis=1).astype(np.int64)


STUDY = Study[Cell](
    "optimal-trees",
    Optimum,
    ("table", "levels"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(table=cell.table[0], levels=cell.levels)),
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results.")],
    environments: Annotated[
        Path | None, typer.Option(help="Folder of environments with more tables than Adult and Covertype.")
    ] = None,
) -> None:
    """Measure the missing cells."""
    tables = sorted(all_tables(environments), key=lambda t: len(Predicates.of(t[3])) ** 2 * len(t[2]))
    cells = [
        Cell(table, levels)
        for levels in _LEVELS
        for table in tables
        if levels in _FEWER or len(Predicates.of(table[3])) <= _MANY
    ]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

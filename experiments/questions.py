"""Compute the expected accuracy of private trees for several cuts of numbers and weights of columns.

    python -m privopt.experiments.questions [--seeds 1] [--output FOLDER]

Populations are synthetic (``privopt.experiments.workbench.tree_tasks``): no real table is looked at. The
expected loss of a drawn tree is computed from the partition function, with the whole population as training
records: the results have no error from sampling or from draws. ``tree-questions.csv`` keeps the results of
finished populations: an interrupted run resumes. The page is ``tree-questions.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.experiments.workbench.tree_tasks import FAMILIES, SIGNALS, Population, population
from privopt.oracles.draw.branching import GibbsBranching
from privopt.oracles.limits import Limits, started
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.predicates import PredicateTable
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.tables.columns import Binned, Column, Numeric
from privopt.problems.tables.predicates import Predicates
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

# Records times epsilon.
STRENGTHS = (100, 1_000, 10_000)
_LEVELS = 3
_SMALL = (Fraction(1, 64), Fraction(1, 32), Fraction(1, 16))
# Cuts as fractions of the declared range: for numbers whose range begins at 0, and for other numbers.
CUTS: dict[str, tuple[list[Fraction], list[Fraction]]] = {
    name: (sorted({*even, *small}), even)
    for name, even, small in (
        ("3 even", [Fraction(k, 4) for k in range(1, 4)], ()),
        ("7 even", [Fraction(k, 8) for k in range(1, 8)], ()),
        ("15 even", [Fraction(k, 16) for k in range(1, 16)], ()),
        ("7 even, 3 small", [Fraction(k, 8) for k in range(1, 8)], _SMALL),
        ("7 even, 4 small", [Fraction(k, 8) for k in range(1, 8)], (Fraction(1, 128), *_SMALL)),
    )
}
# Prior weight of a column, as a function of its number of questions.
WEIGHTS: dict[str, Callable[[Floats], Floats]] = {
    "questions": np.asarray,
    "at most 7": lambda asked: np.minimum(asked, 7),
    "at most 3": lambda asked: np.minimum(asked, 3),
    "equal": np.ones_like,
}
_PARTS = 12  # the weight of a question is a whole number of twelfths
# Rules (cuts, weights): all cuts with the weights of the package, and all weights with its cuts.
_CUTS_HERE, _WEIGHTS_HERE = "7 even, 4 small", "at most 7"
RULES = (
    *((cuts, _WEIGHTS_HERE) for cuts in CUTS),
    *((_CUTS_HERE, weights) for weights in WEIGHTS if weights != _WEIGHTS_HERE),
)


def with_cuts(schema: Schema, name: str) -> Schema:
    """Return the schema with numbers binned at the named cuts."""
    return Schema([_binned(column, name) for column in schema.columns], intercept=True)


def _binned(column: Column, name: str) -> Column:
    if not isinstance(column, Numeric):
        return column
    shares = CUTS[name][0 if column.low == 0 else 1]
    # Cuts are halfway between grid points, as in the package.
    points = sorted({max(1, round(float(share * (column.top + 1)))) for share in shares})
    inner = [column.low + (point - Fraction(1, 2)) * column.step for point in points]
    return Binned(column.name, [column.low, *inner, column.high])


@dataclass(frozen=True)
class Line:
    """The expected accuracy of a tree on one population, by cuts, weights, costs and strength."""

    family: str
    signal: str
    seed: int
    predicates: int
    cuts: str
    weights: str
    costs: str
    strength: int
    accuracy: float


class Cell(NamedTuple):
    family: str
    signal: str
    seed: int

    def __str__(self) -> str:
        return f"{self.family}, {self.signal}, seed {self.seed}"


def expected(population: Population, seed: int) -> Iterator[Line]:
    """Yield the expected accuracy of a tree, by cuts, weights, costs and strength."""
    for cuts, weights in RULES:
        predicates = Predicates.of(with_cuts(population.schema, cuts))
        bits = predicates.table(predicates.coarse.codes(population.records)).bits
        table = PredicateTable(bits, len(population.labels), _parts(predicates, weights))
        for costs, losses in _losses(table, population.labels).items():
            for strength, loss in zip(STRENGTHS, losses, strict=True):
                yield Line(
                    population.family,
                    population.signal,
                    seed,
                    len(predicates),
                    cuts,
                    weights,
                    costs,
                    strength,
                    1 - loss,
                )


def measured(cell: Cell) -> list[Line]:
    """Compute the expected accuracies under all rules on one population."""
    return list(expected(population(*cell), cell.seed))


def _parts(predicates: Predicates, weights: str) -> NDArray[np.int64]:
    """Return the weight of each question: an equal share of the weight of its column."""
    columns = np.array([question.column for question in predicates.questions])
    asked = np.bincount(columns)[columns].astype(float)
    parts = np.maximum(np.rint(_PARTS * WEIGHTS[weights](asked) / asked), 1)
    return np.asarray(parts, dtype=np.int64)


def _losses(table: PredicateTable, labels: NDArray[np.int64]) -> dict[str, list[float]]:
    """Return expected losses by costs and strength, as shares of the loss of errors on all records."""
    held = np.bincount(labels, minlength=2)
    width, found = int(np.sum(table.shares)), {}
    for name, weights in (("balanced", len(labels) / (2 * held)), ("equal", np.ones(2))):
        costs = CostMatrix.of_weights(weights)
        lattice = DecisionTree.domain(width, _LEVELS, root_splits=name == "balanced")
        sampler = GibbsBranching(threads=1).build(DecisionTree(table, labels, lattice, costs))
        worst = float(costs.matrix.max(axis=1) @ held)
        betas = [strength / len(labels) / (2 * costs.largest) for strength in STRENGTHS]
        watch = started(Limits())
        found[name] = [sampler.moments(beta, watch).expected_loss / worst for beta in betas]
    return found


def by_rule(found: pd.DataFrame, key: str) -> str:
    """Return a table of mean accuracies of the rules that differ in ``key`` only."""
    other = {"cuts": ("weights", _WEIGHTS_HERE), "weights": ("cuts", _CUTS_HERE)}[key]
    rows = found[found[other[0]] == other[1]]
    where = rows["costs"] + ", " + rows["strength"].map("{:,}".format)
    wide = rows.assign(where=where).groupby([key, "where"], sort=False)["accuracy"].mean().unstack("where")
    wide["mean"] = wide.mean(axis=1)
    return markdown_table(wide.round(4).reset_index())


def by_family(found: pd.DataFrame) -> str:
    """Return a table of mean accuracies of all rules, by family."""
    names = found["cuts"] + "; " + found["weights"]
    means = found.assign(rule=names).groupby(["rule", "family"], sort=False)["accuracy"].mean()
    return markdown_table(means.unstack("family").round(4).reset_index())


def page(found: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    made = found.groupby(["family", "signal", "seed"]).size().groupby("signal").size()
    values = {
        "populations": f"{made.sum()}",
        "labels": ", ".join(f"{made[name]} with the signal {name}" for name in SIGNALS if name in made),
        "levels": f"{_LEVELS}",
        "here": f"{_CUTS_HERE}; {_WEIGHTS_HERE}",
        "cuts": by_rule(found, "cuts"),
        "weights": by_rule(found, "weights"),
        "families": by_family(found),
    }
    return filled("tree-questions", values)


STUDY = Study[Cell](
    "tree-questions",
    Line,
    ("family", "signal", "seed", "cuts", "weights", "costs", "strength"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell._asdict())),
    page=page,
)


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Number of populations of each kind.")] = 1,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path(
        "tree-questions"
    ),
) -> None:
    """Compute the missing populations, and write the page."""
    cells = [Cell(*kind, seed) for kind in itertools.product(FAMILIES, SIGNALS) for seed in range(seeds)]
    STUDY.run(output, cells)


if __name__ == "__main__":
    typer.run(main)

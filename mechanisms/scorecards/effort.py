"""Running times of scorecards from public facts: bounds on the work, and measured speeds."""

from __future__ import annotations

import math

from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.oracles.draw.interface import Law
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.schema import Schema

# Limits of the oracles that sum over a lattice, less a margin.
_CELLS, _COMBINATIONS, _TABLE_ENTRIES = 20_000, 200_000, 2.0**28
_CANDIDATES = 1_000_000
# Measured speeds on one core, per second: table additions, and multiplications of losses.
_ADDITIONS, _PRODUCTS = 4e8, 1e9
# Linear model: passes over the features, Hessians, numbers read per second, and multiplications per second.
_PASSES, _HESSIANS, _READ, _MULTIPLIED = 60, 6, 4e8, 5e9


def draw_work(schema: Schema, n_records: int, lattice: IntegerLattice) -> float:
    """Bound the steps of one exact draw by enumeration or elimination; infinite if neither applies.

    Elimination enumerates the weights of all columns except one, the non-numeric column with the most
    combinations of weights: given the weights of the other columns, the sum over its levels separates. (The
    oracle detects blocks of exclusive features in the records. That mostly merges declared columns and saves
    work.)
    """
    rows = distinct_records(schema, n_records)
    return min(_enumeration(rows, lattice), _elimination(schema, rows, lattice))


def draw_seconds(schema: Schema, n_records: int, lattice: IntegerLattice) -> float:
    """Estimate the seconds of one exact draw on one idle core."""
    rows = distinct_records(schema, n_records)
    return min(_enumeration(rows, lattice) / _PRODUCTS, _elimination(schema, rows, lattice) / _ADDITIONS)


def seeded_seconds(schema: Schema, facts: CardFacts, fitted: int | None = None) -> float:
    """Estimate the seconds of a linear model, its roundings and the choice among them, on one idle core.

    ``fitted``: the number of features that are fitted; None: all.
    """
    n, d = distinct_records(schema, facts.n_records), facts.lattice.dimension
    k = fitted or d
    return 0.1 + n * (d * _PASSES / _READ + k * _HESSIANS * k / _MULTIPLIED)


def distinct_records(schema: Schema, n_records: int) -> int:
    """Bound the number of distinct labelled records; a fit counts duplicates first."""
    return min(n_records, 2 * math.prod(column.n_codes for column in schema.columns))


def problem_facts(
    kind: type[DiscreteProblem],
    question: Task | Law,
    lattice: IntegerLattice,
    schema: Schema,
    n_records: int,
    loss_bound: int,
    *,
    weighted: bool = False,
) -> ProblemFacts:
    """Return public facts of the largest problem over n records of a schema, by which a plan checks its
    oracle.

    Records with weights are not merged even if they are equal.
    """
    rows = n_records if weighted else distinct_records(schema, n_records)
    largest_loss = n_records * loss_bound
    if kind is not ZeroOneHalfspace:  # losses of a list of cards, whose features an oracle does not see
        return ProblemFacts(kind, question, lattice, rows, largest_loss)
    score = largest_score(schema, lattice)
    return ProblemFacts(kind, question, lattice, rows, largest_loss, score, schema.layout)


def largest_score(schema: Schema, lattice: IntegerLattice) -> int:
    """Bound |<w, x>| over a lattice and all records that a schema allows, features as integers."""
    values = [column.reach for column in schema.columns for _ in column.feature_names]
    ends = zip(lattice.low.tolist(), lattice.high.tolist(), strict=True)
    largest = [max(-low, high) for low, high in ends]
    return int(sum(w * v for w, v in zip(largest, [*values, 1], strict=False)) * schema.denominator)


def _enumeration(n: int, lattice: IntegerLattice) -> float:
    return float(lattice.box_size) * n * lattice.dimension if lattice.box_size <= _CANDIDATES else math.inf


def _elimination(schema: Schema, n: int, lattice: IntegerLattice) -> float:
    if lattice.constrained:  # elimination takes no constraints
        return math.inf
    choices = (lattice.high - lattice.low + 1).tolist()  # values of each weight
    combinations, numbers, blocks, start = 1, 0, [], 0
    for column in schema.columns:
        stop = start + len(column.feature_names)
        if isinstance(column, Numeric):
            combinations *= math.prod(choices[start:stop])
            numbers += stop - start
        else:
            blocks.append(choices[start:stop])
        start = stop
    blocks += [[values] for values in choices[start:]]  # the constant
    if not blocks:
        return math.inf
    cells = min(n, math.prod(1 + len(block) for block in blocks))
    entries = combinations * cells * (1 + sum(max(block) - 1 for block in blocks))
    if cells > _CELLS or combinations > _COMBINATIONS or entries > _TABLE_ENTRIES:
        return math.inf
    leaf = max(blocks, key=math.prod)
    blocks.remove(leaf)
    norms = 1 + (lattice.squared_radius or 0)
    sums = math.prod(map(math.prod, blocks)) * (1 + sum(leaf)) * norms
    work = combinations * (sums + n * (1 + numbers))  # additions, and scores to lay tables out
    return float(work) if work < 10**300 else math.inf

"""What a plan accepts its oracle answers, on every table of the declaration, or a limit of time ends it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from privopt.mechanisms import MECHANISMS, PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.scorecards.card_plan import plan_card
from privopt.mechanisms.scorecards.effort import problem_facts
from privopt.oracles import GibbsOracle, Law, Limits, MissingSolverError, OracleError, Task
from privopt.oracles.cells.structure import CellLimits, CellSizes, CellStructure, why_not, why_not_planned
from privopt.oracles.draw import elimination
from privopt.oracles.select import minimizers, samplers
from privopt.problems import ConstrainedLattice, IntegerLattice, Schema, ZeroOneHalfspace
from privopt.problems.tables.point_columns import point_columns

NAMED = {**minimizers(), **samplers()}


def numeric(name: str, high: int = 4, step: float = 1, **more: Any) -> dict[str, Any]:
    return {"kind": "numeric", "name": name, "low": 0, "high": high, "step": step, **more}


def binned(name: str, bins: int, **more: Any) -> dict[str, Any]:
    return {"kind": "binned", "name": name, "edges": list(range(bins + 1)), **more}


def schema_of(*columns: dict[str, Any], intercept: bool = True) -> Schema:
    return Schema.from_dict({"columns": list(columns), "intercept": intercept})


SCHEMAS = {
    "small": schema_of(binned("a", 2), numeric("b"), binned("c", 2, missing_level=True)),
    "numbers": schema_of(*(numeric(f"x{k}") for k in range(10))),
    "fine": schema_of(numeric("x", step=1e-4), numeric("y", step=1e-4), binned("a", 2)),
    "wide": schema_of(*(binned(f"a{k}", 5) for k in range(9)), numeric("flag", high=1)),
}


def tables(schema: Schema, n: int) -> Iterator[NDArray[np.int64]]:
    """Features of tables at the ends of a declaration: distinct records, one record, two values a column."""
    sizes = [column.n_codes for column in schema.columns]
    rng = np.random.default_rng(1)
    distinct = np.array(list(itertools.islice(itertools.product(*map(range, sizes)), n)))
    yield schema.features(list(distinct[np.arange(n) % len(distinct)].T)).X
    yield schema.features([rng.integers(0, size, n) for size in sizes]).X
    yield schema.features([np.zeros(n, dtype=np.int64) for _ in sizes]).X
    yield schema.features([rng.integers(0, 2, n) * (size - 1) for size in sizes]).X


def problems(schema: Schema, lattice: IntegerLattice, n: int) -> Iterator[ZeroOneHalfspace]:
    y = np.where(np.arange(n) % 2, 1, -1)
    for X in tables(schema, n):
        rows, counts = np.unique(np.column_stack([y, X]), axis=0, return_counts=True)
        yield ZeroOneHalfspace(rows[:, 1:], rows[:, 0], lattice, counts=counts, layout=schema.layout)


@cache
def domain(name: str, bound: int, constrained: bool) -> IntegerLattice:
    schema = SCHEMAS[name]
    box = IntegerLattice(-bound, bound, dimension=schema.n_features)
    if not constrained:
        return box
    columns = point_columns(schema.columns)
    return ConstrainedLattice(
        box, columns, ["at most 2 columns"], np.zeros(schema.n_features, dtype=np.int64)
    )


@cache
def worst(name: str, bound: int, constrained: bool, n: int) -> list[ZeroOneHalfspace]:
    return list(problems(SCHEMAS[name], domain(name, bound, constrained), n))


DOMAINS = list(itertools.product(SCHEMAS, (1, 3), (False, True), (9, 300)))


@pytest.mark.parametrize("oracle", sorted(NAMED))
def test_no_oracle_refuses_a_table_of_a_plan_that_took_it(oracle: str) -> None:
    """Every oracle by name, every question that a mechanism asks, domains from tiny to hopeless."""
    try:
        made = NAMED[oracle]()
    except MissingSolverError:
        pytest.skip("its solver is not installed")
    asked = {MECHANISMS[name].question for name in MECHANISMS if hasattr(MECHANISMS[name], "question")}
    questions = asked & set(Law if isinstance(made, GibbsOracle) else Task)
    taken = 0
    for (name, bound, constrained, n), question in itertools.product(DOMAINS, questions):
        lattice = domain(name, bound, constrained)
        facts = problem_facts(ZeroOneHalfspace, question, lattice, SCHEMAS[name], n, 1)
        if made.all_planned_refusals(facts):
            continue
        taken += 1
        for problem in worst(name, bound, constrained, n):
            assert made.all_refusals(problem, question) == [], (name, bound, constrained, n)
    # These two draw trees and supports; all others take the small domain.
    assert (taken == 0) == (oracle in {"branching", "supports"})


@pytest.mark.parametrize("seed", range(8))
def test_sizes_before_data_bound_those_of_every_table(seed: int) -> None:
    """Limits at these bounds are kept by every table: what is refused does not follow from the records."""
    rng = np.random.default_rng(seed)
    kinds = [
        binned("a", 3),
        binned("b", 2, missing_level=True),
        numeric("x", high=2),
        numeric("flag", high=1),
        numeric("y", high=3, missing_level=True),
        {"kind": "categorical", "name": "c", "categories": ["u", "v"], "outside": "ignore"},
    ]
    picked = [kinds[k] for k in rng.permutation(len(kinds))[: rng.integers(2, 5)]]
    schema = schema_of(*picked, intercept=bool(rng.integers(2)))
    low, radius = int(rng.integers(-2, 1)), None if rng.integers(2) else 2.0
    lattice = IntegerLattice(low, 1, dimension=schema.n_features, radius=radius)
    n = int(rng.integers(1, 40))
    facts = problem_facts(ZeroOneHalfspace, Task.LINEAR, lattice, schema, n, 1)
    most = CellSizes.most(facts)
    work = elimination._most_work(facts) if most.indicators else 0.0
    for problem in problems(schema, lattice, n):
        assert problem.n_rows <= facts.rows
        assert problem.largest_loss <= facts.largest_loss
        assert np.max(np.abs(problem.X) @ np.abs(lattice.low)) <= facts.largest_score
        cells = CellStructure.of(problem)
        assert cells.indicators.tolist() == schema.layout.indicators.tolist()
        assert cells.sizes.cells <= most.cells
        assert cells.sizes.numeric_weights == most.numeric_weights
        assert cells.table_size <= most.table
        if most.indicators:
            assert elimination._PlanBuilder(cells).work <= work
        limits = CellLimits(most.cells, most.numeric_weights, 4 * most.table * most.numeric_weights)
        assert why_not(problem, limits) == why_not_planned(facts, limits)


def test_records_with_weights_are_planned_one_by_one() -> None:
    """60 different records of a schema, and 2e9 / 3^7 = 914,494 rows that enumeration takes."""
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-9, "lattice": (-1, 1), "oracle": "enumerate"}
    assert plan_card("exponential", SCHEMAS["small"], 900_000, **options, max_weight=2)
    with pytest.raises(OracleError, match="enumerate"):
        plan_card("exponential", SCHEMAS["small"], 950_000, **options, max_weight=2)
    assert plan_card("exponential", SCHEMAS["small"], 950_000, **options)


@pytest.mark.parametrize("mechanism", ["exponential", "permute-and-flip"])
def test_one_record_does_not_decide_what_is_refused_nor_is_their_number_told(
    tmp_path: Path, mechanism: str
) -> None:
    """Streaming takes 2e10 candidate-record pairs: 409 distinct records over 5^11 points, not 410."""
    schema, n = SCHEMAS["numbers"], 420
    X = np.random.default_rng(0).integers(0, 5, (n, 10))
    X[: n - 409] = X[-1]
    messages = set()
    for first in (X[0], np.full(10, 4)):
        X[0] = first
        ledger = Ledger.create(tmp_path / f"{first.sum()}.db", epsilon=10)
        model = PrivateHalfspaceClassifier(
            1.0,
            schema=schema,
            classes=(0, 1),
            mechanism=mechanism,
            lattice=(-2, 2),
            constraints=["at most 2 columns"],
            ledger=ledger,
        )
        with pytest.raises(OracleError) as refused:
            model.fit(pd.DataFrame(X, columns=[f"x{k}" for k in range(10)]), X[:, 0] > 1)
        messages.add(str(refused.value))
        assert list(ledger.entries()) == []
    assert len(messages) == 1


@pytest.mark.parametrize("oracle", ["auto", "bounded", "enumerate", "elimination", "branch", "stream"])
@pytest.mark.parametrize("constrained", [False, True])
def test_what_is_planned_is_drawn(oracle: str, constrained: bool) -> None:
    made, lattice = samplers()[oracle](), domain("small", 1, constrained)
    for law in Law:
        facts = problem_facts(ZeroOneHalfspace, law, lattice, SCHEMAS["small"], 9, 1)
        for problem in worst("small", 1, constrained, 9) * (not made.all_planned_refusals(facts)):
            draw = made.prepare(problem, law).draw(0.5, NoiseSource(insecure_seed=1), Limits(seconds=60))
            assert lattice.contains(draw.point)


@pytest.mark.parametrize("mechanism", ["seeded", "exponential", "rspm", "auto"])
@pytest.mark.parametrize("oracle", ["branching", "supports", "elimination"])
def test_an_oracle_for_other_problems_is_refused_in_the_plan(mechanism: str, oracle: str) -> None:
    """ "seeded" draws from a list of cards, which elimination does not know."""
    if oracle == "elimination" and mechanism in ("exponential", "auto"):
        return
    with pytest.raises(OracleError, match=oracle):
        plan_card(mechanism, SCHEMAS["small"], 30, epsilon=1.0, delta=1e-3, oracle=oracle)


def test_permute_and_flip_is_planned_with_its_minimiser() -> None:
    """Branch and bound takes 40 columns under constraints; HiGHS, which proves its smallest loss, not."""
    schema = schema_of(*(binned(f"a{k}", 2) for k in range(20)))
    lattice = ConstrainedLattice(
        IntegerLattice(-1, 1, dimension=schema.n_features),
        point_columns(schema.columns),
        ["at most 2 columns"],
        np.zeros(schema.n_features, dtype=np.int64),
    )
    refusals = {
        (law, n): samplers()["branch"]().planned_refusals(
            problem_facts(ZeroOneHalfspace, law, lattice, schema, n, 1)
        )
        for law in Law
        for n in (2_000, 49_900)
    }
    assert [key for key, reasons in refusals.items() if reasons] == [(Law.PERMUTE_AND_FLIP, 49_900)]

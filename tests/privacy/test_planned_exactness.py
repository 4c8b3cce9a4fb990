"""Draws are as exact as was said before data, and a plan refuses what is too coarse for it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.discrete.branching import BranchingPlan
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.preparation import check_takes, prepared_for
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.estimators.tree import PrivateTreeClassifier
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.scorecards.effort import problem_facts
from privopt.oracles import Law, Limits, OracleError
from privopt.oracles.cells.structure import CellLimits, CellSizes
from privopt.oracles.draw.branching import GibbsBranching
from privopt.oracles.draw.elimination import GibbsElimination
from privopt.oracles.draw.interface import UNIT_ROUNDOFF, GibbsOracle
from privopt.oracles.draw.supports import GibbsSupports
from privopt.oracles.facts import Precision, ProblemFacts
from privopt.oracles.select import AutoGibbs, samplers
from privopt.problems import IntegerLattice, InvalidInputError, ZeroOneHalfspace
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.costs import Costs
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.supports import BestSubset, SubsetBounds, SupportLattice
from privopt.problems.discrete.tree import DecisionTree
from tests.privacy.test_planned_oracles import SCHEMAS, domain, problems, worst

CELLS = ("enumerate", "elimination", "branch", "stream")
LIMITS = Limits(seconds=60)


@pytest.mark.parametrize("oracle", CELLS)
@pytest.mark.parametrize("law", Law)
def test_draws_from_cells_are_as_exact_as_was_said_before_data(oracle: str, law: Law) -> None:
    """Bounds of every declared table, with and without a norm bound and constraints."""
    made, schema, asked = samplers()[oracle](), SCHEMAS["small"], 0
    ball = IntegerLattice(-1, 1, dimension=schema.n_features, radius=2.0)
    for lattice, beta in itertools.product(
        (domain("small", 1, False), domain("small", 1, True), ball), (1e-6, 2.0)
    ):
        facts = problem_facts(ZeroOneHalfspace, law, lattice, schema, 9, 1)
        if made.all_planned_refusals(facts):
            continue
        said = made.planned_exactness(facts, beta)
        assert said is not None
        for problem in list(problems(schema, lattice, 9))[:2]:
            drawn = made.prepare(problem, law).draw(beta, NoiseSource(insecure_seed=1), LIMITS)
            assert said.meets(Precision(beta, 1e-4, 2.0**-128))
            assert drawn.exactness.meets(Precision(beta, said.log_error, said.lost_mass))
            asked += 1
    assert asked


@pytest.mark.parametrize("kind", [DecisionTree, RuleList])
@pytest.mark.parametrize("law", Law)
def test_trees_and_supports_are_as_exact_as_was_said(kind: type[BranchingProblem], law: Law) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (40, 5)), rng.integers(0, 2, 40)
    problem = kind(X, y, kind.domain(5, 2))
    facts = ProblemFacts(kind, law, problem.lattice, 40, 40, predicates=5)
    drawn = GibbsBranching(threads=1).prepare(problem, law).draw(0.5, NoiseSource(insecure_seed=1), LIMITS)
    assert GibbsBranching().planned_exactness(facts, 0.5) == drawn.exactness
    lattice = SupportLattice(6, 2)
    subset = BestSubset(
        rng.normal(size=(40, 6)), rng.normal(size=40), lattice, SubsetBounds(1.0, feature=1.0)
    )
    facts = ProblemFacts(BestSubset, Law.GIBBS, lattice, 40, 40 * subset.record_loss_bound)
    drawn = GibbsSupports().prepare(subset).draw(1e-9, NoiseSource(insecure_seed=1), LIMITS)
    said = GibbsSupports().planned_exactness(facts, 1e-9)
    assert said.with_losses_off_by(BestSubset.loss_error, 1e-9) == drawn.exactness


@pytest.mark.parametrize("oracle", [GibbsElimination(), GibbsBranching()])
def test_rounding_grows_with_energies(oracle: GibbsOracle) -> None:
    """A race between log weights of up to 2 beta n rounds each to 4 times that, as the winner and as a loser.

    A mass in the elimination, a sum of exponentials, has four roundings of their arguments besides.
    """
    trees = isinstance(oracle, GibbsBranching)
    kind: Any = DecisionTree if trees else ZeroOneHalfspace
    lattice = DecisionTree.domain(5, 2) if trees else IntegerLattice(-1, 1, dimension=3)
    facts = ProblemFacts(kind, Law.GIBBS, lattice, 40, 40, predicates=5 if trees else 0)
    small, large = (oracle.planned_exactness(facts, beta) for beta in (1e-9, 15.0))  # exponents up to 600
    assert small is not None
    assert large is not None
    each = 16 if trees else 16 + 8
    assert large.log_error - small.log_error >= lattice.dimension * each * 599 * UNIT_ROUNDOFF


def test_energies_beyond_the_limit_are_refused_before_data() -> None:
    """Two samplers refuse beta times the loss above 2^40 when they draw, whatever epsilon allows."""
    lattice = IntegerLattice(-1, 1, dimension=3)
    facts = ProblemFacts(ZeroOneHalfspace, Law.GIBBS, lattice, 1, 1 << 30)
    branch = samplers()["branch"]()
    assert branch.planned_exactness(facts, 2.0**9).log_error < 1  # type: ignore[union-attr]
    assert branch.planned_exactness(facts, 2.0**11).log_error == np.inf  # type: ignore[union-attr]
    subset = ProblemFacts(BestSubset, Law.GIBBS, SupportLattice(3, 1), 1, 1 << 41)
    assert GibbsSupports().planned_exactness(subset, 1.0).log_error == np.inf


@pytest.mark.parametrize(("beta", "entries"), [(1e-4, 9_002), (0.7, 1_002)])
def test_a_table_of_exponentials_counts_among_the_tables_before_data_and_after(
    beta: float, entries: int
) -> None:
    """Losses up to 9,000 with their exponentials, until exp(-beta loss) is below exp(-700)."""
    table = worst("small", 1, False, 9)[0]
    costs = Costs(1000, 1000)
    problem = ZeroOneHalfspace(table.X, table.y, table.lattice, costs, table.counts, table.layout)
    facts = problem_facts(ZeroOneHalfspace, Law.GIBBS, problem.lattice, SCHEMAS["small"], 9, 1000)
    precision = Precision(beta, 1.0, 0.5)
    facts = replace(facts, precision=precision)
    most = CellSizes.most(facts).table_bytes + 8 * entries
    for room, refused in ((most, False), (most - 1, True)):
        oracle = GibbsElimination(limits=CellLimits(table_bytes=room))
        assert any("exponentials" in reason for reason in oracle.all_planned_refusals(facts)) == refused
    oracle = GibbsElimination(limits=CellLimits(table_bytes=8 * entries))
    assert "exponentials" in oracle.all_refusals(problem, Law.GIBBS, precision)[0]
    assert oracle.all_refusals(problem, Law.GIBBS) == []


def fitted(model: Any, folder: Path) -> tuple[bool, int]:
    """Whether a fit released a model, and the number of bookings."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 2, 60), "b": rng.integers(0, 5, 60), "c": rng.uniform(0, 2, 60)})
    ledger = Ledger.create(folder / f"{len(list(folder.iterdir()))}.db", epsilon=1000, delta=1e-3)
    model.set_params(ledger=ledger, classes=(0, 1), schema=SCHEMAS["small"])
    try:
        model.fit(X, (X["b"] > 2).astype(int))
    except OracleError:
        return False, len(list(ledger.entries()))
    return True, len(list(ledger.entries()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("oracle", ["auto", *CELLS])
@pytest.mark.parametrize("mechanism", ["exponential", "permute-and-flip"])
def test_a_card_is_released_or_refused_before_the_booking(
    mechanism: str, oracle: str, tmp_path: Path
) -> None:
    released = []
    for epsilon in (1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 10.0):
        model = PrivateHalfspaceClassifier(epsilon, mechanism=mechanism, oracle=oracle, lattice=(-1, 1))
        done, booked = fitted(model, tmp_path)
        assert booked == done
        released.append(done)
    assert released == sorted(released)
    assert released[-1]
    assert released[0] == (oracle in ("auto", "enumerate", "stream"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("oracle", ["auto", "enumerate"])
def test_a_seeded_card_is_released_or_refused_before_the_booking(oracle: str, tmp_path: Path) -> None:
    """Its draw has a part of epsilon, from a list of cards whose table is no predicate table."""
    for epsilon in (1e-6, 1e-3, 1.0):
        done, booked = fitted(PrivateHalfspaceClassifier(epsilon, delta=1e-6, oracle=oracle), tmp_path)
        assert booked == done
    assert done


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("levels", [1, 3])
def test_a_tree_is_released_or_refused_before_the_booking(levels: int, tmp_path: Path) -> None:
    released = []
    for epsilon in (1e-8, 3e-7, 1e-5, 1.0):
        done, booked = fitted(PrivateTreeClassifier(epsilon, max_depth=levels), tmp_path)
        assert booked == done
        released.append(done)
    assert not released[0]
    assert released[-1]


def test_auto_passes_over_a_sampler_that_is_too_coarse_before_data_and_after() -> None:
    """At 1e-8 elimination of this domain is too coarse, streaming is not."""
    lattice, schema = domain("small", 1, False), SCHEMAS["small"]
    oracle = AutoGibbs(candidates=("elimination", "stream"))
    names = []
    for epsilon in (1e-8, 1.0):
        plan = ExponentialMechanism.plan(ZeroOneHalfspace, lattice, epsilon=epsilon)
        facts = problem_facts(ZeroOneHalfspace, Law.GIBBS, lattice, schema, 9, 1)
        facts = replace(facts, precision=plan.precision)
        assert oracle.all_planned_refusals(facts) == []
        prepared = prepared_for(oracle, plan, worst("small", 1, False, 9)[0])
        names.append(prepared.name)
        plan.release(prepared, NoiseSource(insecure_seed=1))
    assert names == ["gibbs-stream", "gibbs-elimination"]
    alone = AutoGibbs(candidates=("elimination",))
    facts = replace(facts, precision=Precision(1e-8, 1e-12, 2.0**-128))
    with pytest.raises(OracleError, match=r"an epsilon nearer to 1.* one of .*enumerate, stream"):
        check_takes(alone, "exponential", facts, "nothing")


def test_plans_of_trees_and_subsets_refuse_what_their_release_would() -> None:
    plan = BranchingPlan.plan(
        DecisionTree, np.ones(20, dtype=np.int64), 100, epsilon=1e-7, costs=CostMatrix.equal(2), max_levels=4
    )
    with pytest.raises(OracleError, match="an epsilon nearer to 1"):
        plan.check_records(100, 100, GibbsBranching())
    subset = SubsetPlan.plan(30, 5, SubsetBounds(1.0, feature=1.0), epsilon=1e-7)
    with pytest.raises(OracleError, match="an epsilon nearer to 1"):
        subset.check_records(1000, GibbsSupports())


def test_plans_of_subsets_refuse_more_records_than_their_sums_hold() -> None:
    subset = SubsetPlan.plan(30, 5, SubsetBounds(1.0, feature=1.0), epsilon=1.0)
    subset.check_records(1000)
    with pytest.raises(InvalidInputError, match="a subset of columns cannot be drawn: "):
        subset.check_records(10**12)

"""Exact draws of supports: bounds against enumeration, laws, limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from privopt.oracles.draw import thinning
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.draw.interface import Law
from privopt.oracles.draw.subset_proposals import subset_tree
from privopt.oracles.draw.supports import GibbsSupports, _Model, _Relaxation, _smallest_share
from privopt.oracles.errors import UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.oracles.select import AutoGibbs, gibbs_oracle
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.supports import UNITS, BestSubset, SubsetBounds, SupportLattice
from privopt.problems.errors import InvalidInputError


class Bits:
    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, n, dtype=np.uint64)


def problem_of(
    seed: int, n: int = 60, p: int = 7, s: int = 3, bounds: SubsetBounds | None = None, copies: int = 0
) -> BestSubset:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, p - copies :] = X[:, :copies]
    y = X[:, 0] - 0.7 * X[:, 1] + 0.5 * rng.normal(size=n)
    return BestSubset(X, y, SupportLattice(p, s), bounds or SubsetBounds(1.0, feature=1.0))


def one_misfit(n: int = 61, p: int = 8) -> BestSubset:
    """One column fits every record, all others miss the last: a support of loss 0 beside equal losses."""
    X = np.ones((n, p))
    X[-1, 1:] = -1.0
    return BestSubset(X, np.ones(n), SupportLattice(p, 1), SubsetBounds(1.0, feature=1.0))


PROBLEMS = {
    "plain": lambda: problem_of(0),
    "fewer records than columns": lambda: problem_of(1, n=4),
    "copied columns": lambda: problem_of(2, copies=3),
    "a constant": lambda: problem_of(3, bounds=SubsetBounds(1.0, row=2.0, constant=1.0)),
    "a large ball": lambda: problem_of(4, bounds=SubsetBounds(1.0, feature=1.0, radius=4.0)),
    "a small ball": lambda: problem_of(5, bounds=SubsetBounds(1.0, feature=1.0, radius=0.05)),
    "one column": lambda: problem_of(6, s=1),
    "all but one column": lambda: problem_of(7, s=6),
    "one column that fits": one_misfit,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_hold_in_every_region(name: str) -> None:
    """The relaxation, on random regions and multipliers, and the regions of a search, against enumeration."""
    problem, rng = PROBLEMS[name](), np.random.default_rng(0)
    points = np.concatenate(list(problem.lattice.batches()))
    beta = 4.0 / UNITS
    energies = beta * problem.losses(points)
    model, p, s = (
        _Model(_Relaxation(problem), beta, 1 << 24),
        problem.lattice.dimension,
        problem.lattice.support,
    )
    multipliers = np.mean(np.diag(problem.products.gram)) * np.array([0.0, *np.geomspace(1e-3, 30, 25)])
    for multiplier in multipliers:
        order, cut = rng.permutation(p), rng.integers(0, p - s + 1)
        outside = tuple(int(j) for j in order[:cut])
        bound = model.relaxation.bound(multiplier, outside)
        free = np.setdiff1d(np.arange(p), outside)
        region = model._region((), outside, free, s, bound)
        large = model._region((), outside, free, s, replace(bound, gains=bound.gains + 1e30))
        assert math.fsum(large.gains) <= 2 * beta * problem.largest_loss * (1 + 1e-12)  # as is stated
        within = np.all(points[:, list(outside)] == 0, axis=1)
        lower = region.base - points[:, free] @ region.gains
        assert np.all(lower[within] <= energies[within] * (1 + 1e-12))
        mass = float(np.logaddexp.reduce(-energies[within]))
        assert region.log_bound >= mass - 1e-9
    (root,) = model.roots(Limits().start())
    assert root.region is not None
    if s < p - 1:
        node = root
        for side in (1, 0):
            parent, children = node.region, model.children(node)
            assert parent is not None
            total = np.logaddexp(children[0].log_bound, children[1].log_bound)
            assert total == pytest.approx(parent.log_bound, abs=1e-9)
            node = children[side]
            assert model.open(node) <= node.log_bound + 1e-9
            region = node.region
            assert region is not None
            within = np.all(points[:, list(region.inside)] == 1, axis=1)
            within &= np.all(points[:, list(region.outside)] == 0, axis=1)
            assert region.log_bound >= float(np.logaddexp.reduce(-energies[within])) - 1e-9


@pytest.mark.parametrize("tries", [1, 100])
@pytest.mark.parametrize("name", ["plain", "copied columns", "a constant", "one column that fits"])
def test_draws_have_the_law_of_enumeration(name: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every rejection splits a region. A beta of 1.2 times the right one is rejected."""
    monkeypatch.setattr(thinning, "TRIES", tries)
    problem = PROBLEMS[name]()
    points = np.concatenate(list(problem.lattice.batches()))
    losses = problem.losses(points)
    beta, draws, source = 8.0 / UNITS, 1500, Bits(5)
    prepared = GibbsSupports().prepare(problem)
    index = {tuple(w): i for i, w in enumerate(points.tolist())}
    counts = np.zeros(len(points))
    for _ in range(draws):
        draw = prepared.draw(beta, source)
        found = index[tuple(draw.point.tolist())]
        assert draw.loss == losses[found]
        counts[found] += 1

    def p_value(factor: float) -> float:
        law = np.exp(-factor * beta * (losses - losses.min()))
        law /= law.sum()
        often = law * draws >= 5
        seen = np.append(counts[often], counts[~often].sum())
        expected = draws * np.append(law[often], law[~often].sum())
        kept = expected > 0
        return float(chisquare(seen[kept], expected[kept]).pvalue)

    assert p_value(1.0) > 1e-4
    assert p_value(1.5) < 1e-6


def test_trees_hold_elementary_symmetric_polynomials() -> None:
    logs = np.array([-700.0, 3.0, 0.5, -2.0, 400.0])
    root = subset_tree(logs, 3)[1]
    for t in range(4):
        direct = np.logaddexp.reduce([sum(part) for part in itertools.combinations(logs.tolist(), t)])
        assert root[t] == pytest.approx(float(direct), rel=1e-13, abs=1e-13)
    assert subset_tree(logs[:2], 3)[1, 3] == -math.inf


def test_the_smallest_eigenvalue_is_bounded_from_below() -> None:
    rng = np.random.default_rng(1)
    for rows in (3, 6, 30):
        A = rng.normal(size=(rows, 6)) * np.array([1e-3, 1, 1, 1, 1, 50])
        gram = A.T @ A
        roots = np.sqrt(np.diag(gram))
        exact = np.linalg.eigvalsh(gram / np.outer(roots, roots))[0]
        share = _smallest_share(gram)
        assert share <= max(exact, 0.0) + 1e-15
        assert share >= 0.85 * max(exact, 0.0) - 1e-10


def test_what_is_stated_depends_on_public_facts_alone() -> None:
    stated = {
        GibbsSupports().prepare(problem_of(seed)).draw(2.0 / UNITS, Bits()).exactness for seed in (0, 8)
    }
    assert len(stated) == 1
    exactness = stated.pop()
    # The losses' own error, two units either way in numerator and sum, and little more.
    assert 2 * (2.0 / UNITS) * 2 < exactness.log_error < 1.01 * 2 * (2.0 / UNITS) * 2


def test_enumeration_is_charged_for_the_losses_too() -> None:
    stated = GibbsEnumeration().prepare(problem_of(0)).draw(2.0 / UNITS, Bits()).exactness
    assert stated.log_error > 2 * (2.0 / UNITS) * 2


def test_limits_end_a_draw_without_a_point() -> None:
    noise = np.random.default_rng(0).normal(size=(50, 60))
    problem = BestSubset(noise, noise[:, 0], SupportLattice(60, 5), SubsetBounds(1.0, feature=1.0))
    small = GibbsSupports(memory=20_000).prepare(problem)
    with pytest.raises(UnfinishedDrawError, match="all the memory"):
        small.draw(60.0 / UNITS, Bits())
    with pytest.raises(UnfinishedDrawError, match="no point was drawn"):
        GibbsSupports().prepare(problem).draw(0.5 / UNITS, Bits(), Limits(cancelled=lambda: True))
    with pytest.raises(InvalidInputError, match="rounding"):
        GibbsSupports().prepare(problem).draw(1e30, Bits())


def test_other_problems_and_laws_are_refused() -> None:
    halfspace = ZeroOneHalfspace(
        np.ones((2, 2), dtype=np.int64), np.array([1, -1]), IntegerLattice(-1, 1, dimension=2)
    )
    with pytest.raises(UnsupportedProblemError, match="draws supports"):
        GibbsSupports().prepare(halfspace)
    with pytest.raises(UnsupportedProblemError, match="Gibbs law only"):
        GibbsSupports().prepare(problem_of(0), Law.PERMUTE_AND_FLIP)


def test_auto_enumerates_few_supports_and_searches_many() -> None:
    few = problem_of(0)
    many = problem_of(0, p=70, s=6)
    assert AutoGibbs().choose(few, Law.GIBBS)[0].name == "gibbs-enumerate"
    assert AutoGibbs().choose(many, Law.GIBBS)[0].name == "gibbs-supports"
    assert isinstance(gibbs_oracle("supports"), GibbsSupports)

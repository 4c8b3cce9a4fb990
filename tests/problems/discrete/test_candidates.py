"""Lists of cards as problems: losses against those of the halfspaces they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.oracles.draw.interface import Law
from privopt.oracles.select import gibbs_oracle
from privopt.problems import IntegerLattice, InvalidInputError, ZeroOneHalfspace
from privopt.problems.discrete.candidates import CandidateCards

LATTICE = IntegerLattice(-40, 40, dimension=5)


def table(constant: int = 7, n: int = 300) -> ZeroOneHalfspace:
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 6, (n, 5))
    X[:, -1] = constant
    return ZeroOneHalfspace(X, rng.choice([-1, 1], n), LATTICE)


def cards(k: int = 6) -> np.ndarray:
    return np.random.default_rng(1).integers(-40, 41, (k, 5))


def points(problem: CandidateCards) -> np.ndarray:
    return np.concatenate(list(problem.lattice.batches()))


@pytest.mark.parametrize("constant", [1, 7])
def test_losses_are_those_of_the_halfspaces(constant: int) -> None:
    ladders = np.sort([np.random.default_rng(i).permutation(np.arange(-40, 41))[:9] for i in range(6)])
    problem = CandidateCards(table(constant), cards(), ladders)
    all_points = points(problem)
    assert len(all_points) == 54
    as_halfspaces = np.array([problem.card(p) for p in all_points])
    assert np.array_equal(problem.losses(all_points), table(constant).losses(as_halfspaces))
    assert as_halfspaces[10].tolist() == [*cards()[1, :-1], ladders[1, 1]]


def test_scores_beyond_doubles_are_exact() -> None:
    big = 1 << 53
    X = np.array([[big + 1, big, 1], [big, big + 1, 1]])
    halfspaces = ZeroOneHalfspace(X, [1, -1], IntegerLattice(-1, 1, dimension=3))
    problem = CandidateCards(halfspaces, [[1, -1, 0]], [[-1, 0, 1]])
    assert problem.losses(points(problem)).tolist() == [1, 0, 0]  # scores 1 and -1, less, as is, and more


def test_without_a_ladder_no_constant_is_needed() -> None:
    X = np.random.default_rng(2).integers(-5, 6, (50, 5))
    halfspaces = ZeroOneHalfspace(X, np.where(X[:, 0] > 0, 1, -1), LATTICE)
    problem = CandidateCards(halfspaces, cards())
    assert np.array_equal(problem.losses(points(problem)), halfspaces.losses(cards()))
    with pytest.raises(InvalidInputError, match="constant"):
        CandidateCards(halfspaces, cards(), np.tile([0, 1], (6, 1)))


@pytest.mark.parametrize("law", list(Law))
def test_draws_from_a_list(law: Law) -> None:
    """Six cards with three rungs each: 2,000 draws against the law of the losses, by total variation."""
    problem = CandidateCards(table(n=30), cards(), np.tile([-3, 0, 2], (6, 1)))
    from privopt.mechanisms.privacy.noise import NoiseSource

    oracle, source = gibbs_oracle("auto").prepare(problem, law), NoiseSource(insecure_seed=4)
    drawn = [oracle.draw(0.5, source).loss for _ in range(2000)]
    losses = problem.losses(points(problem))
    weights = np.exp(-0.5 * losses)
    if law is Law.GIBBS:
        assert np.mean(drawn) == pytest.approx(np.sum(weights * losses) / np.sum(weights), abs=0.2)
    else:  # never worse on average
        assert np.mean(drawn) <= np.sum(weights * losses) / np.sum(weights) + 0.2


def test_a_repeated_threshold_is_as_much_more_probable() -> None:
    """One card, a threshold three times and another once: drawn as often as the losses say, times 3 to 1."""
    from privopt.mechanisms.privacy.noise import NoiseSource

    problem = CandidateCards(table(n=30), cards(1), [[-3, -3, -3, 2]])
    losses = problem.losses(points(problem))
    assert len(set(losses[:3].tolist())) == 1
    oracle, source = gibbs_oracle("auto").prepare(problem, Law.GIBBS), NoiseSource(insecure_seed=5)
    drawn = [int(problem.card(oracle.draw(0.2, source).point)[-1]) for _ in range(4000)]
    weights = np.exp(-0.2 * losses)
    expected = float(np.sum(weights[:3]) / np.sum(weights))
    assert np.mean(np.array(drawn) == -3) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("what", "ladders"),
    [
        (np.zeros((2, 4), int), None),
        (np.zeros((0, 5), int), None),
        (cards(2), np.zeros((3, 2), int)),
        (cards(2), np.array([[0, 1], [1, 0]])),
        (cards(2), np.zeros((2, 0), int)),
    ],
)
def test_lists_that_are_none_are_refused(what: np.ndarray, ladders: np.ndarray | None) -> None:
    with pytest.raises(InvalidInputError):
        CandidateCards(table(), what, ladders)


def test_there_are_no_separators() -> None:
    with pytest.raises(InvalidInputError, match="draws"):
        CandidateCards.separators(IntegerLattice([0, 0], [1, 1]))

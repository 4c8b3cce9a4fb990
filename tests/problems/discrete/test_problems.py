"""Lattices, fixed-point objectives, halfspaces, conjunctions and separators, against slow definitions."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.problems import (
    InfeasibleDomainError,
    IntegerLattice,
    InvalidInputError,
    MonotoneConjunction,
    MonotoneDisjunction,
    Perturbation,
    ZeroOneHalfspace,
)
from privopt.problems.discrete.objective import UNIT, rounding_slack, to_fixed
from privopt.problems.discrete.problem import DiscreteProblem


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=4),
    st.none() | st.integers(13, 36),
)
@settings(max_examples=60, deadline=None)
def test_lattice_points_are_the_definition(spans: list[tuple[int, int]], square: int | None) -> None:
    """A radius is a float, and means the integer next to its square: that of 23 is 22.999999999999996."""
    radius = None if square is None else square**0.5
    low = np.array([a for a, _ in spans])
    high = np.array([a + s for a, s in spans])
    box = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
    expected = [w for w in box if square is None or sum(v * v for v in w) <= square]
    if not expected:
        with pytest.raises(InfeasibleDomainError):
            IntegerLattice(low, high, radius=radius)
        return
    lattice = IntegerLattice(low, high, radius=radius)
    points = [tuple(p) for p in lattice.points()]
    assert points == expected == sorted(points)  # lexicographic, and nothing missing
    assert lattice.size == len(points) <= lattice.box_size
    assert max(sum(v * v for v in w) for w in points) <= lattice.max_squared_norm
    assert all(lattice.contains(np.array(w)) for w in points)
    assert not lattice.contains(high + 1)


def test_a_float_radius_means_the_integer_beside_its_square() -> None:
    assert math.sqrt(23) ** 2 < 23  # the hazard
    assert IntegerLattice(-4, 4, dimension=23, radius=math.sqrt(23)).squared_radius == 23


@pytest.mark.parametrize(
    ("low", "high", "options"),
    [
        (0.5, 1, {"dimension": 2}),
        (0, 1, {}),
        ([0, 0], [1, 1, 1], {}),
        (0, 1, {"dimension": 0}),
        (0, 1, {"dimension": 2, "radius": math.nan}),
        (2, 1, {"dimension": 2}),
        (2, 3, {"dimension": 2, "radius": 2.0}),
    ],
)
def test_impossible_lattices_are_refused(low: object, high: object, options: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        IntegerLattice(low, high, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e12])
def test_unrepresentable_noise_is_refused(bad: float) -> None:
    lattice = IntegerLattice(-1, 1, dimension=2)
    with pytest.raises(InvalidInputError):
        Perturbation.linear(lattice, [0.0, bad])
    with pytest.raises(InvalidInputError):
        Perturbation.normalized(lattice, [0.0, 0.0, bad])


def test_normalized_perturbation_is_the_inner_product_with_a_unit_vector() -> None:
    rng = np.random.default_rng(0)
    lattice = IntegerLattice(-3, 2, dimension=4, radius=math.sqrt(11))
    eta = rng.normal(0, 1000, 5)
    perturbation = Perturbation.normalized(lattice, eta)
    for w in lattice.points():
        pi = np.append(w, math.sqrt(max(0, 11 - w @ w))) / math.sqrt(11)
        assert abs(pi @ pi - 1) < 1e-12
        exact = -float(eta @ pi)
        # half the slack is what a single noise vector may cost at one pair of points
        assert abs(perturbation.values(w[None])[0] / UNIT - exact) <= rounding_slack(5) / 4


def test_rounding_of_large_radial_terms_is_within_a_grid_step() -> None:
    """Against 60 digits: near the boundary of a large ball, 1 - |w|^2/D^2 loses digits in floats."""
    lattice = IntegerLattice(-1000, 1000, dimension=2)
    d2 = lattice.max_squared_norm
    noise = 1_000_000_007.25
    radial = Perturbation.normalized(lattice, [0.0, 0.0, -noise]).radial
    assert radial is not None
    with localcontext(prec=60):
        for rest in range(3000):
            exact = Decimal(noise) * (Decimal(rest) / d2).sqrt() * UNIT
            assert abs(int(radial[d2 - rest]) - exact) < 1


@pytest.mark.parametrize("radial", [False, True])
def test_the_largest_terms_that_are_admitted_are_within_a_grid_step(radial: bool) -> None:
    """Noise grows by doubling until it is refused, and so does what float products lose before they are
    rounded; the rounding slack of calibrations has room for one grid step a term."""
    lattice = IntegerLattice([-3], [3], radius=7**0.5) if radial else IntegerLattice([-3], [3])
    coefficient, admitted = 1 + math.pi, 0
    for _ in range(70):
        coefficient *= 2
        eta = np.array([0.0, coefficient]) if radial else np.array([coefficient, 0.0])
        try:
            perturbation = Perturbation.normalized(lattice, eta)
        except InvalidInputError:
            break
        admitted += 1
        d2 = lattice.max_squared_norm
        for w in (-2, -1, 1, 2):
            with localcontext(prec=60):
                share = (Decimal(d2 - w * w) / d2).sqrt() if radial else Decimal(w) / Decimal(d2).sqrt()
                exact = -Decimal(coefficient) * share * UNIT
            assert abs(int(perturbation.values(np.array([[w]]))[0]) - exact) <= 1
    assert 20 < admitted < 40


def exact_halfspace_errors(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> int:
    errors = 0
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        score = sum(Fraction(a) * int(b) for a, b in zip(row, w.tolist(), strict=True))
        errors += (1 if score > 0 else -1) != label
    return errors


def test_halfspace_losses_are_exact_where_float_scores_are_not() -> None:
    # 0.1 + 0.2 - 0.3 > 0 in float64: the tie that integers over the denominator 10 resolve.
    X = np.array([[1, 2, 3], [3, 2, 1], [-1, 0, 1]])
    y = np.array([-1, 1, 1])
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=3))
    w = np.array([1, 1, -1])
    assert float((X[0] / 10) @ w) > 0
    assert problem.predict(w)[0] == -1
    for w in problem.lattice.points():
        assert problem.loss(w) == exact_halfspace_errors(X, y, w) == int(np.sum(problem.predict(w) != y))


@pytest.mark.parametrize("kind", [MonotoneConjunction, MonotoneDisjunction])
def test_conjunctions_and_disjunctions_are_the_definition(kind: type[MonotoneConjunction]) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.integers(0, 2, (30, 4)), rng.choice([-1, 1], 30)
    problem = kind(X, y)
    combine = all if kind is MonotoneConjunction else any
    for w in problem.lattice.points():
        chosen = np.flatnonzero(w)
        expected = [1 if combine(row[j] == 1 for j in chosen) else -1 for row in X]
        assert problem.predict(w).tolist() == expected
        assert problem.loss(w) == int(np.sum(np.array(expected) != y))


def test_a_disjunction_is_the_negation_of_a_conjunction_of_negations() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.integers(0, 2, (25, 3)), rng.choice([-1, 1], 25)
    disjunction, conjunction = MonotoneDisjunction(X, y), MonotoneConjunction(1 - X, -y)
    for w in disjunction.lattice.points():
        assert disjunction.loss(w) == conjunction.loss(w)


SEPARATED = [
    (ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=3)),
    (ZeroOneHalfspace, IntegerLattice([-1, 0, -1, 1], [1, 1, 0, 1])),
    (MonotoneConjunction, IntegerLattice(0, 1, dimension=3)),
    (MonotoneDisjunction, IntegerLattice([0, 0, 1], [1, 1, 1], radius=math.sqrt(2))),
]


@pytest.mark.parametrize(("kind", "lattice"), SEPARATED)
def test_separators_separate_and_their_tables_are_their_losses(
    kind: type[DiscreteProblem], lattice: IntegerLattice
) -> None:
    separators = kind.separators(lattice)
    losses = {}
    for w in lattice.points():
        pairs = zip(separators.records, separators.labels, strict=True)
        alone: Any = kind  # problems of one record
        by_definition = [alone(e[None], np.array([label]), lattice).loss(w) for e, label in pairs]
        assert separators.losses(w).tolist() == by_definition
        losses[tuple(w)] = tuple(by_definition)
    assert len(set(losses.values())) == lattice.size  # any two points differ on one of them
    weights = np.random.default_rng(0).normal(0, 10, separators.size)
    perturbation = separators.weighted(weights)
    for w, phi in losses.items():
        assert perturbation.values(np.array([w]))[0] == int(to_fixed(weights) @ np.array(phi))


def test_full_ternary_lattice_needs_two_separators_per_coordinate() -> None:
    assert ZeroOneHalfspace.separators(IntegerLattice(-1, 1, dimension=23)).size == 46


def test_lattices_without_separators_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="no separator set"):
        ZeroOneHalfspace.separators(IntegerLattice(-2, 2, dimension=3))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((0, 2), dtype=int), np.zeros(0, dtype=int), "no records"),
        (np.zeros((3, 4), dtype=int), np.ones(3), "shape"),
        (np.full((2, 2), 0.5), np.ones(2), "integers"),
        (np.full((2, 2), np.nan), np.ones(2), "integers"),
        (np.ones((2, 2), dtype=int), np.array([0, 1]), "labels"),
        (np.ones((2, 2), dtype=int), np.array([1, np.nan]), "labels"),
        (np.ones((2, 2), dtype=int), np.ones(3), "labels of shape"),
        (np.full((2, 2), 1 << 61), np.ones(2), "64-bit"),
    ],
)
def test_unusable_records_are_refused(X: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=2))


@pytest.mark.parametrize("kind", [ZeroOneHalfspace, MonotoneConjunction, MonotoneDisjunction])
def test_one_record_moves_a_loss_by_at_most_its_bound(kind: type[DiscreteProblem]) -> None:
    rng = np.random.default_rng(3)
    lattice = IntegerLattice(0, 1, dimension=3)
    X, y = rng.integers(0, 2, (12, 3)), rng.choice([-1, 1], 12)
    points = np.array(list(lattice.points()))
    base = kind(X, y, lattice).losses(points)  # type: ignore[call-arg]
    largest = 0
    for i, row, label in itertools.product(range(12), itertools.product((0, 1), repeat=3), (-1, 1)):
        other_X, other_y = X.copy(), y.copy()
        other_X[i], other_y[i] = row, label
        moved = np.abs(kind(other_X, other_y, lattice).losses(points) - base)  # type: ignore[call-arg]
        largest = max(largest, int(moved.max()))
    assert largest == kind.record_loss_bound == 1


def test_norms_of_vast_lattices_do_not_wrap_around() -> None:
    # 2^32 squared is 2^64, which is 0 in 64-bit integers: a norm that sets the noise must not become small.
    assert IntegerLattice(0, 2**32, dimension=2).max_squared_norm == 2**65
    with pytest.raises(InfeasibleDomainError):
        IntegerLattice(2**32, 2**33, dimension=1, radius=10.0)

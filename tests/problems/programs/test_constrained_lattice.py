"""Lattices under constraints: their points by hand, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.problems import ConstrainedLattice, InfeasibleDomainError, IntegerLattice, InvalidInputError
from privopt.problems.programs.columns import PointColumn

COLUMNS = (PointColumn("a", 0, 2, ordered=2), PointColumn("b", 2, 3))
BOX = IntegerLattice(-1, 1, dimension=4)  # an intercept comes last


def by_hand() -> list[tuple[int, ...]]:
    """Rising points of a; b is used only if the points of a differ; |w|^2 <= 2."""
    return [
        w
        for w in itertools.product((-1, 0, 1), repeat=4)
        if w[0] <= w[1] and (w[2] == 0 or w[0] < w[1]) and sum(v * v for v in w) <= 2
    ]


def test_points_are_those_that_satisfy_the_constraints() -> None:
    ball = IntegerLattice(-1, 1, dimension=4, radius=2**0.5)
    lattice = ConstrainedLattice(ball, COLUMNS, ["monotone(a) = rising", "if b then a"])
    expected = by_hand()
    assert [tuple(w) for w in lattice.points()] == expected
    assert [tuple(w) for block in lattice.batches(5) for w in block.tolist()] == expected
    assert lattice.size == len(expected)
    inside = {w for w in itertools.product((-1, 0, 1), repeat=4) if lattice.contains(np.array(w))}
    assert inside == set(expected)
    assert tuple(lattice.witness.tolist()) in inside


def test_bounds_are_narrowed_to_declared_points() -> None:
    lattice = ConstrainedLattice(BOX, COLUMNS, ["points(a) in [0, 5]", "points(b) in {-9, 1}"])
    assert lattice.low.tolist() == [0, 0, -1, -1]
    assert lattice.high.tolist() == [1, 1, 1, 1]
    assert lattice.size == 2 * 2 * 1 * 3


def test_it_is_not_equal_to_its_box() -> None:
    """A plan for one domain must refuse a problem over the other."""
    lattice = ConstrainedLattice(BOX, COLUMNS, ["at most 1 columns"])
    assert lattice.box == BOX
    assert lattice != BOX
    assert lattice != BOX
    assert lattice == ConstrainedLattice(BOX, COLUMNS, ["at most 1 columns"], [1, 0, 0, 1])
    assert lattice != ConstrainedLattice(BOX, COLUMNS, ["at most 0 of a, b"])
    assert "at most 1 columns" in str(lattice)


def test_an_empty_one_is_refused() -> None:
    with pytest.raises(InfeasibleDomainError, match="satisfies all of these constraints: 'all of a, b'"):
        ConstrainedLattice(BOX, COLUMNS, ["all of a, b", "at most 1 columns"])
    with pytest.raises(InfeasibleDomainError):
        ConstrainedLattice(BOX, COLUMNS, ["points(a) in [2, 3]"])


@pytest.mark.parametrize("witness", [[0, 0, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0], [0, 1, 0], [0.0, 1.0, 0, 0]])
def test_a_witness_is_checked(witness: list[float]) -> None:
    with pytest.raises(InvalidInputError, match="witness"):
        ConstrainedLattice(BOX, COLUMNS, ["any of a"], witness)


def test_a_large_box_needs_a_witness() -> None:
    wide = IntegerLattice(-100, 100, dimension=4)
    with pytest.raises(InvalidInputError, match="give a witness"):
        ConstrainedLattice(wide, COLUMNS, ["any of a"])
    lattice = ConstrainedLattice(wide, COLUMNS, ["any of a"], [0, 1, 0, 0])
    with pytest.raises(InvalidInputError, match="not counted"):
        _ = lattice.size


def test_columns_must_fit() -> None:
    with pytest.raises(InvalidInputError, match="3 features, the lattice has dimension 2"):
        ConstrainedLattice(IntegerLattice(-1, 1, dimension=2), COLUMNS, ["any of a"])
    with pytest.raises(InvalidInputError, match="no column 'c'"):
        ConstrainedLattice(BOX, COLUMNS, ["any of c"])

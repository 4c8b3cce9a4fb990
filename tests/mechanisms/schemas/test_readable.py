"""Readable cuts: what rounding may do and what it may not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.mechanisms.schemas.readable import date_edges, outer_edges, readable_cuts


@pytest.mark.parametrize(
    ("cuts", "whole", "expected"),
    [
        ([22026.4, 41990.0, 60111.0], False, [22000.0, 42000.0, 60000.0]),
        ([1234567.2, 1234572.1, 1234580.9], True, [1234568.0, 1234573.0, 1234581.0]),
        (
            [0.012, 5.3, 9.7],
            False,
            [0.01, 5.3, 9.7],
        ),  # 0 is nearer to 0.012 than a twentieth, and another cut
        ([-0.3, 0.4, 1000.0], True, [0.0, 1.0, 1000.0]),  # x < -0.3 is x < 0 for whole numbers
        ([17.3], False, [17.3]),  # no neighbour says how far a cut may move
        ([14.839011798596436], False, [14.839]),
        ([1234567.3], False, [1234570.0]),
        ([0.2, 0.7, 3.0], True, [1.0, 3.0]),  # both say x < 1
        ([-9e-07, 2e-15, 3.0], False, [0.0, 0.001, 3.0]),  # 0 alone is between them
        ([-2000.0, -3e-9, 5.0], False, [-2000.0, 0.0, 5.0]),
        ([2e-15], False, [2e-15]),
        ([5e-324, 1e-310, 1e308], False, [1e302, 1e305, 1e308]),
    ],
)
def test_cuts_are_rounded_within_their_gaps(cuts: list[float], whole: bool, expected: list[float]) -> None:
    assert readable_cuts(cuts, whole=whole) == expected


def test_rounding_moves_a_cut_by_a_twentieth_of_a_gap_and_never_to_the_other_side_of_0() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        cuts = np.sort(rng.standard_cauchy(5) * 10.0 ** rng.integers(-3, 4)).tolist()
        found = readable_cuts(cuts, whole=False)
        gaps = np.diff(cuts)
        for k, (before, after) in enumerate(zip(cuts, found, strict=True)):
            assert abs(after - before) <= 0.05 * min(gaps[max(k - 1, 0) : k + 1]) * (1 + 1e-12)
            assert np.sign(after) == np.sign(before)


def test_edges_of_dates_increase_and_round_to_the_first_of_a_month_or_year() -> None:
    def days(*texts: str) -> list[float]:
        return [float(np.datetime64(text).astype(int)) for text in texts]

    found = date_edges(days("1989-12-20", "2001-02-03", "2010-08-17"))
    assert [str(edge) for edge in found[1:-1]] == ["1990-01-01", "2001-01-01", "2011-01-01"]
    assert [str(edge) for edge in date_edges(days("2001-02-03"))] == [
        "2000-02-04",
        "2001-02-03",
        "2002-02-03",
    ]
    rng = np.random.default_rng(2)
    for scale in (1, 1e3, 1e6, 1e9, 1e300):
        for _ in range(50):
            edges = date_edges(np.sort(rng.standard_cauchy(3) * scale).tolist())
            assert all(a < b for a, b in itertools.pairwise(edges))
            assert len(edges) >= 3


@pytest.mark.parametrize("whole", [False, True])
def test_edges_increase_for_any_cuts(whole: bool) -> None:
    rng, most = np.random.default_rng(1), float(np.nextafter(np.finfo(float).max, 0))
    some = [[0.0], [-1.0], [most], [-most], [-most, most], [2.2e-308], [1.0, 2.0**53 + 2], [-most, 0.0, 1.0]]
    some += [np.sort(rng.standard_cauchy(3) * 10.0 ** rng.integers(-300, 300)).tolist() for _ in range(200)]
    for cuts in some:
        rounded = readable_cuts(cuts, whole=whole)
        edges = outer_edges(rounded, whole=whole)
        assert edges[1:-1] == rounded
        assert all(a < b for a, b in itertools.pairwise(edges))
        assert all(map(np.isfinite, edges))
    assert outer_edges([10.0, 12.0, 30.0], whole=whole) == [8.0, 10.0, 12.0, 30.0, 48.0]
    assert outer_edges([1.0, 30.0], whole=whole)[0] == 0.0  # positive cuts suggest positive numbers

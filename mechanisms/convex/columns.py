"""Public facts about the columns behind features, and covariances estimated with them from noisy moments."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.likely_weights import Block
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

# Lower limit on the share of records with a level; and the variance assumed for a numeric column before any
# is measured, as a fraction of the largest variance possible at its mean.
_RARE, _TYPICAL = 1e-3, 0.25
# Prior variance of the mean of a number or of the share of a missing level around the middle, in units of the
# squared range; and the least prior variance of shares of K levels, times K.
_MEANS, _SHARES = 0.08, 0.02
# Lower limit on a share of K levels, as a fraction of 1 / K, and of its noise.
_RARE_OF_LEVELS = 0.3
# Prior probability that the log odds of ordered levels follow ``smooth_prior``, and are not independent.
_SMOOTH = 0.8
# The share of the prior variance of ordered levels (of their shares, and of their log odds) that is
# independent from level to level; the rest is a random walk.
_ROUGH = 0.1


@dataclass(frozen=True)
class Columns:
    """Grouping of features by column: indicators of one categorical column, or one numeric column.

    At most one indicator of a categorical column is 1, so the covariances of its indicators follow from their
    frequencies, which noisy moments estimate better than covariances. A model uses all features of a column
    or none.

    Attributes:
        parts: (first, last + 1) of the features of each column. A part of several features is a category; a
            part of one may be a number.
        middle: the point that features are measured from, shape (d,).
        lines: (feature, lowest, highest) of each numeric feature, with its declared bounds.
        ordered: (first, last + 1) of features that are ordered levels: bins, or whole numbers as categories.
        gaps: the features that say that a number is missing, each right after its number.
    """

    parts: tuple[tuple[int, int], ...]
    middle: tuple[float, ...]
    lines: tuple[tuple[int, float, float], ...]
    ordered: tuple[tuple[int, int], ...] = ()
    gaps: tuple[int, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Return the columns of a schema, measured from its middle."""
        numbers = schema.numbers
        lines = tuple(_line(start, number) for start, number in numbers.items())
        # A number and the indicator of its missing values do not exclude each other: they are separate parts.
        ends = {0, *(stop for _, stop in schema.spans), *(start + 1 for start in numbers)}
        ordered = tuple(
            (start, start + len(plain_column(column)[0].feature_names))
            for (start, _), column in zip(schema.spans, schema.columns, strict=True)
            if _is_ordered(plain_column(column)[0])
        )
        gaps = tuple(start + 1 for start, stop in schema.spans if start in numbers and stop > start + 1)
        return cls(
            tuple(itertools.pairwise(sorted(ends))), tuple(schema.middle.tolist()), lines, ordered, gaps
        )

    @property
    def features(self) -> NDArray[np.int64]:
        """Indices of the features of all parts, in order."""
        found = [np.arange(*part, dtype=np.int64) for part in self.parts]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    @property
    def numbers(self) -> NDArray[np.bool_]:
        """Mask of ``features`` that are numbers."""
        return np.isin(self.features, [feature for feature, _, _ in self.lines])

    @property
    def share_of_numbers(self) -> float:
        """The share of the columns that are numbers; indicators of missing numbers do not count."""
        return len(self.lines) / max(len(self.parts) - len(self.gaps), 1)

    @property
    def squares(self) -> tuple[float, float]:
        """Largest squared distances after ``clipped``: of a record from the middle, and of two records."""
        numbers = [(high - low) ** 2 for _, low, high in self.lines]
        levels = [stop - start for start, stop in self._levels]
        far = sum(numbers) / 4 + sum(1 - 1 / k if k > 1 else 0.25 for k in levels)
        return far, sum(numbers) + sum(2.0 if k > 1 else 1.0 for k in levels)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
        """The features that are levels, the index of each part's first level among them, and the sizes."""
        sizes = [stop - start for start, stop in self._levels]
        levels = [np.arange(*part, dtype=np.int64) for part in self._levels]
        empty = np.zeros(0, dtype=np.int64)
        return np.concatenate([empty, *levels]), np.cumsum([0, *sizes[:-1]], dtype=np.int64), sizes

    @property
    def _levels(self) -> list[tuple[int, int]]:
        """The parts that are levels."""
        numbers = {feature for feature, _, _ in self.lines}
        return [part for part in self.parts if part[0] not in numbers]

    def ordered_levels(self, first: int) -> int:
        """Count the ordered levels of the part that begins with a feature; they come first in the part."""
        return dict(self.ordered).get(first, first) - first

    def clipped(self, rows: Floats) -> Floats:
        """Return rows, measured from the middle, with numbers in their ranges and shares of levels in [0, 1].

        The shares of a part add up to at most 1. Clipping does not change encoded records; it makes
        ``squares`` true for any rows.
        """
        found = rows.copy()
        for feature, low, high in self.lines:
            np.clip(rows[:, feature], (low - high) / 2, (high - low) / 2, out=found[:, feature])
        levels, firsts, sizes = self._places
        if levels.size:
            middle = np.array(self.middle)[levels]
            shares = np.clip(rows[:, levels] + middle, 0.0, 1.0)
            total = np.maximum(np.add.reduceat(shares, firsts, axis=1), 1.0)
            found[:, levels] = shares / np.repeat(total, sizes, axis=1) - middle
        return found

    def shares(self, rows: Floats) -> Floats:
        """Return rows, measured from the middle, as shares of the cells of columns, without the last cell.

        A record with a level has the whole share in the cell of that level; a number at the share x of its
        range has x in its cell and 1 - x in the last cell. Shares are in [0, 1], and the shares of a column
        add up to at most 1, for any rows.
        """
        near = self.clipped(rows)
        found = np.clip(near + np.array(self.middle)[: rows.shape[1]], 0.0, 1.0)
        for feature, low, high in self.lines:
            share = np.clip(near[:, feature] / (high - low) + 0.5, 0.0, 1.0)
            missing = found[:, feature + 1] if feature + 1 in self.gaps else 0.0
            found[:, feature] = share * (1 - missing)
        return np.asarray(found)

    def only(self, spans: Sequence[tuple[int, int]]) -> Self:
        """Return the columns whose features are in some spans, renumbered in the order of the spans."""
        new: dict[int, int] = {}
        count = 0
        for start, stop in spans:
            new |= {old: count + old - start for old in range(start, stop)}
            count += stop - start

        def kept(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
            return tuple((new[a], new[a] + b - a) for a, b in pairs if a in new)

        return type(self)(
            kept(self.parts),
            tuple(self.middle[old] for old in new),
            tuple((new[feature], low, high) for feature, low, high in self.lines if feature in new),
            kept(self.ordered),
            tuple(new[gap] for gap in self.gaps if gap in new),
        )

    def within(self, noisy: Floats, sigma: float) -> Floats:
        """Subtract from sums over records, with noise of ``sigma`` each, what noise adds to parts of levels.

        Where every record has one level of a part, the sum of the part is 0 without noise. So a sum within
        two standard deviations of 0 is taken to be noise and removed; of a larger sum only the excess over
        two standard deviations is kept, as some records then have no level of the part.
        """
        found = noisy.copy()
        for start, stop in self._levels:
            k = stop - start
            if k > 1:
                most = 2 * math.sqrt(k) * sigma
                found[start:stop] -= float(np.clip(np.sum(noisy[start:stop]), -most, most)) / k
        return found

    def likely_means(self, noisy: Floats, sigma: float, at_least: Floats) -> tuple[Floats, Floats]:
        """Return means of features, measured from the middle, and the variance of the noise left in each.

        Args:
            noisy: the means with noise of ``sigma``.
            sigma: the standard deviation of the noise.
            at_least: other estimates of the squared means, shape (d,), that do not overestimate them.
        """
        squares = np.full(len(noisy), _MEANS)
        for feature, low, high in self.lines:
            squares[feature] = _MEANS * (high - low) ** 2
        squares = np.maximum(squares, at_least)
        kept = squares / (squares + sigma**2)
        found = kept * noisy
        for start, stop in self._levels:
            if stop - start > 1:
                spread, ordered = float(np.mean(at_least[start:stop])), self.ordered_levels(start)
                near = smooth_prior(stop - start, ordered) if ordered > 2 else None
                found[start:stop], kept[start:stop] = likely_shares(noisy[start:stop], sigma, spread, near)
        return np.asarray(found), np.asarray(kept * sigma**2)

    def blocks(self, variances: Floats, means: Floats, sigma: float) -> list[Block]:
        """Estimate the covariances of each part.

        Args:
            variances: variances of ``features``, with noise of ``sigma`` each.
            means: means of ``features``, as distances from the middle.
            sigma: the standard deviation of the noise.
        """
        lines = {feature: (high - low) ** 2 for feature, low, high in self.lines}
        shares, found, stop = means + np.array(self.middle)[self.features], [], 0
        for first, last in self.parts:
            start, stop = stop, stop + last - first
            if first in lines:
                found.append(_number(variances[start], sigma, lines[first]))
            else:
                kernels = [kernel for kernel, _ in prior_kernels(stop - start, self.ordered_levels(first))]
                # The kernels are equally probable: more weight on smooth dependence of columns gained nothing
                # on synthetic and public tables, and lost more where columns depend on each other roughly.
                found.append(Block(_levels(shares[start:stop]), kernel=np.mean(kernels, axis=0)))
        return found


def likely_shares(
    noisy: Floats, sigma: float, at_least: float, prior: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the shares of exclusive levels less 1 / K each, and the factors on the variances of their noise.

    The shares are shrunk towards equal shares by empirical Bayes, and projected on the simplex of vectors
    with the same sum.

    Args:
        noisy: the shares less 1 / K each, with noise of ``sigma``.
        sigma: the standard deviation of the noise.
        at_least: another estimate of the variance of the shares, which is not too large.
        prior: covariances of the shares, up to a factor; None: levels are alike.
    """
    k, mean = len(noisy), float(np.mean(noisy))
    total = min(max(1 + k * mean, _RARE * k), 1.0)
    spread = max(float(np.var(noisy)) * k / (k - 1) - sigma**2, at_least, _SHARES / k)
    if prior is None:
        kept = np.eye(k) * (spread / (spread + sigma**2))
    else:
        centre = np.eye(k) - 1 / k
        near = centre @ prior @ centre
        near *= spread * (k - 1) / float(np.trace(near))
        kept = near @ np.linalg.inv(near + sigma**2 * np.eye(k))
    shares = total / k + kept @ (noisy - mean)
    falling = np.sort(shares)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, k + 1)
    shares = shares - excess[np.flatnonzero(falling > excess)[-1]]
    shares = np.maximum(shares, max(_RARE, _RARE_OF_LEVELS * min(1 / k, sigma)))
    return np.asarray(shares * total / np.sum(shares) - 1 / k), np.diag(kept)


@functools.cache
def smooth_prior(levels: int, ordered: int) -> Floats:
    """Return the prior covariances of one number per level, a random walk over the first ``ordered`` levels.

    The numbers of ordered levels are a random walk plus independent numbers, both less their means; their
    variances add up to ``ordered`` - 1. A level that is not ordered has variance 1.
    """
    steps = np.arange(ordered)
    centre = np.eye(ordered) - 1 / ordered
    walk = centre @ np.minimum.outer(steps, steps) @ centre
    each = (1 - _ROUGH) * walk / float(np.trace(walk)) + _ROUGH * centre / float(np.trace(centre))
    found = np.eye(levels)
    found[:ordered, :ordered] = each * (ordered - 1)
    return found


def prior_kernels(levels: int, ordered: int) -> list[tuple[Floats, float]]:
    """Return prior covariances of the log odds of levels, each with its prior probability.

    The first ``ordered`` levels are ordered.
    """
    plain = np.eye(levels)
    if ordered < 3:
        return [(plain, 1.0)]
    return [(plain, 1 - _SMOOTH), (smooth_prior(levels, ordered), _SMOOTH)]


def _is_ordered(column: Column) -> bool:
    """Return whether levels are bins, or categories that are whole numbers."""
    if isinstance(column, Binned):
        return True
    return isinstance(column, Categorical) and all(isinstance(c, int) for c in column.categories)


def _line(start: int, number: Numeric) -> tuple[int, float, float]:
    """Return the feature of a number and its declared bounds."""
    middle, half = float(number.middle[0]), math.sqrt(number.squared_spread)
    return start, middle - half, middle + half


def _levels(shares: Floats) -> Floats:
    """Return the covariances of exclusive indicators from noisy shares of the records."""
    p = np.clip(shares, _RARE, 1 - _RARE)  # a share of 1 would leave no variance
    p = p / max(float(np.sum(p)), 1.0)
    return np.asarray(np.diag(p) - np.outer(p, p))


def _number(variance: float, sigma: float, squared_range: float) -> Block:
    """Return the variance of a number: the noisy one, shrunk towards a typical one."""
    typical = _TYPICAL * squared_range / 4
    weight = typical**2 / (typical**2 + sigma**2)
    found = weight * variance + (1 - weight) * typical
    return Block(np.array([[float(np.clip(found, typical * 1e-3, squared_range / 4))]]), weight * sigma**2)

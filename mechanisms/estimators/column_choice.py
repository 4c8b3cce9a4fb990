"""Choice of columns for a fit: public facts, unread records and the shared budget.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from privopt.mechanisms.discrete.mechanism import Release
from privopt.mechanisms.discrete.subset import SubsetPlan, support_mask
from privopt.mechanisms.estimators.booking import Unread, read_unbooked, unread_table
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.labels import check_label_range, real_labels
from privopt.mechanisms.estimators.prepared import constant_feature
from privopt.mechanisms.estimators.public_facts import leak
from privopt.mechanisms.estimators.validation import as_table, validated
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import Limits
from privopt.problems.arguments import check_same_length, check_type, told
from privopt.problems.convex.risk import RowNorm
from privopt.problems.discrete.supports import SubsetBounds
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table

Floats = NDArray[np.float64]

# Noisy moments are preferred if they need at most this multiple of the records that a draw needs, both by the
# formulas of ``by_moments``. The factor was measured on synthetic tables.
_MOMENTS_UP_TO = 1.2


class SubsetFacts(NamedTuple):
    """Public facts for a choice of columns; ``centre`` is subtracted from labels."""

    bounds: SubsetBounds
    centre: float
    label_range: tuple[float, float]


def subset_facts(
    data_norm: float, norm: RowNorm, label_range: tuple[float, float], fit_intercept: bool
) -> SubsetFacts:
    """Return the facts for declared bounds; "linf" means that columns are clipped, "l2" that rows are scaled
    down."""
    bound, (low, high) = check_positive(data_norm, "data_norm"), check_label_range(label_range)
    centre, label = 0.0, max(abs(low), abs(high))
    if fit_intercept:
        centre, label = low / 2 + high / 2, high / 2 - low / 2
    constant = constant_feature(bound, norm) if fit_intercept else 0.0
    if norm == "linf":
        bounds = SubsetBounds(label, feature=bound, constant=constant)
    else:
        bounds = SubsetBounds(label, row=bound, constant=constant)
    return SubsetFacts(bounds, centre, (low, high))


def read_numbers(estimator: Any, X: Any, y: Any) -> tuple[Floats, Floats]:
    """Validate a dense table of numbers and its labels; set ``n_features_in_`` and ``feature_names_in_``."""
    X = validated(estimator, as_table(X), dtype=np.float64)
    labels = real_labels(y)
    check_same_length(len(X), len(labels))
    return X, labels


def unread_numbers(estimator: Any, X: Any, y: Any) -> Unread[tuple[Floats, Floats]]:
    """Wrap a table of numbers in memory as unread."""
    _check_in_memory(X, y)
    given = unread_table(X, y, None, partial(validated, estimator))
    return given.then(lambda pair: read_numbers(estimator, pair[0], pair[1]))


def unread_features(estimator: Any, X: Any, y: Any, facts: SchemaFacts) -> Unread[tuple[Floats, Floats]]:
    """Wrap a table in memory as unread features, encoded by a schema, with their middle subtracted."""
    _check_in_memory(X, y)

    def read(pair: tuple[Any, Any]) -> tuple[Floats, Floats]:
        features, labels = read_numbers(estimator, encoded(facts.schema, pair[0]), pair[1])
        return features - facts.middle, labels

    given = unread_table(X, y, facts.schema, partial(validated, estimator)).then(read)
    return replace(given, n_columns=facts.schema.n_features)


def _check_in_memory(X: Any, y: Any) -> None:
    if is_dask(X) or is_dask(y) or sp.issparse(X) or is_engine_table(X) or isinstance(X, CountedRecords):
        raise InvalidInputError(
            "a subset of columns is drawn from a dense table in memory: X.compute() of a Dask collection, "
            "X.toarray() of a sparse matrix, X.to_pandas() of a table in an engine; or with a schema "
            'mechanism="sufficient-statistics", which takes other tables, too'
        )


class SchemaFacts(NamedTuple):
    """A schema, the public middle of its features, and a bound on features after subtracting the middle."""

    schema: Schema
    middle: Floats
    bound: float


def schema_facts(schema: Schema, centred: bool) -> SchemaFacts:
    """Return the facts of encoded features, with a bound on each feature, which centring halves for numbers.

    Raises:
        InvalidInputError: the schema has an intercept.
    """
    if schema.intercept:
        raise InvalidInputError(
            "max_features: the schema's constant cannot be chosen as a column: set intercept to false in the "
            "schema, and use fit_intercept"
        )
    if not centred:
        return SchemaFacts(schema, np.zeros(schema.n_features), schema.norm("linf"))
    middle = schema.middle
    reach = np.maximum(middle, 1 - middle)  # the bound of centred 0/1 features
    for j, column in schema.numbers.items():
        reach[j] = math.sqrt(column.squared_spread)
    return SchemaFacts(schema, middle, float(np.max(reach)) * (1 + 1e-12))


def declared_facts(
    estimator: Any, given: Unread[tuple[Floats, Floats]], norm: RowNorm, bound: float | None
) -> SubsetFacts:
    """Return the facts for a choice of columns; infer facts that are not declared, with a warning."""
    label_range = estimator.label_range
    facts = {"data_norm": bound, "label_range": label_range}
    lacking = [name for name, fact in facts.items() if fact is None]
    if lacking:
        X, y = read_unbooked(estimator.ledger, given, lacking)
        leak(f"{' and '.join(lacking)} inferred from the records, which is not private; declare them")
        if bound is None:
            order = np.inf if norm == "linf" else 2
            bound = float(np.max(np.linalg.norm(X, order, axis=1))) or 1.0
        if label_range is None:
            low, high = float(np.min(y)), float(np.max(y))
            label_range = (low, high) if low < high else (low - 1, high + 1)
    assert bound is not None  # declared, or inferred above
    return subset_facts(bound, norm, label_range, bool(estimator.fit_intercept))


def checked_norm(norm: object) -> RowNorm:
    if not isinstance(norm, str) or norm not in ("l2", "linf"):
        raise InvalidInputError(f'norm must be "l2" or "linf", got {told(norm)}')
    return "l2" if norm == "l2" else "linf"


@dataclass
class SubsetChoice:
    """A choice of columns, drawn when the records are read, for a fit on the chosen columns.

    Attributes:
        plan: the plan of the choice.
        facts: the bounds on records.
        given: the unread table.
        limits, seed: limits and seed of the draw.
        release: the chosen columns; None before the records are read.
    """

    plan: SubsetPlan
    facts: SubsetFacts
    given: Unread[tuple[Floats, Floats]]
    limits: Limits | None
    seed: int | None
    release: Release | None = None

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The chosen columns, shape (p,)."""
        assert self.release is not None  # set when records are read
        return support_mask(self.release)

    def chosen(self) -> Unread[tuple[Floats, Floats]]:
        """Return unread records, restricted to the chosen columns, which are drawn when records are read."""
        return Unread(self.given.n_records, self._read, self.plan.lattice.support, self.given.given)

    def _read(self) -> tuple[Floats, Floats]:
        X, y = self.given._read()
        # A seed that differs from the fit's seed: if the fit's noise repeated the random bits of the draw,
        # it would depend on the drawn columns.
        source = NoiseSource(None if self.seed is None else self.seed + 2**32)
        self.release = self.plan.release(X, y - self.facts.centre, source, self.limits)
        bounds = self.facts.bounds
        return bounds.cut(X, np.zeros(len(X)))[0][:, self.mask], y

    def whole(self, spend: PrivacySpend, epsilon: float) -> PrivacySpend:
        """Compose the spends of choice and fit by basic composition, which allows adaptive choices."""
        notes = (f"{self.plan.lattice} at epsilon = {self.plan.choice.spend.epsilon:.4g}", spend.note)
        return replace(
            spend,
            epsilon=max(epsilon, spend.epsilon + self.plan.choice.spend.epsilon),
            notion="pure" if spend.notion == "pure" else "approximate",
            level=None,
            note="; ".join(note for note in notes if note),
        )


def shared_epsilon(epsilon: float, share: float) -> tuple[float, float]:
    """Split epsilon between the choice of columns and the fit on them; the sum is at most epsilon."""
    rest = (1 - share) * check_epsilon(epsilon)
    return math.nextafter(epsilon - rest, 0.0), rest


def checked_size(size: object, columns: int) -> int:
    """Return the number of columns to choose.

    Raises:
        InvalidInputError: not a whole number from 1 to the number of columns.
    """
    check_type(size, int | np.integer, "max_features must be a whole number")
    if isinstance(size, bool) or not 1 <= int(size) <= columns:  # type: ignore[call-overload]
        raise InvalidInputError(f"max_features must be from 1 to the {columns} columns, got {told(size)}")
    return int(size)  # type: ignore[call-overload, no-any-return]


def by_moments(columns: int, size: int, epsilon: float, mu: float) -> tuple[bool, str]:
    """Return whether to choose ``size`` columns by noisy moments instead of drawing them, and the reason.

    The decision compares how many records each way needs to find ``size`` independent columns that explain
    equal shares of the variance of the labels. For a draw, the best subset must outweigh the size * (columns
    - size) subsets with one wrong column; losses enter in units of 2 Delta / epsilon, Delta the sensitivity
    of the loss. For noisy moments, the covariances with the labels must stand out from the noise of all
    columns. The ratio of the two numbers follows from formulas, up to a factor that was measured. All inputs
    are public facts.
    """
    draw = 8 / (epsilon / 2) * size * math.log(max(size * (columns - size), 2))
    moments = 3 / math.sqrt(2) / mu * math.sqrt(columns * size * 2 * math.log(max(columns, 2)))
    what = f"to find {size} of {columns} columns at this epsilon"
    if moments <= _MOMENTS_UP_TO * draw:
        return True, f"{what} the best subset on noisy moments needed fewer records than a drawn one"
    return False, f"{what} a drawn subset needed fewer records than the best one on noisy moments"

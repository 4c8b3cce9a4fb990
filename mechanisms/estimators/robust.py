"""Private robust linear models for unbounded, heavy-tailed records: no bounds are declared.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from privopt.mechanisms.estimators.booking import Unread, booked, read_unbooked, unread_table
from privopt.mechanisms.estimators.counting import check_number, encoded, unread_counts
from privopt.mechanisms.estimators.linear_model import PrivateLinearModel
from privopt.mechanisms.estimators.linear_plan import LinearPlan
from privopt.mechanisms.estimators.linear_predictors import LinearClassifier, LinearRegressor, Probabilities
from privopt.mechanisms.estimators.persons import fit_persons, person_of
from privopt.mechanisms.estimators.predictions import by_parts
from privopt.mechanisms.estimators.prepared import Targets
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.estimators.validation import as_table, check_enough, keep_arguments, validated
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.measured_descent import MeasuredDescent
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.usefulness import warn_if_noise
from privopt.mechanisms.registry import ROBUST_FITS
from privopt.oracles.limits import Limits, check_limits
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Floats = NDArray[np.float64]

_AUTO = "it was the most accurate at equal privacy of those measured, and needs no public bounds"


def choose_robust(
    name: str | type[Any],
    n: int,
    d: int,
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    steps: int | None,
    releases: int = 1,
    flags: tuple[int, ...] = (),
) -> tuple[ClippedNewton | MeasuredDescent, str]:
    """Plan a robust mechanism by name, or the default for "auto"; return the plan and the reason.

    Raises:
        UnknownMechanismError: an unknown name; the message lists the known ones.
        PrivacyParameterError: parameters out of range.
    """
    kind = ROBUST_FITS.named("clipped-newton" if isinstance(name, str) and name == "auto" else name)
    plan = kind.plan(n, d, loss, epsilon=epsilon, delta=delta, steps=steps, releases=releases, flags=flags)
    return plan, _AUTO if name == "auto" else "it was asked for"


def in_random_order(counts: NDArray[np.int64], source: NoiseSource) -> NDArray[np.int64]:
    """Expand counts of distinct records to one entry per record, in uniformly random order.

    Return the index of the distinct record of each entry, shape (n,). The proofs of mechanisms are for tables
    that differ in one row, and mechanisms may depend on the positions of rows. If records were expanded in
    sorted order, tables that differ in one record could differ in many rows. In random order, every order of
    one table corresponds to an equally likely order of its neighbour that differs in one row.
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows[source.order(len(rows))]


class _PrivateRobustModel(PrivateLinearModel):
    """Base of robust linear models, which fit without public bounds."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model.

        Args:
            X: records, shape (n, d): an array or a data frame of numbers; with a schema, a table with its
                columns. A classifier with a schema and declared classes also takes an Ibis table or
                ``CountedRecords``, whose records are put in random order in memory.
            y: labels, shape (n,); for an Ibis table the name of the label column; for counted records None.

        Raises:
            InvalidInputError: invalid data (a ``ValueError``); nothing was released.
            PrivacyParameterError: epsilon, delta or steps out of range.
            BudgetExceededError: the ledger refused the spend; no record was read.
            OracleError: a limit was reached; nothing was released, and the reserved spend stays spent.
        """
        check_limits(self.limits)
        if person_of(self) is not None:
            return fit_persons(self, X, y)
        schema = None if self.schema is None else declared_schema(self.schema)
        _check_in_memory(X)
        source = NoiseSource(self.insecure_seed)
        given = self._unread(X, y, schema)
        n, d = given.n_records, given.n_columns if schema is None else schema.n_features
        assert d is not None
        check_enough(n)
        table = given.then(lambda pair: self._read(pair[0], pair[1], schema, source))
        if getattr(self, "classes", ()) is None:
            X, targets = read_unbooked(self.ledger, table, ["classes"])
            table = table.known((X, targets))
        else:
            targets = self._declared_targets()
        plan, reason = self._planned(targets, n, d, schema)
        numbers = d - (0 if schema is None else len(schema.flags)) + (targets.loss.labels is Labels.REAL)
        if plan.search is None and numbers:  # this depends on public facts only: n, epsilon, the columns
            _warn_of_units(n, self.epsilon, numbers)
        spend = spent(plan, source)
        warn_if_noise(plan.noise_to_signal)
        with booked(self.ledger, spend, table) as (X, read):
            check_number(len(X), n)
            releases = plan.release(X, read.labels, source, self.limits)
        self._keep(releases, plan, reason, targets, schema)
        points = np.stack([release.point for release in releases])
        return self._set(points[:, :d], points[:, d], spend)

    def _plan_of_records(self, n_records: int, n_columns: int | None) -> LinearPlan:
        schema = None if self.schema is None else declared_schema(self.schema)
        d = n_columns if schema is None else schema.n_features
        if d is None:
            raise InvalidInputError("a plan needs schema or n_columns: it infers nothing from data")
        n = check_count(n_records, "n_records")
        check_enough(n)
        plan, reason = self._planned(self._declared_targets(), n, d, schema)
        return LinearPlan(plan, reason, spent(plan, NoiseSource(self.insecure_seed)))

    def _planned(
        self, targets: Targets, n: int, d: int, schema: Schema | None
    ) -> tuple[ClippedNewton | MeasuredDescent, str]:
        """Return the plan of a fit, and the reason for its mechanism."""
        return choose_robust(
            self.mechanism,
            n,
            d,
            targets.loss,
            epsilon=check_epsilon(self.epsilon),
            delta=public_delta(self.delta, n),
            steps=self.steps,
            releases=targets.releases,
            flags=() if schema is None else schema.flags,
        )

    def _unread(self, X: Any, y: Any, schema: Schema | None) -> Unread[Any]:
        """Wrap records and labels as unread; counted records contain their labels."""
        counted = unread_counts(X, y, schema, getattr(self, "classes", None))
        if counted is not None:
            return counted.then(lambda records: (records, None))
        return unread_table(X, y, schema, partial(validated, self))

    def _read(self, X: Any, y: Any, schema: Schema | None, source: NoiseSource) -> tuple[Floats, Targets]:
        """Validate and encode features and labels."""
        if isinstance(X, CountedRecords):
            rows = in_random_order(X.counts, source)
            assert schema is not None  # counted records are accepted only with a schema
            X, y = encoded(schema, X)[rows], X.labels[rows]
        else:
            X = as_table(X) if schema is None else encoded(schema, X)
        X = validated(self, X, dtype=np.float64)
        return X, self._targets_of(y, len(X))

    def _scores(self, X: Any) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = super()._scores(X)
        return np.nan_to_num(scores)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False  # medians of columns are subtracted
        return tags


def _check_in_memory(X: Any) -> None:
    if is_dask(X):
        raise InvalidInputError("medians of columns need a table in memory, not partitions: X.compute()")
    if sp.issparse(X):
        raise InvalidInputError("sparse matrices are not taken: medians of columns are subtracted")


def _warn_of_units(n: int, epsilon: float, numbers: int) -> None:
    warnings.warn(
        f"{n} records are too few at epsilon = {epsilon:g} to estimate units of {numbers} columns of numbers "
        "privately: the columns are used unscaled, and the fit is poor where their values are not about 1. "
        "To do: divide columns by units that you know, or declare bounds and fit a linear model that is not "
        "robust",
        stacklevel=3,
    )


class PrivateRobustRegression(LinearRegressor, _PrivateRobustModel):
    """Linear regression under differential privacy for unbounded records.

    Features and labels may be unbounded and heavy-tailed. Their scales are estimated privately, within the
    budget, and a record's influence is bounded relative to these scales. No bounds need to be declared or
    inferred. If residuals are symmetric, the fit estimates the least-squares model; if they are skewed,
    predictions lie between the conditional median and mean of the labels, as in Huber regression.

    Privacy: (epsilon, delta)-differential privacy for the fitted weights, for data sets that differ by
    *replacing one record*; n, d and every parameter below are public. Outside the guarantee: running time,
    and whether data were refused (NaN, another number of columns).

    With too few records, scales cannot be estimated and columns are used unscaled, with a warning. For 5
    features this happens below about n mu = 175, where mu is the level of Gaussian differential privacy.

    Args:
        epsilon: privacy budget of the whole fit, > 0 and finite.
        delta: in (0, 1), or "auto" for 1/n^2.
        mechanism: "auto" or a name of ``privopt.mechanisms.ROBUST_FITS``.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file: X is then a table with its columns.
            Wide ranges in it do not increase the noise. No scales are estimated for levels and bins, which
            are 0 or 1. None: X holds numbers.
        steps: number of noisy steps; None: the default of the mechanism.
        person, records_per_person: as for ``PrivateHalfspaceClassifier``.
        limits: time limit, progress callback and cancellation.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused. A fit that would overdraw the budget is refused.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        coef_, intercept_: weights of the unscaled columns, shape (d,), and a float.
        schema_: the schema in use, or None.
        spend_: the privacy spend of the fit.
        noise_: the public parameters of the noise, and the number of steps.
        releases_: the ``RealRelease``, in a list; not in loaded models.
        mechanism_, mechanism_reason_: the name of the mechanism in use, and why.

    References:
        Wang, Xiao, Devadas and Xu (2020); Asi, Liu and Tian (2024); see ``ClippedNewton``.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        mechanism: str | type[Any] = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        steps: int | None = None,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        return Targets([self._labels(y, n_rows)], PLAIN_SQUARES)

    def _declared_targets(self) -> Targets:
        return Targets([], PLAIN_SQUARES)

    @by_parts
    def predict(self, X: Any) -> Floats:
        """Return predictions, shape (n,)."""
        return self._scores(X)[:, 0]


class PrivateRobustClassifier(Probabilities, LinearClassifier, _PrivateRobustModel):
    """Logistic regression under differential privacy for unbounded features.

    Privacy, arguments and attributes: as ``PrivateRobustRegression``. With K > 2 classes there is one release
    per class; scales and moments are estimated once for all classes.

    Args:
        classes: the labels, two or more; two are given as (negative, positive). None infers them from the
            data, which is *not* private and emits a ``PrivacyLeakWarning``.

    Attributes:
        classes_: the labels.
        coef_, intercept_: weights, shapes (1, d) and (1,), or a row per class.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        mechanism: str | type[Any] = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        steps: int | None = None,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        return self._class_targets(y, n_rows, LogisticLoss())

    def _declared_targets(self) -> Targets:
        return self._declared_classes(LogisticLoss())

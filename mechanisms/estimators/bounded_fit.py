"""Fits of linear models to records within declared bounds: one release per label vector.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import norm as sparse_norm

from privopt.mechanisms.convex.column_statistics import ColumnStatistics
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.screened_columns import ScreenedColumns
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.estimators.booked_estimator import never_read
from privopt.mechanisms.estimators.booking import Unread, booked, read_unbooked, unread_table
from privopt.mechanisms.estimators.counting import check_number, counted_here, encoded, unread_count_parts
from privopt.mechanisms.estimators.labels import checked_labels, distinct_classes
from privopt.mechanisms.estimators.linear_model import PrivateLinearModel
from privopt.mechanisms.estimators.linear_plan import FitPlan, LinearPlan
from privopt.mechanisms.estimators.numbers import (
    AUTO,
    BINS,
    LINES,
    check_numbers,
    fitted_schema,
    is_default,
    reason_with_bins,
)
from privopt.mechanisms.estimators.persons import fit_persons, person_of
from privopt.mechanisms.estimators.prepared import (
    Outline,
    Prepared,
    Targets,
    constant_feature,
    outline_of,
    risk_facts,
    risk_of,
    shortened,
    with_constant,
)
from privopt.mechanisms.estimators.public_facts import declared_schema, leak, public_delta
from privopt.mechanisms.estimators.sample_weight import refuse_weights, with_weights
from privopt.mechanisms.estimators.validation import as_table, check_enough, validated
from privopt.mechanisms.estimators.weighing import Weighing, moved_from
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon, check_positive
from privopt.mechanisms.privacy.usefulness import warn_if_noise
from privopt.mechanisms.risk.choice import Choice, choose_risk_mechanism, natural_norm
from privopt.mechanisms.risk.mechanism import RealRelease, RiskMechanism
from privopt.oracles.limits import Limits, check_limits, within
from privopt.problems.arguments import check_type, told
from privopt.problems.convex.losses import LogisticLoss, OneVsRestLoss
from privopt.problems.convex.parsing import parse_regularizer, parse_set
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask, parts_of, rows_of_parts
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]


class BoundedFit(PrivateLinearModel):
    """Base class of linear models of records within bounds, declared or inferred with a warning."""

    data_norm: float | None
    norm: RowNorm | None
    convex_set: ConvexSet | str | None
    regularizer: ElasticNet | str
    fit_intercept: bool
    max_weight: float | None
    numbers: str = LINES
    _bins_pay: bool = True  # whether "auto" may put numbers in bins

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Args:
            X: records, shape (n, d). Without a schema: an array, a data frame of numbers, or a scipy.sparse
                matrix, which is never densified. With a schema: a table with its columns. With a schema and
                declared classes, also an Ibis table, which is grouped in its database engine, or
                ``CountedRecords``. If all public facts are declared, also a Dask array or data frame, whose
                partitions are summed on their workers, or a memory-mapped file, which is read in blocks.
            y: labels, shape (n,); for Dask a collection with the partitions of X; for an Ibis table the name
                of the label column; for counted records None.
            sample_weight: weights of the records, shape (n,), as private as the records. They are clipped to
                [0, ``max_weight``] and divided by ``max_weight``, and multiply the losses. For tables in
                memory.

        Raises:
            InvalidInputError: invalid data (a ``ValueError``); nothing was released.
            PrivacyParameterError: invalid epsilon or delta, or a mechanism that does not support the loss,
                set or penalty.
            BudgetExceededError: the ledger refused the spend; no record was read.
            LostPartsError: the cluster that holds the records failed; nothing was released, and the spend
                reserved in the ledger stays spent.
            OracleError: a limit was reached, or, for the perturbation mechanisms, there is no certified
                minimum; nothing was released, and the spend reserved in the ledger stays spent.
        """
        check_limits(self.limits)
        if person_of(self) is not None:
            refuse_weights(sample_weight, "person")
            return fit_persons(self, X, y)
        self._check_arguments()
        schema = None if self.schema is None else declared_schema(self.schema)
        weighted = sample_weight is not None
        given, in_memory, schema = self._given(X, y, schema, counting=not weighted)
        if sample_weight is not None:
            given = with_weights(given, sample_weight, self.max_weight, in_memory and X)
        fit = self._fit_plan(self._outline(given, schema)._replace(weighted=weighted), schema)
        plan, seen, weights = fit.mechanism, fit.seen, fit.weights
        _check_records(plan, in_memory)
        source = NoiseSource(self.insecure_seed)
        spend = fit.spend(source)
        warn_if_noise(plan.noise_to_signal)
        with booked(self.ledger, spend, given) as table:
            _check_records(plan, in_memory and isinstance(table, Whole))
            read = outline_of(table)
            check_number(read.records, seen.records)
            self._know_columns(read)
            clock, carried = (self.limits or Limits()).start(), weights.expected
            if weights.plan is not None and read.held is not None:
                # Plan again, with the same budget and the class weights just released.
                carried = weights.release(read.held, source)
                plan = fit.again(carried)
            # Building a risk counts towards the time limit, as it may compile a kernel for norms of rows.
            made = partial(risk_of, table, weights=fit.weighing.in_losses(carried), facts=plan.facts)
            risks = (within(clock, partial(made, number=k)) for k in range(seen.releases))
            releases = [plan.release(risk, source, limits=clock.rest) for risk in risks]
        self._keep(releases, plan, fit.reason, seen.targets, schema)
        self.multinomial_ = isinstance(plan.facts.loss, OneVsRestLoss)
        self._keep_inference(releases, seen, schema)
        self.row_bound_ = None if self.data_norm is None else (seen.bound, self._row_norm)
        coef, intercept = self._of_records(np.vstack([release.point for release in releases]), seen, schema)
        intercept = fit.weighing.moved(intercept, carried)
        return self._set(coef, intercept + seen.targets.centre, spend)

    def _plan_of_records(self, n_records: int, n_columns: int | None) -> LinearPlan:
        self._check_arguments()
        schema = None if self.schema is None else declared_schema(self.schema)
        lacking = self._undeclared(schema) + (["n_columns"] if schema is None and n_columns is None else [])
        if lacking:
            raise InvalidInputError(f"a plan needs {' and '.join(lacking)}: it infers nothing from data")
        given: Unread[Parts] = Unread(check_count(n_records, "n_records"), never_read, n_columns)
        schema = self._fitted_schema(schema, given.n_records)
        seen = self._outline(given, schema)._replace(weighted=self.max_weight is not None)
        fit = self._fit_plan(seen, schema)
        return LinearPlan(fit.mechanism, fit.reason, fit.spend(NoiseSource(self.insecure_seed)))

    def _fit_plan(self, seen: Outline, schema: Schema | None) -> FitPlan:
        """Plan the fit from public facts: the outline of the table, and the schema of the fit."""
        check_enough(seen.records)
        weights = self._class_weights(seen.targets, check_epsilon(self.epsilon))
        choice = self._choice(seen, schema, weights)
        weighing = self._weighing(choice, seen, schema, weights)
        seen = _in_one_release(seen, choice)
        planned = partial(self._planned, choice, seen, schema, weights.rest)
        reason = choice.reason if schema is None else reason_with_bins(choice.reason, self, schema)
        mechanism = planned(weighing.in_losses(weights.expected))
        return FitPlan(seen, weights, weighing, planned, mechanism, reason + weighing.told(weights))

    def _check_arguments(self) -> None:
        check_type(self.fit_intercept, bool | np.bool_, "fit_intercept must be True or False")
        if not isinstance(self.norm, str | None) or self.norm not in (None, "l2", "linf"):
            raise InvalidInputError(f'norm must be "l2", "linf" or None, got {told(self.norm)}')

    def _keep_inference(self, releases: list[RealRelease], seen: Outline, schema: Schema | None) -> None:
        """Store what intervals of the coefficients need from the releases; by default nothing."""

    @property
    def _row_norm(self) -> RowNorm:
        """The norm in which rows are bounded: the declared one, or the natural norm of the mechanism."""
        return natural_norm(self.mechanism) if self.norm is None else self.norm

    def _know_columns(self, seen: Outline) -> None:
        """Set scikit-learn's attributes for the columns of the table."""
        self.n_features_in_ = seen.columns
        self.__dict__.pop("feature_names_in_", None)
        if seen.names:
            self.feature_names_in_ = np.array(seen.names, dtype=object)

    def _own_constant(self, schema: Schema | None) -> bool:
        """Return whether a constant feature is appended to rows; not if the schema has an intercept."""
        return bool(self.fit_intercept) and not (schema is not None and schema.intercept)

    def _facts(self, seen: Outline, schema: Schema | None, carried: Floats | None) -> RiskFacts:
        """Return the public facts of the risk; ``carried`` are the class weights in its loss."""
        loss = seen.targets.weighted(carried).loss
        facts = risk_facts(
            seen.records,
            seen.columns,
            loss,
            seen.bound,
            self._row_norm,
            self._own_constant(schema),
            seen.weighted,
        )
        if schema is not None and schema.intercept and seen.bound >= 1:
            return replace(facts, constant=1.0)
        return facts

    def _of_records(self, points: Floats, seen: Outline, schema: Schema | None) -> tuple[Floats, Floats]:
        """Transform fitted points to weights and intercepts of the original (uncentred) features."""
        d, own = seen.columns, self._own_constant(schema)
        coef, intercept = points[:, :d], np.zeros(len(points))
        if own:
            intercept = points[:, d] * constant_feature(seen.bound, self._row_norm)
        if seen.middle is not None:
            shift = coef @ seen.middle
            if own:
                intercept = intercept - shift
            else:
                coef[:, -1] -= shift
        return coef, intercept

    def _undeclared(self, schema: Schema | None) -> list[str]:
        """Return the names of undeclared facts, which would be inferred from the records."""
        undeclared = {
            "schema or data_norm": schema is None and self.data_norm is None,
            "classes": getattr(self, "classes", ()) is None,
            "label_range": getattr(self, "label_range", ()) is None,
        }
        return [name for name, lacking in undeclared.items() if lacking]

    def _given(
        self, X: Any, y: Any, schema: Schema | None, counting: bool = True
    ) -> tuple[Unread[Parts], bool, Schema | None]:
        """Return the unread table as parts of type ``Prepared``, whether it is in memory, and the schema of
        the fit.

        If ``counting``, long data frames are reduced to counts of distinct records. A table in an engine is
        reported as in memory, because whether its distinct records fit there is known only when they are
        read. Without a ledger, undeclared facts are inferred, for which the table is read at once.
        """
        counted = unread_count_parts(X, y, schema, getattr(self, "classes", None))
        if counted is not None:
            fitted = self._fitted_schema(schema, counted.n_records)
            prepare = partial(self._prepared, y=None, schema=fitted)
            return counted.then(lambda parts: parts.made(prepare)), True, fitted
        lacking = self._undeclared(schema)
        columns = [column.name for column in schema.columns] if schema is not None else []
        # With undeclared facts, a memory-mapped file is treated as a table in memory: facts are inferred.
        parts = parts_of(X, y, columns) if is_dask(X) or is_dask(y) or not lacking else None
        if parts is not None:
            return self._given_parts(X, parts, schema)
        table, labels = unread_table(X, y, schema, partial(validated, self)), None
        if lacking:
            pair = read_unbooked(self.ledger, table, lacking)
            table, labels = table.known(pair), pair[1]
        fitted = self._fitted_schema(schema, table.n_records, labels)
        given = table.then(lambda pair: self._whole(pair[0], pair[1], fitted, counting))
        return (given.known(read_unbooked(None, given, ())) if lacking else given), True, fitted

    def _fitted_schema(self, schema: Schema | None, n_records: int, labels: Any = None) -> Schema | None:
        """Return the schema of a fit of ``n_records``: the declared one, or this schema with numbers in bins.

        ``labels`` are given if undeclared classes are to be inferred from them.
        """
        check_numbers(self.numbers)
        if schema is None:
            if self.numbers == BINS:
                raise InvalidInputError('numbers="bins" needs a schema, which declares the range of numbers')
            return None
        # max_weight is among them because moments of weighted records make no use of the order of bins.
        names = ("data_norm", "norm", "convex_set", "steps", "max_weight")
        plain = all(getattr(self, name, None) is None for name in names) and is_default(
            self.regularizer, "none"
        )
        return fitted_schema(
            self,
            schema,
            n_records,
            open_choice=self._bins_pay and is_default(self.mechanism, AUTO) and plain,
            threshold=bool(self.fit_intercept) or schema.intercept,
            classes=self._number_of_classes(labels, n_records),
        )

    def _number_of_classes(self, labels: Any, n_records: int) -> int:
        """Return the number of classes, declared or inferred from the labels; 2 if neither is possible."""
        classes = getattr(self, "classes", None)
        if classes is not None:
            return len(distinct_classes(classes, np.array([])))
        inferred = hasattr(self, "classes") and labels is not None
        return len(np.unique(checked_labels(labels, n_records))) if inferred else 2

    def _given_parts(
        self, X: Any, parts: Parts, schema: Schema | None
    ) -> tuple[Unread[Parts], bool, Schema | None]:
        if lacking := self._undeclared(schema):
            raise InvalidInputError(
                f"declare {' and '.join(lacking)}: nothing is inferred from a partitioned table"
            )
        own = {"ledger": None, "limits": None, "schema": None}  # not sent to workers
        worker = type(self)(**{**self.get_params(deep=False), **own})
        n, columns = rows_of_parts(X, parts), int(X.shape[1]) if X.ndim == 2 else 1
        fitted = self._fitted_schema(schema, n)
        prepare = partial(_prepared_part, worker=worker, schema=fitted)
        return Unread(n, lambda: parts.made(prepare), columns), False, fitted

    def _whole(self, X: Any, y: Any, schema: Schema | None, counting: bool) -> Parts:
        counted = counted_here(X, y, schema, getattr(self, "classes", None)) if counting else None
        return Whole(self._prepared(X if counted is None else counted, y, schema))

    def _outline(self, given: Unread[Parts], schema: Schema | None) -> Outline:
        """Return the outline for a plan: from declared facts, or from the table read to infer facts."""
        if self._undeclared(schema):
            return outline_of(read_unbooked(None, given, ()))
        targets = self._declared_targets()
        middle, bound = self._public_norm(None, schema)
        columns = given.n_columns if schema is None else schema.n_features
        assert columns is not None
        return Outline(given.n_records, targets.releases, None, targets, columns, (), middle, bound)

    def _prepared(self, X: Any, y: Any, schema: Schema | None, part: bool = False) -> Prepared:
        """Validate and encode records in memory.

        Rows of a ``part`` are neither scaled to the norm bound nor extended by the constant feature, as the
        risk of the part does both. ``outline_of_part`` checks that the rows of a part are finite.
        """
        counts = coded = None
        if isinstance(X, CountedRecords):
            if schema is not None:
                X = X.in_schema(schema)
            y, counts = X.labels, X.counts
            coded = X.coded if self.data_norm is None else None  # data_norm may rescale single rows
        if coded is not None:
            X = coded
        else:
            X = as_table(X) if schema is None else encoded(schema, X)
            X = validated(
                self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=not part
            )
        rows, d = X.shape
        targets = self._targets_of(y, rows)
        middle, bound = self._public_norm(X, schema)
        if middle is not None and coded is not None:
            X = coded.mapped(lambda table: table - middle)
        elif middle is not None:
            X -= middle  # in place: the encoded table is a copy
        if self.data_norm is not None and not part:
            X = shortened(X, bound, self._row_norm)
        if not part and self._own_constant(schema):
            X = with_constant(X, constant_feature(bound, self._row_norm))
        names = () if coded is not None else tuple(getattr(self, "feature_names_in_", ()))
        return Prepared(X, targets, counts, d, names, middle, bound)

    def _class_weights(self, targets: Targets, epsilon: float) -> ClassWeights:
        """Return the class weights, with the epsilon spent on them; by default equal weights at no cost."""
        return ClassWeights(np.ones(1), None, epsilon, epsilon)

    def _planned(
        self, choice: Choice, seen: Outline, schema: Schema | None, epsilon: float, carried: Floats | None
    ) -> RiskMechanism:
        facts, delta = self._facts(seen, schema, carried), public_delta(self.delta, seen.records)
        plan = choice.plan(facts, epsilon=epsilon, delta=delta, steps=self.steps, releases=seen.releases)
        # If features are centred, moments can make use of the columns of the table that features encode.
        if schema is None or seen.middle is None or not facts.constant > 0:
            return plan
        columns = Columns.of(schema)
        if isinstance(plan, SufficientStatistics):
            return ColumnStatistics.of(plan, columns)
        one = seen.releases == 1 and ColumnStatistics.fits(facts, columns)
        if isinstance(plan, ScreenedStatistics) and one:
            spans = schema.spans
            return ScreenedColumns.plan(facts, epsilon=epsilon, delta=delta, columns=columns, spans=spans)
        return plan

    def _public_norm(self, X: Any, schema: Schema | None) -> tuple[Floats | None, float]:
        """Return the centre subtracted from rows (None for 0), and a bound on the norm of centred rows.

        A schema determines the middle of each column. Centring reduces the norm bound by up to half, and the
        noise with it. It requires an intercept, because only then are the models of centred and uncentred
        rows equivalent, and no convex set, because a set constrains the weights of uncentred rows.
        """
        if self.data_norm is not None:
            return None, check_positive(self.data_norm, "data_norm")
        if schema is not None:
            if (
                self._row_norm == "l2"
                and self.convex_set is None
                and (self.fit_intercept or schema.intercept)
            ):
                return schema.middle, schema.spread
            return None, schema.norm(self._row_norm)
        leak(
            "data_norm, the bound on row norms, was inferred from the data, which is not private; declare it"
        )
        norms = sparse_norm if sp.issparse(X) else np.linalg.norm
        largest = float(np.max(norms(X, np.inf if self._row_norm == "linf" else 2, axis=1)))
        return None, largest or 1.0

    def _choice(self, seen: Outline, schema: Schema | None, weights: ClassWeights) -> Choice:
        mu = self._level_of_release(seen, weights)
        if is_default(self.mechanism, AUTO) and not weights.are_equal:
            found = self._choice_for(self._facts(seen, schema, None), seen, schema, mu)
            if self._weighing(found, seen, schema, weights).moves(weights.most_alike):
                return found
        return self._choice_for(self._facts(seen, schema, weights.expected), seen, schema, mu)

    def _weighing(
        self, choice: Choice, seen: Outline, schema: Schema | None, weights: ClassWeights
    ) -> Weighing:
        """Decide by public facts, before any weight is released, which class weights move the threshold.

        Such weights are added to the log odds after the fit instead of entering the loss.
        """
        if weights.are_equal:
            return Weighing()
        if choice.kind.takes_classes:
            return Weighing(0.0)  # moments take no class weights
        # With a penalty, a set or no intercept, moving the threshold would not give the model of the weights.
        plain = self.convex_set is None and self.steps is None and choice.regularizer == NO_REGULARIZER
        constant = bool(self.fit_intercept) or (schema is not None and schema.intercept)
        chosen = is_default(self.mechanism, AUTO) and isinstance(seen.targets.loss, LogisticLoss)
        if not (plain and constant and chosen) or seen.releases > 1 or seen.weighted:
            return Weighing()
        features = self._facts(seen, schema, None).dimension
        return Weighing(moved_from(seen.records, self._level_of_release(seen, weights), features))

    def _level_of_release(self, seen: Outline, weights: ClassWeights) -> float:
        """Return the budget of each release as a level mu of Gaussian differential privacy."""
        mu = gaussian_mu(weights.rest, public_delta(self.delta, seen.records))
        return mu / math.sqrt(seen.releases)

    def _choice_for(self, facts: RiskFacts, seen: Outline, schema: Schema | None, mu: float) -> Choice:
        space, penalty = self.convex_set, self.regularizer
        if isinstance(space, str):
            space = parse_set(space, facts.dimension)
        if isinstance(penalty, str):
            penalty = parse_regularizer(penalty)
        if not isinstance(penalty, ElasticNet):
            raise InvalidInputError(
                f'a regularizer is text such as "l2:0.1" or an ElasticNet, got {told(penalty)}'
            )
        if not isinstance(space, ConvexSet | None):
            raise InvalidInputError(
                f'convex_set must be text such as "l2:1" or a ConvexSet, got {told(space)}'
            )
        columns = Columns.of(schema) if schema is not None and seen.middle is not None else None
        known = columns is not None and ColumnStatistics.fits(facts, columns)
        numbers = columns.share_of_numbers if columns is not None and known else 0.0
        return choose_risk_mechanism(
            self.mechanism, facts, space, penalty, mu=mu, steps=self.steps, numbers=numbers
        )


def risk_of_table(model: BoundedFit, X: Any, y: Any) -> EmpiricalRisk:
    """Return the empirical risk, without class weights, that ``fit`` builds for the first label vector.

    Not private.
    """
    schema = None if model.schema is None else declared_schema(model.schema)
    given, _, schema = model._given(X, y, schema)
    table = read_unbooked(None, given, ())
    return risk_of(table, 0, None, model._facts(outline_of(table), schema, None))


def _in_one_release(seen: Outline, choice: Choice) -> Outline:
    """Return the outline, with one release for all classes if the mechanism can make it."""
    logistic = isinstance(seen.targets.loss, LogisticLoss) and seen.releases > 1
    return seen.in_one_release() if logistic and choice.kind.takes_classes else seen


def _check_records(plan: RiskMechanism, in_memory: bool) -> None:
    """Raise InvalidInputError if a mechanism picks records of a table that is not in memory."""
    if not (plan.by_sums or in_memory):
        raise InvalidInputError(
            f"{plan.name} picks records one by one, which a table in parts does not allow: use "
            'mechanism="auto", dp-gd or objective-perturbation, say, or a table in memory'
        )


def _prepared_part(pair: tuple[Any, Any], worker: BoundedFit, schema: Schema | None) -> Prepared:
    """Prepare one part of a table in a worker process; ``worker`` is an estimator with public facts only."""
    return worker._prepared(*pair, schema, part=True)

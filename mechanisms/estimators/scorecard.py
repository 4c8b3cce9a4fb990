"""Private integer scorecards in scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms import scorecards
from privopt.mechanisms.discrete.mechanism import Release, answering
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator
from privopt.mechanisms.estimators.booking import Unread, booked, read_unbooked, shape_of, unread_table
from privopt.mechanisms.estimators.card import Card, card_of
from privopt.mechanisms.estimators.card_budget import CardBudget
from privopt.mechanisms.estimators.class_card import ClassCard, class_card_of
from privopt.mechanisms.estimators.columns import (
    columns_as_fitted,
    dense_columns,
    labelled_columns,
    refuse_columns,
    unread_sparse,
    zeros_and_ones,
)
from privopt.mechanisms.estimators.counting import (
    check_counted_by,
    check_number,
    integer_features,
    unread_counts,
    unread_part_counts,
)
from privopt.mechanisms.estimators.labels import class_indices, distinct_classes, label_name
from privopt.mechanisms.estimators.numbers import (
    AUTO,
    fitted_schema,
    is_default,
    reason_with_bins,
    rules_for_lines,
)
from privopt.mechanisms.estimators.persons import fit_persons, person_of, plan_of_persons
from privopt.mechanisms.estimators.predictions import (
    RisksOnRequest,
    ScoredClassifier,
    by_parts,
    once_released,
    with_risks,
)
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.estimators.sample_weight import check_weights, refuse_weights, whole_weights
from privopt.mechanisms.estimators.saved import SavedModel
from privopt.mechanisms.estimators.validation import as_table
from privopt.mechanisms.estimators.weights import RAREST_COSTS, ClassWeights, costs_of
from privopt.mechanisms.evaluation.histogram import ScoreHistogram
from privopt.mechanisms.evaluation.risk import RiskTable
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.noisy_share import NoisyShare
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.reliance import relying_on, spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import warn_if_noise
from privopt.mechanisms.registry import MECHANISMS
from privopt.oracles.certificate import Certificate
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.errors import CertificateError, UnfinishedDrawError
from privopt.oracles.limits import MOST_WORK, Limits, check_limits, started, within
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.programs.interface import ProgramOracle
from privopt.problems.arguments import check_type
from privopt.problems.arrays import tallied
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import Constraint
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.point_columns import point_columns
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.estimators.card_choice import CardChoice
    from privopt.mechanisms.privacy.ledger import Ledger


class _Given(NamedTuple):
    """Arguments of ``fit``: public facts, and records not yet read, which are counted when they are read."""

    schema: Schema
    classes: NDArray[Any]
    records: Unread[CountedRecords]


class PrivateHalfspaceClassifier(
    RisksOnRequest,
    BookedEstimator,
    SavedModel,
    ScoredClassifier,
    BaseEstimator,  # type: ignore[misc]
):
    """A classifier with small integer weights, chosen under differential privacy.

    With two classes, the weights minimise the exact 0/1 loss up to the noise required for privacy. They are
    learned over integer features defined by a *public* schema, so the model is a readable scorecard. With
    more classes, every class has its own points, and the class with the most points is predicted. One private
    release with the noise of two classes gives all points, rounded at a common scale (``ClassPoints``).
    ``oracle``, ``calibration``, ``max_columns``, ``constraints``, ``card_solver``, ``max_weight`` and
    ``risk_share`` must then have their defaults. If ``mechanism``, ``oracle`` and ``lattice`` have their
    defaults, a card has an intercept even if the schema declares none, unless a feature is called
    "intercept".

    Privacy: (epsilon, delta)-differential privacy for the fitted weights, for data sets that differ by
    *replacing one record*; n, the schema, the classes and the lattice are public. Outside the guarantee: the
    certificate, running time, whether fitting failed, and training accuracy.

    Args:
        epsilon: privacy budget, > 0 and finite.
        delta: in (0, 1), or "auto" for 1/n^2. Mechanisms that are purely private ignore it and spend none.
        mechanism: "seeded" (a rounded linear model; any number of features), a name of
            ``privopt.mechanisms.MECHANISMS``, a custom ``LatticeMechanism``, or "auto", which chooses a
            mechanism of bounded running time. ``plan`` returns this choice and its reason before a fit.
        oracle: "auto", the name of an oracle (``privopt solvers`` lists them), or a custom one: a
            ``GibbsOracle`` for the mechanisms that draw, a ``DiscreteOracle`` for other mechanisms.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file. None infers bounds and categories
            from the data, which is *not* private and emits a ``PrivacyLeakWarning``.
        classes: the labels, two or more; two are given as (negative, positive). None infers them from the
            data, with the same warning.
        lattice: an ``IntegerLattice``, (low, high) or (low, high, radius), or None for the mechanism's
            default; (low, high) bounds every weight, except that "seeded" does not bound the intercept.
        calibration: "sound"; or "printed" for the calibration in the mechanism's source paper, available for
            mechanisms where that calibration is refuted.
        class_weight: None; a dict from label to weight, which is the cost of misclassifying a record with
            that label; or "balanced", weights inverse to the class shares. Only the ratio of weights matters:
            it is capped at 1,000 and rounded to a ratio of small integers (``Costs``). The noise is
            proportional to the larger integer.
        prevalence: *public* class shares for "balanced": of the second of two classes, or a list with the
            share of each class. None: the shares are released privately first, at a twentieth of epsilon.
        max_columns: maximal number of columns with points; None: all. "seeded" takes the columns with the
            largest effect in its private linear model. If the schema has at least five times as many columns
            and the budget is small, "seeded" instead draws ``max_columns`` columns privately, and fits a
            model to these alone (``ScreenedColumns``). Epsilon includes the cost of the draw.
        constraints: public constraints on points, in addition to those of the schema: a list of texts such as
            "at most 5 columns" or "any of age, income" (``privopt.problems.parse_constraint``). They cost no
            privacy: "seeded" releases the card nearest to its linear model that satisfies them; exponential,
            permute-and-flip, rspm and opdisc choose among the cards that satisfy them. ``plan`` refuses
            constraints that no card satisfies.
        card_solver: the solver that finds the nearest card under constraints: "auto" (HiGHS), a name, or a
            ``ProgramOracle``.
        max_weight: a public whole number W, the bound on ``sample_weight`` in ``fit``. A record then has up
            to W times the influence of a record without weights, so the choice of points has W times the
            noise.
        numbers: "lines" gives each number of the schema points per unit; "bins" gives points to each bin of
            its range (``Schema.with_bins``), as most effects are not linear. "auto" takes bins if
            ``mechanism``, ``oracle`` and ``lattice`` have their defaults and the budget pays for the noise of
            bins, which n, epsilon and delta decide.
        max_work: the largest number of steps that "auto" accepts for an exact draw. The number follows from
            public facts; about 4e8 steps take a second.
        risk_share: the share of epsilon, in [0, 1), for a table from score to risk: counts by score and
            class with exact noise (``HistogramPlan``), used by ``predict_proba``; 0: no table.
        person: the name of the column of X that identifies the person of each record, for tables with several
            records per person. The guarantee is then for *replacing one person* with all of its records.
            Needs a table with named columns (in memory, Dask or an engine) and declared public facts.
        records_per_person: the number k of records of each person that are used: the first k, or from an Ibis
            table k chosen by a fixed rule that depends on this person's records alone. All persons have the
            same weight. "learn" spends a small part of epsilon on choosing k, about the least number that
            covers all records of nine tenths of the persons (``RecordsPlan``); see ``records_per_person_``.
        limits: time limit, progress callback and cancellation of the solve.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused. A fit that would overdraw the budget is refused. A ledger requires a
            declared schema and declared classes.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the labels.
        coef_: integer weights of the schema's features, shape (1, d), or (classes, d) for more than two.
        intercept_: the weight of the schema's constant column, or 0; shape (1,) or (classes,).
        schema_: the schema in use, with the intercept of the card and with the bins of numbers.
        target_: the name of the label column, "" if the labels have no name.
        scorecard_: points per feature level, a data frame.
        spend_: the privacy spend of the fit, including the table of risks.
        constraints_: the constraints on points that the card satisfies, including those of the schema.
        risk_: the ``RiskTable``, or None; it is computed from ``histogram_`` and ``release_.share``.
        certificate_: the oracle's evidence; None for Gibbs draws and for loaded models. Not private.
        release_: the complete ``Release``.
        mechanism_, mechanism_reason_: the name of the mechanism in use, and why.

    References:
        Neel, Roth, Vietri, Wu: Oracle efficient private non-convex optimization (ICML 2020);
        McSherry, Talwar: Mechanism design via differential privacy (FOCS 2007).
    """

    file_format = "privopt-scorecard/1"
    _noun, _usual_share = "scorecard", 0.2
    not_restored = ("oracle",)
    target_: str = ""
    source_: scorecards.CardSource | None = None

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        mechanism: str | type[Any] = "auto",
        oracle: str | DiscreteOracle | GibbsOracle = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        lattice: IntegerLattice | tuple[int, int] | tuple[int, int, float] | None = None,
        calibration: str = "sound",
        class_weight: dict[Any, float] | str | None = None,
        prevalence: float | Sequence[float] | None = None,
        max_columns: int | None = None,
        constraints: Sequence[str | Constraint] | None = None,
        card_solver: str | ProgramOracle = "auto",
        max_work: float = MOST_WORK,
        max_weight: int | None = None,
        numbers: str = "auto",
        risk_share: float = 0.0,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.oracle = oracle
        self.schema = schema
        self.classes = classes
        self.lattice = lattice
        self.calibration = calibration
        self.class_weight = class_weight
        self.prevalence = prevalence
        self.max_columns = max_columns
        self.constraints = constraints
        self.card_solver = card_solver
        self.max_work = max_work
        self.max_weight = max_weight
        self.numbers = numbers
        self.risk_share = risk_share
        self.person = person
        self.records_per_person = records_per_person
        self.limits = limits
        self.ledger = ledger
        self.insecure_seed = insecure_seed

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the scorecard.

        Args:
            X: records, shape (n, columns): a data frame, whose columns are found by name; an array, or a
                sparse matrix of 0 and 1, with columns in the schema's order; an Ibis table, which is grouped
                in its database engine; a Dask data frame or array, which is counted on its workers; or
                ``CountedRecords``. Without a declared schema, the columns of a sparse matrix are the 0/1
                columns x0, x1, ...
            y: labels, shape (n,); for Dask a collection with the partitions of X; for an Ibis table the name
                of the label column; for counted records None.
            sample_weight: weights of the records, shape (n,), as private as the records. They are rounded to
                whole numbers from 0 to ``max_weight`` and multiply the losses. For tables in memory, two
                classes, and the mechanisms seeded, exponential and permute-and-flip.

        Raises:
            InvalidInputError: invalid data (a ``ValueError``); nothing was released.
            PrivacyParameterError: epsilon or delta out of range.
            BudgetExceededError: the ledger refused the spend; no record was read.
            OracleError: no certified answer; nothing was released.
        """
        check_limits(self.limits)
        if person_of(self) is not None:
            refuse_weights(sample_weight, "person")
            return fit_persons(self, X, y)
        schema, classes, given = self._given(X, y, grouped=sample_weight is None)
        n = given.n_records
        heaviest = None if sample_weight is None else self._heaviest(sample_weight, X, n, classes)
        if len(classes) > 2:
            return self._fit_classes(schema, classes, given, label_name(y))
        # The plan depends on public facts only.
        budget = CardBudget.of(self.epsilon, self.risk_share)
        weights = ClassWeights.of(self.class_weight, self.prevalence, classes, budget.card)
        planned = self._planned(schema, n, weights, heaviest=heaviest)
        plan, costs, source = planned.plan, _costs(weights), NoiseSource(self.insecure_seed)
        spend = replace(_spend(planned, weights, budget), insecure_seed=source.insecure_seed)
        warn_if_noise(planned.noise_to_signal(n))
        with booked(self.ledger, spend, given) as records, _searching(plan.name, self.limits):
            check_number(records.n_records, n)
            if weights.plan is not None:  # plan again, with the costs that are released here
                costs = costs_of(weights.release(tallied(records.label, records.counts, 2), source))
                planned = _covered(planned, self._planned(schema, n, weights, costs))
                plan = planned.plan
            assert not isinstance(plan, scorecards.ClassPoints)  # these are for more than two classes
            counting = _counting(records, sample_weight, heaviest)
            signs = 2 * records.label - 1
            problem = ZeroOneHalfspace(
                records.features.X, signs, plan.lattice, costs, layout=schema.layout, **counting
            )
            clock = started(self.limits)  # preparing and compiling count towards the time limit
            coded = None if problem.is_weighted else records.coded  # which holds each distinct record once
            oracle = within(clock, partial(planned.prepare, problem, coded))
            release = replace(
                plan.release(oracle, source, clock.rest),
                spend=relying_on(spend, plan, answering(oracle)),
            )
            histogram = budget.histogram(schema, release.point, problem, source)
        self.target_ = label_name(y)
        self.source_ = _source(release, plan.lattice, scorecards.check_max_columns(self.max_columns))
        return self._set(release, schema, classes, plan.name, planned.reason, histogram)

    def _fit_classes(
        self, schema: Schema, classes: NDArray[Any], given: Unread[CountedRecords], target: str
    ) -> Self:
        """Fit the points of every class, for more than two classes."""
        n, source = given.n_records, NoiseSource(self.insecure_seed)
        weights = ClassWeights.of(self.class_weight, self.prevalence, classes, check_epsilon(self.epsilon))
        planned = self._planned_classes(schema, n, weights)
        plan = planned.plan
        assert isinstance(plan, scorecards.ClassPoints)
        warn_if_noise(planned.noise_to_signal(n))
        clock, spend = started(self.limits), weights.whole(spent(plan, source))
        with booked(self.ledger, spend, given) as records:
            check_number(records.n_records, n)
            costs = weights.release(tallied(records.label, records.counts, len(classes)), source)
            exact = records.features
            features = exact.X / exact.denominator if records.coded is None else records.coded
            release = plan.release(
                features, records.label, records.counts, costs=costs, noise=source, limits=clock.rest
            )
            release = replace(release, spend=spend)
        self.target_, self.source_ = target, _source(release, plan.lattice)
        return self._set(release, schema, classes, plan.name, planned.reason, None)

    def _planned_classes(self, schema: Schema, n: int, weights: ClassWeights) -> scorecards.CardPlan:
        planned = scorecards.plan_class_card(
            self.mechanism,
            schema,
            n,
            len(weights.expected),
            epsilon=weights.rest,
            delta=public_delta(self.delta, n),
            lattice=self.lattice,
            max_columns=self.max_columns,
            constraints=self.constraints,
            risk_share=self.risk_share,
            oracle=self.oracle,
            calibration=self.calibration,
            card_solver=self.card_solver,
        )
        return replace(planned, reason=reason_with_bins(planned.reason, self, schema))

    def plan(self, n_records: int) -> scorecards.CardPlan:
        """Plan a fit of ``n_records`` without data: mechanism, reason, noise, spend, and seconds.

        With ``person``, ``n_records`` is the number of persons. With ``max_weight`` the plan is for a fit
        with ``sample_weight``, and options that do not support weights are refused.

        Raises:
            InvalidInputError: no schema is declared.
            PrivOptError: an argument that ``fit`` would refuse before it reads records.
        """
        if self.schema is None:
            raise InvalidInputError("a plan needs a declared schema: there are no data to infer one from")
        if person_of(self) is not None:
            refuse_weights(self.max_weight, "person", "max_weight")
            whole: scorecards.CardPlan = plan_of_persons(self, n_records)
            return whole
        n_records = check_count(n_records, "n_records")
        classes = distinct_classes((0, 1) if self.classes is None else self.classes, np.array([]))
        schema = self._fitted_schema(declared_schema(self.schema), n_records, len(classes))
        budget = CardBudget.of(self.epsilon, self.risk_share)
        weights = ClassWeights.of(self.class_weight, self.prevalence, classes, budget.card)
        if self.max_weight is not None:
            self._check_takes_weights(self.max_weight, "max_weight", classes)
        if len(classes) > 2:
            planned = self._planned_classes(schema, n_records, weights)
            return replace(planned, spend=weights.whole(planned.spend))
        heaviest = None if self.max_weight is None else check_count(self.max_weight, "max_weight")
        planned = self._planned(schema, n_records, weights, heaviest=heaviest)
        return replace(planned, spend=_spend(planned, weights, budget))

    def _heaviest(self, sample_weight: ArrayLike, table: Any, n: int, classes: NDArray[Any]) -> int:
        """Return the declared bound on weights, after refusing options that do not support weights.

        Raises:
            InvalidInputError: no bound, weights of another shape, or an option that does not support weights.
        """
        self._check_takes_weights(sample_weight, "sample_weight", classes)
        check_weights(sample_weight, self.max_weight, n, not is_dask(table) and table)
        assert self.max_weight is not None
        return check_count(self.max_weight, "max_weight")

    def _check_takes_weights(self, given: object, name: str, classes: NDArray[Any]) -> None:
        """Refuse the argument ``name`` if it is set and an option does not support weights of records."""
        if len(classes) > 2:
            raise InvalidInputError(f"{name} is for cards of two classes")
        if self.risk_share:
            refuse_weights(given, "risk_share, as risks count every record once", name)
        if self.class_weight == "balanced" and self.prevalence is None:
            refuse_weights(given, 'class_weight="balanced" without a declared prevalence', name)

    def _planned(
        self,
        schema: Schema,
        n: int,
        weights: ClassWeights,
        costs: Costs | None = None,
        heaviest: int | None = None,
    ) -> scorecards.CardPlan:
        if costs is None and weights.known is None:  # the later plan must not fail, whatever is released
            self._planned(schema, n, weights, RAREST_COSTS, heaviest)
        planned = scorecards.plan_card(
            self.mechanism,
            schema,
            n,
            epsilon=weights.rest,
            delta=public_delta(self.delta, n),
            lattice=self.lattice,
            calibration=self.calibration,
            oracle=self.oracle,
            costs=costs or _costs(weights),
            max_columns=self.max_columns,
            constraints=self.constraints,
            card_solver=self.card_solver,
            max_work=self.max_work,
            max_weight=heaviest,
            largest_costs=RAREST_COSTS if weights.known is None else None,
        )
        return replace(planned, reason=reason_with_bins(planned.reason, self, schema))

    def _given(self, X: Any, y: Any, *, grouped: bool = True) -> _Given:
        counted = (unread_part_counts if is_dask(X) else unread_counts)(X, y, self.schema, self.classes)
        declared = None if self.schema is None else declared_schema(self.schema)
        table: Unread[Any] | None = None
        if sp.issparse(X):
            declared = declared or zeros_and_ones(shape_of(X)[-1])
            table = unread_sparse(self, X, y, declared)
        elif counted is None:
            table = unread_table(X, y, declared, partial(refuse_columns, self))
        facts = {"schema": declared, "classes": self.classes}
        if undeclared := [name for name, fact in facts.items() if fact is None]:
            assert table is not None
            X, labels = labelled_columns(self, *read_unbooked(self.ledger, table, undeclared))
            schema, classes = declared or self._public_schema(X), self._public_classes(labels)
            schema = self._fitted_schema(schema, table.n_records, len(classes))
            return _Given(
                schema, classes, table.known(X).then(lambda X: _counted(X, labels, schema, classes, grouped))
            )
        classes = self._public_classes(np.array([]))
        assert declared is not None
        if counted is not None:
            schema = self._fitted_schema(declared, counted.n_records, len(classes))
            return _Given(schema, classes, counted.then(lambda found: found.in_schema(schema)))
        assert table is not None
        fitted = self._fitted_schema(declared, table.n_records, len(classes))
        read = table.then(lambda pair: self._counted(pair[0], pair[1], fitted, classes, grouped))
        return _Given(fitted, classes, read)

    def _fitted_schema(self, schema: Schema, n_records: int, classes: int) -> Schema:
        """Return the schema of a fit of ``n_records``: with an intercept, and perhaps with numbers in bins.

        If lattice, mechanism or oracle is not the default, no intercept is added to the declared schema.
        """
        default = self.lattice is None and all(is_default(v, AUTO) for v in (self.mechanism, self.oracle))
        schema = schema.with_intercept() if default else schema
        if default and is_default(self.numbers, AUTO):
            default = not rules_for_lines(schema, schema.with_constraints(self.constraints))
        return fitted_schema(
            self, schema, n_records, open_choice=default, threshold=schema.intercept, classes=classes
        )

    def _counted(
        self, X: Any, y: Any, schema: Schema, classes: NDArray[Any], grouped: bool
    ) -> CountedRecords:
        if isinstance(X, CountedRecords):
            found = X.in_schema(schema)
            check_counted_by(found, schema, classes.tolist())
            return found
        return _counted(*labelled_columns(self, X, y), schema, classes, grouped)

    def _public_classes(self, labels: NDArray[Any]) -> NDArray[Any]:
        return distinct_classes(self.classes, labels)

    def _public_schema(self, X: Any) -> Schema:
        if self.schema is None:
            return Schema.infer(X, intercept=True)
        return declared_schema(self.schema)

    def _set(
        self,
        release: Release,
        schema: Schema,
        classes: NDArray[Any],
        mechanism: str,
        reason: str,
        histogram: ScoreHistogram | None,
    ) -> Self:
        self.release_ = release
        self.histogram_ = histogram
        self.risk_ = None if histogram is None else RiskTable.of(histogram, share=release.share)
        self.schema_ = schema
        self.constraints_ = schema.with_constraints(self.constraints)
        self.classes_ = classes
        self.mechanism_, self.mechanism_reason_ = mechanism, reason
        self.spend_: PrivacySpend = release.spend
        self.coef_ = np.atleast_2d(release.point)
        self.intercept_ = self.coef_[:, -1].copy() if schema.intercept else np.array([0])
        self.scorecard_ = scorecard(schema, release.point, classes)
        return self

    @property
    def rule_(self) -> str:
        """The decision rule in words."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self._class_card_of(self.coef_).rule
        about = f"{self.target_} = " if self.target_ else ""
        return f"{about}{self.classes_[1]} when the points sum to more than 0, else {self.classes_[0]}"

    @property
    def card_(self) -> Card | ClassCard:
        """The printable scorecard, with ``to_markdown``, ``to_dict`` and ``without_negative_points``."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self._class_card_of(self.coef_)
        return self._card(self.coef_[0], self.risk_)

    def near_cards(
        self, n_cards: int = 4, *, gap: float = 0.1, card_solver: str | ProgramOracle = "auto"
    ) -> CardChoice:
        """Return several cards near the private linear model behind the card, the released one first.

        The cards satisfy the constraints, and cost no privacy. Choose among them by what the points mean, not
        by accuracy: comparing them on the records would cost privacy. See ``scorecards.near_cards``.

        Args:
            n_cards: the largest number of cards, >= 2.
            gap: how much farther from the model a card may be than the released card, in (0, 1]; the unit is
                the distance of a card without points.
            card_solver: as the argument of the estimator; not used for more than two classes.

        Raises:
            InvalidInputError: arguments out of range, or no linear model is known: the card is from another
                mechanism than "seeded", or was saved by an earlier version.
        """
        from privopt.mechanisms.estimators.card_choice import CardChoice
        from privopt.mechanisms.scorecards.near_cards import near_cards
        from privopt.mechanisms.scorecards.near_class_cards import near_class_cards

        check_is_fitted(self)
        if self.source_ is None:
            raise InvalidInputError(
                "several cards are found near the private linear model behind a card, and this card has no "
                "such model: it is from another mechanism than 'seeded', or was saved by an earlier version"
            )
        released, rules = self.release_.point, self.constraints_
        if len(self.classes_) > 2:
            near = near_class_cards(self.source_, released, self.schema_, most=n_cards, gap=gap)
            own = tuple(self._class_card_of(card.points) for card in near)
            return CardChoice(own, tuple(card.distance for card in near))
        found = near_cards(
            self.source_,
            released,
            self.schema_,
            rules,
            scorecards.solver_of(card_solver),
            most=n_cards,
            gap=gap,
        )
        return CardChoice(
            tuple(self._card(near.points) for near in found),
            tuple(near.distance for near in found),
        )

    def _card(self, points: NDArray[np.int64], risks: RiskTable | None = None) -> Card:
        """Return the card of two classes with these points; only the released points have risks."""
        classes = (self.classes_[0], self.classes_[1])
        n = None if self.histogram_ is None else self.histogram_.n_records
        card = card_of(self.schema_, points, classes, self.spend_, risks, n, self.target_)
        return replace(card, constraints=tuple(map(str, self.constraints_)))

    def _class_card_of(self, points: NDArray[np.int64]) -> ClassCard:
        classes = tuple(self.classes_.tolist())
        return class_card_of(self.schema_, points, classes, self.spend_, self.target_)

    def to_sql(self, table: str = "records", columns: Sequence[str] = ()) -> str:
        """Return a SELECT statement that adds points, prediction and, with risks, risk to a table's rows.

        It agrees with ``predict``; points and prediction are NULL for records that ``predict`` refuses.
        Columns of numbers must hold numbers, with NULL or NaN for missing values. SQLite stores text in any
        column: text in a column of numbers gets NULL, so cast such a column in a view. The added columns come
        last; the points are also added as ``privopt_...``. If a declared column has the name of an added
        column, a number is appended to the added name: ``points_1``. With several classes, the points of a
        class are ``points_LABEL``.

        Args:
            table: the name of the table.
            columns: the names of all columns of the table. A number is appended to the name of an added
                column that is among them. If they are not given, the table may have an undeclared column
                ``prediction`` as well; a query for that name then returns the table's own column.

        Raises:
            InvalidInputError: a number of more than 1,000 grid points, or a name or category with a NUL.
        """
        from privopt.mechanisms.estimators.class_sql import class_statement
        from privopt.mechanisms.estimators.sql import select_statement

        check_is_fitted(self)
        if len(self.classes_) > 2:
            return class_statement(self.schema_, self.coef_.tolist(), self.classes_.tolist(), table, columns)
        classes = (self.classes_.tolist()[0], self.classes_.tolist()[1])
        return select_statement(self.schema_, self.coef_[0].tolist(), classes, self.risk_, table, columns)

    @property
    def certificate_(self) -> Certificate | None:
        """The oracle's certificate. It depends on the records without noise: not private, not saved."""
        check_is_fitted(self)
        return self.release_.certificate

    @by_parts
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores in points, shape (n,); a record is positive exactly when its score is > 0.

        With several classes, return the points of each class, shape (n, classes).
        """
        check_is_fitted(self)
        scale = self.schema_.denominator
        return np.asarray(self._scores(X) / scale, dtype=np.float64)

    @by_parts
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels, shape (n,), by the sign of integer scores, or the largest of several scores.

        With a declared schema, columns of data frames are found by name, in any order, and other columns are
        ignored. With an inferred schema the columns must be those of ``fit``, in the same order, as in
        scikit-learn.
        """
        check_is_fitted(self)
        scores = self._scores(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[index])

    @with_risks
    @by_parts
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return class probabilities, shape (n, 2): the class shares at each score, from ``risk_``.

        ``predict`` does not depend on them: it uses the sign of the score. Available only with a
        ``risk_share``.
        """
        risk = self.risks_at(self.decision_function(X))
        return np.column_stack([1 - risk, risk])

    @once_released
    def risks_at(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of the second class at scores of ``decision_function``."""
        assert self.risk_ is not None
        return self.risk_.at(scores)

    def _scores(self, X: Any) -> NDArray[np.int64]:
        X = columns_as_fitted(self, dense_columns(as_table(X)))
        weights = self.coef_[0] if len(self.coef_) == 1 else self.coef_.T
        return np.asarray(integer_features(self.schema_, X).X @ weights, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a saved model; ``rule`` and ``scorecard`` restate other entries in words."""
        check_is_fitted(self)
        share = self.release_.share
        return {
            "format": self.file_format,
            "mechanism": self.mechanism_,
            "oracle": self.oracle if isinstance(self.oracle, str) else self.oracle.name,
            "noise": dict(self.release_.noise),
            "spend": self.spend_.to_dict(),
            "rule": self.rule_,
            "scorecard": self.scorecard_.to_dict("records"),
            **({} if self.histogram_ is None else {"histogram": self.histogram_.to_dict()}),
            **({} if self.histogram_ is None or share is None else {"share": share.to_dict()}),
            "classes": self.classes_.tolist(),
            **({"target": self.target_} if self.target_ else {}),
            "weights": self.release_.point.tolist(),
            **({} if self.source_ is None else {"linear_model": self.source_.to_dict()}),
            **({"constraints": list(map(str, self.constraints_))} if self.constraints_ else {}),
            "schema": self.schema_.to_dict(),
        }

    @classmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        spend, schema = PrivacySpend.from_dict(model["spend"]), Schema.from_dict(model["schema"])
        weights, oracle = np.array(model["weights"], dtype=np.int64), model["oracle"]
        check_type(oracle, str, "the name of an oracle is text")
        several = (len(model["classes"]),) if len(model["classes"]) > 2 else ()
        if weights.shape != (*several, schema.n_features):
            raise InvalidInputError(f"{weights.size} weights for {schema.n_features} features")
        histogram = ScoreHistogram.from_dict(model["histogram"]) if "histogram" in model else None
        fitted = cls(
            spend.epsilon,
            mechanism=model["mechanism"],
            schema=schema,
            classes=tuple(model["classes"]),
            constraints=_restored_constraints(model, schema, weights),
            risk_share=0.0 if histogram is None else histogram.spend.epsilon / spend.epsilon,
        )
        classes = fitted._public_classes(np.array([]))
        share = NoisyShare.from_dict(model["share"]) if "share" in model else None
        release = Release(weights, spend, dict(model["noise"]), oracle, share=share)
        fitted.target_ = model.get("target", "")  # files of earlier versions have none
        check_type(fitted.target_, str, "the name of the label column is text")
        if "linear_model" in model:
            fitted.source_ = scorecards.CardSource.from_dict(model["linear_model"], weights.shape)
        fitted._set(release, schema, classes, model["mechanism"], "it was saved", histogram)
        return fitted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.mechanism in ("auto", scorecards.ClassPoints.name)
        # The noise is not reproducible, and on few records it dominates.
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags


def _covered(booked: scorecards.CardPlan, found: scorecards.CardPlan) -> scorecards.CardPlan:
    """Return ``found``, planned after the booking; raise PlanMismatchError if it costs more than booked."""
    claims = [(plan.spend.notion, plan.plan.name) for plan in (booked, found)]
    if (
        claims[0] != claims[1]
        or found.spend.epsilon > booked.spend.epsilon
        or found.spend.delta > booked.spend.delta
    ):
        raise PlanMismatchError(f"{found.spend} is more than is booked, {booked.spend}: report this")

    return found


def _counted(
    X: Any, labels: NDArray[Any], schema: Schema, classes: NDArray[Any], grouped: bool
) -> CountedRecords:
    """Return the records: counts of distinct records if ``grouped``, otherwise all records in their order."""
    codes, label = schema.codes(X), class_indices(labels, classes)
    if grouped:
        return CountedRecords.of(schema, codes, classes.tolist(), label)
    return CountedRecords(
        schema, tuple(codes), tuple(classes.tolist()), label, np.ones(len(label), dtype=np.int64)
    )


def _restored_constraints(
    model: Mapping[str, Any], schema: Schema, weights: NDArray[np.int64]
) -> list[str] | None:
    """Return the constraints of a saved model, checked against its points; None if there are none."""
    found: list[str] | None = model.get("constraints")
    for constraint in schema.with_constraints(found):
        if not constraint.holds(weights, point_columns(schema.columns)):
            raise InvalidInputError(f"its points violate its constraint '{constraint}'")
    return found


def _source(
    release: Release, lattice: IntegerLattice, max_columns: int | None = None
) -> scorecards.CardSource | None:
    """Return the released linear model behind a card, if there is one."""
    if release.weights is None:
        return None
    return scorecards.CardSource(release.weights, lattice.low, lattice.high, max_columns, release.deviations)


def _spend(planned: scorecards.CardPlan, weights: ClassWeights, budget: CardBudget) -> PrivacySpend:
    """Return the spend of a whole fit, with what its claim relies on; it is booked before a read."""
    whole = budget.whole(weights.whole(planned.plan.spend))
    return relying_on(whole, planned.plan, answering(planned.check_oracle()))


def _costs(weights: ClassWeights) -> Costs:
    """Return the costs for the plan: equal costs if a prevalence is to be released first."""
    return EQUAL_COSTS if weights.known is None else costs_of(weights.known)


def _counting(
    records: CountedRecords, sample_weight: ArrayLike | None, heaviest: int | None
) -> dict[str, Any]:
    """Return how much each row counts, as arguments of the problem: counts of equal records, or weights."""
    if sample_weight is None or heaviest is None:
        return {"counts": records.counts}
    return {"weights": whole_weights(sample_weight, heaviest), "max_weight": heaviest}


@contextmanager
def _searching(mechanism: str, limits: Limits | None) -> Iterator[None]:
    """Add advice to an error of the block, if a search in the block reached its time limit."""
    try:
        yield
    except (UnfinishedDrawError, CertificateError) as error:
        if mechanism in MECHANISMS and limits is not None and limits.seconds is not None:
            error.add_note(
                "The time of a search depends on the records. To do: fewer or coarser columns; or, as these "
                'are sure to end, mechanism="seeded" (--mechanism seeded), rspm for up to some 40 features, '
                "or a linear model (--loss logistic)"
            )
        raise


def scorecard(schema: Schema, points: NDArray[np.int64], classes: NDArray[Any] | None = None) -> pd.DataFrame:
    """Return points per feature level; a record is positive exactly when its points sum to more than 0.

    With several classes, each class has a column of points, ``points: LABEL``.

    The points of a number are linear in that number: "none at 0, all at 100" gives half of the points at 50.
    """
    features, levels = zip(*schema.levels, strict=True)
    own = {"points": points} if points.ndim == 1 or classes is None else dict(_named(points, classes))
    return pd.DataFrame({"feature": features, "level": levels, **own})


def _named(points: NDArray[np.int64], classes: NDArray[Any]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    for label, own in zip(classes.tolist(), points, strict=True):
        yield f"points: {label}", own

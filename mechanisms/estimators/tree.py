"""Private decision trees and rule lists in scikit-learn's conventions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.discrete.branching import BranchingPlan
from privopt.mechanisms.discrete.mechanism import Release
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator
from privopt.mechanisms.estimators.booking import Unread, booked, read_unbooked, unread_table
from privopt.mechanisms.estimators.branches import Node, branches_of, leaf_numbers, leaves_of
from privopt.mechanisms.estimators.card_budget import CardBudget
from privopt.mechanisms.estimators.columns import columns_as_fitted, labelled_columns, refuse_columns
from privopt.mechanisms.estimators.counting import check_number, unread_counts, unread_part_counts
from privopt.mechanisms.estimators.labels import class_indices, distinct_classes, label_name
from privopt.mechanisms.estimators.persons import fit_persons, person_of, plan_of_persons
from privopt.mechanisms.estimators.predictions import (
    RisksOnRequest,
    ScoredClassifier,
    by_parts,
    once_released,
    with_risks,
)
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.mechanisms.estimators.saved import SavedModel
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.estimators.tree_sql import tree_statement
from privopt.mechanisms.estimators.validation import as_table, keep_arguments
from privopt.mechanisms.estimators.weights import ClassWeights, prevalence_share
from privopt.mechanisms.evaluation.leaves import LeafHistogram, LeafPlan, LeafRisks
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal, warn_if_noise
from privopt.oracles.limits import Limits, check_limits, started, within
from privopt.oracles.select import gibbs_oracle
from privopt.problems.arguments import check_type
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.predicates import PredicateTable
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import PlanInWords
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.predicates import Predicates
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

# Oracle that draws trees and rule lists.
_ORACLE = "branching"
# Tables in memory are first reduced to counts of distinct records if records outnumber the possible distinct
# records by at least this factor. The number of possible records follows from public facts.
_SHARED = 4


class _Rows(NamedTuple):
    """Records as values of predicates; ``counts`` is None if each row is one record."""

    table: PredicateTable
    label: IntArray
    counts: IntArray | None

    @property
    def n_records(self) -> int:
        return int(np.sum(record_counts(self.counts, self.table.rows)))


class _Given(NamedTuple):
    """Arguments of ``fit``: public facts, and records that have not been read."""

    predicates: Predicates
    classes: NDArray[Any]
    records: Unread[_Rows]


@dataclass(frozen=True)
class TreePlan(PlanInWords):
    """Plan of a fit, made without data.

    Attributes:
        plan: the plan of the draw.
        spend: the privacy spend of the whole fit.
        predicates: number of predicates.
        seconds: approximate processor time of counting and summing; compiling takes about 7 s more, once.
        memory: bytes of the tables that the draw needs.
        noise_to_signal: the expected loss due to noise, compared with the loss of a constant prediction.
    """

    title: ClassVar[str] = "Plan of a tree or rule list"
    plan: BranchingPlan
    spend: PrivacySpend
    predicates: int
    seconds: float
    memory: float
    noise_to_signal: NoiseToSignal

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        choice = self.plan.choice
        size = f"{max(self.seconds, 0.01):.2g} s of processor time and {self.memory / 1e6:.3g} MB"
        return {
            "spend": str(self.spend),
            **({"in detail": self.spend.note} if self.spend.note else {}),
            "levels": f"{self.plan.levels} ({self.plan.reason})",
            "predicates": f"{self.predicates}; models: {float(choice.lattice.box_size):.3g}",
            "noise": f"beta = {choice.beta:.6g}",
            "noise / signal": str(self.noise_to_signal),
            **({"warning": warning} if (warning := self.noise_to_signal.warning) else {}),
            "time": f"about {size}, whatever the labels are; compiling takes some 7 s more once",
        }


class _PrivateBranchingClassifier(
    RisksOnRequest,
    BookedEstimator,
    SavedModel,
    ScoredClassifier,
    BaseEstimator,  # type: ignore[misc]
):
    """Base of private trees and rule lists."""

    _kind: ClassVar[type[BranchingProblem]]
    _usual_share = 0.1
    target_: str = ""

    epsilon: float
    schema: Schema | dict[str, Any] | str | Path | None
    classes: Sequence[Any] | None
    class_weight: dict[Any, float] | str | None
    prevalence: float | Sequence[float] | None
    risk_share: float
    limits: Limits | None
    insecure_seed: int | None

    @property
    @abstractmethod
    def _max_levels(self) -> int | str:
        """The argument that bounds how many predicates a prediction evaluates."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the model.

        Args:
            X: records, shape (n, columns): a data frame, whose columns are found by name; an array with
                columns in the schema's order; an Ibis table, whose engine groups it and returns counts only;
                a Dask data frame or array, which is counted on its workers; or ``CountedRecords``.
            y: labels, shape (n,); for Dask a collection with the partitions of X; for an Ibis table the name
                of the label column; for counted records None.

        Raises:
            InvalidInputError: unusable data (a ``ValueError``), or more work or memory than the limits;
                nothing was released.
            PrivacyParameterError: epsilon out of range.
            BudgetExceededError: the ledger refused; nothing was read.
            UnfinishedDrawError: a limit was reached; nothing was released.
        """
        check_limits(self.limits)
        if person_of(self) is not None:
            return fit_persons(self, X, y)
        given = self._given(X, y)
        n = given.records.n_records
        # The plan is complete before any record is read.
        budget = CardBudget.of(self.epsilon, self.risk_share)
        weights = self._weights(given.classes, budget, n)
        plan = self._plan(given.predicates, n, weights, weights.expected)
        source = NoiseSource(self.insecure_seed)
        drawn = weights.whole(replace(plan.choice.spend, insecure_seed=source.insecure_seed))
        spend = budget.whole(drawn, f"the {self._noun}")
        warn_if_noise(plan.noise_to_signal(n))
        with booked(self.ledger, spend, given.records) as rows:
            check_number(rows.n_records, n)
            if weights.plan is not None:  # plan again, with the costs that are released here
                counts = record_counts(rows.counts, rows.table.rows)
                class_counts = tallied(rows.label, counts, len(given.classes))
                plan = self._plan(given.predicates, n, weights, weights.release(class_counts, source))
            release, histogram = self._released(plan, rows, budget, given, source)
        self.target_ = label_name(y)
        return self._set(
            replace(release, spend=spend), given.predicates, given.classes, plan.levels, histogram
        )

    def _released(
        self, plan: BranchingPlan, rows: _Rows, budget: CardBudget, given: _Given, source: NoiseSource
    ) -> tuple[Release, LeafHistogram | None]:
        """Draw a model and, with a risk share, release counts of records by leaf and class."""
        costs = plan.costs
        problem = self._kind(rows.table, rows.label, plan.choice.lattice, costs, rows.counts)
        clock = started(self.limits)  # preparing and compiling count towards the time limit
        oracle = within(clock, lambda: prepare_oracle(_ORACLE, plan.choice, problem))
        release = plan.choice.release(oracle, source, clock.rest)
        release = replace(release, point=problem.models(release.point[None])[0])
        if not budget.risks:
            return release, None
        branches = branches_of(self._kind, release.point, given.predicates)
        shape = (len(list(leaves_of(branches))), len(given.classes))
        leaf = leaf_numbers(branches, rows.table)
        counted = LeafPlan.plan(budget.risks).release(leaf, rows.label, shape, source, rows.counts)
        return release, counted

    def plan(self, n_records: int) -> TreePlan:
        """Plan a fit of ``n_records`` without data: levels and reason, noise, spend, running time, memory.

        With ``person``, ``n_records`` is the number of persons.

        Raises:
            InvalidInputError: no schema is declared, or more work or memory than the limits.
            PrivOptError: other errors that ``fit`` would raise before it reads records.
        """
        if self.schema is None:
            raise InvalidInputError("a plan needs a declared schema: there are no data to infer one from")
        if person_of(self) is not None:
            whole: TreePlan = plan_of_persons(self, n_records)
            return whole
        predicates = Predicates.of(declared_schema(self.schema))
        classes = distinct_classes((0, 1) if self.classes is None else self.classes, np.array([]))
        budget = CardBudget.of(self.epsilon, self.risk_share)
        n = check_count(n_records, "n_records")
        weights = self._weights(classes, budget, n)
        plan = self._plan(predicates, n, weights, weights.expected)
        spend = budget.whole(weights.whole(plan.choice.spend), f"the {self._noun}")
        measure = plan.noise_to_signal(n)
        return TreePlan(plan, spend, len(predicates), plan.effort.seconds, plan.effort.memory, measure)

    def _weights(self, classes: NDArray[Any], budget: CardBudget, n: int) -> ClassWeights:
        share = prevalence_share(n, budget.card)
        return ClassWeights.of(self.class_weight, self.prevalence, classes, budget.card, share)

    def _plan(
        self, predicates: Predicates, n: int, weights: ClassWeights, costs: NDArray[np.float64]
    ) -> BranchingPlan:
        rows = min(n, len(costs) * predicates.most_rows)
        plan = BranchingPlan.plan(
            self._kind,
            predicates.weights,
            rows,
            epsilon=weights.rest,
            costs=CostMatrix.of_weights(costs),
            max_levels=self._max_levels,
            # With balanced class weights all constant predictions have the same loss and are useless, but
            # small budgets would often select one.
            root_splits=isinstance(self.class_weight, str),
        )
        plan.check_records(n, rows, gibbs_oracle(_ORACLE))
        return plan

    def _given(self, X: Any, y: Any) -> _Given:
        if sp.issparse(X):
            raise InvalidInputError(
                f"X is sparse: a {self._noun} reads tables or dense arrays, X.toarray() say"
            )
        schema = None if self.schema is None else declared_schema(self.schema)
        predicates = None if schema is None else Predicates.of(schema)
        # Engines and workers count records by predicates.
        facts = schema if predicates is None or isinstance(X, CountedRecords) else predicates.coarse
        counted = (unread_part_counts if is_dask(X) else unread_counts)(X, y, facts, self.classes)
        table = unread_table(X, y, schema, partial(refuse_columns, self)) if counted is None else None
        if undeclared := [name for name in ("schema", "classes") if getattr(self, name) is None]:
            assert table is not None
            X, labels = labelled_columns(self, *read_unbooked(self.ledger, table, undeclared))
            known = Predicates.of(Schema.infer(X)) if predicates is None else predicates
            classes = distinct_classes(self.classes, labels)
            return _Given(known, classes, table.known(X).then(lambda X: _rows(X, labels, known, classes)))
        assert predicates is not None
        public = predicates, distinct_classes(self.classes, np.array([]))
        if counted is not None:
            return _Given(*public, counted.then(lambda found: _counted_rows(found, public[0])))
        assert table is not None
        return _Given(*public, table.then(lambda pair: self._read(pair, *public)))

    def _read(self, pair: tuple[Any, Any], predicates: Predicates, classes: NDArray[Any]) -> _Rows:
        if isinstance(pair[0], CountedRecords):
            return _counted_rows(pair[0], predicates)
        return _rows(*labelled_columns(self, *pair), predicates, classes)

    def _set(
        self,
        release: Release,
        predicates: Predicates,
        classes: NDArray[Any],
        levels: int,
        histogram: LeafHistogram | None,
    ) -> Self:
        self.release_, self.histogram_, self.predicates_ = release, histogram, predicates
        self.spend_: PrivacySpend = release.spend
        self.schema_, self.classes_ = predicates.schema, classes
        self.levels_ = levels
        self.branches_: Node = branches_of(self._kind, release.point, predicates)
        self.leaves_ = tuple(leaves_of(self.branches_))
        self.risk_ = None if histogram is None else LeafRisks.of(histogram)
        return self

    @property
    def card_(self) -> TreeCard:
        """The model for printing: ``to_markdown``, ``to_dict``, ``to_svg``, and an HTML page."""
        check_is_fitted(self)
        n = None if self.histogram_ is None else self.histogram_.n_records
        return TreeCard(
            self.branches_,
            self.predicates_,
            tuple(self.classes_.tolist()),
            self._kind is RuleList,
            self.risk_,
            self.spend_,
            n,
            self.target_,
        )

    def to_sql(self, table: str = "records", columns: Sequence[str] = ()) -> str:
        """Return a SELECT statement that adds leaf, prediction and, with risks, the risk of each class to
        all rows.

        It agrees with ``predict``; the added values are NULL for records that ``predict`` refuses. SQLite
        stores text in any column: text in a column of numbers gets NULL, so cast such a column in a view.

        Args:
            table: the name of the table.
            columns: the names of all columns of the table. A number is appended to the name of an added
                column that is among them. If they are not given, the table may have an undeclared column
                ``prediction`` as well; a query for that name then returns the table's own column.
        """
        check_is_fitted(self)
        classes = self.classes_.tolist()
        return tree_statement(self.predicates_, self.branches_, classes, self.risk_, table, columns)

    @by_parts
    def apply(self, X: Any) -> IntArray:
        """Return the number of the leaf of each record, shape (n,); leaves are numbered in reading order."""
        check_is_fitted(self)
        return leaf_numbers(self.branches_, self._table(X))

    @by_parts
    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, shape (n,).

        With a declared schema, columns of data frames are found by name, in any order, and other columns are
        ignored. With an inferred schema the columns must be those of ``fit``, in the same order, as in
        scikit-learn.
        """
        check_is_fitted(self)
        labels = np.array([leaf.label for leaf in self.leaves_])
        return np.asarray(self.classes_[labels[leaf_numbers(self.branches_, self._table(X))]])

    @by_parts
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores, shape (n,) for two classes, otherwise (n, classes), largest for the predicted class.

        Without risks the scores depend only on the predicted class. With risks they order records by
        predicted class first, then by risk. With two classes, the second is predicted exactly where the score
        is > 0.
        """
        check_is_fitted(self)
        return np.asarray(self._leaf_scores()[leaf_numbers(self.branches_, self._table(X))])

    @property
    def score_edges(self) -> tuple[float, ...]:
        """Bin edges between the possible scores of two classes; 0 is always an edge."""
        known = np.unique(self._leaf_scores())
        return tuple(sorted({0.0, *((known[1:] + known[:-1]) / 2).tolist()}))

    def _leaf_scores(self) -> NDArray[np.float64]:
        labels = np.array([leaf.label for leaf in self.leaves_])
        predicted = np.eye(len(self.classes_))[labels]
        shares = np.zeros(predicted.shape) if self.risk_ is None else self.risk_.shares
        if len(self.classes_) > 2:
            return np.asarray(predicted + shares)
        if self.risk_ is None:
            return np.asarray(2.0 * labels - 1)
        return np.asarray(np.where(labels == 1, shares[:, 1], shares[:, 1] - 1))

    @with_risks
    @by_parts
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return risks, shape (n, classes): the share of each class in a record's leaf, from ``risk_``.

        ``predict`` returns the label of the leaf, which may differ from the class with the largest share.
        Available only with a ``risk_share``.
        """
        check_is_fitted(self)
        assert self.risk_ is not None
        return np.asarray(self.risk_.shares[leaf_numbers(self.branches_, self._table(X))])

    @once_released
    def risks_at(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the risk of the second of two classes at scores, from the leaf with the nearest score."""
        assert self.risk_ is not None
        known = self._leaf_scores()
        nearest = np.argmin(np.abs(np.ravel(scores)[:, None] - known[None, :]), axis=1)
        return np.asarray(self.risk_.shares[nearest, 1])

    def _table(self, X: Any) -> PredicateTable:
        X = columns_as_fitted(self, as_table(X))
        if is_engine_table(X):
            raise InvalidInputError(
                "predictions are made in memory, by X.to_pandas() in parts; or in the engine, by to_sql"
            )
        if isinstance(X, CountedRecords):
            return _counted_rows(X, self.predicates_).table
        return self.predicates_.table(self.predicates_.coarse.codes(X))

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a saved model; ``model`` restates other entries in words."""
        check_is_fitted(self)
        return {
            "format": self.file_format,
            "noise": dict(self.release_.noise),
            "spend": self.spend_.to_dict(),
            "model": self.card_.lines(),
            **({} if self.histogram_ is None else {"histogram": self.histogram_.to_dict()}),
            "classes": self.classes_.tolist(),
            **({"target": self.target_} if self.target_ else {}),
            "levels": self.levels_,
            "point": self.release_.point.tolist(),
            "schema": self.schema_.to_dict(),
        }

    @classmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        spend, schema = PrivacySpend.from_dict(model["spend"]), Schema.from_dict(model["schema"])
        predicates, levels = Predicates.of(schema), check_count(model["levels"], "levels")
        classes = distinct_classes(tuple(model["classes"]), np.array([]))
        point = np.array(model["point"], dtype=np.int64)
        domain = cls._kind.domain(len(predicates.values), levels, len(classes))
        if not domain.contains(point) or np.any(point[len(point) // 2 :] >= len(classes)):
            raise InvalidInputError("its point is no tree or rule list of its schema")
        release = Release(point, spend, dict(model["noise"]), _ORACLE)
        fitted = cls(spend.epsilon, schema=schema, classes=tuple(model["classes"]))
        fitted.target_ = model.get("target", "")
        check_type(fitted.target_, str, "the name of the label column is text")
        fitted._set(release, predicates, classes, levels, None)
        if "histogram" in model:
            histogram = LeafHistogram.from_dict(model["histogram"], len(fitted.leaves_), len(classes))
            fitted.risk_share = histogram.spend.epsilon / spend.epsilon
            fitted._set(release, predicates, classes, levels, histogram)
        return fitted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The noise is not reproducible, and on few records it dominates.
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags


class PrivateTreeClassifier(_PrivateBranchingClassifier):
    """Decision tree over cuts, categories and missing values, drawn under differential privacy.

    The tree is drawn by the exponential mechanism from all trees of up to ``max_depth`` levels. The
    probability of a tree is proportional to a prior, which halves with every further branch, times exp(-beta
    times its costs on the records). The draw is exact, without greedy growth or a budget split over levels.

    Privacy: epsilon-differential privacy (pure) for the fitted tree and its risks, for data sets that differ
    by *replacing one record*; n, the schema and the classes are public. Outside the guarantee: whether
    fitting failed, training accuracy, and running time. For tables in memory the running time of the draw
    follows from public facts, except where distinct records are counted first: it then depends on their
    number.

    Args:
        epsilon: privacy budget, > 0 and finite.
        max_depth: the largest number of questions in a prediction, 1 to 4; "auto": 4 for schemas with up to
            60 predicates, otherwise 3, or the largest number within the limits.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file. It determines the questions. Numbers
            are compared with 7 evenly spaced cuts, and amounts, whose range starts near 0, also with 4
            smaller ones. Binned numbers are compared with their edges, so declare custom cuts as a binned
            column. Categories are compared one at a time. None infers bounds and categories from the data,
            which is *not* private: a ``PrivacyLeakWarning`` says so.
        classes: the labels, two or more; two are given as (negative, positive). None infers them from the
            data, with the same warning.
        class_weight: None; a dict from label to weight, which is the cost of misclassifying a record with
            that label; or "balanced", weights inverse to the class frequencies, with which the tree has at
            least one branch. Only ratios of weights matter; they are rounded to small whole numbers
            (``CostMatrix``). The noise is proportional to the largest weight.
        prevalence: *public* class frequencies for "balanced": of the second of two classes, or a list for
            all classes. None: they are released privately first, at a twentieth of epsilon, or up to a fifth
            if n times epsilon is below a thousand.
        risk_share: the share of epsilon, in [0, 1), for the class shares in each leaf (``LeafPlan``), which
            ``predict_proba`` needs; 0: none. 0.1 is a good choice.
        person, records_per_person: as for ``PrivateHalfspaceClassifier``.
        limits: time limit, progress callback and cancellation of the draw.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            if the fit fails. A fit that would overdraw the budget is refused.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the labels.
        schema_: the schema in use.
        target_: the name of the label column, "" if the labels have no name.
        branches_: the tree, pruned; ``card_`` prints it.
        spend_: the privacy spend of the fit, including risks and prevalence.
        risk_: the ``LeafRisks``, or None; ``histogram_`` holds their noisy counts.
        release_: the drawn point of the lattice of ``DecisionTree.domain``.

    References:
        McSherry, Talwar: Mechanism design via differential privacy (FOCS 2007); Chipman, George, McCulloch:
            Bayesian CART model search (JASA 1998), for the prior.
    """

    _kind = DecisionTree
    file_format = "privopt-tree/1"
    _noun = "tree"

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        max_depth: int | str = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: dict[Any, float] | str | None = None,
        prevalence: float | Sequence[float] | None = None,
        risk_share: float = 0.0,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())
        self.max_depth = max_depth

    @property
    def _max_levels(self) -> int | str:
        return self.max_depth


class PrivateRuleListClassifier(_PrivateBranchingClassifier):
    """Rule list (if ... then, else if ... then, else), drawn under differential privacy.

    The list is drawn by the exponential mechanism from all lists of up to ``max_rules`` rules, each about one
    column. Privacy statement, other arguments and attributes are those of ``PrivateTreeClassifier``.

    Args:
        epsilon: privacy budget, > 0 and finite.
        max_rules: the largest number of rules, 1 to 4, or "auto", which chooses as for ``max_depth``.
        schema, classes, class_weight, prevalence, risk_share: as for trees.
        limits, ledger, insecure_seed: as for trees.
    """

    _kind = RuleList
    file_format = "privopt-rule-list/1"
    _noun = "rule list"

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        max_rules: int | str = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: dict[Any, float] | str | None = None,
        prevalence: float | Sequence[float] | None = None,
        risk_share: float = 0.0,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())
        self.max_rules = max_rules

    @property
    def _max_levels(self) -> int | str:
        return self.max_rules


def _rows(X: Any, labels: NDArray[Any], predicates: Predicates, classes: NDArray[Any]) -> _Rows:
    """Return the records of a table in memory as values of predicates.

    If there are far more records than possible distinct records (``_SHARED``), count distinct records first.
    """
    index = class_indices(labels, classes)
    codes = predicates.coarse.codes(X)
    if _SHARED * len(classes) * predicates.most_rows > len(index):
        return _Rows(predicates.table(codes), index, None)
    counted = CountedRecords.of(predicates.coarse, codes, classes.tolist(), index)
    return _counted_rows(counted, predicates)


def _counted_rows(counted: CountedRecords, predicates: Predicates) -> _Rows:
    """Return counted records as values of predicates.

    Raises:
        InvalidInputError: records that were counted by another schema.
    """
    if counted.schema == predicates.coarse:
        codes: Sequence[IntArray] = counted.codes
    else:
        codes = predicates.coarsened(counted.codes_in(predicates.schema))
    return _Rows(predicates.table(codes), counted.label, counted.counts)

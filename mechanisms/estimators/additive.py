"""A private model whose score is the sum of a scorecard and a decision tree, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.additive_card import AdditiveCard
from privopt.mechanisms.estimators.additive_sql import additive_statement
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator
from privopt.mechanisms.estimators.booking import booked, part_of_release
from privopt.mechanisms.estimators.card import Card
from privopt.mechanisms.estimators.columns import columns_as_fitted
from privopt.mechanisms.estimators.counting import check_number
from privopt.mechanisms.estimators.labels import label_name
from privopt.mechanisms.estimators.numbers import LINES
from privopt.mechanisms.estimators.persons import fit_persons, person_of, plan_of_persons
from privopt.mechanisms.estimators.predictions import ScoredClassifier, by_parts
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.mechanisms.estimators.saved import SavedModel
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.tree import PrivateTreeClassifier, TreePlan
from privopt.mechanisms.estimators.validation import as_table, keep_arguments
from privopt.mechanisms.evaluation.bins import score_law
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.scorecards.card_plan import CardPlan
from privopt.oracles.limits import Limits, check_limits
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import PlanInWords
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

# Largest score of the card. The tree has the scores -1 and 1, so it decides the sign of the sum where the
# card's score is between -1 and 1.
_CARD_REACH = 3.0
# Scores lie between -4 and 4; evaluations count them in bins of a quarter.
_EDGES = tuple(k / 4 for k in range(-15, 16))


@dataclass(frozen=True)
class AdditivePlan(PlanInWords):
    """Plan of a fit, made without data.

    Attributes:
        card, tree: the plans of the two models.
        spend: the privacy spend of the whole fit.
    """

    title: ClassVar[str] = "Plan of a card and a tree"
    card: CardPlan
    tree: TreePlan
    spend: PrivacySpend

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        tree = {f"tree: {name}": fact for name, fact in self.tree.facts.items()}
        detail = {"in detail": self.spend.note} if self.spend.unit == "person" else {}
        return {
            "spend": str(self.spend),
            **detail,
            "card": f"{self.card.plan.name} ({self.card.reason})",
            **tree,
        }


class PrivateAdditiveTreeClassifier(
    BookedEstimator,
    SavedModel,
    ScoredClassifier,
    BaseEstimator,  # type: ignore[misc]
):
    """Sum of a scorecard and a decision tree, each fitted at half of epsilon, for ranking records.

    A card is additive in single columns; a tree expresses interactions. The sum of both ranks better than
    either at the same epsilon, unless epsilon is large, but it is less interpretable. The score is 3 times
    the points of the card, divided by the largest sum of points (in absolute value) that the schema allows,
    plus 1 where the tree predicts the second class, or minus 1 elsewhere.

    Privacy: (epsilon, delta)-differential privacy for card and tree together by basic composition (Dwork and
    Roth 2014, theorem B.1), for data sets that differ by *replacing one record*; n, the schema and the
    classes are public. What ``PrivateHalfspaceClassifier`` and ``PrivateTreeClassifier`` leave outside their
    guarantees is outside this guarantee.

    Args:
        epsilon: privacy budget of card and tree together, > 0 and finite.
        delta: delta of the card, in (0, 1), or "auto" for 1/n^2.
        max_depth: the largest depth of the tree, as for ``PrivateTreeClassifier``.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file. None infers bounds and categories from
            the data, which is *not* private: a ``PrivacyLeakWarning`` says so.
        classes: the two labels, (negative, positive). None infers them from the data, with the same warning.
        class_weight: "balanced", None, or a dict of class weights, for card and tree.
        prevalence: the share of the positive class for "balanced", a *public* number. None: card and tree
            each release it privately, from their own half of epsilon: the card at a twentieth of that half,
            the tree at a twentieth to a fifth (see ``PrivateTreeClassifier``).
        person, records_per_person: as for ``PrivateHalfspaceClassifier``.
        limits: time limit, progress callback and cancellation of each of the two fits.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            if the fit fails. A fit that would overdraw the budget is refused.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the two labels.
        schema_: the schema in use.
        target_: the name of the label column, "" if the labels have no name.
        scorecard_model_, tree_model_: the fitted ``PrivateHalfspaceClassifier`` and
            ``PrivateTreeClassifier``.
        spend_: the privacy spend of the fit.
    """

    epsilon: float
    delta: float | str
    max_depth: int | str
    schema: Schema | dict[str, Any] | str | Path | None
    classes: Sequence[Any] | None
    class_weight: dict[Any, float] | str | None
    prevalence: float | Sequence[float] | None
    limits: Limits | None
    insecure_seed: int | None
    score_edges = _EDGES
    file_format = "privopt-additive-tree/1"

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        max_depth: int | str = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: dict[Any, float] | str | None = "balanced",
        prevalence: float | Sequence[float] | None = None,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit card and tree. Arguments and errors are those of ``PrivateHalfspaceClassifier.fit``."""
        check_limits(self.limits)
        check_epsilon(self.epsilon)
        if person_of(self) is not None:
            return fit_persons(self, X, y)
        facts = PrivateHalfspaceClassifier(
            schema=self.schema, classes=self.classes, ledger=self.ledger, numbers=LINES
        )
        schema, classes, given = facts._given(X, y)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(facts, name):
                setattr(self, name, getattr(facts, name))
        # The plan depends on public facts only.
        card, tree = self._models(schema, tuple(classes.tolist()))
        n, source = given.n_records, NoiseSource(self.insecure_seed)
        planned = self._plan(card, tree, n)
        with booked(
            self.ledger, replace(planned.spend, insecure_seed=source.insecure_seed), given
        ) as records:
            check_number(records.n_records, n)
            with part_of_release():
                card.fit(records)
                tree.fit(records)
        self._set(card, tree)
        self.target_ = label_name(y)
        return self

    @property
    def target_(self) -> str:
        """The name of the label column, "" if the labels have no name."""
        return self.scorecard_model_.target_

    @target_.setter
    def target_(self, name: str) -> None:
        self.scorecard_model_.target_ = self.tree_model_.target_ = name

    def plan(self, n_records: int) -> AdditivePlan:
        """Plan a fit without data, for ``n_records`` records or, with ``person``, for as many persons.

        Raises:
            InvalidInputError: no schema is declared.
            PrivOptError: an argument that ``fit`` would refuse before it reads records.
        """
        if self.schema is None:
            raise InvalidInputError("a plan needs a declared schema: there are no data to infer one from")
        if person_of(self) is not None:
            whole: AdditivePlan = plan_of_persons(self, n_records)
            return whole
        card, tree = self._models(declared_schema(self.schema), self.classes or (0, 1))
        return self._plan(card, tree, n_records)

    def _plan(self, card: PrivateHalfspaceClassifier, tree: PrivateTreeClassifier, n: int) -> AdditivePlan:
        plans = card.plan(n), tree.plan(n)
        assert plans[0].spend is not None
        return AdditivePlan(*plans, self._spend(plans[0].spend, plans[1].spend))

    def _spend(self, card: PrivacySpend, tree: PrivacySpend) -> PrivacySpend:
        """Return the spend of card and tree, by basic composition."""
        notes = f"the card at epsilon = {card.epsilon:.4g}", card.note, f"the tree at {tree.epsilon:.4g}"
        return replace(
            card,
            epsilon=max(self.epsilon, card.epsilon + tree.epsilon),
            notion="pure" if card.notion == "pure" else "approximate",
            level=None,
            mechanism=f"{card.mechanism} and {tree.mechanism}",
            note="; ".join(filter(None, (*notes, tree.note))),
        )

    def _models(
        self, schema: Schema, classes: Sequence[Any]
    ) -> tuple[PrivateHalfspaceClassifier, PrivateTreeClassifier]:
        """Return both models, unfitted, at half of epsilon each.

        Raises:
            InvalidInputError: there are not exactly two classes.
        """
        if len(classes) != 2:
            raise InvalidInputError(
                f"exactly 2 classes are needed, (negative, positive); got {len(classes)}. Only binary "
                "classification is supported. For more there are PrivateTreeClassifier (--model tree) and "
                "PrivateHalfspaceClassifier (--model card)"
            )
        seeds = (None, None) if self.insecure_seed is None else (self.insecure_seed, self.insecure_seed + 1)
        common: dict[str, Any] = {
            "schema": schema,
            "classes": classes,
            "class_weight": self.class_weight,
            "prevalence": self.prevalence,
            "limits": self.limits,
        }
        half = check_epsilon(self.epsilon) / 2
        card = PrivateHalfspaceClassifier(half, delta=self.delta, insecure_seed=seeds[0], **common)
        tree = PrivateTreeClassifier(half, max_depth=self.max_depth, insecure_seed=seeds[1], **common)
        return card, tree

    def _set(self, card: PrivateHalfspaceClassifier, tree: PrivateTreeClassifier) -> Self:
        self.scorecard_model_, self.tree_model_ = card, tree
        self.schema_, self.classes_ = tree.schema_, card.classes_
        self.spend_ = self._spend(card.spend_, tree.spend_)
        return self

    @property
    def card_(self) -> AdditiveCard:
        """Card and tree for printing, with ``to_markdown`` and ``to_dict``."""
        check_is_fitted(self)
        card = self.scorecard_model_.card_
        assert isinstance(card, Card)  # of two classes
        return AdditiveCard(card, self.tree_model_.card_, self._unit, self.spend_)

    @property
    def _unit(self) -> float:
        """The score of one point: the largest sum of points (in absolute value) that the schema allows has
        the score ``_CARD_REACH``.
        """
        card = self.scorecard_model_
        law = score_law(card.schema_, np.ravel(card.coef_))
        largest = max(abs(law.low), abs(law.high))
        return _CARD_REACH / largest if largest else 0.0

    @by_parts
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores between -4 and 4, shape (n,); positive scores predict the second class."""
        check_is_fitted(self)
        X = columns_as_fitted(self, as_table(X))
        points = self.scorecard_model_.decision_function(X)
        return np.asarray(self._unit * points + self.tree_model_._leaf_scores()[self.tree_model_.apply(X)])

    def to_sql(self, table: str = "records", columns: Sequence[str] = ()) -> str:
        """Return a SELECT statement that adds score and prediction to all rows.

        It agrees with ``predict``; the added values are NULL for records that ``predict`` refuses.

        Args:
            table: the name of the table.
            columns: the names of all columns of the table. A number is appended to the name of an added
                column that is among them: ``prediction_1``. If they are not given, only the names of the
                schema are avoided: the table may have an undeclared column ``prediction`` as well, and a
                query for that name then returns the table's own column.

        Raises:
            InvalidInputError: as ``PrivateHalfspaceClassifier.to_sql``.
        """
        check_is_fitted(self)
        tree, card = self.tree_model_, self.scorecard_model_
        return additive_statement(
            tree.predicates_,
            card.schema_,
            card.coef_[0].tolist(),
            self._unit,
            tree.branches_,
            tree._leaf_scores().tolist(),
            self.classes_.tolist(),
            table,
            columns,
        )

    @by_parts
    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, shape (n,), by the sign of ``decision_function``."""
        check_is_fitted(self)
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for risks, with the reason and the remedy."""
        if name in ("predict_proba", "risks_at"):
            raise AttributeError(
                f"an additive model ranks records by a score and has no probabilities (risks), so no {name}. "
                "To do: decision_function for ranks; for risks a PrivateTreeClassifier or a "
                "PrivateHalfspaceClassifier with risk_share=0.1 (--model tree or card, --risk-share 0.1)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a saved model."""
        check_is_fitted(self)
        return {
            "format": self.file_format,
            "spend": self.spend_.to_dict(),
            "card": self.scorecard_model_.to_dict(),
            "tree": self.tree_model_.to_dict(),
        }

    @classmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        card = PrivateHalfspaceClassifier.from_dict(model["card"], "the card")
        tree = PrivateTreeClassifier.from_dict(model["tree"], "the tree")
        if not tree.schema_.refines(card.schema_) or card.classes_.tolist() != tree.classes_.tolist():
            raise InvalidInputError("card and tree have different schemas or classes")
        spend = PrivacySpend.from_dict(model["spend"])
        fitted = cls(spend.epsilon, schema=tree.schema_, classes=tuple(card.classes_.tolist()))
        fitted._set(card, tree)
        return fitted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # The noise is not reproducible, and on few records it dominates.
        tags.non_deterministic = True
        tags.classifier_tags.poor_score = True
        return tags

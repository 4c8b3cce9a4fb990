"""Private best subset selection as a feature selector.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.discrete.subset import SubsetPlan, support_mask
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator
from privopt.mechanisms.estimators.booking import booked
from privopt.mechanisms.estimators.column_choice import checked_norm, declared_facts, unread_numbers
from privopt.mechanisms.estimators.validation import keep_arguments
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.usefulness import warn_if_noise
from privopt.oracles.limits import Limits, check_limits
from privopt.problems.convex.risk import RowNorm

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger


class PrivateSubsetSelector(SelectorMixin, BookedEstimator, BaseEstimator):  # type: ignore[misc]
    """Best subset selection for linear regression under pure differential privacy.

    Draws s columns by the exponential mechanism: the smaller the least-squares loss of a subset's best linear
    model with bounded weights, the more likely is the subset. The draw from all subsets is exact, by branch
    and bound, without screening or heuristics.

    Privacy: epsilon-differential privacy (pure) for the chosen columns, for data sets that differ by
    *replacing one record*; n, the number of columns and every parameter are public. Outside the guarantee:
    running time, whether data were refused (NaN, or columns whose scales differ too much to certify a loss),
    and whether a draw finished within its limits.

    Args:
        n_features_to_select: s, the number of columns to choose, 1 to 40.
        epsilon: > 0 and finite.
        data_norm: bound R on the columns ("linf") or on the rows ("l2"). None infers it from the data, which
            is *not* private and emits a ``PrivacyLeakWarning``.
        norm: "linf": every number is clipped to [-R, R]. "l2": rows longer than R are scaled down to norm R.
        label_range: (low, high): labels are clipped to this range. None infers it, with the same warning.
        fit_intercept: whether models have an intercept; labels are then centred at the middle of the range.
        limits: time limit, progress callback and cancellation.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read.
        insecure_seed: reproducible draws for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        support_: the chosen columns as a mask, shape (p,).
        spend_: the privacy spend.
        n_features_in_, feature_names_in_: the columns.

    The weights b of models are bounded so that predictions stay within the label range: |b|_2 is at most L /
    M, where L is half the width of the range (without an intercept, the largest absolute label), and M is the
    largest possible norm of s columns of a row. Choose units in which informative columns have weights of
    similar size.
    """

    support_: NDArray[np.bool_]

    def __init__(
        self,
        n_features_to_select: int = 1,
        epsilon: float = 1.0,
        *,
        data_norm: float | None = None,
        norm: RowNorm = "linf",
        label_range: tuple[float, float] | None = None,
        fit_intercept: bool = True,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the columns.

        Args:
            X: numbers, shape (n, p): a dense array or a data frame.
            y: labels, shape (n,).

        Raises:
            InvalidInputError: invalid data (a ``ValueError``); nothing was released.
            PrivacyParameterError: epsilon out of range.
            BudgetExceededError: the ledger refused the spend; no record was read.
            OracleError: a limit was reached; nothing was released, and the reserved spend stays spent.
        """
        check_limits(self.limits)
        norm = checked_norm(self.norm)
        given = unread_numbers(self, X, y)
        facts = declared_facts(self, given, norm, self.data_norm)
        assert given.n_columns is not None
        plan = SubsetPlan.plan(
            given.n_columns, self.n_features_to_select, facts.bounds, epsilon=check_epsilon(self.epsilon)
        )
        plan.check_records(given.n_records)
        warn_if_noise(plan.noise_to_signal(given.n_records))
        source = NoiseSource(self.insecure_seed)
        spend = spent(plan.choice, source)
        with booked(self.ledger, spend, given) as (features, labels):
            release = plan.release(features, labels - facts.centre, source, self.limits)
        self.support_, self.spend_ = support_mask(release), spend
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = True  # randomness is from the operating system, so two fits differ
        return tags

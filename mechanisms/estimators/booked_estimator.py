"""Base class of estimators that book their fits in a ledger or in the surrounding budgets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from privopt.mechanisms.errors import BudgetExceededError, PlanMismatchError
from privopt.mechanisms.estimators.booking import (
    Unread,
    charged,
    is_part,
    ledgers_of,
    part_of_release,
    shape_of,
)
from privopt.mechanisms.estimators.cross_validation import FitsAhead, fits_ahead
from privopt.mechanisms.estimators.repeats import RepeatedReleaseWarning
from privopt.mechanisms.privacy.ambient import CarriedBudgets
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.errors import PrivOptError


class BookedEstimator:
    """Base of estimators with a ``ledger``; passwords in the URL of a ledger are neither printed nor pickled.

    If an unfitted estimator without a ledger is pickled within ``budget`` blocks, the addresses of these
    budgets are stored with it: if another process fits the estimator, the fit is booked in the same budgets.
    With a fitted estimator no address is stored.

    Attributes:
        person: the column of persons; None if each person has one record.
        records_per_person: the number of records of each person that are used.
    """

    person: str | None = None
    records_per_person: int | str = 1

    @property
    def ledger(self) -> Any:
        """The ledger argument; a URL with a password becomes an ``Address``, which hides the password."""
        return _without_password(self.__dict__.get("ledger"))

    @ledger.setter
    def ledger(self, given: Any) -> None:
        self.__dict__["ledger"] = _without_password(given)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; without a ledger it includes the surrounding budgets."""
        found: Any = super().__getstate__()
        state: dict[str, Any] = dict(found or self.__dict__)
        fitted = any(name.endswith("_") and not name.startswith("_") for name in state)
        if state.get("ledger") is None:
            state["ledger"] = CarriedBudgets.around(fitted=fitted)
        elif isinstance(state["ledger"], CarriedBudgets) and fitted:
            state["ledger"] = replace(state["ledger"], addresses=())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state; in the process that pickled it, the current budgets replace the stored ones."""
        carried = state.get("ledger")
        if isinstance(carried, CarriedBudgets) and carried.is_here:
            state = {**state, "ledger": None}
        self.__dict__.update(state)

    def __sklearn_clone__(self) -> Any:
        """Clone the estimator. Cross-validations and searches of scikit-learn clone before they fit, so they
        are checked here.
        """
        if not is_part():
            check_fits_ahead(self)
        with part_of_release():  # estimators inside this one need no check
            return super().__sklearn_clone__()  # type: ignore[misc]


def _without_password(ledger: Any) -> Any:
    if not isinstance(ledger, str) or "://" not in ledger:
        return ledger
    from privopt.mechanisms.privacy.ledger.place import Address

    address = Address.of(ledger)
    return address if address.secrets else ledger


class _PlannedError(BaseException):
    """Ends a fit before it reads records; no subclass of Exception, so that fits do not catch it."""

    def __init__(self, spend: PrivacySpend) -> None:
        self.spend = spend


def spend_of_fit(model: BookedEstimator, given: Unread[Any]) -> PrivacySpend:
    """Return the spend of a fit; the fit is started, and stopped where it would read records.

    Raises:
        PrivOptError: an error of the fit before it reads records.
    """

    def stop(spend: PrivacySpend) -> None:
        raise _PlannedError(spend)

    try:
        with charged(stop):
            model.fit(given)  # type: ignore[attr-defined]
    except _PlannedError as planned:
        return planned.spend
    raise PlanMismatchError(f"{type(model).__name__}.fit made no plan before it read records")


def never_read() -> Any:
    """Stand in for the function that reads records where a plan is made: a plan reads none."""
    raise AssertionError("a plan reads no records")


def check_fits_ahead(model: BookedEstimator) -> None:
    """Refuse a cross-validation or search of scikit-learn whose fits together would overdraw the budget.

    Without a budget, warn and state the sum of their spends. Fits whose spend cannot be planned are left out,
    so a call is refused only if it is certain to overdraw the budget.

    Raises:
        BudgetExceededError: the fits would overdraw the budget; nothing was run.
    """
    ahead = fits_ahead(model)
    spends = [] if ahead is None else _spends(model, ahead)
    if ahead is None or len(spends) < 2:
        return
    books = ledgers_of(model.ledger)
    for book in books:
        if (why := book.shortfall(*spends)) is not None:
            raise BudgetExceededError(
                f"{ahead.caller} makes {len(spends)} fits, which would overdraw {book}: {why}. Nothing was "
                "run"
            )
    if not books:
        epsilon, delta = sum(spend.epsilon for spend in spends), sum(spend.delta for spend in spends)
        warnings.warn(
            f"{ahead.caller} makes {len(spends)} fits: if these share records, their privacy adds up to "
            f"epsilon = {epsilon:g}, delta = {delta:.3g}; scores, choices and calibrators are not private. "
            "To do: PrivateSearchCV, or evaluate on records that were held out",
            RepeatedReleaseWarning,
            stacklevel=4,
        )


def _spends(model: BookedEstimator, ahead: FitsAhead) -> Sequence[PrivacySpend]:
    """Return the known spends of the fits ahead; fits whose spend cannot be planned are left out."""
    shape = shape_of(ahead.table)
    if not shape:
        return []
    given: Unread[Any] = Unread(shape[0], never_read, shape[1] if len(shape) == 2 else None)
    known: dict[str, PrivacySpend | None] = {}
    for params in ahead.params:
        if str(params) not in known:
            known[str(params)] = _spend(model, params, given)
    found = [spend for params in ahead.params if (spend := known[str(params)]) is not None]
    if ahead.refit and found and len(found) == len(ahead.params):
        found.append(min(found, key=lambda spend: spend.epsilon))
    return found


def _spend(model: BookedEstimator, params: dict[str, Any], given: Unread[Any]) -> PrivacySpend | None:
    """Return the spend of a fit with these parameters; None if it cannot be planned or guarantees nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            arguments = model.get_params(deep=False) | params  # type: ignore[attr-defined]
            spend = spend_of_fit(type(model)(**arguments), given)
        except (PrivOptError, TypeError, ValueError):  # the fit will raise the error again
            return None
    return spend if spend.adds_up else None

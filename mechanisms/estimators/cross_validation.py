"""Number of fits that a cross-validation, search or calibration of scikit-learn is about to make.

Each of these fits is booked separately. If the budget refused a fit after others were booked,
``error_score`` would turn the refusal into NaN. scikit-learn does not tell an estimator how many fits there
will be, so this module reads the number from the stack frames of the call that clones the estimator. This
is a convenience: if the call is not recognised, each fit is still refused when it would overdraw the budget.
"""

from __future__ import annotations

import operator
import sys
import weakref
from dataclasses import dataclass
from types import FrameType, GeneratorType
from typing import Any

_SEARCHES, _VALIDATIONS = "sklearn.model_selection._search", "sklearn.model_selection._validation"
_CALIBRATIONS = "sklearn.calibration"
_THRESHOLDS = "sklearn.model_selection._classification_threshold"
_LIST_ITERATOR: type[Any] = type(iter(list[Any]()))
# Generators of folds whose cross-validations have started.
_SEEN: weakref.WeakSet[GeneratorType[Any, Any, Any]] = weakref.WeakSet()


@dataclass(frozen=True)
class FitsAhead:
    """Fits that a call of scikit-learn is about to make.

    Attributes:
        caller: the name of the call.
        params: parameters of the estimator in each fit.
        table: the records.
        refit: whether the best candidate is fitted once more, on all records.
    """

    caller: str
    params: list[dict[str, Any]]
    table: Any
    refit: bool = False


def fits_ahead(estimator: Any) -> FitsAhead | None:
    """Return the fits of the innermost cross-validation or search that is cloning the estimator.

    Return None outside of these calls, or if the number of fits is unknown.
    """
    if not {_VALIDATIONS, _CALIBRATIONS, _THRESHOLDS} & set(sys.modules):
        return None
    frame: FrameType | None = sys._getframe(1)
    splits = None  # the frame that iterates over the folds
    while frame is not None:
        module, name = frame.f_globals.get("__name__"), frame.f_code.co_name
        by_folds = module in (_VALIDATIONS, _CALIBRATIONS)
        if by_folds and name == "<genexpr>":
            splits = frame
        elif by_folds and splits is not None and splits.f_code in frame.f_code.co_consts:
            return _of_validation(frame, splits)
        elif module == _SEARCHES and name == "fit":
            return _of_search(frame, estimator)
        elif module == _THRESHOLDS and name in ("_fit", "<genexpr>"):
            return _of_threshold(frame) if name == "_fit" else None
        frame = frame.f_back
    return None


def _of_validation(call: FrameType, splits: FrameType) -> FitsAhead | None:
    """Count the folds of ``cross_validate``, ``cross_val_predict`` or ``CalibratedClassifierCV.fit``.

    The folds are counted before the first fit only; later the result has no fits.
    """
    folds = splits.f_locals.get(".0")
    number = 0
    if isinstance(folds, _LIST_ITERATOR):
        everything: Any = folds.__reduce__()[1][0]  # the list of an iterator is found by pickling it
        number = len(everything) if operator.length_hint(folds) + 1 == len(everything) else 0
    elif isinstance(folds, GeneratorType) and folds not in _SEEN:
        _SEEN.add(folds)
        given = call.f_locals
        cv = given.get("cv")
        number = 0 if cv is None else cv.get_n_splits(given.get("X"), given.get("y"), given.get("groups"))
    return FitsAhead(call.f_code.co_qualname, [{}] * number, call.f_locals.get("X"))


def _of_threshold(call: FrameType) -> FitsAhead | None:
    """Count the fits of ``TunedThresholdClassifierCV``: one for each fold, and one for the final model."""
    cv: Any = call.f_locals.get("cv")
    number = cv.get_n_splits() + 1 if hasattr(cv, "get_n_splits") else 0
    return FitsAhead("TunedThresholdClassifierCV.fit", [{}] * number, call.f_locals.get("X"))


def _of_search(call: FrameType, estimator: Any) -> FitsAhead | None:
    """Count the fits of a grid or randomised search that clones ``estimator`` for its first fit."""
    search: Any = call.f_locals.get("self")
    step = _step_of(search, estimator)
    splits = call.f_locals.get("n_splits", getattr(search, "n_splits_", None))
    if step is None or not isinstance(splits, int):
        return None
    candidates = _candidates(search)
    if any(name == step.removesuffix("__") for params in candidates for name in params):
        return None  # candidates replace the estimator
    fits = [_own(params, step) for params in candidates for _ in range(splits)]
    refit = bool(search.refit)
    return FitsAhead(f"{type(search).__name__}.fit", fits, call.f_locals.get("X"), refit=refit)


def _candidates(search: Any) -> list[dict[str, Any]]:
    """Return the parameters of all candidates; an empty list if their budgets or number are unknown."""
    from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, RandomizedSearchCV

    if isinstance(search, GridSearchCV):
        return list(ParameterGrid(search.param_grid))
    if not isinstance(search, RandomizedSearchCV):
        return []
    given = search.param_distributions
    names = {name for part in ([given] if isinstance(given, dict) else given) for name in part}
    if any(name.endswith(("epsilon", "delta", "mu")) for name in names):
        return []
    return [{}] * len(ParameterSampler(given, search.n_iter))


def _step_of(search: Any, estimator: Any) -> str | None:
    """Return the prefix of the estimator's parameters in a search.

    The search is over the estimator or over a pipeline that ends with it; otherwise return None.
    """
    whole = getattr(search, "estimator", None)
    if whole is estimator:
        return ""
    steps = {} if whole is None else whole.get_params(deep=True)
    return next((f"{name}__" for name, step in steps.items() if step is estimator), None)


def _own(params: dict[str, Any], step: str) -> dict[str, Any]:
    return {name.removeprefix(step): value for name, value in params.items() if name.startswith(step)}

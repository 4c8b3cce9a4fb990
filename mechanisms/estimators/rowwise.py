"""Scores of models from other packages: a fresh copy for every table, and a test on synthetic rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit

from privopt.mechanisms.estimators.labels import class_indices
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.tables.made_up import rows_beyond, synthetic_rows
from privopt.problems.tables.schema import Schema

_ROWS, _BEYOND = 64, 32
_LARGE = (300, 4096)  # sizes of batches that repeat rows
_MOST_CELLS = 1 << 20  # limit on the size of a large batch
# Rounding may depend on the number of rows, and scores may be in single precision.
_TOLERANCE = 1e-5
# Limits log odds of probabilities to about 8, where the bins of scores end for models without a schema.
_LEAST_RISK = 3e-4

Scores = NDArray[np.float64]


class Check(NamedTuple):
    """Result of the test on synthetic rows: whether scores could be compared, and a description."""

    made: bool
    words: str


def is_own(model: object) -> bool:
    """Return whether the model's class is from this package and no method was replaced in the object."""
    replaced = any(callable(getattr(type(model), name, None)) for name in getattr(model, "__dict__", {}))
    return _defined_here(model) and not replaced


def _defined_here(model: object) -> bool:
    return type(model).__module__.partition(".")[0] == "privopt"


Output = Literal["predict_proba", "decision_function", "predict"]


def output_of(model: Any) -> Output:
    """Return the method that scores rows.

    With two classes it is ``predict_proba`` of a model from another package, if there is one, or else
    ``decision_function``; with more classes, or none, it is ``predict``.
    """
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) != 2:
        return "predict"
    if hasattr(model, "predict_proba") and not _defined_here(model):
        return "predict_proba"
    return "decision_function"


@dataclass(frozen=True)
class FreshModel:
    """A model from another package, pickled before records are read; a new copy scores each table or part.

    Hence what a copy remembers of its records cannot affect scores of other parts or tables, or later
    answers. The rows to score are copied as well, so that a model that modifies its rows changes neither
    another model's rows nor the caller's. Class attributes, files and variables of imported modules are not
    copied.

    Attributes:
        pickled: the model.
        output: the method that gives scores.
    """

    pickled: bytes
    output: Output = "decision_function"

    @classmethod
    def of(cls, model: Any) -> Self:
        """Pickle a model, and check that it can be copied.

        Raises:
            InvalidInputError: the model cannot be pickled.
        """
        try:
            made = cls(cloudpickle.dumps(model), output_of(model))
            made.copy()
        except Exception as error:  # methods of the model may raise anything
            raise InvalidInputError(
                f"{type(model).__name__} cannot be pickled ({type(error).__name__}), and evaluate scores "
                "records with copies of a model, which are discarded with what they have seen. To do: make "
                f"locks, connections and open files inside {output_of(model)}"
            ) from error
        return made

    def copy(self) -> Any:
        return cloudpickle.loads(self.pickled)

    def decision_function(self, rows: Any) -> Any:
        """Return scores from a new copy of the model; probabilities become log odds within bounds."""
        scores = self._asked(lambda model: scores_of(model, self.output, deepcopy(rows)))
        if self.output == "predict_proba":
            return logit(np.clip(scores, _LEAST_RISK, 1 - _LEAST_RISK))
        return scores

    def predict(self, rows: Any) -> Any:
        """Return predictions from a new copy of the model."""
        return self._asked(lambda model: one_a_row(model, model.predict(deepcopy(rows)), "predict", rows))

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """Call ``ask``, which computes scores or predictions, with a new copy of the model.

        Raises:
            InvalidInputError: the model raised an error; its message is left out, as it may quote a record.
        """
        model = self.copy()
        try:
            return ask(model)
        except PrivOptError:
            raise
        except Exception as error:
            raise InvalidInputError(
                f"{type(model).__name__} raised {type(error).__name__} on the records. Its message may quote "
                "them and is left out; model.predict(X), which is not private, shows it"
            ) from None


def scores_of(model: Any, output: Output, rows: Any) -> Scores:
    """Return the output of a method for rows, shape (n,): scores, probabilities of the second class,
    predicted numbers, or indices of predicted classes.

    Raises:
        InvalidInputError: another shape.
    """
    found = one_a_row(model, getattr(model, output)(rows), output, rows)
    if output == "predict_proba":
        found = found[:, 1]
    elif output == "predict" and getattr(model, "classes_", None) is not None:
        found = class_indices(found, np.asarray(model.classes_))
    return np.asarray(found, dtype=np.float64)


def one_a_row(model: Any, found: Any, output: Output, rows: Any) -> NDArray[Any]:
    """Return the output of a method after a check: one number for each row, or two from ``predict_proba``.

    A single number would be broadcast to all rows, and one record could then change every count.

    Raises:
        InvalidInputError: another shape.
    """
    values, n = np.asarray(found), rows.shape[0] if hasattr(rows, "shape") else len(rows)
    if values.shape != ((n, 2) if output == "predict_proba" else (n,)):
        raise InvalidInputError(
            f"{output} of {type(model).__name__} gave scores of shape {values.shape} for {n} rows"
        )
    return values


def check_rowwise_scores(model: Any, schema: Schema | None, output: Output = "decision_function") -> Check:
    """Refuse a model whose scores of synthetic rows depend on order, on other rows or on earlier calls.

    The rows are drawn from the schema, or without a schema are normal variables of several scales; they are
    never records. Each row is scored alone first; then rows are scored together, in another order, in halves
    and smaller groups, with duplicates, and in batches of thousands, and finally one row alone again. All
    this is repeated with added rows that have a cell which the schema accepts but does not declare; rows that
    the model refuses are left out.

    Raises:
        InvalidInputError: a score depends on more than its row, or has another shape.
    """
    made, of = _rows(model, schema), "of the schema" if schema is not None else "without a schema"
    if made is None:
        return Check(False, "not checked, as no schema describes the rows")
    rows, total = made
    try:
        alone = np.concatenate([_score(model, output, rows, [i]) for i in range(_ROWS)])
    except PrivOptError:
        raise
    except Exception as error:  # any error of the model on unsuitable rows
        return Check(False, f"not checked, as the model raised {type(error).__name__} on synthetic rows {of}")
    _compare(model, output, rows, dict(enumerate(alone)))
    beyond = {}
    for i in range(_ROWS, total):
        with suppress(Exception):  # the model may refuse this row
            beyond[i] = float(_score(model, output, rows, [i])[0])
    if beyond:
        _compare(model, output, rows, dict(enumerate(alone)) | beyond)
    also = f", and of {len(beyond)} with an undeclared cell," if beyond else ""
    return Check(
        True, f"those of {_ROWS} synthetic rows {of}{also} did not change with the other rows of a batch"
    )


def _compare(
    model: Any, output: Output, rows: Callable[[list[int]], Any], alone: Mapping[int, float]
) -> None:
    """Raise InvalidInputError if the scores of rows in some batch differ from their scores ``alone``."""
    known = np.array([alone.get(i, np.nan) for i in range(max(alone) + 1)])
    most = max(_LARGE[0], _MOST_CELLS // max(1, rows([0]).shape[1]))
    for which in _batches(sorted(alone), most):
        found = _score(model, output, rows, which)
        if not np.allclose(
            found, known[which], rtol=_TOLERANCE, atol=_TOLERANCE * _size(known), equal_nan=True
        ):
            raise InvalidInputError(
                f"the scores of {type(model).__name__} depend on which rows are scored together, or before: "
                "synthetic rows got other scores when other rows were scored with them. One record could "
                "then move every count, and evaluate promises that it moves two. To do: let transformers use "
                "only what they learned in fit, not the rows that are being scored"
            )


def _batches(every: list[int], most: int) -> list[list[int]]:
    n = len(every)
    order = np.random.default_rng(1).permutation(every)
    first, second = order[: n // 2], order[n // 2 :]
    some = np.random.default_rng(2).permutation(every)[: n // 4]
    large = [np.random.default_rng(3).choice(every, min(size, most)) for size in _LARGE]
    groups = (order, first, second, some, *large)
    return [every, *(group.tolist() for group in groups), [*every, *every[:8]], every[:1]]


def _size(scores: Scores) -> float:
    return float(np.max(np.abs(scores[np.isfinite(scores)]), initial=0.0))


def _score(model: Any, output: Output, rows: Callable[[list[int]], Any], which: list[int]) -> Scores:
    scores = scores_of(model, output, rows(which))
    if scores.shape != (len(which),):
        raise InvalidInputError(f"{output} gave scores of shape {scores.shape} for {len(which)} rows")
    return scores


def _rows(model: Any, schema: Schema | None) -> tuple[Callable[[list[int]], Any], int] | None:
    """Return a function from row numbers to synthetic rows, and the number of rows.

    The first ``_ROWS`` rows have declared cells only. Return None if the number of columns is unknown.
    """
    if schema is not None:
        parts = [synthetic_rows(schema, _ROWS), rows_beyond(schema, _BEYOND)]
        table = pd.concat([part for part in parts if len(part)], ignore_index=True).copy()
        return partial(_taken, table), len(table)
    width = getattr(model, "n_features_in_", None)
    if width is None:
        return None
    rng, names = np.random.default_rng(0), getattr(model, "feature_names_in_", None)
    numbers = rng.standard_normal((_ROWS, int(width))) * 10.0 ** rng.integers(-1, 3, (_ROWS, 1))
    if names is None:
        return lambda which: numbers[which], _ROWS
    return lambda which: pd.DataFrame(numbers[which], columns=list(names)), _ROWS


def _taken(table: pd.DataFrame, which: list[int]) -> pd.DataFrame:
    """Return rows of a table; a single row by a slice, because indexing a wide table by a list is slow."""
    places = slice(which[0], which[0] + 1) if len(which) == 1 else which
    return table.iloc[places].reset_index(drop=True)

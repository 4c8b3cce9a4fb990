"""Weights of records, clipped to a public bound; neighbours differ in one record and its weight."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.estimators.booking import Unread, shape_of
from privopt.mechanisms.estimators.labels import check_real_kind
from privopt.mechanisms.estimators.prepared import Prepared
from privopt.mechanisms.privacy.parameters import check_positive
from privopt.problems.arrays import as_reals, check_unmasked
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.sources import is_engine_table

Floats = NDArray[np.float64]


def refuse_weights(given: object, argument: str, name: str = "sample_weight") -> None:
    """Raise InvalidInputError if weights are given, which are not supported together with ``argument``."""
    if given is not None:
        raise InvalidInputError(f"{name} is not taken together with {argument}: leave one of them out")


def with_weights(
    given: Unread[Parts], sample_weight: ArrayLike, max_weight: float | None, table: Any
) -> Unread[Parts]:
    """Return unread records with their weights, which are read together with the records.

    Args:
        given: the records, one part of type ``Prepared``.
        sample_weight: shape (n,).
        max_weight: the declared bound.
        table: the table, or False if it is not in memory.

    Raises:
        InvalidInputError: no declared bound, a table that is not in memory, or the wrong number of weights.
    """
    bound = check_weights(sample_weight, max_weight, given.n_records, table)
    return given.then(lambda parts: parts.made(partial(_carrying, given=sample_weight, bound=bound)))


def check_weights(sample_weight: ArrayLike, max_weight: float | None, n_records: int, table: Any) -> float:
    """Return the declared bound after checks that do not read the weights.

    Raises:
        InvalidInputError: as ``with_weights``.
    """
    if max_weight is None:
        raise InvalidInputError(
            "sample_weight needs max_weight, a public bound on weights (a weight above it is clipped): "
            "declare what is publicly known, not the largest weight of these records"
        )
    bound = check_positive(max_weight, "max_weight")
    check_unmasked(sample_weight, "sample_weight")
    check_real_kind(sample_weight, "sample_weight")
    if table is False or is_engine_table(table) or isinstance(table, CountedRecords):
        raise InvalidInputError("sample_weight is for a table in memory: an array or a data frame")
    if (shape := shape_of(sample_weight)) != (n_records,):
        raise InvalidInputError(f"sample_weight has the shape {shape}; X has {n_records} rows")
    return bound


def whole_weights(given: ArrayLike, bound: int) -> NDArray[np.int64]:
    """Return weights rounded to whole numbers from 0 to the bound.

    Raises:
        InvalidInputError: weights that are not numbers.
    """
    return np.rint(bounded_weights(given, bound) * bound).astype(np.int64)


def bounded_weights(given: ArrayLike, bound: float) -> Floats:
    """Return weights clipped to [0, bound], divided by the bound.

    Raises:
        InvalidInputError: weights that are not numbers.
    """
    weights = as_reals(given, "sample_weight").astype(np.float64)
    if np.any(np.isnan(weights)):
        raise InvalidInputError("sample_weight holds NaN: a weight is a number")
    return np.asarray(np.clip(weights, 0, bound) / bound)


def _carrying(part: Prepared, given: ArrayLike, bound: float) -> Prepared:
    return part._replace(weights=bounded_weights(given, bound))

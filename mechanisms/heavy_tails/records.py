"""Checks of records against the plan of a mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.errors import PlanMismatchError
from privopt.problems.arrays import as_reals


def planned_records(X: ArrayLike, n_records: int, dimension: int) -> NDArray[np.floating]:
    """Return the records as a matrix of the planned shape.

    Raises:
        PlanMismatchError: another shape.
        InvalidInputError: values that are not numbers.
    """
    rows = as_reals(X, "records of shape (n, d)")
    if rows.shape != (n_records, dimension):
        raise PlanMismatchError(
            f"this plan was made for {n_records} records of {dimension} numbers, the data have shape "
            f"{rows.shape}: plan again for it"
        )
    return rows

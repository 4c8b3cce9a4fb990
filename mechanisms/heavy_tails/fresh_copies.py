"""Copies of an estimator for every call, made before the data are seen, so that calls share no state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from privopt.problems.arguments import check_type
from privopt.problems.convex.regularizers import Vector
from privopt.problems.errors import InvalidInputError

# (rows, labels) -> the estimate, shape (dimension,).
Estimator = Callable[[Vector, Vector], Vector]


@dataclass(frozen=True)
class FreshCopies:
    """An estimator, pickled before it sees data and unpickled anew for every call.

    A copy includes what the estimator holds: attributes, fitted models, generators, variables of closures.
    It has the state of the estimator at the call of ``of``, and is discarded after its answer. The global
    random states of Python and NumPy, which many estimators use, are seeded for each call and restored.

    A copy cannot include what lies outside the estimator: variables and default arguments of an imported
    module, class attributes, files, random states of other libraries. An estimator must not write there.
    """

    pickled: bytes

    @classmethod
    def of(cls, estimator: Estimator) -> Self:
        """Pickle an estimator, and check that it can be copied.

        Raises:
            InvalidTypeError: it is not callable.
            InvalidInputError: it cannot be pickled.
        """
        check_type(estimator, Callable, "the estimator must be a function of (rows, labels), or a Loss")
        try:
            made = cls(cloudpickle.dumps(estimator))
            cloudpickle.loads(made.pickled)
        except Exception as error:  # its own methods may raise anything
            raise InvalidInputError(
                "the estimator cannot be pickled, and every subset needs a copy of it made beforehand "
                f"({type(error).__name__}: {error}). To do: make locks, connections and open files inside "
                "its __call__"
            ) from error
        return made

    def __call__(self, seed: int, rows: Vector, labels: Vector) -> object:
        """Return the answer of a new copy."""
        with _random_states(seed):
            return cloudpickle.loads(self.pickled)(rows, labels)


@contextmanager
def _random_states(seed: int) -> Iterator[None]:
    """Seed the global generators of Python and NumPy, and restore them on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002

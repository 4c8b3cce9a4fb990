"""Fresh copies of an estimator for every call, made before data are seen: calls share no state."""

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
    """An estimator as it was before data, unpickled anew for every call.

    A copy takes what the estimator holds: attributes, fitted models, generators, variables of closures. It
    starts from the state at the time of the call to ``of``, and is thrown away after its answer. The global
    random states of Python and NumPy, which many estimators draw from, are set from a seed for each call and
    put back.

    No copy can hold what lies outside the estimator: variables and default arguments of an imported module,
    class attributes, files, random states of other libraries. An estimator must not write there.
    """

    pickled: bytes

    @classmethod
    def of(cls, estimator: Estimator) -> Self:
        """Pickle an estimator, and see that a copy can be made.

        Raises:
            InvalidTypeError: it is not callable.
            InvalidInputError: it cannot be pickled.
        """
        check_type(estimator, Callable, "the estimator must be a function of (rows, labels), or a Loss")
        try:
            made = cls(cloudpickle.dumps(estimator))
            cloudpickle.loads(made.pickled)
        except Exception as error:  # whatever its own methods raise
            raise InvalidInputError(
                "the estimator cannot be pickled, and every subset needs a copy of it made before data "
                f"({type(error).__name__}: {error}). To do: make locks, connections and open files inside "
                "its __call__"
            ) from error
        return made

    def __call__(self, seed: int, rows: Vector, labels: Vector) -> object:
        """The answer of a fresh copy."""
        with _random_states(seed):
            return cloudpickle.loads(self.pickled)(rows, labels)


@contextmanager
def _random_states(seed: int) -> Iterator[None]:
    """The global generators of Python and NumPy, seeded inside and put back after."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002

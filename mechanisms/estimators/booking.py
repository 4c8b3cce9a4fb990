"""The order of a fit: what is public, then the booking, then the records. Nothing else reads them for a fit.

What is decided before the booking costs nothing, so it may depend on public facts alone: arguments, the kind
and shape of X and y, the names of columns, a declared schema and classes, how many records there are. Cells
and labels are read after it, and what is refused because of them stays spent: whoever could ask for free,
with one declaration after the other, would learn any record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from privopt.mechanisms.errors import LedgerUnavailableError
from privopt.mechanisms.estimators.labels import check_given
from privopt.mechanisms.estimators.validation import without_values
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import told
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Content = TypeVar("Content")
Made = TypeVar("Made")

_STAYS = "counts as spent in"


@dataclass(frozen=True, eq=False)
class Unread(Generic[Content]):
    """Records that nobody has looked at. ``booked`` reads them, once the release is paid for.

    Attributes:
        n_records: how many there are, public.
        n_columns: of how many columns, public; None where a schema says so.
    """

    n_records: int
    _read: Callable[[], Content]
    n_columns: int | None = None

    def then(self, make: Callable[[Content], Made]) -> Unread[Made]:
        """The same records, and what ``make`` makes of them once they are read."""
        return Unread(self.n_records, lambda: make(self._read()), self.n_columns)


@contextmanager
def booked(
    ledger: Ledger | str | Path | None, spend: PrivacySpend, records: Unread[Content]
) -> Iterator[Content]:
    """Reserve the spend for as long as the release runs, if there is a ledger; then read the records.

    Whatever goes wrong after that carries a note: the reservation stays.

    Raises:
        BudgetExceededError: the ledger refused; nothing was read.
    """
    if ledger is None:
        yield records._read()
        return
    from privopt.mechanisms.privacy.ledger import Ledger  # whose library for databases most fits do not need

    book, reserved = ledger if isinstance(ledger, Ledger) else Ledger(ledger), False
    try:
        with book.spending(spend):
            reserved = True
            yield records._read()
    except BaseException as error:
        if reserved:
            error.add_note(
                f"The reserved epsilon = {spend.epsilon:g}, delta = {spend.delta:.3g} {_STAYS} "
                f"{book}: the run had started, and how it ended may depend on the records"
            )
        elif isinstance(error, LedgerUnavailableError):
            error.add_note(f"If `privopt budget show {book}` lists it, it {_STAYS} {book}")
        raise


def is_booked(error: BaseException) -> bool:
    """Whether an error of a fit says that its spend was booked, or may have been."""
    return any(_STAYS in note for note in getattr(error, "__notes__", ()))


def read_off(ledger: object, records: Unread[Content], undeclared: Sequence[str]) -> Content:
    """The records, read before any booking because facts that should be public are to be read off them.

    Raises:
        InvalidInputError: there is a ledger, which books releases before records are read.
    """
    if ledger is not None:
        raise InvalidInputError(
            f"declare {' and '.join(undeclared)}: with a ledger nothing is read off the records, as a fit "
            "is booked before they are read"
        )
    return records._read()


def unread_table(
    X: Any, y: Any, schema: Schema | None, refuse: Callable[[NDArray[Any]], object] | None = None
) -> Unread[Any]:
    """Records and labels in memory, as a pair; or such as were not read elsewhere.

    Args:
        X: a table, or ``Unread`` with y None.
        y: labels.
        schema: what its columns must fit by name or number; None: anything.
        refuse: raises the error for a table that is none, given zeros of its shape. None: X need not be one.

    Raises:
        InvalidInputError: by the kind and shape of X and y and by the names of columns alone.
    """
    if isinstance(X, Unread):
        return X
    check_unmasked(X, "X")
    shape = shape_of(X)
    if refuse is not None and (len(shape) != 2 or 0 in shape):
        refuse(np.zeros(shape))
    if not shape or shape[0] == 0:
        raise InvalidInputError("no records: at least one row is needed")
    if schema is not None:
        schema.codes(_without_records(X, shape))
    _check_label_shape(y, shape[0])
    return Unread(shape[0], lambda: (X, y), shape[1] if len(shape) == 2 else None)


def _without_records(table: Any, shape: tuple[int, ...]) -> Any:
    """A table of the same columns without a row."""
    names = table.keys() if isinstance(table, Mapping) else getattr(table, "columns", None)
    if isinstance(table, np.ndarray):
        return np.zeros((0, *shape[1:]))
    if names is None:  # no table: it is refused by its type
        return table
    # Of pyarrow ``columns`` are the columns themselves.
    return pd.DataFrame(np.zeros((0, shape[1])), columns=list(getattr(table, "column_names", names)))


def shape_of(table: Any) -> tuple[int, ...]:
    """The shape of a table in memory, whatever it holds; () for what is none.

    Raises:
        InvalidInputError: a list of rows that differ in length.
    """
    shape = getattr(table, "shape", None)
    try:
        if isinstance(shape, tuple):
            return tuple(int(length) for length in shape)
        if isinstance(table, Mapping):
            return (*shape_of(next(iter(table.values()), None))[:1], len(table))
        return np.asarray(table, dtype=None if hasattr(table, "__array__") else object).shape
    except (TypeError, ValueError):
        raise InvalidInputError("the rows of a table must have the same length") from None


def _check_label_shape(y: Any, n_records: int) -> None:
    check_given(y)
    check_unmasked(y, "y")
    shape = shape_of(y)
    if shape == ():
        raise InvalidInputError(f"y must hold one label per record, shape ({n_records},); got {told(y)}")
    if len(shape) > 1 and shape[1:] != (1,):
        _refuse_shape(shape)
    if shape[0] != n_records:
        raise InvalidInputError(f"X has {n_records} rows and y has {shape[0]}")


def _refuse_shape(shape: tuple[int, ...]) -> NoReturn:
    try:
        column_or_1d(np.zeros(shape))
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    raise InvalidInputError(f"y must hold one label per record; it has the shape {shape}")


class BookedEstimator:
    """An estimator with a ``ledger``: nothing that is printed or pickled holds a password of its URL."""

    @property
    def ledger(self) -> Any:
        """As it was given; a URL with a password as an ``Address``, which hides it."""
        return _without_password(self.__dict__.get("ledger"))

    @ledger.setter
    def ledger(self, given: Any) -> None:
        self.__dict__["ledger"] = _without_password(given)


def _without_password(ledger: Any) -> Any:
    if not isinstance(ledger, str) or "://" not in ledger:
        return ledger
    from privopt.mechanisms.privacy.ledger.place import Address

    address = Address.of(ledger)
    return address if address.secrets else ledger

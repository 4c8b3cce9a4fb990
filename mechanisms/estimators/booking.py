"""Ledger bookings of fits: check public facts, book the spend, then read the records.

Decisions before the booking cost nothing, so they may depend on public facts only: arguments, the types and
shapes of X and y, column names, a declared schema and classes, and the number of records. Cells and labels
are read after the booking, and a fit that fails because of a cell or a label stays spent. If such failures
were free, repeated attempts with different declarations would reveal any record. All fits read records
through this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from privopt.mechanisms.errors import BudgetExceededError, LedgerError, LedgerUnavailableError
from privopt.mechanisms.estimators.labels import check_given
from privopt.mechanisms.estimators.repeats import warn_of_repeat
from privopt.mechanisms.estimators.validation import without_values
from privopt.mechanisms.privacy.ambient import CarriedBudgets, addresses_around, is_within_budget, opened
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import check_same_length, check_some_records, told
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Content = TypeVar("Content")
Made = TypeVar("Made")

_STAYS = "counts as spent in"

# Set within a release that is booked as a whole, such as a search. A fit in it is not booked. Instead, the
# charge is called with the spend of the fit before the fit reads records, and raises an error if the spend of
# the whole does not cover it.
Charge = Callable[[PrivacySpend], object]
_CHARGED: ContextVar[Charge | None] = ContextVar("privopt_charge", default=None)


@dataclass(frozen=True, eq=False)
class Unread(Generic[Content]):
    """Records that have not been read; ``booked`` reads them after the spend is booked.

    Attributes:
        n_records: number of records, public.
        n_columns: number of columns, public; None if a schema determines it.
        given: the object that was given as the table, None if unknown.
    """

    n_records: int
    _read: Callable[[], Content]
    n_columns: int | None = None
    given: object = None

    def then(self, make: Callable[[Content], Made]) -> Unread[Made]:
        """Return unread records to which ``make`` is applied when they are read."""
        return Unread(self.n_records, lambda: make(self._read()), self.n_columns, self.given)

    def known(self, content: Made) -> Unread[Made]:
        """Return these records with content that has been read already."""
        return Unread(self.n_records, lambda: content, self.n_columns, self.given)


@contextmanager
def charged(charge: Charge | None) -> Iterator[None]:
    """Charge fits in the block to a release that is booked as a whole; they are not booked in a ledger."""
    before = _CHARGED.set(charge)
    try:
        yield
    finally:
        _CHARGED.reset(before)


@contextmanager
def booked(
    ledger: Ledger | CarriedBudgets | str | Path | None, spend: PrivacySpend, records: Unread[Content]
) -> Iterator[Content]:
    """Reserve the spend, read the records, and yield them; commit after the block.

    The spend is reserved in the ledger if one is given, otherwise in all surrounding budgets (``budget``). An
    error after the reservation has a note that the reserved spend counts as spent.

    Raises:
        BudgetExceededError: a ledger refused; nothing was read.
    """
    charge = _CHARGED.get()
    if charge is not None:
        charge(spend)
    if charge is None or (charge is _covered and ledger is not None):
        books = ledgers_of(ledger)
        if not books:
            warn_of_repeat(records.given, spend)
    else:
        books = []
    with charged(None), _reserved(books, spend):  # a fit made in a callback of this fit is booked separately
        yield records._read()


def is_part() -> bool:
    """Return whether a fit made here is part of a release that is booked as a whole."""
    return _CHARGED.get() is not None


@contextmanager
def part_of_release() -> Iterator[None]:
    """Treat fits in the block, unless they have a ledger, as parts of a release that is booked."""
    with charged(_covered):
        yield


def _covered(spend: PrivacySpend) -> None:
    """Accept any fit: its spend is part of the spend of the release, which is booked."""


def ledgers_of(ledger: Ledger | CarriedBudgets | str | Path | None) -> list[Ledger]:
    """Open the ledgers in which a release is booked: its own, or else the ledgers of surrounding budgets."""
    if ledger is None:
        return opened(addresses_around()) if is_within_budget() else []
    if isinstance(ledger, CarriedBudgets):
        return ledger.ledgers()
    from privopt.mechanisms.privacy.ledger import Ledger  # lazy: it imports a database library

    return [ledger if isinstance(ledger, Ledger) else Ledger(ledger)]


def refuse_from_another_budget(models: Sequence[Any], ledger: object) -> None:
    """Refuse to use models that were pickled within a budget of another process, unless a ledger is given.

    That budget would not be charged for releases made here.

    Raises:
        LedgerError: one of the models, or a part of it, was pickled within such a budget.
    """
    if ledger is not None:
        return
    for model in models:
        known = model.get_params(deep=True) if hasattr(model, "get_params") else {}
        carried = [value for value in known.values() if isinstance(value, CarriedBudgets)]
        if not all(budgets.is_known for budgets in carried):
            raise LedgerError(
                f"{type(model).__name__} was pickled within a budget of another process, and that budget is "
                "not charged for releases here. To do: give ledger=, as with book.address of `with "
                "budget(...) as book`; or set_params(ledger=None) of the model, if that budget has ended"
            )


@contextmanager
def _reserved(books: Sequence[Ledger], spend: PrivacySpend) -> Iterator[None]:
    """Reserve the spend of the block in all ledgers, or in none if one refuses."""
    for book in books[1:]:  # the first book is asked when it reserves, before any other does
        if (why := book.shortfall(spend)) is not None:
            raise BudgetExceededError(f"{spend} would overdraw {book}: {why}. Nothing was run")
    with ExitStack() as reservations:
        for book in books:
            reservations.enter_context(_spending(book, spend))
        yield


@contextmanager
def _spending(book: Ledger, spend: PrivacySpend) -> Iterator[None]:
    reserved = False
    try:
        with book.spending(spend):
            reserved = True
            yield
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
    """Return whether a note on the error says that the spend was booked, or may have been."""
    return any(_STAYS in note for note in getattr(error, "__notes__", ()))


def read_unbooked(ledger: object, records: Unread[Content], undeclared: Sequence[str]) -> Content:
    """Read the records without a booking, to infer facts that were not declared.

    Raises:
        InvalidInputError: there is a ledger, a surrounding budget or a booking for several fits, so that
            records may be read only after the booking.
    """
    if _CHARGED.get() is not None:
        raise InvalidInputError(
            f"declare {' and '.join(undeclared)}: nothing is inferred from records where several releases "
            "are booked as one, before the first of them reads records"
        )
    if ledger is not None or (undeclared and is_within_budget()):
        raise InvalidInputError(
            f"declare {' and '.join(undeclared)}: with a ledger nothing is inferred from records, as a fit "
            "is booked before they are read"
        )
    return records._read()


def unread_table(
    X: Any, y: Any, schema: Schema | None, refuse: Callable[[NDArray[Any]], object] | None = None
) -> Unread[Any]:
    """Wrap records and labels in memory as an unread pair (X, y); ``Unread`` is returned unchanged.

    Args:
        X: a table, or ``Unread`` with y None.
        y: labels.
        schema: a schema that the columns must match by name or number, or None.
        refuse: a validator, called with zeros of the shape of X, that raises an error unless this is the
            shape of a non-empty table. None: X need not be two-dimensional.

    Raises:
        InvalidInputError: wrong types, shapes or column names; cells and labels are not read.
    """
    if isinstance(X, Unread):
        return X
    check_unmasked(X, "X")
    shape = shape_of(X)
    if refuse is not None and (len(shape) != 2 or 0 in shape):
        refuse(np.zeros(shape))
    check_some_records(shape[0] if shape else 0)
    if schema is not None:
        schema.codes(_without_records(X, shape))
    _check_label_shape(y, shape[0])
    return Unread(shape[0], lambda: (X, y), shape[1] if len(shape) == 2 else None, X)


def _without_records(table: Any, shape: tuple[int, ...]) -> Any:
    """Return a table with the same columns and no rows."""
    if isinstance(table, np.ndarray):
        return np.zeros((0, *shape[1:]))
    names = names_of(table)
    if names is None:  # not a table: the schema refuses its type
        return table
    return pd.DataFrame(np.zeros((0, shape[1])), columns=names)


def names_of(table: Any) -> list[Any] | None:
    """Return the names of the columns of a table, None if they have none; no cell is read."""
    names = table.keys() if isinstance(table, Mapping) else getattr(table, "columns", None)
    # In pyarrow ``columns`` holds the columns themselves, and ``column_names`` their names.
    return None if names is None else list(getattr(table, "column_names", names))


def shape_of(table: Any) -> tuple[int, ...]:
    """Return the shape of a table in memory, whatever its cells are; () for other objects.

    Raises:
        InvalidInputError: a list of rows that differ in length.
    """
    shape = getattr(table, "shape", None)
    try:
        if isinstance(shape, tuple):
            return tuple(int(length) for length in shape)
        if isinstance(table, Mapping):
            return (*column_shape(next(iter(table.values()), None))[:1], len(table))
        return np.asarray(table, dtype=None if hasattr(table, "__array__") else object).shape
    except (TypeError, ValueError):
        raise InvalidInputError("the rows of a table must have the same length") from None


def column_shape(values: Any) -> tuple[int, ...]:
    """Return the shape of a column or of labels; lists and Arrow arrays have one dimension.

    Raises:
        InvalidInputError: as ``shape_of``.
    """
    listed = isinstance(values, list | tuple | pa.Array | pa.ChunkedArray)
    return (len(values),) if listed else shape_of(values)


def _check_label_shape(y: Any, n_records: int) -> None:
    check_given(y)
    check_unmasked(y, "y")
    shape = column_shape(y)
    if shape == ():
        raise InvalidInputError(f"y must hold one label per record, shape ({n_records},); got {told(y)}")
    if len(shape) > 1 and shape[1:] != (1,):
        _refuse_shape(shape)
    check_same_length(n_records, shape[0])


def _refuse_shape(shape: tuple[int, ...]) -> NoReturn:
    try:
        column_or_1d(np.zeros(shape))
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    raise InvalidInputError(f"y must hold one label per record; it has the shape {shape}")

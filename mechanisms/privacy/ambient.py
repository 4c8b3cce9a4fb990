"""Ambient budgets: ledgers that book every release made within a block of code, or in a process.

``with budget(epsilon=3, delta=1e-6):`` books all fits, evaluations and searches within the block that have no
ledger of their own; the environment variable ``PRIVOPT_LEDGER`` does the same for the whole process. Budgets
nest: a release is booked in every budget around it; if one budget refuses the release, it is booked in none.

A block covers the thread or task that entered it. It also covers every thread and task of the process that
entered no block itself, because a thread of joblib does not say which thread started it. If such a thread
enters a block, that block counts as nested in all blocks that other threads have open at that moment. A block
that the main thread enters does not count as nested, as no thread started the main thread. So a release of
this process may be booked in too many budgets, but never in too few. A pickled estimator carries the
addresses of the ledgers to other processes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from privopt.mechanisms.errors import LedgerError, PrivacyParameterError

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger
    from privopt.mechanisms.privacy.ledger.place import Address

VARIABLE = "PRIVOPT_LEDGER"


@dataclass(frozen=True, eq=False)
class _Block:
    """A block that was entered and not left.

    Attributes:
        around: blocks of other threads in which it may be nested.
        thread: the thread that entered it.
        name: a random name, by which processes that were forked within the block recognise it.
    """

    address: Address
    around: tuple[_Block, ...]
    thread: int
    name: str


# The open blocks of this thread or task, and those of the whole process.
_HERE: ContextVar[tuple[_Block, ...]] = ContextVar("privopt_budgets", default=())
_OPEN: list[_Block] = []
_TOKEN = uuid.uuid4().hex


@contextmanager
def budget(
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    rule: str = "basic",
    unit: str = "record",
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> Iterator[Ledger]:
    """Book every fit, evaluation and search of the block in one budget, and yield its ledger.

    A release within the block is booked before it reads records, as with ``ledger=`` of an estimator, so
    schema and classes must be declared. A release that would overdraw the budget is refused. An estimator
    that has a ledger of its own is booked there alone. Blocks nest: a release is booked in the budgets of all
    blocks around it, and in ``PRIVOPT_LEDGER``. What was spent stays spent after an exception.

    Cross-validations and grid searches of scikit-learn are refused before their first fit if the budget
    certainly does not suffice for all of their fits. Their scores are not private.

    Fits in threads are booked, too, and so are fits in worker processes if their estimator was pickled within
    the block. Functions in other processes, such as ``evaluate``, need ``ledger``. A release in a thread that
    entered no block is booked in all blocks that are open. If such a thread enters a block, and is not the
    main thread, that block counts as nested in the open blocks of other threads. Where the budgets of threads
    must not mix, as in a server, give each estimator its ``ledger``. Mechanisms that are called without an
    estimator are not booked: use ``Ledger.spending``.

    Args:
        epsilon, delta: the total of the block, kept until the yielded ledger is no longer used; epsilon > 0,
            delta in [0, 1).
        rule, unit: composition rule and unit of privacy of that total; see ``Budget``.
        ledger: in place of a total, a ``Ledger``, its path or URL.

    Raises:
        PrivacyParameterError: an invalid total; both a total and a ledger, or neither.
        LedgerError: no such ledger, or one with several budgets, of which none is named.
    """
    book = _entered(epsilon, delta, rule, unit, ledger)
    others, here = _of_other_threads(), threading.get_ident()
    block = _Block(_resolved(book._address), others, here, uuid.uuid4().hex)
    _HERE.set((*_HERE.get(), block))
    _OPEN.append(block)
    try:
        yield book
    finally:
        _OPEN.remove(block)
        _HERE.set(tuple(other for other in _HERE.get() if other is not block))


def _of_other_threads() -> tuple[_Block, ...]:
    """Return the open blocks in which this thread may have been started: none for the main thread, and none
    for a thread that entered a block itself.
    """
    if _HERE.get() or threading.current_thread() is threading.main_thread():
        return ()
    return tuple(block for block in _OPEN if block.thread != threading.get_ident())


def _entered(
    epsilon: float | None,
    delta: float,
    rule: str,
    unit: str,
    ledger: Ledger | str | os.PathLike[str] | None,
) -> Ledger:
    """Open the ledger of a block, or create one for its total."""
    from privopt.mechanisms.privacy.ledger import Ledger  # lazy: it imports a database library

    if (epsilon is None) == (ledger is None):
        raise PrivacyParameterError(
            "a budget is a total, epsilon and delta, or a ledger: give one of them. To limit what a block "
            "spends of a ledger, nest: with budget(ledger=...), budget(epsilon=...)"
        )
    if ledger is not None:
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        if not book._address.names:
            _ = book.budget  # one budget, or an error that asks for a name
        return book
    assert epsilon is not None
    return _of_total(epsilon, delta, rule, unit)


def _of_total(epsilon: float, delta: float, rule: str, unit: str) -> Ledger:
    """Create a ledger in a file that is removed when the ledger is no longer used.

    The ledger is a file so that worker processes can book in it, too.
    """
    from privopt.mechanisms.privacy.ledger import Ledger
    from privopt.mechanisms.privacy.ledger.place import Address

    folder = Path(tempfile.mkdtemp(prefix="privopt-budget-"))
    try:
        book = Ledger.create(Address(str(folder / "ledger.db")), epsilon, delta, rule=rule, unit=unit)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(book, _remove, folder, os.getpid())
    return book


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


def is_within_budget() -> bool:
    """Return whether there is an ambient budget here."""
    return bool(_HERE.get() or _OPEN or os.environ.get(VARIABLE))


def addresses_around() -> tuple[Address, ...]:
    """Return the addresses of all ambient ledgers, outer ones first; no ledger is opened.

    Raises:
        InvalidInputError: ``PRIVOPT_LEDGER`` is not an address.
    """
    around, default = tuple(block.address for block in _blocks_around()), os.environ.get(VARIABLE)
    if not default:
        return around
    from privopt.mechanisms.privacy.ledger.place import Address

    return (_resolved(Address.of(default)), *around)


def _blocks_around() -> tuple[_Block, ...]:
    """Return the blocks around this thread or task, outer ones first."""
    blocks = _HERE.get() or tuple(_OPEN)
    outer = [other for block in blocks for other in block.around if other in _OPEN]
    return tuple(dict.fromkeys((*outer, *blocks)))


def _resolved(address: Address) -> Address:
    """Return the address with an absolute path, which means the same in every folder and process."""
    return replace(address, place=address.location) if address.is_file else address


def opened(addresses: tuple[Address, ...]) -> list[Ledger]:
    """Open ledgers: one object for each file or database, which addresses all the budgets named there, so
    that none is booked twice.

    Raises:
        LedgerError: a ledger that is not there, or has several budgets, of which none is named.
    """
    from privopt.mechanisms.privacy.ledger import Ledger
    from privopt.mechanisms.privacy.ledger.place import Address

    places: dict[str, list[Ledger]] = {}
    for address in dict.fromkeys(addresses):
        places.setdefault(address.location, []).append(
            _entered(None, 0.0, "basic", "record", Ledger(address))
        )
    found = []
    for books in places.values():
        names = tuple(dict.fromkeys(name for book in books for name in book.budgets()))
        one = len(books) == 1
        found.append(books[0] if one else Ledger(Address(books[0]._address.place, names)))
    return found


@dataclass(frozen=True)
class CarriedBudgets:
    """The ambient budgets at the place where an estimator was pickled. In another process the unpickled copy
    uses them as its ledger.

    Attributes:
        addresses: the addresses of the ledgers; empty if the estimator was fitted, as saved models carry no
            address.
        process: identifies the process in which it was pickled.
        blocks: the names of the blocks; the ledger of ``VARIABLE`` has none, as other processes have that
            variable, too.
    """

    addresses: tuple[Address, ...]
    process: str
    blocks: tuple[str, ...] = ()

    @classmethod
    def around(cls, *, fitted: bool) -> CarriedBudgets | None:
        """Return the budgets that an estimator carries when it is pickled here; None outside all budgets."""
        if not is_within_budget():
            return None
        blocks = tuple(block.name for block in _blocks_around())
        return cls(() if fitted else addresses_around(), _process(), blocks)

    @property
    def is_here(self) -> bool:
        """Whether this process pickled the estimator, and so knows its budgets."""
        return self.process == _process()

    @property
    def is_known(self) -> bool:
        """Whether a release in this process is booked in all of these blocks anyway: this process pickled the
        estimator, or was forked within the blocks.
        """
        return self.is_here or set(self.blocks) <= {block.name for block in _blocks_around()}

    def ledgers(self) -> list[Ledger]:
        """Open these ledgers, and those that are ambient in this process.

        Raises:
            LedgerError: a ledger does not exist, or the estimator was fitted before it was pickled.
        """
        try:
            if self.addresses:
                return opened((*self.addresses, *addresses_around()))
            raise LedgerError("a fitted model was pickled within a budget, whose address it does not keep")
        except LedgerError as error:
            error.add_note(
                "This estimator was pickled within a budget of another process. To fit it here: clone it "
                "before it is sent, or set_params(ledger=...), None for no ledger"
            )
            raise


def _process() -> str:
    return f"{_TOKEN}-{os.getpid()}"

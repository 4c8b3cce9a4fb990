"""Forks of a process wait until none of its other threads is inside a ledger's file.

If a process forks while another of its threads holds a lock of SQLite, the child inherits the lock but not
the thread that would release it, and its first booking waits forever.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.Condition()  # re-entrant, so that a thread inside may fork
_inside: Counter[int] = Counter()  # how often each thread has entered
_forking: set[int] = set()


@contextmanager
def no_fork() -> Iterator[None]:
    """Keep other threads from forking during the block, which begins after forks that already wait."""
    thread = threading.get_ident()
    with _turn:
        _turn.wait_for(lambda: not _forking or thread in _inside)
        _inside[thread] += 1
    try:
        yield
    finally:
        with _turn:
            _inside[thread] -= 1
            if not _inside[thread]:
                del _inside[thread]
            _turn.notify_all()


def _before() -> None:
    thread = threading.get_ident()
    _turn.acquire()
    _forking.add(thread)
    _turn.wait_for(lambda: _inside.keys() <= {thread})


def _in_parent() -> None:
    _forking.discard(threading.get_ident())
    _turn.notify_all()
    _turn.release()


def _in_child() -> None:
    _forking.clear()  # other threads do not exist here
    _turn.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

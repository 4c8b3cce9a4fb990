"""Options for the compilation of kernels, which takes place once per installation, and its log message."""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from numba import njit
from numba.core.event import Listener, install_listener

_LOG = logging.getLogger("privopt")

_F = TypeVar("_F", bound=Callable[..., Any])


def inner(function: _F) -> _F:
    """Compile a function that only compiled functions call.

    It gets no entry points for Python and C, because these take time to compile.
    """
    options: Any = {"cache": True, "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(**options)(function)  # type: ignore[no-any-return, unused-ignore]


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Log one line if anything in the block is compiled rather than loaded from the cache.

    Garbage collection is off during the block: it would take a tenth of the time, and free little.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with install_listener("numba:compile", _Line(what)):
            yield
    finally:
        if collecting:
            gc.enable()


class _Line(Listener):
    def __init__(self, what: str) -> None:
        self._what, self._told = what, False

    def on_start(self, event: Any) -> None:
        if not self._told:
            self._told = True
            _LOG.warning(
                "compiling %s for this machine: half a minute or less, and only this once; "
                "what is compiled is kept on disk",
                self._what,
            )

    def on_end(self, event: Any) -> None: ...

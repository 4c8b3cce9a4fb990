"""A log line for whoever waits while functions are compiled, once per installation."""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.event import Listener, install_listener

_LOG = logging.getLogger("privopt")


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Log a line, once, if anything is compiled meanwhile, and not loaded from the cache."""
    with install_listener("numba:compile", _Line(what)):
        yield


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

"""Errors of the command line."""

from __future__ import annotations

from privopt.problems.errors import PrivOptError


class InterruptedRunError(PrivOptError):
    """Ctrl-C interrupted a command before a release, or before its result was printed."""


class UnshownResultError(PrivOptError):
    """A released result, covered by the budget, could not be printed or written to its file."""

"""Errors of the command line."""

from __future__ import annotations

from privopt.problems.errors import PrivOptError


class InterruptedRunError(PrivOptError):
    """Ctrl-C came before a release, or before all was said about it."""


class UnshownResultError(PrivOptError):
    """A result was released and is paid for, and could not be shown, or not be written where it was to be."""

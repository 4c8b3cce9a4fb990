"""Errors of the command line."""

from __future__ import annotations

from privopt.problems.errors import PrivOptError


class InterruptedRunError(PrivOptError):
    """Ctrl-C came before a release."""

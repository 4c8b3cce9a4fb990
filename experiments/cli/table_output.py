"""Printing of tables at their full width."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_ANY = 10_000


def print_table(console: Console, table: Table) -> None:
    """Print a table; in a pipe or a file, which have no width, at its full width."""
    if not console.is_terminal:
        whole = console.measure(table, options=console.options.update(max_width=_ANY)).maximum
        console.width = max(console.width, whole)
    console.print(table)

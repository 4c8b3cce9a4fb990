"""Printing of tables at their full width, of plain lines, and of reports as lines or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from privopt.experiments.cli.files import json_text

_ANY = 10_000


def print_table(console: Console, table: Table) -> None:
    """Print a table; in a pipe or a file, which have no width, at its full width."""
    if not console.is_terminal:
        whole = console.measure(table, options=console.options.update(max_width=_ANY)).maximum
        console.width = max(console.width, whole)
    console.print(table)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are, without markup or colours."""
    for line in lines:
        console.print(line, markup=False, highlight=False)


def print_report(console: Console, report: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print a report: as JSON, or as the lines that say the same."""
    if as_json:
        typer.echo(json_text(report), nl=False)
    else:
        print_lines(console, lines)

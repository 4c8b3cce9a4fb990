"""``privopt audit``: can the privacy claims of the package be refuted, and would a wrong one be?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from privopt.mechanisms.audit_claims import AuditLine, audit_claim
from privopt.mechanisms.audited import AUDITS
from privopt.mechanisms.classifier import write_atomically
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.problems.errors import InvalidInputError

say = Console(stderr=True)
tell = Console()


def audit(
    mechanism: Annotated[str | None, typer.Argument(help=", ".join(AUDITS))] = None,
    every: Annotated[bool, typer.Option("--all", help="Audit every mechanism.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs per data set.")] = 20_000,
    confidence: Annotated[float, typer.Option(help="Of each lower bound, in (0, 1).")] = 0.99,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    journal: Annotated[
        Path | None, typer.Option(help="Keep counts in this file; run again to resume.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results here.")] = None,
) -> None:
    """Try to refute privacy claims; exit code 1 if one falls or if a mutant with too little noise passes."""
    if every == (mechanism is not None):
        raise InvalidInputError("name one mechanism, or say --all")
    names = list(AUDITS) if mechanism is None else [mechanism]
    lines = run_audits(names, runs, confidence, workers, journal)
    if json_file is not None:
        write_atomically(json_file, json.dumps([line.to_dict() for line in lines], indent=2) + "\n")
    tell.print(audit_table(lines))
    if not all(line.passed for line in lines):
        raise typer.Exit(1)


def run_audits(
    names: Sequence[str], runs: int, confidence: float, workers: int, journal: Path | None
) -> list[AuditLine]:
    """Audit mechanisms by name, with a progress bar on standard error.

    Raises:
        UnknownMechanismError: listing the names there are.
    """
    for name in names:
        if name not in AUDITS:
            raise UnknownMechanismError(f"no audit of {name!r}; there are {', '.join(AUDITS)}")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    lines: list[AuditLine] = []
    with Progress(*columns, console=say, transient=True) as bar:
        for name in names:
            rows: dict[str, TaskID] = {}

            def show(
                subject: str, done: int, of: int, name: str = name, rows: dict[str, TaskID] = rows
            ) -> None:
                if subject not in rows:
                    rows[subject] = bar.add_task(f"{name}, {subject}", total=of)
                bar.update(rows[subject], completed=done)

            lines += audit_claim(
                AUDITS[name](),
                runs=runs,
                confidence=confidence,
                workers=workers,
                journal=journal,
                on_progress=show,
            )
    return lines


def audit_table(lines: Sequence[AuditLine]) -> Table:
    """Claimed against found, the mechanism first and its mutants below it."""
    whole = [Column(name, no_wrap=True) for name in ("mechanism", "claimed", "exact", "found", "verdict")]
    where = {line.mechanism: line.neighbours for line in lines}
    notes = "\n".join(f"{name}: {pair}" for name, pair in where.items())
    table = Table(*whole, "subject", caption=escape(f"found: lower bound from the runs, on\n{notes}"))
    for line in lines:
        found = line.result
        exact = "" if line.exact_epsilon is None else f"{line.exact_epsilon:.3f}"
        claim = f"({found.epsilon:g}, {found.delta:g})"
        verdict = line.verdict if line.passed else f"[red]{line.verdict}[/]"
        row = [line.mechanism, claim, exact, f"{found.lower_bound:.3f}", verdict]
        table.add_row(*row, line.subject)
    return table

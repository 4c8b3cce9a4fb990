"""``privopt audit``: statistical tests of privacy claims, and of faulty mechanisms that they must reject."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import joblib  # type: ignore[import-untyped]
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from privopt.experiments.cli.files import json_text
from privopt.mechanisms.audit.claims import AuditedClaim, AuditLine, audit_claim
from privopt.mechanisms.audit.registry import AUDITS
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import check_writable, write_atomically

app = typer.Typer()
say = Console(stderr=True, emoji=False)
tell = Console(emoji=False)

# Meanings of the columns of the table and of the keys of the JSON file.
MEANINGS = {
    "claimed": "(epsilon, delta), the guarantee of a mechanism for any two data sets that differ in one "
    "record",
    "exact": "the smallest epsilon that holds at that delta on the named pair of data sets, computed from "
    "the exact law of the outputs",
    "lower bound": "a lower bound on epsilon from the runs alone, at the stated confidence",
    "mutant": "the mechanism with too little noise; an audit that accepts it is too weak to find a fault",
    "verdict": "a claim stands if neither the exact epsilon nor the lower bound exceeds it; a mutant has to "
    "be rejected, by the runs or, marked (law), by the exact law where the runs were too few",
}


@app.command()
def audit(
    mechanism: Annotated[str | None, typer.Argument(help=", ".join(AUDITS), show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Audit every mechanism of the package.")] = False,
    runs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Releases per data set, in multiples of 400: half choose a set of outputs, half test it. "
            "More runs tighten the bounds. With --all the default takes about half an hour on two cores.",
        ),
    ] = 4_000,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence of each lower bound, in (0, 1): a true claim is rejected with "
            "probability at most 1 - this."
        ),
    ] = 0.99,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes; by default one per core."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Keep counts in this file, from which an interrupted run resumes.")
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the results, and the meaning of each key, to this file."),
    ] = None,
) -> None:
    """Audit privacy claims statistically; exit code 1 if a claim is refuted or a mutant with too little
    noise is accepted.

    Each mechanism runs many times on two data sets that differ in one record, chosen so that the outputs
    differ as much as possible. A set of outputs that one data set produces more often gives a lower bound on
    epsilon, which is compared with the claim.
    """
    if every == (mechanism is not None):
        raise InvalidInputError("name one mechanism, or use --all")
    check_writable(json_file, "--json")
    names = list(AUDITS) if mechanism is None else [mechanism]
    lines = run_audits(names, runs, confidence, workers or int(joblib.cpu_count()), journal)
    if json_file is not None:
        write_atomically(json_file, json_text(audit_report(lines)))
    tell.print(audit_table(lines))
    if not all(line.passed for line in lines):
        raise typer.Exit(1)


def run_audits(
    names: Sequence[str], runs: int, confidence: float, workers: int, journal: Path | None
) -> list[AuditLine]:
    """Audit mechanisms by name; standard error shows the progress.

    Raises:
        UnknownMechanismError: listing the known names.
    """
    for name in names:
        if name not in AUDITS:
            raise UnknownMechanismError(f"no audit of {name!r}; there are {', '.join(AUDITS)}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    lines: list[AuditLine] = []
    with Progress(*columns, console=say, transient=True) as bar:
        claims = _planned(names, bar)
        progress = _AuditProgress(bar, claims)
        for claim in claims:
            lines += audit_claim(
                claim,
                runs=runs,
                confidence=confidence,
                workers=workers,
                journal=journal,
                on_progress=partial(progress.show, claim),
            )
    return lines


def _planned(names: Sequence[str], bar: Progress) -> list[AuditedClaim]:
    """Plan the mechanisms and their mutants."""
    planning = bar.add_task("plans", total=len(names))
    claims: list[AuditedClaim] = []
    for name in names:
        bar.update(planning, description=f"planning {name}")
        claims += AUDITS[name]()
        bar.advance(planning)
    bar.remove_task(planning)
    return claims


class _AuditProgress:
    """A line of progress over mechanisms and mutants, which all have the same number of chunks of runs."""

    def __init__(self, bar: Progress, claims: Sequence[AuditedClaim]) -> None:
        self._bar, self._whole = bar, bar.add_task("audits")
        subjects = [(id(c), s.name) for c in claims for s in (c.claim, *c.mutants)]
        self._order = {subject: k for k, subject in enumerate(subjects)}

    def show(self, claim: AuditedClaim, subject: str, done: int, of: int) -> None:
        """Show that ``done`` of ``of`` chunks of a subject of the claim are finished."""
        before, all_subjects = self._order[id(claim), subject], len(self._order)
        self._bar.update(
            self._whole,
            description=f"{claim.mechanism}, {subject} ({before + 1} of {all_subjects})",
            completed=before * of + done,
            total=of * all_subjects,
        )


def audit_report(lines: Sequence[AuditLine]) -> dict[str, Any]:
    """Return a JSON-ready report: whether the audit passed, every line, and the meanings of the keys."""
    return {
        "passed": all(line.passed for line in lines),
        "lines": [line.to_dict() for line in lines],
        "meanings": {
            "mechanism": "name",
            "neighbours": "the pair of data sets, which differ by replacing one record",
            "subject": "'as released', or the fault of the mutant",
            "mutant": f"true or false: {MEANINGS['mutant']}",
            "epsilon": "claimed",
            "delta": "claimed",
            "exact_epsilon": MEANINGS["exact"] + "; null where the law is not known",
            "lower_bound": MEANINGS["lower bound"],
            "confidence": "confidence of lower_bound",
            "held_out": "runs on each data set that give lower_bound; as many others chose the event (a set "
            "of outputs)",
            "hits": "how often the event occurred in those runs, first on the data set where it is likelier",
            "exchanged": "whether the event is likelier on the second data set",
            "verdict": MEANINGS["verdict"],
            "passed": "a claim stands, a mutant is rejected",
        },
    }


def audit_table(lines: Sequence[AuditLine]) -> Table:
    """Tabulate claims and lower bounds, per pair of data sets: the mechanism and its mutants."""
    caption = "\n".join(f"{name}: {meaning}." for name, meaning in MEANINGS.items())
    whole = [Column(name, no_wrap=True) for name in ("claimed", "exact", "lower bound", "verdict")]
    table = Table("mechanism, pair of data sets", *whole, caption=caption, caption_justify="left")
    shown = ""
    for line in lines:
        title = f"{line.mechanism}: {line.neighbours}"
        if title != shown:
            table.add_section()
            table.add_row(f"[bold]{escape(title)}[/]")
            shown = title
        found = line.result
        exact = "" if line.exact_epsilon is None else f"{line.exact_epsilon:.3f}"
        claim = f"({found.epsilon:g}, {found.delta:g})"
        verdict = line.verdict if line.passed else f"[red]{line.verdict}[/]"
        subject = f"  mutant: {line.subject}" if line.mutant else f"  {line.subject}"
        table.add_row(escape(subject), claim, exact, f"{found.lower_bound:.3f}", verdict)
    return table

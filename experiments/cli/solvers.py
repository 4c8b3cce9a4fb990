"""``privopt solvers``: list of the oracles."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.oracles.registry import Kind
from privopt.oracles.select import inventory

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)

_MINIMISERS = "Minimisers, for the mechanisms opdisc, rspm and rspm-laplace"
_SAMPLERS = (
    "Samplers, for the mechanisms exponential and permute-and-flip: the exact law, up to a stated relative "
    "error that is paid for"
)
_PROGRAMS = "Nearest cards, for constraints on the points of the mechanism seeded (--card-solver)"
_SUBSETS = "Best subsets of columns on noisy moments (max_features of sufficient-statistics)"


@app.command()
def solvers() -> None:
    """List the oracles: which are installed, their use, and the evidence behind their answers."""
    entries = inventory()
    minimise = Table("oracle", "for", "limits", "certificate", "installed", title=_MINIMISERS)
    draw = Table("oracle", "for", "limits", "installed", title=_SAMPLERS)
    nearest = Table("oracle", "for", "limits", "installed", title=_PROGRAMS)
    subsets = Table("oracle", "for", "limits", "installed", title=_SUBSETS)
    tables = {Kind.MINIMISES: minimise, Kind.DRAWS: draw, Kind.PROGRAMS: nearest, Kind.SUBSETS: subsets}
    for e in entries:
        proof = (e.proof,) if e.kind is Kind.MINIMISES else ()
        cells = (e.name, e.summary, e.limits, *proof, "yes" if e.installed else "no")
        tables[e.kind].add_row(*map(escape, cells))
    for table in tables.values():
        table.columns[0].no_wrap, table.title_justify = True, "left"
        tell.print(table)
    tell.print(
        "A certificate in integers is a proof (exact=True); one in floating point holds up to the solver's "
        "tolerances, about 1e-6 (exact=False). The value of a point is recomputed in integers in every case."
    )
    for entry in entries:
        if not entry.installed:
            tell.print(f"{entry.name}: {entry.remedy}", highlight=False, markup=False)
        if entry.standing:
            remedy = "" if "passed" in entry.standing else f". To do: privopt check {entry.name}"
            tell.print(f"{entry.name}: {entry.standing}{remedy}", highlight=False, markup=False)

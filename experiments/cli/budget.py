"""``privopt budget``: a ledger of what has been spent, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.mechanisms.errors import BudgetExceededError, LedgerError
from privopt.mechanisms.privacy.ledger import RULES, Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.errors import InvalidInputError, did_you_mean

app = typer.Typer(help="Keep a privacy budget in a file.", no_args_is_help=True)
tell = Console(soft_wrap=True, emoji=False)

FileArgument = Annotated[Path, typer.Argument(help="The ledger.")]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="> 0.")]
DeltaOption = Annotated[float, typer.Option("--delta", help="In [0, 1); 0 is pure privacy.")]
NameOption = Annotated[str, typer.Option("--mechanism", help="What is run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    file: FileArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption = 0.0,
    rule: Annotated[str, typer.Option(help=", ".join(RULES))] = "basic",
) -> None:
    """Start a ledger with a total budget."""
    if rule not in RULES:
        raise InvalidInputError(
            f"unknown rule {rule!r}{did_you_mean(rule, RULES)}; there are {', '.join(RULES)}"
        )
    if rule != "basic" and delta == 0:
        raise InvalidInputError(f"the rule {rule} needs --delta > 0")
    if file.exists():
        raise LedgerError(f"{file} exists already; `privopt budget show {file}` tells what it holds")
    Ledger.create(file, epsilon, delta, rule=rule)
    tell.print(f"{escape(str(file))}: epsilon = {epsilon:g}, delta = {delta:g}, rule {rule}")


@app.command()
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """What has been spent, by what, and what is left."""
    ledger = open_ledger(file)
    report = budget_report(ledger)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    table = Table("time (UTC)", "state", "mechanism", "epsilon", "delta")
    for entry in report["entries"]:
        spend, time = entry["spend"], entry["time"].removesuffix("+00:00").replace("T", " ")
        table.add_row(
            *(escape(time), entry["state"], escape(spend["mechanism"])),
            *(f"{spend['epsilon']:g}", f"{spend['delta']:g}"),
        )
    tell.print(table)
    tell.print(_state(ledger))


@app.command()
def check(
    file: FileArgument, epsilon: EpsilonOption, delta: DeltaOption = 0.0, mechanism: NameOption = "unnamed"
) -> None:
    """Exit code 0 if a release is affordable now, 1 if not. Changes nothing."""
    ledger, release = open_ledger(file), _spend(epsilon, delta, mechanism)
    affordable = ledger.affords(release)
    if affordable:
        tell.print(f"affordable: {_state(ledger)}")
    else:
        spent = [e.spend for e in ledger.entries() if e.state != "cancelled"]
        tell.print(f"not affordable: {escape(ledger.budget.shortfall(spent, release))}")
    if not affordable:
        raise typer.Exit(1)


@app.command()
def spend(
    file: FileArgument, epsilon: EpsilonOption, delta: DeltaOption = 0.0, mechanism: NameOption = "unnamed"
) -> None:
    """Book a release that is about to run elsewhere; exit code 1, and nothing booked, if it overdraws."""
    try:
        ledger = open_ledger(file)
        ledger.commit(ledger.reserve(_spend(epsilon, delta, mechanism)))
    except BudgetExceededError as error:
        tell.print(escape(str(error)))
        raise typer.Exit(1) from error
    tell.print("booked")


def open_ledger(file: Path) -> Ledger:
    """The ledger in a file.

    Raises:
        LedgerError: no such file, or one that is damaged.
        InvalidInputError: a file of another kind.
    """
    if file.is_dir():
        raise InvalidInputError(f"{file} is a folder, not a ledger")
    if not file.exists():
        raise LedgerError(f"no ledger {file}; `privopt budget create {file} --epsilon TOTAL` starts one")
    if file.is_file():
        with file.open("rb") as stream:
            if b'"privopt_ledger"' not in stream.read(4096).split(b"\n")[0]:
                raise InvalidInputError(
                    f"{file} is not a privopt ledger: its first line is no ledger's header. "
                    f"`privopt budget create` makes ledgers"
                )
    return Ledger(file)


def budget_report(ledger: Ledger) -> dict[str, Any]:
    """The machine-readable state of a ledger."""
    total, budget = ledger.total(), ledger.budget
    return {
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "rule": budget.rule},
        "spent": {"epsilon": total.epsilon, "delta": total.delta},
        "neighbours": "replace-one",
        "entries": [{"time": e.time, "state": e.state, "spend": e.spend.to_dict()} for e in ledger.entries()],
    }


def _state(ledger: Ledger) -> str:
    spent, budget = ledger.total(), ledger.budget
    return (
        f"spent epsilon = {spent.epsilon:.6g} of {budget.epsilon:g}, delta = {spent.delta:.3g} of "
        f"{budget.delta:g} (replace-one, rule {budget.rule}; reserved counts as spent)"
    )


def _spend(epsilon: float, delta: float, mechanism: str) -> PrivacySpend:
    if delta == 0:
        return PrivacySpend.pure(epsilon, mechanism)
    return PrivacySpend.approximate(epsilon, delta, mechanism)

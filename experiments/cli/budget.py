"""``privopt budget``: ledgers of privacy loss, as text and as JSON.

The libraries for databases and accounting are imported when a command runs, not when its help is shown.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from privopt.experiments.cli.files import check_files, check_picture, json_text, showing
from privopt.experiments.cli.table_output import print_table
from privopt.mechanisms.errors import BudgetExceededError
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.files import write_atomically

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.budget import Budget, Total
    from privopt.mechanisms.privacy.ledger import Entry, Ledger, Snapshot
    from privopt.mechanisms.privacy.ledger.place import Address
    from privopt.mechanisms.privacy.spend import PrivacySpend

app = typer.Typer(help="Manage privacy budgets in a file, or in a database for a team.", no_args_is_help=True)
tell = Console(soft_wrap=True, emoji=False)

LedgerArgument = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A path, or postgresql://USER@HOST/DATABASE; LEDGER#NAME if it holds several budgets, "
        "LEDGER#DATA/TEAM/ANALYST for a budget within others.",
    ),
]
EpsilonOption = Annotated[float, typer.Option("--epsilon", help="Privacy parameter epsilon, > 0.")]
DeltaOption = Annotated[
    float, typer.Option("--delta", help="Privacy parameter delta, in [0, 1); 0 means pure privacy.")
]
NameOption = Annotated[str, typer.Option("--mechanism", help="Name of the mechanism.")]
UnitOption = Annotated[
    str,
    typer.Option(help="Unit of privacy: record, or person for tables with several records of a person."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    ledger: LedgerArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption = 0.0,
    rule: Annotated[str, typer.Option(help="Composition rule: basic, zcdp, gdp or profile.")] = "basic",
    unit: UnitOption = "record",
) -> None:
    """Create a budget, in a new ledger or in an existing one."""
    from privopt.mechanisms.privacy.budget import RULES
    from privopt.mechanisms.privacy.ledger import Ledger
    from privopt.mechanisms.privacy.ledger.place import Address

    if rule not in RULES:
        raise InvalidInputError(
            f"unknown rule {rule!r}{did_you_mean(rule, RULES)}; there are {', '.join(RULES)}"
        )
    if rule != "basic" and delta == 0:
        raise InvalidInputError(f"the rule {rule} needs --delta > 0")
    address = Address.of(ledger)
    Ledger.create(address, epsilon, delta, rule=rule, unit=unit)
    by = "" if unit == "record" else f", unit {unit}"
    tell.print(f"{escape(str(address))}: epsilon = {epsilon:g}, delta = {delta:g}, rule {rule}{by}")
    if delta == 0:
        tell.print(
            "note: a budget with delta = 0 covers evaluations and pure mechanisms; the mechanisms that fits "
            "choose by default mostly need a delta, and the total of a budget cannot be changed later"
        )
    if address.names:
        _tell_who_counts(address)


@app.command("list")
def list_budgets(ledger: LedgerArgument) -> None:
    """List the budgets of a ledger, and how much of each is spent."""
    now = _opened(ledger).snapshot()
    table = Table("budget", "epsilon spent", "delta spent", "rule", "releases", "last")
    for name, (budget, spent) in now.budgets.items():
        mine = [e for e in now.entries if name in e.budgets and e.state != "cancelled"]
        table.add_row(
            escape(name),
            f"{spent.epsilon:.6g} of {budget.epsilon:g}",
            f"{spent.delta:.3g} of {budget.delta:g}",
            budget.rule,
            str(len(mine)),
            escape(mine[-1].time[:10]) if mine else "",
        )
    print_table(tell, table)
    _tell_if_closed(now.moved_to)


@app.command()
def show(ledger: LedgerArgument, as_json: JsonOption = False) -> None:
    """Show every release of a ledger, who made it and what it spent, and how much of each budget is spent."""
    now = _opened(ledger).snapshot()
    if as_json:
        typer.echo(json_text(budget_report(now)), nl=False)
        return
    table = Table(
        Column("time (UTC)", min_width=10), "who", "state", "budgets", "mechanism", "epsilon", "delta"
    )
    for entry in now.entries:
        table.add_row(
            _moment(entry.time),
            escape(entry.who),
            entry.state,
            escape(", ".join(entry.budgets)),
            escape(_named(entry.spend)),
            f"{entry.spend.epsilon:g}",
            f"{entry.spend.delta:.3g}",
        )
    print_table(tell, table)
    _tell_state(now.budgets, now.moved_to)


@app.command()
def compose(
    ledger: LedgerArgument,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Delta of the sum; by default that of the budget.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the spend of a budget by the tightest rule, for parameters that were fixed in advance."""
    book = _opened(ledger)
    found, enforced = book.composed(delta), book.total()
    if as_json:
        typer.echo(json.dumps({"epsilon": found.epsilon, "delta": found.delta, "rule": found.rule}))
        return
    tell.print(
        f"epsilon = {found.epsilon:.6g}, delta = {found.delta:.3g} (rule {found.rule}), if no "
        f"release's parameters depended on earlier results; otherwise epsilon = {enforced.epsilon:.6g}, "
        f"delta = {enforced.delta:.3g} (rule {enforced.rule}), which the budget enforces"
    )


@app.command()
def picture(
    ledger: LedgerArgument,
    output: Annotated[Path, typer.Option(help="Output file: .svg, .png or .pdf.")] = Path("budget.png"),
) -> None:
    """Draw the spend over time, one panel per budget."""
    from privopt.experiments.workbench.spending import spending

    check_picture("--output", output)
    check_files({"--output": output})
    now = _opened(ledger).snapshot()
    spending(now.budgets, now.course()).savefig(output, dpi=150)
    tell.print(f"{escape(str(output))}: {', '.join(map(escape, now.budgets))}")


@app.command()
def export(
    ledger: LedgerArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Output file: .csv with the releases, or .json with the whole trail. Default: print CSV."
        ),
    ] = None,
) -> None:
    """Export every release; as JSON also the trail with its hashes."""
    now = _opened(ledger).snapshot()
    if output is None:
        typer.echo(_as_csv(now.entries), nl=False)
        return
    if output.suffix not in (".csv", ".json"):
        raise InvalidInputError(f"--output {output}: exports end in .csv or .json")
    check_files({"--output": output})
    if output.suffix == ".csv":
        text = _as_csv(now.entries)
    else:
        report = budget_report(now)
        report["trail"] = [{**vars(row), "content": json.loads(row.content)} for row in now.rows]
        text = json_text(report)
    write_atomically(output, text)
    tell.print(f"{escape(str(output))}: {len(now.entries)} releases")


@app.command()
def move(
    ledger: LedgerArgument,
    target: Annotated[str, typer.Argument(help="New place: a path, or postgresql://USER@HOST/DATABASE.")],
) -> None:
    """Move a ledger, with all budgets and its trail, to an empty place; the old ledger is closed.

    After an interruption repeat the same command: until then no booking is possible in either place.
    """
    book = _opened(ledger)
    rows = len((made := book.move(target)).history())
    tell.print(f"{escape(str(made))}: {rows} rows, nothing is wrong; {escape(str(book))} is closed")


@app.command()
def verify(ledger: LedgerArgument) -> None:
    """Verify a ledger and list its faults; exit code 1 if rows were altered, removed or reordered, or
    sums are wrong.
    """
    from privopt.mechanisms.privacy.ledger import verify as examine

    found = examine(ledger)
    for fault in found:
        tell.print(escape(fault))
    if found:
        tell.print("No further spending is allowed. Count every doubtful reservation as spent")
        raise typer.Exit(1)
    last = _opened(ledger).history()[-1]
    tell.print(
        f"nothing is wrong: {last.number} rows, the last of {_moment(last.time)}. Keep their number and "
        f"the last hash elsewhere, to detect a ledger that was replaced: {last.number} {last.hash}"
    )


@app.command()
def check(
    ledger: LedgerArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption = 0.0,
    mechanism: NameOption = "unnamed",
    unit: UnitOption = "record",
) -> None:
    """Check whether a budget affords a release now: exit code 0 if it does, 1 if not. Books nothing."""
    book = _opened(ledger)
    if why := book.shortfall(_spend(epsilon, delta, mechanism, unit)):
        tell.print(f"not affordable: {escape(why)}")
        raise typer.Exit(1)
    tell.print("affordable: ", end="")
    _tell_state(book.budgets(), book.moved_to)


@app.command()
def spend(
    ledger: LedgerArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption = 0.0,
    mechanism: NameOption = "unnamed",
    unit: UnitOption = "record",
) -> None:
    """Book a release that is about to run elsewhere; exit code 1 without a booking if it overdraws the
    budget.
    """
    try:
        book = _opened(ledger)
        book.commit(book.reserve(_spend(epsilon, delta, mechanism, unit)))
    except BudgetExceededError as error:
        tell.print(escape(str(error)))
        raise typer.Exit(1) from error
    with showing("the release was booked"):
        tell.print("booked")


def _tell_who_counts(address: Address) -> None:
    """Print which other budgets of a ledger count the releases of a new budget, too."""
    *around, name = address.applying
    ledger = replace(address, names=())
    others = [other for other in _opened(ledger).budgets() if "/" not in other and other != name]
    if around:
        tell.print(f"its releases count in {escape(' and in '.join(around))}, too")
    elif others:
        within = replace(address, names=(f"{others[0]}/{name}",))
        tell.print(
            f"note: its releases count in none of the other budgets ({escape(', '.join(others[:20]))}); "
            f"within {escape(others[0])} it would be {escape(str(within))}"
        )


def _opened(address: str | Address) -> Ledger:
    from privopt.mechanisms.privacy.ledger import Ledger

    return Ledger(address)


def _named(spend: PrivacySpend) -> str:
    """Return the mechanism; if its privacy is not proved, also the claim and what the claim relies on."""
    return spend.mechanism if spend.claim == "proved" else f"{spend.mechanism}, {spend.claim}: {spend.note}"


def budget_report(now: Snapshot) -> dict[str, Any]:
    """Return the JSON-ready state of a ledger."""
    from privopt.mechanisms.privacy.spend import NEIGHBOURS

    budgets = {name: _account(*pair) for name, pair in now.budgets.items()}
    only = next(iter(budgets.values())) if len(budgets) == 1 else {}
    return {
        **only,
        "budgets": budgets,
        "neighbours": ", ".join(dict.fromkeys(NEIGHBOURS[b.unit] for b, _ in now.budgets.values())),
        "entries": [
            {
                "identifier": e.identifier,
                "time": e.time,
                "who": e.who,
                "state": e.state,
                "budgets": list(e.budgets),
                "spend": e.spend.to_dict(),
            }
            for e in now.entries
        ],
    }


def _account(budget: Budget, spent: Total) -> dict[str, Any]:
    return {
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta, "rule": budget.rule},
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
    }


def _as_csv(entries: list[Entry]) -> str:
    columns = ("epsilon", "delta", "notion", "level", "mechanism", "note")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # Windows translates it when a file is written
    writer.writerow(["time", "who", "state", "budgets", *columns, "identifier"])
    for e in entries:
        spend = e.spend.to_dict()
        writer.writerow(
            [e.time, e.who, e.state, " ".join(e.budgets), *(spend[c] for c in columns), e.identifier]
        )
    return (
        text.getvalue().encode("utf-8", "backslashreplace").decode()
    )  # command-line arguments may not be valid Unicode


def _tell_state(budgets: dict[str, tuple[Budget, Total]], moved_to: str) -> None:
    from privopt.mechanisms.privacy.spend import NEIGHBOURS

    _tell_if_closed(moved_to)
    for name, (budget, spent) in budgets.items():
        which = f"{escape(name)}: " if len(budgets) > 1 else ""
        tell.print(
            f"{which}spent epsilon = {spent.epsilon:.6g} of {budget.epsilon:g}, delta = {spent.delta:.3g} of "
            f"{budget.delta:g} ({NEIGHBOURS[budget.unit]}, rule {budget.rule}; reserved counts as spent)"
        )


def _tell_if_closed(moved_to: str) -> None:
    if moved_to:
        tell.print(f"closed: moved to {escape(moved_to)}")


def _moment(time: str) -> str:
    return escape(time.removesuffix("+00:00").replace("T", " "))


def _spend(epsilon: float, delta: float, mechanism: str, unit: str) -> PrivacySpend:
    from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend

    if unit not in NEIGHBOURS:
        raise InvalidInputError(f"--unit {unit!r}: there are {', '.join(NEIGHBOURS)}")
    made = PrivacySpend.pure(epsilon, mechanism)
    if delta > 0:
        made = PrivacySpend.approximate(epsilon, delta, mechanism)
    return replace(made, neighbours=NEIGHBOURS[unit])

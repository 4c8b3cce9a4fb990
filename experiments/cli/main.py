"""Command line: ``privopt fit | plan | calibrate | predict | evaluate | audit | budget | ...``.

A command is a file of its name beside this one, with a typer application ``app``. The file is imported when
the command is run, so that ``privopt --help`` and ``privopt budget`` do not wait for the libraries that fit
models.
"""

from __future__ import annotations

import io
import sys
import warnings
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from privopt.experiments.cli.errors import InterruptedRunError, UnshownResultError
from privopt.experiments.cli.files import say
from privopt.mechanisms.errors import BudgetExceededError
from privopt.problems.errors import PrivOptError

# Summaries for ``--help``: the first paragraph of each command's own help.
COMMANDS = {
    "fit": "Fit a private model and print it: a scorecard, linear or robust model, tree or rule list.",
    "search": "Search for the best of several private models, within one budget for all of them together.",
    "schema": "Write the skeleton of a schema, check one on public rows, put numbers in bins, or learn one.",
    "estimate": "Release a private mean of the records in a file, or an estimate from subsets of them or "
    "from minima of randomly perturbed objectives.",
    "plan": "Show the mechanism, noise and cost of a fit before any data are read. With --want, "
    "forecast the quality of a model, or the records or epsilon that it needs.",
    "calibrate": "Show the noise that a privacy guarantee requires, before any data are read.",
    "predict": "Predict with a saved model: columns `score` and `prediction`, in the order of the records.",
    "summary": "Print the coefficients of a saved linear model with confidence intervals that include the "
    "noise; costs no privacy.",
    "shapes": "Draw the contribution of each column of a saved linear model or scorecard, by level, with "
    "bands for the noise where it is known. Needs the extra 'plots'; costs no privacy.",
    "evaluate": "Release the quality of a model on records that its fit did not read, with confidence "
    "intervals.",
    "card": "Print a saved scorecard, tree or rule list with its risks, as a page, Markdown, JSON or SQL; "
    "costs no privacy.",
    "compare-oracles": "Benchmark minimising oracles on reproducible instances: running times, proofs, and "
    "whether all agree.",
    "solvers": "List the oracles: which are installed, their use, and the evidence behind their answers.",
    "check": "Run the conformance kit on an oracle, or audit a mechanism; a pass is recorded.",
    "demo": "Run the main experiment on the Adult data: a table and a picture of accuracy against epsilon.",
    "reproduce": "Reproduce figures and tables of the papers, and check their findings.",
    "budget": "Manage privacy budgets in a file, or in a database for a team.",
    "audit": "Audit privacy claims statistically; exit code 1 if a claim is refuted or a mutant with too "
    "little noise is accepted.",
}


@cache
def load(name: str) -> Any:
    """Import a command."""
    command = typer.main.get_command(import_module(f"privopt.experiments.cli.{name.replace('-', '_')}").app)
    command.name = name
    return command


class _LazyCommand(TyperCommand):
    """Placeholder of a command, by name and summary; its module is imported when it runs or shows its
    help.
    """

    def make_context(self, info_name: str | None, *words: Any, **settings: Any) -> Any:
        return load(str(self.name)).make_context(info_name, *words, **settings)


class _Commands(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        announced = {name: _LazyCommand(name, callback=None, help=text) for name, text in COMMANDS.items()}
        super().__init__(**{**settings, "commands": announced})


app = typer.Typer(
    cls=_Commands,
    help="Learn scorecards, trees and linear models from records of people, with differential privacy.",
    epilog="Exit codes: 0 done; 1 a claim was refuted or a budget does not suffice; 2 usage, refused input, "
    "or no certified answer in time; 74 done, but the result could not be printed; 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals hold records
)


def _show_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        from importlib import metadata

        typer.echo(f"privopt {metadata.version('privopt')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Handle the options before a command; ``app`` has the text of the help."""


# The class of typer's usage errors; its module depends on typer's version.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run the command line; errors of privopt become one line on standard error and an exit code."""
    warnings.showwarning = lambda message, *_, **__: say.print(
        f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True
    )
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # a character that the console cannot encode must not end a run that spent budget
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # typer's exit code for Ctrl-C
            say.print("Interrupted")
        sys.exit(code)
    except InterruptedRunError as error:
        _fail("", error, 130)
    except UnshownResultError as error:
        _fail("", error, 74)
    except PrivOptError as error:
        _fail(type(error).__name__, error, 1 if isinstance(error, BudgetExceededError) else 2)
    except OSError as error:
        where = error.filename or "standard output"
        say.print(f"[red]{escape(str(where))}:[/] {error.strerror}", soft_wrap=True)
        sys.exit(2)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # some versions of click: the message is the help
            typer.echo(str(error))
            sys.exit(2)
        context = getattr(error, "ctx", None)
        command = "privopt" if context is None else context.command_path
        message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        _fail("UsageError", f"{message}; see {command} --help", 2)


def _fail(kind: str, error: PrivOptError | str, code: int) -> NoReturn:
    """Print one line on standard error and exit."""
    text = ". ".join([str(error).rstrip("."), *getattr(error, "__notes__", ())])
    name = f"[red]{kind}:[/] " if kind else ""
    say.print(f"{name}{escape(text)}", highlight=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

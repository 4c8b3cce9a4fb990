"""``privopt check``: tests of oracles and audits of mechanisms from other packages; a pass is recorded."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import joblib  # type: ignore[import-untyped]
import typer
from rich.console import Console

from privopt.mechanisms.audit.outside import audit_outside
from privopt.mechanisms.registry import Family, Mechanisms
from privopt.oracles.draw.conformance import check_gibbs_oracle
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.errors import UnknownOracleError
from privopt.oracles.minimize.conformance import check_oracle
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.select import gibbs_oracle, minimizers
from privopt.oracles.vetting import is_own, outside_code, remember
from privopt.problems.errors import InvalidInputError

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)


@app.command()
def check(
    name: Annotated[
        str, typer.Argument(help="An oracle or a mechanism by name, or a class as MODULE:CLASS.")
    ],
    runs: Annotated[
        int, typer.Option(min=1, help="For a mechanism: releases per data set, in multiples of 400.")
    ] = 4_000,
) -> None:
    """Run the conformance kit on an oracle, or audit a mechanism; a pass is recorded.

    The record is valid until the source files change. Without one, releases through the code say
    "not checked".
    """
    found = _named(name)
    if isinstance(found, type):
        lines = audit_outside(found, runs=runs, workers=int(joblib.cpu_count()))
        largest = max(line.result.lower_bound for line in lines if not line.mutant)
        claimed = lines[0].result
        tell.print(
            f"{lines[0].mechanism}: claims epsilon = {claimed.epsilon:g}; {claimed.held_out:,} runs on each "
            f"data set show at least {largest:.3g}. A copy planned for eight times epsilon was rejected",
            markup=False,
        )
    else:
        kit: Any = check_gibbs_oracle if isinstance(found, GibbsOracle) else check_oracle
        report = kit(found)
        tell.print(f"{report.oracle}: {len(report.passed)} checks passed, skipped: {len(report.skipped)}")
    what, code = ("mechanism", found) if isinstance(found, type) else ("oracle", outside_code(found))
    if is_own(code):
        tell.print(f"{what} of privopt: nothing is recorded, as the tests of privopt check it")
        return
    try:
        tell.print(remember(code, what).words, markup=False)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"it passed the check, but this could not be recorded: {error}") from error


def _named(name: str) -> DiscreteOracle | GibbsOracle | type[Any]:
    """Return an oracle, or the class of a mechanism."""
    module, colon, attribute = name.partition(":")
    if not colon:
        mechanisms = Mechanisms(*Family)
        known = minimizers()
        if name in known:
            return known[name]()
        return mechanisms[name] if name in mechanisms else gibbs_oracle(name)
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = found if isinstance(found, type) and hasattr(found, "plan") else found()
    except Exception as error:  # any error of a module that is not ours
        raise UnknownOracleError(
            f"{name} cannot be imported and made ({type(error).__name__}: {error}). To do: give MODULE:CLASS "
            "of a mechanism, or of an oracle whose constructor needs no arguments; for a module in this "
            "folder run PYTHONPATH=. privopt check ..."
        ) from error
    if not isinstance(made, DiscreteOracle | GibbsOracle | type):
        raise UnknownOracleError(
            f"{name} makes a {type(made).__name__}, no DiscreteOracle, no GibbsOracle and no mechanism"
        )
    return made

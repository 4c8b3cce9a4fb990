"""``privopt check``: conformance kit for oracles of other packages; a pass is recorded."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from rich.console import Console

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
    name: Annotated[str, typer.Argument(help="Name of an oracle, or a class as MODULE:CLASS.")],
) -> None:
    """Run the conformance checks on an oracle; a pass is remembered until its source files change."""
    oracle = _oracle(name)
    kit: Any = check_gibbs_oracle if isinstance(oracle, GibbsOracle) else check_oracle
    report = kit(oracle)
    tell.print(f"{report.oracle}: {len(report.passed)} checks passed, skipped: {len(report.skipped)}")
    if is_own(code := outside_code(oracle)):
        tell.print("an oracle of privopt: nothing is remembered, its kit runs in its tests")
        return
    try:
        tell.print(remember(code).words, markup=False)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"it passed, which could not be remembered: {error}") from error


def _oracle(name: str) -> DiscreteOracle | GibbsOracle:
    module, colon, attribute = name.partition(":")
    if not colon:
        known = minimizers()
        return known[name]() if name in known else gibbs_oracle(name)
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # any error of the foreign module
        raise UnknownOracleError(
            f"{name} cannot be imported and made ({type(error).__name__}: {error}). To do: MODULE:CLASS of a "
            "class that is made without arguments"
        ) from error
    if not isinstance(made, DiscreteOracle | GibbsOracle):
        raise UnknownOracleError(
            f"{name} makes a {type(made).__name__}, no DiscreteOracle and no GibbsOracle"
        )
    return made

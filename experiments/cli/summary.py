"""``privopt summary``: coefficients of a saved linear model with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privopt.experiments.cli.files import check_files, check_picture, json_text, showing
from privopt.experiments.cli.linear import load_linear
from privopt.experiments.cli.table_output import print_table
from privopt.mechanisms.estimators.summaries import Summarised
from privopt.mechanisms.inference.interval import Summary
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import write_atomically

app = typer.Typer()
tell = Console(soft_wrap=True, emoji=False)
_NO_TITLES: Mapping[str, str] = {}


@app.command()
def summary(
    model: Annotated[Path, typer.Argument(help="Linear model written by `privopt fit --save`.")],
    confidence: Annotated[float, typer.Option(help="Confidence level of each interval.")] = 0.95,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the full report to this file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a forest plot, a .svg, .png or .pdf file: the extra 'plots'.")
    ] = None,
) -> None:
    """Print the coefficients of a saved linear model with confidence intervals that include the noise; costs
    no privacy.
    """
    if plot is not None:
        check_picture("--plot", plot)
    check_files({"--json": json_file, "--plot": plot})
    fitted = load_linear(model)
    if not isinstance(fitted, Summarised):
        raise InvalidInputError(
            f"{model} holds no model with intervals: those are linear regressions, "
            "`privopt fit --model linear --loss squared --save`, and logistic ones, "
            "`--loss logistic --mechanism objective-perturbation-hessian`"
        )
    found = fitted.summary(confidence)
    titles = _NO_TITLES if fitted.schema_ is None else fitted.schema_.feature_titles
    if json_file is not None:
        write_atomically(json_file, json_text(found.to_dict()))
    if plot is not None:
        from privopt.experiments.workbench.figures import save  # lazy: matplotlib is an extra
        from privopt.experiments.workbench.forest import forest_plot

        save(forest_plot(found, titles), plot)
    with showing("the summary costs no privacy; run it again"):
        show_summary(found, tell, titles)
        tell.print(f"spend of the fit: {fitted.spend_}", markup=False)


def show_summary(found: Summary, console: Console, titles: Mapping[str, str] = _NO_TITLES) -> None:
    """Print estimates, intervals and the share of noise, under the titles of features that have one."""
    shown = Table("coefficient", "estimate", f"{100 * found.confidence:.4g}% interval", "noise")
    for one in found:
        bounds = f"{one.low:.4g} to {one.high:.4g}"
        shown.add_row(
            escape(titles.get(one.name, one.name)), f"{one.estimate:.4g}", bounds, f"{one.noise_share:.0%}"
        )
    print_table(console, shown)
    for note in found.notes:
        console.print(note, markup=False, highlight=False)

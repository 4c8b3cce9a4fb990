"""``privopt shapes``: a picture of the contribution of each column of a saved linear model or scorecard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privopt.experiments.cli.files import check_files, check_picture, say
from privopt.experiments.cli.linear import load_linear
from privopt.experiments.cli.tree import load_tree
from privopt.mechanisms.estimators.additive import PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.problems.errors import InvalidInputError

app = typer.Typer()


@app.command()
def shapes(
    model: Annotated[Path, typer.Argument(help="Linear model or scorecard written by `privopt fit --save`.")],
    output: Annotated[Path, typer.Option(help="Output file: .svg, .png or .pdf.")] = Path("shapes.svg"),
) -> None:
    """Draw the contribution of each column of a saved linear model or scorecard, by level, with bands for
    the noise where it is known. Needs the extra 'plots'; costs no privacy.
    """
    check_picture("--output", output)
    check_files({"--output": output})
    linear, tree = load_linear(model), load_tree(model)
    if tree is not None and not isinstance(tree, PrivateAdditiveTreeClassifier):
        raise InvalidInputError(
            f"{model} holds a tree or a rule list, and shapes are of linear models and scorecards: "
            "`privopt card` shows it"
        )
    found = linear or tree or PrivateHalfspaceClassifier.load(model)

    from privopt.experiments.workbench.figures import save  # lazy: matplotlib is an extra
    from privopt.experiments.workbench.shape_plot import shape_plot

    save(shape_plot(found), output)
    say.print(f"picture in {output}", markup=False, highlight=False)

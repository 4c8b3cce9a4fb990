"""Draw the pictures of the first page: a decision tree and coefficients, learned from the Adult table.

    python -m privopt.experiments.pictures --output FOLDER

The table is public and the noise is seeded, so that the pictures can be made again: noise from a seed
protects nobody.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.forest import forest_plot
from privopt.mechanisms import PrivateLinearRegression, PrivateTreeClassifier
from privopt.problems import Binned, Categorical, Numeric, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, load_adult

_MARITAL = [
    "Married-civ-spouse",
    "Divorced",
    "Never-married",
    "Separated",
    "Widowed",
    "Married-spouse-absent",
    "Married-AF-spouse",
]


def tree() -> PrivateTreeClassifier:
    """Fit a tree that predicts who earns over 50,000 dollars, at epsilon 1."""
    people = load_adult("train")
    columns = [
        Numeric("age", 17, 90),
        Numeric("education-num", 1, 16),
        Numeric("hours-per-week", 1, 99),
        Numeric("capital-gain", 0, 100_000),
        Categorical("marital-status", _MARITAL),
    ]
    model = PrivateTreeClassifier(
        1.0,
        schema=Schema(columns),
        classes=("<=50K", ">50K"),
        max_depth=3,
        risk_share=0.1,
        insecure_seed=1,
    )
    return model.fit(people.drop(columns=[ADULT_TARGET]), people[ADULT_TARGET])


def hours() -> PrivateLinearRegression:
    """Fit a regression of the weekly hours of work, at epsilon 1."""
    people = load_adult("train")
    columns = [
        Binned("age", edges=[17, 25, 35, 45, 55, 65, 90]),
        Numeric("education-num", 1, 16),
        Categorical("sex", ["Female", "Male"]),
    ]
    schema = Schema(columns, intercept=True)
    model = PrivateLinearRegression(1.0, schema=schema, label_range=(1.0, 99.0), insecure_seed=1)
    return model.fit(people, people["hours-per-week"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write ``tree.svg`` and ``coefficients.svg``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("pictures"), help="output folder")
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tree.svg").write_text(tree().card_.to_svg(), "utf-8")
    found = hours().summary()
    save(forest_plot(found), folder / "coefficients.svg")
    print(found)
    print(f"pictures in {folder}")


if __name__ == "__main__":
    main()

"""Measured pages of the documentation are what their runs write from the results that are beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from privopt.experiments import (
    accuracy,
    benchmark_gradient,
    engines,
    intervals,
    model_choice,
    planning,
    questions,
    schemas,
    scorecards,
    several_classes,
    small_budgets,
    trees,
    tuning,
    wide_tables,
)
from privopt.mechanisms.estimators.expected_auc import AucCurve

DOCS = Path(__file__).resolve().parents[2] / "experiments" / "docs"
# Facts about the machine of a run.
MACHINE = re.compile(r"(<!-- fill: (?:machine|threads|versions?|packages|command) -->).*?<!-- end -->")
# The expectations of ``accuracy`` are a long sum, not a result in the file.
EXPECTED = re.compile(r"^.*exact expectation.*\n", re.MULTILINE)


def results(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / f"{name}.csv")


PAGES: dict[str, Callable[[], str]] = {
    "accuracy": lambda: accuracy.page(results("accuracy"), {}),
    "engines": lambda: engines.page(engines.in_order(results("engines")), ""),
    "gradient": lambda: benchmark_gradient.page(results("gradient"), results("sparse-steps"), (581_012, 54)),
    "intervals": lambda: intervals.page(results("intervals")),
    "planning": lambda: planning.page(
        results("planning"), {name: AucCurve.of_model(name) for name in planning.MODELS}
    ),
    "decision-trees": lambda: model_choice.page(results("model-choice")),
    "howto/several-classes": lambda: several_classes.page(results("several-classes")),
    "small-budgets": lambda: small_budgets.page(results("small-budgets")),
    "trees": lambda: trees.page(results("trees")),
    "tree-questions": lambda: questions.page(results("tree-questions")),
    "learned-schemas": lambda: schemas.page(results("schema-ranks"), results("schema-cards")),
    "scorecards": lambda: scorecards.page(results("scorecards"), "", ""),
    "tuning": lambda: tuning.page(results("tuning")),
    "wide-tables": lambda: wide_tables.page(results("wide-tables")),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_run_writes(name: str) -> None:
    shipped, made = (DOCS / f"{name}.md").read_text("utf-8"), PAGES[name]()
    kept, written = (EXPECTED.sub("", MACHINE.sub(r"\1", text)) for text in (shipped, made))
    assert written == kept

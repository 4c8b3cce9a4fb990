"""Synthetic populations and the rules that are compared on them are those that the package has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privopt.experiments import model_choice, questions
from privopt.experiments.workbench.tree_tasks import FAMILIES, SIGNALS, Population, populations
from privopt.problems.tables.predicates import Predicate, Predicates


@pytest.fixture(scope="module")
def made() -> list[Population]:
    return list(populations(1, rows=200))


def test_every_family_has_both_labels_and_declared_values(made: list[Population]) -> None:
    assert {(p.family, p.signal) for p in made} == {(f, s) for f in FAMILIES for s in SIGNALS}
    for population in made:
        assert 0.02 < population.labels.mean() < 0.9
        population.schema.codes(population.records)  # refuses undeclared levels


def test_the_present_rule_is_that_of_the_package(made: list[Population]) -> None:
    """The same cuts, from binned columns; the same weights, but for rounding to quarters, and to twelfths."""
    for population in made[:: len(SIGNALS)]:
        own = Predicates.of(population.schema)
        same = Predicates.of(questions.with_cuts(population.schema, questions._CUTS_HERE))
        asked = [[(q.name, q.kind) for q in found.questions] for found in (own, same)]
        assert asked[0] == asked[1]
        cuts = [[_number(q) for q in found.questions] for found in (own, same)]
        assert cuts[0] == pytest.approx(cuts[1], rel=1e-12)
        parts = questions._parts(same, questions._WEIGHTS_HERE) / questions._PARTS
        assert np.max(np.abs(own.weights / own.weights.max() - parts / parts.max())) <= 1 / 8 + 1 / 24 + 1e-9


def _number(question: Predicate) -> float:
    """A cut of a third is the text 1/3 in a binned column, and a double elsewhere."""
    return float(Fraction(question.value))


def test_no_budget_predicts_nothing_and_a_large_one_the_steps(made: list[Population]) -> None:
    population = next(p for p in made if (p.family, p.signal) == ("few levels", "steps"))
    found = [row for row in questions.expected(population, 0) if row.costs == "balanced"]
    by_strength = {s: np.mean([r.accuracy for r in found if r.strength == s]) for s in questions.STRENGTHS}
    values = [by_strength[s] for s in questions.STRENGTHS]
    assert values == sorted(values)
    assert 0.5 <= values[0] < values[-1] <= 1.0


def test_card_tree_and_both_are_measured_on_the_other_half(made: list[Population]) -> None:
    lines = model_choice.measured(model_choice.Cell(0, made[-1], 80, 1.0, 0))
    assert [line.model for line in lines] == ["card", "tree", "additive"]
    for line in lines:
        assert 0 <= line.balanced_accuracy <= 1
        assert 0 <= line.auc <= 1

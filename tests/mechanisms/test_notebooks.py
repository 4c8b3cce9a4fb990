"""Plans, models, schemas, ledgers and certificates as notebooks and ``print`` show them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from privopt.mechanisms import (
    DPGradientDescent,
    OPDisc,
    PrivacySpend,
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateSearchCV,
    PrivateTreeClassifier,
    SchemaPlan,
    evaluate,
    learn_schema,
)
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.oracles import Task, minimizer
from privopt.problems import Categorical, IntegerLattice, Numeric, Schema, ZeroOneHalfspace
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts

SCHEMA = Schema([Numeric("age <years>", 18, 98, step=20), Categorical("smoker", ["no", "yes"])])
CLASSES = ("no", "yes")


class Cells(HTMLParser):
    """Reads the texts of a table, and keeps the names of its elements."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(shown)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def records(n: int = 400) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    table = {"age <years>": rng.integers(18, 98, n), "smoker": rng.choice(["no", "yes"], n)}
    return table, np.where(rng.random(n) < table["age <years>"] / 120, "yes", "no")


def test_names_are_shown_as_they_are() -> None:
    cells = Cells(SCHEMA._repr_html_())
    assert {"age <years>", "smoker", "numeric", "categorical"} <= set(cells.texts)
    assert "years" not in cells.elements


@pytest.mark.parametrize(
    "kind", [PrivateHalfspaceClassifier, PrivateTreeClassifier, PrivateAdditiveTreeClassifier]
)
def test_a_plan_is_printed_and_shown_as_its_facts(kind: type) -> None:
    planned = kind(1.0, schema=SCHEMA, classes=CLASSES).plan(2000)
    text, shown = str(planned), Cells(planned._repr_html_()).texts
    assert f"spend: {planned.spend}" in text.split("\n")
    for name, fact in planned.facts.items():
        assert f"{name}: {fact}" in text
        assert fact in shown


def test_a_card_a_tree_and_an_evaluation_show_what_was_released() -> None:
    table, y = records()
    card = PrivateHalfspaceClassifier(5.0, schema=SCHEMA, classes=CLASSES, insecure_seed=1).fit(table, y)
    shown = Cells(card.card_._repr_html_()).texts
    assert card.card_.rule in shown
    for column in card.card_.columns:
        assert all(text in shown for line in column.lines() for text in line)
    tree = PrivateTreeClassifier(5.0, schema=SCHEMA, classes=CLASSES, insecure_seed=1).fit(table, y)
    assert tree.card_.to_svg() in tree.card_._repr_html_()
    report = evaluate(card, table, y, epsilon=1.0, insecure_seed=1)
    accuracy = report.metrics["accuracy"]
    assert f"{accuracy.value:.3f}" in Cells(report._repr_html_()).texts
    assert f"accuracy: {accuracy}" in str(report).split("\n")


def test_a_card_with_a_tree_shows_both() -> None:
    table, y = records()
    model = PrivateAdditiveTreeClassifier(5.0, schema=SCHEMA, classes=CLASSES, insecure_seed=1)
    card = model.fit(table, y).card_
    shown = Cells(card._repr_html_()).texts
    assert card.how in shown
    for column in card.card.columns:
        assert all(text in shown for line in column.lines() for text in line)
    assert card.tree.to_svg() in card._repr_html_()


def test_an_evaluation_of_several_classes_shows_its_metrics_and_its_confusion() -> None:
    table, y = records()
    kinds = np.where(y == "yes", "yes", np.where(table["smoker"] == "no", "no", "<perhaps>"))
    tree = PrivateTreeClassifier(5.0, schema=SCHEMA, classes=("no", "<perhaps>", "yes"), insecure_seed=1)
    found = evaluate(tree.fit(table, kinds), table, kinds, epsilon=1.0, insecure_seed=1)
    shown = Cells(found._repr_html_()).texts
    assert f"{found.metrics['recall of <perhaps>'].value:.3f}" in shown
    assert {str(count) for count in found.confusion.to_numpy().ravel()} <= set(shown)
    assert f"accuracy: {found.metrics['accuracy']}" in str(found).split("\n")


def test_a_learned_schema_and_its_plan_show_their_columns_and_their_spend() -> None:
    table, _ = records()
    types = {"age <years>": "number", "smoker": "text"}
    planned = SchemaPlan.plan(types, 400, epsilon=3.0, delta=1e-4)
    shown = Cells(planned._repr_html_()).texts
    assert {"age <years>", "7 cuts", str(planned.spend)} <= set(shown)
    assert f"spend: {planned.spend}" in str(planned).split("\n")
    learned = learn_schema(table, types=types, epsilon=3.0, delta=1e-4, insecure_seed=1)
    assert {"age <years>", "binned", "learn-schema"} <= set(Cells(learned._repr_html_()).texts)


def test_a_ledger_shows_its_budgets_and_a_lost_one_the_error(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", epsilon=3.0, delta=1e-6)
    with ledger.spending(PrivacySpend.pure(0.5, "counts")):
        pass
    assert {"3", "0.5"} <= set(Cells(ledger._repr_html_()).texts)
    for file in tmp_path.iterdir():
        file.unlink()
    assert "error" in Cells(ledger._repr_html_()).texts


def test_a_certificate_says_that_it_is_not_private_and_a_spend_what_it_is() -> None:
    problem = ZeroOneHalfspace(
        [[1, 0, 1], [0, 1, 1], [1, 1, 0]], [1, -1, 1], IntegerLattice(-1, 1, dimension=3)
    )
    plan = OPDisc.plan(ZeroOneHalfspace, problem.lattice, epsilon=1.0, delta=1e-6)
    release = plan.release(minimizer("enumerate").prepare(problem, Task.NORMALIZED))
    assert release.certificate is not None
    shown = " ".join(Cells(release.certificate._repr_html_()).texts)
    assert "not private" in shown
    assert "OPTIMAL" in shown
    assert "opdisc" in Cells(release.spend._repr_html_()).texts


def test_a_spend_shows_six_digits() -> None:
    spend = PrivacySpend.gdp(1 / 3, 1e-6, "noise")
    shown = Cells(spend._repr_html_()).texts
    assert {"0.333333", f"{spend.epsilon:.6g}"} <= set(shown)
    assert str(spend.epsilon) not in shown


def test_plans_of_mechanisms_show_their_noise_and_spend() -> None:
    lattice = OPDisc.plan(ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=3), epsilon=1.0, delta=1e-6)
    facts = RiskFacts(1000, 3, LogisticLoss())
    gradient = DPGradientDescent.plan(facts, epsilon=1.0, delta=1e-6)
    for plan, sigma in ((lattice, lattice.sigma), (gradient, gradient.noise["sigma"])):
        shown = Cells(plan._repr_html_()).texts
        assert {f"Plan of {plan.name}", str(plan.spend)} <= set(shown)
        assert str(sigma) in " ".join(shown)
    assert "ZeroOneHalfspace" in Cells(lattice._repr_html_()).texts


def test_a_summary_shows_its_intervals_and_what_they_are_about() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (2000, 2))
    model = PrivateLinearRegression(1.0, data_norm=1.0, label_range=(-1, 1), insecure_seed=1).fit(X, X[:, 0])
    summary = model.summary()
    shown = Cells(summary._repr_html_()).texts
    assert {"x0", "x1", "intercept", "95% interval", f"{summary['x0'].estimate:.4g}"} <= set(shown)
    assert any(summary.about in text for text in shown)


def test_the_plan_of_a_search_shows_its_candidates() -> None:
    tree = PrivateTreeClassifier(schema=SCHEMA, classes=CLASSES)
    planned = PrivateSearchCV(tree, {"max_depth": [1, 2]}, epsilon=1.0).plan(2000)
    shown = Cells(planned._repr_html_()).texts
    assert {"max_depth = 1", "max_depth = 2"} <= set(shown)

"""A schema and a model learned together: the accounting, one booking, and what is saved."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateTreeClassifier,
    fit_with_learned_schema,
)
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators import learned_fit
from privopt.mechanisms.estimators.booked_estimator import never_read
from privopt.mechanisms.estimators.booking import Unread
from privopt.mechanisms.estimators.learned_fit import LearnedFitPlan, delta_beside, learned_before
from privopt.mechanisms.privacy.accounting import beside_range_delta, gaussian_mu, pure_to_gdp
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.errors import InvalidInputError, PrivOptError

N = 4000
TYPES = {"age": "whole", "dose": "number", "town": "text"}


def table() -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    age = rng.integers(17, 91, N)
    cells = {
        "age": age.astype(object),
        "dose": rng.lognormal(size=N).astype(object),
        "town": rng.choice(["Bern", "Graz"], N).astype(object),
    }
    return cells, np.where(age + 10 * rng.normal(size=N) > 50, "ill", "well")


def models() -> dict[str, Any]:
    classes = ("ill", "well")
    return {
        "gdp": PrivateLogisticRegression(2.0, mechanism="output-perturbation", classes=classes),
        "pure": PrivateTreeClassifier(2.0, classes=classes),
    }


def test_the_delta_of_a_bit_beside_a_gaussian_is_an_integral() -> None:
    """P[loss > epsilon] weighted, by quadrature over the Gaussian and the sum over the bit."""
    mu, beside, epsilon = 0.4, 0.7, 1.1
    z = np.linspace(-12, 12, 400_001)
    p = math.exp(beside) / (1 + math.exp(beside))
    total = 0.0
    for share, loss in ((p, beside), (1 - p, -beside)):
        gain = np.maximum(0, -np.expm1(epsilon - loss - (mu * z + mu * mu / 2)))
        total += share * float(np.trapezoid(stats.norm.pdf(z) * gain, z))
    assert delta_beside(mu, beside, epsilon) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("types", [TYPES, {"age": "whole", "dose": "number"}])
def test_schema_and_model_compose_to_the_whole_and_share_it(types: dict[str, str]) -> None:
    common: dict[str, Any] = {"share": 0.1, "epsilon": 2.0, "delta": 1e-6}
    plan = LearnedFitPlan.plan(types, N, gaussian=True, **common)
    left = 1e-6 - math.fsum(column.delta for column in plan.schema.columns)
    whole = gaussian_mu(2.0, left)
    assert math.hypot(plan.schema.level, plan.mu) <= whole
    assert plan.schema.level**2 / whole**2 == pytest.approx(0.1, rel=1e-3)
    assert plan.mu**2 / whole**2 == pytest.approx(0.9, rel=1e-3)
    assert gaussian_mu(plan.model_epsilon, plan.model_delta) <= plan.mu
    other = LearnedFitPlan.plan(types, N, gaussian=False, **common)
    spent = delta_beside(other.schema.level, other.model_epsilon, 2.0) + other.model_delta
    assert spent <= left
    assert spent == pytest.approx(left, rel=1e-6)
    assert 0 < other.model_epsilon < plan.model_epsilon < 2.0


def test_a_seeded_card_composes_by_its_level_and_keeps_most_of_epsilon() -> None:
    card, given = PrivateHalfspaceClassifier(2.0, classes=("ill", "well")), Unread(N, never_read)
    numbers = {"age": "whole", "dose": "number"}
    plan, spend = learned_fit._planned(card, given, numbers, 0.1, {}, 1e-6)
    assert plan.gaussian
    assert 0.94 < plan.model_epsilon / 2.0 < 0.95
    assert spend.epsilon == plan.model_epsilon
    made = learned_fit._with_budget(card, plan, learned_fit._stand_in(plan.schema)).plan(N).plan
    choice = pure_to_gdp(made.choice.width / 2)
    assert math.hypot(plan.schema.level, made.seed.spend.level, choice) <= gaussian_mu(2.0, 1e-6)
    # Both together by the proof of the card itself, whose choice costs its range: no more than the whole.
    together = math.hypot(plan.schema.level, made.seed.spend.level)
    assert beside_range_delta(together, made.choice.width, 2.0) <= 1e-6
    risky, _ = learned_fit._planned(card.set_params(risk_share=0.2), given, numbers, 0.1, {}, 1e-6)
    assert not risky.gaussian  # a histogram of risks has no such level


@pytest.mark.parametrize("kind", ["gdp", "pure"])
def test_one_booking_of_the_whole_and_a_model_that_holds_its_schema(kind: str, tmp_path: Path) -> None:
    book, (cells, y) = Ledger.create(tmp_path / "ledger", 3.0, 1e-3), table()
    asked = models()[kind].set_params(ledger=book)
    found = fit_with_learned_schema(asked, cells, y, types=TYPES)
    (entry,) = book.entries()
    assert (entry.spend.epsilon, entry.spend.delta, entry.spend.notion) == (2.0, 1 / N**2, "approximate")
    assert entry.spend == found.spend_
    assert found.spend_.mechanism.startswith("learn-schema, ")
    assert found.spend_.guaranteed
    saved = json.loads(json.dumps(found.to_dict()))
    assert [c["name"] for c in saved["schema"]["columns"]] == list(TYPES)
    assert saved["spend"] == found.spend_.to_dict()
    again = type(found).from_dict(saved)
    assert list(again.predict(cells)) == list(found.predict(cells))
    assert asked.schema is None
    assert not hasattr(asked, "spend_")
    with pytest.raises(BudgetExceededError):
        fit_with_learned_schema(asked, {**cells, "age": Unreadable()}, y, types=TYPES)
    assert len(book.entries()) == 1


class Unreadable:
    dtype, shape = np.dtype(object), (N,)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("read before it was booked")


def test_what_no_plan_can_do_is_refused_before_a_booking(tmp_path: Path) -> None:
    book, (cells, y) = Ledger.create(tmp_path / "ledger", 3.0, 1e-3), table()
    undeclared = PrivateLogisticRegression(2.0, ledger=book)
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (undeclared, {}, "classes"),
        (models()["gdp"].set_params(ledger=book), {"share": 1.0}, r"in \(0, 1\)"),
        (PrivateHalfspaceClassifier(0.01, classes=("ill", "well"), ledger=book), {}, "too few records"),
    ]
    for model, more, message in refused:
        with pytest.raises(PrivOptError, match=message):
            fit_with_learned_schema(model, cells, y, **{"types": TYPES, **more})
    with pytest.raises(InvalidInputError, match="schema must be None"):
        fit_with_learned_schema(models()["gdp"].set_params(schema={"columns": []}), cells, y)
    assert book.entries() == []


def test_classes_of_a_table_in_an_engine_are_declared() -> None:
    ibis = pytest.importorskip("ibis")
    there = ibis.memtable({"age": [17.0, 91.0], "state": ["ill", "well"]})
    for model in (PrivateLogisticRegression(2.0), PrivateTreeClassifier(2.0)):
        with pytest.raises(InvalidInputError, match="classes: declare them; nothing is inferred"):
            fit_with_learned_schema(model, there, "state")


def test_a_search_is_refused_before_a_booking_where_the_schema_is_not_known(tmp_path: Path) -> None:
    book, (cells, y) = Ledger.create(tmp_path / "ledger", 9.0, 1e-3), table()
    for mechanism in ("exponential", "rspm"):
        card = PrivateHalfspaceClassifier(5.0, mechanism=mechanism, classes=("ill", "well"), ledger=book)
        wide = {f"town {k}": cells["town"] for k in range(12)}
        with pytest.raises(InvalidInputError, match="may not end for a schema that is not known yet"):
            fit_with_learned_schema(card, wide, y, types=dict.fromkeys(wide, "text"))
    assert book.entries() == []


def wide_table() -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(1)
    town, names = rng.integers(0, 20, N), np.array([f"town {k:02}" for k in range(20)], dtype=object)
    return {"town": names[town], "other": names[rng.integers(0, 20, N)]}, town % 2


@pytest.mark.parametrize(
    "model",
    [
        PrivateHalfspaceClassifier(4.0, mechanism="exponential", classes=(0, 1)),
        PrivateHalfspaceClassifier(4.0, lattice=(-1, 1), classes=(0, 1)),
    ],
)
def test_a_model_that_takes_fewer_categories_than_were_learned_has_the_most_frequent(model: Any) -> None:
    """One category, as planned, is summed over exactly; twenty may not be."""
    cells, y = wide_table()
    known = (
        pytest.warns(UserWarning, match="most frequent ones") if model.mechanism != "auto" else nullcontext()
    )
    with known:
        found = fit_with_learned_schema(model, cells, y, types=dict.fromkeys(cells, "text"))
    assert found.spend_.epsilon == 4.0
    levels = found.schema_.columns[0].levels
    assert len(levels) > 2
    assert (len(levels) < 20) == (model.mechanism != "auto")


def test_what_was_learned_survives_a_model_that_fails() -> None:
    cells, y = table()
    y = y.astype(object)
    y[7] = "undeclared"
    with pytest.raises(InvalidInputError) as caught:
        fit_with_learned_schema(models()["gdp"], cells, y, types=TYPES)
    found = learned_before(caught.value)
    assert found is not None
    assert [column.name for column in found.schema.columns] == list(TYPES)
    assert "attribute `learned`" in caught.value.__notes__[0]


def test_identifiers_alone_make_a_constant_model_and_no_error_after_the_booking() -> None:
    cells = {"id": np.array([f"patient {k}" for k in range(N)], dtype=object)}
    found = fit_with_learned_schema(models()["gdp"], cells, table()[1], types={"id": "text"})
    assert len(set(found.predict(cells))) == 1

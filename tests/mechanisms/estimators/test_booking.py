"""Whatever asks for records is booked before they are read: no refusal that depends on them is free."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateRobustRegression,
    PrivateRuleListClassifier,
    PrivateSigmoidClassifier,
    PrivateTreeClassifier,
    evaluate,
)
from privopt.mechanisms.errors import BudgetExceededError, LedgerError
from privopt.mechanisms.estimators.booking import Unread, booked
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.errors import OracleError
from privopt.problems import CountedRecords, InvalidInputError, Numeric, PrivOptError, Schema
from privopt.problems.tables.columns import Categorical

N = 60
SCHEMA = Schema([Numeric("income", 0, 100, outside="refuse"), Categorical("smoker", ["no", "yes"])])
CLASSES = ("ill", "well")
Fit = Callable[[pd.DataFrame, Any, Any], object]


def records() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.integers(0, 101, N) / 1.0, "smoker": rng.choice(["no", "yes"], N)})
    return frame, pd.Series(rng.choice(CLASSES, N), name="state")


def fit(kind: Any, **facts: Any) -> Fit:
    return lambda X, y, ledger: kind(1.0, ledger=ledger, **facts).fit(X, y)


def numbers(kind: Any, **facts: Any) -> Fit:
    """Of two columns of numbers, without a schema."""

    def run(X: pd.DataFrame, y: Any, ledger: Any) -> object:
        plain = X.assign(smoker=(X["smoker"] == "yes") / 1.0)
        return kind(1.0, ledger=ledger, **facts).fit(plain, y)

    return run


@functools.cache
def fitted_model() -> PrivateLogisticRegression:
    return PrivateLogisticRegression(1.0, schema=SCHEMA, classes=CLASSES, insecure_seed=0).fit(*records())


def scored(X: pd.DataFrame, y: Any, ledger: Any) -> object:
    return evaluate(fitted_model(), X, y, ledger=ledger)


def in_partitions(run: Fit) -> Fit:
    def parted(X: pd.DataFrame, y: Any, ledger: Any) -> object:
        dd = pytest.importorskip("dask.dataframe")
        both = dd.from_pandas(X.assign(state=np.asarray(y)), npartitions=3)
        return run(both.drop(columns=["state"]), both["state"], ledger)

    return parted


def in_engine(run: Fit) -> Fit:
    def grouped(X: pd.DataFrame, y: Any, ledger: Any) -> object:
        ibis = pytest.importorskip("ibis")
        return run(ibis.memtable(X.assign(state=np.asarray(y))), "state", ledger)

    return grouped


def regression(y: Any) -> Any:
    return (pd.Series(y) == "ill") / 1.0


DECLARED = {"schema": SCHEMA, "classes": CLASSES}
CARD, LINEAR = fit(PrivateHalfspaceClassifier, **DECLARED), fit(PrivateLogisticRegression, **DECLARED)
USES: dict[str, Fit] = {
    "a card": CARD,
    "an exact draw": fit(PrivateHalfspaceClassifier, mechanism="exponential", **DECLARED),
    "a balanced card with risks": fit(
        PrivateHalfspaceClassifier, class_weight="balanced", risk_share=0.2, **DECLARED
    ),
    "a card of partitions": in_partitions(CARD),
    "a card of an engine's table": in_engine(CARD),
    "logistic": LINEAR,
    "balanced logistic": fit(PrivateLogisticRegression, class_weight="balanced", **DECLARED),
    "logistic of partitions": in_partitions(LINEAR),
    "logistic of an engine's table": in_engine(LINEAR),
    "logistic of numbers": numbers(PrivateLogisticRegression, data_norm=1.0, classes=CLASSES),
    "sigmoid": fit(PrivateSigmoidClassifier, **DECLARED),
    "robust": fit(PrivateRobustClassifier, **DECLARED),
    "robust, of numbers": numbers(PrivateRobustClassifier, classes=CLASSES),
    "a balanced tree with risks": fit(
        PrivateTreeClassifier, class_weight="balanced", risk_share=0.2, **DECLARED
    ),
    "rules of partitions": in_partitions(fit(PrivateRuleListClassifier, **DECLARED)),
    "a tree of an engine's table": in_engine(fit(PrivateTreeClassifier, **DECLARED)),
    "an additive tree": fit(PrivateAdditiveTreeClassifier, **DECLARED),
    "an evaluation": scored,
    "an evaluation of partitions": in_partitions(scored),
    "an evaluation of an engine's table": in_engine(scored),
}


def one_cell(column: str, cell: object) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    def change() -> tuple[pd.DataFrame, pd.Series]:
        X, y = records()
        if column == "state":
            y = y.astype(object)
            y[7] = cell
        else:
            X[column] = X[column].astype(object) if isinstance(cell, str) else X[column]
            X.loc[7, column] = cell
        return X, y

    return change


TABLES = {
    "nothing": records,
    "a number beyond its range": one_cell("income", 1000.0),
    "a missing number": one_cell("income", np.nan),
    "text among numbers": one_cell("income", "12 or so"),
    "an unknown category": one_cell("smoker", "sometimes"),
    "an unknown label": one_cell("state", "better"),
    "a missing label": one_cell("state", None),
}


class Cell:
    """A cell that counts how often it is looked at."""

    looks = 0

    def look(self, *_: object) -> Any:
        Cell.looks += 1
        raise TypeError("nothing reads this cell")

    __str__ = __repr__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = __float__ = look
    __int__ = __index__ = __hash__ = __array__ = __len__ = __iter__ = __add__ = __sub__ = __mul__ = look


def unreadable(shape: tuple[int, ...]) -> Any:
    cells = np.empty(shape, dtype=object)
    for at in np.ndindex(shape):
        cells[at] = Cell()
    return cells


ODD_CELLS: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324, 2**63, 10**400, 1j, True, None, pd.NA, pd.NaT),
    *(np.datetime64("NaT"), np.float32(1e38), Decimal("sNaN"), Decimal("1e999"), Fraction(1, 3), b"7", [7]),
    *({}, object(), "", " ", "nan", "7", "7 or so", "1e999", "\0", "\ud800", "ill", "yes", (), np.arange(2)),
)


def odd_table(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """The usual records with one to three odd cells, in a column or in the labels."""
    rng, (X, y) = np.random.default_rng(seed), records()
    columns: dict[str, Any] = {"income": X["income"], "smoker": X["smoker"], "state": y}
    name = list(columns)[rng.integers(3)]
    column = columns[name].to_numpy(dtype=object)
    for row in rng.integers(0, N, rng.integers(1, 4)):
        column[row] = ODD_CELLS[rng.integers(len(ODD_CELLS))]
    columns[name] = pd.Series(column, dtype=object)
    return pd.DataFrame({"income": columns["income"], "smoker": columns["smoker"]}), columns["state"]


def as_numbers(y: Any) -> Any:
    """The labels of a regression; odd ones as they are."""
    return pd.Series([{"ill": 1.0, "well": 0.0}.get(v, v) if isinstance(v, str) else v for v in y])


IN_MEMORY: dict[str, Fit] = {
    **{use: run for use, run in USES.items() if "partitions" not in use and "engine" not in use},
    "robust, of numbers": lambda X, y, ledger: PrivateRobustClassifier(
        1.0, ledger=ledger, classes=CLASSES
    ).fit(X, y),
    "logistic of numbers": lambda X, y, ledger: PrivateLogisticRegression(
        1.0, ledger=ledger, data_norm=1.0, classes=CLASSES
    ).fit(X, y),
    "regression": lambda X, y, ledger: PrivateLinearRegression(
        1.0, ledger=ledger, schema=SCHEMA, label_range=(0, 1)
    ).fit(X, as_numbers(y)),
    "robust regression": lambda X, y, ledger: PrivateRobustRegression(1.0, ledger=ledger, schema=SCHEMA).fit(
        X, as_numbers(y)
    ),
}


@pytest.mark.parametrize("use", IN_MEMORY)
def test_with_an_exhausted_ledger_no_cell_is_looked_at(use: str, tmp_path: Path) -> None:
    if "regression" in use:
        pytest.skip("this test would read the labels itself")
    book, before = exhausted(tmp_path / "ledger"), Cell.looks
    X = pd.DataFrame({"income": unreadable((N,)), "smoker": unreadable((N,))})
    with pytest.raises(BudgetExceededError):
        IN_MEMORY[use](X, unreadable((N,)), book)
    assert Cell.looks == before
    assert len(book.entries()) == 1


def check_paid(run: Fit, table: tuple[Any, Any], place: Path) -> None:
    """Whatever the cells are: one booking, an error of ours or none, and no second fit."""
    book = Ledger.create(place, 1.0, 0.5)
    state, notes = "committed", ["counts as spent in"]
    try:
        run(*table, book)
    except PrivOptError as error:
        state, notes = "reserved", error.__notes__
    assert any("counts as spent in" in note for note in notes)
    assert [e.state for e in book.entries()] == [state]
    with pytest.raises(BudgetExceededError):
        run(*records(), book)


@pytest.mark.parametrize("use", IN_MEMORY)
def test_odd_cells_are_paid_for_whatever_becomes_of_them(use: str, tmp_path: Path) -> None:
    for seed in range(4):
        check_paid(IN_MEMORY[use], odd_table(100 * len(use) + seed), tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.parametrize("use", IN_MEMORY)
def test_many_odd_cells_are_paid_for_whatever_becomes_of_them(use: str, tmp_path: Path) -> None:
    for seed in range(200):
        check_paid(IN_MEMORY[use], odd_table(seed), tmp_path / str(seed))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger", 1.0, 0.5)


def exhausted(path: Path) -> Ledger:
    made = Ledger.create(path, 1.0, 0.5)
    made.reserve(PrivacySpend.pure(0.5, "before"))
    return made


@pytest.mark.parametrize("use", USES)
def test_an_exhausted_ledger_says_the_same_of_all_tables(use: str, tmp_path: Path) -> None:
    """Else the answer, which costs nothing, would tell them apart."""
    book, said = exhausted(tmp_path / "ledger"), set()
    for what, table in TABLES.items():
        if "engine" in use and what == "text among numbers":  # the types of its columns are public
            continue
        with pytest.raises(BudgetExceededError) as caught:
            USES[use](*table(), book)
        said.add(str(caught.value))
        assert not getattr(caught.value, "__notes__", ())
    assert len(said) == 1
    assert len(book.entries()) == 1


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", list(TABLES)[1:])
def test_a_refusal_that_depends_on_records_is_paid_for(use: str, what: str, ledger: Ledger) -> None:
    if "numbers" in use and what in ("an unknown category", "a number beyond its range"):
        pytest.skip("nothing is declared of it")
    if "engine" in use and what == "text among numbers":
        pytest.skip("the types of an engine's columns are public")
    with pytest.raises(PrivOptError) as caught:
        USES[use](*TABLES[what](), ledger)
    assert any("counts as spent in" in note for note in caught.value.__notes__)
    assert [e.state for e in ledger.entries()] == ["reserved"]
    assert ledger.total().epsilon == 1.0
    with pytest.raises(LedgerError, match="stays spent"):
        ledger.cancel(ledger.entries()[0].identifier, "nothing was read")


def test_the_largest_income_is_not_found_by_refusals(tmp_path: Path) -> None:
    """Bisection told it in 27 fits that no ledger paid for, when cells were read first."""
    (X, y), book = records(), exhausted(tmp_path / "ledger")
    for largest in (25.0, 50.0, 75.0, 100.0):
        schema = Schema([Numeric("income", 0, largest, outside="refuse")])
        for kind in (PrivateHalfspaceClassifier, PrivateLogisticRegression):
            with pytest.raises(BudgetExceededError):
                kind(1.0, schema=schema, classes=CLASSES, ledger=book).fit(X, y)


def test_regression_is_booked_before_its_labels_are_read(ledger: Ledger, tmp_path: Path) -> None:
    X, y = records()
    labels = regression(y)
    labels[3] = np.nan
    models: list[Any] = [
        PrivateLinearRegression(1.0, schema=SCHEMA, label_range=(0, 1)),
        PrivateRobustRegression(1.0, schema=SCHEMA),
    ]
    for k, model in enumerate(models):
        book = Ledger.create(tmp_path / str(k), 1.0, 0.5)
        with pytest.raises(InvalidInputError, match="NaN"):
            model.set_params(ledger=book).fit(X, labels)
        assert book.total().epsilon == 1.0
        with pytest.raises(BudgetExceededError):
            model.fit(X, labels)


MISTAKES: dict[str, tuple[Any, str]] = {
    "a column that is not there": (lambda X, y: (X[["income"]], y), "column 'smoker'"),
    "too few labels": (lambda X, y: (X, y[:-1]), "60 rows and y has 59"),
    "no labels": (lambda X, y: (X, None), "requires y"),
    "a number for labels": (lambda X, y: (X, 5), "one label per record"),
    "no records": (lambda X, y: (X[:0], y[:0]), "no records|0 sample"),
    "numbers for a table": (lambda X, y: (X["income"].to_numpy(), y), "array"),
    "a table without columns": (lambda X, y: (X.to_numpy()[:, :0], y), "no columns|0 feature"),
    "two columns of labels": (lambda X, y: (X, np.stack([y, y], axis=1)), "1d array"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("use", ["a card", "logistic", "robust"])
def test_what_public_facts_decide_is_refused_before_anything_is_booked(
    use: str, mistake: str, ledger: Ledger
) -> None:
    change, said = MISTAKES[mistake]
    with pytest.raises(InvalidInputError, match=said):
        USES[use](*change(*records()), ledger)
    assert ledger.entries() == []


@pytest.mark.parametrize(
    ("kind", "facts", "lacking"),
    [
        (PrivateHalfspaceClassifier, {"classes": CLASSES}, "schema"),
        (PrivateHalfspaceClassifier, {"schema": SCHEMA}, "classes"),
        (PrivateLogisticRegression, {"schema": SCHEMA}, "classes"),
        (PrivateLogisticRegression, {"classes": CLASSES}, "schema or data_norm"),
        (PrivateLinearRegression, {"schema": SCHEMA}, "label_range"),
        (PrivateRobustClassifier, {}, "classes"),
    ],
)
def test_with_a_ledger_nothing_is_read_off_the_records(
    kind: Any, facts: Any, lacking: str, ledger: Ledger
) -> None:
    X, y = records()
    X = X if "schema" in facts else X[["income"]]
    with pytest.raises(InvalidInputError, match=f"declare {lacking}: with a ledger"):
        kind(1.0, ledger=ledger, **facts).fit(X, regression(y) if "Regression" in kind.__name__ else y)
    assert ledger.entries() == []


def test_an_unknown_oracle_is_refused_before_anything_is_booked(ledger: Ledger) -> None:
    for mechanism in ("exponential", "rspm", "seeded"):
        model = PrivateHalfspaceClassifier(
            1.0, mechanism=mechanism, oracle="nobody", ledger=ledger, **DECLARED
        )
        with pytest.raises(OracleError, match="nobody"):
            model.fit(*records())
    assert ledger.entries() == []


def test_counted_records_are_booked(ledger: Ledger) -> None:
    X, y = records()
    label = (y == "well").to_numpy().astype(np.int64)
    counted = CountedRecords.of(SCHEMA, SCHEMA.codes(X), CLASSES, label)
    other = Schema([Numeric("income", 0, 100)])
    with pytest.raises(InvalidInputError, match="counted by another schema"):
        PrivateHalfspaceClassifier(1.0, schema=other, classes=CLASSES, ledger=ledger).fit(counted)
    with pytest.raises(InvalidInputError, match="leave y out"):
        PrivateHalfspaceClassifier(1.0, ledger=ledger, **DECLARED).fit(counted, y)
    assert ledger.entries() == []
    PrivateHalfspaceClassifier(1.0, ledger=ledger, **DECLARED).fit(counted)
    with pytest.raises(BudgetExceededError):
        PrivateLogisticRegression(1.0, ledger=ledger, **DECLARED).fit(counted)


def test_a_booking_hands_records_out_and_nothing_else_does(ledger: Ledger) -> None:
    read: list[int] = []
    unread = Unread(3, lambda: read.append(len(ledger.entries()))).then(lambda _: "records")
    assert not read
    with booked(ledger, PrivacySpend.pure(0.7, "m"), unread) as content:
        assert content == "records"
    assert read == [1]
    with pytest.raises(BudgetExceededError), booked(ledger, PrivacySpend.pure(0.7, "m"), unread):
        pass
    assert read == [1]


def test_estimators_tell_nobody_the_password_of_a_ledger() -> None:
    url = "postgresql://ana:hunter2@h/base#adult"
    kinds: list[Any] = [PrivateHalfspaceClassifier, PrivateLogisticRegression, PrivateRobustRegression]
    for kind in kinds:
        model = kind(1.0, ledger=url)
        for one in (model, clone(model), kind().set_params(ledger=url), pickle.loads(pickle.dumps(model))):
            texts = [repr(one), str(one.get_params()), str(pickle.dumps(one)), str(vars(one))]
            assert all("hunter2" not in text for text in [*texts, one._repr_html_()])
            assert "postgresql://ana@h/base#adult" in repr(one)
        assert clone(model).ledger.secrets == ("hunter2",)  # copies in this process go on
        assert pickle.loads(pickle.dumps(model)).ledger.secrets == ()
        assert kind(ledger="ledger.db").get_params()["ledger"] == "ledger.db"

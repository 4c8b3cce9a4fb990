"""Ambient budgets: every release within is booked once, in whatever thread or process it runs."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateLogisticRegression,
    PrivateSearchCV,
    PrivateTreeClassifier,
    budget,
    compare,
    evaluate,
    learn_schema,
)
from privopt.mechanisms.errors import BudgetExceededError, LedgerError, PrivacyParameterError
from privopt.mechanisms.estimators.repeats import RepeatedReleaseWarning
from privopt.mechanisms.privacy import ambient
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.oracles.limits import Limits
from privopt.problems import InvalidInputError, Schema
from privopt.problems.tables.columns import Categorical

SCHEMA = Schema([Categorical("smoker", ["no", "yes"]), Categorical("town", ["a", "b", "c"])])
DECLARED: dict[str, Any] = {"schema": SCHEMA, "classes": ("ill", "well")}
N = 60


def records() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"smoker": rng.choice(["no", "yes"], N), "town": rng.choice(["a", "b", "c"], N)})
    return frame, pd.Series(rng.choice(["ill", "well"], N))


def tree(epsilon: float = 0.5, **more: Any) -> PrivateTreeClassifier:
    """A pure mechanism, so that epsilons add up and delta stays 0."""
    return PrivateTreeClassifier(epsilon, max_depth=1, **DECLARED, **more)


def additive() -> PrivateAdditiveTreeClassifier:
    return PrivateAdditiveTreeClassifier(0.5, max_depth=1, **DECLARED)


def search() -> PrivateSearchCV:
    return PrivateSearchCV(tree(), {"max_depth": [1, 2]}, epsilon=0.5)


def learned() -> Any:
    twice = pd.concat([records()[0]] * 2)  # of 60 records no category is found
    return learn_schema(twice, epsilon=0.5, delta=0.01, types={"smoker": "text", "town": "text"})


def released() -> PrivateTreeClassifier:
    return PrivateTreeClassifier(1.0, max_depth=1, insecure_seed=0, **DECLARED).fit(*records())


RELEASES: dict[str, Callable[[], Any]] = {
    "a fit": lambda: tree().fit(*records()),
    "a fit of a card and a tree": lambda: additive().fit(*records()),
    "a search": lambda: search().fit(*records()),
    "a learned schema": learned,
}


@contextmanager
def another_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process knows that was started before the block."""
    with monkeypatch.context() as patched:
        patched.setattr(ambient, "_TOKEN", "another")
        patched.setattr(ambient, "_OPEN", [])
        here = ambient._HERE.set(())
        yield
        ambient._HERE.reset(here)


@pytest.mark.parametrize("what", RELEASES)
def test_every_release_is_booked_once_and_refused_before_it_reads(what: str) -> None:
    with budget(epsilon=0.7, delta=0.02) as book:
        RELEASES[what]()
        assert book.total().epsilon == pytest.approx(0.5, rel=1e-6)
        assert [entry.state for entry in book.entries()] == ["committed"]
        with pytest.raises(BudgetExceededError):
            RELEASES[what]()
        assert len(book.entries()) == 1


def test_evaluations_are_booked() -> None:
    model = released()
    with budget(epsilon=1) as book:
        evaluate(model, *records(), epsilon=0.4)
        with pytest.raises(BudgetExceededError):
            evaluate(model, *records(), epsilon=0.7)
    assert book.total().epsilon == 0.4


def test_release_with_a_ledger_of_its_own_is_booked_there_alone(tmp_path: Path) -> None:
    own = Ledger.create(tmp_path / "own.db", 1)
    with budget(epsilon=1) as book:
        tree(ledger=own).fit(*records())
    assert (own.total().epsilon, book.total().epsilon) == (0.5, 0)


def test_nothing_is_inferred_within_a_budget() -> None:
    with budget(epsilon=1) as book, pytest.raises(InvalidInputError, match="declare classes"):
        PrivateTreeClassifier(0.5, schema=SCHEMA).fit(*records())
    assert book.entries() == []


def test_reproducible_noise_is_refused() -> None:
    with budget(epsilon=1), pytest.raises(PrivacyParameterError, match="reproducible"):
        tree(insecure_seed=0).fit(*records())


def test_budgets_nest_and_one_refusal_books_in_none(tmp_path: Path) -> None:
    durable = Ledger.create(tmp_path / "ledger.db", 0.8)
    with budget(ledger=durable), budget(epsilon=2) as inner:
        tree().fit(*records())
        with pytest.raises(BudgetExceededError, match=r"ledger\.db"):
            tree().fit(*records())
    with budget(epsilon=0.3) as small, budget(epsilon=2) as large, pytest.raises(BudgetExceededError):
        tree().fit(*records())
    with budget(epsilon=2) as first, budget(epsilon=0.3) as second, pytest.raises(BudgetExceededError):
        tree().fit(*records())
    assert [len(book.entries()) for book in (durable, inner)] == [1, 1]
    assert [book.entries() for book in (small, large, first, second)] == [[], [], [], []]


def test_one_ledger_around_twice_is_booked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "ledger.db"
    for name in ("adult", "adult/ana"):
        Ledger.create(f"{place}#{name}", 2)
    with budget(ledger=f"{place}#adult"), budget(ledger=f"{place}#adult/ana"):
        tree().fit(*records())
    plain = Ledger.create(tmp_path / "plain.db", 2)
    monkeypatch.setenv("PRIVOPT_LEDGER", str(tmp_path / "plain.db"))
    with budget(ledger=f"{tmp_path / 'plain.db'}#main"), budget(ledger=plain):
        tree().fit(*records())
    assert [spent.epsilon for _, spent in Ledger(place).budgets().values()] == [0.5, 0.5]
    assert plain.total().epsilon == 0.5


def test_environment_variable_is_around_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable = Ledger.create(tmp_path / "ledger.db", 0.8)
    monkeypatch.setenv("PRIVOPT_LEDGER", durable.address)
    tree().fit(*records())
    with budget(epsilon=1) as book, pytest.raises(BudgetExceededError):
        tree().fit(*records())
    assert (durable.total().epsilon, book.total().epsilon) == (0.5, 0)
    monkeypatch.setenv("PRIVOPT_LEDGER", str(tmp_path / "absent.db"))
    with pytest.raises(LedgerError, match="no ledger"):
        tree().fit(*records())
    monkeypatch.setenv("PRIVOPT_LEDGER", "")
    tree().fit(*records())


def test_ledger_of_a_block_is_the_same_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    durable = Ledger.create("ledger.db", 1)
    (tmp_path / "elsewhere").mkdir()
    other = Ledger.create(tmp_path / "elsewhere" / "ledger.db", 1)
    with budget(ledger="ledger.db"):
        monkeypatch.chdir(tmp_path / "elsewhere")
        tree().fit(*records())
    monkeypatch.chdir(tmp_path)
    assert durable.total().epsilon == 0.5
    assert other.entries() == []


def test_exception_leaves_the_block_but_not_the_spend() -> None:
    X, y = records()
    X.loc[7, "town"] = "elsewhere"
    with pytest.raises(InvalidInputError) as error, budget(epsilon=1) as book:
        tree().fit(X, y)
    assert "counts as spent" in "".join(error.value.__notes__)
    assert book.total().epsilon == 0.5
    tree().fit(*records())  # no budget any more
    assert book.total().epsilon == 0.5


def test_total_or_ledger(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "several.db#a", 1)
    Ledger.create(tmp_path / "several.db#b", 1)
    for wrong in ({}, {"epsilon": 1.0, "ledger": "x.db"}, {"epsilon": -1.0}):
        with pytest.raises(PrivacyParameterError), budget(**wrong):  # type: ignore[arg-type]
            pass
    for absent in ("none.db", "several.db"):
        with pytest.raises(LedgerError), budget(ledger=tmp_path / absent):
            pass
    assert ambient.addresses_around() == ()


def test_file_of_a_total_goes_with_its_ledger() -> None:
    with budget(epsilon=1) as book:
        place = Path(book.address)
        assert place.exists()
    assert book.total().epsilon == 0
    del book
    gc.collect()
    assert not place.parent.exists()


def test_fit_in_a_callback_is_booked_by_itself() -> None:
    calls: list[object] = []

    def once(_: object) -> None:
        if not calls:
            calls.append(tree().fit(*records()))

    X = np.random.default_rng(0).uniform(-0.5, 0.5, (N, 2))
    model = PrivateLogisticRegression(
        0.5, mechanism="dp-gd", data_norm=1.0, classes=(False, True), steps=3, limits=Limits(on_progress=once)
    )
    with budget(epsilon=2, delta=0.01) as book:
        model.fit(X, X[:, 0] > 0)
    assert calls
    assert book.total().epsilon == pytest.approx(1.0)


def test_threads_book_in_open_blocks_and_blocks_of_their_own() -> None:
    with budget(epsilon=2) as book, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: tree().fit(*records()), range(2)))

        def apart() -> float:
            with budget(epsilon=1) as own:
                tree().fit(*records())
            tree(0.1).fit(*records())
            return own.total().epsilon

        assert pool.submit(apart).result() == 0.5
    assert book.total().epsilon == 1.6  # the thread was started within: its block is, too
    entered, left = threading.Event(), threading.Event()

    def holder() -> None:
        with budget(epsilon=0.1):
            entered.set()
            left.wait()

    def other() -> None:
        with budget(epsilon=1) as own:
            with pytest.raises(BudgetExceededError):  # it may have been started in the block of the holder
                tree().fit(*records())
            left.set()
            done.result()
            tree().fit(*records())
        assert own.total().epsilon == 0.5

    with ThreadPoolExecutor(2) as pool:
        done = pool.submit(holder)
        entered.wait()
        with budget(epsilon=1) as mine:
            tree().fit(*records())  # not refused by the block of the other thread
        assert mine.total().epsilon == 0.5
        pool.submit(other).result()


def test_estimators_take_the_budget_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with budget(epsilon=1.2) as book:
        sent = pickle.dumps([tree(), search(), make_pipeline(tree())])
        here = pickle.loads(sent)
        assert here[0].ledger is None
        assert copy.copy(here[0]).ledger is None
        with another_process(monkeypatch):
            there = pickle.loads(sent)
            assert there[0].ledger is not None
            clone(there[0]).fit(*records())
            clone(there[1]).fit(*records())
            assert book.total().epsilon == pytest.approx(1.0)
            with pytest.raises(BudgetExceededError):
                clone(there[2]).fit(*records())
            with budget(epsilon=1) as around:
                clone(there[0]).set_params(epsilon=0.05).fit(*records())
            assert around.total().epsilon == 0.05  # the budgets of both processes
            back = pickle.dumps(there[0].set_params(epsilon=0.1).fit(*records()))
        assert pickle.loads(back).ledger is None
    assert book.total().epsilon == pytest.approx(1.15)


def test_fitted_models_take_no_address_along(monkeypatch: pytest.MonkeyPatch) -> None:
    with budget(epsilon=1) as book:
        model = tree().fit(*records())
        sent = pickle.dumps(model)
        assert book.address.encode() not in sent
        with another_process(monkeypatch):
            there = pickle.loads(sent)
            assert (there.predict(records()[0]) == model.predict(records()[0])).all()
            with pytest.raises(LedgerError, match="fitted model") as error:
                clone(there).fit(*records())
            assert "set_params(ledger=" in "".join(error.value.__notes__)
            there.set_params(ledger=None).fit(*records())
    assert book.total().epsilon == 0.5


def test_models_of_a_block_are_evaluated_elsewhere_only_with_a_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public = pickle.dumps(released())
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0)
    with budget(epsilon=1) as book:
        model = tree().fit(*records())
        sent = pickle.dumps([model, make_pipeline(model)])
        with another_process(monkeypatch):
            for there in pickle.loads(sent):
                with pytest.raises(LedgerError, match="within a budget of another process"):
                    evaluate(there, *records(), epsilon=0.1)
                with pytest.raises(LedgerError, match="within a budget of another process"):
                    compare(pickle.loads(public), there, *records(), epsilon=0.1)
            there = pickle.loads(sent)[0]
            evaluate(there, *records(), epsilon=0.1, ledger=book.address)
            evaluate(there.set_params(ledger=None), *records(), epsilon=0.1)
            evaluate(pickle.loads(public), *records(), epsilon=0.1)
        with monkeypatch.context() as forked:
            forked.setattr(ambient, "_process", lambda: "a fork")  # it has the blocks
            evaluate(pickle.loads(sent)[0], *records(), epsilon=0.1)
    assert book.total().epsilon == pytest.approx(0.7)
    monkeypatch.setenv("PRIVOPT_LEDGER", str(ledger.address))  # other processes may have it, too
    sent = pickle.dumps(model)
    with another_process(monkeypatch):
        evaluate(pickle.loads(sent), *records(), epsilon=0.1)
    assert ledger.total().epsilon == 0.1


def test_estimator_from_a_block_that_ended_is_refused_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with budget(epsilon=1) as book:
        sent = pickle.dumps(tree())
    del book
    gc.collect()
    with another_process(monkeypatch), pytest.raises(LedgerError, match="no ledger") as error:
        pickle.loads(sent).fit(*records())
    assert "within a budget of another process" in "".join(error.value.__notes__)


def test_password_of_the_environment_is_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVOPT_LEDGER", "postgresql://ana:hunter2@h/base#adult")
    sent = pickle.dumps(tree())
    assert b"hunter2" not in sent
    with another_process(monkeypatch):
        assert "hunter2" not in repr(pickle.loads(sent))


def test_worker_processes_book() -> None:
    with budget(epsilon=1) as book:
        cross_val_score(tree(), *records(), cv=2, n_jobs=2)
        assert book.total().epsilon == 1.0
        assert len(book.entries()) == 2


def test_second_release_of_a_table_warns_once_with_the_sum() -> None:
    X, y = records()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoiseWarning)  # few records
        tree(insecure_seed=0).fit(X, y)  # guarantees nothing, and is not counted
        model = tree().fit(X, y)
        tree().fit(*records())  # other records
    with pytest.warns(RepeatedReleaseWarning, match=r"epsilon = 0\.9, delta = 0,"):
        evaluate(model, X, y, epsilon=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoiseWarning)  # few records
        clone(model).fit(X, y)
        with budget(epsilon=1):
            Z = X.copy()
            tree().fit(Z, y)
            tree().fit(Z, y)


def test_no_table_is_kept() -> None:
    from privopt.mechanisms.estimators.repeats import _RELEASED

    X, y = records()
    before = len(_RELEASED)
    tree().fit(X, y)
    assert len(_RELEASED) == before + 1
    del X
    gc.collect()
    assert len(_RELEASED) == before

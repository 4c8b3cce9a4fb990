"""No message quotes a cell: secrets in tables without a header, in broken ones and in labels stay there."""

from __future__ import annotations

import functools
import io
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from privopt.experiments.cli.main import main
from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
)
from privopt.mechanisms.estimators.labels import checked_labels
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.measured_descent import MeasuredRobustDescent
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.problems import Binned, Categorical, Numeric, PrivOptError, Schema
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk
from privopt.problems.nonconvex.factorisation import FactorRisk
from privopt.problems.tables.reading import read_table

# Cells near declared names, categories and numbers, so that every kind of hint could pick them up.
SECRETS = ("nonsmoker", "xsmoker", "statte", "age7", "wellx", "48611", "4.8611", "Quagmire")
SCHEMA = Schema(
    [
        Numeric("age", 0, 100, outside="refuse"),
        Categorical("smoker", ["no", "yes"]),
        Binned("dose", [0, 1, 2]),
    ]
)

HEADER = "age,smoker,dose,state\n"
ROWS = "44,no,0.5,well\n61,yes,1.5,ill\n50,yes,0.1,ill\n"
SECRET_ROW = "48611,nonsmoker,4.8611,wellx\n"
TABLES = {
    "no header": SECRET_ROW + ROWS,
    "no header, names like the declared ones": "age7,xsmoker,48611,statte\n" + ROWS,
    "no header, one name as declared": "age,nonsmoker,4.8611,statte\n" + ROWS,
    "no header, the target as declared": "48611,nonsmoker,4.8611,state\n" + ROWS,
    "no header, all but one as declared": "age,nonsmoker,dose,state\n" + ROWS,
    "no header, a cell twice": "Quagmire,Quagmire,1,wellx\n" + ROWS,
    "no header, one record": SECRET_ROW,
    "no header, quoted": '"Quagmire","nonsmoker","48611","wellx"\n' + ROWS,
    "no header, semicolons": (SECRET_ROW + ROWS).replace(",", ";"),
    "no header, tabs": (SECRET_ROW + ROWS).replace(",", "\t"),
    "strange cells": HEADER + ROWS + SECRET_ROW,
    "a strange label": HEADER + ROWS + "44,no,0.5,wellx\n",
    "a number for a label": HEADER + ROWS + "44,no,0.5,48611\n",
    "a strange number": HEADER + ROWS + "48611,no,0.5,well\n",
    "text for a number": HEADER + ROWS + "Quagmire,no,0.5,well\n",
    "a strange category": HEADER + ROWS + "44,nonsmoker,0.5,well\n",
    "a cell too many": HEADER + ROWS + "44,no,0.5,well,Quagmire\n",
    "a cell too few": HEADER + ROWS + "44,nonsmoker\n",
    "a quote left open": HEADER + ROWS + '44,"nonsmoker,0.5,well\n48611,no,1,Quagmire\n',
    "a hole": HEADER + ROWS + "48611,,4.8611,wellx\n",
    "many names": HEADER + ROWS + "".join(f"44,Quagmire{i},0.5,well\n" for i in range(1500)),
}


def words(target: str | None, schema: bool, classes: str | None, *more: str) -> list[str]:
    found = ["fit", "--data", "t.csv", "--epsilon", "1", "--insecure-seed", "0", *more]
    found += ["--target", target] if target else []
    found += ["--schema", "s.json"] if schema else []
    return found + (["--classes", classes] if classes else [])


COMMANDS = {
    "all declared": words("state", True, "well,ill"),
    "all declared, linear": words("state", True, "well,ill", "--loss", "logistic"),
    "three classes": words("state", True, "well,ill,dead", "--loss", "sigmoid"),
    "no schema": words("state", False, "well,ill"),
    "no schema, linear": words("state", False, "well,ill", "--loss", "logistic"),
    "no classes": words("state", True, None),
    "regression": words("state", True, None, "--loss", "squared", "--label-range", "0:1"),
    "no schema, robust": words("state", False, "well,ill", "--robust"),
    "another target": words("stat", True, "well,ill"),
    "no target": words(None, True, "well,ill"),
    "predict": ["predict", "card.json", "t.csv"],
    "predict, linear": ["predict", "linear.json", "t.csv"],
    "predict, inferred": ["predict", "inferred.json", "t.csv"],
    "the table for a model": ["predict", "t.csv", "t.csv"],
    "the table for a schema": [
        "fit",
        "--data",
        "t.csv",
        "--target",
        "state",
        "--epsilon",
        "1",
        "--schema",
        "t.csv",
    ],
    "the table for a ledger": [
        "fit",
        "--data",
        "t.csv",
        "--target",
        "state",
        "--epsilon",
        "1",
        "--ledger",
        "t.csv",
    ],
    "the table for a budget": ["budget", "show", "t.csv"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that were fitted to good tables."""
    where = tmp_path_factory.mktemp("models")
    X, y = SCHEMA_TABLE, np.array(["well", "ill"] * 10)
    SCHEMA.save(where / "s.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=("well", "ill")).fit(X, y).save(
            where / "card.json"
        )
        PrivateLogisticRegression(1.0, schema=SCHEMA, classes=("well", "ill")).fit(X, y).save(
            where / "linear.json"
        )
        PrivateHalfspaceClassifier(1.0, classes=("well", "ill")).fit(X, y).save(where / "inferred.json")
    return where


SCHEMA_TABLE = pd.DataFrame({"age": [44, 61] * 10, "smoker": ["no", "yes"] * 10, "dose": [0.5, 1.5] * 10})


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("table", TABLES)
def test_the_command_line_quotes_no_cell(
    table: str,
    command: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["privopt", *COMMANDS[command]])
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # main replaces it
    (folder / "t.csv").write_text(TABLES[table])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if caught.value.code == 0:  # then a card read off the data may name levels; the warning says so
        assert not quoted(err)
    else:
        assert caught.value.code == 2
        assert err
        assert not quoted(out + err)


def quoted(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def frames() -> Iterator[tuple[str, pd.DataFrame]]:
    """The tables as pandas reads them, headers or not; those that it refuses are not ours."""
    for name, text in TABLES.items():
        try:
            yield name, pd.read_csv(io.StringIO(text), sep=None, engine="python")
        except (pd.errors.ParserError, ValueError):
            continue


FRAMES = dict(frames())
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "card": lambda: PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=("well", "ill")),
    "card, inferred": lambda: PrivateHalfspaceClassifier(1.0, classes=("well", "ill")),
    "linear": lambda: PrivateLogisticRegression(1.0, schema=SCHEMA, classes=("well", "ill")),
    "linear, raw": lambda: PrivateLogisticRegression(1.0, data_norm=1.0, classes=("well", "ill")),
    "regression": lambda: PrivateLinearRegression(1.0, schema=SCHEMA, label_range=(0, 1)),
    "robust, raw": lambda: PrivateRobustClassifier(1.0, classes=("well", "ill")),
}


def good_labels(estimator: str) -> Any:
    return np.linspace(0, 1, 20) if estimator == "regression" else np.array(["well", "ill"] * 10)


@functools.cache
def fitted_once(estimator: str) -> Any:
    """A model to predict with; None of those without a schema."""
    if estimator.endswith(", raw"):
        return None
    return ESTIMATORS[estimator]().fit(SCHEMA_TABLE, good_labels(estimator))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("table", FRAMES)
def test_estimators_quote_no_cell(table: str, estimator: str) -> None:
    frame, model = FRAMES[table], ESTIMATORS[estimator]()
    y, good, fitted = frame.iloc[:, -1], good_labels(estimator), fitted_once(estimator)
    told: list[str] = []
    attempts: list[Callable[[], Any]] = [
        lambda: model.fit(frame.iloc[:, :-1], y),
        lambda: model.fit(frame, np.resize(good, len(frame))),
        lambda: model.fit(frame.to_numpy(), y),
        lambda: model.fit(SCHEMA_TABLE.iloc[: len(frame)], y.iloc[:20]),
    ]
    if fitted is not None:
        attempts += [lambda: fitted.predict(frame), lambda: fitted.score(frame, np.resize(good, len(frame)))]
        attempts += [lambda: fitted.score(SCHEMA_TABLE.iloc[: len(frame)], y.iloc[:20])]
    for attempt in attempts:
        try:
            attempt()
        except PrivOptError as error:
            # The whole traceback, as Python prints it, with the errors behind the error.
            told += traceback.format_exception(error)
    assert not quoted("".join(told))


def test_reading_quotes_no_cell(tmp_path: Path) -> None:
    told = []
    for text in TABLES.values():
        for content in (
            text.encode(),
            text.encode() + b"\xff\xfe\n",
            text.encode("utf-16"),
            text.encode() + b"\0\n",
        ):
            (tmp_path / "t.csv").write_bytes(content)
            try:
                read_table(tmp_path / "t.csv")
            except PrivOptError as error:
                told.append("".join(traceback.format_exception(error)))
    assert len(told) > 40
    assert not quoted("".join(told))


SECRET_ARRAYS: dict[str, Any] = {
    "words": [["Quagmire", "1"], ["2", "3"], ["4", "5"]],
    "objects": np.array([["xQuagmire", 1], [2, 3], [4, 5]], dtype=object),
    "a frame": pd.DataFrame({"a": ["Quagmire", "2", "3"], "b": [1, 2, 3]}),
    "complex": [[48611j, 1], [2, 3], [4, 5]],
    "dates": np.array([["4861-01-01"] * 2] * 3, dtype="datetime64[D]"),
    "rows of different lengths": [[48611], [2, 3], [4, 5]],
    "integers beyond floats": [[48611 * 10**400, 1], [2, 3], [4, 5]],
    "a sparse matrix": sp.csr_array([[48611.0, 1.0], [2.0, 3.0], [4.0, 5.0]]),
}
BUDGET = {"epsilon": 1.0, "delta": 0.5}
ARRAY_READERS: dict[str, Callable[[Any], object]] = {
    "robust-mean": RobustMean.plan(3, 2, moment=1.0, **BUDGET).release,
    "trimmed-mean": TrimmedMean.plan(3, 2, mean_range=(0, 1), **BUDGET).release,
    "sample-aggregate": lambda X: SampleAggregate.plan(50, 1, subsets=50, radius=1.0, **BUDGET).release(
        X, np.zeros(3), lambda rows, y: np.zeros(1)
    ),
    "sample-aggregate, labels": lambda y: SampleAggregate.plan(
        50, 1, subsets=50, radius=1.0, **BUDGET
    ).release(np.zeros((3, 1)), y, lambda rows, y: np.zeros(1)),
    **{
        kind.name: lambda X, kind=kind: kind.plan(3, 2, LogisticLoss(), **BUDGET).release(X, [[1, 1, -1]])
        for kind in (ClippedNewton, MeasuredRobustDescent)
    },
    "factorisation": lambda A: FactorRisk(A, [0.0, 0.5, 1.0], 1),
    "a risk": lambda X: EmpiricalRisk(X, [1, 1, -1], LogisticLoss()),
    "a risk without clipping": lambda X: UnclippedRisk(X, [1, 1, -1], PLAIN_SQUARES),
}


@pytest.mark.parametrize("reader", ARRAY_READERS)
@pytest.mark.parametrize("array", SECRET_ARRAYS)
def test_mechanisms_that_read_arrays_quote_none_of_their_numbers(reader: str, array: str) -> None:
    if array == "a sparse matrix" and reader.startswith("a risk"):
        return  # they take it
    with pytest.raises(PrivOptError) as refused:
        ARRAY_READERS[reader](SECRET_ARRAYS[array])
    assert not quoted("".join(traceback.format_exception(refused.value)))


class _Secret:
    """A cell that says what it holds when it is converted."""

    def __float__(self) -> float:
        raise ValueError("could not convert string to float: 'Quagmire'")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("Quagmire is no label")


def test_errors_of_conversions_lose_what_they_quote() -> None:
    """Of numbers in a table of objects, and of labels that are no array."""
    cells = np.empty((20, 2), dtype=object)
    cells[:] = 0.5
    labels = np.arange(20) % 2
    model = PrivateLogisticRegression(1.0, classes=(0, 1), data_norm=1.0)
    assert model.fit(cells, labels).n_features_in_ == 2
    cells[3, 1] = _Secret()
    with pytest.raises(PrivOptError, match="X") as of_features:
        model.fit(cells, labels)
    with pytest.raises(PrivOptError, match="y holds labels that are no text, integers or booleans") as of_y:
        checked_labels(_Secret(), 20)
    assert "Quagmire" not in f"{of_features.value}{of_y.value}"

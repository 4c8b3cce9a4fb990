"""Leaks that no epsilon covers: what is pickled, printed, logged and raised, and noise that repeats."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import pickle
import pickletools
import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import (
    MECHANISMS,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateRobustRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.mip.pulp import PulpOracle
from privopt.oracles.task import Task
from privopt.problems import (
    Binned,
    Categorical,
    IntegerLattice,
    InvalidInputError,
    Numeric,
    PrivacyLeakWarning,
    PrivOptError,
    Schema,
    ZeroOneHalfspace,
)
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.nonconvex.factorisation import FactorRisk

# Numbers and words that occur nowhere but in records.
SECRET_NUMBER = 48611.0
SECRET_WORD = "Quagmire"
TRACES = (SECRET_WORD, "48611", "4.8611")

SCHEMA = Schema(
    [
        Numeric("income", 0, 100_000, step=1),
        Categorical("town", ["Aix", "Brno", SECRET_WORD]),
        Binned("age", [0, 30, 60, 90]),
    ],
    intercept=True,
)
# The same without the words that the tests look for.
PUBLIC = Schema([Numeric("income", 0, 100_000, step=1), Categorical("town", ["Aix", "Brno"])], intercept=True)


def table(n: int = 60, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"income": rng.integers(0, 100_000, n), "town": rng.choice(["Aix", "Brno"], n)})
    frame.loc[0, "income"] = int(SECRET_NUMBER)
    return frame, pd.Series(np.where(frame["town"] == "Aix", "yes", "no"))


def classifier(**options: Any) -> PrivateHalfspaceClassifier:
    return PrivateHalfspaceClassifier(**{"schema": PUBLIC, "classes": ("no", "yes"), **options})


# ---------------------------------------------------------------- pickles


def content(data: bytes) -> tuple[list[int | float], bytes]:
    """All numbers that a pickle spells out, and its bytes."""
    numbers = [a for _, a, _ in pickletools.genops(data) if isinstance(a, int | float)]
    return numbers, data


def holds_rows(data: bytes, X: np.ndarray, raw: pd.DataFrame) -> bool:
    """Whether a row of features, or a column of the raw table, is in there as an array."""
    parts = [row.tobytes() for row in X] + [
        np.ascontiguousarray(X[:, j]).tobytes() for j in range(X.shape[1])
    ]
    for dtype in (np.int64, np.float64):
        parts.append(raw["income"].to_numpy(dtype).tobytes())
    return any(part in data for part in parts if any(part))


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_pickled_models_hold_neither_records_nor_certificates(mechanism: str, tmp_path: Path) -> None:
    raw, y = table()
    features = PUBLIC.encode(raw).X
    model = classifier(mechanism=mechanism, delta=1e-6, limits=Limits(seconds=60)).fit(raw, y)
    joblib.dump(model, tmp_path / "model.joblib")
    model.save(tmp_path / "model.json")
    written = [pickle.dumps(model, protocol) for protocol in range(2, 6)]
    written += [pickle.dumps(model.release_), (tmp_path / "model.joblib").read_bytes()]
    # The detector works: it finds the records and the number that are really there.
    assert holds_rows(pickle.dumps(features), features, raw)
    assert holds_rows(pickle.dumps(raw["income"].to_numpy()), features, raw)
    assert int(SECRET_NUMBER) in content(pickle.dumps(raw["income"].tolist()))[0]
    for data in written:
        assert not holds_rows(data, features, raw)
        assert b"Certificate" not in data
    for data in written[:5]:
        assert int(SECRET_NUMBER) not in content(data)[0]
        assert SECRET_NUMBER not in content(data)[0]
    text = (tmp_path / "model.json").read_text()
    assert not any(trace in text for trace in TRACES)
    if model.certificate_ is not None:
        proof = model.certificate_
        exact = {proof.fixed_value, proof.fixed_bound, proof.seconds}
        assert exact <= set(content(pickle.dumps(proof))[0])  # again: they would be found
        for data in written[:5]:
            assert not exact & set(content(data)[0])
        assert "certificate" not in text


def test_pickled_plans_are_made_of_public_facts() -> None:
    # A plan exists before the data; preparing an oracle with it must not change that.
    X, y = np.full((4, 2), int(SECRET_NUMBER)), [1, -1, 1, -1]
    lattice = IntegerLattice(-1, 1, dimension=2)
    for kind in MECHANISMS.values():
        plan = kind.plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=1e-6)
        before = pickle.dumps(plan)
        plan.release(prepare_oracle("auto", plan, ZeroOneHalfspace(X, y, lattice)))
        numbers, after = content(pickle.dumps(plan))
        assert int(SECRET_NUMBER) not in numbers
        assert X[0].tobytes() not in after
        # Caches of the lattice may grow; what the plan says stays.
        assert pickle.loads(after) == pickle.loads(before)


# ---------------------------------------------------------------- errors and logs


def bad_value(column: str, value: object) -> pd.DataFrame:
    frame = pd.DataFrame(
        {"income": [10.0, 20.0, SECRET_NUMBER], "town": ["Aix", "Brno", "Aix"], "age": [20.0, 40.0, 60.0]}
    )
    frame[column] = frame[column].astype(object)
    frame.at[1, column] = value
    return frame


REFUSING = Schema(
    [
        Numeric("income", 0, 40_000, step=1, outside="refuse"),
        Categorical("town", ["Aix", "Brno"]),
        Binned("age", [0, 30, 60, 90], outside="refuse"),
    ]
)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("income", SECRET_NUMBER),
        ("income", str(SECRET_NUMBER)),
        ("income", f"{SECRET_WORD} 48611"),
        ("income", None),
        ("income", math.nan),
        ("income", 10**400 + 48611),
        ("income", [48611]),
        ("income", complex(48611, 1)),
        ("town", SECRET_WORD),
        ("town", 48611),
        ("town", 48611.5),
        ("town", None),
        ("town", (SECRET_WORD, 1)),
        ("age", SECRET_NUMBER),
        ("age", SECRET_WORD),
        ("age", math.inf),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v,
)
@pytest.mark.parametrize("labels", [["no", "yes", "no"], ["no", SECRET_WORD, "no"], [48611, 1, 1]], ids=str)
def test_tracebacks_of_a_failed_fit_quote_no_record(column: str, value: object, labels: list[object]) -> None:
    model = classifier(schema=REFUSING)
    with pytest.raises(PrivOptError) as caught:
        model.fit(bad_value(column, value), labels)
    # The whole traceback as Python prints it, with the errors behind the error; source lines of this file,
    # which it also quotes, hold no value of a record.
    printed = "".join(traceback.format_exception(caught.value))
    assert not any(trace in printed for trace in TRACES)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    "labels",
    [["no", SECRET_WORD], [48611, 1], ["no", None], ["no", 48611.5]],
    ids=str,
)
def test_errors_about_labels_quote_none(labels: list[Any]) -> None:
    frame = pd.DataFrame({"income": [1, 2], "town": ["Aix", "Brno"]})
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the class differs by case, the silence must not
        classifier().fit(frame, labels)
    assert not any(trace in "".join(traceback.format_exception(caught.value)) for trace in TRACES)


def test_errors_about_new_records_quote_none() -> None:
    raw, y = table()
    model = classifier().fit(raw, y)
    for column, value in [("town", SECRET_WORD), ("income", SECRET_WORD), ("income", math.nan)]:
        with pytest.raises(PrivOptError) as caught:
            model.predict(bad_value(column, value)[["income", "town"]])
        assert not any(trace in "".join(traceback.format_exception(caught.value)) for trace in TRACES)


BAD_CELLS = [(SECRET_WORD, "yes"), ("Aix", SECRET_WORD), ("", "yes"), ("Aix", "")]
# One import, then a fork in each folder.
FITS_IN_FOLDERS = """
import os, sys
import privopt.experiments.cli.fit, privopt.mechanisms.estimators.scorecard, privopt.problems.tables.reading
from privopt.experiments.cli.main import main
folders, sys.argv = sys.argv[1:], ["privopt", *(
    "fit --data data.csv --target state --schema schema.json --classes no,yes --epsilon 1".split()
)]
for folder in folders:
    if (child := os.fork()) == 0:
        os.chdir(folder)
        said = os.open("said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1), os.dup2(said, 2)
        main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_command_line_quotes_no_record(tmp_path: Path) -> None:
    folders = []
    for k, (town, state) in enumerate(BAD_CELLS):
        folders.append(folder := tmp_path / str(k))
        folder.mkdir()
        rows = [f"{int(SECRET_NUMBER)},Aix,yes", "17,Brno,no", f"{int(SECRET_NUMBER)},{town},{state}"]
        (folder / "data.csv").write_text("income,town,state\n" + "\n".join(rows) + "\n")
        PUBLIC.save(folder / "schema.json")
    command = [sys.executable, "-c", FITS_IN_FOLDERS, *map(str, folders)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2"] * len(BAD_CELLS)
    for folder in folders:
        said = (folder / "said").read_text()
        assert said
        assert "Traceback" not in said
        assert not any(trace in said for trace in TRACES)


# Row models take scores that floating point can tell apart, so these incomes are in steps of 1,000.
COARSE = Schema([Numeric("income", 0, 100_000, step=1000), Categorical("town", ["Aix", "Brno"])])


@pytest.mark.parametrize("oracle", ["auto", "enumerate", "pulp-highs"])
def test_a_fit_logs_and_prints_nothing(
    oracle: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    raw, y = table(20)
    with caplog.at_level(logging.DEBUG):
        for mechanism in ("opdisc", "rspm"):
            classifier(mechanism=mechanism, oracle=oracle, schema=COARSE, delta=1e-4).fit(raw, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert not any(trace in err + caplog.text for trace in TRACES)
    assert not [r for r in caplog.records if r.name.startswith("privopt")]


def test_an_oracle_that_refuses_does_not_say_how_large_a_record_is() -> None:
    lattice = IntegerLattice(-2, 2, dimension=3)
    features = np.full((4, 3), int(SECRET_NUMBER))
    features[0, 0] -= 1  # no common divisor
    problem = ZeroOneHalfspace(features, [1, -1, 1, -1], lattice)
    refusals = " ".join(PulpOracle("HiGHS", model="rows").refusals(problem, Task.LINEAR))
    assert "scores" in refusals
    # The largest score is 6 times the feature: any number near a multiple of it would tell.
    quoted = [float(number) for number in re.findall(r"[0-9]+(?:[.][0-9]+)?", refusals)]
    assert not any(abs(q / SECRET_NUMBER - k) < 1e-3 for q in quoted for k in range(1, 13))


# ---------------------------------------------------------------- what is read off the data


def test_every_undeclared_fact_is_warned_about_and_declared_ones_are_not() -> None:
    raw, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoiseWarning)  # few records
        classifier().fit(raw, y)
    for options, words in [({"schema": None}, "bounds"), ({"classes": None}, "classes")]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            classifier(**options).fit(raw, y)
        leaks = [str(w.message) for w in seen if issubclass(w.category, PrivacyLeakWarning)]
        assert len(leaks) == 1
        assert words in leaks[0]


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_the_plan_does_not_depend_on_the_records(mechanism: str) -> None:
    # Same number of records, other records: noise, spend, schema and mechanism must be the same.
    raw, y = table(seed=1)
    other, z = table(seed=2)
    one = classifier(mechanism=mechanism).fit(raw, y)
    two = classifier(mechanism=mechanism).fit(other.assign(income=0), z)
    assert dict(one.release_.noise) == dict(two.release_.noise)
    assert one.spend_ == two.spend_
    assert one.schema_ == two.schema_


# ---------------------------------------------------------------- noise that repeats


def wide() -> tuple[PrivateHalfspaceClassifier, pd.DataFrame, list[int]]:
    """A fit that noise decides: at epsilon = 1e-4 all 3^11 points have nearly the same probability."""
    columns = [Numeric(f"x{j}", 0, 1, step=1) for j in range(11)]
    frame = pd.DataFrame(np.eye(11, dtype=int), columns=[c.name for c in columns])
    model = PrivateHalfspaceClassifier(1e-4, schema=Schema(columns), classes=(0, 1))
    return model, frame, [0, 1] * 5 + [0]


# Six fits of which two agree have a probability below 15 * (1 + 0.01) / 3^11 < 1e-4.
FITS = 6


def all_differ(models: list[PrivateHalfspaceClassifier]) -> bool:
    return len({m.coef_.tobytes() for m in models}) == len(models) == FITS


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("fork", marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")),
        "spawn",
    ],
)
def test_unseeded_fits_differ_in_child_processes(method: str) -> None:
    model, X, y = wide()
    model.fit(X, y)  # whatever a fit leaves behind is inherited by the children
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert all_differ(pool.starmap(model.fit, [(X, y)] * FITS, chunksize=1))


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_unseeded_fits_differ_under_joblib(backend: str) -> None:
    model, X, y = wide()
    # Threads share an estimator, so each fit gets a copy, as scikit-learn's clone would make.
    jobs = (joblib.delayed(pickle.loads(pickle.dumps(model)).fit)(X, y) for _ in range(FITS))
    assert all_differ(joblib.Parallel(n_jobs=2, backend=backend)(jobs))


def test_seeded_fits_repeat() -> None:
    # The check above would notice repeated noise.
    model, X, y = wide()
    model.set_params(insecure_seed=1)
    assert not all_differ([pickle.loads(pickle.dumps(model)).fit(X, y) for _ in range(FITS)])


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "scorecard": lambda: PrivateHalfspaceClassifier(1.0, classes=(0, 1), insecure_seed=0),
    "logistic": lambda: PrivateLogisticRegression(1.0, classes=(0, 1), data_norm=1.0, insecure_seed=0),
    "sigmoid": lambda: PrivateSigmoidClassifier(1.0, classes=(0, 1), data_norm=1.0, insecure_seed=0),
    "regression": lambda: PrivateLinearRegression(1.0, label_range=(0, 1), data_norm=1.0, insecure_seed=0),
    "robust regression": lambda: PrivateRobustRegression(1.0, insecure_seed=0),
    "robust": lambda: PrivateRobustClassifier(1.0, classes=(0, 1), insecure_seed=0),
}


@pytest.mark.filterwarnings("ignore::privopt.problems.PrivacyLeakWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_refused_arrays_and_labels_are_not_quoted(name: str) -> None:
    """scikit-learn's own errors quote arrays, whole records among them."""
    model, rng = ESTIMATORS[name](), np.random.default_rng(0)
    X, y = rng.uniform(size=(40, 3)), rng.integers(0, 2, 40)
    fitted = ESTIMATORS[name]().fit(X, y)
    column, text = np.full(40, SECRET_NUMBER), np.full(40, SECRET_WORD)
    attempts: dict[str, Callable[[], Any]] = {
        "a column for a table": lambda: model.fit(column, y),
        "a number for a table": lambda: model.fit(SECRET_NUMBER, y),
        "complex features": lambda: model.fit(X + SECRET_NUMBER * 1j, y),
        "text for numbers": lambda: model.fit(np.tile(text, (3, 1)).T.astype(object), y),
        "complex labels": lambda: model.fit(X, y + SECRET_NUMBER * 1j),
        "a table of labels": lambda: model.fit(X, np.full((40, 2), SECRET_NUMBER)),
        "infinite labels": lambda: model.fit(X, np.where(y == 1, np.inf, SECRET_NUMBER)),
        "a record to predict": lambda: fitted.predict(column[:3]),
        "text to score": lambda: fitted.score(X, text),
        "complex labels to score": lambda: fitted.score(X, y + SECRET_NUMBER * 1j),
    }
    if "regression" not in name:
        attempts["numbers for classes"] = lambda: model.fit(X, column + rng.uniform(size=40))
    for what, attempt in attempts.items():
        with pytest.raises(InvalidInputError) as caught:
            attempt()
        assert not any(trace in str(caught.value) for trace in TRACES), what
        assert caught.value.__suppress_context__ or caught.value.__context__ is None, what


def test_no_warning_tells_how_many_labels_there_are() -> None:
    X = np.random.default_rng(0).normal(size=(24, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 13 of 24 are more than half, which scikit-learn finds odd
        warnings.simplefilter("ignore", NoiseWarning)  # few records
        PrivateLogisticRegression(data_norm=1.0, classes=range(20)).fit(X, np.arange(24) % 13)


def test_a_risk_does_not_print_its_records() -> None:
    rows = [[SECRET_NUMBER, 1.0], [0.0, 1.0]]
    for risk in (FactorRisk(rows, [0.0, 1.0], 1), EmpiricalRisk(rows, [1, -1], LogisticLoss())):
        assert "array" not in repr(risk)

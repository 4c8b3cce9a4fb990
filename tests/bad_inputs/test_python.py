"""Bad input from Python: hundreds of wrong arguments, each with one clear line of the package's own.

To add a case: a value to ``JUNK``, an argument to ``ARGUMENTS``, for which every value is junk that is not
listed as fine there, or a line to ``SINGLE``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import (
    MECHANISMS,
    OPDisc,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateRobustRegression,
)
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.privacy.budget import Budget, compose
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.oracles import GibbsOracle, Law, Limits, Task, gibbs_oracle, minimizer
from privopt.oracles.draw.branch import GibbsBranch
from privopt.problems import (
    Binned,
    Categorical,
    IntegerLattice,
    InvalidInputError,
    Numeric,
    PrivOptError,
    Schema,
    ZeroOneHalfspace,
)
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.tables.reading import read_table

# A secret in everything that could hold a record: no message may show it.
SECRET = 48611
JUNK: dict[str, Any] = {
    "none": None,
    "five": 5,
    "zero": 0,
    "minus one": -1,
    "one and a half": 1.5,
    "true": True,
    "nan": float("nan"),
    "infinity": float("inf"),
    "complex": SECRET * 1j,
    "decimal": Decimal(SECRET),
    "huge": 10**400,
    "text": "abc",
    "empty text": "",
    "bytes": b"48611",
    "list": [SECRET],
    "empty list": [],
    "ragged": [[SECRET], [1, 2]],
    "tuple": (SECRET,),
    "dict": {"a": SECRET},
    "set": {SECRET},
    "object": object(),
    "function": len,
    "type": int,
    "array": np.full(3, SECRET),
    "cube": np.full((2, 2, 2), SECRET),
    "texts": np.array([["48611", "1"]] * 20),
    "masked": np.ma.array([0, 1] * 10, mask=[1] + [0] * 19),
    "frame": pd.DataFrame({"z": [SECRET]}),
}
NUMBERS = ("five", "one and a half")
WHOLE = ("five", "zero", "minus one")

X, Y = np.random.default_rng(0).integers(0, 3, (20, 3)), np.array([0, 1] * 10)
SCHEMA = Schema([Numeric("a", 0, 2), Categorical("b", ["x", "y"])])
FRAME = pd.DataFrame({"a": [0, 1] * 10, "b": ["x", "y"] * 10})
LATTICE = IntegerLattice(-1, 1, dimension=3)
FACTS = RiskFacts(100, 3, LogisticLoss())


def card(**options: Any) -> PrivateHalfspaceClassifier:
    return PrivateHalfspaceClassifier(**{"schema": SCHEMA, "classes": (0, 1), **options})


def logistic(**options: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**{"data_norm": 2.0, "classes": (0, 1), **options})


def regression(**options: Any) -> PrivateLinearRegression:
    return PrivateLinearRegression(**{"data_norm": 2.0, "label_range": (0, 1), **options})


def robust(**options: Any) -> PrivateRobustRegression:
    return PrivateRobustRegression(**options)


def robust_classes(**options: Any) -> PrivateRobustClassifier:
    return PrivateRobustClassifier(**{"classes": (0, 1), **options})


KINDS: dict[str, Callable[[], Any]] = {
    "card": partial(card, numbers="lines"),
    "logistic": logistic,
    "regression": regression,
    "robust": robust,
    "robust classes": robust_classes,
}


@cache
def fitted(kind: str) -> Any:
    return KINDS[kind]().fit(FRAME if kind == "card" else X, Y)


@cache
def problem() -> ZeroOneHalfspace:
    return ZeroOneHalfspace(X, 2 * Y - 1, LATTICE)


@cache
def plan(name: str) -> Any:
    return MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, delta=1e-6)


@cache
def prepared(name: str) -> Any:
    return prepare_oracle("auto", plan(name), problem())


Use = Callable[[Any], Any]
# What takes one argument, and which kinds of junk are fine for it.
ARGUMENTS: dict[str, tuple[Use, tuple[str, ...]]] = {
    # estimators
    "card epsilon": (lambda v: card(epsilon=v).fit(FRAME, Y), NUMBERS),
    "card delta": (lambda v: card(delta=v).fit(FRAME, Y), ("zero",)),
    "card mechanism": (lambda v: card(mechanism=v).fit(FRAME, Y), ()),
    "card oracle": (lambda v: card(oracle=v).fit(FRAME, Y), ()),
    "card schema": (lambda v: card(schema=v).fit(FRAME, Y), ("none",)),
    "card classes": (lambda v: card(classes=v).fit(FRAME, Y), ("none",)),
    "card lattice": (lambda v: card(lattice=v).fit(FRAME, Y), ("none",)),
    "card calibration": (lambda v: card(calibration=v).fit(FRAME, Y), ()),
    "card limits": (lambda v: card(limits=v).fit(FRAME, Y), ("none",)),
    "card ledger": (lambda v: card(ledger=v).fit(FRAME, Y), ("none",)),
    "card seed": (lambda v: card(insecure_seed=v).fit(FRAME, Y), ("none", "five", "zero", "huge")),
    "card X": (lambda v: card().fit(v, Y), ()),
    "card X, no schema": (lambda v: card(schema=None).fit(v, Y), ()),
    "card y": (lambda v: card().fit(FRAME, v), ()),
    "card predict": (lambda v: fitted("card").predict(v), ()),
    "card score": (lambda v: fitted("card").score(FRAME, v), ()),
    "card save": (lambda v: fitted("card").save(v), ("text",)),
    "card load": (PrivateHalfspaceClassifier.load, ()),
    "logistic epsilon": (lambda v: logistic(epsilon=v).fit(X, Y), NUMBERS),
    "logistic delta": (lambda v: logistic(delta=v).fit(X, Y), ()),
    "logistic mechanism": (lambda v: logistic(mechanism=v).fit(X, Y), ()),
    "logistic schema": (lambda v: logistic(schema=v).fit(X, Y), ("none",)),
    "logistic data norm": (lambda v: logistic(data_norm=v).fit(X, Y), ("none", *NUMBERS)),
    "logistic norm": (lambda v: logistic(norm=v).fit(X, Y), ("none",)),
    "logistic classes": (lambda v: logistic(classes=v).fit(X, Y), ("none",)),
    "logistic set": (lambda v: logistic(convex_set=v).fit(X, Y), ("none",)),
    "logistic regularizer": (lambda v: logistic(regularizer=v).fit(X, Y), ()),
    "logistic intercept": (lambda v: logistic(fit_intercept=v).fit(X, Y), ("true",)),
    "logistic steps": (lambda v: logistic(mechanism="dp-gd", steps=v).fit(X, Y), ("none", "five")),
    "logistic limits": (lambda v: logistic(limits=v).fit(X, Y), ("none",)),
    "logistic ledger": (lambda v: logistic(ledger=v).fit(X, Y), ("none",)),
    "logistic X": (lambda v: logistic().fit(v, Y), ()),
    "logistic y": (lambda v: logistic().fit(X, v), ()),
    "logistic predict": (lambda v: fitted("logistic").predict(v), ()),
    "logistic save": (lambda v: fitted("logistic").save(v), ("text",)),
    "logistic load": (PrivateLogisticRegression.load, ()),
    "regression range": (lambda v: regression(label_range=v).fit(X, Y), ("none",)),
    "regression loss": (lambda v: regression(loss=v).fit(X, Y), ("none",)),
    "regression X": (lambda v: regression().fit(v, Y), ()),
    "regression y": (lambda v: regression().fit(X, v), ()),
    "regression predict": (lambda v: fitted("regression").predict(v), ()),
    "regression score": (lambda v: fitted("regression").score(X, v), ()),
    "robust epsilon": (lambda v: robust(epsilon=v).fit(X, Y), NUMBERS),
    "robust delta": (lambda v: robust(delta=v).fit(X, Y), ()),
    "robust mechanism": (lambda v: robust(mechanism=v).fit(X, Y), ()),
    "robust schema": (lambda v: robust(schema=v).fit(X, Y), ("none",)),
    "robust steps": (lambda v: robust(steps=v).fit(X, Y), ("none", "five")),
    "robust limits": (lambda v: robust(limits=v).fit(X, Y), ("none",)),
    "robust ledger": (lambda v: robust(ledger=v).fit(X, Y), ("none",)),
    "robust X": (lambda v: robust().fit(v, Y), ()),
    "robust y": (lambda v: robust().fit(X, v), ()),
    "robust predict": (lambda v: fitted("robust").predict(v), ()),
    "robust score": (lambda v: fitted("robust").score(X, v), ()),
    "robust save": (lambda v: fitted("robust").save(v), ("text",)),
    "robust load": (PrivateRobustRegression.load, ()),
    "robust classes": (lambda v: robust_classes(classes=v).fit(X, Y), ("none",)),
    # tables
    "read_table": (read_table, ()),
    "read_table schema": (lambda v: read_table("t.csv", schema=v), ("none",)),
    "Schema": (Schema, ()),
    "Schema intercept": (lambda v: Schema([Numeric("a", 0, 1)], v), ("true",)),
    "Schema load": (Schema.load, ()),
    "Schema save": (SCHEMA.save, ()),
    "Schema from_dict": (Schema.from_dict, ()),
    "Schema columns": (lambda v: Schema.from_dict({"columns": v}), ()),
    "Schema column": (lambda v: Schema.from_dict({"columns": [v]}), ()),
    "Schema kind": (lambda v: Schema.from_dict({"columns": [{"kind": v}]}), ()),
    "Schema encode": (SCHEMA.encode, ()),
    "Numeric name": (lambda v: Numeric(v, 0, 1), ("text",)),
    "Numeric low": (lambda v: Numeric("a", v, 2), ("zero", "minus one", "one and a half")),
    "Numeric high": (lambda v: Numeric("a", 0, v), NUMBERS),
    "Numeric step": (lambda v: Numeric("a", 0, 1, v), ()),
    "Numeric zero": (lambda v: Numeric("a", 0, 2, zero=v), ("none", *WHOLE, *NUMBERS)),
    "Numeric outside": (lambda v: Numeric("a", 0, 1, outside=v), ()),
    "Numeric missing": (lambda v: Numeric("a", 0, 1, missing=v), ("none", "zero")),
    "Categorical categories": (lambda v: Categorical("a", v), ("list", "tuple")),
    "Categorical category": (lambda v: Categorical("a", [v, 2]), (*WHOLE, "true")),
    "Categorical outside": (lambda v: Categorical("a", ["x"], outside=v), ()),
    "Categorical missing": (lambda v: Categorical("a", ["x"], missing=v), ("none",)),
    "Binned edges": (lambda v: Binned("a", v), ()),
    "Binned edge": (lambda v: Binned("a", [0, v]), NUMBERS),
    "Binned outside": (lambda v: Binned("a", [0, 1], outside=v), ()),
    # ledgers
    "Ledger": (Ledger, ()),
    "Ledger path": (lambda v: Ledger.create(v, 1.0), ("text",)),
    "Ledger epsilon": (lambda v: Ledger.create("one", v), NUMBERS),
    "Ledger delta": (lambda v: Ledger.create("two", 1.0, v), ("zero",)),
    "Ledger rule": (lambda v: Ledger.create("three", 1.0, 1e-6, rule=v), ()),
    "Ledger reserve": (lambda v: ledger().reserve(v), ()),
    "Ledger commit": (lambda v: ledger().commit(v), ()),
    "Ledger cancel": (lambda v: ledger().cancel("a", v), ()),
    "Ledger affords": (lambda v: ledger().affords(v), ()),
    "Ledger shortfall": (lambda v: ledger().shortfall(v), ()),
    "Ledger verify": (verify, ()),
    "Ledger spending": (lambda v: ledger().spending(v).__enter__(), ()),
    "compose": (lambda v: compose(v, 1e-6), ("empty list", "empty text")),
    "compose delta": (lambda v: compose([], v), ("zero",)),
    "Budget": (Budget, NUMBERS),
    "Budget rule": (lambda v: Budget(1.0, 1e-6, v), ()),
    "spend epsilon": (lambda v: PrivacySpend.pure(v, "m"), NUMBERS),
    "spend delta": (lambda v: PrivacySpend.approximate(1.0, v, "m"), ()),
    "spend mechanism": (lambda v: PrivacySpend.pure(1.0, v), ("text",)),
    "spend notion": (lambda v: PrivacySpend(1.0, 0.0, v, "m"), ()),
    "spend claim": (lambda v: PrivacySpend(1.0, 0.0, "pure", "m", claim=v), ()),
    "spend from_dict": (PrivacySpend.from_dict, ()),
    # problems and oracles
    "lattice low": (lambda v: IntegerLattice(v, 1, dimension=3), ("zero", "minus one")),
    "lattice high": (lambda v: IntegerLattice(-1, v, dimension=3), ("array", *WHOLE)),
    "lattice dimension": (lambda v: IntegerLattice(-1, 1, dimension=v), ("five",)),
    "lattice radius": (
        lambda v: IntegerLattice(-1, 1, dimension=3, radius=v),
        ("none", "zero", *NUMBERS),
    ),
    "problem X": (lambda v: ZeroOneHalfspace(v, [1, -1], LATTICE), ()),
    "problem y": (lambda v: ZeroOneHalfspace(X, v, LATTICE), ()),
    "problem lattice": (lambda v: ZeroOneHalfspace(X, 2 * Y - 1, v), ()),
    "Limits": (Limits, ("none", "infinity", *NUMBERS)),
    "Limits progress": (lambda v: Limits(on_progress=v), ("none", "function", "type")),
    "Limits cancelled": (lambda v: Limits(cancelled=v), ("none", "function", "type")),
    "minimizer": (minimizer, ()),
    "gibbs_oracle": (gibbs_oracle, ()),
    "memory of draws": (lambda v: GibbsBranch(memory=v), ("five", "huge")),
    "prepare": (lambda v: minimizer("native").prepare(v, Task.LINEAR), ()),
    "prepare auto": (lambda v: minimizer("auto").prepare(v, Task.LINEAR), ()),
    "prepare task": (lambda v: minimizer("native").prepare(problem(), v), ()),
    "prepare to draw": (lambda v: gibbs_oracle("auto").prepare(v, Law.GIBBS), ()),
    "prepare law": (lambda v: gibbs_oracle("auto").prepare(problem(), v), ()),
    # risks
    "facts n": (lambda v: RiskFacts(v, 3, LogisticLoss()), ("five",)),
    "facts dimension": (lambda v: RiskFacts(100, v, LogisticLoss()), ("five",)),
    "facts loss": (lambda v: RiskFacts(100, 3, v), ()),
    "facts row norm": (lambda v: RiskFacts(100, 3, LogisticLoss(), v), NUMBERS),
    "facts norm": (lambda v: RiskFacts(100, 3, LogisticLoss(), 1.0, v), ()),
    "risk X": (lambda v: EmpiricalRisk(v, 2 * Y - 1, LogisticLoss()), ()),
    "risk y": (lambda v: EmpiricalRisk(X, v, LogisticLoss()), ()),
    "risk loss": (lambda v: EmpiricalRisk(X, 2 * Y - 1, v), ()),
    "huber": (HuberLoss, NUMBERS),
    "squared": (SquaredLoss, NUMBERS),
    "elastic net": (ElasticNet, ("zero", *NUMBERS)),
    "ball": (lambda v: L2Ball(3, v), NUMBERS),
    "ball dimension": (lambda v: L2Ball(v, 1.0), ("five",)),
}


# Mechanisms without a delta take a sensible one, which they do not use, or 0.
PURE = ("exponential", "permute-and-flip", "rspm-laplace")


def of_mechanisms() -> None:
    """Every mechanism, of one's own or of ours, is planned and run alike."""
    for name, kind in MECHANISMS.items():
        use: dict[str, tuple[Use, tuple[str, ...]]] = {
            "type": (lambda v, k=kind: k.plan(v, LATTICE, epsilon=1.0, delta=1e-6), ()),
            "lattice": (lambda v, k=kind: k.plan(ZeroOneHalfspace, v, epsilon=1.0, delta=1e-6), ()),
            "epsilon": (lambda v, k=kind: k.plan(ZeroOneHalfspace, LATTICE, epsilon=v, delta=1e-6), NUMBERS),
            "delta": (
                lambda v, k=kind: k.plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, delta=v),
                ("zero",) if name in PURE else (),
            ),
            "calibration": (
                lambda v, k=kind: k.plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, delta=1e-6, calibration=v),
                (),
            ),
            "release": (lambda v, n=name: plan(n).release(v), ()),
            "release noise": (lambda v, n=name: plan(n).release(prepared(n), v), ("none",)),
            "release limits": (lambda v, n=name: plan(n).release(prepared(n), None, v), ("none",)),
        }
        ARGUMENTS.update({f"{name} {what}": found for what, found in use.items()})
    for name, kind in RISK_MECHANISMS.items():
        if name == "dp-fw-l1":  # which asks for a set
            continue
        use = {
            "facts": (lambda v, k=kind: k.plan(v, epsilon=1.0, delta=1e-6), ()),
            "epsilon": (lambda v, k=kind: k.plan(FACTS, epsilon=v, delta=1e-6), NUMBERS),
            "delta": (
                lambda v, k=kind: k.plan(FACTS, epsilon=1.0, delta=v),
                ("zero",) if name == "net" else (),
            ),
            "set": (lambda v, k=kind: k.plan(FACTS, v, epsilon=1.0, delta=1e-6), ("none",)),
            "regularizer": (lambda v, k=kind: k.plan(FACTS, None, v, epsilon=1.0, delta=1e-6), ()),
        }
        ARGUMENTS.update({f"{name} {what}": found for what, found in use.items()})


of_mechanisms()


def ledger() -> Ledger:
    return Ledger("ledger") if Path("ledger").exists() else Ledger.create("ledger", 1.0)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def one_line(error: BaseException, secret: bool = True) -> None:
    """A refusal of the package's own: one line, not long, no value out of what may hold records."""
    text = str(error)
    assert "\n" not in text.strip()
    assert 10 < len(text) < 500, text
    assert not secret or str(SECRET) not in text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_wrong_arguments_get_one_line(argument: str) -> None:
    use, fine = ARGUMENTS[argument]
    for name, value in JUNK.items():
        if name in fine:
            continue
        try:
            use(value)
        except PrivOptError as error:
            one_line(error, secret=argument not in PUBLIC)
        except BaseException as error:
            raise AssertionError(f"{argument} = {name}: {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{argument} = {name} was accepted")


# Declarations, which may be quoted.
PUBLIC = {"logistic classes", "robust classes", "compose"}


def model_file(path: Path, kind: str, **changes: Any) -> Path:
    fitted(kind).save(path)
    model = json.loads(path.read_text())
    model.update(changes)
    path.write_text(json.dumps({key: value for key, value in model.items() if value is not ...}))
    return path


def load(kind: str, **changes: Any) -> Any:
    return type(fitted(kind)).load(model_file(Path("m.json"), kind, **changes))


def refit(**columns: Any) -> Any:
    return card().fit(FRAME.assign(**columns), Y)


# What is tried, the error, and a part of what it says.
SINGLE: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "columns as a number": (lambda: load("robust", columns=3), InvalidInputError, "names"),
    "a column too few": (lambda: load("robust", columns=["a"]), InvalidInputError, "names"),
    "columns of numbers": (lambda: load("robust", columns=[1, 2, 3]), InvalidInputError, "names"),
    "a weight of 0.9": (
        lambda: load("card", weights=[0.9, 0, 0, 0]),
        InvalidInputError,
        "'weights' contradicts",
    ),
    "a weight of 1e30": (lambda: load("card", weights=[10**30, 0, 0, 0]), InvalidInputError, "OverflowError"),
    "a weight too few": (lambda: load("card", weights=[1, 0]), InvalidInputError, "2 weights for 4 features"),
    "weights as text": (
        lambda: load("card", weights=["1", 0, 0, 0]),
        InvalidInputError,
        "did not save it so",
    ),
    "points beside weights": (
        lambda: load("card", scorecard=[{"feature": "a", "level": "x", "points": 9}]),
        InvalidInputError,
        "'scorecard' contradicts",
    ),
    "a rule beside classes": (lambda: load("card", rule="7"), InvalidInputError, "'rule' contradicts"),
    "an unknown key": (lambda: load("card", more=1), InvalidInputError, "'more' contradicts"),
    "no spend": (lambda: load("card", spend=...), InvalidInputError, "KeyError"),
    "one class": (lambda: load("card", classes=[0]), InvalidInputError, "at least 2 classes"),
    "a class of none": (lambda: load("card", classes=[None, 1]), InvalidInputError, "all text, or all"),
    "another format": (lambda: load("card", format="x"), InvalidInputError, "not a privopt-scorecard"),
    "another model": (
        lambda: PrivateHalfspaceClassifier.load(model_file(Path("m"), "logistic")),
        InvalidInputError,
        "not a privopt-scorecard",
    ),
    "weights of NaN": (
        lambda: load("logistic", weights=[[float("nan")] * 3]),
        InvalidInputError,
        "not a privopt-linear",
    ),
    "a row of weights too many": (
        lambda: load("logistic", weights=[[1.0] * 3] * 2, intercept=[0.0, 0.0]),
        InvalidInputError,
        "2 rows of weights for 2 classes",
    ),
    "three weights, one intercept": (
        lambda: load("regression", intercept=[0.0, 1.0]),
        InvalidInputError,
        "fit together",
    ),
    "weights of another schema": (
        lambda: load("logistic", schema=Schema([Binned("a", [0, 1, 2])]).to_dict()),
        InvalidInputError,
        "3 weights for 2 features",
    ),
    "an unknown key, linear": (lambda: load("logistic", more=1), InvalidInputError, "'more' contradicts"),
    "no such model": (lambda: PrivateHalfspaceClassifier.load("no.json"), InvalidInputError, "no such file"),
    "a folder for a model": (lambda: PrivateHalfspaceClassifier.load("."), InvalidInputError, "is a dir"),
    "save to a folder": (lambda: fitted("card").save("."), InvalidInputError, "that is a folder"),
    "save to no folder": (lambda: fitted("card").save("no/m"), InvalidInputError, "folder does not exist"),
    "save to a device": (lambda: fitted("logistic").save("/dev/null"), InvalidInputError, "no regular file"),
    "classes with a hole": (lambda: card(classes=[None, "ill"]).fit(FRAME, Y), InvalidInputError, "all text"),
    "classes alike": (lambda: card(classes=(1, True)).fit(FRAME, Y), InvalidInputError, "must differ"),
    "classes of two kinds": (lambda: card(classes=(0, "1")).fit(FRAME, Y), InvalidInputError, "all text"),
    "a lattice of one number": (lambda: card(lattice=(1,)).fit(FRAME, Y), InvalidInputError, "(low, high)"),
    "steps for days": (
        lambda: logistic(mechanism="dp-gd", steps=100_000_000_000).fit(X, Y),
        PrivOptError,
        "steps = 100,000,000,000: more than 10,000,000",
    ),
    "masked rows": (
        lambda: logistic().fit(np.ma.array(X, mask=X > 1), Y),
        InvalidInputError,
        "X is a masked array",
    ),
    "masked labels": (lambda: card().fit(FRAME, JUNK["masked"]), InvalidInputError, "y is a masked array"),
    "numbers as text": (lambda: logistic().fit(X.astype(str), Y), InvalidInputError, "X holds text"),
    "a number as text": (
        lambda: logistic().fit(np.array([["1", 2, 3]] * 20, dtype=object), Y),
        InvalidInputError,
        "X holds text",
    ),
    "a frame with text": (lambda: logistic().fit(FRAME, Y), InvalidInputError, "X holds text"),
    "labels as text": (lambda: regression().fit(X, Y.astype(str)), InvalidInputError, "not numbers"),
    "dates": (
        lambda: refit(a=pd.Timestamp("2026-01-01")),
        InvalidInputError,
        "column 'a': numbers are needed",
    ),
    "thousands": (lambda: refit(a="1,200"), InvalidInputError, "declare how text writes numbers"),
    "an oracle that was not prepared": (
        lambda: plan("opdisc").release(minimizer("native")),
        PrivOptError,
        "opdisc needs an oracle prepared for the data",
    ),
    "an oracle prepared for another plan": (
        lambda: plan("opdisc").release(prepared("exponential")),
        PrivOptError,
        "opdisc needs an oracle prepared for",
    ),
    "an oracle of the other kind": (
        lambda: card(oracle=minimizer("native")).fit(FRAME, Y),
        PrivOptError,
        "needs a GibbsOracle",
    ),
    "a class for an oracle": (lambda: card(oracle=GibbsOracle).fit(FRAME, Y), PrivOptError, "got an ABCMeta"),
    "a plan for a problem": (
        lambda: OPDisc.plan(problem(), LATTICE, epsilon=1.0, delta=1e-6),  # type: ignore[arg-type]
        InvalidInputError,
        "such as ZeroOneHalfspace, got a ZeroOneHalfspace",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SINGLE)
def test_bad_input_says_what_is_wrong(name: str) -> None:
    use, error, told = SINGLE[name]
    with pytest.raises(error) as caught:
        use()
    one_line(caught.value)
    assert told in str(caught.value)


def test_what_is_right_is_not_refused() -> None:
    """The other side of the tables above: rows as dicts, files that were saved, NumPy's own numbers."""
    columns = {name: FRAME[name].tolist() for name in FRAME}
    assert card().fit(columns, Y).predict(columns).shape == (20,)
    for kind in KINDS:
        model = load(kind)
        assert model.to_dict()["weights"] == fitted(kind).to_dict()["weights"]
    assert IntegerLattice(-1, 1, dimension=np.int64(3)).dimension == 3  # type: ignore[arg-type]
    assert Limits(np.float64(1)).seconds == 1
    assert card(epsilon=np.float32(1), classes=np.array([0, 1])).fit(FRAME, Y).classes_.tolist() == [0, 1]

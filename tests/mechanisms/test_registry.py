"""One table of mechanisms: it is true, it is read lazily, and classes and packages of others join it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privopt.mechanisms
from privopt.mechanisms import (
    MECHANISMS,
    RISK_MECHANISMS,
    SCORECARD_MECHANISMS,
    DPGradientDescent,
    ExponentialMechanism,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
)
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.registry import ENTRIES, Entry, Family
from privopt.problems import Categorical, Schema


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.family.name}-{e.name}")
def test_a_line_of_the_table_is_true(entry: Entry) -> None:
    kind = entry.load()
    assert (kind.name, kind.family) == (entry.name, entry.family)
    assert getattr(privopt.mechanisms, kind.__name__) is kind
    assert entry.purpose
    assert entry.needs


def test_a_name_is_unique_in_its_family_and_every_family_has_some() -> None:
    pairs = {(entry.family, entry.name) for entry in ENTRIES}
    assert len(pairs) == len(ENTRIES)
    assert {family for family, _ in pairs} == set(Family)
    assert set(SCORECARD_MECHANISMS) == set(MECHANISMS) | {"seeded"}


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError, match="item assignment"):
        MECHANISMS["mine"] = ExponentialMechanism  # type: ignore[index]


def test_reading_names_imports_no_mechanism() -> None:
    code = (
        "import sys; from privopt.mechanisms import RISK_MECHANISMS, MECHANISMS; list(RISK_MECHANISMS); "
        "list(MECHANISMS); print([m for m in sys.modules if m.startswith(('privopt.mechanisms.convex', "
        "'privopt.mechanisms.discrete', 'privopt.mechanisms.risk', 'privopt.oracles', 'numpy'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class MyDescent(DPGradientDescent):
    """A risk mechanism of one's own."""

    name = "my-descent"


class MyExponential(ExponentialMechanism):
    """A lattice mechanism of one's own."""

    name = "my-exponential"


def labels(n: int = 200) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (n, 3))
    return X, X[:, 0] > 0


def test_estimators_take_a_class_in_place_of_a_name() -> None:
    X, y = labels()
    options: dict[str, Any] = {"data_norm": 1.0, "classes": (False, True), "insecure_seed": 0}
    mine = PrivateLogisticRegression(mechanism=MyDescent, **options).fit(X, y)
    named = PrivateLogisticRegression(mechanism="dp-gd", **options).fit(X, y)
    assert mine.mechanism_ == "my-descent"
    np.testing.assert_array_equal(mine.coef_, named.coef_)
    table = pd.DataFrame({"a": ["no", "yes"] * 30})
    schema = Schema([Categorical("a", ("no", "yes"))])
    card = PrivateHalfspaceClassifier(mechanism=MyExponential, schema=schema, classes=("no", "yes"))
    assert card.fit(table, table["a"]).mechanism_ == "my-exponential"


def test_a_name_that_is_none_is_refused_with_the_one_that_was_meant() -> None:
    for wrong in ("dp-gdd", None, 3):
        with pytest.raises(UnknownMechanismError, match=r"unknown mechanism .* there are auto, .*dp-gd"):
            RISK_MECHANISMS.named(wrong)


def test_a_class_of_another_family_is_refused_by_name() -> None:
    X, y = labels()
    for wrong in (MyExponential, str):
        model = PrivateLogisticRegression(mechanism=wrong, data_norm=1.0, classes=(False, True))
        with pytest.raises(UnknownMechanismError, match=f"{wrong.__name__} .* is not a mechanism for linear"):
            model.fit(X, y)


STRANGER = """
from privopt.mechanisms import DPGradientDescent


class Patient(DPGradientDescent):
    name = "patient"


class Wrong:
    pass
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A throw-away package, as ``pip install`` leaves it: a module, and its entry points beside it."""
    (tmp_path / "patient_descent.py").write_text(STRANGER)
    facts = tmp_path / "patient_descent-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: patient-descent\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[privopt.mechanisms]\npatient = patient_descent:Patient\ndp-gd = patient_descent:Wrong\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_installed_package_offers_mechanisms_by_name(stranger: Path) -> None:
    assert list(RISK_MECHANISMS)[-1] == "patient"
    assert "patient" not in MECHANISMS
    assert RISK_MECHANISMS["dp-gd"] is DPGradientDescent  # a name of ours stays ours
    X, y = labels()
    model = PrivateLogisticRegression(mechanism="patient", data_norm=1.0, classes=(False, True)).fit(X, y)
    assert model.mechanism_ == "patient"
    words = ["calibrate", "patient", "--epsilon", "1", "--dimension", "3", "--records", "100"]
    code = "from privopt.experiments.cli.start import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={"PYTHONPATH": str(stranger)},
        capture_output=True,
        text=True,
    )
    assert "mechanism: patient" in run.stdout


def upgrade(stranger: Path, version: str, entry: str) -> None:
    """Replace the facts of the package, as ``pip install --upgrade`` does: it is seen without a restart."""
    (old,) = stranger.glob("*.dist-info")
    (old / "entry_points.txt").write_text(f"[privopt.mechanisms]\n{entry}\n")
    old.rename(stranger / f"patient_descent-{version}.dist-info")


def test_what_a_package_offers_is_checked(stranger: Path) -> None:
    upgrade(stranger, "1.1", "wrong = patient_descent:Wrong")
    with pytest.raises(UnknownMechanismError, match=r"Wrong \(of the package 'patient-descent'\) is not a"):
        list(RISK_MECHANISMS)
    upgrade(stranger, "1.2", "missing = patient_descent:Missing")
    with pytest.raises(UnknownMechanismError, match=r"mechanism 'missing' .* cannot be loaded"):
        list(RISK_MECHANISMS)

"""Files that an earlier version wrote load, and say what they said then.

``written/`` was made by the version before the rooms were regrouped (commit 8b7f67a): a scorecard, a
classifier of three classes and a regression, fitted on synthetic records with a ledger, and what those models
predicted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLinearRegression, PrivateLogisticRegression
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.spend import PrivacySpend

WRITTEN = Path(__file__).parent / "written"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WRITTEN / "expected.json").read_text())
    return found


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return pd.read_csv(WRITTEN / "records.csv")


def test_a_scorecard_scores_as_before(
    records: pd.DataFrame, expected: dict[str, Any], tmp_path: Path
) -> None:
    model = PrivateHalfspaceClassifier.load(WRITTEN / "scorecard.json")
    assert model.predict(records).tolist() == expected["scorecard"]["labels"]
    assert model.decision_function(records).tolist() == expected["scorecard"]["points"]
    assert model.spend_ == PrivacySpend.from_dict(expected["scorecard"]["spend"])
    model.save(tmp_path / "again.json")
    again = PrivateHalfspaceClassifier.load(tmp_path / "again.json")
    assert again.predict(records).tolist() == expected["scorecard"]["labels"]


def test_a_linear_classifier_scores_as_before(records: pd.DataFrame, expected: dict[str, Any]) -> None:
    then = expected["logistic"]
    model = PrivateLogisticRegression.load(WRITTEN / "logistic.json")
    assert model.predict(records).tolist() == then["labels"]
    # The last digits of a product of matrices depend on the linear algebra library.
    np.testing.assert_allclose(model.decision_function(records), then["scores"], rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(records), then["probabilities"], rtol=1e-12)


def test_a_regression_predicts_as_before(records: pd.DataFrame, expected: dict[str, Any]) -> None:
    model = PrivateLinearRegression.load(WRITTEN / "regression.json")
    numbers = model.predict(records[["age"]].to_numpy() / 100)
    np.testing.assert_allclose(numbers, expected["regression"]["numbers"], rtol=1e-12)


def test_a_ledger_counts_as_before_and_goes_on(expected: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(WRITTEN / "ledger.json", tmp_path / "ledger.json")
    ledger, then = Ledger(tmp_path / "ledger.json"), expected["ledger"]
    assert [entry.state for entry in ledger.entries()] == then["states"]
    total = ledger.total()
    assert (total.epsilon, total.delta, total.rule) == (then["epsilon"], then["delta"], then["rule"])
    ledger.commit(ledger.reserve(PrivacySpend.pure(0.5, "one more")))
    assert ledger.total().epsilon == then["epsilon"] + 0.5
    assert [entry.spend.mechanism for entry in ledger.entries()][:2] == ["exponential", "dp-gd"]
    assert verify(ledger) == []

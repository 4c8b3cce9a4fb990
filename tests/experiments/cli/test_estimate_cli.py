"""``privopt estimate`` and ``calibrate`` for means and estimates by sampling: results, bookings, refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems import Categorical, Numeric, Schema

N = 2000


@pytest.fixture
def bills(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    days = np.round(rng.uniform(0, 4, N), 3)
    frame = pd.DataFrame({"cost": 2 * days - 1, "days": days, "dear": np.where(days > 2, "yes", "no")})
    frame.to_csv(tmp_path / "bills.csv", index=False)
    frame.assign(days=frame["days"].where(frame.index > 0)).to_csv(tmp_path / "gaps.csv", index=False)
    Schema([Numeric("days", 0, 4, step=0.001)]).save(tmp_path / "schema.json")
    return tmp_path


FACTS: dict[str, list[str]] = {
    "robust-mean": ["--columns", "cost,days", "--moment", "10"],
    "trimmed-mean": ["--columns", "cost,days", "--range=-10:10"],
    "subset-mean": ["--columns", "days", "--target", "cost", "--radius", "5"],
    "sample-aggregate": ["--columns", "days", "--target", "cost", "--radius", "5", "--subsets", "200"],
}
# Means of cost and days; weights of days and the intercept.
TRUE = {"robust-mean": (3, 2), "trimmed-mean": (3, 2), "subset-mean": (2, -1), "sample-aggregate": (2, -1)}


@pytest.mark.parametrize("name", FACTS)
def test_estimates_are_saved_booked_and_those_of_the_mechanism(
    name: str, bills: Path, privopt: Callable[..., Any]
) -> None:
    ledger = Ledger.create(bills / "book.json", epsilon=60, delta=0.1)
    made = privopt(
        "estimate", name, "--data", "bills.csv", *FACTS[name], "--epsilon", 50, "--delta", 0.05,
        "--ledger", "book.json", "--save", "kept.json", "--json", "report.json", cwd=bills,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    kept = json.loads((bills / "kept.json").read_text())
    assert list(kept["estimate"].values()) == pytest.approx(TRUE[name], abs=0.6)
    assert kept["mechanism"] == name
    assert (kept["epsilon"], kept["delta"]) == (50, 0.05)
    report = json.loads((bills / "report.json").read_text())
    assert report["records"] == N
    assert report["noise_to_signal"] > 0
    assert "noise / signal" in made.stdout
    assert ledger.total().epsilon == pytest.approx(50)
    again = privopt(
        "estimate", name, "--data", "bills.csv", *FACTS[name], "--epsilon", 50, "--delta", 0.05,
        "--ledger", "book.json", cwd=bills,
    )  # fmt: skip
    assert again.returncode == 1
    assert "Nothing was booked" in again.stderr or "overdraw" in again.stderr


def test_a_seeded_estimate_is_that_of_python(bills: Path, privopt: Callable[..., Any]) -> None:
    words = ["estimate", "robust-mean", "--data", "bills.csv", *FACTS["robust-mean"], "--epsilon", 1]
    made = privopt(*words, "--insecure-seed", 3, "--save", "kept.json", cwd=bills)
    assert made.returncode == 0, made.stderr
    plan = RobustMean.plan(N, 2, moment=10.0, epsilon=1.0, delta=1 / N**2)
    rows = pd.read_csv(bills / "bills.csv")[["cost", "days"]].to_numpy()
    found = plan.release(rows, NoiseSource(insecure_seed=3))
    kept = json.loads((bills / "kept.json").read_text())
    assert list(kept["estimate"].values()) == found.point.tolist()
    assert kept["insecure_seed"] == 3


def test_opsamp_reads_what_fit_reads(bills: Path, privopt: Callable[..., Any]) -> None:
    facts = ["--target", "dear", "--schema", "schema.json", "--classes", "no,yes"]
    Schema([Categorical("dear", ["no", "yes"])]).save(bills / "label.json")
    Schema([Numeric("days", 0, 4, step=0.001)], intercept=True).save(bills / "schema.json")
    made = privopt(
        "estimate", "opsamp", "--data", "bills.csv", *facts, "--epsilon", 50, "--draws", 20, "--lattice=-3:3",
        "--save", "kept.json", cwd=bills,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    kept = json.loads((bills / "kept.json").read_text())["estimate"]
    assert len(kept) == 2
    assert next(iter(kept.values())) > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["median", "--data", "bills.csv"], "unknown mechanism 'median'"),
        (["robust-mean", "--data", "bills.csv", "--columns", "cost"], "robust-mean needs --moment"),
        (["robust-mean", "--data", "bills.csv", "--moment", "1", "--radius", "2"], "does not take --radius"),
        (["robust-mean", "--data", "bills.csv", "--moment", "-1", "--columns", "cost"], "moment"),
        (["robust-mean", "--data", "bills.csv", "--moment", "1", "--columns", "price"], "column 'price'"),
        (["robust-mean", "--data", "bills.csv", "--moment", "1", "--columns", "dear"], "real numbers"),
        (["robust-mean", "--data", "gaps.csv", "--moment", "1", "--columns", "days"], "missing or infinite"),
        (["robust-mean", "--data", "adult23", "--moment", "1"], "reads a .csv"),
        (["trimmed-mean", "--data", "bills.csv", "--range", "4", "--columns", "cost"], "LOW:HIGH"),
        (["trimmed-mean", "--data", "bills.csv", "--range", "4:1", "--columns", "cost"], "low < high"),
        (
            ["subset-mean", "--data", "bills.csv", "--target", "cost", "--radius", "1"],
            "--columns or --schema",
        ),
        (
            ["subset-mean", "--data", "bills.csv", "--target", "cost", "--radius", "1", "--columns", "cost"],
            "is the target",
        ),
        (
            ["subset-mean", "--data", "bills.csv", "--target", "cost", "--radius", "1", "--loss", "huber"],
            "squared or logistic",
        ),
        (["opsamp", "--data", "bills.csv", "--target", "dear"], "opsamp needs --schema and --classes"),
    ],
)
def test_bad_input_is_told_and_quotes_no_record(
    words: list[str], told: str, bills: Path, privopt: Callable[..., Any]
) -> None:
    made = privopt("estimate", *words, "--epsilon", 1, cwd=bills)
    assert made.returncode == 2
    assert told in " ".join(made.stderr.split())
    assert "Traceback" not in made.stderr


def test_noise_is_called_noise_before_data_are_read(bills: Path, privopt: Callable[..., Any]) -> None:
    words = ["estimate", "subset-mean", "--data", "bills.csv", *FACTS["subset-mean"]]
    poor = privopt(*words, "--epsilon", 0.01, cwd=bills)
    assert poor.returncode == 0, poor.stderr
    assert "expect an answer no better than a constant" in " ".join(poor.stderr.split())
    rich = privopt(*words, "--epsilon", 10, cwd=bills)
    assert "no better than a constant" not in " ".join(rich.stderr.split())
    facts = ["--records", 200_000, "--dimension", 4, "--radius", 1, "--epsilon", 4]
    centre = privopt("calibrate", "sample-aggregate", *facts, "--subsets", 2000)
    assert "expect an answer no better than a constant" in centre.stdout
    mean = privopt("calibrate", "subset-mean", *facts)
    assert "constant" not in mean.stdout
    assert "noise / signal: 0.0" in mean.stdout


def test_calibrate_shows_the_plan_of_an_estimate(privopt: Callable[..., Any]) -> None:
    made = privopt(
        "calibrate", "opsamp", "--records", 1000, "--dimension", 3, "--epsilon", 2, "--delta", 1e-5, "--json"
    )
    assert made.returncode == 0, made.stderr
    from privopt.problems import IntegerLattice, ZeroOneHalfspace

    plan = OPSamp.plan(
        ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=3), n_records=1000, epsilon=2.0, delta=1e-5
    )
    report = json.loads(made.stdout)
    assert report["scale"] == plan.noise["scale"]
    assert math.isclose(report["noise_to_signal"], plan.noise_to_signal.ratio)
    wrong = privopt("calibrate", "dp-gd", "--records", 10, "--dimension", 2, "--epsilon", 1, "--moment", 2)
    assert wrong.returncode == 2
    assert "belongs to robust-mean" in wrong.stderr
    surplus = privopt("calibrate", "robust-mean", "--epsilon", 1, "--moment", 2, "--steps", 2)
    assert "does not take --steps" in surplus.stderr

"""Linear models from the command line: fit, save, predict, calibrate."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema
from privopt.problems.convex.losses import HuberLoss
from privopt.problems.convex.parsing import parse_loss
from privopt.problems.convex.risk import EmpiricalRisk

SCHEMA = Schema([Numeric("age", 0, 100, zero=0, one=100), Categorical("smoker", ["no", "yes"])])


Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 95, 600), "smoker": rng.choice(["no", "yes"], 600)})
    frame["state"] = np.where(frame["smoker"] == "yes", "ill", "well")
    frame["cost"] = frame["age"] / 100
    frame.to_csv(tmp_path / "patients.csv", index=False)
    SCHEMA.save(tmp_path / "schema.json")
    monkeypatch.chdir(tmp_path)


FIT = ("fit", "--data", "patients.csv", "--schema", "schema.json", "--target", "state", "--classes")
CLASSIFY = (*FIT, "well,ill", "--epsilon", 5, "--insecure-seed", 0, "--json", "out.json")


def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out.json").read_text())
    return found


@pytest.mark.parametrize(
    "options",
    [
        ("--mechanism", "dp-gd"),
        ("--mechanism", "dp-pgd", "--set", "l2:5", "--regularizer", "l1:0.001"),
        ("--mechanism", "dp-fw-l2", "--set", "linf:4"),
        ("--mechanism", "dp-fw-l1", "--set", "l1:10", "--steps", 30),
        ("--mechanism", "dp-pmd", "--set", "l1:10"),
        ("--mechanism", "dp-accmd"),
        ("--mechanism", "output-perturbation", "--regularizer", "l2:0.01"),
        ("--mechanism", "objective-perturbation"),
        ("--mechanism", "screened-statistics"),
        ("--loss", "sigmoid", "--mechanism", "dp-fw-l2", "--set", "l2:10", "--steps", 60),
        ("--loss", "logistic"),
        pytest.param(("--mechanism", "dp-sgd"), marks=pytest.mark.slow),
        pytest.param(("--mechanism", "dp-svrg", "--regularizer", "l2:0.01"), marks=pytest.mark.slow),
        pytest.param(("--mechanism", "dp-svrg++"), marks=pytest.mark.slow),
    ],
)
def test_fit_reports_what_every_fit_reports(privopt: Command, options: tuple[object, ...]) -> None:
    run = privopt(*CLASSIFY, *options)
    assert run.returncode == 0, run.stderr
    found = report()
    assert {"mechanism", "epsilon", "delta", "neighbours", "oracle", "seconds", "certificate"} <= set(found)
    assert {"status", "value", "bound", "gap"} <= set(found["certificate"])
    if "perturbation" in found["mechanism"]:
        proof = found["certificate"]
        assert proof["status"] == "OPTIMAL"
        assert proof["bound"] <= proof["value"]
        assert 0 < proof["gradient_norm"] < 1e-3
    else:
        assert found["certificate"]["status"] == "NO_CERTIFICATE"
    assert {"certificate", "seconds"} <= set(found["not_private"])
    assert found["mechanism"] in (options if "--mechanism" in options else ("sufficient-statistics",))
    assert found["delta"] <= 1 / 600**2
    assert {"sigma", "gumbel_scale"} & set(found) or "anchor_sigma" in found
    assert "train_accuracy" in found["not_private"]
    schema = SCHEMA if "--mechanism" in options else SCHEMA.with_bins()
    assert len(found["weights"]) == len(found["features"]) == schema.n_features
    assert "warning" not in run.stderr  # the schema and the classes are all that is needed
    if "sigmoid" not in options:
        assert found["train_accuracy"] > 0.8


def test_saved_models_predict(privopt: Command) -> None:
    assert privopt(*CLASSIFY, "--loss", "logistic", "--save", "model.json").returncode == 0
    run = privopt("predict", "model.json", "patients.csv")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.strip().splitlines()
    assert lines[0] == "score,prediction"
    predicted = [line.partition(",")[2] for line in lines[1:]]
    truth = pd.read_csv("patients.csv")["state"].tolist()
    hits = np.mean([p == t for p, t in zip(predicted, truth, strict=True)])
    assert hits == pytest.approx(report()["train_accuracy"])
    saved = json.loads(Path("model.json").read_text())
    Path("model.json").write_text(json.dumps({**saved, "weights": "none"}))
    assert privopt("predict", "model.json", "patients.csv").returncode == 2


def test_regression(privopt: Command) -> None:
    words = ("fit", "--data", "patients.csv", "--schema", "schema.json", "--target", "cost", "--epsilon", 20)
    options = (
        "--loss",
        "squared",
        "--regularizer",
        "l2:0.01",
        "--label-range=-1:1",
        "--json",
        "out.json",
        "--save",
        "model.json",
    )
    run = privopt(*words, *options, "--insecure-seed", 0)
    assert run.returncode == 0, run.stderr
    assert report()["train_r2"] > 0.5
    assert privopt("predict", "model.json", "patients.csv").stdout.startswith("prediction\n")
    for wrong in ("1", "1:2:3", "low:high", "2:1", "nan:1"):
        run = privopt(*words, "--loss", "squared", f"--label-range={wrong}")
        assert run.returncode == 2
        assert "range" in run.stderr


def test_labels_far_from_0_are_centred_and_the_card_says_so(privopt: Command) -> None:
    table = pd.read_csv("patients.csv")
    table["cost"] += 30
    table.to_csv("shifted.csv", index=False)
    schema = json.loads(Path("schema.json").read_text())
    Path("constant.json").write_text(json.dumps({**schema, "intercept": True}))
    words = ("fit", "--data", "shifted.csv", "--target", "cost", "--epsilon", 20, "--loss", "squared")
    options = ("--label-range", "29:31", "--json", "out.json", "--insecure-seed", 0)
    for facts, name in (("schema.json", "intercept"), ("constant.json", "added to predictions")):
        run = privopt(*words, *options, "--schema", facts)
        assert run.returncode == 0, run.stderr
        assert report()["train_r2"] > 0.4
        assert name in run.stdout


def test_calibrate_takes_half_the_range_of_labels(privopt: Command) -> None:
    """The squared loss is linear beyond the width, so gradients and noise are in proportion to it."""
    words = ("calibrate", "dp-gd", "--epsilon", 1, "--dimension", 5, "--records", 1000, "--steps", 10)
    sigmas = [
        json.loads(privopt(*words, "--loss", "squared", f"--label-range={text}", "--json").stdout)["sigma"]
        for text in ("-1:1", "15:60")
    ]
    assert sigmas[1] == pytest.approx(22.5 * sigmas[0])


def test_options_of_the_other_kind_of_model_are_refused(privopt: Command) -> None:
    for wrong in (
        ("--mechanism", "dp-gd", "--lattice", "-1:1"),
        ("--mechanism", "rspm", "--loss", "logistic"),
    ):
        run = privopt(*CLASSIFY, *wrong)
        assert run.returncode == 2
        assert "belongs to" in run.stderr
    assert privopt(*CLASSIFY, "--loss", "hinge").returncode == 2


def test_calibrate_needs_no_data(privopt: Command) -> None:
    words = ("calibrate", "dp-gd", "--epsilon", 1, "--delta", 1e-6, "--dimension", 20, "--records", 10_000)
    run = privopt(*words, "--data-norm", 2, "--steps", 100, "--json")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    # T steps of sensitivity 2 G / n, G = data norm for the logistic loss, are one Gaussian release.
    assert found["sigma"] == pytest.approx(10 * 2 * 2 / 10_000 / gaussian_mu(1.0, 1e-6), rel=1e-3)
    assert (found["steps"], found["epsilon"], found["delta"]) == (100, 1.0, 1e-6)
    assert privopt("calibrate", "dp-gd", "--epsilon", 1, "--delta", 1e-6).returncode == 2
    none = privopt("calibrate", "dp-gd", "--epsilon", 1, "--delta", 0, "--dimension", 20, "--records", 10_000)
    assert none.returncode == 2, "a delta that was given is not another one"
    chosen = privopt(*words, "--json").stdout
    assert json.loads(chosen)["steps"] > 1


@pytest.mark.parametrize("intercept", [False, True])
def test_the_bound_on_rows_is_the_schemas(intercept: bool) -> None:
    schema = Schema(SCHEMA.columns, intercept)
    X = encoded(schema, pd.DataFrame({"age": [0, 100, 37], "smoker": ["yes", "no", "no"]}))
    assert np.linalg.norm(X, axis=1).max() == pytest.approx(schema.norm())


def test_losses_by_name() -> None:
    assert parse_loss("huber:0.5") == HuberLoss(0.5)
    assert parse_loss("squared", 3.0).lipschitz == 6.0
    for text in ("huber", "huber:x", "hinge", "squared:2", "logistic:1"):
        with pytest.raises(InvalidInputError):
            parse_loss(text)


def test_linear_reports_have_the_keys_of_scorecard_reports(privopt: Command) -> None:
    """Those of every scorecard are there; what scorecards alone have are rule, points and risks."""
    assert privopt(*CLASSIFY).returncode == 0
    scorecard = report()
    scored = set(scorecard) - {
        "rule",
        "risks",
        "scorecard",
        "scale",
        "beta",
        "l2",
        "output_sigma",
        "larger_class",
        "said_to_be_positive",
    }
    certified = set(scorecard["certificate"])
    for options in (("--mechanism", "dp-gd"), ("--mechanism", "output-perturbation")):
        assert privopt(*CLASSIFY, *options).returncode == 0
        linear = report()
        assert scored <= set(linear)
        assert certified <= set(linear["certificate"])
        assert type(linear["train_accuracy"]) is type(scorecard["train_accuracy"])
        assert linear["notion"] == "gdp"
        assert linear["level"] == pytest.approx(gaussian_mu(5.0, 1 / 600**2), rel=1e-6)


def test_the_first_order_l1_method_clips_in_the_norm_that_its_noise_depends_on(privopt: Command) -> None:
    assert SCHEMA.norm() == pytest.approx(2**0.5)
    assert SCHEMA.norm("linf") == 1.0
    sensitivities = []
    for norm in ((), ("--norm", "linf"), ("--norm", "l2")):
        words = (*CLASSIFY, "--mechanism", "dp-fw-l1", "--set", "l1:5", "--steps", 9, *norm)
        run = privopt(*words)
        assert run.returncode == 0, run.stderr
        sensitivities.append(report()["sensitivity"])
    # 2 * G1 * size / n, G1 = 1 and sqrt(2 + 2 / 4): under l2 the constant feature is half the bound.
    assert sensitivities == pytest.approx([2 * 5 / 600, 2 * 5 / 600, 2 * 5 * 2.5**0.5 / 600], rel=1e-6)
    run = privopt(*CLASSIFY, "--mechanism", "dp-gd", "--norm", "l7")
    assert run.returncode == 2
    assert "--norm is l2 or linf, got 'l7'" in run.stderr


def test_calibrate_prints_what_is_needed_and_nothing_empty(privopt: Command) -> None:
    words = ("--epsilon", 1, "--dimension", 20, "--records", 10_000)
    for mechanism, told in (
        ("dp-gd", ("noise on: the mean gradient", "sigma: ", "sensitivity: ", "steps: ", "mu (GDP): ")),
        ("dp-fw-l1", ("noise on: the score", "step sizes: 1 to ", "set: l1:20", "norm: linf", "rho (zCDP)")),
        ("screened-statistics", ("noise on: the score", "selected features: ", "norm: linf", "rho (zCDP)")),
        ("dp-fw-l2", ("set: l2:", "output: last")),
        ("objective-perturbation", ("output sigma: ", "l2: ", "epsilon: 1")),
    ):
        run = privopt("calibrate", mechanism, *words)
        assert run.returncode == 0, run.stderr
        for text in told:
            assert text in run.stdout, (mechanism, text)
        lines = run.stdout.strip().splitlines()
        assert all(len(line.split(": ", 1)[-1]) > 0 and "None" not in line for line in lines), lines
        assert "delta: 1e-08" in lines  # 1/n^2, as fit does
    found = json.loads(privopt("calibrate", "dp-gd", *words, "--norm", "linf", "--json").stdout)
    # Rows within 1 in every coordinate are within sqrt(20) in l2.
    assert found["sensitivity"] == pytest.approx(2 * 20**0.5 / 10_000, rel=1e-6)
    assert found["level"] == pytest.approx(gaussian_mu(1.0, 1e-8), rel=1e-6)
    assert found["sigma"] == pytest.approx(
        found["steps"] ** 0.5 * found["sensitivity"] / found["level"], rel=1e-6
    )
    run = privopt("calibrate", "dp-gd", "--epsilon", 1, "--records", 100)
    assert (run.returncode, "--dimension" in run.stderr, "--records" in run.stderr) == (2, True, False)
    assert "--dimension 0" in privopt("calibrate", "dp-gd", *words, "--dimension", 0).stderr


def test_a_linear_fit_stops_at_the_time_limit(privopt: Command) -> None:
    for mechanism in ("dp-gd", "objective-perturbation"):
        words = (*CLASSIFY, "--mechanism", mechanism, "--time-limit", 1e-9, "--save", "model.json")
        run = privopt(*words)
        assert run.returncode == 2
        assert "TIME_LIMIT" in run.stderr
        assert "nothing was released" in run.stderr
        assert not Path("model.json").exists()
    assert privopt(*CLASSIFY, "--mechanism", "dp-gd", "--time-limit", 600).returncode == 0


def test_ctrl_c_stops_a_linear_fit_between_steps(privopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives during the third gradient: that step ends, nothing is released, exit code 130."""
    gradient, calls = EmpiricalRisk.gradient, 0

    def interrupted(self: EmpiricalRisk, w: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            signal.raise_signal(signal.SIGINT)
        return gradient(self, w)

    monkeypatch.setattr(EmpiricalRisk, "gradient", interrupted)
    run = privopt(*CLASSIFY, "--mechanism", "dp-gd", "--steps", 50)
    assert (run.returncode, calls) == (130, 3)
    assert "nothing was released" in run.stderr


def test_what_ends_after_a_release_is_not_said_to_be_free(
    privopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the report is made: the model was released, and its budget is spent."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    Ledger.create("ledger", 10.0, 0.1)
    monkeypatch.setattr(PrivateLogisticRegression, "predict", interrupted)
    words = (*FIT, "well,ill", "--epsilon", 5, "--mechanism", "dp-gd", "--steps", 5)
    run = privopt(*words, "--ledger", "ledger")
    assert run.returncode == 130
    assert [entry.state for entry in Ledger("ledger").entries()] == ["committed"]
    assert "Nothing was booked" not in run.stderr
    assert "Interrupted: the model was released, and is paid for" in run.stderr


def test_every_class_has_its_column_of_weights(privopt: Command) -> None:
    frame = pd.read_csv("patients.csv")
    frame["state"] = np.where(frame["age"] > 70, "old", frame["state"])
    frame.to_csv("patients.csv", index=False)
    words = (*FIT, "well,ill,old", "--epsilon", 5, "--insecure-seed", 0, "--json", "out.json")
    run = privopt(*words, "--mechanism", "dp-gd", "--steps", 50)
    assert run.returncode == 0, run.stderr
    for text in ("well", "ill", "old", "age", "intercept", "one-vs-rest: 3 releases share it", "-GDP each"):
        assert text in run.stdout
    assert np.shape(report()["weights"]) == (3, 3)
    assert len(report()["intercept"]) == 3


def test_a_range_of_labels_without_numbers_to_predict_is_refused(privopt: Command) -> None:
    for loss in ((), ("--loss", "sigmoid")):
        run = privopt(*CLASSIFY, "--mechanism", "dp-gd", *loss, "--label-range", "0:1")
        assert run.returncode == 2
        assert "--label-range belongs to regression" in run.stderr


def test_targets_that_do_not_fit_the_loss_get_one_line(privopt: Command) -> None:
    """A number among classes, a hole among numbers: exit code 2, the remedy, and no traceback."""
    table = pd.read_csv("patients.csv")
    rng = np.random.default_rng(0)
    table.assign(cost=rng.uniform(size=len(table))).to_csv("cost.csv", index=False)
    table.assign(cost=np.where(np.arange(len(table)) == 3, np.nan, 0.5)).to_csv("hole.csv", index=False)
    schema = ("--schema", "schema.json", "--target", "cost", "--epsilon", 1)
    for words, told in (
        (("--data", "cost.csv"), "--loss squared"),
        (("--data", "cost.csv", "--loss", "logistic"), "--loss squared"),
        (("--data", "hole.csv", "--loss", "squared", "--label-range", "0:1"), "Input y contains NaN"),
    ):
        run = privopt("fit", *words, *schema)
        assert run.returncode == 2, run.stderr
        assert told in run.stderr
        assert len(run.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("calibrate", "dp-gd", "--separation", 2), "--separation belongs to scorecards"),
        (("calibrate", "dp-gd", "--calibration", "printed"), "--calibration belongs to scorecards"),
        (("calibrate", "dp-gd", "--label-range", "0:5"), "--label-range belongs to regression"),
        (("calibrate", "opdisc", "--delta", 1e-6, "--set", "l2:3"), "belongs to linear models"),
        ((*FIT[:-1], "--loss", "squared", "--classes", "a,b"), "--classes belongs to classification"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    privopt: Command, words: tuple[object, ...], told: str
) -> None:
    size = ("--dimension", 4) if words[0] == "calibrate" else ()
    records = ("--records", 100) if "dp-gd" in words else ()
    run = privopt(*words, *size, *records, "--epsilon", 1)
    assert (run.returncode, told in run.stderr) == (2, True), run.stderr


def test_records_of_unknown_size(privopt: Command) -> None:
    """No schema, no norm, no range, and no warning; the model finds its columns by name."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"visits": rng.lognormal(2, 1, 3000), "income": 1e4 * rng.pareto(3, 3000) + 2e4})
    frame["bill"] = 300 * frame["visits"] + frame["income"] / 10 + 100 * rng.standard_t(2.5, 3000)
    frame["high"] = np.where(frame["bill"] > frame["bill"].median(), "yes", "no")
    frame.drop(columns="high").to_csv("bills.csv", index=False)
    budget = ("--epsilon", 3, "--insecure-seed", 0, "--robust")
    words = ("fit", "--data", "bills.csv", "--target", "bill", "--loss", "squared", *budget)
    fitted = privopt(*words, "--save", "m.json", "--json", "out.json")
    assert fitted.returncode == 0, fitted.stderr
    assert "PrivacyLeak" not in fitted.stderr
    assert report()["mechanism"] == "clipped-newton"
    assert report()["weights"] == pytest.approx([300, 0.1], rel=0.15)
    predicted = privopt("predict", "m.json", "bills.csv")
    assert predicted.returncode == 0, predicted.stderr
    assert "prediction" in predicted.stdout.splitlines()[0]
    frame.drop(columns=["visits", "bill"]).to_csv("other.csv", index=False)
    assert "visits" in privopt("predict", "m.json", "other.csv").stderr
    frame.drop(columns="bill").to_csv("classes.csv", index=False)
    words = ("fit", "--data", "classes.csv", "--target", "high", "--classes", "no,yes", *budget)
    assert privopt(*words, "--save", "c.json", "--json", "out.json").returncode == 0
    assert report()["train_accuracy"] > 0.85
    assert privopt("predict", "c.json", "classes.csv", "--proba").returncode == 0
    Schema([Numeric("visits", 0, 10**6), Numeric("income", 0, 10**9)]).save("wide.json")
    words = ("--epsilon", 1, "--records", 3000, "--robust", "--loss", "squared")
    planned = privopt("plan", "--schema", "wide.json", *words)
    assert "clipped-newton" in planned.stdout
    assert "found privately" in planned.stdout
    noise = json.loads(privopt("plan", "--schema", "wide.json", *words, "--json").stdout)
    words = ("--epsilon", 1, "--dimension", 2, "--records", 3000, "--loss", "squared", "--json")
    calibrated = json.loads(privopt("calibrate", "clipped-newton", *words).stdout)
    assert calibrated["sigma"] == noise["sigma"]
    assert privopt("plan", "--schema", "wide.json", "--epsilon", 1, "--records", 9, "--steps", 3).returncode


def test_features_are_chosen_on_the_command_line(privopt: Command) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 11, (800, 6)), columns=[f"x{j}" for j in range(6)])
    frame["cost"] = frame["x1"] - frame["x4"]
    frame.to_csv("choice.csv", index=False)
    names = "".join(f'[[columns]]\nkind = "numeric"\nname = "x{j}"\nlow = 0\nhigh = 10\n\n' for j in range(6))
    Path("choice.toml").write_text(names)
    words = ("fit", "--data", "choice.csv", "--target", "cost", "--schema", "choice.toml", "--epsilon", 20)
    more = ("--loss", "squared", "--label-range=-10:10", "--max-features", 2, "--delta", 1e-6)
    run = privopt(*words, *more, "--json", "report.json", "--save", "m.json")
    assert run.returncode == 0, run.stderr
    report = json.loads(Path("report.json").read_text())
    assert report["chosen"] == ["x1", "x4"]
    assert report["epsilon"] == 20
    assert [w != 0 for w in report["weights"]] == [j in (1, 4) for j in range(6)]
    assert "x0" not in run.stdout
    assert privopt("predict", "m.json", "choice.csv").returncode == 0
    for mechanism in ("sufficient-statistics", "best-subset"):
        run = privopt(*words, *more, "--mechanism", mechanism, "--json", "report.json")
        assert run.returncode == 0, run.stderr
        report = json.loads(Path("report.json").read_text())
        assert report["chosen"] == ["x1", "x4"]
        assert ("at epsilon = 10" in report["note"]) == (mechanism == "best-subset")
    assert "unknown mechanism" in privopt(*words, *more[:3], "--mechanism", "best-subset").stderr
    refused = privopt(*words, "--loss", "logistic", "--max-features", 2)
    assert "--max-features belongs to regression" in refused.stderr


def test_a_choice_of_features_is_planned(privopt: Command) -> None:
    words = ("calibrate", "best-subset", "--dimension", 12, "--max-features", 2, "--epsilon", 1)
    found = json.loads(privopt(*words, "--records", 4000, "--snr", 5, "--json").stdout)
    # Labels and predictions within [-1, 1]: Delta = 4, and beta = epsilon / (2 Delta).
    assert (found["subsets"], found["epsilon"], found["delta"]) == (66, 1.0, 0.0)
    assert (found["largest_loss"], found["beta"]) == pytest.approx((4.0, 1 / 8), rel=1e-3)
    assert found["recovery"] == 1.0  # the next best subset loses by over 100 units of 1 / beta
    for wrong, told in (
        (("calibrate", "best-subset", "--epsilon", 1, "--dimension", 12), "needs --max-features"),
        ((*words, "--snr", 5), "--records"),
        ((*words, "--delta", 1e-6), "does not take --delta"),
        (("calibrate", "exponential", "--epsilon", 1, "--snr", 5), "--snr: belongs to best-subset"),
    ):
        run = privopt(*wrong)
        assert (run.returncode, told in run.stderr) == (2, True), run.stderr
    Path("choice.toml").write_text('[[columns]]\nkind = "numeric"\nname = "x"\nlow = 0\nhigh = 10\n')
    plan = ("plan", "--schema", "choice.toml", "--records", 100, "--epsilon", 1, "--loss", "squared")
    assert (
        "calibrate best-subset --dimension 1 --max-features 1" in privopt(*plan, "--max-features", 1).stderr
    )

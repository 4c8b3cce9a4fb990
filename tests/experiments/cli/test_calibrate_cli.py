"""``privopt calibrate`` takes the same facts of every mechanism, and says the same words of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import privopt.experiments.cli.calibrate as module
from privopt.experiments.cli.estimate_plans import ESTIMATES
from privopt.experiments.cli.release_plans import RELEASES
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateLogisticRegression,
    PrivateRuleListClassifier,
    PrivateSearchCV,
    PrivateTreeClassifier,
)
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.registry import ENTRIES, Family

FACTS = ("--epsilon", "1", "--dimension", "4", "--records", "2000")
# Public facts that single mechanisms need besides; few steps or batches, which are quicker to account for.
MORE: dict[str, tuple[str, ...]] = {
    "robust-mean": ("--moment", "2"),
    "trimmed-mean": ("--range=-1:1",),
    "subset-mean": ("--radius", "1"),
    "sample-aggregate": ("--radius", "1", "--subsets", "700"),
    "best-subset": ("--max-features", "2"),
    "dp-sgd": ("--steps", "5"),
}
KNOWN_GRADIENTS = {
    "robust-gd": ("--moment", "2"),
    "robust-sgd": ("--moment", "2", "--steps", "5"),
    "trimmed-gd": ("--range=-1:1",),
}
CASES = {
    **{
        f"{entry.family.name}-{entry.name}": (
            entry.name,
            KNOWN_GRADIENTS[entry.name]
            if entry.family is Family.UNBOUNDED_RISK
            else ("--loss", "squared") if entry.name == "sufficient-statistics" else MORE.get(entry.name, ()),
        )
        for entry in ENTRIES
    },
    **{name: (name, MORE.get(name, ())) for name in (*ESTIMATES, SubsetPlan.name, "auto")},
}  # fmt: skip
SPEND = ["epsilon", "delta", "notion", "level", "neighbours", "claim", "note"]


def calibrated(*words: str) -> Any:
    return CliRunner().invoke(module.app, list(words))


@pytest.mark.parametrize(("name", "more"), CASES.values(), ids=CASES)
def test_every_mechanism_is_told_in_the_same_words(name: str, more: tuple[str, ...]) -> None:
    run = calibrated(name, *FACTS, *more, "--json")
    assert run.exit_code == 0, run.exception
    check_words(report := json.loads(run.output), name)
    assert report["delta"] in (0, 1 / 2000**2)


def check_words(report: dict[str, Any], name: str) -> None:
    """Check the order of what is said of every mechanism."""
    keys = list(report)
    assert keys[:3] == ["mechanism", "reason", "noise_on"]
    use = keys.index("noise_to_signal")
    assert use > 3  # numbers of the noise come first
    assert keys[use : use + 2] == ["noise_to_signal", "warning"]
    assert [key for key in keys[use + 2 :] if key in SPEND] == [key for key in SPEND if key in keys]
    assert report["noise_on"]
    assert report["epsilon"] == 1
    if name != "auto":
        assert (report["mechanism"], report["reason"]) == (name, "it was asked for")


def test_auto_says_what_it_takes_and_why_also_with_steps() -> None:
    lines = calibrated("auto", *FACTS).output.splitlines()
    assert lines[0] == "mechanism: sufficient-statistics"
    assert lines[1].startswith("reason: where the budget is small")
    many = ("--epsilon", "1", "--dimension", "1200", "--records", "2000", "--norm", "linf")
    assert json.loads(calibrated("auto", *many, "--json").output)["mechanism"] == "screened-statistics"
    stepped = json.loads(calibrated("auto", *many, "--steps", "7", "--json").output)
    assert (stepped["mechanism"], stepped["steps"]) == ("dp-fw-l1", 7)


def test_known_moments_of_gradients_are_another_plan_of_the_same_name() -> None:
    searched, known = (
        json.loads(calibrated("robust-gd", *FACTS, *more, "--json").output)
        for more in ((), KNOWN_GRADIENTS["robust-gd"])
    )
    assert "counts_sigma" in searched
    assert "counts_sigma" not in known
    assert "--range: belongs to" in str(calibrated("robust-gd", *FACTS, "--range=-1:1").exception)


def test_records_give_cards_a_delta_and_a_measure_of_use() -> None:
    with_records = json.loads(calibrated("opdisc", *FACTS, "--json").output)
    without = json.loads(calibrated("opdisc", *FACTS[:4], "--delta", "2.5e-7", "--json").output)
    assert with_records["sigma"] == without["sigma"]
    assert without["noise_to_signal"] is None
    assert 0 < with_records["noise_to_signal"] < 1
    told = calibrated("opdisc", *FACTS[:4], "--delta", "2.5e-7").output
    assert "noise / signal: not known from these facts" in told


SCHEMA = """
[[columns]]
name = "age"
kind = "binned"
edges = [0, 30, 50, 90]
"""
# Facts of releases that count no features, without those of schemas.
RELEASED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("tree", "rule-list", "additive-tree"), ("--records", "2000", "--schema", "SCHEMA")),
    "private-selection": ("--records", "2000", "--candidates", "4"),
    "learn-schema": ("--records", "2000", "--types", "age=whole"),
    **dict.fromkeys(("evaluation", "leaf-histogram"), ()),
    **dict.fromkeys(("regression-evaluation", "regression-comparison"), ("--label-range=0:10",)),
}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    (made := tmp_path / "s.toml").write_text(SCHEMA)
    return made


def released(name: str, schema: Path, *more: str) -> dict[str, Any]:
    facts = [str(schema) if word == "SCHEMA" else word for word in RELEASED[name]]
    run = calibrated(name, "--epsilon", "1", *facts, *more, "--json")
    assert run.exit_code == 0, run.exception
    found: dict[str, Any] = json.loads(run.output)
    return found


def test_facts_of_all_releases_are_tested() -> None:
    assert RELEASED.keys() == RELEASES.keys()


@pytest.mark.parametrize("name", RELEASED)
def test_trees_searches_schemas_and_evaluations_are_told_in_the_same_words(name: str, schema: Path) -> None:
    check_words(report := released(name, schema), name)
    assert report["delta"] in (0, 1 / 2000**2)


def test_trees_are_calibrated_by_the_plan_of_their_fit(schema: Path) -> None:
    depth = {"tree": PrivateTreeClassifier(1.0, schema=schema, max_depth=2)}
    depth["rule-list"] = PrivateRuleListClassifier(1.0, schema=schema, max_rules=2)
    for name, model in depth.items():
        plan, report = model.plan(2000), released(name, schema, "--max-depth", "2")
        assert report["beta"] == plan.plan.choice.beta, name
        assert report["noise_to_signal"] == plan.noise_to_signal.ratio, name
        assert report["levels"] == 2, name
    both, report = (
        PrivateAdditiveTreeClassifier(1.0, schema=schema, class_weight="balanced").plan(2000),
        released("additive-tree", schema),
    )
    assert report["tree_beta"] == both.tree.plan.choice.beta
    assert report["note"] == both.spend.note


def test_a_run_of_a_search_is_calibrated_as_the_search_runs_it() -> None:
    models = [
        PrivateLogisticRegression(mechanism="output-perturbation", regularizer=f"l2:{c}") for c in (1, 2)
    ]
    declared = [model.set_params(data_norm=1.0, classes=(0, 1)) for model in models]
    plan = PrivateSearchCV(declared).plan(2000, 3).selection
    words = ("private-selection", "--epsilon", "1", "--records", "2000", "--candidates", "2", "--json")
    assert json.loads(calibrated(*words).output)["run_mu"] == plan.run_mu
    pure = json.loads(calibrated(*words, "--delta", "0").output)
    assert (pure["run_epsilon"], pure["scale"]) == (pytest.approx(0.5), pytest.approx(2.0))


def test_evaluations_and_schemas_state_the_noise_of_their_plans(schema: Path) -> None:
    # A replaced record moves two counts by 1 each: scale 2 at epsilon 1.
    assert released("evaluation", schema)["scale"] == pytest.approx(2.0)
    # e^2 has a third of epsilon (.32), and one record moves it by at most 1.
    assert released("regression-evaluation", schema)["scale of e^2"] == pytest.approx(1 / 0.32, rel=1e-3)
    one, two = (
        json.loads(
            calibrated("learn-schema", "--epsilon", "1", "--records", "9000", "--types", t, "--json").output
        )
        for t in ("a=whole", "a=whole,b=number")
    )
    assert one["mu_of_a_column"] == pytest.approx(two["mu_of_a_column"] * 2**0.5)
    assert two["column b"] == "7 cuts"

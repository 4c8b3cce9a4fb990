"""``privopt calibrate`` takes the same facts of every mechanism, and says the same words of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import privopt.experiments.cli.calibrate as module
from privopt.experiments.cli.estimate_plans import ESTIMATES
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
    report = json.loads(run.output)
    keys = list(report)
    assert keys[:3] == ["mechanism", "reason", "noise_on"]
    use = keys.index("noise_to_signal")
    assert use > 3  # numbers of the noise come first
    assert keys[use : use + 2] == ["noise_to_signal", "warning"]
    assert [key for key in keys[use + 2 :] if key in SPEND] == [key for key in SPEND if key in keys]
    assert report["noise_on"]
    assert report["epsilon"] == 1
    assert report["delta"] in (0, 1 / 2000**2)
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


@pytest.mark.parametrize(("name", "command"), module._ELSEWHERE.items())
def test_what_needs_more_than_these_facts_is_shown_by_another_command(
    privopt: Callable[..., Any], name: str, command: str
) -> None:
    refused = privopt("calibrate", name, "--epsilon", 1)
    assert refused.returncode
    assert command in refused.stderr
    words = command.removeprefix("privopt ").split(" --", 1)[0].split()
    options = privopt(*words, "--help").stdout
    assert all(option in options for option in command.split() if option.startswith("--"))

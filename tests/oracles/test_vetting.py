"""Code from outside the package: not called proved before a kit passed it, nor after it has changed."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError  # type: ignore[import-untyped]
from typer.testing import CliRunner

from privopt.experiments.cli import check as check_command
from privopt.experiments.cli import solvers as solvers_command
from privopt.mechanisms import (
    NoiseSource,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
)
from privopt.mechanisms.audit.outside import audit_outside
from privopt.mechanisms.convex.gradient_descent import DPProximalGradient
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.errors import AuditError, UnknownMechanismError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.scorecards.class_points import ClassPoints
from privopt.oracles.errors import ConformanceError
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.wrappers import Counting
from privopt.oracles.select import gibbs_oracle, inventory
from privopt.oracles.vetting import remember, standing, state_file
from privopt.problems import Numeric, Schema
from privopt.problems.convex.losses import WeightedLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.discrete.halfspace import ZeroOneHalfspace

RECORDS = np.array([[1, 0], [0, 1], [1, 1]]), np.array([1, -1, 1])
RUNS = 200
SOURCE = """
import dataclasses
import numpy as np
from privopt.mechanisms.audit.outside import audit_outside
from privopt.mechanisms.convex.gradient_descent import DPProximalGradient
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.oracles.draw.stream import GibbsStream
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.errors import InvalidInputError

class Mine(EnumerationOracle):
    name = "mine"

class MyMechanism(ExponentialMechanism):
    name = "my-mechanism"

class MyDraw(GibbsStream):
    name = "my-draw"

class MyDescent(DPProximalGradient):
    name = "my-descent"

class MyNewton(ClippedNewton):
    name = "my-newton"

class MyMean(RobustMean):
    name = "my-mean"

class HalfTheNoise(ExponentialMechanism):
    name = "half-the-noise"

    @classmethod
    def plan(cls, *facts, epsilon, **rest):
        made = super().plan(*facts, epsilon=5 * epsilon, **rest)
        return dataclasses.replace(made, spend=dataclasses.replace(made.spend, epsilon=epsilon))

class MyCards(SeededScorecard):
    name = "my-cards"

class Constant(ExponentialMechanism):
    name = "constant"

    def release(self, oracle, noise=None, limits=None):
        return dataclasses.replace(super().release(oracle, noise), point=np.zeros(3, dtype=np.int64))

class Fails(ExponentialMechanism):
    name = "fails"

    def release(self, oracle, noise=None, limits=None):
        raise FAILURE

class Choosy(ExponentialMechanism):
    name = "choosy"

    @classmethod
    def plan(cls, problem, lattice, **rest):
        raise InvalidInputError("one coordinate only")

def loud(kind):
    class Loud(kind):
        @classmethod
        def plan(cls, *facts, epsilon, **rest):
            made, true = super().plan(*facts, epsilon=7 * epsilon, **rest), super().plan(
                *facts, epsilon=epsilon, **rest
            )
            return dataclasses.replace(made, spend=true.spend)

    return Loud

class LoudDescent(loud(DPProximalGradient)):
    name = "loud-descent"

class LoudMean(loud(RobustMean)):
    name = "loud-mean"

class LoudNewton(loud(ClippedNewton)):
    name = "loud-newton"

class MyRobust(RobustGradientDescent):
    name = "my-robust"

class MyLoss(HuberLoss):
    pass

class MySlope(LogisticLoss):
    pass

class MyBall(L2Ball):
    pass
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of somebody else, and nothing remembered."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "of_somebody.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "of_somebody", raising=False)
    found = importlib.import_module("of_somebody")
    monkeypatch.setitem(sys.modules, "of_somebody", found)
    return found


def fitted(oracle: object, **settings: object) -> PrivateHalfspaceClassifier:
    model = PrivateHalfspaceClassifier(
        oracle=oracle,
        schema=Schema([Numeric("x0", 0, 1), Numeric("x1", 0, 1)]),
        classes=(-1, 1),
        epsilon=1.0,
        delta=1e-3,
        **{"mechanism": "opdisc", **settings},
    )
    return model.fit(*RECORDS)


def test_a_card_of_an_unchecked_oracle_is_not_called_proved(outside: ModuleType, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=2.0, delta=1e-2)
    for oracle in (outside.Mine(), Counting(outside.Mine())):
        spend = fitted(oracle, ledger=ledger).spend_
        assert spend.claim == "not checked"
        assert "of_somebody:Mine: not checked by the kit" in spend.note
        assert "not checked" in str(spend)
    assert fitted("enumerate").spend_.claim == fitted(Counting(EnumerationOracle())).spend_.claim == "proved"


def test_a_card_of_an_unchecked_mechanism_is_made_and_not_called_proved(outside: ModuleType) -> None:
    spend = fitted("auto", mechanism=outside.MyCards).spend_
    assert spend.claim == "not checked"
    assert "MyCards: not checked by the audit" in spend.note
    with pytest.raises(UnknownMechanismError, match=r"ClassPoints .* subclasses of SeededScorecard"):
        fitted("auto", mechanism=ClassPoints)


def test_the_ledger_books_the_claim_that_is_released(outside: ModuleType, tmp_path: Path) -> None:
    """And the plan, made before either, states it."""
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=9.0, delta=1e-1)
    mine = (
        (outside.Mine(), {}),
        (outside.MyDraw(), {"mechanism": "seeded"}),
        ("auto", {"mechanism": outside.MyMechanism}),
    )
    for oracle, settings in mine:
        model = fitted(oracle, ledger=ledger, **settings)
        booked = ledger.entries()[-1].spend
        assert booked == model.spend_
        assert booked == model.plan(3).spend
        assert booked.claim == "not checked"
    assert ": not checked by the audit" in booked.note


def test_linear_models_of_unchecked_code_are_not_called_proved(outside: ModuleType, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=9.0, delta=1e-1)
    X, y = np.arange(24.0).reshape(12, 2) / 40, [-1, 1] * 6
    given = {"classes": (-1, 1), "delta": 1e-3, "ledger": ledger}
    sets = {"mechanism": "dp-pgd", "convex_set": outside.MyBall(3, 1.0)}
    for part, model in {
        "MyDescent: not checked by the audit": PrivateLogisticRegression(
            mechanism=outside.MyDescent, data_norm=1.0, **given
        ),
        "MyBall: not checked by the kit": PrivateLogisticRegression(data_norm=1.0, **sets, **given),
        "MyNewton: not checked by the audit": PrivateRobustClassifier(mechanism=outside.MyNewton, **given),
    }.items():
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # few records
            model.fit(X, y)
        for spend in (model.spend_, ledger.entries()[-1].spend, model.releases_[0].spend):
            assert spend.claim == "not checked"
            assert part in spend.note
    own = PrivateLogisticRegression(mechanism="dp-pgd", data_norm=1.0, **given).fit(X, y)
    assert own.spend_.claim == ledger.entries()[-1].spend.claim == "proved"


def test_releases_name_the_unchecked_code_they_rely_on(outside: ModuleType) -> None:
    X, y = np.zeros((4, 1)), [-1.0, 1.0] * 2
    for loss in (outside.MyLoss(1.0), WeightedLoss(outside.MySlope(), 2.0)):
        risk = EmpiricalRisk(X, y, loss)
        plan = DPProximalGradient.plan(risk.facts, epsilon=1.0, delta=1e-3, steps=1)
        assert plan.release(risk).spend.claim == plan.spend.claim == "not checked"
        assert f"{type(getattr(loss, 'base', loss)).__name__}: not checked by the kit" in plan.spend.note
    mean = outside.MyMean.plan(4, 1, moment=1.0, epsilon=1.0, delta=1e-3)
    assert "MyMean: not checked by the audit" in mean.release(X).spend.note


def test_a_kit_is_no_audit(outside: ModuleType) -> None:
    remember(outside.MyMechanism, "oracle")
    assert not standing(outside.MyMechanism, "mechanism").passed  # type: ignore[union-attr]
    assert "passed the audit of privopt" in remember(outside.MyMechanism, "mechanism").words


def test_the_list_of_oracles_tells_which_were_checked(outside: ModuleType, tmp_path: Path) -> None:
    facts = tmp_path / "of_somebody-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: of-somebody\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[privopt.minimizers]\nmine = of_somebody:Mine\n[privopt.samplers]\nmy-draw = of_somebody:MyDraw\n"
    )
    remember(outside.Mine)
    told = {entry.name: entry.standing for entry in inventory()}
    assert "of_somebody:Mine: passed the kit of privopt" in told["mine"]
    assert told["my-draw"] == "oracle of_somebody:MyDraw: not checked by the kit"
    assert told["enumerate"] == told["native"] == ""
    shown = CliRunner().invoke(solvers_command.app, []).output
    assert "mine: oracle of_somebody:Mine: passed the kit" in shown
    assert "my-draw: oracle of_somebody:MyDraw: not checked by the kit. To do: privopt check my-draw" in shown


def test_the_command_audits_a_mechanism_and_remembers_what_passes(
    outside: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_command.joblib, "cpu_count", lambda: 1)
    found = CliRunner().invoke(check_command.app, ["of_somebody:MyMechanism", "--runs", "400"])
    assert found.exit_code == 0, found.output
    assert "A copy planned for eight times epsilon was rejected" in found.output
    assert "mechanism of_somebody:MyMechanism: passed the audit of privopt" in found.output
    assert list(json.loads(state_file().read_text())) == ["of_somebody:MyMechanism (audit)"]
    lattice = OPDisc.default_lattice(2)
    assert outside.MyMechanism.plan(ZeroOneHalfspace, lattice, epsilon=1.0).spend.claim == "proved"


@pytest.mark.parametrize("name", ["HalfTheNoise", "LoudDescent", "LoudMean", "LoudNewton"])
def test_the_audit_refutes_mechanisms_with_too_little_noise(outside: ModuleType, name: str) -> None:
    with pytest.raises(AuditError, match=f"{name}: epsilon = 1 .* is refuted"):
        audit_outside(getattr(outside, name), runs=4 * RUNS, insecure_seed=3)


@pytest.mark.parametrize("name", ["MyMean", "MyNewton", "MyRobust"])
def test_the_audit_lets_claims_stand_that_are_true(outside: ModuleType, name: str) -> None:
    lines = audit_outside(getattr(outside, name), runs=RUNS, insecure_seed=3)
    assert [line.mutant for line in lines] == [False, True]


def test_an_audit_that_cannot_tell_a_mutant_passes_nothing(outside: ModuleType) -> None:
    with pytest.raises(AuditError, match="these runs say nothing"):
        audit_outside(outside.Constant, runs=400, insecure_seed=3)
    with pytest.raises(
        AuditError, match=r"Choosy refuses .*on which it would be audited.*a pair of your own"
    ):
        audit_outside(outside.Choosy, runs=400)
    for unknown in (outside.Mine, outside.MyCards):
        with pytest.raises(
            AuditError, match=r"no neighbours are known.*on a pair of your own; then .*remember"
        ):
            audit_outside(unknown, runs=400)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ZeroDivisionError("by 0"), r"Fails failed on singled out.* \(ZeroDivisionError: by 0\)"),
        (TerminatedWorkerError("a long text"), "Fails: a process was killed .*lack of memory"),
    ],
)
def test_an_audit_says_where_a_mechanism_failed(outside: Any, failure: Exception, told: str) -> None:
    outside.FAILURE = failure
    with pytest.raises(AuditError, match=told):
        audit_outside(outside.Fails, runs=400)


def test_a_release_of_an_unchecked_mechanism_is_not_called_proved(outside: ModuleType) -> None:
    lattice = OPDisc.default_lattice(2)
    problem = ZeroOneHalfspace(*RECORDS, lattice)
    for mechanism, claim in ((ExponentialMechanism, "proved"), (outside.MyMechanism, "not checked")):
        plan = mechanism.plan(ZeroOneHalfspace, lattice, epsilon=1.0)
        oracle = gibbs_oracle("enumerate").prepare(problem, plan.question)
        assert plan.release(oracle, NoiseSource(insecure_seed=0)).spend.claim == claim


def test_what_passed_is_remembered_until_its_source_changes(outside: ModuleType, tmp_path: Path) -> None:
    assert "passed the kit of privopt" in remember(outside.Mine).words
    spend = fitted(outside.Mine()).spend_
    assert spend.claim == "proved"
    assert "of_somebody:Mine: passed the kit of privopt" in spend.note
    assert standing(outside.MyMechanism, "mechanism") is not None
    assert not standing(outside.MyMechanism, "mechanism").passed  # type: ignore[union-attr]
    with (tmp_path / "of_somebody.py").open("a") as file:
        file.write("# changed\n")
    spend = fitted(outside.Mine()).spend_
    assert spend.claim == "not checked"
    assert "it has changed since" in spend.note


@pytest.mark.parametrize("text", ["{", "[]", '{"of_somebody:Mine": {"digest": null}}'])
def test_a_file_that_is_no_record_of_checks_vouches_for_nothing(outside: ModuleType, text: str) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)
    assert not standing(outside.Mine, "oracle").passed  # type: ignore[union-attr]


def test_code_without_a_source_file_cannot_be_remembered(outside: ModuleType) -> None:
    kind = type("Typed", (EnumerationOracle,), {"__module__": "nowhere"})
    with pytest.raises(ValueError, match="cannot be read"):
        remember(kind)
    assert not standing(kind, "oracle").passed  # type: ignore[union-attr]


def test_the_command_remembers_what_passes_alone(
    outside: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(oracle: object) -> None:
        raise ConformanceError("mine: 1 failure")

    kit = check_command.check_oracle
    monkeypatch.setattr(check_command, "check_oracle", fails)
    found = CliRunner().invoke(check_command.app, ["of_somebody:Mine"])
    assert found.exit_code != 0
    assert not state_file().exists()
    monkeypatch.setattr(check_command, "check_oracle", lambda oracle: kit(oracle, seeds=(0,)))
    found = CliRunner().invoke(check_command.app, ["of_somebody:Mine"])
    assert found.exit_code == 0, found.output
    assert "checks passed" in found.output
    assert list(json.loads(state_file().read_text())) == ["of_somebody:Mine"]
    assert standing(outside.Mine, "oracle").passed  # type: ignore[union-attr]

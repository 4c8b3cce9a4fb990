"""The ledger never under-counts: overdrafts, crashes, two processes, torn and tampered files, bad input."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    PrivacyParameterError,
)
from privopt.mechanisms.privacy import ledger as ledger_module
from privopt.mechanisms.privacy.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    zcdp_epsilon,
    zcdp_rho,
)
from privopt.mechanisms.privacy.ledger import Budget, Ledger, compose
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball

pytest.importorskip("fcntl")

TENTH = PrivacySpend.pure(0.1, "test")


def test_reserve_commit_cancel(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0, 1e-6)
    first, second = ledger.reserve(TENTH), ledger.reserve(PrivacySpend.approximate(0.2, 1e-7, "other"))
    assert ledger.total().epsilon == pytest.approx(0.3)
    ledger.commit(first)
    ledger.cancel(second, "the solver is not installed")
    assert [e.state for e in ledger.entries()] == ["committed", "cancelled"]
    assert (ledger.total().epsilon, ledger.total().delta, ledger.total().rule) == (0.1, 0.0, "basic")
    for identifier in (first, second, "unknown"):
        with pytest.raises(LedgerError, match="no open reservation"):
            ledger.cancel(identifier, "again")
        with pytest.raises(LedgerError, match="no open reservation"):
            ledger.commit(identifier)
    with pytest.raises(LedgerError, match="reason"):
        ledger.cancel(ledger.reserve(TENTH), " ")


def test_ten_tenths_are_one_and_the_eleventh_is_refused_before_it_runs(tmp_path: Path) -> None:
    ledger, runs = Ledger.create(tmp_path / "ledger", 1.0), 0
    for _ in range(10):
        with ledger.spending(TENTH):
            runs += 1
    assert not ledger.affords(TENTH)
    with pytest.raises(BudgetExceededError, match="overdraw"), ledger.spending(TENTH):
        runs += 1
    assert runs == 10
    assert not ledger.affords(PrivacySpend.pure(1e-12, "tiny"))


def test_an_overdraft_says_what_is_short(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "pure", 2.0)
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve(PrivacySpend.approximate(1.0, 1e-6, "a"))
    assert "of epsilon = 2 and delta = 0 under" in str(caught.value)
    assert "Only delta is short: create the ledger with --delta. Nothing" in str(caught.value)
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve(PrivacySpend.approximate(3.0, 1e-6, "b"))
    assert "Only delta" not in str(caught.value)
    with pytest.raises(BudgetExceededError, match="with a larger --delta"):
        Ledger.create(tmp_path / "small", 2.0, 1e-9).reserve(PrivacySpend.approximate(1.0, 1e-6, "c"))


def test_the_budget_is_that_of_the_file_and_not_of_an_earlier_one(tmp_path: Path) -> None:
    old = Ledger.create(tmp_path / "ledger", 10.0)
    os.unlink(old.path)
    Ledger.create(old.path, 0.15)
    old.reserve(TENTH)
    assert not old.affords(TENTH)
    with pytest.raises(BudgetExceededError, match=r"of epsilon = 0\.15"):
        old.reserve(TENTH)


def test_a_failed_release_stays_spent(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    with pytest.raises(RuntimeError), ledger.spending(TENTH):
        raise RuntimeError("no certificate")
    assert ledger.total().epsilon == 0.1
    assert [e.state for e in ledger.entries()] == ["reserved"]


def test_budgets_allow_exactly_what_was_calibrated_to_them() -> None:
    epsilon, delta = 1.3, 1e-6
    gdp = PrivacySpend.gdp(gaussian_mu(epsilon, delta), delta, "one")
    assert Budget(epsilon, delta, "gdp").affords([gdp])
    part = PrivacySpend.gdp(gaussian_mu(epsilon, delta) / math.sqrt(7), delta, "one of seven")
    assert Budget(epsilon, delta, "gdp").affords([part] * 7)
    assert not Budget(epsilon, delta, "gdp").affords([part] * 8)
    rho = PrivacySpend.zcdp(zcdp_rho(epsilon, delta / 2) / 7, delta / 2, "one of seven")
    assert Budget(epsilon, delta, "zcdp").affords([rho] * 7)
    assert not Budget(epsilon, delta, "zcdp").affords([rho] * 8)
    own = PrivacySpend.approximate(0.01, delta / 4, "own delta")
    assert Budget(epsilon, delta, "zcdp").affords([own] * 2)
    assert not Budget(epsilon, delta, "zcdp").affords([own] * 3)


def test_totals_stay_within_what_is_affordable() -> None:
    pure, zcdp = PrivacySpend.pure(0.1, "a"), PrivacySpend.zcdp(0.003, 1e-6, "b")
    for rule in ("basic", "zcdp"):
        budget, spends = Budget(1.5, 1e-5, rule), []
        while budget.affords([*spends, pure]):
            spends += [pure]
            if budget.affords([*spends, zcdp]):
                spends += [zcdp]
            assert budget.total(spends).epsilon <= 1.5 * (1 + 1e-9)
            assert budget.total(spends).delta <= 1e-5
        assert len(spends) > 5


def test_compose_takes_the_best_rule() -> None:
    delta = 1e-5
    few, many = [PrivacySpend.pure(0.5, "a")] * 2, [PrivacySpend.pure(0.05, "a")] * 400
    assert compose(few, delta) == ledger_module.Total(1.0, 0.0, "basic")
    assert compose(many, delta).rule == "zcdp"
    assert compose(many, delta).epsilon == pytest.approx(zcdp_epsilon(400 * 0.05**2 / 2, delta))
    gaussians = [PrivacySpend.gdp(0.1, delta, "g")] * 25
    assert compose(gaussians, delta).rule == "gdp"
    assert compose(gaussians, delta).epsilon == pytest.approx(gaussian_epsilon(0.5, delta))
    mixed = [*many, PrivacySpend.approximate(0.5, delta / 2, "own delta")]
    whole = compose(mixed, delta)
    assert whole.rule == "zcdp"
    assert whole.epsilon == pytest.approx(zcdp_epsilon(400 * 0.05**2 / 2 + 0.125, delta / 2))
    assert whole.delta == pytest.approx(delta)
    with pytest.raises(PrivacyParameterError, match="add up"):
        compose([PrivacySpend.approximate(0.5, 2 * delta, "own delta")], delta)


def exact_epsilon(mu: float, pure: list[float], delta: float) -> float:
    """The exact epsilon of a Gaussian release of level mu beside randomized responses, by bisection.

    A response loses +e with chance s = 1 / (1 + exp(-e)) and -e otherwise; given all of those losses, l in
    sum, delta is that of the Gaussian at epsilon - l, which for negative arguments follows by symmetry.
    """

    def gaussian(e: float) -> float:
        return gaussian_delta(mu, e) if e >= 0 else 1 - math.exp(e) * (1 - gaussian_delta(mu, -e))

    def total(epsilon: float) -> float:
        found = 0.0
        for signs in itertools.product((1, -1), repeat=len(pure)):
            chance = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, pure, strict=True))
            found += chance * gaussian(epsilon - sum(s * e for s, e in zip(signs, pure, strict=True)))
        return found

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("mu", "pure"), [(0.5, [0.3, 0.3]), (0.2, [0.1] * 6), (1.5, [2.0]), (0.01, [1.0])])
def test_gaussian_releases_beside_others_are_never_under_counted(mu: float, pure: list[float]) -> None:
    """Against the exact law; and a rule that took pure releases for mu = epsilon / 2 would be caught."""
    delta = 1e-5
    spends = [PrivacySpend.gdp(mu, delta, "g"), *(PrivacySpend.pure(e, "p") for e in pure)]
    exact = exact_epsilon(mu, pure, delta)
    assert exact <= compose(spends, delta).epsilon <= 1.5 * exact
    assert exact <= Budget(9.0, delta, "gdp").total(spends).epsilon
    if len(pure) == 6:
        assert gaussian_epsilon(math.sqrt(mu**2 + sum((e / 2) ** 2 for e in pure)), delta) < exact
    # An (epsilon, delta) release tells all with chance delta, and is randomized response otherwise.
    own = [PrivacySpend.approximate(s.epsilon, delta / 20, "a") for s in spends[1:]]
    left = delta - len(own) * delta / 20
    assert exact_epsilon(mu, pure, left) <= compose([spends[0], *own], delta).epsilon


def test_two_gradient_fits_compose_as_one_gaussian(tmp_path: Path) -> None:
    facts = RiskFacts(10_000, 20, LogisticLoss())
    delta = 1e-6
    fits = [
        DPGradientDescent.plan(facts, epsilon=1.0, delta=delta, steps=30).spend,
        DPFrankWolfeL2.plan(facts, L2Ball(20, 3.0), epsilon=2.0, delta=delta, steps=50).spend,
        OutputPerturbation.plan(facts, epsilon=0.5, delta=delta).spend,
    ]
    assert [s.notion for s in fits] == ["gdp"] * 3
    assert [s.epsilon for s in fits] == [1.0, 2.0, 0.5]
    mu = math.sqrt(sum(gaussian_mu(s.epsilon, delta) ** 2 for s in fits))
    together = compose(fits, delta)
    assert together.epsilon == pytest.approx(gaussian_epsilon(mu, delta), rel=1e-6)
    assert together.epsilon < 0.75 * 3.5
    assert together.delta == delta  # three fits, one delta
    ledger = Ledger.create(tmp_path / "ledger", together.epsilon * (1 + 1e-9), delta, rule="gdp")
    for spend in fits:
        ledger.commit(ledger.reserve(spend))
    assert not ledger.affords(OutputPerturbation.plan(facts, epsilon=0.1, delta=delta).spend)
    # A fit calibrated to the whole budget is affordable, and in a zCDP ledger it costs its mu^2 / 2.
    assert Budget(1.0, delta, "gdp").affords(fits[:1])
    assert Budget(9.0, 2 * delta, "zcdp").total(fits).epsilon == pytest.approx(zcdp_epsilon(mu**2 / 2, delta))


def test_ledgers_from_before_gaussian_releases_were_recorded_as_such_stay_readable(tmp_path: Path) -> None:
    """Lines as version 0 wrote them: full-batch fits as (epsilon, delta), with and without levels."""
    spend = {"neighbours": "replace-one", "claim": "proved", "note": "", "insecure_seed": None}
    old = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "notion": "approximate",
        "mechanism": "dp-gd",
        "level": None,
        **spend,
    }
    rho = zcdp_rho(0.5, 1e-6)
    zcdp = {"epsilon": 0.5, "delta": 1e-6, "notion": "zcdp", "mechanism": "dp-fw-l1", "level": rho, **spend}
    path = tmp_path / "ledger"
    header = {
        "privopt_ledger": 1,
        "neighbours": "replace-one",
        "epsilon": 3.0,
        "delta": 1e-5,
        "rule": "basic",
    }
    lines = [
        header,
        {"action": "reserve", "id": "a", "time": "2026-01-01T00:00:00+00:00", "spend": old},
        {"action": "commit", "id": "a", "time": "2026-01-01T00:00:01+00:00"},
        {"action": "reserve", "id": "b", "time": "2026-01-01T00:00:02+00:00", "spend": zcdp},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Ledger(path).total() == ledger_module.Total(1.5, 2e-6, "basic")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                TENTH,
                PrivacySpend.approximate(0.3, 1e-8, "a"),
                PrivacySpend.zcdp(0.01, 1e-7, "z"),
                PrivacySpend.gdp(0.1, 1e-7, "g"),
            ]
        ),
        min_size=1,
        max_size=8,
    ),
    st.randoms(),
)
def test_order_does_not_matter(spends: list[PrivacySpend], shuffler: random.Random) -> None:
    other = list(spends)
    shuffler.shuffle(other)
    assert compose(other, 1e-5) == compose(spends, 1e-5)
    for rule in ("basic", "zcdp"):
        assert Budget(1.0, 1e-5, rule).total(other) == Budget(1.0, 1e-5, rule).total(spends)
        assert Budget(1.0, 1e-5, rule).affords(other) == Budget(1.0, 1e-5, rule).affords(spends)


def test_what_guarantees_nothing_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0, 1e-5)
    refuted = PrivacySpend(0.1, 1e-6, "approximate", "opdisc", claim="printed: refuted", note="theirs")
    for spend in (refuted, PrivacySpend(0.1, 0.0, "pure", "seeded", insecure_seed=1)):
        with pytest.raises(PrivacyParameterError, match="guarantees nothing"):
            ledger.reserve(spend)
    gdp_only = Ledger.create(tmp_path / "gdp", 1.0, 1e-5, rule="gdp")
    for other in (PrivacySpend.approximate(0.1, 1e-7, "dp-sgd"), PrivacySpend.zcdp(0.01, 1e-7, "dp-fw-l1")):
        with pytest.raises(PrivacyParameterError, match=f"not {other.mechanism}"):
            gdp_only.reserve(other)
    assert not gdp_only.entries()


def test_the_file_is_readable_and_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger, before = Ledger.create(path, 1.0, 1e-6), b""
    for step in range(6):
        content = path.read_bytes()
        assert content.startswith(before)
        before = content
        identifier = ledger.reserve(TENTH)
        if step % 2:
            ledger.commit(identifier)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[0] == {
        "privopt_ledger": 1,
        "neighbours": "replace-one",
        "epsilon": 1.0,
        "delta": 1e-6,
        "rule": "basic",
    }
    assert records[1]["action"] == "reserve"
    assert PrivacySpend.from_dict(records[1]["spend"]) == TENTH
    assert os.listdir(tmp_path) == ["ledger"]


def test_creation_never_replaces_a_ledger(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger", 1.0).reserve(TENTH)
    with pytest.raises(LedgerError, match="cannot create"):
        Ledger.create(tmp_path / "ledger", 9.0)
    assert Ledger(tmp_path / "ledger").budget.epsilon == 1.0
    with pytest.raises(LedgerError, match="cannot open"):
        Ledger(tmp_path / "missing")
    for arguments in ((0.0,), (1.0, 1.0), (math.nan,)):
        with pytest.raises(PrivacyParameterError):
            Ledger.create(tmp_path / "bad", *arguments)
    for rule in ("zcdp", "gdp", "renyi"):
        with pytest.raises(PrivacyParameterError):
            Ledger.create(tmp_path / "bad", 1.0, 0.0, rule=rule)


# --- files that cannot be trusted ------------------------------------------------------------------------


def test_every_torn_file_is_refused(tmp_path: Path) -> None:
    """Cut at any byte that is not the end of a line: no reading, no spending, no change."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    identifier = ledger.reserve(TENTH)
    ledger.commit(identifier)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        torn = whole[:size]
        if torn.endswith(b"\n"):
            continue
        path.write_bytes(torn)
        for use in (ledger.total, lambda: ledger.reserve(TENTH), lambda: Ledger(path)):
            with pytest.raises(LedgerCorruptError, match="No further spending"):
                use()
        assert path.read_bytes() == torn


def test_tampered_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 0.25)
    first = ledger.reserve(TENTH)
    ledger.commit(first)
    header, reserve, commit = path.read_text().splitlines()
    cancel = commit.replace('"commit"', '"cancel"')
    bad = [
        [reserve, commit],  # no header
        [header, commit],  # closes what was never opened
        [header, reserve, reserve],  # twice
        [header, reserve, commit, cancel],  # a committed release taken back
        [header, reserve, ""],
        [header, reserve, "[]"],
        [header, reserve, "[" * 100_000],
        [header, reserve, commit.replace("commit", "forget")],
        [header, reserve.replace("0.1", "-0.1")],
        [header, reserve.replace("0.1", "NaN")],
        [header, reserve.replace('"epsilon": 0.1', '"epsilon": 0.1, "epsilon": 0.01')],
        [header, reserve.replace("replace-one", "add-remove")],
        [header, reserve, reserve.replace(first, "b"), reserve.replace(first, "c")],  # beyond the budget
        [header.replace("basic", "best"), reserve],
    ]
    for lines in bad:
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(LedgerCorruptError):
            ledger.reserve(PrivacySpend.pure(0.01, "small"))
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(LedgerCorruptError):
        Ledger(path)
    path.write_text("\n".join([header, reserve, commit]) + "\n")
    assert ledger.total().epsilon == 0.1


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    with pytest.raises(LedgerError, match="could not be written"):
        ledger.reserve(TENTH)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert ledger.total().epsilon == 0


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
JUNK = st.one_of(SCALARS, st.lists(st.integers(), max_size=2))


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=st.dictionaries(st.sampled_from(list(TENTH.to_dict())), JUNK, min_size=1), name=JUNK)
def test_bad_input_never_changes_the_file(tmp_path: Path, record: dict[str, object], name: object) -> None:
    path = tmp_path / "ledger"
    if not path.exists():
        Ledger.create(path, 1.0, 1e-6).reserve(TENTH)
    before, ledger = path.read_bytes(), Ledger(path)
    try:
        spend: object = PrivacySpend.from_dict({**TENTH.to_dict(), "epsilon": 0.95, **record})
    except PrivacyParameterError:
        spend = record
    for use in (
        lambda: ledger.reserve(spend if not _fits(spend) else record),  # type: ignore[arg-type]
        lambda: ledger.commit(name),  # type: ignore[arg-type]
        lambda: ledger.cancel(name, "why"),  # type: ignore[arg-type]
        lambda: Ledger.create(path, 1.0),
    ):
        with pytest.raises((PrivacyParameterError, LedgerError)):
            use()
    assert path.read_bytes() == before


def _fits(spend: object) -> bool:
    return isinstance(spend, PrivacySpend) and spend.guaranteed and Budget(0.9, 1e-6).affords([spend])


# --- processes -------------------------------------------------------------------------------------------

# Spends 0.01 at a time; between reservation and commit it "releases" by one byte in another file.
SPENDER = """
import sys
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
ledger, spend = Ledger(sys.argv[1]), PrivacySpend.pure(0.01, "test")
print("ready", flush=True)
try:
    while True:
        with ledger.spending(spend), open(sys.argv[2], "ab", buffering=0) as released:
            released.write(b".")
except BudgetExceededError:
    pass
"""


def start_spender(path: Path, released: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPENDER, str(path), str(released)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_share_a_budget_exactly(tmp_path: Path) -> None:
    path, released = tmp_path / "ledger", tmp_path / "released"
    ledger = Ledger.create(path, 0.6)
    spenders = [start_spender(path, released) for _ in range(2)]
    for spender in spenders:
        spender.communicate(timeout=300)
        assert spender.returncode == 0
    assert released.stat().st_size == 60
    assert ledger.total().epsilon == pytest.approx(0.6)
    assert {e.state for e in ledger.entries()} == {"committed"}


def test_a_kill_at_any_moment_never_loses_a_release(tmp_path: Path) -> None:
    path, released = tmp_path / "ledger", tmp_path / "released"
    ledger, random_delay = Ledger.create(path, 1000.0), random.Random(5)
    for kills in itertools.count(1):
        spender = start_spender(path, released)
        time.sleep(random_delay.uniform(0.0, 0.06))
        spender.send_signal(signal.SIGKILL)
        spender.communicate(timeout=300)
        done = released.stat().st_size if released.exists() else 0
        entries = ledger.entries()
        committed = sum(e.state == "committed" for e in entries)
        # What was released is reserved, with at most one unfinished reservation per kill.
        assert committed <= done <= len(entries) <= committed + kills
        assert ledger.total().epsilon == pytest.approx(0.01 * len(entries))
        if kills == 3:
            break
    assert len(ledger.entries()) > 0

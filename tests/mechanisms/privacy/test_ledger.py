"""The ledger never under-counts: overdrafts, crashes, two processes, torn and tampered files, bad input."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
from privopt.problems.errors import InvalidInputError

fcntl = pytest.importorskip("fcntl")

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
    Ledger.create(old.path, 0.15)  # nothing had been spent in the old one: no head remembers it
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
        "privopt_ledger": 2,
        "neighbours": "replace-one",
        "epsilon": 1.0,
        "delta": 1e-6,
        "rule": "basic",
    }
    assert records[1]["action"] == "reserve"
    assert PrivacySpend.from_dict(records[1]["spend"]) == TENTH
    assert sorted(os.listdir(tmp_path)) == ["ledger", "ledger.head"]


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


def headless(path: Path, epsilon: float) -> Ledger:
    """A ledger of format 1, from before ledgers had heads."""
    Ledger.create(path, epsilon)
    path.write_text(path.read_text().replace('"privopt_ledger": 2', '"privopt_ledger": 1'))
    return Ledger(path)


# --- files that cannot be trusted ------------------------------------------------------------------------


def test_every_torn_file_is_refused(tmp_path: Path) -> None:
    """Cut within a line: no reading, no spending, no change. Without its head, too, as in older ones."""
    path = tmp_path / "ledger"
    ledger = headless(path, 1.0)
    identifier = ledger.reserve(TENTH)
    ledger.commit(identifier)
    whole = path.read_bytes()
    (tmp_path / "ledger.head").unlink()
    for size in range(0, len(whole), 7):
        torn = whole[:size]
        if whole[size - 1 : size] == b"\n" or whole[size : size + 1] == b"\n":
            continue  # whole lines, the last newline apart
        path.write_bytes(torn)
        for use in (ledger.total, lambda: ledger.reserve(TENTH), lambda: Ledger(path)):
            with pytest.raises(LedgerCorruptError, match="No further spending"):
                use()
        assert path.read_bytes() == torn


def test_tampered_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = headless(path, 0.25)
    first = ledger.reserve(TENTH)
    ledger.commit(first)
    (tmp_path / "ledger.head").unlink()
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
        [header.replace("{", '{"limit": 3, '), reserve],  # a later version's, or anybody's
        [header.replace('"privopt_ledger": 1', '"privopt_ledger": 3'), reserve],
        [header.replace('"privopt_ledger": 1', '"privopt_ledger": 2'), reserve],  # which has a head
        [header.replace("replace-one", "add-remove"), reserve],
        [header.replace(', "neighbours": "replace-one"', ""), reserve],
        [header, reserve.replace("{", '{"void": true, ', 1)],
        [header, reserve.replace(f'"{first}"', "7")],
        [header, reserve, commit.replace("{", '{"reason": "why", ', 1)],
        [header, reserve, cancel],  # no reason
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


def test_whole_lines_that_are_gone_are_noticed(tmp_path: Path) -> None:
    """An older copy put back, a line taken out, an entry edited: what the head remembers must be there."""
    path, head = tmp_path / "ledger", tmp_path / "ledger.head"
    ledger = Ledger.create(path, 1.0)
    copies = [(path.read_bytes(), b"")]
    for _ in range(3):
        ledger.commit(ledger.reserve(TENTH))
        copies.append((path.read_bytes(), head.read_bytes()))
    whole, last = copies[-1]
    lines = whole.splitlines(keepends=True)
    bad = [older for older, _ in copies[:-1]]
    bad += [b"".join(lines[:k] + lines[k + 1 :]) for k in range(1, len(lines))]
    bad += [whole.replace(b"committed", b"cancelled"), whole.replace(b"0.1", b"0.2", 1), whole + b"\n"]
    bad += [whole.replace(b'"time": "2', b'"time": "3', 1), whole[:-1] + b"\r\n"]
    bad = [content for content in bad if content != whole]
    for content in bad:
        path.write_bytes(content)
        for use in (ledger.total, lambda: ledger.reserve(TENTH), lambda: Ledger(path)):
            with pytest.raises(LedgerCorruptError, match="No further spending"):
                use()
    path.write_bytes(whole)
    for content in (b"", b"{}", b"[1]\n", last[:-9], last.replace(b'"bytes": ', b'"bytes": 9'), b"\xff"):
        head.write_bytes(content)
        with pytest.raises(LedgerCorruptError):
            ledger.reserve(TENTH)
    head.unlink()
    with pytest.raises(LedgerCorruptError, match=r"ledger.head is gone"):
        ledger.reserve(TENTH)
    head.write_bytes(last)
    assert len(ledger.entries()) == 3
    # What cannot be noticed, and the module says so: an older copy of both.
    older = copies[1]
    path.write_bytes(older[0])
    head.write_bytes(older[1])
    assert len(ledger.entries()) == 1


def test_a_kill_between_an_entry_and_its_head_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    replace = os.replace

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for made in range(3):  # the first time there is no head yet: then the entry is not written either
        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.reserve(TENTH)
        monkeypatch.setattr(os, "replace", replace)
        assert len(ledger.entries()) == max(0, 2 * made)
        ledger.reserve(TENTH)
    assert ledger.total().epsilon == pytest.approx(0.5)
    assert sorted(os.listdir(tmp_path)) == ["ledger", "ledger.head"]


def test_a_full_disk_at_the_head_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    ledger.reserve(TENTH)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LedgerError, match=r"No space left on device. Nothing was run"):
        ledger.reserve(TENTH)
    monkeypatch.undo()
    assert ledger.total().epsilon == 0.2


def test_ledgers_without_a_head_get_one_with_the_next_entry(tmp_path: Path) -> None:
    ledger = headless(tmp_path / "ledger", 1.0)
    ledger.reserve(TENTH)
    before = ledger.path.read_bytes()
    ledger.reserve(TENTH)
    ledger.path.write_bytes(before)
    with pytest.raises(LedgerCorruptError, match="lines are gone"):
        ledger.total()


def test_a_last_line_without_a_newline_is_read_and_goes_on(tmp_path: Path) -> None:
    """As an editor leaves it; an object that lacks its last character is none, so nothing torn passes."""
    for make in (lambda path: Ledger.create(path, 1.0), lambda path: headless(path, 1.0)):
        path = tmp_path / "ledger"
        ledger = make(path)
        for _ in range(3):
            path.write_bytes(path.read_bytes().removesuffix(b"\n"))
            ledger.commit(ledger.reserve(TENTH))
        assert len(ledger.entries()) == 3
        assert path.read_bytes().count(b"\n") == 7
        for file in tmp_path.iterdir():
            file.unlink()


def test_links_lead_to_one_ledger_and_one_head(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    link, ledger = tmp_path / "here" / "link", Ledger.create(tmp_path / "ledger", 1.0)
    link.symlink_to(ledger.path)
    Ledger(link).reserve(TENTH)
    ledger.reserve(TENTH)
    assert len(Ledger(link).entries()) == len(ledger.entries()) == 2
    assert os.listdir(tmp_path / "here") == ["link"]


def test_a_new_ledger_where_a_spent_one_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger.create(path, 1.0).reserve(TENTH)
    path.unlink()
    with pytest.raises(LedgerError, match=r"ledger.head remembers a ledger that is gone"):
        Ledger.create(path, 1.0)
    (tmp_path / "ledger.head").unlink()
    assert Ledger.create(path, 1.0).affords(TENTH)


@pytest.mark.parametrize("path", [None, 5, "", b"ledger", ["ledger"], "a\0b"], ids=repr)
def test_what_is_no_path_is_no_ledger(path: Any) -> None:
    for use in (Ledger, lambda p: Ledger.create(p, 1.0)):
        with pytest.raises(InvalidInputError, match="a ledger is named by a path"):
            use(path)


# --- what is on disk when a call returns -----------------------------------------------------------------


def test_entries_and_names_are_on_disk_before_a_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync is observed: the size of each file, or the names in each folder, when it was last called."""
    synced: dict[int, object] = {}
    fsync = os.fsync

    def observe(file: int) -> None:
        fsync(file)
        status = os.fstat(file)
        folder = stat.S_ISDIR(status.st_mode)
        synced[status.st_ino] = set(os.listdir(file)) if folder else status.st_size

    monkeypatch.setattr(os, "fsync", observe)
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    ledger_inode, folder = ledger.path.stat().st_ino, tmp_path.stat().st_ino
    assert synced[ledger_inode] == ledger.path.stat().st_size
    assert "ledger" in synced[folder]  # type: ignore[operator]
    for use in (lambda: ledger.reserve(TENTH), lambda: ledger.commit(ledger.entries()[0].identifier)):
        synced.clear()
        use()
        head = tmp_path / "ledger.head"
        assert synced[ledger_inode] == ledger.path.stat().st_size
        assert synced[head.stat().st_ino] == head.stat().st_size
        assert "ledger.head" in synced[folder]  # type: ignore[operator]


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


# Reads, waits until the other one must have read as well, and only then writes.
RACER = """
import sys, time
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
ledger, parse = Ledger(sys.argv[1]), Ledger._parse
def slow(self, file):
    found = parse(self, file)
    time.sleep(0.3)
    return found
Ledger._parse = slow
print("ready", flush=True)
sys.stdin.readline()
try:
    ledger.reserve(PrivacySpend.pure(0.6, "test"))
    print("reserved")
except BudgetExceededError:
    print("refused")
"""


def test_of_two_processes_that_read_at_once_one_is_refused(tmp_path: Path) -> None:
    """Without a lock, or with a shared one, both would read an empty ledger before either writes."""
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    command = [sys.executable, "-c", RACER, str(ledger.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers: list[subprocess.Popen[str]] = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(racer.communicate(timeout=300)[0] for racer in racers) == ["refused\n", "reserved\n"]
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("holding", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_a_file_that_is_replaced_while_a_call_waits_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holding: int
) -> None:
    """As by somebody who edits a copy and renames it into place: the reservation must be in the new file."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    held = os.open(path, os.O_RDONLY)
    fcntl.flock(held, holding)
    waiting, flock = threading.Event(), fcntl.flock

    def announced(file: int, operation: int) -> None:
        waiting.set()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", announced)
    with ThreadPoolExecutor(1) as pool:
        reserved = pool.submit(ledger.reserve, TENTH)
        assert waiting.wait(60)
        time.sleep(0.3)
        assert not reserved.done()  # nobody writes while another reads
        (tmp_path / "copy").write_bytes(path.read_bytes())
        os.replace(tmp_path / "copy", path)
        os.close(held)  # ends the lock
        identifier = reserved.result(60)
    assert [e.identifier for e in Ledger(path).entries()] == [identifier]


def test_a_file_that_is_replaced_during_a_call_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    ledger, parse = Ledger.create(path, 1.0), Ledger._parse
    (tmp_path / "copy").write_bytes(path.read_bytes())

    def replaced(self: Ledger, file: int) -> object:
        os.replace(tmp_path / "copy", path)
        return parse(self, file)

    monkeypatch.setattr(Ledger, "_parse", replaced)
    with pytest.raises(LedgerError, match="replaced by another file meanwhile; nothing was run"):
        ledger.reserve(TENTH)
    monkeypatch.undo()
    with pytest.raises(LedgerCorruptError):  # the head remembers the entry that is lost
        ledger.total()

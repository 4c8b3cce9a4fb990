"""Audits find what is wrong and only that: laws against brute force, bounds against scipy, mutants fall."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from privopt.experiments.cli import audit as audit_command
from privopt.experiments.cli.main import app
from privopt.mechanisms import MECHANISMS, NoiseSource, OPDisc
from privopt.mechanisms.audit import audit as audit_runs
from privopt.mechanisms.audit.audit import (
    AuditResult,
    Binned,
    Outcome,
    audit,
    epsilon_lower_bound,
    exact_audit,
    exact_delta,
    exact_epsilon,
)
from privopt.mechanisms.audit.claims import AuditedClaim, AuditLine, Subject, audit_claim
from privopt.mechanisms.audit.convex import RISK_AUDITS
from privopt.mechanisms.audit.evaluation import evaluation_claims
from privopt.mechanisms.audit.laws import audit_plan, output_law
from privopt.mechanisms.audit.neighbours import (
    LossTable,
    Neighbours,
    ParityOracle,
    ParityProblem,
    SignLattice,
    parity_neighbours,
    predefined_neighbours,
    singled_out_neighbours,
)
from privopt.mechanisms.audit.opsamp import OPSAMP_AUDITS
from privopt.mechanisms.audit.perturbed_hessian import perturbed_hessian_claims
from privopt.mechanisms.audit.registry import AUDITS, ReleaseSampler
from privopt.mechanisms.audit.residuals import comparison_claims, residual_claims
from privopt.mechanisms.audit.scorecards import means_claims
from privopt.mechanisms.audit.selection import selection_claims
from privopt.mechanisms.audit.subset import subset_claims
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.errors import AuditError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta
from privopt.mechanisms.registry import MEANS, RISK_MECHANISMS, ROBUST_FITS, ROBUST_MECHANISMS
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.oracles import Task, minimizer
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems import IntegerLattice, MonotoneConjunction, MonotoneDisjunction, ZeroOneHalfspace
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.errors import InvalidInputError

# Every audit below is seeded, so that a test that passes once passes always.
SEED = 12345


# ---------------------------------------------------------------- exact audits


def test_randomized_response_spends_the_log_odds() -> None:
    law, neighbour = [0.8, 0.2], [0.2, 0.8]
    assert exact_epsilon(law, neighbour, 0.0) == pytest.approx(math.log(4))
    # P[S] - e^eps Q[S] at S = {first}: 0.8 - 0.2 e.
    assert exact_delta(law, neighbour, 1.0) == pytest.approx(0.8 - 0.2 * math.e)
    assert exact_audit(law, neighbour, 1.0).refuted
    assert not exact_audit(law, neighbour, math.log(4)).refuted


@pytest.mark.parametrize("delta", [0.0, 0.01, 0.2])
def test_exact_epsilon_is_the_largest_log_ratio_over_all_sets(delta: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(6, 0.5)), rng.dirichlet(np.full(6, 0.5))
        best = 0.0
        for chosen in itertools.product((False, True), repeat=6):
            a, b = p[list(chosen)].sum(), q[list(chosen)].sum()
            for hit, other in ((a, b), (b, a)):
                if hit > delta and other > 0:
                    best = max(best, math.log((hit - delta) / other))
        assert exact_epsilon(p, q, delta) == pytest.approx(best, abs=1e-9)
        assert exact_delta(p, q, best) <= delta + 1e-12


def test_disjoint_laws_have_no_epsilon_until_delta_covers_them() -> None:
    assert exact_epsilon([1.0, 0.0], [0.9, 0.1], 0.0) == math.inf
    assert exact_epsilon([1.0, 0.0], [0.9, 0.1], 0.1) == pytest.approx(0.0, abs=1e-12)
    assert exact_audit([1.0, 0.0], [0.0, 1.0], 10.0, 0.5).refuted


def test_a_binned_gaussian_approaches_the_closed_form_from_below() -> None:
    # The divergence of N(mu, 1) and N(0, 1) is Balle and Wang's (2018) formula; fine bins lose little of it.
    edges = np.linspace(-9, 10, 20_001)

    def law(mean: float) -> Any:
        return np.diff(stats.norm.cdf(edges, mean), prepend=0.0, append=1.0 - stats.norm.cdf(edges[-1], mean))

    p, q = law(1.0)[:-1], law(0.0)[:-1]
    p, q = p / p.sum(), q / q.sum()
    assert exact_delta(p, q, 0.7) == pytest.approx(gaussian_delta(1.0, 0.7), rel=1e-4)


@pytest.mark.parametrize(
    ("law", "neighbour"), [([0.5, 0.4], [0.5, 0.5]), ([1.2, -0.2], [0.5, 0.5]), ([1.0], [0.5, 0.5]), ([], [])]
)
def test_what_is_not_a_law_is_refused(law: list[float], neighbour: list[float]) -> None:
    with pytest.raises(AuditError):
        exact_audit(law, neighbour, 1.0)


# ---------------------------------------------------------------- statistical audits


@dataclass(frozen=True)
class Response:
    """Randomized response: the bit, kept with a given probability."""

    bit: int
    keep: float

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return [int(b) for b in np.where(noise.uniform(runs) < self.keep, self.bit, 1 - self.bit)]


def keep_at(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def test_lower_bound_is_clopper_pearson() -> None:
    hit = stats.binomtest(130, 400).proportion_ci(0.98, method="exact").low
    miss = stats.binomtest(40, 400).proportion_ci(0.98, method="exact").high
    found = float(epsilon_lower_bound(130, 40, 400, 0.01, 0.98))
    assert found == pytest.approx(math.log((hit - 0.01) / miss))
    assert float(epsilon_lower_bound(0, 0, 400, 0.0, 0.98)) == -math.inf
    assert math.isfinite(float(epsilon_lower_bound(400, 400, 400, 0.0, 0.98)))
    assert math.isfinite(float(epsilon_lower_bound(1, 0, 400, 0.0, 0.98)))


def test_lower_bound_covers() -> None:
    rng = np.random.default_rng(1)
    p, q, n = 0.3, 0.1, 300
    bounds = epsilon_lower_bound(rng.binomial(n, p, 4000), rng.binomial(n, q, 4000), n, 0.02, 0.9)
    # At most 10% may exceed the truth; 3 standard errors of a share over 4,000 trials are 0.014.
    assert np.mean(bounds > math.log((p - 0.02) / q)) <= 0.1 + 0.014


def test_a_sound_mechanism_stands_and_too_little_noise_falls() -> None:
    sound = audit(Response(1, keep_at(1)), Response(0, keep_at(1)), epsilon=1.0, insecure_seed=SEED)
    assert not sound.refuted
    assert 0.85 < sound.lower_bound <= 1
    wrong = audit(Response(1, keep_at(1.3)), Response(0, keep_at(1.3)), epsilon=1.0, insecure_seed=SEED)
    assert wrong.refuted
    # delta pays for what is left: (0.786 - delta) / 0.214 = e at delta = 0.204.
    paid = audit(
        Response(1, keep_at(1.3)), Response(0, keep_at(1.3)), epsilon=1.0, delta=0.21, insecure_seed=SEED
    )
    assert not paid.refuted


def publish(runs: int, noise: NoiseSource) -> Sequence[Outcome]:
    return ["alice"] * runs


def publish_another(runs: int, noise: NoiseSource) -> Sequence[Outcome]:
    return ["bob"] * runs


def test_no_privacy_at_all_is_refuted_whatever_is_claimed() -> None:
    found = audit(publish, publish_another, epsilon=5.0, delta=1e-3)
    assert found.refuted
    assert found.event in ({"alice"}, {"bob"})


def test_an_event_that_only_the_second_data_set_shows_is_found() -> None:
    # P[S | D] = 0 and P[S | D'] = 0.1: only the exchanged direction breaks (epsilon, 0).
    def second(runs: int, noise: NoiseSource) -> list[Outcome]:
        return [int(u < 0.1) for u in noise.uniform(runs)]

    found = audit(lambda runs, noise: [0] * runs, second, epsilon=2.0, insecure_seed=SEED)
    assert found.refuted
    assert found.exchanged
    assert found.event == {1}


def test_real_outputs_are_audited_through_bins() -> None:
    edges = tuple(np.linspace(-3, 4, 57))
    near = Binned(lambda runs, noise: noise.gaussian(1.0, runs), edges)
    far = Binned(lambda runs, noise: 1 + noise.gaussian(1.0, runs), edges)
    delta = 0.05
    # A Gaussian with sensitivity = sigma: its epsilon at delta 0.05 solves gaussian_delta(1, eps) = 0.05.
    epsilon = next(e for e in np.arange(0.5, 3, 0.001) if gaussian_delta(1.0, e) <= delta)
    found = audit(near, far, epsilon=float(epsilon), delta=delta, insecure_seed=SEED)
    assert 0.75 * epsilon < found.lower_bound <= epsilon


def test_workers_change_nothing_but_the_time() -> None:
    pair = Response(1, keep_at(1)), Response(0, keep_at(1))
    alone = audit(*pair, epsilon=1.0, runs=4000, insecure_seed=SEED)
    assert audit(*pair, epsilon=1.0, runs=4000, insecure_seed=SEED, workers=2) == alone


@dataclass
class Mortal:
    """Works for a number of calls, then the process is interrupted."""

    inner: Response
    calls: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        if self.calls == 0:
            raise KeyboardInterrupt
        self.calls -= 1
        return self.inner(runs, noise)


def test_an_interrupted_audit_goes_on_where_it_stopped(tmp_path: Path) -> None:
    one, other = Response(1, keep_at(1)), Response(0, keep_at(1))
    options: dict[str, Any] = {"epsilon": 1.0, "runs": 5000, "insecure_seed": SEED, "label": "response"}
    journal = tmp_path / "counts.jsonl"
    with pytest.raises(KeyboardInterrupt):
        audit(Mortal(one, 4), other, journal=journal, **options)
    kept = len(journal.read_text().splitlines())
    assert kept == 8  # four chunks of either data set
    with journal.open("a") as file:
        file.write('{"label": "response", "chu')  # killed while writing
    seen: list[tuple[int, int]] = []
    resumed = audit(one, other, journal=journal, on_progress=lambda *now: seen.append(now), **options)
    # 5,000 runs are 13 pairs of chunks of 200, for choosing and for testing, on two data sets.
    assert seen[0] == (kept + 1, 52)
    assert resumed == audit(one, other, **options)
    # Everything is there now: the mechanism is not run at all.
    assert audit(Mortal(one, 0), Mortal(other, 0), journal=journal, **options) == resumed
    # Counts of another audit in the same file are left alone.
    with pytest.raises(KeyboardInterrupt):
        audit(Mortal(one, 0), other, journal=journal, **{**options, "label": "other noise"})


def test_a_journal_line_whose_counts_do_not_add_up_is_not_used(tmp_path: Path) -> None:
    one, other = Response(1, keep_at(1)), Response(0, keep_at(1))
    journal = tmp_path / "counts.jsonl"
    options: dict[str, Any] = {"epsilon": 1.0, "runs": 1000, "insecure_seed": SEED, "label": "x"}
    right = audit(one, other, journal=journal, **options)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[0]["counts"][0][1] += 1
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(KeyboardInterrupt):
        audit(Mortal(one, 0), Mortal(other, 0), journal=journal, **options)
    assert audit(one, other, journal=journal, **options) == right


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": -1.0},
        {"delta": 1.0},
        {"runs": 0},
        {"confidence": 1.0},
        {"workers": 0},
        {"journal": Path("x.jsonl")},
    ],
)
def test_unusable_arguments_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises((AuditError, PrivacyParameterError)):
        audit(publish, publish_another, **{"epsilon": 1.0, "runs": 1000, **bad})


@pytest.mark.parametrize("outcomes", [[0.5] * 200, [0] * 199, [None] * 200])
def test_samplers_return_one_countable_outcome_per_run(outcomes: list[Any]) -> None:
    with pytest.raises(AuditError):
        audit(lambda runs, noise: outcomes, publish, epsilon=1.0, runs=1000)


# ---------------------------------------------------------------- neighbours


LATTICES = {
    ZeroOneHalfspace: IntegerLattice(-1, 1, dimension=2),
    MonotoneConjunction: IntegerLattice(0, 1, dimension=3),
    MonotoneDisjunction: IntegerLattice(0, 1, dimension=3),
    LossTable: IntegerLattice(-1, 1, dimension=2),
    ParityProblem: SignLattice(3),
}


@pytest.mark.parametrize("kind", LATTICES, ids=lambda k: k.__name__)
def test_canned_neighbours_differ_in_one_record(kind: Any) -> None:
    points = np.stack(list(LATTICES[kind].points()))
    for pair in predefined_neighbours(kind, LATTICES[kind]):
        change = pair.change(points)
        assert np.max(np.abs(change)) == 1, pair.name
        if pair.name == "all-equal":
            assert len(set(pair.first.losses(points).tolist())) == 1


def test_neighbours_must_be_comparable() -> None:
    pair = parity_neighbours(SignLattice(3))
    with pytest.raises(AuditError):
        Neighbours("mixed", pair.first, ParityProblem([1, 1], SignLattice(3)))
    with pytest.raises(AuditError):
        Neighbours("mixed", pair.first, ParityProblem([1], SignLattice(4)))
    with pytest.raises(AuditError):
        predefined_neighbours(LossTable, IntegerLattice(0, 1, dimension=2), records=3)


def test_sign_lattice_holds_the_corners_and_nothing_else() -> None:
    lattice = SignLattice(3)
    assert [tuple(w) for w in lattice.points()] == list(itertools.product((-1, 1), repeat=3))
    assert lattice.contains([1, -1, 1])
    assert not lattice.contains([1, 0, 1])
    assert lattice != IntegerLattice(-1, 1, dimension=3)
    assert IntegerLattice(-1, 1, dimension=3) != lattice
    assert lattice == SignLattice(3)
    assert lattice.size == 8


def test_problems_refuse_what_they_are_not_made_for() -> None:
    with pytest.raises(InvalidInputError):
        ParityProblem([1], IntegerLattice(-1, 1, dimension=2))
    with pytest.raises(InvalidInputError):
        ParityProblem([0], SignLattice(2))
    with pytest.raises(InvalidInputError):
        LossTable([[0, 1]], IntegerLattice(0, 1, dimension=2))
    with pytest.raises(InvalidInputError):
        LossTable([[0, 2]], IntegerLattice(0, 1, dimension=1))
    with pytest.raises(UnsupportedProblemError):
        ParityOracle().prepare(ParityProblem([1], IntegerLattice(0, 1, dimension=2)), Task.NORMALIZED)


@pytest.mark.parametrize("lattice", [SignLattice(4), IntegerLattice(2, 3, dimension=4)], ids=str)
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0])
def test_parity_oracle_finds_the_first_of_all_minimisers(lattice: IntegerLattice, scale: float) -> None:
    rng = np.random.default_rng(2)
    problem = ParityProblem([1, 1, -1], lattice)
    for _ in range(30):
        # Whole halves make ties common.
        noise = Perturbation.linear(lattice, np.rint(2 * scale * rng.standard_normal(4)) / 2)
        best, found = (
            oracle.prepare(problem, Task.LINEAR).minimize(noise, break_ties=True)
            for oracle in (minimizer("enumerate"), ParityOracle())
        )
        assert np.array_equal(found.require(lexicographic=True), best.require())


# ---------------------------------------------------------------- laws against the mechanisms themselves


def small_cases() -> list[Any]:
    signs, line = SignLattice(4), IntegerLattice(-1, 1, dimension=1)
    square = IntegerLattice(0, 1, dimension=2)
    table = next(p for p in predefined_neighbours(LossTable, square) if p.name == "duplicated")
    halfspace = next(p for p in predefined_neighbours(ZeroOneHalfspace, line) if p.name == "outlier")
    cases = [("opdisc", parity_neighbours(signs)), ("opdisc", halfspace)]
    cases += [
        ("rspm", parity_neighbours(square)),
        ("rspm", halfspace),
        ("rspm-laplace", parity_neighbours(square)),
    ]
    cases += [(name, table) for name in ("exponential", "permute-and-flip", "rspm", "rspm-laplace")]
    return [
        pytest.param(*case, id=f"{case[0]}-{case[1].name}-{type(case[1].first).__name__}") for case in cases
    ]


# The field that holds the noise of the perturbing mechanisms.
SCALE = {"opdisc": "sigma", "rspm": "scale", "rspm-laplace": "scale"}


@pytest.mark.parametrize(("name", "pair"), small_cases())
def test_exact_laws_are_the_laws_of_releases(name: str, pair: Neighbours) -> None:
    problem = pair.second
    plan = MECHANISMS[name].plan(type(problem), problem.lattice, epsilon=3.0, delta=1e-2)
    law = output_law(plan, problem)
    assert math.fsum(law) == pytest.approx(1, abs=1e-9)
    oracle, source = prepare_oracle("enumerate", plan, problem), NoiseSource(insecure_seed=SEED)
    drawn = [plan.release(oracle, source).point for _ in range(1500)]
    if isinstance(problem, ParityProblem):
        seen = [int(np.sum(w == problem.lattice.high) % 2) for w in drawn]
    else:
        order = {tuple(w): k for k, w in enumerate(problem.lattice.points())}
        seen = [order[tuple(w)] for w in drawn]
    counts = np.bincount(seen, minlength=len(law))
    assert stats.chisquare(counts, 1500 * law).pvalue > 1e-3
    # The same test tells a law at half the noise from this one.
    parameter, factor = ("beta", 2.0) if "beta" in plan.noise else (SCALE[name], 0.5)
    sharper = dataclasses.replace(plan, **{parameter: factor * getattr(plan, parameter)})
    assert stats.chisquare(counts, 1500 * output_law(sharper, problem)).pvalue < 1e-3


SAMPLED = [
    evaluation_claims,
    selection_claims,
    comparison_claims,
    residual_claims,
    means_claims,
    perturbed_hessian_claims,
    subset_claims,
    *OPSAMP_AUDITS.values(),
]


@pytest.mark.parametrize("claims", SAMPLED, ids=lambda made: made.__module__.rpartition(".")[2])
def test_samplers_of_audits_draw_from_the_laws_that_they_state(claims: Any) -> None:
    """A law that is wrong in both would be refuted by no run, and a sampler that is wrong refutes nothing."""
    runs = 300
    for subject in {claim.mechanism: claim.claim for claim in claims()}.values():
        for sampler, law in zip((subject.first, subject.second), subject.laws or (), strict=True):
            drawn = np.asarray(sampler(runs, NoiseSource(insecure_seed=SEED)), dtype=np.int64)
            expected, seen = runs * np.asarray(law), np.bincount(drawn, minlength=len(law))
            often = expected > 4
            rest = expected[~often].sum()
            assert abs(seen[~often].sum() - rest) <= 5 * math.sqrt(rest) + 1
            kept = seen[often] * expected[often].sum() / seen[often].sum()
            assert stats.chisquare(kept, expected[often]).pvalue > 1e-4


def test_permute_and_flip_law_is_that_of_its_listing() -> None:
    """McKenna and Sheldon (2020), Algorithm 1: all orders of four points, one after the other."""
    lattice = IntegerLattice(0, 1, dimension=2)
    problem = LossTable([[0, 1, 1, 0], [0, 1, 0, 1], [0, 1, 0, 0]], lattice)
    plan = MECHANISMS["permute-and-flip"].plan(LossTable, lattice, epsilon=1.0)
    keep = np.exp(-plan.noise["beta"] * np.array([0, 3, 1, 1]))
    law = np.zeros(4)
    for order in itertools.permutations(range(4)):
        reached = 1.0
        for w in order:
            law[w] += reached * keep[w] / 24
            reached *= 1 - keep[w]
    assert output_law(plan, problem) == pytest.approx(law, abs=1e-12)


def test_laws_that_nobody_knows_are_not_made_up() -> None:
    lattice = IntegerLattice(-1, 1, dimension=2)
    pair = predefined_neighbours(ZeroOneHalfspace, lattice)[0]
    with pytest.raises(AuditError, match="dimensions"):
        audit_plan(OPDisc.plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=1e-3), pair)
    square = IntegerLattice(0, 1, dimension=2)
    plan = OPDisc.plan(ParityProblem, square, epsilon=1.0, delta=1e-3)
    with pytest.raises(AuditError, match="-1, 1"):
        audit_plan(plan, parity_neighbours(square))


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_claims_hold_exactly_on_every_canned_pair_with_a_known_law(name: str, epsilon: float) -> None:
    checked = 0
    for kind, lattice in [
        (LossTable, IntegerLattice(0, 1, dimension=1)),
        (LossTable, IntegerLattice(-1, 1, dimension=1)),
        (LossTable, IntegerLattice(0, 1, dimension=3)),
        (ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=1)),
        (MonotoneConjunction, IntegerLattice(0, 1, dimension=2)),
        (ParityProblem, SignLattice(5)),
        (ParityProblem, IntegerLattice(0, 1, dimension=30)),
    ]:
        plan = MECHANISMS[name].plan(kind, lattice, epsilon=epsilon, delta=1e-2)
        for pair in predefined_neighbours(kind, lattice):
            try:
                found = audit_plan(plan, pair)
            except AuditError:
                continue
            assert not found.refuted, f"{kind.__name__} over {lattice}, {pair.name}: {found}"
            checked += 1
    assert checked >= 10


def test_the_printed_calibration_is_refuted_at_the_dimensions_that_were_worked_out() -> None:
    # ln((1 - p - delta) / p) with p = erfc(sqrt d / (2 sqrt 2 sigma))^d / 2 and
    # sigma = 7 d sqrt(ln(1/delta)) / (4 epsilon), worked out by hand for each line.
    for epsilon, d, worst in [
        (1, 50, 0.738),
        (1, 200, 1.327),
        (1, 1000, 2.560),
        (4, 100, 3.13),
        (4, 200, 4.18),
    ]:
        lattice = SignLattice(d)
        plan = OPDisc.plan(ParityProblem, lattice, epsilon=epsilon, delta=1e-6, calibration="printed")
        found = audit_plan(plan, parity_neighbours(lattice))
        assert found.true_epsilon == pytest.approx(worst, rel=2e-3)
        assert found.refuted == (worst > epsilon)


@pytest.mark.parametrize("records", [1, 2, 5])
def test_parities_among_records_that_agree(records: int) -> None:
    """Both laws by brute force over noise drawn apart from the mechanism."""
    lattice = SignLattice(3)
    plan = OPDisc.plan(ParityProblem, lattice, epsilon=2.0, delta=1e-2)
    points = np.stack(list(lattice.points()))
    eta = np.random.default_rng(records).normal(scale=plan.sigma, size=(20_000, 3))
    for problem in (
        parity_neighbours(lattice, records).first,
        parity_neighbours(lattice, records).second,
    ):
        winners = points[np.argmin(problem.losses(points) - eta @ points.T / math.sqrt(3), axis=1)]
        odd = int(np.sum(np.sum(winners == 1, axis=1) % 2))
        even_law, odd_law = output_law(plan, problem)
        assert even_law + odd_law == pytest.approx(1)
        assert stats.binomtest(odd, 20_000, odd_law).pvalue > 1e-3


def test_records_that_agree_bring_the_truth_closer_to_the_claim() -> None:
    """In closed form: p_t = erfc(t x)^d / 2, x = sqrt(d / 8) / sigma, from t = 2 to t = 0."""
    lattice = SignLattice(50)
    plan = OPDisc.plan(ParityProblem, lattice, epsilon=1.0, delta=3e-2)
    loser = math.erfc(2 * math.sqrt(50 / 8) / plan.sigma) ** 50 / 2
    worst = max(math.log((0.5 - 3e-2) / loser), math.log((1 - loser - 3e-2) / 0.5))
    found = audit_plan(plan, parity_neighbours(lattice, records=2))
    assert found.true_epsilon == pytest.approx(worst)
    assert audit_plan(plan, parity_neighbours(lattice)).true_epsilon < 0.9 * found.true_epsilon


# ---------------------------------------------------------------- the registry


@functools.cache
def cached(name: str) -> tuple[AuditedClaim, ...]:
    return AUDITS[name]()


def test_every_mechanism_has_an_audit_and_a_mutant() -> None:
    others = {*ROBUST_MECHANISMS, *ROBUST_FITS, *MEANS}
    others |= {
        "sample-aggregate",
        "subset-mean",
        "evaluation",
        "regression-evaluation",
        "regression-comparison",
        "prevalence",
        "number-means",
        "column-statistics",
        "tree",
        "rule-list",
        "leaf-histogram",
        "private-selection",
        "learn-schema",
        "best-subset",
        "persons",
        SeededScorecard.name,
        *OPSAMP_AUDITS,
    }
    assert set(AUDITS) == set(MECHANISMS) | set(RISK_MECHANISMS) | others
    for name in AUDITS:
        found = cached(name)
        assert found
        assert len({claim.neighbours for claim in found}) == len(found)  # told apart in tables and journals
        for claim in found:
            assert claim.mechanism == name
            assert claim.mutants
            for mutant in claim.mutants:
                assert (mutant.epsilon, mutant.delta) == (claim.claim.epsilon, claim.claim.delta)


# The least share of the claim that its first pair of neighbours is known to spend: otherwise a mutant could
# hide below it. Where it is low: DP-SVRG gives a third of mu^2 to batches (DP-SVRG++: half), and a record
# whose batch differences are large has full gradients that are not.
SHARES = {
    "exponential": 0.87, "permute-and-flip": 0.97, "rspm-laplace": 0.99, "rspm": 0.91, "opdisc": 0.71,
    "evaluation": 0.99,
    "regression-evaluation": 0.98, "regression-comparison": 0.99, "tree": 0.81, "rule-list": 0.81,
    "leaf-histogram": 0.99,
    # The bound takes the worst run for both of its factors, which no run with Laplace noise attains at once.
    "private-selection": 0.78,
    # A curve of Gaussian differential privacy through the one corner of a curve of bounded range.
    "learn-schema": 0.70,
    "best-subset": 0.88, "persons": 0.99,
    "dp-gd": 0.99, "dp-pgd": 0.99, "dp-pmd": 0.99, "dp-accmd": 0.96, "dp-fw-l2": 0.85, "dp-fw-l1": 0.82,
    "dp-sgd": 0.99, "dp-svrg": 0.66, "dp-svrg++": 0.54, "output-perturbation": 0.98,
    "objective-perturbation": 0.79, "seeded": 0.41, "sufficient-statistics": 0.99, "column-statistics": 0.99,
    "dp-gld": 0.99,
    # Where a gradient is largest a logistic loss has no curvature: no record moves both noises at once.
    "objective-perturbation-hessian": 0.36,
    # Bounded range of adaptive draws by zCDP: the pair spends one direction of every draw.
    "screened-statistics": 0.75,
    "net": 0.86, "dp-spider": 0.88, "prevalence": 0.99, "number-means": 0.9,
    "dp-sosp": 0.56, "dp-newton": 0.56, "dp-gd-so": 0.56,
    # Trimmed means: the Renyi divergence of their noise is bounded by a Lipschitz constant, which costs a
    # factor of 5 in rho.
    "robust-mean": 0.99, "robust-gd": 0.99, "robust-sgd": 0.99, "trimmed-mean": 0.26, "trimmed-gd": 0.26,
    "opsamp": 0.99,
    # The constants of Nissim, Raskhodnikova and Smith leave a factor of 5 and more: a majority that turns is
    # within delta.
    "sample-aggregate": 0.0, "subset-mean": 0.99, "clipped-newton": 0.47,
}  # fmt: skip


@pytest.mark.parametrize("name", AUDITS)
def test_exact_laws_let_claims_stand_and_reject_mutants(name: str) -> None:
    found = cached(name)
    for audited in found:
        claim = audited.claim
        assert claim.exact_epsilon is not None
        assert claim.exact_epsilon <= claim.epsilon * (1 + 1e-9)
        for mutant in audited.mutants:
            assert mutant.exact_epsilon is not None
            assert mutant.exact_epsilon > 1.4 * mutant.epsilon, mutant.name
    first = found[0].claim
    assert first.exact_epsilon is not None
    assert first.exact_epsilon >= SHARES[name] * first.epsilon


def test_the_page_shows_every_claim_and_mutant_with_its_exact_epsilon() -> None:
    page = (Path(audit_command.__file__).parents[1] / "docs" / "privacy.md").read_text()
    for name in AUDITS:
        for audited in cached(name):
            for subject in (audited.claim, *audited.mutants):
                title = subject.name if subject is audited.claim else f"mutant: {subject.name}"
                claimed = f"({subject.epsilon:g}, {subject.delta:g})"
                row = f"| {name} | {audited.neighbours} | {title} | {claimed} | {subject.exact_epsilon:.3f} |"
                assert row in page, row


def fit(counts: Sequence[int], law: Sequence[float]) -> float:
    """The p-value of a chi-square test, outcomes that are expected less than 5 times put together."""
    seen, expected = [0.0], [0.0]
    for count, share in zip(counts, law, strict=True):
        if expected[-1] >= 5:
            seen.append(0.0)
            expected.append(0.0)
        seen[-1] += count
        expected[-1] += share * sum(counts)
    if expected[-1] < 5:
        *seen, last, rest = seen
        seen[-1:], expected = [seen[-1], last + rest], [*expected[:-2], expected[-2] + expected[-1]]
    return float(stats.chisquare(seen, expected).pvalue)


# Laws of which a mutant's differs less from the claim's.
SLIGHT = {"dp-svrg++", "sufficient-statistics", "learn-schema"}


FOLLOWED = [
    *RISK_AUDITS, "sufficient-statistics", "column-statistics", "evaluation", "regression-evaluation",
    "regression-comparison", "tree", "rule-list", "leaf-histogram", "learn-schema", "dp-gld", "dp-sosp",
    "dp-newton", "dp-spider", "dp-gd-so",
]  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_releases_of_first_order_mechanisms_follow_the_laws(name: str) -> None:
    """Real releases, of claims and of mutants; those of a mutant do not follow the law of its claim."""
    for audited in cached(name):
        for subject in (audited.claim, *audited.mutants):
            assert subject.laws is not None
            assert audited.claim.laws is not None
            others = []
            draws = 250 if name in SLIGHT else 150
            for side, sampler in enumerate((subject.first, subject.second)):
                law = subject.laws[side]
                outcomes = np.array(sampler(draws, NoiseSource(insecure_seed=SEED + side)), dtype=np.int64)
                counts = np.bincount(outcomes, minlength=len(law)).tolist()
                assert fit(counts, law) > 1e-3, subject.name
                others.append(fit(counts, audited.claim.laws[side]))
                if subject is not audited.claim and others[-1] < 1e-3:
                    break  # rejected: no need of the other side
            if subject is not audited.claim:
                assert min(others) < 1e-3, subject.name


def test_drawn_columns_follow_the_laws() -> None:
    """Draws by branch and bound, against losses that were derived by hand."""
    (audited,) = cached("best-subset")
    for subject in (audited.claim, *audited.mutants):
        assert subject.laws is not None
        for side, sampler in enumerate((subject.first, subject.second)):
            rare = subject.laws[side][1]
            found = sum(map(int, sampler(250, NoiseSource(insecure_seed=SEED + side))))  # type: ignore[call-overload]
            assert stats.binomtest(found, 250, rare).pvalue > 1e-4, (subject.name, side)


@pytest.mark.parametrize("name", ["exponential", "permute-and-flip", "rspm-laplace", "evaluation"])
def test_runs_let_claims_stand_and_reject_mutants(name: str) -> None:
    (audited,) = cached(name)
    lines = audit_claim(audited, runs=2000, insecure_seed=SEED)
    assert [line.verdict for line in lines] == ["stands", *["rejected"] * (len(lines) - 1)]


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param("opdisc", "printed calibration halved", marks=pytest.mark.slow),
        ("dp-sgd", "everyone sampled"),
    ],
)
def test_runs_reject_the_worst_mutants(name: str, mutant: str) -> None:
    (audited,) = cached(name)
    worst = tuple(m for m in audited.mutants if m.name == mutant)
    lines = audit_claim(dataclasses.replace(audited, mutants=worst), runs=1000, insecure_seed=SEED)
    assert [line.verdict for line in lines] == ["stands", "rejected"]


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_long_audits(name: str) -> None:
    lines = [line for claim in cached(name) for line in audit_claim(claim, runs=20_000, confidence=0.999)]
    # At this confidence the runs may be too few for a mutant near the claim: then its law rejects it.
    assert [line.verdict.split()[0] for line in lines] == [
        "rejected" if line.mutant else "stands" for line in lines
    ]
    for line in lines:
        # The bound comes from real releases, the exact value from a formula: they must agree.
        if line.exact_epsilon is not None:
            assert line.result.lower_bound <= line.exact_epsilon
        # Where there is enough to find.
        if line.exact_epsilon is not None and line.exact_epsilon > line.result.epsilon / 2:
            share = 0.6 if name in MECHANISMS else 0.4  # many outcomes: the event is chosen less well
            assert share * line.exact_epsilon <= line.result.lower_bound


def weak_claim() -> AuditedClaim:
    """An audit that cannot tell: its mutant is the mechanism itself."""
    sound = Subject("as released", Response(1, keep_at(1)), Response(0, keep_at(1)), 1.0, 0.0)
    return AuditedClaim("response", "one bit", sound, (dataclasses.replace(sound, name="not a mutant"),))


def false_claim() -> AuditedClaim:
    wrong = Subject("as released", publish, publish_another, 1.0, 0.0)
    return AuditedClaim("publish", "two names", wrong, (dataclasses.replace(wrong, name="again"),))


def test_a_mutant_that_is_none_fails_the_audit() -> None:
    lines = audit_claim(weak_claim(), runs=2000, insecure_seed=SEED)
    assert [(line.verdict, line.passed) for line in lines] == [("stands", True), ("NOT REJECTED", False)]


def test_a_false_claim_fails_the_audit() -> None:
    lines = audit_claim(false_claim(), runs=1000)
    assert [(line.verdict, line.passed) for line in lines] == [("REFUTED", False), ("rejected", True)]


def test_an_exact_epsilon_above_the_claim_refutes_it_where_runs_do_not() -> None:
    result = AuditResult(1.0, 0.0, 0.9, 0.95, frozenset(), False, (5, 3), 10)
    for exact, refuted in ((1.0, False), (1.001, True), (None, False)):
        for mutant in (False, True):
            line = AuditLine("coin", "one record", "claim", mutant, exact, result)
            assert line.refuted is refuted
            assert line.passed is (mutant is refuted)
    assert line.verdict == "NOT REJECTED"


# Runs show little of these: their releases are compared with their laws above, or take milliseconds each.
FEW = {
    *FOLLOWED,
    "objective-perturbation-hessian",
    "sample-aggregate",
    "seeded",
    "clipped-newton",
    "robust-sgd",
    "opdisc",
}


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *((name, 10 if name in FEW else 100) for name in AUDITS),
        *(pytest.param(name, 400, marks=pytest.mark.slow) for name in AUDITS),
    ],
)
def test_claims_stand_and_mutants_fall_on_the_command_line(
    name: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``privopt audit --all`` does for each, unseeded. Exact laws decide about mutants.

    A true claim falls by bad luck with probability 1e-6 at most.
    """
    monkeypatch.setattr(audit_runs, "_CHUNK", min(runs // 2, audit_runs._CHUNK))  # runs are rounded up to two
    monkeypatch.setattr(audit_command, "AUDITS", {**AUDITS, name: lambda: cached(name)})
    words = ["audit", name, "--runs", str(runs), "--confidence", "0.999999", "--workers", "1"]
    run = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "out.json")])
    assert run.exit_code == 0, run.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["passed"] is True
    assert {line["mechanism"] for line in report["lines"]} == {name}
    for line in report["lines"]:
        assert line["verdict"] in (("rejected", "rejected (law)") if line["mutant"] else ("stands",)), line
        assert set(line) == set(report["meanings"])
    for word in audit_command.MEANINGS:
        assert f"{word}:" in run.output


def test_command_fails_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    for claim in (weak_claim, false_claim):
        monkeypatch.setattr(audit_command, "AUDITS", {"wrong": lambda claim=claim: (claim(),)})
        words = ["audit", "--all", "--runs", "1000", "--workers", "1"]
        assert CliRunner().invoke(app, words).exit_code == 1


def test_all_cores_are_used_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def listening(claim: AuditedClaim, **options: Any) -> list[Any]:
        asked.append((options["workers"], options["runs"]))
        options["on_progress"](claim.claim.name, 1, 4)
        return []

    monkeypatch.setattr(audit_command, "audit_claim", listening)
    monkeypatch.setattr(audit_command.joblib, "cpu_count", lambda: 5)
    for more in ([], ["--workers", "3", "--runs", "800"]):
        assert CliRunner().invoke(app, ["audit", "exponential", *more]).exit_code == 0
    assert asked == [(5, 4_000), (3, 800)]


def test_command_resumes_from_its_journal(tmp_path: Path) -> None:
    words = ["audit", "permute-and-flip", "--runs", "1000", "--journal", str(tmp_path / "counts.jsonl")]
    outputs = []
    for name in ("first.json", "second.json"):
        assert CliRunner().invoke(app, [*words, "--json", str(tmp_path / name)]).exit_code == 0
        outputs.append((tmp_path / name).read_text())
    # Unseeded, and still the same numbers: nothing was run the second time.
    assert outputs[0] == outputs[1]


def test_samplers_run_the_release_of_the_plan() -> None:
    pair = singled_out_neighbours(IntegerLattice(0, 1, dimension=2))
    plan = MECHANISMS["exponential"].plan(LossTable, pair.first.lattice, epsilon=60.0)
    # At epsilon = 60 the only point without a loss wins, except with probability 3 exp(-30).
    assert ReleaseSampler(plan, pair, False)(50, NoiseSource()) == [-1] * 50
    # On the neighbour that point is the only one with a loss.
    assert ReleaseSampler(plan, pair, True)(50, NoiseSource()) == [1] * 50

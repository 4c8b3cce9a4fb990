"""The kit for exact draws accepts right oracles and rejects each kind of wrong one for its own reason."""

from __future__ import annotations

import copy
import itertools
import math
import random
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

from privopt.oracles.conformance import name_of
from privopt.oracles.draw import conformance as gibbs_conformance
from privopt.oracles.draw import evidence as _evidence
from privopt.oracles.draw.conformance import check_gibbs_oracle, draw_instances
from privopt.oracles.draw.elimination import GibbsElimination
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.draw.interface import (
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Moments,
    PreparedGibbs,
    Sample,
    Sampler,
    exponentials,
    lost_to_the_source,
    race_error,
    stop_if_asked,
    uniform_below,
)
from privopt.oracles.errors import ConformanceError, UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.limits import Watch
from privopt.oracles.select import gibbs_oracle
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.programs.lattice import ConstrainedLattice


@pytest.mark.parametrize(
    "oracle",
    [
        pytest.param(GibbsEnumeration(), marks=pytest.mark.slow),
        pytest.param(GibbsElimination(threads=1), marks=pytest.mark.slow),
        pytest.param(gibbs_oracle("branch"), marks=pytest.mark.slow),
        pytest.param(gibbs_oracle("auto"), marks=pytest.mark.slow),
    ],
    ids=lambda o: type(o).__name__,
)
def test_right_oracles_pass(oracle: GibbsOracle) -> None:
    report = check_gibbs_oracle(oracle)
    assert not report.failures
    assert "not seen: what goes wrong only beyond the sizes" in str(report)
    for law in Law:
        for name in ("one good point", "box with radius", "many records", "equal losses", "one point"):
            assert f"{name}, {law.name.lower()}: law" in report.passed


@pytest.mark.parametrize("name", ["enumerate", "elimination", "branch"])
def test_oracles_pass_on_a_few_instances(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["box with radius"]  # the others' laws are compared in test_gibbs, too
    if name == "enumerate":
        few += ["one good point", "many records", "equal losses", "one point", "tree of two levels"]
    chosen = [i for i in draw_instances(0) if i.name in few]
    monkeypatch.setattr(gibbs_conformance, "draw_instances", lambda seed: iter(chosen))
    report = check_gibbs_oracle(gibbs_oracle(name))
    assert {f"{each}, {law.name.lower()}: law" for each in few for law in Law} <= set(report.passed)


class OverTheBox(GibbsEnumeration):
    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem.lattice, ConstrainedLattice)
        relaxed = copy.copy(problem)
        relaxed.lattice = problem.lattice.box
        return super().build(relaxed, law)


def _constrained_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [i for i in draw_instances(0) if i.name == "constraints on points"]
    monkeypatch.setattr(gibbs_conformance, "draw_instances", lambda seed: iter(chosen))


def test_drawing_from_the_box_of_constraints_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    _constrained_alone(monkeypatch)
    with pytest.raises(ConformanceError, match="a point outside the lattice"):
        check_gibbs_oracle(OverTheBox())


@pytest.mark.slow
def test_branch_and_bound_passes_under_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    _constrained_alone(monkeypatch)
    report = check_gibbs_oracle(gibbs_oracle("branch"))
    assert "constraints on points, gibbs: law" in report.passed
    assert any("smallest loss under the constraints" in line for line in report.skipped)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_right_oracles_pass_with_other_bits(seed: int) -> None:
    check_gibbs_oracle(GibbsEnumeration(), seed=seed)


# --- Wrong oracles: each is the reference with one thing done wrong. ------------------------------------


class Reference(Sampler):
    """Keeps every point; draws by a race of exponential clocks under both laws."""

    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        self.problem, self.law = problem, law
        self.points = np.concatenate(list(problem.lattice.batches()))
        self.losses = problem.losses(self.points)

    def draw(self, request: DrawRequest) -> Sample:
        stop_if_asked(request.watch, 0)
        point = self.points[self.choose(request)]
        return Sample(point, self.exactness(request.beta), self.log_partition(request.beta))

    def choose(self, request: DrawRequest) -> int:
        return self.winner(self.noise(request), request.beta)

    def noise(self, request: DrawRequest) -> Any:
        return exponentials(request.random, len(self.points))

    def winner(self, noise: Any, beta: float) -> int:
        excess = beta * (self.losses - self.losses.min())
        scores = noise - excess if self.law is Law.PERMUTE_AND_FLIP else -np.log(noise) - excess
        return int(np.argmax(scores))

    def exactness(self, beta: float) -> Exactness:
        magnitude = math.log(len(self.points)) + beta * self.problem.n_records
        return Exactness(2 * race_error(magnitude), lost_to_the_source(len(self.points)))

    def log_partition(self, beta: float) -> float | None:
        return None


INSTANCES = tuple(draw_instances(0))


class Wrong(GibbsOracle):
    """Takes few instances, so that a test is quick: by default the most telling one, under one law."""

    name = "wrong"

    def __init__(
        self, sampler: type[Reference] = Reference, law: Law | None = Law.GIBBS, *, instance: str = "one good"
    ) -> None:
        self.sampler, self.law = sampler, law
        self.lattices = [i.problem.lattice for i in INSTANCES if i.name.startswith(instance)]

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Any:
        reasons = [] if self.law in (None, law) else [f"{law.name} is not offered"]
        return reasons + ([] if problem.lattice in self.lattices else ["not my instance"])

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        return self.sampler(problem, law)


class BetaTooSmall(Reference):
    def winner(self, noise: Any, beta: float) -> int:
        return super().winner(noise, 0.8 * beta)


class BetaTooLarge(Reference):
    def winner(self, noise: Any, beta: float) -> int:
        return super().winner(noise, 1.2 * beta)


class SharpAtZero(Reference):
    """Follows losses at beta = 0 too, where all points are equally likely."""

    def winner(self, noise: Any, beta: float) -> int:
        return super().winner(noise, beta or 1.0)


class AlwaysGibbs(Reference):
    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, Law.GIBBS)


class AlwaysFlips(Reference):
    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, Law.PERMUTE_AND_FLIP)


class WholeBox(Reference):
    """Forgets the norm ball."""

    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, law)
        box = IntegerLattice(problem.lattice.low, problem.lattice.high)
        self.points = np.concatenate(list(box.batches()))
        self.losses = problem.losses(self.points)


class SmallerBall(Reference):
    """Leaves out the points on the sphere."""

    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, law)
        squares = np.einsum("ij,ij->i", self.points, self.points)
        self.points = self.points[squares < squares.max()]
        self.losses = problem.losses(self.points)


class SameNoise(Reference):
    """Draws its noise once."""

    kept: Any = None

    def noise(self, request: DrawRequest) -> Any:
        if self.kept is None:
            self.kept = super().noise(request)
        return self.kept


class NoiseTwice(Reference):
    """Uses every noise for two draws."""

    kept: Any = None

    def noise(self, request: DrawRequest) -> Any:
        noise, self.kept = (super().noise(request), None) if self.kept is None else (self.kept, self.kept)
        self.kept = noise if self.kept is None else None
        return noise


class NoiseTwiceAtEachBeta(Reference):
    """Uses every noise for two draws at the same beta, with draws at other betas in between or not."""

    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, law)
        self.kept: dict[float, Any] = {}

    def noise(self, request: DrawRequest) -> Any:
        known = self.kept.pop(request.beta, None)
        if known is None:
            known = self.kept[request.beta] = super().noise(request)
        return known


class ArgMin(Reference):
    def choose(self, request: DrawRequest) -> int:
        return int(np.argmin(self.losses))


class FirstOfTies(Reference):
    """Every other draw is replaced by the first point of the same loss."""

    def choose(self, request: DrawRequest) -> int:
        k = super().choose(request)
        first = int(np.flatnonzero(self.losses == self.losses[k])[0])
        return first if uniform_below(request.random, 2) else k


class StaleBeta(Reference):
    """Keeps what was computed for the first beta it was asked about."""

    first: float | None = None

    def winner(self, noise: Any, beta: float) -> int:
        self.first = beta if self.first is None else self.first
        return super().winner(noise, self.first)


class ShortChain(Reference):
    """A few Metropolis steps from the last draw, which is right in the long run only."""

    state = 0

    def choose(self, request: DrawRequest) -> int:
        for _ in range(10):
            k = uniform_below(request.random, len(self.points))
            rise = request.beta * int(self.losses[k] - self.losses[self.state])
            if exponentials(request.random, 1)[0] > rise:
                self.state = k
        return self.state


class FewRepeats(Reference):
    """Tries once more where it would repeat a point."""

    last = -1

    def choose(self, request: DrawRequest) -> int:
        k = super().choose(request)
        self.last = super().choose(request) if k == self.last else k
        return self.last


class SharedProblem(Reference):
    """The last data set that was prepared is everybody's."""

    shared: IntArray

    def __init__(self, problem: DiscreteProblem, law: Law) -> None:
        super().__init__(problem, law)
        SharedProblem.shared = self.losses

    def winner(self, noise: Any, beta: float) -> int:
        self.losses = SharedProblem.shared
        return super().winner(noise, beta)


class OncePrepared(Reference):
    """Tables with the same rows are taken for one, whatever their labels."""

    known: ClassVar[dict[object, IntArray]] = {}

    def __init__(self, problem: Any, law: Law) -> None:
        super().__init__(problem, law)
        key = type(problem), str(problem.lattice), str(problem.costs), len(self.losses), problem.X.tobytes()
        self.losses = self.known.setdefault(key, self.losses)


class SpoiltByInterruption(Reference):
    interrupted = False

    def draw(self, request: DrawRequest) -> Sample:
        try:
            stop_if_asked(request.watch, 0)
        except UnfinishedDrawError:
            self.interrupted = True
            raise
        return super().draw(request)

    def winner(self, noise: Any, beta: float) -> int:
        beta, self.interrupted = 0.0 if self.interrupted else beta, False
        return super().winner(noise, beta)


class NeverStops(Reference):
    def draw(self, request: DrawRequest) -> Sample:
        return Sample(self.points[self.choose(request)], self.exactness(request.beta))


class StopsWithAnotherError(Reference):
    def draw(self, request: DrawRequest) -> Sample:
        if request.watch.stop() is not None:
            raise TimeoutError("too slow")
        return super().draw(request)


class GlobalNumpy(Reference):
    def noise(self, request: DrawRequest) -> Any:
        return np.random.exponential(size=len(self.points))  # noqa: NPY002


class GlobalPython(Reference):
    def noise(self, request: DrawRequest) -> Any:
        return np.array([random.expovariate(1) for _ in self.points])


class OwnGenerator(Reference):
    def noise(self, request: DrawRequest) -> Any:
        return np.random.default_rng().exponential(size=len(self.points))


class OneWordForAll(Reference):
    """Seeds a generator of its own with 64 of the bits that it is handed."""

    generator: Any = None

    def noise(self, request: DrawRequest) -> Any:
        if self.generator is None:
            self.generator = np.random.default_rng(int(request.random.bits(1)[0]))
        return self.generator.exponential(size=len(self.points))


class CrashesOnZero(Reference):
    def noise(self, request: DrawRequest) -> Any:
        with np.errstate(divide="raise"):
            return -np.log(request.random.bits(len(self.points)).astype(np.float64) / 2.0**64)


class Underflows(Reference):
    def winner(self, noise: Any, beta: float) -> int:
        weights = np.exp(-beta * self.losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            return int(np.argmin(noise / weights))


class ChangesData(Reference):
    def choose(self, request: DrawRequest) -> int:
        data: Any = self.problem
        np.negative(data.y, out=data.y)
        return super().choose(request)


class WrongPartition(Reference):
    def log_partition(self, beta: float) -> float | None:
        return float(np.log(np.sum(np.exp(-beta * self.losses)))) + 1e-6


class WrongMoments(Reference):
    def moments(self, beta: float, watch: Watch) -> Moments:
        return Moments(float(np.log(np.sum(np.exp(-beta * self.losses)))), float(self.losses.mean()))


class CopiesDiffer(Reference):
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"points": self.points[::-1], "losses": self.losses[::-1]}


def stating(exactness: Callable[[Reference], Exactness]) -> type[Reference]:
    class Stating(Reference):
        def exactness(self, beta: float) -> Exactness:
            return exactness(self)

    return Stating


EXACT = Exactness(1e-12, 1e-60)


class BuildsFirst(Wrong):
    def prepare(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> PreparedGibbs:
        if problem.lattice.box_size < 1000:
            self.build(problem, law)
        return super().prepare(problem, law)


class IgnoresItsRefusals(Wrong):
    def prepare(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> PreparedGibbs:
        if problem.lattice.box_size > 1:
            return super().prepare(problem, law)
        return PreparedGibbs(self.name, problem, law, self.build(problem, law))


class RefusesInSilence(Wrong):
    def prepare(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> PreparedGibbs:
        if self.refusals(problem, law):
            raise UnsupportedProblemError("no")
        return super().prepare(problem, law)


class OneReason(Wrong):
    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Any:
        return "; ".join(super().refusals(problem, law))


class AnyBeta(PreparedGibbs):
    def draw(self, beta: float, *rest: Any) -> Any:
        return super().draw(abs(beta) if math.isfinite(beta) else 1.0, *rest)


class TakesAnyBeta(Wrong):
    def prepare(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> PreparedGibbs:
        prepared = super().prepare(problem, law)
        return AnyBeta(prepared.name, prepared.problem, prepared.law, prepared.sampler)


FLIP = Law.PERMUTE_AND_FLIP
WRONG: list[tuple[Wrong, str, str]] = [
    (Wrong(BetaTooSmall), "law", r"they look drawn at beta \* 0\.8"),
    (Wrong(BetaTooLarge), "law", r"they look drawn at beta \* 1\.2"),
    (Wrong(SharpAtZero), "law", "beta 0: .* drawn"),
    (Wrong(BetaTooSmall, FLIP), "law", r"they look drawn at beta \* 0\.8"),
    (Wrong(BetaTooLarge, FLIP), "law", r"they look drawn at beta \* 1\.2"),
    (Wrong(AlwaysGibbs, FLIP), "law", "they look drawn"),
    (Wrong(AlwaysFlips), "law", "they look drawn under the other law"),
    (Wrong(WholeBox, instance="box with"), "law", "outside the lattice"),
    (Wrong(SmallerBall, instance="box with"), "law", "was drawn 0 times"),
    (Wrong(SameNoise), "law", "against the law"),
    (Wrong(NoiseTwice), "independence", "after a draw at the same beta: .* repeat an earlier one"),
    (Wrong(NoiseTwiceAtEachBeta), "independence", "repeat an earlier one"),
    (Wrong(ArgMin), "law", "they look drawn at beta"),
    (Wrong(ArgMin), "random source", "other random bits gave the same draws"),
    (Wrong(FirstOfTies, instance="equal"), "law", "points: kind 0 was drawn"),
    (Wrong(FirstOfTies, instance="signs"), "law", "place among points of equal loss: kind 0"),
    (Wrong(FirstOfTies, instance="box with radius"), "law", "minimisers"),
    (Wrong(StaleBeta), "law", r"they look drawn at beta \* 0 \("),
    (Wrong(ShortChain), "law", "follow large losses|repeat an earlier one"),
    (Wrong(FewRepeats), "law", "repeat an earlier one"),
    (Wrong(SharedProblem), "independence", "against the law"),
    (Wrong(OncePrepared), "independence", "with labels exchanged"),
    (Wrong(SpoiltByInterruption), "limits", "after draws cancelled at question 0"),
    (Wrong(NeverStops), "limits", "a point was drawn instead"),
    (Wrong(StopsWithAnotherError), "limits", "raised TimeoutError"),
    (Wrong(GlobalNumpy), "random source", "random state of numpy"),
    (Wrong(GlobalPython), "random source", "random state of Python"),
    (Wrong(OwnGenerator), "random source", "another source of randomness"),
    (Wrong(OneWordForAll), "random source", "20 draws took 64 random bits"),
    (Wrong(CrashesOnZero), "extreme bits", "words of zeros first: raised FloatingPointError"),
    (Wrong(Underflows, instance="many"), "law", "against the law"),
    (Wrong(ChangesData), "purity", "changed in place"),
    (Wrong(WrongPartition), "moments", "the draw's log_partition is"),
    (Wrong(WrongMoments), "moments", "expected_loss is"),
    (Wrong(CopiesDiffer), "copies", "a pickled copy draws differently"),
    (Wrong(stating(lambda s: Exactness(0.0, 1e-60))), "exactness", "it cannot be"),
    (Wrong(stating(lambda s: Exactness(1e-17, 1e-60))), "exactness", "it cannot be"),
    (Wrong(stating(lambda s: Exactness(math.nan, 0.0))), "exactness", "log_error must be finite"),
    (Wrong(stating(lambda s: Exactness(1e-12, -1e-9))), "exactness", "lost_mass must be finite and >= 0"),
    (Wrong(stating(lambda s: Exactness(0.1, 0.0))), "exactness", "beta 0: .* too large for a claim"),
    (Wrong(stating(lambda s: Exactness(1e-12, 1e-3))), "exactness", "too large for a claim"),
    (Wrong(stating(lambda s: Exactness(1e-12 / (1 + s.losses[0]), 0))), "exactness", "it tells of the data"),
    (BuildsFirst(), "refusals", "something was built"),
    (IgnoresItsRefusals(), "refusals", "prepared all the same"),
    (RefusesInSilence(), "refusals", "does not name every reason"),
    (OneReason(), "refusals", "must be a list of reasons"),
    (TakesAnyBeta(), "temperatures", "a beta of nan was accepted"),
]


def make_only(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check of the kit, and refusals: the others would find their own share of a fault."""
    chosen = tuple(each for each in gibbs_conformance._CHECKS if name_of(each) == check)
    assert chosen or check == "refusals"
    monkeypatch.setattr(gibbs_conformance, "_CHECKS", chosen or gibbs_conformance._CHECKS)


def rejected(oracle: GibbsOracle) -> list[str]:
    """The lines of the report of failures."""
    with pytest.raises(ConformanceError) as caught:
        check_gibbs_oracle(oracle)
    assert isinstance(caught.value, AssertionError)
    return [line for line in str(caught.value).splitlines() if "FAILED" in line]


@pytest.mark.parametrize(
    ("oracle", "check", "reason"),
    WRONG,
    ids=[f"{w.sampler.__name__ if type(w) is Wrong else type(w).__name__}-{c}" for w, c, _ in WRONG],
)
def test_wrong_oracles_are_rejected(
    oracle: Wrong, check: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_only(check, monkeypatch)
    lines = rejected(oracle)
    assert any(f": {check}: " in line and re.search(reason, line) for line in lines), lines


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("instance", ["one good", "box with", "equal", "many"])
def test_the_reference_is_right(instance: str, law: Law) -> None:
    """The wrong oracles above are rejected for what is wrong with them, not for what they share."""
    report = check_gibbs_oracle(Wrong(law=law, instance=instance))
    assert any("not my instance" in line for line in report.skipped)
    assert any(f"{law.name.lower()}: law" in line for line in report.passed)


@pytest.mark.parametrize("sampler", [BetaTooSmall, BetaTooLarge])
def test_a_wrong_beta_is_all_that_is_found(sampler: type[Reference]) -> None:
    checks = {line.split(": ")[1] for line in rejected(Wrong(sampler))}
    assert checks <= {"law", "independence", "limits"}


def test_refusing_everything_is_not_passing() -> None:
    with pytest.raises(ConformanceError, match="nothing was checked"):
        check_gibbs_oracle(Wrong(instance="no such instance"))


def test_failures_while_building_are_reported() -> None:
    class Unbuildable(Reference):
        def __init__(self, problem: DiscreteProblem, law: Law) -> None:
            raise KeyError("a bug")

    assert "build: raised KeyError: 'a bug' at test_gibbs_kit.py:" in rejected(Wrong(Unbuildable))[0]


def test_instances_cover_what_they_should() -> None:
    instances = {i.name: i.problem for i in draw_instances(0)}
    for problem in instances.values():
        assert problem.lattice.box_size <= 1024  # the kit enumerates them
    losses = {name: p.losses(np.concatenate(list(p.lattice.batches()))) for name, p in instances.items()}
    assert sorted(losses["one good point"])[:2] == [0, 10]
    assert np.ptp(losses["equal losses"]) == 0 < losses["equal losses"][0]
    assert not losses["no loss"].any()
    assert len(losses["one point"]) == 1
    assert losses["many records"].max() * 0.5 > 745  # beyond the smallest double at beta = 1/2
    assert np.sum(losses["box with radius"] == losses["box with radius"].min()) > 1


def test_a_run_makes_fewer_bets_than_its_odds_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement of less than 1e-6 for a right oracle: ten thousand bets at odds of 1e10."""
    bets = itertools.count()
    for name in ("any_of", "odds_of_habit", "odds_of_other_shares"):
        original = getattr(gibbs_conformance, name)

        def counted(*args: Any, original: Any = original, **words: Any) -> float:
            next(bets)
            return float(original(*args, **words))

        monkeypatch.setattr(gibbs_conformance, name, counted)
    check_gibbs_oracle(Wrong())  # one of the instances under one of the laws
    cases = len(Law) * sum(1 for _ in draw_instances(0))
    assert math.exp(gibbs_conformance._LOG_ODDS) * 1e-6 > cases * next(bets) > 1000


# --- The odds -----------------------------------------------------------------------------------------


def test_law_of_permute_and_flip_against_all_permutations() -> None:
    losses, beta = np.array([3, 0, 1, 1, 5]), 0.4
    expected = np.zeros(5)
    for order in itertools.permutations(range(5)):
        reached = 1 / math.factorial(5)
        for k in order:
            expected[k] += reached * math.exp(-beta * losses[k])
            reached *= 1 - math.exp(-beta * losses[k])
    np.testing.assert_allclose(_evidence.flip_law(losses, beta), expected, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.3, 50.0])
def test_laws_sum_to_one(beta: float) -> None:
    losses = np.random.default_rng(0).integers(0, 40, 150)
    for law in (_evidence.gibbs_law, _evidence.flip_law):
        assert law(losses, beta).sum() == pytest.approx(1, abs=1e-12)


def every_sequence(law: Any, length: int) -> Any:
    """All sequences of draws and their probabilities."""
    for drawn in itertools.product(range(len(law)), repeat=length):
        sequence = np.array(drawn)
        yield sequence, float(np.prod(law[sequence]))


@pytest.mark.parametrize(
    "odds",
    [
        lambda drawn, law: _evidence.odds_of_other_shares(drawn, law),
        lambda drawn, law: _evidence.odds_of_other_shares(drawn[1:], law, given=drawn[:-1]),
        lambda drawn, law: _evidence.odds_of_habit(drawn[1:], drawn[:-1], law),
        lambda drawn, law: _evidence.any_of(
            _evidence.odds_of(drawn, law, [np.array([0.2, 0.2, 0.6]), np.array([0.0, 0.5, 0.5])])
        ),
    ],
    ids=["shares", "shares given", "habit", "laws"],
)
def test_odds_have_mean_one_under_the_claimed_law(odds: Any) -> None:
    """By summation over all sequences: that they exceed x with a probability of at most 1/x follows."""
    law = np.array([0.5, 0.3, 0.2])
    mean = sum(p * math.exp(odds(drawn, law)) for drawn, p in every_sequence(law, 6))
    assert mean == pytest.approx(1, abs=1e-12)


def test_odds_are_infinite_against_what_cannot_happen() -> None:
    never, drawn = np.array([1.0, 0.0]), np.array([0, 1])
    assert _evidence.odds_of_other_shares(drawn, never) == math.inf
    assert _evidence.any_of(_evidence.odds_of(drawn, never, [never, np.array([0.5, 0.5])])) == math.inf
    assert _evidence.any_of(_evidence.odds_of(drawn, np.array([0.5, 0.5]), [never])) == -math.inf
    assert _evidence.odds_of_habit(drawn, np.array([1, 1]), never) == 0  # no bet: it cannot have come before


def test_odds_grow_with_what_is_wrong() -> None:
    """The expected log odds of the true law are the number of draws times its divergence."""
    rng, claimed, true = np.random.default_rng(0), np.array([0.5, 0.5]), np.array([0.3, 0.7])
    drawn = rng.choice(2, 1000, p=true)
    divergence = 1000 * float(stats.entropy(true, claimed))
    assert _evidence.odds_of(drawn, claimed, [true])[0] == pytest.approx(divergence, rel=0.3)
    assert _evidence.odds_of_other_shares(drawn, claimed) == pytest.approx(divergence, rel=0.3)
    assert _evidence.odds_of_other_shares(rng.choice(2, 1000), claimed) < 0

"""Conformance kit for oracles of exact random draws, built-in or your own.

>>> from privopt.oracles.draw.enumerate import GibbsEnumeration
>>> print(check_gibbs_oracle(GibbsEnumeration()).oracle)
gibbs-enumerate

Instances are small enough to compute both laws exactly. Draws are tested against the laws by betting
(``privopt.oracles.draw.evidence``). The probability that a correct oracle is rejected is below 1e-6 in total,
for any numbers of draws. The random bits are seeded, so the result is reproducible for an oracle that uses no
other randomness.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.conformance import (
    ConformanceReport,
    DataProblem,
    Finding,
    RandomStates,
    Tally,
    changed,
    constrained_lattice,
    decimal_ties,
    described,
    findings,
    random_halfspace,
)
from privopt.oracles.draw.evidence import (
    any_of,
    flip_law,
    gibbs_law,
    odds_of,
    odds_of_habit,
    odds_of_other_shares,
)
from privopt.oracles.draw.interface import UNIT_ROUNDOFF, Draw, Exactness, GibbsOracle, Law, PreparedGibbs
from privopt.oracles.errors import UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.conjunction import MonotoneConjunction
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.costs import Costs
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.errors import InvalidInputError

DrawnProblem = DataProblem | BranchingProblem

# A bet is won at odds of ten billion to one; there are fewer than ten thousand bets.
_LOG_ODDS = math.log(1e10)
# Factors on beta in the alternative laws of bets.
_FACTORS = (0.0, 0.5, 0.8, 0.9, 1.1, 1.2, 2.0)
# A number of draws is enough if the expected log odds at a factor of 0.8 or 1.2 on beta are at least this.
_REVEALING = 80.0
_MANY_DRAWS = 1500
_SOME_DRAWS = 400
_FEW_DRAWS = 150
# A beta at which only minimisers are drawn, because different losses differ by at least 1.
_COLD = 50.0
# If the error of log probabilities or the lost mass is larger, a claim of pure privacy is meaningless.
_USELESS = 1e-6


@dataclass(frozen=True)
class DrawInstance:
    """A small test problem."""

    name: str
    problem: DrawnProblem


def check_gibbs_oracle(oracle: GibbsOracle, *, seed: int = 0) -> ConformanceReport:
    """Run every check on a sampling oracle, under both laws, on every instance that the oracle takes.

    Args:
        oracle: any oracle of exact draws.
        seed: the seed of the instances, and of the random bits for the oracle.

    Returns:
        A report of the checks that passed, and of the instances skipped because the oracle refuses them.

    Raises:
        ConformanceError: a check failed, or nothing could be checked; the message lists every kind of
            failure.
    """
    tally, pickled = Tally(), set[str]()
    for instance, law in itertools.product(draw_instances(seed), Law):
        name = f"{instance.name}, {law.name.lower()}"
        for case in tally.built(name, partial(_Case, oracle, instance, law, seed)):
            tally.check_all(name, _CHECKS, case)
            pickled |= {case.unpicklable} - {""}
    if tally.passed or tally.failures:
        tally.note("vast", "refusals", _checked_refusals(oracle, seed))
    tally.skipped += [f"pickling: not offered ({reason})" for reason in sorted(pickled)]
    return tally.verdict(oracle.name, _UNSEEN)


_UNSEEN = (
    f"a law that is off by less than {_MANY_DRAWS:,} draws show: a beta off by 20% is found, one off by 5% "
    f"may not be, and what is said about rounding is too small to be measured by drawing",
    "what goes wrong only beyond the sizes that were tried: 1,000 points, 2,400 errors",
    "what comes up in fewer than one of a few hundred draws, without a trace in their law",
)


class _Bits:
    """A seeded random source that counts its words. Its first words may be given."""

    def __init__(self, *seed: int, first: tuple[int, ...] = ()) -> None:
        self._source = np.random.Philox(np.random.SeedSequence(seed))
        self._first = list(first)
        self.words = 0

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        self.words += n
        words: NDArray[np.uint64] = self._source.random_raw(n)
        for i in range(min(n, len(self._first))):
            words[i] = self._first.pop(0)
        return words


class _Case:
    """An instance under one law, with the exact law and the oracle prepared for it."""

    def __init__(self, oracle: GibbsOracle, instance: DrawInstance, law: Law, seed: int) -> None:
        self.oracle, self.problem, self.kind, self.seed = oracle, instance.problem, law, seed
        self.points = np.concatenate(list(self.problem.lattice.batches()))
        self.losses = self.problem.losses(self.points)
        self._index = {tuple(w): i for i, w in enumerate(self.points.tolist())}
        self._sources = itertools.count()
        self._laws: dict[tuple[Law, float], FloatArray] = {}
        self.unpicklable = ""
        self.beta = self._revealing()
        self.prepared = self.prepare()

    def prepare(self) -> PreparedGibbs:
        """Prepare the oracle, without a maker: then no draw is abandoned and runs in parallel to the next."""
        return replace(self.oracle.prepare(self.problem, self.kind), maker=None)

    def source(self) -> _Bits:
        """Return a new random source, with a seed that no other source of this run has."""
        return _Bits(self.seed, next(self._sources))

    @property
    def uniform(self) -> bool:
        """Whether all losses are equal."""
        return bool(np.all(self.losses == self.losses[0]))

    @property
    def few(self) -> int:
        """A number of draws that is enough to detect large errors."""
        return _FEW_DRAWS // 3 if self.uniform else _FEW_DRAWS

    def law(self, beta: float, kind: Law | None = None) -> FloatArray:
        """Return the exact probabilities of all points."""
        law = kind or self.kind
        if (law, beta) not in self._laws:
            self._laws[law, beta] = (gibbs_law if law is Law.GIBBS else flip_law)(self.losses, beta)
        return self._laws[law, beta]

    def index(self, draw: Draw) -> int:
        """Check a draw and return the index of its point."""
        index = self._index.get(tuple(draw.point.tolist()))
        if index is None or draw.loss != self.losses[index]:
            raise AssertionError("the drawn point is outside the lattice, or its loss is wrong")
        return index

    def drawn(self, prepared: PreparedGibbs, betas: list[float], source: _Bits) -> IntArray:
        """Return the indices of points drawn at these betas.

        Each returned array is overwritten, to detect oracles that reuse it.
        """
        indices = []
        for beta in betas:
            draw = prepared.draw(beta, source)
            indices.append(self.index(draw))
            if draw.point.flags.writeable:
                draw.point[:] = 99
        return np.array(indices, dtype=np.int64)

    @cached_property
    def partitions(self) -> list[tuple[str, IntArray]]:
        """Partitions of the points into a few kinds."""
        return list(_partitions(self.points, self.losses))

    def _revealing(self) -> float:
        """Return the beta with the largest variance of beta * loss, at which errors of beta are clearest."""
        range_of_losses = max(1, int(self.losses.max() - self.losses.min()))
        betas = np.geomspace(0.1, 40.0, 60) / range_of_losses
        spread = []
        for beta in betas.tolist():
            p = gibbs_law(self.losses, beta)
            spread.append(beta**2 * float(p @ self.losses**2 - (p @ self.losses) ** 2))
        return float(betas[int(np.argmax(spread))])

    def enough(self, beta: float) -> int:
        """Return the number of draws that detects a factor of 0.8 or 1.2 on beta, or a cap on it."""
        p, least = self.law(beta), math.inf
        for factor in (0.8, 1.2):
            q = self.law(factor * beta)
            kept = q > 0
            least = min(least, float(q[kept] @ np.log(q[kept] / p[kept])))
        if least * _MANY_DRAWS >= _REVEALING:
            return math.ceil(_REVEALING / least)
        return self.few if self.uniform else _SOME_DRAWS


def _partitions(points: IntArray, losses: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Yield partitions of the points into a few kinds, numbered from 0."""
    for j, column in enumerate(points.T):
        yield f"values of w[{j}]", column - column.min()
    # Each of the smallest losses is a kind, and all larger losses together are another.
    _, rank = np.unique(losses, return_inverse=True)
    yield "levels of the loss", np.minimum(rank, 7)
    # To test the choice between ties, points of equal loss are divided into quarters by their order.
    place, size = np.zeros(len(rank), dtype=np.int64), np.bincount(rank)
    for r in range(len(size)):
        place[rank == r] = np.arange(size[r]) * 4 // size[r]
    yield "place among points of equal loss", place
    _, tied = np.unique(np.where(rank == 0, np.arange(len(rank)), -1), return_inverse=True)
    yield "minimisers", np.minimum(tied, 7)
    if len(points) <= 32:
        yield "points", np.arange(len(points))


# --- Checks. Each yields the circumstances and the description of every failure. ----------------------


def _check_law(case: _Case) -> Iterator[Finding]:
    """Check the law at several betas: at 0 it is uniform, at a very large beta only minimisers are drawn."""
    source = case.source()
    hot, cold = case.beta / 3, _COLD
    draws = {0.0: case.few, hot: case.few, case.beta: case.enough(case.beta), cold: case.few, 1e6: 20}
    for beta, n in draws.items():
        drawn = case.drawn(case.prepared, [beta] * n, source)
        yield from ((f"beta {beta:g}", wrong) for wrong in _against_law(case, beta, drawn))
        dependent = _against_independence(case, drawn[1:], drawn[:-1], case.law(beta))
        yield from ((f"beta {beta:g}", wrong) for wrong in dependent)


def _against_law(case: _Case, beta: float, drawn: IntArray) -> Iterator[str]:
    """Bet on other betas, on the other law, and on other probabilities of the kinds of points."""
    law, n = case.law(beta), len(drawn)
    alternatives = {f"at beta * {f:g}": case.law(f * beta) for f in _FACTORS}
    alternatives["under the other law"] = case.law(beta, _other(case.kind))
    odds = odds_of(drawn, law, list(alternatives.values()))
    if any_of(odds) > _LOG_ODDS:
        mean, expected = float(case.losses[drawn].mean()), float(law @ case.losses)
        yield (
            f"{n} draws of mean loss {mean:.4g}, expected {expected:.4g}: "
            f"they look drawn {list(alternatives)[int(np.argmax(odds))]}{_odds(any_of(odds))}"
        )
    for what, kinds in case.partitions:
        k = int(kinds.max()) + 1
        shares = np.bincount(kinds, law, minlength=k).astype(np.float64)
        log_odds = odds_of_other_shares(kinds[drawn], shares)
        if log_odds > _LOG_ODDS:
            seen = np.bincount(kinds[drawn], minlength=k)
            worst = int(np.argmax(np.abs(seen - n * shares) / np.sqrt(n * shares + 1)))
            yield (
                f"{what}: kind {worst} was drawn {seen[worst]} times out of {n}, "
                f"expected {n * shares[worst]:.4g}{_odds(log_odds)}"
            )


def _check_independence(case: _Case) -> Iterator[Finding]:
    """Check that draws are independent, also if betas alternate, and if draws from related data alternate."""
    source, n = case.source(), 4 * (case.few // 2)
    betas = [case.beta, case.beta, case.beta / 2, case.beta / 2]
    prepared, sessions = case.prepare(), _related(case)
    schedule = [betas[i % 4] for i in range(n)]
    drawn, related = case.drawn(prepared, schedule[: n // 2], source), dict[str, list[IntArray]]()
    for _ in range(case.few // 10):
        for name, session in sessions.items():
            related.setdefault(name, []).append(session.drawn(session.prepared, [session.beta] * 10, source))
    drawn = np.concatenate((drawn, case.drawn(prepared, schedule[n // 2 :], source)))
    for name, found in related.items():
        session = sessions[name]
        wrong = _against_law(session, session.beta, np.concatenate(found))
        yield from ((f"with {name}", finding) for finding in wrong)
    at = np.arange(n)
    for beta in sorted(set(betas)):
        own = np.array(schedule) == beta
        yield from ((f"beta {beta:g} in turn", wrong) for wrong in _against_law(case, beta, drawn[own]))
        law = case.law(beta)
        # The previous draw was at the same beta, or at another one; or the last draw at the same beta.
        for where, lag, chosen in (
            ("after a draw at the same beta", 1, own & (at % 2 == 1)),
            ("after a draw at another beta", 1, own & (at % 2 == 0) & (at > 0)),
            ("after coming back from another beta", 3, own & (at % 2 == 0) & (at > 3)),
        ):
            now, before = drawn[chosen], drawn[at[chosen] - lag]
            yield from ((where, wrong) for wrong in _against_independence(case, now, before, law))


def _related(case: _Case) -> dict[str, _Case]:
    """Prepare the oracle for related tables, which a faulty cache could confuse with the given one."""
    problem, found = case.problem, {"labels exchanged": _with_labels_exchanged(case.problem)}
    if not isinstance(problem, BranchingProblem):
        found["rows in another order"] = problem.with_records(problem.X[::-1], problem.y)
    return {
        name: _Case(case.oracle, DrawInstance(name, other), case.kind, case.seed)
        for name, other in found.items()
        if not case.oracle.refusals(other, case.kind)
    }


def _against_independence(case: _Case, now: IntArray, before: IntArray, law: FloatArray) -> Iterator[str]:
    """Bet that draws repeat or avoid an earlier point, or are on the same side of the median loss."""
    habit = odds_of_habit(now, before, law)
    if habit > _LOG_ODDS:
        yield (
            f"{int(np.sum(now == before))} of {len(now)} draws repeat an earlier one, "
            f"expected {float(law[before].sum()):.4g}{_odds(habit)}"
        )
    high = (case.losses > np.median(case.losses[now])).astype(np.int64)
    shares = np.bincount(high, law, minlength=2).astype(np.float64)
    runs = odds_of_other_shares(high[now], shares, given=high[before])
    # Probabilities that are wrong independently of earlier draws are reported elsewhere.
    if runs - max(0.0, odds_of_other_shares(high[now], shares)) > _LOG_ODDS:
        yield f"large losses follow large losses, or small ones, too often{_odds(runs)}"


def _check_random_source(case: _Case) -> Iterator[Finding]:
    """Check that the given random bits determine a draw, and that it uses as many bits as its law needs."""
    n, states = 20, RandomStates()
    sources = [_Bits(case.seed, 1000), _Bits(case.seed, 1000), _Bits(case.seed, 1001)]
    first, again, other = (case.drawn(case.prepare(), [0.0] * n, source) for source in sources)
    yield from (("", touched) for touched in states.touched())
    if not np.array_equal(first, again):
        yield "", "the same random bits gave other draws: there is another source of randomness"
    if len(case.points) > 2 and np.array_equal(first, other):
        yield "", "other random bits gave the same draws"
    # A decision that takes b bits has a probability of at least 2^-b.
    for source, drawn in zip(sources, (first, again, other), strict=True):
        needed = -float(np.log2(case.law(0.0)[drawn]).sum())
        if 64 * source.words < needed - 1:
            yield "", f"{n} draws took {64 * source.words} random bits, fewer than the {needed:.4g} they need"
            break


def _check_extreme_bits(case: _Case) -> Iterator[Finding]:
    """Check that draws succeed if the first words are all zeros or all ones, which any words may be."""
    for word, length, beta in itertools.product((0, 2**64 - 1), (1, 2), (case.beta, _COLD)):
        source = _Bits(case.seed, 2000, first=(word,) * length)
        where = f"beta {beta:g}, words of {'ones' if word else 'zeros'} first"
        try:
            draw = case.prepared.draw(beta, source, Limits(seconds=10.0))
            case.index(draw)
        except Exception as error:
            yield where, described(error)


def _check_limits(case: _Case) -> Iterator[Finding]:
    """Check that a draw stopped by a limit raises ``UnfinishedDrawError``, and that later draws are right."""
    source = case.source()
    for name, limits in {
        "cancelled at once": Limits(cancelled=lambda: True),
        "no time": Limits(seconds=1e-9),
    }.items():
        try:
            case.prepare().draw(case.beta, source, limits)
        except UnfinishedDrawError:
            continue
        yield name, "a point was drawn instead of an UnfinishedDrawError"
    prepared = case.prepare()
    after: dict[str, list[int]] = {}
    for i in range(case.few):
        asked, patience = itertools.count(), i % 4
        limits = Limits(cancelled=lambda a=asked, p=patience: next(a) >= p)  # type: ignore[misc]
        try:
            case.index(prepared.draw(case.beta / (1 + i % 2), source, limits))
            where = "after finished draws"
        except UnfinishedDrawError:
            where = f"after draws cancelled at question {patience}"
        after.setdefault(where, []).extend(case.drawn(prepared, [case.beta], source).tolist())
    for where, drawn in after.items():
        yield from ((where, wrong) for wrong in _against_law(case, case.beta, np.array(drawn)))


def _check_purity(case: _Case) -> Iterator[Finding]:
    """Check that preparing and drawing change neither the data nor global random states."""
    problem = case.problem
    features = problem.table.bits if isinstance(problem, BranchingProblem) else problem.X
    arrays = [features, problem.y, problem.lattice.low, problem.lattice.high]
    before, states = [a.copy() for a in arrays], RandomStates()
    prepared = case.prepare()
    for beta in (0.0, case.beta, _COLD) * 3:
        prepared.draw(beta, case.source())
    if changed(arrays, before):
        yield "", "the data or the lattice was changed in place"
    yield from (("", touched) for touched in states.touched())


def _check_exactness(case: _Case) -> Iterator[Finding]:
    """Check that the stated rounding error is valid, useful, and independent of the labels."""
    flipped = _with_labels_exchanged(case.problem)
    other = None if case.oracle.refusals(flipped, case.kind) else case.oracle.prepare(flipped, case.kind)
    for beta in (0.0, case.beta, _COLD):
        stated = case.prepared.draw(beta, case.source()).exactness
        nothing_to_round = beta == 0 or case.uniform
        yield from ((f"beta {beta:g}", w) for w in _wrong_statement(stated, nothing_to_round))
        if other is not None and other.draw(beta, case.source()).exactness != stated:
            yield (
                f"beta {beta:g}",
                "with the labels exchanged another exactness is stated: it tells of the data",
            )


def _wrong_statement(stated: Exactness, nothing_to_round: bool) -> Iterator[str]:
    for name, value in (("log_error", stated.log_error), ("lost_mass", stated.lost_mass)):
        if not (math.isfinite(value) and value >= 0):
            yield f"{name} must be finite and >= 0, got {value}"
        elif value > _USELESS:
            yield f"{name} of {value:.3g} is too large for a claim of pure privacy (at most {_USELESS:g})"
    if stated.log_error < UNIT_ROUNDOFF and not nothing_to_round:
        yield (
            f"log_error of {stated.log_error:.3g} is less than the rounding of a single exponential, "
            f"{UNIT_ROUNDOFF:.3g}: it cannot be"
        )


def _check_moments(case: _Case) -> Iterator[Finding]:
    """Check that partition function and expected loss, where known, are those of the Gibbs law."""
    for beta in (0.0, case.beta, _COLD):
        smallest = int(case.losses.min())
        total = math.fsum(np.exp(-beta * (case.losses - smallest)))
        log_partition = math.log(total) - beta * smallest
        mean = float(gibbs_law(case.losses, beta) @ case.losses)
        stated = {"the draw's log_partition": case.prepared.draw(beta, case.source()).log_partition}
        expected = {"the draw's log_partition": log_partition}
        try:
            moments = case.prepared.moments(beta)
        except UnsupportedProblemError:
            pass  # the sampler may not know them
        else:
            stated |= {"log_partition": moments.log_partition, "expected_loss": moments.expected_loss}
            expected |= {"log_partition": log_partition, "expected_loss": mean}
        for name, value in stated.items():
            if value is not None and not math.isclose(value, expected[name], rel_tol=1e-9, abs_tol=1e-9):
                yield f"beta {beta:g}", f"{name} is {value:.12g}, not {expected[name]:.12g}"


def _check_temperatures(case: _Case) -> Iterator[Finding]:
    """Check that a negative or non-finite beta raises an error."""
    for beta in (-0.1, math.nan, math.inf, -math.inf):
        try:
            case.prepared.draw(beta, case.source())
        except InvalidInputError:
            continue
        yield "", f"a beta of {beta} was accepted"


def _check_copies(case: _Case) -> Iterator[Finding]:
    """Check that a pickled copy of a prepared oracle draws the same points; note if it cannot be pickled."""
    prepared = case.prepare()
    try:
        pickled = pickle.dumps(prepared)
    except Exception as error:
        case.unpicklable = type(error).__name__
        return
    betas = [case.beta] * 10
    ours, theirs = (case.drawn(p, betas, _Bits(case.seed, 3000)) for p in (prepared, pickle.loads(pickled)))
    if not np.array_equal(ours, theirs):
        yield "", "a pickled copy draws differently from the same random bits"


def _checked_refusals(oracle: GibbsOracle, seed: int) -> Iterator[Finding]:
    """Check that refusals are lists of reasons, that the error contains them, and that nothing is built."""

    def check(instance: DrawInstance) -> Iterator[Finding]:
        for law in Law:
            where = f"{instance.name}, {law.name.lower()}"
            yield from ((where, wrong) for wrong in _against_refusal(oracle, instance.problem, law))

    for instance in (*vast_instances(seed), *draw_instances(seed)):
        yield from findings(check, instance)


def _against_refusal(oracle: GibbsOracle, problem: DrawnProblem, law: Law) -> Iterator[str]:
    reasons: Any = oracle.refusals(problem, law)
    if not (isinstance(reasons, list) and all(isinstance(r, str) and r.strip() for r in reasons)):
        yield f"refusals must be a list of reasons in words, got {type(reasons).__name__}"
    if not reasons:
        return
    watched, built = _watched(oracle)
    try:
        watched.prepare(problem, law)
    except UnsupportedProblemError as error:
        missing = [r for r in reasons if r not in str(error)]
        if missing:
            yield "the error does not name every reason"
    else:
        yield "refused by refusals(), but prepared all the same"
    if built:
        yield "something was built for a problem that is refused"


def _watched(oracle: GibbsOracle) -> tuple[GibbsOracle, list[object]]:
    """Return a copy of the oracle that records calls of ``build``."""
    built: list[object] = []
    kind: Any = type(oracle)

    def build(self: GibbsOracle, problem: DrawnProblem, law: Law = Law.GIBBS) -> Any:
        built.append(problem)
        return kind.build(self, problem, law)

    watched = copy.copy(oracle)
    object.__setattr__(watched, "__class__", type(kind.__name__, (kind,), {"build": build}))
    return watched, built


def _with_labels_exchanged(problem: DrawnProblem) -> DrawnProblem:
    if isinstance(problem, BranchingProblem):
        labels = problem.costs.classes - 1 - problem.y
        return type(problem)(problem.table, labels, problem.lattice, problem.costs)
    return problem.with_records(problem.X, -problem.y)


def _other(law: Law) -> Law:
    return Law.PERMUTE_AND_FLIP if law is Law.GIBBS else Law.GIBBS


def _odds(log_odds: float) -> str:
    return f" (odds of 1e{min(log_odds / math.log(10), 1e4):.0f} : 1 against the law)"


_CHECKS: tuple[Callable[[_Case], Iterator[Finding]], ...] = (
    _check_law,
    _check_independence,
    _check_random_source,
    _check_extreme_bits,
    _check_limits,
    _check_purity,
    _check_exactness,
    _check_moments,
    _check_temperatures,
    _check_copies,
)


# --- Instances ----------------------------------------------------------------------------------------


def draw_instances(seed: int) -> Iterator[DrawInstance]:
    """Yield small problems of every kind, with data drawn from ``seed``."""
    rng = np.random.default_rng([seed, 7])
    yield DrawInstance("one good point", _one_good_point())
    signs = IntegerLattice(-1, 1, dimension=4)
    yield DrawInstance("signs, one-hot and numeric", random_halfspace(rng, signs, blocks=(3,), numeric=1))
    ball = IntegerLattice(-2, 2, dimension=3, radius=5**0.5)
    yield DrawInstance("box with radius", random_halfspace(rng, ball, blocks=(3,), numeric=0))
    shifted = IntegerLattice([1, -3, 0], [2, -1, 3], radius=3.5)
    yield DrawInstance("box without the origin", random_halfspace(rng, shifted, blocks=(2,), numeric=1))
    yield DrawInstance("scores of zero", decimal_ties())
    # Losses of up to 2,400: exp(-beta * loss) underflows a double.
    few = random_halfspace(rng, IntegerLattice([-2, 0, -1], [1, 2, 1]), blocks=(2,), numeric=1)
    many = ZeroOneHalfspace(np.repeat(few.X, 60, axis=0), np.repeat(few.y, 60), few.lattice)
    yield DrawInstance("many records", many)
    binary, labels = rng.integers(0, 2, (30, 5)), rng.choice([-1, 1], 30)
    at_most_two = IntegerLattice([0, 0, 1, 0, 0], 1, radius=2**0.5)
    yield DrawInstance(
        "conjunction of at most two features", MonotoneConjunction(binary, labels, at_most_two)
    )
    # Every row has both labels, so the loss is constant.
    X = np.repeat([[6, 0, 1], [0, 6, 2]], 2, axis=0)
    equal = ZeroOneHalfspace(X, [1, -1, 1, -1], IntegerLattice(-1, 1, dimension=3))
    yield DrawInstance("equal losses", equal)
    nothing = IntegerLattice(-1, 0, dimension=2)
    yield DrawInstance("no loss", ZeroOneHalfspace([[3, 0], [0, 3]], [-1, -1], nothing))
    costly = random_halfspace(rng, IntegerLattice(-1, 1, dimension=4), blocks=(3,), numeric=1)
    dear = ZeroOneHalfspace(costly.X, costly.y, costly.lattice, Costs(2, 5))
    yield DrawInstance("unequal costs", dear)
    yield DrawInstance("tree of two levels", _branching(rng, DecisionTree, 2, 2))
    yield DrawInstance("rule list that may not be empty", _branching(rng, RuleList, 1, 3, root_splits=True))
    one = IntegerLattice([1, -1], [1, -1])
    yield DrawInstance("one point", random_halfspace(rng, one, blocks=(2,), numeric=0))
    under = random_halfspace(rng, constrained_lattice(), blocks=(2, 2), numeric=1)
    yield DrawInstance("constraints on points", under)


def _branching(
    rng: np.random.Generator,
    kind: type[BranchingProblem],
    levels: int,
    classes: int,
    *,
    root_splits: bool = False,
) -> BranchingProblem:
    """Return a problem of a few hundred models on two predicates, of which one mostly decides the class."""
    X = rng.integers(0, 2, (30, 2))
    y = np.where(rng.random(30) < 0.7, X[:, 0], rng.integers(0, classes, 30))
    costs = CostMatrix.of_weights(np.arange(1, classes + 1))
    return kind(X, y, kind.domain(2, levels, classes, root_splits=root_splits), costs)


def _one_good_point() -> ZeroOneHalfspace:
    """Return an instance with ten errors at every point except (1, ..., 1); it is most sensitive to beta."""
    lattice = IntegerLattice([-1, -1, -1, -1, 1], [1, 1, 1, 1, 1])
    return ZeroOneHalfspace(np.repeat([[1, 1, 1, 1, -3]], 10, axis=0), np.ones(10), lattice)


def vast_instances(seed: int) -> Iterator[DrawInstance]:
    """Yield problems that are likely to be refused."""
    rng = np.random.default_rng([seed, 8])
    X = rng.integers(-(2**30), 2**30, (50, 60))
    dense = ZeroOneHalfspace(X, rng.choice([-1, 1], 50), IntegerLattice(-4, 4, dimension=60))
    yield DrawInstance("sixty dense features", dense)
    binary = rng.integers(0, 2, (50, 200))
    yield DrawInstance("sets of 200 features", MonotoneConjunction(binary, rng.choice([-1, 1], 50)))

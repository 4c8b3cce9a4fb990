"""Audits of privacy claims: exact for known output laws, otherwise statistical lower bounds on epsilon.

A claim "(epsilon, delta)" about two neighbouring data sets D and D' says that for every set S of outcomes

    P[M(D) in S] <= exp(epsilon) P[M(D') in S] + delta, and the same with D and D' exchanged.

One set S that violates the inequality refutes the claim. ``exact_audit`` finds the worst S from the two laws;
``audit`` runs the mechanism, picks S on one half of the runs and bounds its two probabilities on the other
half. Neither function can prove a claim: a bound below epsilon only says that these neighbours did not refute
it. An audit is evidence only if it rejects a mechanism that is wrong; see
``privopt.mechanisms.audit.registry``.

Neighbours: the relation between the two data sets that are passed in; replace-one in this package.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import joblib  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from privopt.mechanisms.errors import AuditError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon

Floats = NDArray[np.float64]

# An observable outcome. Real-valued outputs are binned first: privacy is closed under post-processing, so a
# function of an output may be audited in its place.
Outcome = int | str | tuple[int, ...]

# Runs per task: many enough to amortise the start of a task, few enough to lose little in an interruption.
_CHUNK = 200
# Rounding may lift computed laws slightly above a tight claim; a claim is refuted only if it is exceeded by
# more than this.
_TOLERANCE = 1e-9


class Sampler(Protocol):
    """A mechanism applied to one fixed data set; with several workers it must be picklable."""

    def __call__(self, runs: int, noise: NoiseSource) -> Sequence[Outcome]:
        """Return outcomes of ``runs`` independent runs; all randomness from ``noise`` or a private source."""


@dataclass(frozen=True)
class Binned:
    """A sampler for a mechanism with real outputs: the number of the bin that each output falls into.

    Attributes:
        draw: returns one real number per run, shape (runs,); for vectors, the projection on the direction in
            which the two data sets differ is the natural one.
        edges: increasing bin edges, chosen before any run.
    """

    draw: Callable[[int, NoiseSource], ArrayLike]
    edges: tuple[float, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return list(np.digitize(np.asarray(self.draw(runs, noise), dtype=np.float64), self.edges).tolist())


@dataclass(frozen=True)
class ExactAudit:
    """Result of an exact audit of a claim by the output laws on two neighbours.

    Attributes:
        epsilon, delta: the claim.
        true_epsilon: the smallest epsilon that holds at ``delta`` for these two laws; may be infinite.
        true_delta: the smallest delta that holds at ``epsilon``.
    """

    epsilon: float
    delta: float
    true_epsilon: float
    true_delta: float

    @property
    def refuted(self) -> bool:
        return self.true_epsilon > self.epsilon * (1 + _TOLERANCE) + _TOLERANCE


@dataclass(frozen=True)
class AuditResult:
    """Result of a statistical audit of a claim by runs on two neighbours.

    Attributes:
        epsilon, delta: the claim.
        lower_bound: with probability at least ``confidence`` over the runs, the smallest epsilon that holds
            at ``delta`` is at least this; >= 0.
        confidence: of ``lower_bound``.
        event: the set of outcomes that was tested.
        exchanged: whether the event is likelier on the second data set.
        hits: how often the event occurred in the held-out runs, first on the data set where it is likelier.
        held_out: number of held-out runs on each data set.
    """

    epsilon: float
    delta: float
    lower_bound: float
    confidence: float
    event: frozenset[Outcome]
    exchanged: bool
    hits: tuple[int, int]
    held_out: int

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted at the stated confidence."""
        return self.lower_bound > self.epsilon


def exact_delta(law: ArrayLike, neighbour: ArrayLike, epsilon: float) -> float:
    """Return the smallest delta at ``epsilon`` >= 0: the larger of the two hockey-stick divergences.

    Args:
        law, neighbour: probabilities of the same outcomes on D and D', shape (k,).
    """
    p, q = _laws(law, neighbour)
    return max(_hockey_stick(p, q, epsilon), _hockey_stick(q, p, epsilon))


def exact_epsilon(law: ArrayLike, neighbour: ArrayLike, delta: float) -> float:
    """Return the smallest epsilon >= 0 at ``delta``; infinite if there is none.

    It is the largest log((P[S] - delta) / Q[S]) over sets S. The maximum is attained by a set of outcomes
    with the largest likelihood ratios, so k prefixes of one sorted list suffice in each direction.
    """
    p, q = _laws(law, neighbour)
    delta = check_delta(delta, zero_allowed=True)
    return max(0.0, _largest_log_ratio(p, q, delta), _largest_log_ratio(q, p, delta))


def exact_audit(law: ArrayLike, neighbour: ArrayLike, epsilon: float, delta: float = 0.0) -> ExactAudit:
    """Audit a claim by the output laws on two neighbours.

    Args:
        law, neighbour: probabilities of the same outcomes on D and D', shape (k,).
        epsilon, delta: the claim.

    Raises:
        AuditError: arrays that are not two laws over the same outcomes.
        PrivacyParameterError: epsilon or delta out of range.
    """
    epsilon = check_epsilon(epsilon)
    worst = exact_epsilon(law, neighbour, delta)
    return ExactAudit(epsilon, delta, worst, exact_delta(law, neighbour, epsilon))


def epsilon_lower_bound(
    hits: ArrayLike, misfires: ArrayLike, runs: int, delta: float, confidence: float
) -> Floats:
    """Return lower bounds on epsilon from counts of fixed events, each alone valid at ``confidence``.

    A bound is log((p - delta) / q), with p the lower Clopper-Pearson bound from ``hits`` and q the upper one
    from ``misfires``, each at half the error probability; -infinity where p <= delta.

    Args:
        hits: how often each event was seen in ``runs`` runs on D, shape (k,).
        misfires: the same on D', shape (k,).
    """
    seen, elsewhere = np.asarray(hits, dtype=np.float64), np.asarray(misfires, dtype=np.float64)
    error = (1 - confidence) / 2
    low = np.where(seen > 0, stats.beta.ppf(error, np.maximum(seen, 1), runs - seen + 1), 0.0)
    room = np.maximum(runs - elsewhere, 1)
    high = np.where(elsewhere < runs, stats.beta.ppf(1 - error, elsewhere + 1, room), 1.0)
    excess = low - delta
    return np.where(excess > 0, np.log(np.where(excess > 0, excess, 1.0) / high), -np.inf)


def audit(
    sampler: Sampler,
    neighbour: Sampler,
    *,
    epsilon: float,
    delta: float = 0.0,
    runs: int = 20_000,
    confidence: float = 0.99,
    workers: int = 1,
    journal: Path | None = None,
    label: str = "",
    insecure_seed: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> AuditResult:
    """Try to refute a claim by running the mechanism on two neighbouring data sets.

    Half of the runs choose an event, by likelihood ratio; the other half bound its probabilities, so that the
    choice does not bias the bound. The bound holds for a number of runs fixed in advance: do not add runs
    until a claim is refuted.

    Args:
        sampler, neighbour: the mechanism on D and on D'.
        epsilon, delta: the claim.
        runs: runs on each data set, both halves together; rounded up to a multiple of 400.
        confidence: of the lower bound, in (0, 1).
        workers: processes that run the mechanism.
        journal: a JSON-lines file to which counts are appended, and from which they are read after an
            interruption; several audits may share one.
        label: key of the counts in the journal: name mechanism, plan and data sets.
        insecure_seed: reproducible noise, for tests only.
        on_progress: called with the numbers of finished and of all chunks of runs.

    Raises:
        AuditError: invalid arguments, or a sampler that does not return one outcome per run.
        PrivacyParameterError: epsilon or delta out of range.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta, zero_allowed=True)
    if not 0 < confidence < 1:
        raise AuditError(f"confidence must be in (0, 1), got {confidence!r}")
    if journal is not None and not label:
        raise AuditError("a journal needs a label that says what is audited, so that counts are not mixed up")
    pairs = -(-check_count(runs, "runs") // (2 * _CHUNK))
    tasks = [_Task(chunk, side) for chunk in range(2 * pairs) for side in (0, 1)]
    book = _Journal(journal, label, insecure_seed)
    counts = book.read(tasks)
    for task, found in _run(
        (sampler, neighbour), [t for t in tasks if t not in counts], workers, insecure_seed
    ):
        counts[task] = found
        book.append(task, found)
        on_progress(len(counts), len(tasks))
    halves = [[_total(counts, half, side) for side in (0, 1)] for half in (0, 1)]
    return _verdict(halves[0], halves[1], pairs * _CHUNK, epsilon, delta, confidence)


@dataclass(frozen=True)
class _Task:
    """One chunk of runs on one of the two data sets; even chunks choose the event, odd chunks test it."""

    chunk: int
    side: int

    def source(self, seed: int | None) -> NoiseSource:
        if seed is None:
            return NoiseSource()
        words = np.random.SeedSequence((seed, self.chunk, self.side)).generate_state(2)
        return NoiseSource(insecure_seed=int(words[0]) << 32 | int(words[1]))


def _count(sampler: Sampler, task: _Task, seed: int | None) -> tuple[_Task, Counter[Outcome]]:
    outcomes = sampler(_CHUNK, task.source(seed))
    if len(outcomes) != _CHUNK:
        raise AuditError(f"a sampler returned {len(outcomes)} outcomes for {_CHUNK} runs")
    return task, Counter(map(_plain, outcomes))


def _plain(outcome: object) -> Outcome:
    """Convert an outcome to plain Python types, so that equality survives JSON."""
    if isinstance(outcome, str):
        return outcome
    if isinstance(outcome, int | np.integer):
        return int(outcome)
    if isinstance(outcome, tuple | list) and all(isinstance(x, int | np.integer) for x in outcome):
        return tuple(int(x) for x in outcome)
    raise AuditError(
        f"outcomes are integers, strings or tuples of integers, got {type(outcome).__name__}; "
        f"put real-valued outputs into bins"
    )


def _run(
    samplers: tuple[Sampler, Sampler], tasks: list[_Task], workers: int, seed: int | None
) -> Iterator[tuple[_Task, Counter[Outcome]]]:
    if workers == 1:
        yield from (_count(samplers[t.side], t, seed) for t in tasks)
        return
    # Each worker draws noise from the kernel, or is seeded by the number of its chunk.
    parallel = joblib.Parallel(n_jobs=check_count(workers, "workers"), return_as="generator_unordered")
    yield from parallel(joblib.delayed(_count)(samplers[t.side], t, seed) for t in tasks)


def _total(counts: Mapping[_Task, Counter[Outcome]], half: int, side: int) -> Counter[Outcome]:
    total: Counter[Outcome] = Counter()
    for task, found in counts.items():
        if task.side == side and task.chunk % 2 == half:
            total.update(found)
    return total


def _verdict(
    choosing: list[Counter[Outcome]],
    testing: list[Counter[Outcome]],
    runs: int,
    epsilon: float,
    delta: float,
    confidence: float,
) -> AuditResult:
    first, second = choosing
    forward, forward_score = _best_event(first, second, runs, delta, confidence)
    backward, backward_score = _best_event(second, first, runs, delta, confidence)
    exchanged = backward_score > forward_score
    event = backward if exchanged else forward
    likelier, other = (testing[1], testing[0]) if exchanged else (testing[0], testing[1])
    hits = sum(likelier[o] for o in event), sum(other[o] for o in event)
    bound = float(epsilon_lower_bound(hits[0], hits[1], runs, delta, confidence))
    return AuditResult(epsilon, delta, max(0.0, bound), confidence, event, exchanged, hits, runs)


def _best_event(
    first: Counter[Outcome], second: Counter[Outcome], runs: int, delta: float, confidence: float
) -> tuple[frozenset[Outcome], float]:
    """Return the set with the largest lower bound among the superlevel sets of the likelihood ratio."""
    outcomes = list({**first, **second})
    a = np.array([first[o] for o in outcomes])
    b = np.array([second[o] for o in outcomes])
    order = np.argsort((b + 0.5) / (a + 0.5), kind="stable")
    scores = epsilon_lower_bound(np.cumsum(a[order]), np.cumsum(b[order]), runs, delta, confidence)
    best = int(np.argmax(scores))
    return frozenset(outcomes[i] for i in order[: best + 1].tolist()), float(scores[best])


_JOURNAL = b'{"label": '  # prefix of a journal line


class _Journal:
    """Append-only file of counts; a damaged line loses only its own runs."""

    def __init__(self, path: Path | None, label: str, seed: int | None) -> None:
        if path is not None and path.exists():
            _check_journal(path)
        self.path = path
        self.key = {"label": label, "seed": seed, "runs": _CHUNK}

    def read(self, tasks: Sequence[_Task]) -> dict[_Task, Counter[Outcome]]:
        wanted = set(tasks)
        known: dict[_Task, Counter[Outcome]] = {}
        if self.path is None or not self.path.exists():
            return known
        for line in self.path.read_text().splitlines():
            entry = self._entry(line)
            if entry is not None and entry[0] in wanted:
                known.setdefault(*entry)
        return known

    def _entry(self, line: str) -> tuple[_Task, Counter[Outcome]] | None:
        try:
            record: dict[str, Any] = json.loads(line)
            if any(record[name] != value for name, value in self.key.items()):
                return None
            counts: Counter[Outcome] = Counter({_plain(o): int(n) for o, n in record["counts"]})
            complete = sum(counts.values()) == _CHUNK and min(counts.values()) > 0
            return (_Task(int(record["chunk"]), int(record["side"])), counts) if complete else None
        except (ValueError, KeyError, TypeError, AuditError):
            return None  # cut off by an interruption

    def append(self, task: _Task, counts: Counter[Outcome]) -> None:
        if self.path is None:
            return
        record = {**self.key, "chunk": task.chunk, "side": task.side, "counts": list(counts.items())}
        with self.path.open("a+b") as file:
            # A partial line must not run into this one.
            torn = file.tell() > 0 and _last_byte(self.path) != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(record).encode() + b"\n")


def _check_journal(path: Path) -> None:
    """Raise AuditError for a file that is not a journal; single lines of a journal may be damaged."""
    if not path.is_file():
        raise AuditError(f"journal {path}: not a regular file")
    with path.open("rb") as file:
        start = file.read(len(_JOURNAL))
    if not _JOURNAL.startswith(start):
        raise AuditError(f"journal {path}: not a journal of audits, and left unchanged; name another file")


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1)


def _laws(law: ArrayLike, neighbour: ArrayLike) -> tuple[Floats, Floats]:
    p, q = np.asarray(law, dtype=np.float64), np.asarray(neighbour, dtype=np.float64)
    if p.ndim != 1 or p.shape != q.shape or p.size == 0:
        raise AuditError(f"two laws over the same outcomes are needed, got shapes {p.shape} and {q.shape}")
    for x in (p, q):
        if not (np.all(x >= 0) and abs(math.fsum(x) - 1) <= _TOLERANCE):
            raise AuditError("a law holds probabilities >= 0 that sum to 1")
    return p, q


def _hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return math.fsum(np.maximum(0.0, p - math.exp(epsilon) * q))


def _largest_log_ratio(p: Floats, q: Floats, delta: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(p > 0, p / q, 0.0), kind="stable")
        excess, other = np.cumsum(p[order]) - delta, np.cumsum(q[order])
        # The last prefix is the whole space, with log(1 - delta) <= 0 up to rounding.
        ratios = np.where(excess > 0, np.log(excess / other), -np.inf)[:-1]
    return float(np.max(ratios, initial=-np.inf))

"""Plans of private selection: the budget of each run, the number of runs, and the spend of the choice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.events import SelectedGaussian
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon, largest_below
from privopt.mechanisms.privacy.run_counts import (
    RunClaim,
    RunCounts,
    run_delta,
    selection_delta,
    selection_epsilon,
)
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.tuning.scores import NoisyMean

Notion = Literal["pure", "gdp", "approximate"]
Made = TypeVar("Made")

# From this number of candidates on, a random number of runs is better than running all candidates, taking
# into account how often the best candidate is not run.
_FEWEST_DRAWN = 4
# Among distributions of the number of runs that run the best candidate with the same probability, this shape
# needs the least noise, up to 1%, for 4 to 128 candidates at epsilon 1.
_SHAPE = 0.5
# Relative allowances for rounding in conversions between mu and (epsilon, delta).
_ROUNDING, _DELTA_ROUNDING = 1e-9, 1e-5


@dataclass(frozen=True)
class SelectionPlan:
    """A choice of the best of several candidates by noisy scores on held-out records.

    A run gives a candidate, its model and a noisy score: the model is fitted to one part of the records, and
    the score is a mean over the other part. The parts are drawn at random, independently of the records, and
    stay hidden.

    Privacy, for data sets that differ by replacing one record; the number of records is public. The replaced
    record is in one of the parts. If it is in the first part, only the model of a run changes; its score is
    computed from this model and unchanged records. If it is in the second part, only the score changes. So a
    run costs the larger of the two costs, not their sum (parallel composition), and so does every choice
    among runs. The order of rows does not matter: a permutation that aligns two neighbours maps the uniform
    distribution of the parts to itself.

    If ``law`` is None, every candidate is run once, and the k runs compose: mu-GDP runs to sqrt(k) mu-GDP,
    other runs by adding their epsilons and deltas. Otherwise, a random number of runs is made, each of a
    candidate drawn at random, and only the best run is released (``run_counts`` has the proof). The number of
    runs must stay hidden. Running time reveals it, and is outside the guarantee.

    Attributes:
        candidates: the number of candidates, >= 2.
        law: the distribution of the number of runs; None: each candidate is run once.
        notion: the notion of privacy of the runs: "pure", "gdp" or "approximate".
        run_epsilon, run_delta: the budget for which every run is planned.
        run_mu: the level of every run if the notion is "gdp", otherwise None.
        score: the noise of the scores.
        spend: the spend of the choice, including its model and its score.
    """

    name: ClassVar[str] = "private-selection"
    noised: ClassVar[str] = "the model of each run, by its own mechanism; the sum of its scores of records"

    candidates: int
    law: RunCounts | None
    notion: Notion
    run_epsilon: float
    run_delta: float
    run_mu: float | None
    score: NoisyMean
    spend: PrivacySpend

    @classmethod
    def plan(cls, candidates: int, *, epsilon: float, delta: float, notion: Notion) -> Self:
        """Divide a budget among runs whose notion of privacy is ``notion``.

        Raises:
            PrivacyParameterError: epsilon or delta out of range, fewer than two candidates, or thousands.
        """
        epsilon, delta = check_epsilon(epsilon), check_delta(delta, zero_allowed=True)
        if check_count(candidates, "candidates") < 2:
            raise PrivacyParameterError("one candidate needs no search: fit it")
        if delta == 0 and notion != "pure":
            raise PrivacyParameterError("delta = 0: a choice among runs that have a delta needs one > 0")
        make = cls._of_all if candidates < _FEWEST_DRAWN else cls._of_random_number
        return make(candidates, epsilon, delta, notion)

    @classmethod
    def _of_all(cls, candidates: int, epsilon: float, delta: float, notion: Notion) -> Self:
        if notion == "pure":
            each = epsilon / candidates * (1 - 2 * _ROUNDING)
            pair, mu, score = (each, 0.0), None, NoisyMean(each, False)
        else:
            level = gaussian_mu(epsilon, delta) / math.sqrt(candidates) * (1 - 3 * _ROUNDING)
            score = NoisyMean(level, True)
            mu = level * (1 + _ROUNDING) if notion == "gdp" else None
            pair = (epsilon / candidates * (1 - 2 * _ROUNDING), delta / candidates)
            if mu is not None:
                pair = (gaussian_epsilon(level, delta), delta)
        note = f"all of {candidates} candidates run"
        if mu is not None:
            spend = PrivacySpend.gdp(mu * math.sqrt(candidates), delta, cls.name, note=note)
        else:
            spend = _spend(epsilon, 0.0 if notion == "pure" else delta, note)
        return cls(candidates, None, notion, *pair, mu, score, spend)

    @classmethod
    def _of_random_number(cls, candidates: int, epsilon: float, delta: float, notion: Notion) -> Self:
        law = RunCounts(float(candidates), _SHAPE)
        _ = law.tail  # this refuses too many runs now, instead of after the booking
        most = 0.0 if notion == "pure" else run_delta(delta, law)
        given = most * (1 - _DELTA_ROUNDING)  # the delta of a run; below ``most``, as its level is rounded

        def claim(run_epsilon: float) -> RunClaim:
            if notion != "gdp":
                return RunClaim(run_epsilon * (1 + _ROUNDING), most)
            return RunClaim(run_epsilon, most, gaussian_mu(run_epsilon, given) * (1 + _ROUNDING))

        run = largest_below(lambda e: selection_epsilon(claim(e), law), epsilon, start=0.75 * epsilon)
        mu = claim(run).mu
        if selection_delta(claim(run), law) > delta or (mu is not None and gaussian_delta(mu, run) > most):
            raise PrivacyParameterError(
                f"delta = {delta:g} is too small to choose among Gaussian releases: take a larger one"
            )
        score = NoisyMean(run, False) if notion == "pure" else NoisyMean(gaussian_mu(run, given), True)
        note = f"best of a random number of runs of {candidates} candidates, {law.mean:g} on average"
        spend = _spend(epsilon, 0.0 if notion == "pure" else delta, note)
        if mu is not None:
            spend = replace(spend, event=SelectedGaussian(epsilon, delta, mu, law.mean, law.shape))
        return cls(candidates, law, notion, run, given, mu, score, spend)

    def covers(self, spend: PrivacySpend) -> bool:
        """Return whether the plan covers a run with this spend."""
        if spend.claim == "printed: refuted":
            return False
        if self.run_mu is not None:
            return spend.notion == "gdp" and spend.level is not None and spend.level <= self.run_mu
        if self.notion == "pure" and spend.notion != "pure":
            return False
        return spend.epsilon <= self.run_epsilon * (1 + _ROUNDING) and spend.delta <= self.run_delta

    def runs(self, source: NoiseSource) -> Iterator[int]:
        """Yield the candidate of every run."""
        if self.law is None:
            yield from range(self.candidates)
            return
        for _ in range(self.law.draw(source)):
            yield int(source.integers(self.candidates)[0])


def _spend(epsilon: float, delta: float, note: str) -> PrivacySpend:
    if delta == 0:
        return PrivacySpend.pure(epsilon, SelectionPlan.name, note=note)
    return PrivacySpend.approximate(epsilon, delta, SelectionPlan.name, note=note)


class Run(NamedTuple, Generic[Made]):
    """The outcome of a run: what it made and its score; None and minus infinity if it failed."""

    made: Made | None
    score: float


class BestRun(Generic[Made]):
    """The best run so far; ties are broken uniformly at random."""

    def __init__(self, source: NoiseSource) -> None:
        self._source, self._equal = source, 0
        self.best: Run[Made] | None = None

    def take(self, run: Run[Made]) -> None:
        """Keep a run if it is better than the best one so far."""
        if self.best is None or run.score > self.best.score:
            self.best, self._equal = run, 1
        elif run.score == self.best.score:
            self._equal += 1
            if int(self._source.integers(self._equal)[0]) == 0:
                self.best = run

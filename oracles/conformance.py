"""Common parts of the conformance kits: failures, reports, purity checks, small data sets.

A kit is a list of checks. Each check yields the faults of an oracle on one instance.
"""

from __future__ import annotations

import random
import re
import sysconfig
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privopt.oracles.errors import ConformanceError, UnsupportedProblemError
from privopt.problems.discrete.conjunction import MonotoneConjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.lipschitz import LipschitzProblem
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.lattice import ConstrainedLattice

Case = TypeVar("Case")
Finding = tuple[str, str]  # the circumstances (perturbation, limits, or ""), and the fault
# This type includes disjunctions, because their class is a subclass of MonotoneConjunction.
DataProblem = ZeroOneHalfspace | MonotoneConjunction | LipschitzProblem


# Consecutive numbers, which ``Failure.kind`` replaces together; not line numbers, such as in FILE.py:12.
_NUMBER = r"(?<!\.py:)(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:[,\s]+{_NUMBER})*")


@dataclass(frozen=True)
class Failure:
    """A failed check.

    Attributes:
        instance: name of the instance.
        check: name of the check, or "build".
        reason: the fault, or the exception and its location.
        where: the perturbation and the circumstances, or "".
    """

    instance: str
    check: str
    reason: str
    where: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """A key shared by failures that differ only in the instance, the perturbation or numbers."""
        return self.check, _NUMBERS.sub("#", self.reason)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.instance, self.check, self.where, self.reason) if part)


@dataclass(frozen=True)
class ConformanceReport:
    """The result of a conformance kit.

    Attributes:
        oracle: name of the oracle.
        passed: "instance: check" for every check that passed.
        skipped: checks that could not be made, each with the reason, such as the refusal of an instance.
        failures: all failed checks; empty in a report that ``check_oracle`` returns.
        unseen: kinds of faults that these checks cannot detect.
    """

    oracle: str
    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    failures: tuple[Failure, ...]
    unseen: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a line with an example for each kind of failure, and a line for each reason of a skip."""
        kinds: dict[tuple[str, str], list[Failure]] = {}
        for failure in self.failures:
            kinds.setdefault(failure.kind, []).append(failure)
        lines = [f"{self.oracle}: {len(self.passed)} checks passed, distinct failures: {len(kinds)}"]
        lines += [f"  FAILED {_example(alike)}" for alike in kinds.values()]
        reasons = Counter(_REFUSED.sub("", skipped) for skipped in self.skipped)
        lines += [f"  skipped {reason}{_times(count)}" for reason, count in reasons.items()]
        lines += [f"  not seen: {s}" for s in self.unseen]
        return "\n".join(lines)


# The text before the reason of a refusal: the name of the instance, and what the oracle cannot do with it.
_REFUSED = re.compile(r"^.*? cannot .*?: ")


def _times(count: int) -> str:
    return f" [{count} instances]" if count > 1 else ""


def _example(alike: list[Failure]) -> str:
    """Describe the first failure of a kind, and count the others."""
    if len(alike) == 1:
        return str(alike[0])
    instances = len({failure.instance for failure in alike})
    return f"{alike[0]} [{len(alike) - 1} more of its kind, instances: {instances}]"


class Tally:
    """Collects the results of the checks of an oracle."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.skipped: list[str] = []
        self.failures: list[Failure] = []

    def built(self, instance: str, build: Callable[[], Case]) -> list[Case]:
        """Return a list with the case of an instance, or an empty list if building it is refused or fails."""
        try:
            return [build()]
        except UnsupportedProblemError as refusal:
            self.skipped.append(f"{instance}: {refusal}")
        except Exception as error:
            self.failures.append(Failure(instance, "build", described(error)))
        return []

    def check_all(
        self, instance: str, checks: Iterable[Callable[[Case], Iterator[Finding]]], case: Case
    ) -> None:
        for check in checks:
            self.note(instance, name_of(check), findings(check, case))

    def note(self, instance: str, check: str, found: Iterable[Finding]) -> None:
        failures = [Failure(instance, check, reason, where) for where, reason in found]
        self.failures += failures
        self.passed += [] if failures else [f"{instance}: {check}"]

    def verdict(self, oracle: str, unseen: tuple[str, ...] = ()) -> ConformanceReport:
        return verdict(
            ConformanceReport(oracle, tuple(self.passed), tuple(self.skipped), tuple(self.failures), unseen)
        )


def verdict(report: ConformanceReport) -> ConformanceReport:
    """Return the report if something was checked and nothing failed.

    Raises:
        ConformanceError: a check failed, or nothing was checked.
    """
    if not report.passed and not report.failures:
        skipped = report.skipped
        refused = f"all {len(skipped)} instances were refused" if skipped else "no seeds were given"
        first = f"; the first: {skipped[0]}" if skipped else ""
        raise ConformanceError(f"{report.oracle}: {refused}, so nothing was checked{first}")
    if report.failures:
        raise ConformanceError(str(report))
    return report


def name_of(check: Callable[..., object]) -> str:
    return check.__name__.removeprefix("_check_").replace("_", " ")


def findings(check: Callable[[Case], Iterator[Finding]], case: Case) -> list[Finding]:
    """Return the faults found by one check; an exception counts as a fault."""
    found: list[Finding] = []
    try:
        found.extend(check(case))
    except Exception as error:
        found.append(("", described(error)))
    return found


def described(error: Exception) -> str:
    """Describe an exception and its location in the oracle author's file."""
    return f"raised {type(error).__name__}: {error}{_location(error)}"


def _location(error: Exception) -> str:
    """Return " at FILE.py:LINE" for the innermost line outside privopt, and outside libraries if possible."""
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    outside = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] != "privopt"
    ]
    own = [(file, line) for file, line in outside if not any(file.is_relative_to(lib) for lib in libraries)]
    return "".join(f" at {file.name}:{line}" for file, line in (own or outside)[-1:])


def changed(arrays: Sequence[NDArray[Any]], before: Sequence[NDArray[Any]]) -> bool:
    """Return whether arrays differ from earlier copies; if so, restore them for later checks."""
    if not any(not np.array_equal(a, b) for a, b in zip(arrays, before, strict=True)):
        return False
    for a, b in zip(arrays, before, strict=True):
        if a.flags.writeable:
            a[...] = b
    return True


class RandomStates:
    """A snapshot of the global random states of Python and NumPy."""

    def __init__(self) -> None:
        self._numpy, self._python = np.random.get_state(), random.getstate()  # noqa: NPY002

    def touched(self) -> Iterator[str]:
        """Yield a description of each state that has changed since the snapshot."""
        if self._python != random.getstate():
            yield "the global random state of Python was touched"
        now = np.random.get_state()  # noqa: NPY002
        if any(not np.array_equal(a, b) for a, b in zip(self._numpy, now, strict=True)):
            yield "the global random state of numpy was touched"


def constrained_lattice() -> ConstrainedLattice:
    """Return a lattice with public constraints of several kinds, which is neither a ball nor a box."""
    columns = (PointColumn("a", 0, 2, ordered=2), PointColumn("b", 2, 4), PointColumn("c", 4, 5))
    constraints = ["at most 2 columns", "monotone(a) = rising", "if b then a", "total in [-1, 1]"]
    return ConstrainedLattice(IntegerLattice(-1, 1, dimension=5, radius=2.0), columns, constraints)


def random_halfspace(
    rng: Generator, lattice: IntegerLattice, *, blocks: tuple[int, ...], numeric: int
) -> ZeroOneHalfspace:
    """Draw a problem with one-hot blocks of the given sizes, then integer columns, and noisy labels."""
    n = 40
    columns = [np.eye(size, dtype=np.int64)[rng.integers(0, size, n)] * 6 for size in blocks]
    columns.append(rng.integers(-4, 7, (n, numeric)))
    X = np.hstack(columns)
    rule = rng.integers(lattice.low, lattice.high + 1)
    flipped = rng.random(n) < 0.15
    y = np.where((X @ rule > 0) ^ flipped, 1, -1)
    return ZeroOneHalfspace(X, y, lattice)


def decimal_ties() -> ZeroOneHalfspace:
    """Return a problem whose only perfect w is (1, 1, -1), with scores 1 + 2 - 3 = 0, which predict -1.

    With features in tenths the score would be 0.1 + 0.2 - 0.3, which is > 0 in floating point.
    """
    X = np.repeat([[1, 2, 3], [2, 4, 6], [2, 4, 5]], 5, axis=0)
    y = np.repeat([-1, -1, 1], 5)
    return ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=3))

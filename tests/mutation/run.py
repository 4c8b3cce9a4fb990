"""Mutation testing of what privacy rests on: ``make mutants``; ``python -m tests.mutation.run --help``.

A module is changed in one place at a time, and the tests that reach the place have to notice. Two kinds of
mutants are run: those of named.toml, faults that tests once let live, and samples of the modules that
--module names, drawn with a fixed seed. Those in equivalent.toml were judged to change nothing that matters.

Which tests reach what is recorded by running them once (.mutation/reached); results are kept in
.mutation/results.jsonl, where an interrupted run goes on. A mutant is run again when its function changes,
and one that lived when its tests do. With NUMBA_DISABLE_JIT=1 compiled functions are changed too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.inject import preload, start
from tests.mutation.mutate import INTERPRETED, ROOT, Mutant, digest, located, modules, mutants
from tests.mutation.reach import Patience, Reached, files_of_tests, kept, likeliest_first, reached_by
from tests.mutation.warm import Warm, forked, in_forks

HERE = Path(__file__).parent
RESULTS = ROOT / ".mutation" / "results.jsonl"
# What pytest says when a test does not exist, or none: a mutant may change how they are called.
_NOT_FOUND = (4, 5)
# Mutants of a module in a sample: more of those that everything else rests on.
_SAMPLE, _MORE = 4, {"mechanisms/privacy/": 8}


@dataclass(frozen=True)
class Job:
    """A mutant and its tests; with none given those that reach it."""

    mutant: Mutant
    tests: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The test files that concern it."""
        return tuple(dict.fromkeys(t.partition("::")[0] for t in self.tests)) or tuple(
            files_of_tests(self.mutant.path)
        )

    @property
    def tests_key(self) -> str:
        """Changes with the tests."""
        return _hash(*self.tests, *(digest(file) for file in self.files))

    def chosen(self, names: Iterable[str], reached: Reached, effort: float) -> list[str]:
        """The names of its tests, those first that are likely to fail."""
        if not self.tests:
            return likeliest_first(self.mutant, names, reached, effort)
        asked = [n for n in names if any(n == t or n.startswith((f"{t}[", f"{t}::")) for t in self.tests)]
        first = likeliest_first(self.mutant, asked, reached, effort)
        return list(dict.fromkeys([*first, *asked]))


def main() -> int:
    given = _arguments()
    equivalent = {one["name"] for one in _toml("equivalent.toml")["mutant"]}
    jobs = [] if given.no_named or INTERPRETED else named_jobs()
    jobs = [job for job in [*jobs, *sampled(given)] if given.only in job.mutant.name]
    if given.list:
        print("\n".join(f"{job.mutant.path}:{job.mutant.line} {job.mutant.name}" for job in jobs))
        return 0
    asked = [job for job in jobs if job.tests or job.mutant.change not in equivalent]
    if given.report is None:
        carry_out(asked, given.workers, given.effort)
    found = known(asked, whatever_tests=given.report is not None)
    rows = tally([job for job in jobs if job not in asked or job.mutant.key in found], found, equivalent)
    alive = [job for job in asked if found.get(job.mutant.key) == "alive"]
    if given.report is None:
        show(rows, alive)
    else:
        given.report.write_text(page(rows, alive, given), "utf-8")
    return 1 if share(rows) < 0.95 or any(job.tests for job in alive) else 0


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    of = words.add_argument
    of("--module", action="append", default=[], help="sample modules whose path starts so (again for more)")
    of("--sample", type=int, default=_SAMPLE, help=f"mutants of each module (default {_SAMPLE}; 0: all)")
    of("--seed", type=int, default=1, help="of the sample (default 1)")
    of("--only", default="", help="only mutants whose name contains this")
    of("--no-named", action="store_true", help="leave out the mutants of named.toml")
    of(
        "--effort",
        type=float,
        default=60.0,
        help="seconds of tests for each, and to record a test file (default 60)",
    )
    of("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes (default 2)")
    of("--list", action="store_true", help="print the mutants and run nothing")
    of("--report", type=Path, help="run nothing; write a page of what became of the mutants")
    return words.parse_args()


def sampled(given: argparse.Namespace) -> list[Job]:
    """A sample of every module that is asked for."""
    jobs = []
    for path in modules():
        if path.startswith(tuple(given.module)) and not path.endswith("__init__.py"):
            more = next((n for folder, n in _MORE.items() if path.startswith(folder)), 0)
            size = max(given.sample, more if given.sample == _SAMPLE else 0)
            jobs += [Job(m) for m in sample(path, size, given.seed)]
    return jobs


def named_jobs() -> list[Job]:
    """The mutants of named.toml, with the tests that killed them."""
    return [
        Job(located(one["where"], one["old"], one["new"], name), tuple(one["tests"]))
        for name, one in _toml("named.toml").items()
    ]


def sample(path: str, size: int, seed: int) -> list[Mutant]:
    """Some mutants of a module: those whose names hash lowest, so that edits replace but a few."""
    every = mutants(path)
    chosen = sorted(every, key=lambda m: _hash(str(seed), m.change))
    return sorted(chosen[: size or None], key=lambda m: m.start)


def known(jobs: Sequence[Job], whatever_tests: bool = False) -> dict[str, str]:
    """Outcomes of jobs that were run before, by key; of mutants that lived, if the tests are the same."""
    records: dict[str, tuple[str, str]] = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            try:
                record = json.loads(line)
                records[record["key"]] = record["fate"], record["tests"]
            except (ValueError, KeyError):
                continue  # torn by an interruption
    found = {}
    for job in jobs:
        outcome, tests = records.get(job.mutant.key, ("", ""))
        if outcome == "killed" or (outcome and (whatever_tests or tests == job.tests_key)):
            found[job.mutant.key] = outcome
    return found


def carry_out(jobs: Sequence[Job], workers: int, effort: float) -> None:
    """Run the jobs of which no result is kept, and keep theirs.

    Those inside functions are run in forks of one warm process, others start afresh.
    """
    found = known(jobs)
    todo = {job.mutant: job for job in jobs if job.mutant.key not in found}
    if not todo:
        return
    files = sorted({file for job in todo.values() for file in job.files})
    preload()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        RESULTS.parent.mkdir(exist_ok=True)
        warm = forked(lambda: _warm(todo, files, workers, effort), quiet=False)
        if os.waitstatus_to_exitcode(os.waitpid(warm, 0)[1]):
            raise SystemExit("the warm process failed")
        found = known(jobs)
        reached = reached_by(files)
        cold = [job for job in todo.values() if job.mutant.key not in found]
        print(f"{len(cold)} of constants, defaults and classes start afresh", flush=True)

        def launch(job: Job) -> int:
            tests = job.chosen(reached, reached, effort) or list(job.tests or job.files)
            return start(job.mutant, tests, Patience(reached))

        for job, code in in_forks(iter(cold), launch, workers, lambda _: 600 + 10 * effort):
            if code in _NOT_FOUND:
                code = os.waitstatus_to_exitcode(os.waitpid(start(job.mutant, list(job.files)), 0)[1])
            _note(job, "alive" if code == 0 else "killed")


def _warm(todo: dict[Mutant, Job], files: Sequence[str], workers: int, effort: float) -> int:
    import pytest

    def choose(names: Sequence[str]) -> tuple[list[tuple[Mutant, list[str]]], Reached]:
        reached = reached_by(files)
        chosen = []
        for mutant, job in todo.items():
            if mutant.function is not None:
                tests = job.chosen(names, reached, effort)
                if tests:
                    chosen.append((mutant, tests))
                else:
                    _note(job, "unreached")
        print(f"{len(chosen)} mutants of functions", flush=True)
        return chosen, reached

    def tell(mutant: Mutant, lived: bool | None) -> None:
        if lived is not None:
            _note(todo[mutant], "alive" if lived else "killed")

    sampled = {file for job in todo.values() if not job.tests for file in job.files}
    unknown = [file for file in files if file in sampled and not kept(file).exists()]
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
    return int(
        pytest.main([*options, *files], plugins=[Warm(unknown, choose, tell, workers, patience=effort)])
    )


def _note(job: Job, outcome: str) -> None:
    record = {"key": job.mutant.key, "tests": job.tests_key, "fate": outcome, "name": job.mutant.name}
    with RESULTS.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(f"{outcome:9} {job.mutant.name}", flush=True)


def tally(jobs: Sequence[Job], found: dict[str, str], equivalent: set[str]) -> dict[str, Counter[str]]:
    """How many of each folder were killed, are equivalent, or live; named ones come first."""
    rows: dict[str, Counter[str]] = {}
    for job in jobs:
        row = rows.setdefault("named.toml" if job.tests else str(Path(job.mutant.path).parent), Counter())
        judged = not job.tests and job.mutant.change in equivalent
        row["equivalent" if judged else found.get(job.mutant.key, "not run")] += 1
    return rows


def share(rows: dict[str, Counter[str]]) -> float:
    """The killed among those that are not equivalent."""
    total: Counter[str] = sum(rows.values(), Counter())
    return total["killed"] / max(1, total["killed"] + total["alive"])


# Unreached: no test does within the effort, so that nothing is known.
_FATES = ("killed", "equivalent", "alive", "unreached")


def show(rows: dict[str, Counter[str]], alive: Sequence[Job]) -> None:
    """Print folder, made, killed, equivalent, alive; then the living."""
    print(f"\n{'folder':36}" + "".join(f"{word:>11}" for word in ("made", *_FATES)))
    for folder, row in [*rows.items(), ("all", sum(rows.values(), Counter()))]:
        print(f"{folder:36}" + "".join(f"{n:11}" for n in (row.total(), *(row[f] for f in _FATES))))
    for job in alive:
        print(f"alive: {job.mutant.path}:{job.mutant.line}  {job.mutant.name}")
    print(f"{share(rows):.1%} of the mutants that are not equivalent were killed")


def page(rows: dict[str, Counter[str]], alive: Sequence[Job], given: argparse.Namespace) -> str:
    """The page of the documentation, of what is known of the tree as it stands."""
    asked = "".join(f" --module {name}" for name in given.module)
    lines = [
        "# Mutation testing",
        "",
        "What happens when the source is changed in one place. A change is *killed* by a failing test, "
        "judged *equivalent* for a reason that `tests/mutation/equivalent.toml` states, "
        "*alive* (no test fails), or *unreached* (no test executed it in the time given). "
        "The first line is the list of faults that tests once let live (`tests/mutation/named.toml`); "
        "the others are samples, "
        f"{given.sample} of every module ({_MORE['mechanisms/privacy/']} in mechanisms/privacy), drawn with "
        f"seed {given.seed}: "
        f"`python -m tests.mutation.run{asked} --seed {given.seed}`.",
        "",
        "| folder | made | killed | equivalent | alive | unreached |",
        "|---|---|---|---|---|---|",
    ]
    for folder, row in [*rows.items(), ("**all**", sum(rows.values(), Counter()))]:
        cells = " | ".join(str(n) for n in (row.total(), *(row[f] for f in _FATES)))
        lines.append(f"| {folder} | {cells} |")
    lines += ["", f"{share(rows):.1%} of those that are not equivalent were killed. Alive:", ""]
    lines += [f"- `{job.mutant.name}`" for job in alive] or ["none of them."]
    return "\n".join(lines) + "\n"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _toml(name: str) -> Any:
    return tomllib.loads((HERE / name).read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())

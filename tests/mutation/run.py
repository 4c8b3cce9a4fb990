"""Mutation testing of what privacy rests on: ``make mutants``; ``python -m tests.mutation.run --help``.

Every module of ``modules.toml`` is changed in one place at a time, and the tests named there have to notice.
A sample of its mutants, drawn with a fixed seed, is run; so are all of ``named.toml``, faults that tests once
let live. Those in ``equivalent.toml`` were judged to change nothing that matters, with the reason.

Results are kept in .mutation/results.jsonl, where an interrupted run goes on. A mutant is run again when its
module changes, and one that lived when its tests do.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.inject import preload, start
from tests.mutation.mutate import ROOT, Mutant, digest, located, mutants
from tests.mutation.reach import Patience, Reached, likeliest_first, reached_by

HERE = Path(__file__).parent
RESULTS = ROOT / ".mutation" / "results.jsonl"
# Tests that take so many seconds hang.
_LIMIT = 600.0
# What pytest says when a test does not exist, or none: a mutant may change how they are called.
_NOT_FOUND = (4, 5)


@dataclass(frozen=True)
class Job:
    """A mutant and its tests."""

    mutant: Mutant
    tests: tuple[str, ...]

    @property
    def key(self) -> str:
        """Changes with the module and the mutant."""
        return _hash(digest(self.mutant.path), self.mutant.name, str((self.mutant.start, self.mutant.new)))

    @property
    def is_named(self) -> bool:
        return not self.mutant.name.startswith(self.mutant.path)

    @property
    def tests_key(self) -> str:
        """Changes with the tests."""
        files = dict.fromkeys(t.partition("::")[0] for t in self.tests if not t.startswith("-"))
        return _hash(*self.tests, *(digest(file) for file in files))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    words.add_argument("--sample", type=int, default=15, help="mutants of each module (default 15; 0: all)")
    words.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    words.add_argument("--module", default="", help="only modules whose path contains this")
    words.add_argument("--named", action="store_true", help="only the mutants of named.toml")
    words.add_argument(
        "--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes (default 2)"
    )
    words.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    words.add_argument(
        "--report", type=Path, help="run nothing; write a page of what became of the mutants run so far"
    )
    given = words.parse_args()
    modules: dict[str, list[str]] = _toml("modules.toml")
    jobs = [
        Job(located(one["where"], one["old"], one["new"], one["name"]), tuple(one["tests"]))
        for one in _toml("named.toml")["mutant"]
    ]
    jobs = [job for job in jobs if given.module in job.mutant.path]
    if given.report is not None:
        everything = [Job(m, tuple(tests)) for path, tests in modules.items() for m in mutants(path)]
        return report([*jobs, *everything], given.report)
    if not given.named:
        for path, tests in modules.items():
            if given.module in path:
                jobs += [Job(m, tuple(tests)) for m in sample(path, given.sample, given.seed)]
    if given.list:
        print("\n".join(f"{job.mutant.line:4} {job.mutant.name}" for job in jobs))
        return 0
    equivalent = {one["name"]: one["reason"] for one in _toml("equivalent.toml").get("mutant", [])}
    jobs = [job for job in jobs if job.mutant.change not in equivalent]
    found = carry_out(jobs, given.workers)
    return table(jobs, found, equivalent, given)


def sample(path: str, size: int, seed: int) -> list[Mutant]:
    """Some mutants of a module: those whose names hash lowest, so that an edit replaces but a few."""
    every = mutants(path)
    chosen = sorted(every, key=lambda m: _hash(str(seed), m.name))
    return sorted(chosen[: size or None], key=lambda m: m.start)


def known(jobs: Sequence[Job], whatever_tests: bool = False) -> dict[str, str]:
    """What became of jobs that were run before, by key; of what lived, if its tests are the same."""
    kept: dict[str, tuple[str, str]] = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            try:
                record = json.loads(line)
                kept[record["key"]] = record["fate"], record["tests"]
            except (ValueError, KeyError):
                continue  # torn by an interruption
    found = {}
    for job in jobs:
        outcome, tests = kept.get(job.key, ("", ""))
        if outcome == "killed" or (outcome and (whatever_tests or tests == job.tests_key)):
            found[job.key] = outcome
    return found


def carry_out(jobs: Sequence[Job], workers: int) -> dict[str, str]:
    """What became of each job, by key; from the file of results where that is known."""
    found = known(jobs)
    todo = [job for job in jobs if job.key not in found]
    RESULTS.parent.mkdir(exist_ok=True)
    # Those of the list know who kills them.
    reached = reached_by({test for job in todo if not job.is_named for test in job.tests})
    context = multiprocessing.get_context("fork")
    started = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=preload) as pool:
        futures = {pool.submit(fate, job, {} if job.is_named else reached): job for job in todo}
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            job, outcome = futures[future], future.result()
            found[job.key] = outcome
            record = {"key": job.key, "tests": job.tests_key, "fate": outcome, "name": job.mutant.name}
            with RESULTS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            pace = (time.monotonic() - started) / done
            left = pace * (len(todo) - done) / 60
            print(f"[{done}/{len(todo)}, {left:.0f} min left] {outcome:8} {job.mutant.name}", flush=True)
        # Tests that pass on some mutant pass on the code as it is; those that never did could be broken.
        passed = {job.tests for job in jobs if found[job.key] == "alive"}
        doubtful = {job.tests for job in todo} - passed
        for tests, future in {t: pool.submit(passes, t) for t in doubtful}.items():
            if not future.result():
                raise SystemExit(f"these tests fail without any mutant: {' '.join(tests)}")
    return found


def passes(tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on the code as it is."""
    return _wait(start(None, tests), _LIMIT) == 0


def fate(job: Job, reached: Reached | None = None) -> str:
    """What becomes of a mutant: a failing test, a crash or a hang kills it.

    Args:
        reached: what tests reach and how long they take; the likeliest to fail go first.
    """
    if digest(job.mutant.path) != job.mutant.made_from:
        raise SystemExit(f"{job.mutant.path} has changed while its mutants ran: start again")
    code = _NOT_FOUND[0]
    if reached:
        in_order = likeliest_first(job.mutant, job.tests, reached)
        code = _wait(start(job.mutant, in_order, Patience(reached)), _LIMIT)
    if code in _NOT_FOUND:
        code = _wait(start(job.mutant, job.tests), _LIMIT)
    return "alive" if code == 0 else "killed"


def _wait(child: int, limit: float) -> int:
    """The exit status of a process; after so many seconds it is ended, with what it started."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def table(
    jobs: Sequence[Job], found: dict[str, str], equivalent: dict[str, str], given: argparse.Namespace
) -> int:
    """Print module, made, killed, equivalent, alive; then the living. 1 if they are a tenth, or named."""
    rows = _rows(jobs, found)
    for path in rows:
        if path.endswith(".py"):
            drawn = sample(path, given.sample, given.seed)
            rows[path]["equivalent"] = sum(m.change in equivalent for m in drawn)
    total: Counter[str] = sum(rows.values(), Counter())
    print(f"\n{'module':44} {'made':>5} {'killed':>7} {'equivalent':>11} {'alive':>6}")
    for path, row in [*rows.items(), ("all", total)]:
        print(f"{path:44} {row.total():5} {row['killed']:7} {row['equivalent']:11} {row['alive']:6}")
    alive = [job for job in jobs if found[job.key] == "alive"]
    for job in alive:
        print(f"alive: {job.mutant.path}:{job.mutant.line}  {job.mutant.name}")
    print(f"{_share(total):.1%} of the mutants that are not equivalent were killed")
    return 1 if _share(total) < 0.9 or any(job.is_named for job in alive) else 0


def report(jobs: Sequence[Job], page: Path) -> int:
    """Write what is known of mutants of the tree as it stands, as a page; what lived lives until rerun."""
    found = known(jobs, whatever_tests=True)
    reasons = {one["name"]: one["reason"] for one in _toml("equivalent.toml").get("mutant", [])}
    judged = Counter(job.mutant.path for job in jobs if job.mutant.change in reasons)
    jobs = [job for job in jobs if job.key in found and job.mutant.change not in reasons]
    rows = _rows(jobs, found)
    for path in judged.keys() & rows.keys():
        rows[path]["equivalent"] = judged[path]
    total: Counter[str] = sum(rows.values(), Counter())
    lines = [
        "# Mutants",
        "",
        "What becomes of one-place changes of what privacy rests on: *killed* by a failing test, judged "
        "*equivalent* for a reason that `tests/mutation/equivalent.toml` states, or *alive*. The first line "
        "is the list of faults that tests once let live (`tests/mutation/named.toml`), others are samples "
        "(`python -m tests.mutation.run --module PATH --sample N`). Written by `--report` from what was run.",
        "",
        "| module | made | killed | equivalent | alive |",
        "|---|---|---|---|---|",
    ]
    for path, row in [*rows.items(), ("**all**", total)]:
        lines.append(f"| {path} | {row.total()} | {row['killed']} | {row['equivalent']} | {row['alive']} |")
    lines += ["", f"{_share(total):.1%} of those that are not equivalent were killed. Alive:", ""]
    alive = [f"- `{job.mutant.name}`" for job in jobs if found[job.key] == "alive"]
    lines += alive or ["none of them."]
    page.write_text("\n".join(lines) + "\n", "utf-8")
    return 0


def _rows(jobs: Sequence[Job], found: dict[str, str]) -> dict[str, Counter[str]]:
    rows: dict[str, Counter[str]] = {}
    for job in jobs:
        row = rows.setdefault("named.toml" if job.is_named else job.mutant.path, Counter())
        row[found[job.key]] += 1
    return rows


def _share(total: Counter[str]) -> float:
    return total["killed"] / max(1, total["killed"] + total["alive"])


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _toml(name: str) -> Any:
    return tomllib.loads((HERE / name).read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())

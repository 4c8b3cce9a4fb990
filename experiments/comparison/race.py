"""Every oracle of a comparison on every instance, in processes of their own; lines kept as they come.

A runner is one process that answers all instances for one oracle, on a processor of its own where the system
lets it choose. If it dies, the instance that it was at is lost, and the next runner goes on behind it.

Time is processor time where the system tells it, of the runner and all that it starts: what else the machine
does then changes little. Oracles that listen while they run are stopped by it, the others by the clock after
twenty times as long, and what they have proved later than allowed does not count. Building has the same limit
and warming up, in which kernels are compiled, a longer one; a runner that exceeds one is ended.
"""

from __future__ import annotations

import dataclasses
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bar

from privopt.experiments.comparison import workload
from privopt.experiments.comparison.workload import Instance
from privopt.experiments.workbench.kept import Kept, WorkerDiedError, isolated
from privopt.oracles.errors import OracleError
from privopt.oracles.limits import Limits, Progress
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle
from privopt.oracles.minimize.mip.oracle import MipOracle
from privopt.oracles.select import minimizer
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.errors import InvalidInputError

SOLVED, OPEN, REFUSED, FAILED, DIED = "solved", "open", "refused", "failed", "died"
TIMED_OUT = "timed out"
_POINTS = 200  # of a trace at most
_CLOCK = 20.0  # seconds on the clock for each second of processor time
_LOOK = 0.1  # seconds between two looks at the processor time
_START = 5.0  # seconds that a stage may take beyond its limit: a process starts, data are read
_COMPILING = 120.0  # processor seconds to warm up in, at least


@dataclass(frozen=True)
class Solve:
    """One oracle on one instance.

    Attributes:
        oracle: its name, and after a colon its model where it has a choice.
        status: "solved" (proved optimal within the limit), "open" (stopped by it, proved too late, or
            without a proof), "refused", "failed", "died" (the process was killed), or "timed out" (it was
            ended, for it had not warmed up, built or answered within the limit).
        seconds: of wall-clock time.
        processor_seconds: of this process and all that it started; NaN where the system does not tell.
        build_seconds: wall-clock time before the first noise was known; once per problem.
        value, bound, gap: in errors, noise included; NaN where there is none.
        exact: whether the bound was proved in integers.
        said: the solver's own words, or the reason of a refusal.
    """

    data: str
    n: int
    d: int
    question: str
    epsilon: float
    draw: int
    oracle: str
    status: str
    seconds: float
    processor_seconds: float
    build_seconds: float
    value: float
    bound: float
    gap: float
    exact: bool
    nodes: int
    said: str


@dataclass(frozen=True)
class Moment:
    """What was known at a time of one solve."""

    data: str
    n: int
    d: int
    question: str
    epsilon: float
    draw: int
    oracle: str
    seconds: float
    incumbent: float
    bound: float


KEY = ("data", "n", "d", "question", "epsilon", "draw", "oracle")


def entrant(name: str) -> DiscreteOracle:
    """An oracle by name, or by name and model ("highs:rows"), on one thread.

    Raises:
        UnknownOracleError, MissingSolverError: see ``minimizer``.
        InvalidInputError: a model of an oracle that has no choice.
    """
    name, _, model = name.partition(":")
    oracle = minimizer(name)
    changes: dict[str, object] = {"threads": 1} if hasattr(oracle, "threads") else {}
    if model:
        if not isinstance(oracle, MipOracle):
            raise InvalidInputError(f"oracle {name!r} has no models to choose from")
        changes["model"] = model
    return dataclasses.replace(oracle, **changes) if changes else oracle  # type: ignore[type-var]


def run(
    output: Path,
    instances: Sequence[Instance],
    oracles: Sequence[str],
    *,
    limit: float,
    jobs: int,
    console: Console,
) -> tuple[Kept, Kept]:
    """Fill ``solves.csv`` and ``moments.csv`` with what is missing there; Ctrl-C keeps what is finished.

    Raises:
        InvalidInputError: the files are of another version, or of another time limit.
    """
    output.mkdir(parents=True, exist_ok=True)
    _same_limit(output / "limit.txt", limit)
    solves = Kept(output / "solves.csv", Solve, KEY)
    moments = Kept(output / "moments.csv", Moment, ())
    done = {tuple(line[k] for k in KEY) for line in solves.lines}
    missing = {
        name: left
        for name in oracles
        if (left := [i for i in instances if (*dataclasses.astuple(i), name) not in done])
    }
    with Bar(console=console) as bar:
        line = bar.add_task("comparing", total=sum(map(len, missing.values())))
        for solve, trace in _all(missing, limit, jobs):
            solves.add(solve)
            for moment in trace:
                moments.add(moment)
            bar.update(line, advance=1, description=f"{solve.oracle}, {solve.data} d={solve.d}")
            if not console.is_terminal:  # nothing is drawn there before the end
                console.print(
                    f"{solve.oracle}, {solve.data} n={solve.n} d={solve.d}: {solve.status}", markup=False
                )
    return solves, moments


def _same_limit(path: Path, limit: float) -> None:
    """Times under another limit are no times of this comparison."""
    if path.exists() and float(path.read_text()) != limit:
        raise InvalidInputError(
            f"{path.parent} was begun with a time limit of {path.read_text()} s, not {limit:g}. To do: the "
            f"same limit, or another folder"
        )
    path.write_text(f"{limit:g}")


Finding = tuple[Solve, list[Moment]]


def _all(missing: dict[str, list[Instance]], limit: float, jobs: int) -> Iterator[Finding]:
    """Everything that is found, as it comes, from at most ``jobs`` runners at a time."""
    todo: queue.SimpleQueue[tuple[str, list[Instance]]] = queue.SimpleQueue()
    for item in missing.items():
        todo.put(item)
    found: queue.SimpleQueue[Finding | BaseException | None] = queue.SimpleQueue()
    stop, processes = threading.Event(), list[BaseProcess]()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    runners = min(jobs, len(missing))

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                name, instances = todo.get_nowait()
                core = cores[number % len(cores)] if cores else None
                for finding in _survived(name, instances, limit, core, processes.append):
                    if stop.is_set():
                        return
                    found.put(finding)
        except queue.Empty:
            pass
        except BaseException as error:
            found.put(error)
        finally:
            found.put(None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(runners)]
    for thread in threads:
        thread.start()
    try:
        while runners:
            finding = found.get()
            if finding is None:
                runners -= 1
            elif isinstance(finding, BaseException):
                raise finding
            else:
                yield finding
    finally:
        stop.set()
        for process in processes:
            process.terminate()
        for thread in threads:
            thread.join()


def _survived(
    name: str,
    instances: list[Instance],
    limit: float,
    core: int | None,
    started: Callable[[BaseProcess], None] | None = None,
) -> Iterator[Finding]:
    """All instances by one oracle, whatever becomes of its runners."""
    left = list(instances)
    while left:
        timer = StageTimer(limit)
        try:
            found = isolated(runner, name, left, limit, core, started=started, waiting=timer.check)
            for message in found:
                if isinstance(message, Stage):
                    timer.begin(message)
                    continue
                left = left[1:]
                yield message
        except WorkerDiedError as error:
            yield _solve(left[0], name, DIED, said=str(error)), []
            left = left[1:]
        except StageTimeoutError as error:
            # Without warming up no other runner would get any farther.
            lost = left if timer.stage is Stage.WARM_UP else left[:1]
            for instance in lost:
                yield _solve(instance, name, TIMED_OUT, said=str(error)), []
            left = left[len(lost) :]


class Stage(Enum):
    """Stages of a runner; each has a time limit of its own."""

    WARM_UP = "warming up"
    BUILD = "building"
    SOLVE = "solving"


class StageTimeoutError(Exception):
    """A runner has taken longer for a stage than it may."""


class StageTimer:
    """Limits of the stage that a runner is in, by its processor time, or by a wider one of the clock.

    Args:
        limit: processor seconds of a build, and of a solve, which stops by itself unless its oracle is deaf.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.begin(Stage.WARM_UP)

    def begin(self, stage: Stage) -> None:
        self.stage, self._began, self._used_before = stage, time.monotonic(), math.nan

    @property
    def allowed(self) -> float:
        """Processor seconds of the stage."""
        longest = max(self.limit, _COMPILING) if self.stage is Stage.WARM_UP else self.limit
        return 1.1 * longest + _START

    def check(self, process: BaseProcess) -> None:
        """Raise StageTimeoutError if the stage has taken too long."""
        used, passed = processor_seconds(process.pid), time.monotonic() - self._began
        if math.isnan(self._used_before):
            self._used_before = used
        by_clock = passed > _CLOCK * self.allowed
        # A solver that does not listen has the clock alone.
        by_processor = self.stage is not Stage.SOLVE and used - self._used_before > self.allowed
        if by_clock or by_processor:
            raise StageTimeoutError(
                f"ended after {passed:.0f} s of {self.stage.value}; the limit is {self.limit:g} s of "
                "processor time for each build and solve"
            )


def runner(
    name: str, instances: Sequence[Instance], limit: float, core: int | None
) -> Iterator[Finding | Stage]:
    """All instances by one oracle, one by one, each problem built once. Meant for a fresh process."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    oracle = entrant(name)
    yield Stage.WARM_UP
    _warm(oracle)
    built: tuple[tuple[object, ...], PreparedOracle | OracleError, float] | None = None
    for instance in instances:
        key = (instance.data, instance.n, instance.d, instance.question)
        if built is None or built[0] != key:
            yield Stage.BUILD
            built = (key, *_built(oracle, instance))
        prepared = built[1]
        if isinstance(prepared, OracleError):
            yield _solve(instance, name, REFUSED, said=str(prepared)), []
        else:
            yield Stage.SOLVE
            yield _answered(prepared, name, instance, limit, built[2])


def _warm(oracle: DiscreteOracle) -> None:
    """Libraries loaded and kernels compiled, before a clock runs."""
    for tiny in workload.workload("tiny", 1):
        prepared, _ = _built(oracle, tiny)
        if isinstance(prepared, PreparedOracle):
            prepared.minimize(Perturbation.zero(prepared.problem.lattice), Limits(seconds=2.0))


def _built(oracle: DiscreteOracle, instance: Instance) -> tuple[PreparedOracle | OracleError, float]:
    problem = workload.problem(instance.data, instance.n, instance.d, instance.question)
    watch = Limits().start()
    try:
        return oracle.prepare(problem, instance.task), watch.seconds
    except OracleError as error:
        return error, math.nan


def _answered(prepared: PreparedOracle, name: str, instance: Instance, limit: float, build: float) -> Finding:
    trace: list[Progress] = []
    noise, spent = workload.perturbation(instance), Spent()
    limits = dataclasses.replace(processor_limits(spent, limit), on_progress=trace.append)
    try:
        c = prepared.minimize(noise, limits).certificate
    except OracleError as error:
        return _solve(instance, name, FAILED, build_seconds=build, said=str(error)), []
    used = spent()
    solve = _solve(
        instance,
        name,
        SOLVED if c.gap == 0 and not used > limit + 2 * _LOOK else OPEN,
        seconds=c.seconds,
        processor_seconds=used,
        build_seconds=build,
        value=c.value if math.isfinite(c.value) else math.nan,
        bound=c.bound,
        gap=c.gap if math.isfinite(c.gap) else math.nan,
        exact=c.exact,
        nodes=c.nodes,
        said=c.raw_status,
    )
    seen = [(p.seconds, p.incumbent, p.bound) for p in trace[:: -(-len(trace) // _POINTS) or 1]]
    seen.append((c.seconds, solve.value, c.bound))
    asked = {**dataclasses.asdict(instance), "oracle": name}
    return solve, [Moment(**asked, seconds=t, incumbent=v, bound=b) for t, v, b in seen]


def _solve(instance: Instance, name: str, status: str, **known: object) -> Solve:
    nan = math.nan
    rest: dict[str, object] = dict.fromkeys(
        ("seconds", "processor_seconds", "build_seconds", "value", "bound", "gap"), nan
    )
    rest |= {"exact": False, "nodes": 0, "said": ""} | known
    return Solve(**dataclasses.asdict(instance), oracle=name, status=status, **rest)  # type: ignore[arg-type]


class Spent:
    """Processor time since this was made."""

    def __init__(self) -> None:
        self._before, self._last = processor_seconds(), (time.monotonic(), 0.0)

    @property
    def known(self) -> bool:
        """Whether the system tells it."""
        return not math.isnan(self._before)

    def __call__(self) -> float:
        return processor_seconds() - self._before

    def soon(self) -> float:
        """The same, at most a moment ago: it is asked often."""
        if (now := time.monotonic()) - self._last[0] > _LOOK:
            self._last = now, self()
        return self._last[1]


def processor_limits(spent: Spent, seconds: float) -> Limits:
    """A limit of processor time, with a wider one of the clock; of the clock alone if there is no other."""
    if not spent.known:
        return Limits(seconds=seconds)
    return Limits(seconds=_CLOCK * seconds, cancelled=lambda: spent.soon() > seconds)


def processor_seconds(pid: int | None = None) -> float:
    """Processor time of a process and all that it has started so far; NaN where /proc is not Linux's.

    In hundredths of a second for what still runs, finer for the rest.
    """
    if not Path("/proc/self/stat").exists():
        return math.nan
    parents, used = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(stat.parent.name)
        # State, parent, ...; user, system, and both of the children that were waited for.
        parents[number], used[number] = int(words[1]), sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid() if pid is None else pid}
    while grown := {p for p, parent in parents.items() if parent in family} - family:
        family |= grown
    if pid not in (None, os.getpid()):
        return sum(used.get(p, 0.0) for p in family)
    ended = os.times()
    own = time.process_time() + ended.children_user + ended.children_system
    return own + sum(used[p] for p in family - {os.getpid()})

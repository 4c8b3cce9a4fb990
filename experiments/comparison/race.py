"""Timed runs of every oracle on every instance, in separate processes; results are saved one by one.

A runner is one process that solves all instances by one oracle, pinned to one core if the system allows it.
If it dies, its current instance is lost, and a new runner continues with the next one.

Times are processor times of the runner and its child processes, if the system reports them, so that the load
of the machine has little effect. Oracles that poll for cancellation stop at the limit of processor time; a
proof that is found later does not count.

A runner is killed if a stage (warming up, building, solving) exceeds its limit by a tenth and five seconds.
The limit of warming up, when kernels are compiled, is at least two minutes. In this check, time in which the
runner sleeps counts as processor time, and time in which it waits for a processor does not; but after twenty
times as many seconds on the clock the runner is killed in any case.
"""

from __future__ import annotations

import dataclasses
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bar

from privopt.experiments.comparison import workload
from privopt.experiments.comparison.workload import Instance
from privopt.experiments.workbench.resumable import Kept, WorkerDiedError, isolated
from privopt.oracles.errors import OracleError
from privopt.oracles.limits import Limits, Progress
from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle
from privopt.oracles.minimize.mip.oracle import MipOracle
from privopt.oracles.select import minimizer
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.errors import InvalidInputError

SOLVED, OPEN, REFUSED, FAILED, DIED = "solved", "open", "refused", "failed", "died"
TIMED_OUT = "timed out"
_POINTS = 200  # largest number of points of a trace
_CLOCK = 20.0  # wall-clock seconds for each second of processor time
_LOOK = 0.1  # seconds between two readings of the processor time
_START = 5.0  # extra seconds of every stage, for the start of a process and the loading of data
_COMPILING = 120.0  # smallest limit of warming up, in processor seconds


@dataclass(frozen=True)
class Solve(Instance):
    """One oracle on one instance.

    Attributes:
        oracle: its name, followed by a colon and its model if it has several.
        status: "solved" (proved optimal within the limit), "open" (stopped at the limit, proved after it, or
            without a proof), "refused", "failed", "died" (the process was killed from outside), or "timed
            out" (killed after its limit for warming up, building or solving).
        seconds: wall-clock time of the solve.
        processor_seconds: of the process and its children; NaN if the system does not report it.
        build_seconds: wall-clock time of building the problem, before the noise is known; once per problem.
        value, bound, gap: in errors, noise included; NaN if unknown.
        exact: whether the bound was proved in integers.
        said: the solver's own status, or the reason of a refusal.
    """

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
class Moment(Instance):
    """The incumbent and the bound at one time of a solve."""

    oracle: str
    seconds: float
    incumbent: float
    bound: float


KEY = ("data", "n", "d", "question", "epsilon", "draw", "oracle")


def entrant(name: str) -> DiscreteOracle:
    """Return an oracle by name, or by name and model ("highs:rows"), on one thread.

    Raises:
        UnknownOracleError, MissingSolverError: see ``minimizer``.
        InvalidInputError: a model is named, and the oracle has no models to choose from.
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
    """Run the missing solves; each is appended to ``solves.csv`` and ``moments.csv`` when it is finished.

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
            if not console.is_terminal:  # there the progress bar is drawn only at the end
                console.print(
                    f"{solve.oracle}, {solve.data} n={solve.n} d={solve.d}: {solve.status}", markup=False
                )
    return solves, moments


def _same_limit(path: Path, limit: float) -> None:
    """Raise InvalidInputError if the results in the folder have another time limit."""
    if path.exists() and float(path.read_text()) != limit:
        raise InvalidInputError(
            f"{path.parent} was begun with a time limit of {path.read_text()} s, not {limit:g}. To do: the "
            f"same limit, or another folder"
        )
    path.write_text(f"{limit:g}")


Finding = tuple[Solve, list[Moment]]


def _all(missing: dict[str, list[Instance]], limit: float, jobs: int) -> Iterator[Finding]:
    """Yield results as they are found, by at most ``jobs`` runners at a time."""
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
        yield from _until_done(found, runners)
    finally:
        stop.set()
        for process in processes:
            process.terminate()
        for thread in threads:
            thread.join()


def _until_done(found: queue.SimpleQueue[Finding | BaseException | None], runners: int) -> Iterator[Finding]:
    """Yield what runners find until each has put None; raise an exception that a runner has put."""
    while runners:
        finding = found.get()
        if finding is None:
            runners -= 1
        elif isinstance(finding, BaseException):
            raise finding
        else:
            yield finding


def _survived(
    name: str,
    instances: list[Instance],
    limit: float,
    core: int | None,
    started: Callable[[BaseProcess], None] | None = None,
) -> Iterator[Finding]:
    """Yield the results of one oracle on all instances; a runner that dies or times out is replaced."""
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
            # Every other runner would fail to warm up too.
            lost = left if timer.stage is Stage.WARM_UP else left[:1]
            for instance in lost:
                yield _solve(instance, name, TIMED_OUT, said=str(error)), []
            left = left[len(lost) :]


class Stage(Enum):
    """Stages of a runner; each stage has its own time limit."""

    WARM_UP = "warming up"
    BUILD = "building"
    SOLVE = "solving"


class StageTimeoutError(Exception):
    """A runner exceeded the time limit of a stage."""


class StageTimer:
    """Time limits of a runner's stages: of processor time plus time asleep, and larger ones of clock time.

    Args:
        limit: processor seconds of a build and of a solve; most oracles stop a solve by themselves.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.begin(Stage.WARM_UP)

    def begin(self, stage: Stage) -> None:
        self.stage, self._began, self._used_before = stage, time.monotonic(), math.nan
        self._asleep, self._looked = 0.0, self._began

    @property
    def allowed(self) -> float:
        """The limit of the stage in processor seconds."""
        longest = max(self.limit, _COMPILING) if self.stage is Stage.WARM_UP else self.limit
        return 1.1 * longest + _START

    def check(self, process: BaseProcess) -> None:
        """Raise StageTimeoutError if the stage has taken too long."""
        now, stats = time.monotonic(), _stats("[0-9]*/stat")
        used = processor_seconds(process.pid, stats)
        if math.isnan(self._used_before):
            self._used_before = used
        if not is_awake(process.pid, stats):
            self._asleep += now - self._looked
        self._looked, passed = now, now - self._began
        spent = passed if math.isnan(used) else used - self._used_before + self._asleep
        if max(spent, passed / _CLOCK) > self.allowed:
            raise StageTimeoutError(
                f"ended after {passed:.0f} s of {self.stage.value}; the limit is {self.limit:g} s of "
                "processor time for each build and solve"
            )


def runner(
    name: str, instances: Sequence[Instance], limit: float, core: int | None
) -> Iterator[Finding | Stage]:
    """Solve instances in order by one oracle, building each problem once; to be run in a fresh process."""
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
    """Load libraries and compile kernels before times are measured."""
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
    """The processor time since the creation of the object."""

    def __init__(self) -> None:
        self._before, self._last = processor_seconds(), (time.monotonic(), 0.0)

    @property
    def known(self) -> bool:
        """Whether the system reports processor time."""
        return not math.isnan(self._before)

    def __call__(self) -> float:
        return processor_seconds() - self._before

    def soon(self) -> float:
        """Return the processor time, cached for ``_LOOK`` seconds because it is polled often."""
        if (now := time.monotonic()) - self._last[0] > _LOOK:
            self._last = now, self()
        return self._last[1]


def processor_limits(spent: Spent, seconds: float) -> Limits:
    """Return limits of processor time and, larger, of clock time; or of clock time alone, ``seconds``."""
    if not spent.known:
        return Limits(seconds=seconds)
    return Limits(seconds=_CLOCK * seconds, cancelled=lambda: spent.soon() > seconds)


Stats = dict[int, list[str]]


def is_awake(pid: int | None, stats: Stats | None = None) -> bool:
    """Return whether a thread of a process or of a descendant runs, or waits for a processor or a disk."""
    family = _family(pid, _stats("[0-9]*/stat") if stats is None else stats)
    return any(words[0] in "RD" for p in family for words in _stats(f"{p}/task/[0-9]*/stat").values())


def processor_seconds(pid: int | None = None, stats: Stats | None = None) -> float:
    """Return the processor time of a process and its descendants; NaN without Linux's /proc.

    The resolution is a hundredth of a second; for the time of this process itself the resolution is finer.
    """
    if not Path("/proc/self/stat").exists():
        return math.nan
    stats, tick = _stats("[0-9]*/stat") if stats is None else stats, os.sysconf("SC_CLK_TCK")
    # Of each process the user and system time, and both times of its children that have ended.
    used = {number: sum(map(int, words[11:15])) / tick for number, words in stats.items()}
    family = _family(pid, stats)
    if pid not in (None, os.getpid()):
        return sum(used.get(p, 0.0) for p in family)
    ended = os.times()
    own = time.process_time() + ended.children_user + ended.children_system
    return own + sum(used[p] for p in family - {os.getpid()})


def _stats(pattern: str) -> Stats:
    """Return the fields (state, parent, ...) of processes, or of threads, by number."""
    found = {}
    for stat in Path("/proc").glob(pattern):
        with suppress(OSError):  # it has ended
            found[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
    return found


def _family(pid: int | None, stats: Stats) -> set[int]:
    """Return a process, by default this one, and its descendants."""
    parents = {number: int(words[1]) for number, words in stats.items()}
    family = {os.getpid() if pid is None else pid}
    while grown := {p for p, parent in parents.items() if parent in family} - family:
        family |= grown
    return family

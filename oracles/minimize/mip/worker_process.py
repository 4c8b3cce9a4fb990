"""Solver sessions in a separate process, for solvers that cannot be loaded into this process or may crash it.

A worker is a Python process that has one session at a time and communicates through standard input and
output; nothing is written to a file. A worker ends when its input is closed, so it ends with its caller. Idle
workers are reused, because starting a worker takes a second. If a worker dies, its current solve fails, and
the next solve gets a new worker.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.minimize.mip.model import MipAnswer, MipModel, Outcome, Question, Session, SolverProgress

_LOOK = 0.02  # seconds between polls of the watch
_PATIENCE = 2.0  # seconds after a limit that a solver has to stop before its process is killed
_TELL = 0.05  # seconds between progress messages without an improved point
_START = "from privopt.oracles.minimize.mip.worker_process import work; work()"


class RemoteSession(Session):
    """A session ``factory(model, *settings)`` in a worker process.

    Args:
        factory: the class of the session, which the worker imports by name.
        model: the model of the session.
        settings: further arguments of the factory.

    Raises:
        SolverFailedError: the session could not be created.
    """

    def __init__(self, factory: type[Session], model: MipModel, *settings: Any) -> None:
        self.exact = factory.exact  # type: ignore[misc]  # as exact as the session in the worker
        self._name = factory.__name__.removesuffix("Session")
        self._order = ("open", factory, model, settings)
        self._hand: list[_Worker] = []
        # Each solver has a pool: a worker that has loaded the library of one may be unable to load others.
        self._pool = _idle.setdefault(factory, [])
        weakref.finalize(self, _give_back, self._hand, self._pool)
        self._worker()

    def _worker(self) -> _Worker:
        """Return the worker of this session, or start one if there is none or it has died."""
        if self._hand and self._hand[0].usable:
            return self._hand[0]
        self._hand[:] = [worker := _engaged(self._pool)]
        try:
            worker.send(self._order)
            worker.receive(None)  # "ready", or an error
        except BaseException:
            worker.end()
            raise
        return worker

    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        worker = self._worker()
        bound, nodes = -float("inf"), 0
        try:
            worker.send(("solve", question, watch.remaining))
            told: float | None = None  # when the worker was told to stop
            while True:
                what = worker.receive(_LOOK)
                if isinstance(what, MipAnswer):
                    return self._said(what, watch)
                if isinstance(what, SolverProgress):
                    bound, nodes = max(bound, what.bound), max(nodes, what.nodes)
                    on_progress(what)
                if told is None and watch.stop() is not None:
                    told = time.monotonic()
                    worker.send(("stop",))
                if told is not None and time.monotonic() - told > _PATIENCE:
                    break
        except BaseException:
            worker.end()
            raise
        worker.end()  # the solver did not stop in time: return the bound that it has proved so far
        return MipAnswer(Outcome.STOPPED, None, bound, watch.stop(), nodes, f"{self._name} was ended")

    @staticmethod
    def _said(said: MipAnswer, watch: Watch) -> MipAnswer:
        """Return the answer with the reason for stopping, which the worker does not know."""
        if said.outcome is not Outcome.STOPPED:
            return said
        reason = watch.stop() or said.reason or Status.INTERRUPTED
        return MipAnswer(said.outcome, said.values, said.bound, reason, said.nodes, said.raw)


class _Worker:
    """A worker process, and the thread that reads its messages."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_START}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def usable(self) -> bool:
        """Whether the worker is alive and was started by this process, not by the parent of a fork."""
        return self.owner == os.getpid() and self._process.poll() is None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(Exception):  # at the end of the stream, which may be inside a message
            while True:
                self._heard.put(pickle.load(self._process.stdout))
        self._heard.put(None)

    def send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin, protocol=5)
            self._process.stdin.flush()
        except OSError as error:
            raise self._died() from error

    def receive(self, seconds: float | None) -> Any:
        """Return the next message, or "" after a timeout; raise it if it is an error of the worker."""
        try:
            message = self._heard.get(timeout=seconds)
        except queue.Empty:
            return ""
        if message is None:
            raise self._died()
        if isinstance(message, Exception):
            raise message
        return message

    def _died(self) -> SolverFailedError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        return SolverFailedError(
            f"the solver's process ended with exit code {self._process.poll()} before it had answered: it "
            f"ran out of memory, or was stopped from outside. The next solve gets another process"
        )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


_idle: dict[type[Session], list[_Worker]] = {}


def _engaged(pool: list[_Worker]) -> _Worker:
    with suppress(IndexError):
        while True:
            if (worker := pool.pop()).usable:
                return worker
    return _Worker()


def _give_back(hand: list[_Worker], pool: list[_Worker]) -> None:
    pool.extend(worker for worker in hand if worker.usable)


# --- In the worker ------------------------------------------------------------------------------------


def work() -> None:
    """Carry out the orders from standard input until it is closed."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    # Standard output is redirected, because what a solver prints must not be mixed with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    stop, orders = threading.Event(), queue.SimpleQueue[Any]()
    threading.Thread(target=_orders, args=(sys.stdin.buffer, orders, stop), daemon=True).start()
    session: Session | None = None
    said: Any
    while True:
        order = orders.get()
        try:
            if order[0] == "open":
                _, factory, model, settings = order
                session, said = factory(model, *settings), "ready"
            else:
                assert session is not None
                said = _answered(session, order[1], order[2], stop, answers)
        except Exception as error:
            said = error
        _send(answers, said)


def _orders(stream: BinaryIO, orders: queue.SimpleQueue[Any], stop: threading.Event) -> None:
    """Put orders into the queue, except "stop", which takes effect at once; exit at the end of the input."""
    with suppress(Exception):
        while True:
            order = pickle.load(stream)
            if order[0] == "stop":
                stop.set()
                continue
            stop.clear()  # a "stop" before this order was for the previous solve
            orders.put(order)
    os._exit(0)


def _answered(
    session: Session, question: Question, seconds: float | None, stop: threading.Event, answers: BinaryIO
) -> MipAnswer:
    last = 0.0

    def on_progress(progress: SolverProgress) -> None:
        nonlocal last
        if progress.values is not None or time.monotonic() - last > _TELL:
            last = time.monotonic()
            _send(answers, progress)

    limits = Limits(seconds=None if seconds is None else max(seconds, 1e-3), cancelled=stop.is_set)
    return session.solve(question, limits.start(), on_progress)


def _send(stream: BinaryIO, message: Any) -> None:
    try:
        data = pickle.dumps(message, protocol=5)
    except Exception as error:  # the message is an exception of a library, and cannot be pickled
        data = pickle.dumps(SolverFailedError(f"{type(message).__name__}: {message} ({error})"))
    stream.write(data)
    stream.flush()

"""Results appended to a CSV file, work in separate processes, Markdown tables."""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas as pd

from privopt.experiments.workbench.pages import markdown_table, processor
from privopt.problems.errors import InvalidInputError, PrivOptError

# Seconds between two polls of a silent process, and seconds for a process to exit after SIGTERM.
_LOOK, _GRACE = 0.2, 2.0


class WorkerDiedError(PrivOptError):
    """A worker process ended before its work was done: out of memory, or killed."""


class _Index:
    """Lines by their values in some columns."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns, self.size = columns, 0
        self.found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self.found.setdefault(tuple(line[c] for c in self.columns), []).append(line)
        self.size += len(lines)


class Kept:
    """Results in a CSV file, appended line by line, so that an interrupted run can be resumed.

    Args:
        path: the file; existing lines are loaded.
        kind: a dataclass of numbers and texts, one instance per line.
        key: the fields that identify a line.

    Raises:
        InvalidInputError: the columns of the file are not the fields of ``kind``.
    """

    def __init__(self, path: Path, kind: type[Any], key: Sequence[str]) -> None:
        self.path, self.kind, self.key = path, kind, tuple(key)
        self.columns = [f.name for f in fields(kind)]
        self.lines: list[Mapping[str, Any]] = []
        self._indexes: dict[tuple[str, ...], _Index] = {}
        if path.exists():
            frame = pd.read_csv(path)
            if list(frame.columns) != self.columns:
                raise InvalidInputError(
                    f"{path} was written by another version of this run (its columns differ). "
                    f"To do: choose another folder, or remove the file"
                )
            self.lines = [{str(k): v for k, v in line.items()} for line in frame.to_dict("records")]

    def add(self, line: Any) -> None:
        """Append a line: first to the file, then in memory."""
        self.add_all([line])

    def add_all(self, lines: Sequence[Any]) -> None:
        """Append lines that belong together in one write, all or none: first to the file, then in memory."""
        values = [asdict(line) for line in lines]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self.columns)
        if not self.path.exists():
            writer.writeheader()
        writer.writerows(values)
        with self.path.open("a", newline="") as file:
            file.write(text.getvalue())
        self.lines.extend(values)

    def take(self, parts: Sequence[Path]) -> None:
        """Append the lines of other files of the same run that are not here yet, and remove the files."""
        if not parts:
            return
        others = [Kept(part, self.kind, self.key).frame for part in parts]
        lines = pd.concat([self.frame, *others]).drop_duplicates(subset=list(self.key))[len(self.lines) :]
        self.add_all([self.kind(**{str(k): v for k, v in line.items()}) for line in lines.to_dict("records")])
        for part in parts:
            part.unlink()

    def matching(self, **wanted: object) -> list[Mapping[str, Any]]:
        """Return the lines with these values."""
        index = self._indexes.setdefault(tuple(wanted), _Index(tuple(wanted)))
        index.add(self.lines[index.size :])
        return list(index.found.get(tuple(wanted.values()), ()))

    def holds(self, line: Any) -> bool:
        values = asdict(line)
        return bool(self.matching(**{k: values[k] for k in self.key}))

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.lines, columns=self.columns)


def isolated(
    work: Callable[..., Iterator[Any]],
    *words: Any,
    started: Callable[[BaseProcess], None] | None = None,
    waiting: Callable[[BaseProcess], None] | None = None,
) -> Iterator[Any]:
    """Yield the values of ``work(*words)`` as a fresh process computes them.

    The process ends with the iteration. ``started`` is called with the process, so that another thread can
    end it. ``waiting`` is called several times a second while no value comes; an exception that it raises
    ends the process.

    Raises:
        WorkerDiedError: the process was killed.
        Exception: an exception of the work.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_feed, args=(sender, work, words), daemon=True)
    process.start()
    sender.close()
    if started is not None:
        started(process)
    try:
        while True:
            while waiting is not None and not receiver.poll(_LOOK):
                waiting(process)
            try:
                what, value = receiver.recv()
            except EOFError:
                process.join()
                raise WorkerDiedError(
                    f"a process of this run ended with exit code {process.exitcode} before its work was done"
                ) from None
            if what == "done":
                return
            if what == "raised":
                raise value
            yield value
    finally:
        process.terminate()
        process.join(_GRACE)
        process.kill()  # if it ignores the first signal
        process.join()


def _feed(sender: Connection, work: Callable[..., Iterator[Any]], words: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    try:
        for value in work(*words):
            sender.send(("value", value))
    except Exception as error:
        sender.send(("raised", error))
    else:
        sender.send(("done", None))


def peak_megabytes() -> float:
    """Return the peak resident memory of this process.

    /proc/self/status has it per address space. ``getrusage`` does not: a fresh process inherits the peak of
    its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def machine() -> str:
    """Describe the machine: processor, Python, load."""
    load = f", load average {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    return f"{processor()}, Python {platform.python_version()}{load}"


def markdown(table: pd.DataFrame) -> str:
    """Format a table in Markdown: numbers in three digits, NaN as an empty cell."""
    return markdown_table(table.astype(object).map(_cell))


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3g}"
    return value


def seconds(value: float) -> str:
    """Format seconds in two or three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"

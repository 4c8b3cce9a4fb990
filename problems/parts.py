"""Tables in parts (blocks of a file, partitions on a cluster): run a task on every part, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

# Bytes of a file in memory at a time: few enough to stay in cache while a block is prepared step by step.
_BLOCK_BYTES = 1 << 23


# Called before each part; it raises an error to end a pass over the parts, as at a time limit.
_LOOK: ContextVar[Callable[[], None]] = ContextVar("privopt_look", default=lambda: None)


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Within the block, let every pass over parts call ``look`` before each part."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)


def look_up() -> None:
    """Call the function given to ``looking``, if any."""
    _LOOK.get()()


class Parts(ABC):
    """A table in parts. A part without records is None, and is skipped."""

    @abstractmethod
    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        """Run ``task`` once on every part that has records; return the results in the order of the parts."""

    @abstractmethod
    def made(self, make: Callable[[Any], Any]) -> Parts:
        """Return parts transformed by ``make``, which returns None for a part without records."""


@dataclass(frozen=True, eq=False)
class Whole(Parts):
    """A table in memory, as a single part."""

    part: Any

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        return [task(self.part)]

    def made(self, make: Callable[[Any], Any]) -> Self:
        return type(self)(make(self.part))


@dataclass(frozen=True, eq=False)
class Blocks(Parts):
    """Consecutive rows of arrays of one length, such as memory-mapped files: one block in memory at a time.

    A block is read and transformed again for every task.

    Attributes:
        arrays: arrays of one length; a part is a tuple with the same slice of each.
        rows: the number of rows of a block.
        makes: transformations of a block, applied in turn.
    """

    arrays: tuple[Any, ...]
    rows: int
    makes: tuple[Callable[[Any], Any], ...] = ()

    @classmethod
    def of(cls, *arrays: Any) -> Self:
        """Return blocks of arrays, of about ``_BLOCK_BYTES`` each."""
        width = sum(a[:1].nbytes for a in arrays)
        return cls(arrays, max(1, _BLOCK_BYTES // max(width, 1)))

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        return [task(part) for part in self._all() if part is not None]

    def made(self, make: Callable[[Any], Any]) -> Self:
        return type(self)(self.arrays, self.rows, (*self.makes, make))

    def _all(self) -> Iterator[Any]:
        for start in range(0, len(self.arrays[0]), self.rows):
            look_up()
            part: Any = tuple(a[start : start + self.rows] for a in self.arrays)
            for make in self.makes:
                part = None if part is None else make(part)
            yield part

"""Tables in parts: what is computed of every part, wherever the parts lie, in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

# Of a file, in memory at a time: few enough to stay in cache from one step of their preparation to the next.
_BLOCK_BYTES = 1 << 23


class Parts(ABC):
    """Records that lie in parts. A part without records, which tasks see as None, counts for nothing."""

    @abstractmethod
    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        """What ``task`` returns for every part that has records, once each, in the order of the parts."""

    @abstractmethod
    def made(self, make: Callable[[Any], Any]) -> Parts:
        """Parts that ``make`` makes of these; None: it has no records."""


@dataclass(frozen=True, eq=False)
class Whole(Parts):
    """A table that is one part, in memory."""

    part: Any

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        return [task(self.part)]

    def made(self, make: Callable[[Any], Any]) -> Self:
        return type(self)(make(self.part))


@dataclass(frozen=True, eq=False)
class Blocks(Parts):
    """Consecutive rows of arrays of one length, such as memory-mapped files: one block in memory at a time.

    A block is made anew for every task.

    Attributes:
        arrays: a part is a tuple of their rows.
        rows: of a block.
        makes: what is made of a block, one after the other.
    """

    arrays: tuple[Any, ...]
    rows: int
    makes: tuple[Callable[[Any], Any], ...] = ()

    @classmethod
    def of(cls, *arrays: Any) -> Self:
        """Blocks of as many rows as are read at a time."""
        width = sum(a[:1].nbytes for a in arrays)
        return cls(arrays, max(1, _BLOCK_BYTES // max(width, 1)))

    def each(self, task: Callable[[Any], Any]) -> list[Any]:
        return [task(part) for part in self._all() if part is not None]

    def made(self, make: Callable[[Any], Any]) -> Self:
        return type(self)(self.arrays, self.rows, (*self.makes, make))

    def _all(self) -> Iterator[Any]:
        for start in range(0, len(self.arrays[0]), self.rows):
            part: Any = tuple(a[start : start + self.rows] for a in self.arrays)
            for make in self.makes:
                part = None if part is None else make(part)
            yield part

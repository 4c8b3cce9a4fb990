"""Long runs made of cells: each result is kept at once; a page and figures show all that is finished."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import pandas as pd
import typer
from rich.console import Console
from rich.progress import Progress as Bar

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.resumable import Kept
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.files import write_atomically

T = TypeVar("T")

SHARD_OPTION = typer.Option(
    "--shard",
    help="Measure only part K of N, as K/N, for a run in N processes; a run without --shard joins the parts.",
)
ShardText = Annotated[str | None, SHARD_OPTION]


@dataclass(frozen=True)
class Shard:
    """Part number ``part``, from 1, of a run in ``parts`` processes."""

    part: int
    parts: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """Read K/N."""
        part, slash, parts = text.partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            raise InvalidInputError(f"a part of a run is K/N with 1 <= K <= N, such as 1/4, got {text!r}")
        return cls(int(part), int(parts))

    def cells(self, cells: Sequence[T]) -> list[T]:
        """Return its share of the cells, in their order.

        Shares are drawn at random, because costly cells are neighbours; every process draws the same.
        """
        mixed = list(range(len(cells)))
        random.Random(0).shuffle(mixed)
        return [cells[k] for k in sorted(mixed[self.part - 1 :: self.parts])]

    def file(self, study: str) -> str:
        return f"{study}-{self.part}-of-{self.parts}.csv"


@dataclass(frozen=True)
class Study(Generic[T]):
    """A run in cells, of type T, whose lines of results are kept in NAME.csv.

    Attributes:
        name: the stem of the files.
        line: the dataclass of a line of results.
        key: the fields that identify a line.
        compute: cell -> its lines. A list is kept as a whole, an iterator line by line.
        is_finished: (results, cell) -> whether the results have all of the cell.
        page: results -> NAME.md.
        figures: ending of a file's name, such as ".png" -> results -> the figure NAME.png.
    """

    name: str
    line: type[Any]
    key: Sequence[str]
    compute: Callable[[T], Iterable[Any]]
    is_finished: Callable[[Kept, T], bool]
    page: Callable[[pd.DataFrame], str] | None = None
    figures: Mapping[str, Callable[[pd.DataFrame], Figure]] = field(default_factory=dict)

    def kept(self, folder: Path) -> Kept:
        """Open the results in a folder."""
        return Kept(folder / f"{self.name}.csv", self.line, self.key)

    def missing(self, folder: Path, cells: Sequence[T]) -> list[T]:
        """Return the cells that are not finished."""
        kept = self.kept(folder)
        return [cell for cell in cells if not self.is_finished(kept, cell)]

    def run(
        self, folder: Path, cells: Sequence[T], console: Console | None = None, shard: str | None = None
    ) -> pd.DataFrame:
        """Measure the missing cells, then write page and figures; after Ctrl-C, both of the finished cells.

        Below its first paragraph the page lists the cells that are missing. A shard keeps its lines in a
        separate file, leaves out cells that the results have, and writes no page; a run without shard takes
        over the lines of all shards. Progress is shown on ``console``; None: standard error.
        """
        if console is None:
            console = Console(stderr=True, soft_wrap=True, emoji=False)
        folder.mkdir(parents=True, exist_ok=True)
        if shard is not None:
            part = Shard.of(shard)
            kept = Kept(folder / part.file(self.name), self.line, self.key)
            results = self.kept(folder)
            missing = [cell for cell in part.cells(cells) if not self.is_finished(results, cell)]
            self._measure(kept, missing, console)
            return kept.frame
        kept = self.kept(folder)
        kept.take(sorted(folder.glob(f"{self.name}-*-of-*.csv")))
        failures = self._measure(kept, cells, console)
        if kept.lines and self.page is not None:
            parts = self.page(kept.frame).split("\n\n")
            if failures:
                parts.insert(2, f"**Not all is there yet.** Missing: {'; '.join(failures)}.")
            write_atomically(folder / f"{self.name}.md", "\n\n".join(parts))
        if kept.lines:
            for ending, draw in self.figures.items():
                save(draw(kept.frame), folder / f"{self.name}{ending}")
        return kept.frame

    def _measure(self, kept: Kept, cells: Sequence[T], console: Console) -> list[str]:
        """Measure cells with a progress bar; return those that failed, with reasons."""
        failures: list[str] = []
        with Bar(console=console) as bar:
            shown = bar.add_task(self.name.replace("-", " "), total=len(cells))
            for number, cell in enumerate(cells):
                bar.update(shown, completed=number, description=str(cell))
                try:
                    if not self.is_finished(kept, cell):
                        self._keep(kept, self.compute(cell))
                except KeyboardInterrupt:
                    failures.append(f"{cell}, and all that comes after it")
                    console.print("interrupted: finished cells are kept; the same command resumes")
                    break
                except PrivOptError as error:
                    failures.append(f"{cell} ({error})")
                    console.print(failures[-1], markup=False)
            else:
                bar.update(shown, completed=len(cells))
        return failures

    def _keep(self, kept: Kept, lines: Iterable[Any]) -> None:
        if isinstance(lines, list):
            kept.add_all([line for line in lines if not kept.holds(line)])
            return
        for line in lines:
            if not kept.holds(line):
                kept.add(line)

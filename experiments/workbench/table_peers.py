"""Models of other packages fitted to a table with a schema, each in a separate environment."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.experiments.workbench import tree_peers
from privopt.mechanisms.estimators.counting import encoded
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.schema import Schema

# The environment with an earlier version of this package.
EARLIER = "earlier"


class PeerFit(NamedTuple):
    """One fit: scores are probabilities of the label 1 of the records left out, or points of a card."""

    model: str
    epsilon: float
    scores: NDArray[np.float64]
    seconds: float


@dataclass(frozen=True)
class TablePeer:
    """Records and labels to train on, and records to score.

    Attributes:
        depth: the depth of trees.
    """

    schema: Schema
    records: pd.DataFrame
    labels: NDArray[Any]
    others: pd.DataFrame
    seed: int
    depth: int = 3

    def fits(self, python: Path, package: str, epsilons: Sequence[float]) -> Iterator[PeerFit]:
        """Fit the models of a package with the interpreter of its environment.

        In other packages neighbours add or remove a record. A replacement is one of each, so that under
        replace-one their epsilon doubles: they are measured with half of each epsilon, and also with all of
        it, as labelled. In the earlier version of this package neighbours replace a record.
        """
        labels = {"": 1} if package == EARLIER else {", as labelled": 1, ", replace-one": 2}
        spent = sorted({e / times for e in epsilons for times in labels.values()})
        with tempfile.TemporaryDirectory() as folder:
            task = self._task(Path(folder), package, spent)
            done = subprocess.run(
                [str(python), tree_peers.__file__, str(task)], capture_output=True, text=True, check=True
            )
        for found in json.loads(done.stdout):
            scores, seconds = np.array(found["scores"]), found["seconds"]
            for label, times in labels.items():
                if (epsilon := times * found["epsilon"]) in epsilons:
                    yield PeerFit(found["model"] + label, epsilon, scores, seconds)

    def _task(self, folder: Path, package: str, spent: list[float]) -> Path:
        """Write records and options for the script; return the path of its task."""
        task: dict[str, Any] = {
            "train": str(folder / "train.csv"),
            "test": str(folder / "test.csv"),
            "label": "the label",
            "bounds": {c.name: [float(c.low), float(c.high)] for c in self._numbers},
            "schema": self.schema.to_dict(),
            "package": package,
            "epsilons": spent,
            "delta": 1 / len(self.labels) ** 2,
            "depth": self.depth,
            "seed": self.seed,
        }
        written = {"diffprivlib": self._indicators, "privatree": self._codes}.get(package, self._texts)
        train, test = map(written, (self.records, self.others))
        if package == "diffprivlib":
            both = pd.concat([train, test])
            task["bounds"] = {str(c): [float(both[c].min()), float(both[c].max()) + 1e-9] for c in both}
        train.assign(**{"the label": self.labels}).to_csv(folder / "train.csv", index=False)
        test.to_csv(folder / "test.csv", index=False)
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        return path

    @property
    def _numbers(self) -> list[Numeric]:
        return [column for column in self.schema.columns if isinstance(column, Numeric)]

    def _texts(self, half: pd.DataFrame) -> pd.DataFrame:
        """Write categories as text."""
        numbers = {column.name for column in self._numbers}
        return half.assign(**{str(c): half[c].astype(str) for c in half if c not in numbers})

    def _indicators(self, half: pd.DataFrame) -> pd.DataFrame:
        """Write categories as indicators."""
        X = encoded(self.schema, half)
        return pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])

    def _codes(self, half: pd.DataFrame) -> pd.DataFrame:
        """Write categories as integers from 0."""

        def written(column: Column) -> Any:
            values = half[column.name].to_numpy()
            return column.code(values) if isinstance(column, Categorical) else values

        return pd.DataFrame({column.name: written(column) for column in self.schema.columns})

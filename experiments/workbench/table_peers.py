"""Models of other packages fitted to a table with a schema, each in an environment of its own."""

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
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.schema import Schema


class PeerFit(NamedTuple):
    """One fit: the scores are the probabilities of the label 1 of the records left out."""

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

        Their neighbours add or remove a record, and a replacement is both: their epsilon doubles
        here. So each epsilon is measured at half of it, and also as labelled.
        """
        spent = sorted({*epsilons, *(e / 2 for e in epsilons)})
        with tempfile.TemporaryDirectory() as folder:
            task = self._task(Path(folder), package, spent)
            done = subprocess.run(
                [str(python), tree_peers.__file__, str(task)], capture_output=True, text=True, check=True
            )
        for found in json.loads(done.stdout):
            scores, seconds = np.array(found["scores"]), found["seconds"]
            for epsilon, label in ((found["epsilon"], "as labelled"), (2 * found["epsilon"], "replace-one")):
                if epsilon in epsilons:
                    yield PeerFit(f"{found['model']}, {label}", epsilon, scores, seconds)

    def _task(self, folder: Path, package: str, spent: list[float]) -> Path:
        """Write the records for the script; for diffprivlib with categories as indicators."""
        if package == "diffprivlib":
            names = [f"f{k}" for k in range(encoded(self.schema, self.records).shape[1])]
            train, test = (
                pd.DataFrame(encoded(self.schema, half), columns=names)
                for half in (self.records, self.others)
            )
            both = pd.concat([train, test])
            bounds = {name: [float(both[name].min()), float(both[name].max()) + 1e-9] for name in names}
        else:
            numbers = {
                c.name: [float(c.low), float(c.high)] for c in self.schema.columns if isinstance(c, Numeric)
            }
            train, test = (
                half.assign(**{str(c): half[c].astype(str) for c in half if c not in numbers})
                for half in (self.records, self.others)
            )
            bounds = numbers
        train.assign(**{"the label": self.labels}).to_csv(folder / "train.csv", index=False)
        test.to_csv(folder / "test.csv", index=False)
        task = {
            "train": str(folder / "train.csv"),
            "test": str(folder / "test.csv"),
            "label": "the label",
            "bounds": bounds,
            "package": package,
            "epsilons": spent,
            "delta": 1 / len(self.labels) ** 2,
            "depth": self.depth,
            "seed": self.seed,
        }
        path = folder / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        return path

"""Learned schemas: ranks of private cuts on shapes of columns, and cards with learned against declared cuts.

    python -m privopt.experiments.schemas [--opendp PYTHON] [--runs 30] [--splits 3] [--output FOLDER]

``--opendp`` is the Python of an environment with OpenDP, whose medians are measured too. What is finished is
kept in ``schema-ranks.csv`` and ``schema-cards.csv``; the page is ``learned-schemas.md``. All columns and
tables are public.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import Study
from privopt.mechanisms import PrivateHalfspaceClassifier, fit_with_learned_schema
from privopt.mechanisms.estimators.learned_fit import LearnedFitPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.cuts import CutPlan
from privopt.problems.datasets.adult import ADULT_TARGET, adult_schema, load_adult
from privopt.problems.datasets.covertype import COVERTYPE_COLUMNS, load_covertype
from privopt.problems.files import write_atomically
from privopt.problems.tables.columns import Binned, Categorical, Column
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

_PEER = Path(__file__).parent / "workbench" / "quantile_peer.py"
# Records of a column, and pure epsilon of a cut: twice its strength.
_RECORDS, _EPSILON, _TARGET = 10_000, 0.03, 0.006
# The share of mu^2 that a schema spends, and epsilon of schema and card together.
_SHARE, _TOTAL, _GAP = 0.1, 1.0, 0.006
_COVERTYPE = 40_000


def shapes() -> dict[str, Floats]:
    """Return 15 columns of 10,000 numbers: seven synthetic, eight sampled from public tables."""
    rng = np.random.default_rng(0)
    n = _RECORDS
    found = {
        "normal": rng.normal(size=n),
        "normal, unit 1e-9": 1e-9 * rng.normal(size=n),
        "lognormal, unit 1e12": 1e12 * rng.lognormal(size=n),
        "Cauchy": rng.standard_cauchy(n),
        "1234567 + 5 normal": 1234567 + 5 * rng.normal(size=n),
        "70% zeros, exponential": np.where(rng.random(n) < 0.7, 0.0, rng.exponential(100, n)),
        "years 1950 to 2020": rng.integers(1950, 2021, n).astype(float),
    }
    adult = load_adult("all")
    chosen = rng.choice(len(adult), n, replace=False)
    for name in ("age", "fnlwgt", "education-num", "capital-gain", "hours-per-week"):
        found[f"Adult, {name}"] = adult[name].to_numpy(dtype=float)[chosen]
    X, _ = load_covertype(np.int32)
    rows = rng.choice(len(X), n, replace=False)
    for name in ("Elevation", "Slope", "Horizontal_Distance_To_Roadways"):
        found[f"Covertype, {name}"] = X[rows, list(COVERTYPE_COLUMNS).index(name)].astype(float)
    return found


def excess(values: Floats, cut: float) -> float:
    """Return by how much a cut misses the middle of sorted numbers beyond the best one, per record of all."""
    middle = len(values) / 2
    starts = np.append(np.flatnonzero(np.diff(values, prepend=np.nan) != 0), len(values))
    best = float(np.min(np.abs(starts - middle)))
    return (abs(float(np.searchsorted(values, cut)) - middle) - best) / _RECORDS


def tree_excess(values: Floats, first: float, cuts: tuple[float, ...]) -> list[float]:
    """Return the excess of each cut of two levels in its own node, the first cut first."""
    place = int(np.searchsorted(values, first))
    sides = {cut: values[:place] if cut < first else values[place:] for cut in cuts if cut != first}
    return [excess(values, first), *(excess(side, cut) for cut, side in sides.items())]


@dataclass(frozen=True)
class Rank:
    """Median excess ranks of cuts of one column; by OpenDP of its median (NaN without it)."""

    column: str
    median: float
    three: float
    opendp: float


def ranks(column: str, runs: int, python: Path | None) -> list[Rank]:
    """Measure cuts of one shape of column; and OpenDP's median, if its Python is given."""
    values = np.sort(shapes()[column])
    plan, found = CutPlan(_EPSILON / 2, 2, _RECORDS), []
    root = replace(plan, depth=1)
    for seed in range(runs):
        first, cuts = (p.release(values, NoiseSource(seed)) for p in (root, plan))  # the same first cut
        found.append(tree_excess(values, first[0], cuts))
    median = float(np.median([excesses[0] for excesses in found]))
    three = float(np.median([missed for excesses in found for missed in excesses]))
    peers = [math.nan] if python is None else [excess(values, cut) for cut in _opendp(values, runs, python)]
    return [Rank(column, median, three, float(np.median(peers)))]


def _opendp(values: Floats, runs: int, python: Path) -> list[float]:
    """Return medians by OpenDP from 1,001 candidates, even over the range of the column, doubled."""
    low, high = float(values[0]), float(values[-1])
    width = high - low
    grid = np.linspace(low - width / 2, high + width / 2, 1001)
    asked = {"values": values.tolist(), "candidates": grid.tolist(), "epsilon": _EPSILON, "runs": runs}
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task.json"
        task.write_text(json.dumps(asked))
        done = subprocess.run(
            [str(python), str(_PEER), str(task)], capture_output=True, text=True, check=True
        )
    medians: list[float] = json.loads(done.stdout)
    return medians


# Records, labels, columns of numbers, and declared columns of the others.
Table = tuple[pd.DataFrame, NDArray[Any], list[str], list[Column]]


def _adult() -> Table:
    adult = load_adult("all")
    labels = (adult[ADULT_TARGET] == ">50K").astype(int).to_numpy()
    declared = [column for column in adult_schema().columns if isinstance(column, Categorical)]
    free = {column.name for column in declared} | {ADULT_TARGET}
    return adult, labels, [str(name) for name in adult if name not in free], list(declared)


def _covertype() -> Table:
    X, y = load_covertype(np.int32)
    rows, numbers = np.random.default_rng(0).choice(len(y), _COVERTYPE, replace=False), COVERTYPE_COLUMNS[:10]
    frame = pd.DataFrame(X[rows, :10], columns=list(numbers))
    frame = frame.assign(wilderness=X[rows, 10:14].argmax(axis=1), soil=X[rows, 14:].argmax(axis=1))
    others: list[Column] = [Categorical("wilderness", list(range(4))), Categorical("soil", list(range(40)))]
    return frame, (y[rows] == 2).astype(int), list(numbers), others


TABLES: dict[str, Callable[[], Table]] = {"Adult": _adult, "Covertype": _covertype}


def quartiles(frame: pd.DataFrame, numbers: list[str]) -> list[Column]:
    """Declare bins between the quartiles of a public table."""
    columns: list[Column] = []
    for name in numbers:
        values = frame[name].to_numpy(dtype=float)
        edges = np.unique(np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf"))
        edges = edges[edges > values.min()]
        columns.append(Binned(name, [float(values.min()), *edges.tolist(), float(values.max()) + 1]))
    return columns


@dataclass(frozen=True)
class Card:
    """AUC of cards on the other half of a table, with declared quartiles and with learned cuts."""

    table: str
    seed: int
    n: int
    strength: float
    quartiles: float
    learned: float


class Split(NamedTuple):
    table: str
    seed: int

    def __str__(self) -> str:
        return f"{self.table}, split {self.seed}"


def cards(split: Split) -> list[Card]:
    """Measure cards with declared quartiles, and with learned cuts, on halves of a table."""
    frame, y, numbers, declared = TABLES[split.table]()
    types, others = dict.fromkeys(numbers, "whole"), Schema(declared)
    known = Schema([*quartiles(frame, numbers), *declared], intercept=True)
    unused = [column for column in frame if column not in {c.name for c in known.columns}]
    order = np.random.default_rng(split.seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    asked = PrivateHalfspaceClassifier(_TOTAL, classes=(0, 1), insecure_seed=split.seed)
    options: dict[str, Any] = {"share": _SHARE, "types": types, "declared": others, "leave_out": unused}
    models = (
        clone(asked).set_params(schema=known).fit(frame.iloc[train], y[train]),
        fit_with_learned_schema(asked, frame.iloc[train], y[train], **options),
    )
    found = (float(roc_auc_score(y[test], model.decision_function(frame.iloc[test]))) for model in models)
    return [Card(*split, len(train), _strength(types, len(train)), *found)]


def _strength(types: dict[str, str], n: int) -> float:
    """Return lambda n of the cuts."""
    delta = 1 / n**2
    plan = LearnedFitPlan.plan(types, n, share=_SHARE, epsilon=_TOTAL, delta=delta, gaussian=True)
    cuts = plan.schema.columns[0].cuts
    assert cuts is not None
    return cuts.strength * n


def page(found: pd.DataFrame, models: pd.DataFrame) -> str:
    """Write the page of both tables."""
    shown = found.rename(columns={"median": "first cut", "three": "all cuts", "opendp": "OpenDP, median"})
    means = models.groupby("table", sort=False)[["n", "strength", "quartiles", "learned"]].mean()
    means["difference"] = means["learned"] - means["quartiles"]
    means["deviation"] = (models["learned"] - models["quartiles"]).groupby(models["table"]).std()
    values = {
        "ranks": markdown_table(shown.round(4)),
        "met": f"{int((found['three'] <= _TARGET).sum())} of {len(found)}",
        "first": f"{int((found['median'] <= _TARGET).sum())}",
        "worst": f"{found['three'].max():.4f}",
        "middle": f"{found['three'].median():.4f}",
        "cards": markdown_table(means.round(4).reset_index()),
        "close": f"{int((means['difference'] >= -_GAP).sum())} of {len(means)}",
        "splits": str(models["seed"].nunique()),
    }
    return filled("learned-schemas", values)


CARDS = Study[Split](
    "schema-cards",
    Card,
    ("table", "seed"),
    compute=cards,
    is_finished=lambda kept, split: bool(kept.matching(**split._asdict())),
)


def ranks_study(runs: int, python: Path | None) -> Study[str]:
    """Return the study of ranks, a cell a column."""
    return Study(
        "schema-ranks",
        Rank,
        ("column",),
        compute=partial(ranks, runs=runs, python=python),
        is_finished=lambda kept, column: bool(kept.matching(column=column)),
    )


def main(
    runs: Annotated[int, typer.Option(min=1, help="Number of runs for each column.")] = 30,
    splits: Annotated[int, typer.Option(min=1, help="Number of halves of each table.")] = 3,
    opendp: Annotated[Path | None, typer.Option(help="Python of an environment with OpenDP.")] = None,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path(
        "learned-schemas"
    ),
) -> None:
    """Measure the missing columns and splits, and write the page."""
    console = Console(stderr=True, soft_wrap=True, emoji=False)
    found = ranks_study(runs, opendp).run(output, list(shapes()), console)
    models = CARDS.run(output, [Split(table, seed) for table in TABLES for seed in range(splits)], console)
    write_atomically(output / "learned-schemas.md", page(found, models))


if __name__ == "__main__":
    typer.run(main)

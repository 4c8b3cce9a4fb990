"""Private trees and rule lists on real tables, beside scorecards, linear models, other packages, and no
privacy.

    python -m privopt.experiments.trees --output FOLDER [--environments FOLDER [--build]] [--splits 10]
        [--epsilon 0.1 --epsilon 1] [--shard K/N]

Tables are those of ``privopt.experiments.scorecards``, from the environment that it creates, and 20,000
records of Covertype, Lodgepole Pine against the others. In the same folder ``--build`` creates an environment
for each other package: ``interpret`` (interpret-core, for DP-EBM), ``diffprivlib``, ``privatree`` (the
published code of PrivaTree, cloned into its folder ``published``) and ``earlier`` (this package at commit
10feeddd, for its card; it needs a git checkout). Missing packages are left out.

Every table is split 70 to 30 for each seed: trained on one part, measured on the other. Bounds of numbers and
categories are declared from the whole table, which is public. Lines of ``trees.csv`` are kept after every
table of every split, and an interrupted run resumes. Trees and lists of tables with more than 200 predicates
have two levels: three are within the limits, but take a minute a fit.
"""

from __future__ import annotations

import functools
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from privopt.experiments import scorecards
from privopt.experiments.workbench.pages import filled, markdown_table, processor
from privopt.experiments.workbench.resumable import Kept
from privopt.experiments.workbench.study import ShardText, Study
from privopt.experiments.workbench.table_peers import EARLIER, TablePeer
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRuleListClassifier,
    PrivateTreeClassifier,
)
from privopt.problems.datasets.covertype import COVERTYPE_COLUMNS, covertype_bounds, load_covertype
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.predicates import Predicates
from privopt.problems.tables.schema import Schema

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Columns of results -> their names on the page.
METRICS = {
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
    "auc": "AUC",
    "brier": "Brier score",
}
_RISKS, _TRAINED, _DEPTH = 0.1, 0.7, 3
# Adult once more, half of its records held out, for the accuracy of trees with equal costs alone.
HALVES, EQUAL = "adult, halves", "tree, equal costs"
# Number of records of Covertype, sampled by a public seed.
_COVERTYPE = 20_000
# So large that the draw is almost surely the minimiser.
_FREE = 1e6
# Trees and lists over more predicates have this depth.
_MANY, _SHALLOW = 200, 2
ENVIRONMENTS = {
    EARLIER: [f"git+{Path(__file__).parents[1].as_uri()}@10feeddd"],
    "privatree": ["diffprivlib", "scikit-learn<1.8"],
    "diffprivlib": ["diffprivlib", "scikit-learn<1.8"],
    "interpret": ["interpret-core"],
}
_PRIVATREE = "https://github.com/tudelft-cda-lab/PrivaTree"

CART, OPTIMAL = "not private: CART", "not private: optimal tree"
OURS = "privopt"
Table = tuple[str, pd.DataFrame, NDArray[Any], Schema]

_BALANCED: dict[str, Any] = {"class_weight": "balanced"}
MODELS: dict[str, Callable[..., Any]] = {
    "tree": functools.partial(PrivateTreeClassifier, risk_share=_RISKS, **_BALANCED),
    "rule list": functools.partial(PrivateRuleListClassifier, risk_share=_RISKS, **_BALANCED),
    "card": functools.partial(PrivateHalfspaceClassifier, risk_share=_RISKS, **_BALANCED),
    "card and tree": functools.partial(PrivateAdditiveTreeClassifier, **_BALANCED),
    "logistic": functools.partial(PrivateLogisticRegression, **_BALANCED),
    EQUAL: PrivateTreeClassifier,
}

# Models by table, and models that are compared: those of a row, another one, and the measure.
BY_TABLE = ("tree", "rule list", "card", "card and tree", CART)
COMPARED = (
    ("tree", "card", "balanced_accuracy"),
    ("tree", CART, "balanced_accuracy"),
    *(("tree", f"{peer}, as labelled", "balanced_accuracy")
      for peer in ("DP-EBM", "diffprivlib tree", "diffprivlib forest")),
    *((model, "DP-EBM, as labelled", "auc") for model in ("tree", "card and tree")),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """Measures of one fitted model on one split.

    Attributes:
        n: the number of records that were trained on.
        part: OURS, or the package that fitted the model.
        epsilon: infinite without privacy.
        brier: NaN without risks.
        seconds: processor time of the fit; NaN if it was not measured.
    """

    table: str
    n: int
    predicates: int
    seed: int
    part: str
    model: str
    epsilon: float
    balanced_accuracy: float
    accuracy: float
    auc: float
    brier: float
    seconds: float


class Cell(NamedTuple):
    """One table, one split, the models of one package at all epsilons.

    Attributes:
        python: the interpreter of the package's environment; None for OURS.
    """

    table: Table
    seed: int
    part: str
    epsilons: tuple[float, ...]
    python: Path | None = None

    def __str__(self) -> str:
        return f"{self.table[0]}, split {self.seed}, {self.part}"

    def is_finished(self, kept: Kept) -> bool:
        about = {"table": self.table[0], "seed": self.seed, "part": self.part}
        return all(kept.matching(**about, epsilon=epsilon) for epsilon in self.epsilons)

    def lines(self) -> list[Line]:
        """Fit and measure the models."""
        split = Split(self.table, self.seed, self.part)
        if self.table[0] == HALVES:
            return [split.ours(EQUAL, e, MODELS[EQUAL](e)) for e in self.epsilons]
        if self.python is not None:
            return list(split.others_of(self.epsilons, self.python))
        return [
            *split.free(),
            *(split.ours(label, e, make(e)) for e in self.epsilons for label, make in MODELS.items()),
        ]


def all_tables(environments: Path | None) -> Iterator[Table]:
    """Yield name, records, labels 0 and 1, and a schema."""
    yield from scorecards.tables(scorecards.site_of(environments))
    yield _covertype()


def _covertype() -> Table:
    """Load a public sample of the binary task of Covertype; one-hot columns become two categorical ones."""
    X, y = load_covertype(np.int32)
    chosen = np.random.default_rng(0).choice(len(y), _COVERTYPE, replace=False)
    X, bounds = X[chosen], covertype_bounds()
    numbers, soil = COVERTYPE_COLUMNS[:10], X[:, 14:].argmax(axis=1)
    frame = pd.DataFrame(X[:, :10], columns=list(numbers))
    frame = frame.assign(wilderness=X[:, 10:14].argmax(axis=1), soil=soil)
    columns: list[Column] = [
        Numeric(name, int(low), int(high), step=int(high - low) // 120 or 1)
        for name, low, high in zip(numbers, bounds.low, bounds.high, strict=False)
    ]
    columns += [Categorical("wilderness", list(range(4))), Categorical("soil", list(range(40)))]
    return "covertype", frame, (y[chosen] == 2).astype(int), Schema(columns, intercept=True)


class Split:
    """A random split of a table, 70 to 30, or in halves."""

    def __init__(self, table: Table, seed: int, part: str = OURS) -> None:
        name, frame, y, self.schema = table
        order = np.random.default_rng(seed).permutation(len(y))
        size = round((0.5 if name == HALVES else _TRAINED) * len(y))
        train, test = order[:size], order[size:]
        self.records, self.labels = frame.iloc[train], y[train]
        self.others, self.truth = frame.iloc[test], y[test]
        self.positive, self.seed = float(y.mean()), seed
        predicates = len(Predicates.of(self.schema))
        self.depth = _SHALLOW if predicates > _MANY else _DEPTH
        self.part = part
        self.facts: dict[str, Any] = {"table": name, "n": size, "predicates": predicates, "seed": seed}

    def line(
        self,
        model: str,
        epsilon: float,
        said: NDArray[Any],
        scores: NDArray[Any],
        risk: NDArray[Any] | None,
        seconds: float = math.nan,
    ) -> Line:
        """Return the measures of predictions, scores and, if there are any, risks of the records left out."""
        y = self.truth
        return Line(
            **self.facts,
            part=self.part,
            model=model,
            epsilon=epsilon,
            balanced_accuracy=float(balanced_accuracy_score(y, said)),
            accuracy=float(accuracy_score(y, said)),
            auc=float(roc_auc_score(y, scores)),
            brier=math.nan if risk is None else float(brier_score_loss(y, risk)),
            seconds=seconds,
        )

    def ours(self, label: str, epsilon: float, model: Any) -> Line:
        """Fit and measure a model of this package."""
        levels = {"max_depth", "max_rules"} & set(model.get_params()) if self.depth == _SHALLOW else ()
        model.set_params(**dict.fromkeys(levels, self.depth))
        began = time.process_time()
        model.set_params(schema=self.schema, classes=(0, 1)).fit(self.records, self.labels)
        seconds = time.process_time() - began
        risk = model.predict_proba(self.others)[:, 1] if hasattr(model, "predict_proba") else None
        said, scores = model.predict(self.others), model.decision_function(self.others)
        return self.line(label, epsilon, said, scores, risk, seconds)

    def free(self) -> Iterator[Line]:
        """Fit and measure trees without privacy: CART on the same predicates, and an optimal tree."""
        predicates = Predicates.of(self.schema)
        halves = [predicates.table(predicates.coarse.codes(half)) for half in (self.records, self.others)]
        X, others = ([table.column(g) for g in range(len(predicates))] for table in halves)
        made = DecisionTreeClassifier(max_depth=self.depth, class_weight="balanced", random_state=0)
        made.fit(np.stack(X, axis=1), self.labels)
        scores = made.predict_proba(np.stack(others, axis=1))[:, 1]
        yield self.line(CART, math.inf, scores > 0.5, scores, None)
        share: dict[str, Any] = {"class_weight": "balanced", "prevalence": self.positive}
        yield self.ours(OPTIMAL, math.inf, PrivateTreeClassifier(_FREE, max_depth=self.depth, **share))

    def others_of(self, epsilons: Sequence[float], python: Path) -> Iterator[Line]:
        """Fit and measure models of another package, in its environment, at both readings of epsilon."""
        halves = TablePeer(self.schema, self.records, self.labels, self.others, self.seed, self.depth)
        for fit in halves.fits(python, self.part, epsilons):
            # Balanced: the threshold of risks is the share of the positive class, a public number.
            risks = self.part != EARLIER
            said = fit.scores > (self.positive if risks else 0)
            yield self.line(
                fit.model, fit.epsilon, said, fit.scores, fit.scores if risks else None, fit.seconds
            )


def cells(environments: Path | None, splits: int, epsilons: Sequence[float]) -> Iterator[Cell]:
    """Yield the first split of every table, the cheap ones first, then the second split, and so on."""
    pythons: dict[str, Path | None] = {OURS: None}
    for package in ENVIRONMENTS:
        own = scorecards._python(environments, package) if environments else None
        if own is not None and own.exists():
            pythons[package] = own
    tables = sorted(all_tables(environments), key=lambda t: len(Predicates.of(t[3])) ** 2 * len(t[2]))
    for seed in range(splits):
        for part, python in pythons.items():
            for table in tables:
                yield Cell(table, seed, part, tuple(epsilons), python)
        halves = [(HALVES, *table[1:]) for table in tables if table[0] == "adult"]
        yield from (Cell(table, seed, OURS, tuple(epsilons)) for table in halves)


def common(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of tables that all models were measured on."""
    tables = lines.groupby("model")["table"].agg(set)
    return lines[lines["table"].isin(set.intersection(*tables))]


def differences(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what one model is ahead of another: mean over tables, and its standard error."""
    rows = []
    for model, other, metric in COMPARED:
        found, known = _by_table(lines, model, metric), _by_table(lines, other, metric)
        if not (found and known):
            continue
        cells = {}
        for e, values in found.items():
            gain = (values - (known[e] if e in known else known[math.inf])).to_numpy(np.float64)
            error = np.std(gain, ddof=1) / math.sqrt(len(gain))
            cells[f"{e:g}"] = f"{np.mean(gain):+.3f} ({error:.3f})"
        rows.append({"model": model, "against": other, "measure": METRICS[metric], **cells})
    return pd.DataFrame(rows).fillna("")


def _by_table(lines: pd.DataFrame, model: str, metric: str) -> dict[float, pd.Series[float]]:
    """Return the mean of a measure by table, for each epsilon."""
    own = lines[lines["model"] == model]
    return {
        e: own[own["epsilon"] == e].groupby("table")[metric].mean()
        for e in sorted(set(own["epsilon"].astype(float)))
    }


def page(lines: pd.DataFrame) -> str:
    """Write the page: differences, and means over the tables that all models were measured on."""
    lines = lines[lines["table"] != HALVES]
    shared = common(lines)
    sizes = shared.groupby("table")["n"].first()
    splits = shared.groupby(["table", "model"])["seed"].nunique().groupby("table").min()
    more = lines[~lines["table"].isin(sizes.index)]
    parts = [_section(f"Mean {name}", shared, ["model"], metric) for metric, name in METRICS.items()]
    few = shared[shared["model"].isin(BY_TABLE)]
    for metric in ("balanced_accuracy", "auc"):
        parts.append(_section(f"By table: {METRICS[metric]}", few, ["table", "model"], metric))
    for metric in ("balanced_accuracy", "auc") if len(more) else ():
        names = ", ".join(sorted(set(more["table"])))
        parts.append(_section(f"Mean {METRICS[metric]} on {names}", more, ["model"], metric))
    places = {
        "machine": processor(),
        "tables": ", ".join(f"{name} ({sizes[name]:,}; {splits[name]})" for name in sizes.index),
        "differences": markdown_table(differences(shared)),
        "measures": "\n\n".join(parts),
    }
    return filled("trees", places)


def _section(title: str, lines: pd.DataFrame, keys: list[str], metric: str) -> str:
    return f"## {title}\n\n{_wide(lines.dropna(subset=[metric]), keys, metric)}"


def _wide(lines: pd.DataFrame, keys: list[str], metric: str) -> str:
    """Tabulate means over splits, then tables: a column for each epsilon."""
    by_table = lines.groupby(["table", "model", "epsilon"])[metric].mean()
    means = by_table.groupby([*keys, "epsilon"]).mean().unstack()
    means.columns = ["none" if math.isinf(e) else f"{e:g}" for e in map(float, means.columns)]
    return markdown_table(means.map(lambda m: "" if math.isnan(m) else f"{m:.3f}").reset_index())


STUDY = Study[Cell](
    "trees",
    Line,
    ("table", "seed", "model", "epsilon"),
    compute=Cell.lines,
    is_finished=lambda kept, cell: cell.is_finished(kept),
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")],
    environments: Annotated[
        Path | None, typer.Option(help="Folder of environments with other packages.")
    ] = None,
    build: Annotated[bool, typer.Option("--build", help="Create missing environments.")] = False,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits of each table.")] = 10,
    epsilon: Annotated[list[float] | None, typer.Option(help="Values of epsilon; can be repeated.")] = None,
    shard: ShardText = None,
) -> None:
    """Measure the missing cells, and write the page."""
    if build and environments is not None:
        scorecards.build(environments)
        for package, names in ENVIRONMENTS.items():
            scorecards.make_environment(environments, package, names)
        published = environments / "privatree" / "published"
        if not published.exists():
            subprocess.run(["git", "clone", "--quiet", _PRIVATREE, str(published)], check=True)
    todo = list(cells(environments, splits, epsilon or EPSILONS))
    STUDY.run(output, todo, Console(stderr=True, soft_wrap=True, emoji=False), shard)


if __name__ == "__main__":
    typer.run(main)

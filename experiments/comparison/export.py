"""Export of instances as MPS and LP files with their proved optima, for any solver."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from privopt.experiments.comparison import workload
from privopt.experiments.comparison.workload import Instance, Problem
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.mip import cell_model, row_model
from privopt.oracles.minimize.mip.highs import loaded
from privopt.oracles.minimize.mip.model import Formulation
from privopt.oracles.select import minimizer
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import Perturbation, from_fixed


@dataclass(frozen=True)
class Exported:
    """A line of ``optima.csv``: a file, its size and its proved optimum.

    Attributes:
        file: the name without extension; there is one .mps and one .lp file.
        model: "rows" or "cells".
        integers: the number of integer columns among ``columns``.
        optimum: the least value of the file's objective, constant included; exact: a multiple of 2**-20.
        proved: whether ``optimum`` is proved; otherwise it is the best known value.
        bound: the proved lower bound.
        by: the oracle that proved the bound.
        point: weights that attain ``optimum``.
    """

    file: str
    model: str
    columns: int
    integers: int
    rows: int
    nonzeros: int
    optimum: float
    proved: bool
    bound: float
    by: str
    point: str


def export(folder: Path, instances: Sequence[Instance], limit: float) -> list[Exported]:
    """Write every instance as .mps and .lp files, and ``optima.csv``.

    Each instance is written as a model of its rows and, if a single model of its cells (groups of records)
    describes the whole problem, as this one, too.

    Args:
        folder: the folder, created if missing; existing files are overwritten.
        instances: the instances; those without a proof within ``limit`` have ``proved`` false.
        limit: seconds for each proof.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for instance in instances for line in _exported(folder, instance, limit)]
    with (folder / "optima.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Exported)])
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)
    return lines


def _exported(folder: Path, instance: Instance, limit: float) -> list[Exported]:
    problem, p = workload.problem(*_data(instance)), workload.perturbation(instance)
    answer = minimizer("auto").prepare(problem, instance.task).minimize(p, Limits(seconds=limit))
    c, lines = answer.certificate, list[Exported]()
    for kind, formulation in _formulations(problem, instance, p):
        model, name = formulation.model, f"{instance.file_name}-{kind}"
        for ending in ("mps", "lp"):
            highs = loaded(model, formulation.costs)
            highs.changeObjectiveOffset(formulation.constant)
            highs.writeModel(str(folder / f"{name}.{ending}"))
        lines.append(
            Exported(
                file=name,
                model=kind,
                columns=model.size,
                integers=int(np.sum(model.integer)),
                rows=len(model.rows),
                nonzeros=sum(len(row.columns) for row in model.rows),
                optimum=from_fixed(c.fixed_value) if c.fixed_value is not None else float("nan"),
                proved=c.gap == 0,
                bound=c.bound,
                by=c.oracle,
                point=_written(answer.point),
            )
        )
    return lines


def _data(instance: Instance) -> tuple[str, int, int, str]:
    return instance.data, instance.n, instance.d, instance.question


def _formulations(problem: Problem, instance: Instance, p: Perturbation) -> list[tuple[str, Formulation]]:
    """Return the models that describe the whole problem.

    With numeric columns a cell model describes only a part of the problem, and is left out.
    """
    found = []
    for kind, module in (("rows", row_model), ("cells", cell_model)):
        try:
            found.append((kind, module.formulation(problem, instance.task, p)))
        except UnsupportedProblemError:
            continue
    return found


def _written(point: IntArray | None) -> str:
    return "" if point is None else " ".join(map(str, point.tolist()))

"""``privopt calibrate best-subset``: a private choice of columns, from public facts."""

from __future__ import annotations

from typing import Any

import typer

from privopt.experiments.cli.calibration import common_report
from privopt.experiments.cli.estimate_plans import check_facts, flag
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.oracles.limits import Limits
from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.discrete.supports import SubsetBounds
from privopt.problems.errors import InvalidInputError

_NEEDED = ("dimension", "max_features")
_TAKEN = {"as_json", "records", "snr", *_NEEDED}
# Synthetic tables for the probability of recovery, and seconds for each of their draws.
_TABLES, _SECONDS = 20, 5.0


def subset_report(context: typer.Context) -> dict[str, Any]:
    """Return the plan of a draw of columns; with ``--snr``, also how often it finds the informative ones.

    Raises:
        InvalidInputError: an option that is missing, does not apply, or is out of range.
    """
    options = context.params
    check_facts(context, (), _TAKEN)
    missing = [flag(name) for name in _NEEDED if options[name] is None]
    if options["snr"] is not None and options["records"] is None:
        missing.append("--records (for --snr)")
    if missing:
        raise InvalidInputError(
            f"calibrate {SubsetPlan.name} needs {' and '.join(missing)}: public numbers of columns, of "
            "columns to choose, and of records"
        )
    size, bounds = options["max_features"], SubsetBounds(1.0, feature=1.0)
    plan = SubsetPlan.plan(options["dimension"], size, bounds, epsilon=options["epsilon"])
    noise: dict[str, Any] = {
        "subsets": plan.lattice.size,
        "largest_loss": bounds.largest_loss(size),
        "beta": plan.choice.beta * plan.choice.problem_type.record_loss_bound / bounds.largest_loss(size),
    }
    measure = None
    if options["records"] is not None:
        plan.check_records(options["records"])
        measure = plan.noise_to_signal(options["records"])
    if options["snr"] is not None:
        design = SparseDesign(options["dimension"], size, snr=options["snr"])
        noise["recovery"] = plan.recovery(
            design, options["records"], tables=_TABLES, limits=Limits(seconds=_SECONDS)
        )
    return common_report(plan.name, plan.noised, noise, measure, plan.choice.spend)

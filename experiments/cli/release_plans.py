"""Reports of ``privopt calibrate`` on trees, searches, learned schemas and evaluations, from their plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import typer

from privopt.experiments.cli.calibration import common_report
from privopt.experiments.cli.estimate_plans import check_facts
from privopt.experiments.cli.linear import checked_label_range
from privopt.experiments.cli.parsing import parse_types
from privopt.experiments.cli.tree import tree_constructor
from privopt.mechanisms.estimators.additive import AdditivePlan
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.evaluation.histogram import HistogramPlan, scale_of
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.evaluation.residuals import ClippedSumsPlan, ResidualPlan
from privopt.mechanisms.schemas.learning import SchemaPlan
from privopt.mechanisms.tuning.selection import SelectionPlan
from privopt.problems.errors import InvalidInputError

Options = Mapping[str, Any]
_MODELS = {"tree": "tree", "rule-list": "rules", "additive-tree": "additive"}  # values of --model
_DEFAULT_COSTS = {"class_weight": None, "prevalence": None, "risk_share": 0.0}


def _tree(options: Options) -> dict[str, Any]:
    """Report the plan of ``privopt plan --model NAME``, with its defaults."""
    name, given = options["mechanism"], {key: options[key] for key in ("epsilon", "max_depth", "delta")}
    given = {key: "auto" if value is None else value for key, value in given.items()}
    made = tree_constructor({**_DEFAULT_COSTS, **given, "model": _MODELS[name]})
    plan: Any = made(schema=declared_schema(options["schema"])).plan(options["records"])
    tree, noised, noise = plan, "the choice of a model", {}
    if isinstance(plan, AdditivePlan):
        card: Any = plan.card.plan
        tree = plan.tree
        noised, noise = f"the card: {card.noised}; tree_beta: the choice of a tree", card.noise
    prefix = "tree_" if noise else ""
    noise = {**noise, **{prefix + key: value for key, value in tree.plan.choice.noise.items()}}
    shape = {"levels": tree.plan.levels, "predicates": tree.predicates}
    return common_report(name, noised, noise, tree.noise_to_signal, plan.spend, more=shape)


def _selection(options: Options) -> dict[str, Any]:
    """Report the budget of each run of a search: mu-GDP runs, or with delta 0 purely private ones."""
    delta = _delta(options)
    plan = SelectionPlan.plan(
        options["candidates"], epsilon=options["epsilon"], delta=delta, notion="gdp" if delta else "pure"
    )
    noise = {"run_epsilon": plan.run_epsilon, "run_delta": plan.run_delta, "run_mu": plan.run_mu}
    noise["sigma" if plan.score.gaussian else "scale"] = plan.score.scale
    runs = {"mean_runs": plan.candidates if plan.law is None else plan.law.mean}
    return common_report(plan.name, plan.noised, noise, None, plan.spend, more=runs)


def _schema(options: Options) -> dict[str, Any]:
    """Report what is learned of each column."""
    cuts = {} if options["cuts"] is None else {"cuts": options["cuts"]}
    plan = SchemaPlan.plan(
        parse_types(options["types"]),
        options["records"],
        epsilon=options["epsilon"],
        delta=_delta(options),
        **cuts,
    )
    learned = {f"column {column.name}": str(column).partition(": ")[2] for column in plan.columns}
    noise = {"mu_of_a_column": max(column.level for column in plan.columns)}
    return common_report(plan.name, plan.noised, noise, None, plan.spend, more=learned)


def _counts(options: Options) -> dict[str, Any]:
    """Report the noise of an evaluation or a comparison of classifiers."""
    plan = LeafPlan.plan(options["epsilon"])  # the noise of ``HistogramPlan``, too
    return common_report(options["mechanism"], plan.noised, {"scale": scale_of(plan.steps)}, None, plan.spend)


def _sums(kind: type[ClippedSumsPlan]) -> Callable[[Options], dict[str, Any]]:
    """Return the report of an evaluation or comparison of regressions."""

    def report(options: Options) -> dict[str, Any]:
        label_range = checked_label_range(options["label_range"], "squared")
        assert label_range is not None
        plan = kind.plan(label_range, epsilon=options["epsilon"])
        noise = {
            f"scale of {' and '.join(block.names)}": scale_of(steps) / 2**plan.sums.bits
            for block, steps in zip(plan.sums.blocks, plan.sums.steps, strict=True)
        }
        return common_report(plan.name, plan.noised, noise, None, plan.spend)

    return report


def _delta(options: Options) -> float:
    return public_delta("auto" if options["delta"] is None else options["delta"], options["records"])


class _Release(NamedTuple):
    """The options that a release needs, those that it also takes, and what returns its report."""

    needed: tuple[str, ...]
    taken: tuple[str, ...]
    report: Callable[[Options], dict[str, Any]]


RELEASES: Mapping[str, _Release] = {
    **dict.fromkeys(("tree", "rule-list"), _Release(("schema", "records"), ("max_depth",), _tree)),
    "additive-tree": _Release(("schema", "records"), ("max_depth", "delta"), _tree),
    SelectionPlan.name: _Release(("candidates", "records"), ("delta",), _selection),
    SchemaPlan.name: _Release(("types", "records"), ("delta", "cuts"), _schema),
    **dict.fromkeys((HistogramPlan.name, LeafPlan.name), _Release((), (), _counts)),
    **{kind.name: _Release(("label_range",), (), _sums(kind)) for kind in (ResidualPlan, PairedResidualPlan)},
}
_OWN = ("schema", "max_depth", "candidates", "types", "cuts")


def owners() -> dict[str, tuple[str, ...]]:
    """Return, for every option that only these releases take, which releases take it."""
    return {
        option: tuple(name for name, made in RELEASES.items() if option in (*made.needed, *made.taken))
        for option in _OWN
    }


def release_report(context: typer.Context) -> dict[str, Any]:
    """Return noise and spend of a release, from public facts alone.

    Raises:
        PrivOptError: a fact that is missing, does not apply, or is out of range.
    """
    made = RELEASES[context.params["mechanism"]]
    check_facts(context, made.needed, {"as_json", *made.taken})
    if (n := context.params["records"]) is not None and n < 1:
        raise InvalidInputError(f"--records must be >= 1, got {n}")
    return made.report(context.params)

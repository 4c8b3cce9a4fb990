"""Families of models: the one that a command line asks for, and the options that it takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS, SCORECARD_MECHANISMS
from privopt.problems.errors import InvalidInputError, did_you_mean

_BUDGETED = {"--delta", "--mechanism"}
_COSTS = {"--class-weight", "--prevalence"}
_WEIGHTS = {
    "--lattice", "--max-columns", "--constraint", "--card-solver", "--oracle", "--max-work", "--calibration",
}  # fmt: skip
_OF_RECORDS = {"--sample-weight", "--max-weight"}
_NUMBERS = {"--numbers"}
_GEOMETRY = {"--radius", "--separation", "--separators"}  # of `privopt calibrate`
_FIRST_ORDER = {"--loss", "--steps"}
_BOUNDED = {"--set", "--regularizer", "--data-norm", "--norm", "--label-range", "--max-features", "--errors"}


# The mechanism that draws columns (``SubsetPlan``); linear models take it only with --max-features.
DRAWN_COLUMNS = "best-subset"


@dataclass(frozen=True)
class ModelFamily:
    """A kind of model.

    Attributes:
        name: the value of ``--model``.
        title: the name in messages.
        options: the options of this family that some other family does not take.
        mechanisms: the names of its mechanisms other than "auto".
    """

    name: str
    title: str
    options: frozenset[str]
    mechanisms: Collection[str] = ()


CARD = ModelFamily(
    "card",
    "scorecards",
    frozenset(_BUDGETED | _COSTS | _WEIGHTS | _OF_RECORDS | _GEOMETRY | _NUMBERS | {"--risk-share"}),
    SCORECARD_MECHANISMS,
)
LINEAR = ModelFamily(
    "linear",
    "linear models",
    frozenset(_BUDGETED | _COSTS | _FIRST_ORDER | _BOUNDED | _OF_RECORDS | _NUMBERS),
    RISK_MECHANISMS,
)
ROBUST = ModelFamily(
    "robust", "robust linear models", frozenset(_BUDGETED | _FIRST_ORDER | {"--robust"}), ROBUST_FITS
)
TREE = ModelFamily("tree", "decision trees", frozenset(_COSTS | {"--risk-share", "--max-depth"}))
RULES = ModelFamily("rules", "rule lists", TREE.options)
ADDITIVE = ModelFamily(
    "additive", "sums of a card and a tree", frozenset(_COSTS | {"--delta", "--max-depth"})
)
AUTO = ModelFamily("auto", "models chosen by public facts", frozenset(_COSTS | {"--risk-share", "--ranking"}))
FAMILIES = {family.name: family for family in (CARD, LINEAR, ROBUST, TREE, RULES, ADDITIVE, AUTO)}


def requested_family(context: typer.Context, default: ModelFamily = CARD) -> ModelFamily:
    """Return the family that a command line asks for: by --model, otherwise by mechanism, --robust or --loss.

    Raises:
        UnknownMechanismError: a mechanism of no family.
        InvalidInputError: an unknown model, or an option or mechanism that the family does not take.
    """
    given = _given(context)
    family, because = _family(given, default)
    particular = frozenset[str]().union(*(f.options for f in FAMILIES.values()))
    if wrong := [option for option in given if option in particular - family.options]:
        remedy = "; name the model with --model" if because == "the default" else ""
        raise InvalidInputError(
            f"{', '.join(wrong)}: {family.title} ({because}) do not take "
            f"{'it' if len(wrong) == 1 else 'them'}; {', '.join(map(_home, wrong))}{remedy}"
        )
    mechanism = given.get("--mechanism", "auto")
    if not ("--max-features" in given and mechanism == DRAWN_COLUMNS):
        _check_mechanism(family, because, mechanism)
    return family


def _given(context: typer.Context) -> dict[str, Any]:
    """Return the options of the command line, by long name, whose values are not the defaults."""
    given = {}
    for option in context.command.params:
        source, value = context.get_parameter_source(str(option.name)), context.params.get(str(option.name))
        if source is not None and source.name == "COMMANDLINE" and value != option.default:
            given[f"--{option.name}" if option.param_type_name == "argument" else option.opts[0]] = value
    return given


def _family(given: Mapping[str, Any], default: ModelFamily) -> tuple[ModelFamily, str]:
    """Return the family that the options ask for, and the option that decides."""
    model, mechanism = given.get("--model"), given.get("--mechanism", "auto")
    if model is not None:
        if model not in FAMILIES:
            raise InvalidInputError(
                f"--model {model!r}{did_you_mean(model, list(FAMILIES))}: there are {', '.join(FAMILIES)}"
            )
        return FAMILIES[model], f"--model {model}"
    if "--robust" in given:
        return ROBUST, "--robust"
    for family in FAMILIES.values():
        if mechanism in family.mechanisms:
            return family, f"mechanism {mechanism}"
    return (LINEAR, "--loss") if "--loss" in given else (default, "the default")


def _home(option: str) -> str:
    """Say which models take an option."""
    titles = [family.title for family in FAMILIES.values() if option in family.options]
    return f"{option} belongs to {' and '.join(titles)}"


def _check_mechanism(family: ModelFamily, because: str, name: str) -> None:
    if name == "auto" or name in family.mechanisms:
        return
    known = [mechanism for f in FAMILIES.values() for mechanism in f.mechanisms]
    if name not in known:
        raise UnknownMechanismError(
            f"unknown mechanism {name!r}{did_you_mean(name, known)}; here are auto, {', '.join(known)}"
        )
    raise InvalidInputError(
        f"mechanism {name}: {family.title} ({because}) take auto, {', '.join(family.mechanisms)}"
    )

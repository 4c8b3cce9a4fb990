"""Plans of ``privopt estimate`` and of ``privopt calibrate``, from options: no data are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import typer

from privopt.experiments.cli.parsing import parse_lattice, parse_range, split_classes
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.errors import UnknownMechanismError
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.subset_mean import SubsetMean
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError, did_you_mean

# The options of each mechanism beside the options of all mechanisms: required ones, then optional ones.
_TAKES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        RobustMean.name: (("moment",), ("columns",)),
        TrimmedMean.name: (("mean_range",), ("columns",)),
        SubsetMean.name: (("radius",), ("columns", "target", "table", "classes", "subsets", "loss")),
        SampleAggregate.name: (
            ("radius", "subsets"),
            ("columns", "target", "table", "classes", "loss"),
        ),
        OPSamp.name: ((), ("target", "table", "classes", "lattice", "oracle", "alpha", "draws")),
    }
)
ESTIMATES = tuple(_TAKES)
_OPTION = {"mean_range": "--range", "json_file": "--json", "as_json": "--json", "convex_set": "--set"}


def check_options(context: typer.Context, always: frozenset[str]) -> None:
    """Check that the mechanism exists, its required options are given, and only options that it takes.

    Raises:
        UnknownMechanismError: an unknown name; the message lists the known ones.
        InvalidInputError: an option that is missing, or that the mechanism does not take.
    """
    options = context.params
    name = options["mechanism"]
    if name not in _TAKES:
        raise UnknownMechanismError(
            f"unknown mechanism {name!r}{did_you_mean(name, ESTIMATES)}; known are {', '.join(ESTIMATES)}"
        )
    needed, taken = _TAKES[name]
    check_facts(context, needed, {"delta", *always, *taken})


def check_facts(context: typer.Context, needed: Collection[str], taken: Collection[str]) -> None:
    """Check that all options that a mechanism needs are given, and only options that it takes.

    Raises:
        InvalidInputError: naming them.
    """
    options, name = context.params, context.params["mechanism"]
    if missing := [flag(option) for option in needed if options.get(option) is None]:
        raise InvalidInputError(f"{name} needs {' and '.join(missing)}, a public fact")
    allowed = {"mechanism", "epsilon", *needed, *taken}
    if wrong := [flag(option) for option in given_options(context) if option not in allowed]:
        raise InvalidInputError(
            f"{name} does not take {', '.join(wrong)}; leave {'it' if len(wrong) == 1 else 'them'} out"
        )


def check_loss(options: Mapping[str, Any]) -> None:
    """Check the loss of an estimate from subsets, and that classes are declared for logistic alone."""
    classes = split_classes(options["classes"])
    if options["loss"] not in ("squared", "logistic"):
        raise InvalidInputError(f"--loss is squared or logistic, got {options['loss']!r}")
    if options["loss"] == "logistic" and (classes is None or len(classes) != 2):
        raise InvalidInputError("--loss logistic needs two --classes")
    if options["loss"] == "squared" and classes is not None and options["mechanism"] != OPSamp.name:
        raise InvalidInputError("--classes belongs to --loss logistic")


def given_options(context: typer.Context) -> list[str]:
    """Return the names of the options that were given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def flag(name: str) -> str:
    """Return the option of the command line with the name of an argument."""
    return _OPTION.get(name, f"--{name.replace('_', '-')}")


def plan_of(name: str, n: int, d: int, delta: float, options: Mapping[str, Any]) -> Any:
    """Plan an estimate from public facts.

    Raises:
        PrivacyParameterError, InvalidInputError: a fact out of range.
    """
    budget: dict[str, Any] = {"epsilon": options["epsilon"], "delta": delta}
    if name == RobustMean.name:
        return RobustMean.plan(n, d, moment=options["moment"], **budget)
    if name == TrimmedMean.name:
        return TrimmedMean.plan(n, d, mean_range=parse_range(options["mean_range"], "--range"), **budget)
    if name == OPSamp.name:
        low, high, *radius = parse_lattice(options.get("lattice")) or (-1, 1)
        lattice = IntegerLattice(low, high, dimension=d, radius=radius[0] if radius else None)
        more = {key: options[key] for key in ("alpha", "draws") if options.get(key) is not None}
        return OPSamp.plan(ZeroOneHalfspace, lattice, n_records=n, **budget, **more)
    kind: type[Any] = SubsetMean if name == SubsetMean.name else SampleAggregate
    return kind.plan(n, d, radius=options["radius"], subsets=options["subsets"], **budget)

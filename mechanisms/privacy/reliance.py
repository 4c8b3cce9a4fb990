"""Code from outside this package that a privacy claim relies on, and how a spend names it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.vetting import is_own, standing

Part = TypeVar("Part")


def spent(plan: Any, source: NoiseSource) -> PrivacySpend:
    """Return the spend of a plan's release, with the seed of its noise and the outside code that it
    relies on.
    """
    return relying_on(replace(plan.spend, insecure_seed=source.insecure_seed), plan)


def relying_on(spend: PrivacySpend, plan: Any, *others: tuple[str, Any]) -> PrivacySpend:
    """Return a spend that names the outside code its claim relies on, and whether our checks passed that
    code.

    Args:
        plan: a mechanism. Its own class is named if it is outside code, and so are the classes of the losses,
            sets and mechanisms in its fields.
        others: more code: its role ("oracle"), and its class or function.
    """
    for what, code in (*_parts(plan), *others):
        known = standing(code, what)
        if known is not None and known.words not in spend.note:
            spend = spend.relying_on(known.words, checked=known.passed)
    return spend


def fresh_copy(part: Part) -> Part:
    """Return a deep copy of a plan's part if it is or holds outside code, else the part itself, which then
    keeps no state.

    A release works on this copy, made before data are read, so the part itself keeps nothing of the data that
    the next release could use. A copy does not protect against state that a class keeps outside its instances
    (in class attributes, modules, files).

    Raises:
        PrivacyParameterError: it cannot be copied.
    """
    if not any(True for _ in _held((part,))):
        return part
    try:
        return copy.deepcopy(part)
    except Exception as error:  # whatever its own methods raise
        raise PrivacyParameterError(
            f"{type(part).__name__} cannot be copied ({type(error).__name__}: {error}), and every release "
            "works on a copy made before data. To do: make locks and open files where they are used"
        ) from error


def _parts(plan: Any) -> Iterator[tuple[str, type]]:
    """Yield roles and classes of a plan and of the values in its fields."""
    yield "mechanism", type(plan)
    yield from _held(plan)


def _held(value: Any) -> Iterator[tuple[str, type]]:
    if isinstance(value, tuple):
        held = value
    elif is_dataclass(value) and not isinstance(value, type):
        held = tuple(getattr(value, field.name) for field in fields(value))
    else:
        return
    for part in held:
        if (what := _role(type(part))) is not None:
            yield what, type(part)
        yield from _held(part)


def _role(kind: type) -> str | None:
    """Return the role ("loss", "set", "mechanism") of a class of outside code, if noise is calibrated to what
    that class declares; None for other classes.
    """
    if is_own(kind) or not any(map(is_own, kind.__mro__)):
        return None
    from privopt.problems.convex.losses import Loss  # here, as both read SciPy
    from privopt.problems.convex.sets.interface import ConvexSet

    roles = {"loss": Loss, "set": ConvexSet}
    found = next((what for what, base in roles.items() if issubclass(kind, base)), None)
    return "mechanism" if found is None and hasattr(kind, "family") else found
